#include "cli/command.h"

#include "base/err.h"
#include "cli/terminal/environment.h"
#include "cli/launch.h"
#include "cli/terminal/term.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COMMANDS_MAX = 32 };

void command_list(const struct command *table, size_t n, FILE *f)
{
	for (size_t i = 0; i < n; i++) {
		char left[64];
		if (!table[i].main)
			continue;
		snprintf(left, sizeof left, "%s%s%s", table[i].name, *table[i].words ? " " : "",
			 table[i].words);
		fprintf(f, "  %-34s  %s\n", left, table[i].about);
	}
}

int command_dispatch(const struct command *table, size_t n, const char *parent, const char *what, int argc,
		     char **argv)
{
	const char *names[COMMANDS_MAX];
	assert(n <= COMMANDS_MAX);
	for (size_t i = 0; i < n; i++) {
		names[i] = table[i].name;
		if (strcmp(table[i].name, argv[0]) != 0)
			continue;
		if (!table[i].main)
			return term_error("%s%s%s is not built yet", parent ? parent : "", parent ? " " : "",
					  argv[0]);
		return table[i].main(argc, argv);
	}
	const char *near = nearest_name(argv[0], names, n);
	if (near)
		return term_usage(parent, "unknown %s \"%.100s\"; did you mean %s?", what, argv[0], near);
	return term_usage(parent, "unknown %s \"%.100s\"", what, argv[0]);
}

const struct opt command_to_options[] = {
	OPT("to", OPT_TEXT, "ENDPOINT",
	    "the service's job socket (else $QUERN_TO, one of this user, or " LAUNCH_JOBS ")"),
	OPT("key", OPT_TEXT, "FILE", "the client's secret key, for a service with keys (else $QUERN_KEY)"),
	OPT("server-key", OPT_TEXT, "FILE", "the service's public key (else $QUERN_SERVER_KEY)"),
};
const size_t command_n_to_options = sizeof command_to_options / sizeof *command_to_options;

static void help(const struct opts *o, const struct usage *u)
{
	printf("usage: quern %s%s%s [options]\n\n%s\n", u->name, *u->words ? " " : "", u->words, u->about);
	if (o->n_values) {
		printf("\noptions:\n");
		opts_help(o, stdout);
	}
}

int command_parse(struct opts *o, const struct usage *u, int argc, char **argv)
{
	char why[512];
	int rc = opts_parse(o, argc, argv, why, sizeof why);
	if (rc == OPTS_HELP) {
		help(o, u);
		return term_finish(EXIT_SUCCESS);
	}
	if (rc == -ENOSYS)
		return term_error("%s", why);
	if (rc)
		return term_usage(u->name, "%s", why);
	if (o->n_words < u->min_words)
		return term_usage(u->name, "%s is missing", u->words);
	if (o->n_words > u->max_words)
		return term_usage(u->name, "\"%.100s\" is too much", o->words[u->max_words]);
	return COMMAND_GO_ON;
}

int command_open(const struct opts *o, struct client **c, char *why, size_t why_n)
{
	struct client_keys keys;
	struct environment env = environment_read();
	bool keyed;
	int rc =
		curve_pair(&(struct curve_sources){opts_text(o, "key", NULL),
						   opts_text(o, "server-key", NULL), env.key, env.server_key},
			   &keys.own, &keys.server, &keyed, why, why_n);
	if (!rc) {
		char local[LAUNCH_JOBS_SIZE];
		const char *to = opts_text(o, "to", env.to);
		if (!to)
			to = keyed ? LAUNCH_JOBS : launch_jobs_endpoint(local);
		rc = client_open(to, keyed ? &keys : NULL, CONNECT_MS, c, why, why_n);
	}
	curve_forget(&keys.own);
	return rc;
}

int command_connect(const struct opts *o, struct client **c)
{
	char why[512];
	return command_open(o, c, why, sizeof why) ? term_error("%s", why) : COMMAND_GO_ON;
}

int command_request(const struct opts *o, const char *op, json_t **reply)
{
	struct client *c;
	char why[1024];
	int status = command_connect(o, &c);
	if (status != COMMAND_GO_ON)
		return status;
	json_t *request = json_pack("{s:s}", "op", op);
	int rc = client_call(c, request, CALL_MS, reply, why, sizeof why);
	json_decref(request);
	client_close(c);
	return rc ? term_error("%s", why) : COMMAND_GO_ON;
}
