#include "cli/commands.h"

#include "base/err.h"
#include "base/option_table.h"
#include "cli/command.h"
#include "cli/stream.h"
#include "cli/terminal/term.h"

#include <stdlib.h>
#include <string.h>

/* PROGRESS_MS: interval of the progress line on a terminal. */
enum { PROGRESS_MS = 300, REPLICAS_MAX = 1024 };

static const struct usage scale_usage = {
	.name = "scale",
	.words = "N",
	.about = "Starts or ends replicas of the model until there are N, and waits until that is done.  No "
		 "job is\n"
		 "lost: jobs of a replica that ends move to another one.  If a worker cannot serve, the "
		 "command\n"
		 "fails with the worker's reason.",
	.min_words = 1,
	.max_words = 1,
};
static const struct usage drain_usage = {
	.name = "drain",
	.words = "WORKER",
	.about = "Takes a worker (its number in: quern workers) out of service, with the other workers of "
		 "its\n"
		 "tensor-parallel group: their jobs move to other replicas, then the workers end.",
	.min_words = 1,
	.max_words = 1,
};

/* Count the replicas in a state. */
static size_t count_replicas(const json_t *status, const char *state)
{
	size_t n = 0, i;
	const json_t *row;
	json_array_foreach(json_object_get(status, "replicas"), i, row)
	{
		const char *s = json_string_value(json_object_get(row, "state"));
		n += s && strcmp(s, state) == 0;
	}
	return n;
}

static double slowest_load(const json_t *status)
{
	double far = 1;
	size_t i;
	const json_t *row;
	json_array_foreach(json_object_get(status, "workers"), i, row)
	{
		const char *s = json_string_value(json_object_get(row, "state"));
		double p = json_number_value(json_object_get(row, "progress"));
		if (s && strcmp(s, "loading") == 0 && p < far)
			far = p;
	}
	return far;
}

/* Update the progress line on the terminal; status NULL: clear the line. */
static void show_progress(const json_t *status)
{
	fprintf(stderr, "\r\033[K");
	if (!status)
		return;
	size_t loading = count_replicas(status, "loading"), draining = count_replicas(status, "draining");
	fprintf(stderr, "%zu serving", count_replicas(status, "serving"));
	if (loading)
		fprintf(stderr, ", %zu loading (%.0f%%)", loading, 100 * slowest_load(status));
	if (draining)
		fprintf(stderr, ", %zu draining", draining);
}

/* Send a request and wait for its reply without a time limit.  progress: poll the status meanwhile for the
 * progress line. */
static int wait_for(struct client *c, json_t *request, bool progress, json_t **reply, struct why *why)
{
	uint64_t id;
	bool polling = false, shown = false;
	int rc = client_send(c, request, &id, why);
	while (!rc) {
		rc = client_recv(c, progress && !polling ? PROGRESS_MS : -1, reply, why);
		if (rc == -ETIMEDOUT) {
			json_t *status = json_pack("{s:s}", "op", "status");
			rc = client_send(c, status, NULL, why);
			json_decref(status);
			polling = true;
			continue;
		}
		if (rc || client_reply_id(*reply) == id)
			break;
		polling = false;
		shown = true;
		show_progress(*reply);
		json_decref(*reply);
	}
	if (shown)
		show_progress(NULL);
	if (!rc && strcmp(client_reply_op(*reply), "error") == 0) {
		client_reply_error(*reply, why);
		json_decref(*reply);
		rc = -EREMOTEIO;
	}
	if (rc == -EINTR)
		err_why(why, rc, "interrupted; the service continues with the change (quern status)");
	return rc;
}

static int print_end(struct client *c, const char *what, struct why *why)
{
	json_t *status, *request = json_pack("{s:s}", "op", "status");
	int rc = client_call(c, request, CALL_MS, &status, why);
	json_decref(request);
	if (rc)
		return rc;
	size_t n = count_replicas(status, "serving");
	printf("%s%zu replica%s serve%s\n", what, n, n == 1 ? "" : "s", n == 1 ? "s" : "");
	json_decref(status);
	return 0;
}

/* Send the request, free it, and print the outcome: done, then the number of replicas. */
static int run_request(struct opts *o, json_t *request, const char *done)
{
	struct client *c;
	struct why why;
	json_t *reply;
	int status = command_connect(o, &c);
	if (status != COMMAND_GO_ON) {
		json_decref(request);
		return status;
	}
	if (opts_has(o, "timeout"))
		json_object_set_new(request, "timeout_s", json_integer(opts_int(o, "timeout")));
	interrupt_arm();
	bool json = opts_flag(o, "json");
	int rc = wait_for(c, request, !json && term_is_tty(stderr), &reply, &why);
	if (!rc) {
		if (json)
			stream_print_json(reply);
		else
			rc = print_end(c, done, &why);
		json_decref(reply);
	}
	json_decref(request);
	client_close(c);
	return term_finish(rc ? term_error("%s", why.text) : EXIT_SUCCESS);
}

static json_t *device_array(const struct opts *o, struct why *why)
{
	struct device_name devices[DEVICES_MAX];
	size_t n;
	if (devices_parse(opts_text(o, "device"), devices, &n, why)) {
		err_prefix(why, -EINVAL, "--device");
		return NULL;
	}
	json_t *a = json_array();
	for (size_t i = 0; i < n; i++)
		json_array_append_new(a, json_string(devices[i].name));
	return a;
}

static int run_scale(struct opts *o)
{
	struct why why;
	int64_t n;
	size_t one;
	if (ints_parse(o->words[0], 0, REPLICAS_MAX, &n, 1, &one, &why))
		return term_usage("scale", "N: %s", why.text);
	const double fraction = opts_number_or(o, "memory-fraction", 1);
	if (!(fraction >= 0.01 && fraction <= 1))
		return term_usage("scale", "--memory-fraction is %g, must be from 0.01 to 1", fraction);
	json_t *devices = opts_has(o, "device") ? device_array(o, &why) : NULL;
	if (opts_has(o, "device") && !devices)
		return term_usage("scale", "%s", why.text);
	json_t *request = json_pack("{s:s, s:I}", "op", "scale", "replicas", (json_int_t)n);
	if (devices)
		json_object_set_new(request, "devices", devices);
	if (opts_has(o, "memory-fraction"))
		json_object_set_new(request, "memory_fraction", json_real(fraction));
	return run_request(o, request, "");
}

int cmd_scale(int argc, char **argv)
{
	return command_run(&scale_usage, OPTION_SCALE, run_scale, argc, argv);
}

static int run_drain(struct opts *o)
{
	struct why why;
	char done[64];
	int64_t worker;
	size_t one;
	if (ints_parse(o->words[0], 1, INT64_MAX, &worker, 1, &one, &why))
		return term_usage("drain", "WORKER: %s; quern workers lists them", why.text);
	snprintf(done, sizeof done, "worker %lld has ended; ", (long long)worker);
	return run_request(o, json_pack("{s:s, s:I}", "op", "drain", "worker", (json_int_t)worker), done);
}

int cmd_drain(int argc, char **argv)
{
	return command_run(&drain_usage, OPTION_DRAIN, run_drain, argc, argv);
}
