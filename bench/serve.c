#include "bench/commands.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/json.h"
#include "base/option_table.h"
#include "cli/command.h"
#include "cli/terminal/environment.h"
#include "cli/launch.h"
#include "bench/load_figures.h"
#include "bench/loadgen.h"
#include "bench/plot.h"
#include "bench/replay.h"
#include "cli/terminal/table.h"
#include "cli/terminal/term.h"
#include "bench/workload.h"

#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { PERCENTILES_MAX = 16, PLOT_POINTS = 200 };
/* Random prompts draw from the tokens of this text. */
static const char sample_text[] =
	"Once upon a time there was a miller who had three sons, a mill, a donkey and a cat. The sons had to "
	"grind, the donkey had to fetch grain and carry away flour, and the cat had to drive off the mice.";

static const struct usage usage = {
	.name = "bench serve",
	.words = "",
	.about =
		"Sends streamed requests to a running OpenAI-compatible server and reports TTFT, TPOT, ITL,\n"
		"latency, throughput and goodput by the definitions of `vllm bench serve`.",
};

struct bench {
	const struct opts *opts;
	bool chat, json;
	char *root;         /* owned; the URL without /v1 */
	const char *socket; /* path of --base-url unix:PATH, borrowed; NULL: none */
	char *url;          /* owned; URL of the requests */
	char *model;        /* owned */
	const char *api_key;
	json_t *common; /* owned; members of every request */
	char *head;     /* owned; each request's JSON up to the prompt; NULL with --replay */
	struct workload load;
	struct replay replay; /* requests of --replay */
	double percentiles[PERCENTILES_MAX];
	size_t n_percentiles;
	struct load_slo slo;
	json_t *extra; /* owned; --extra-body, or NULL */
	struct load_request *requests;
	size_t n_requests;
	struct load_totals totals;
	struct load_figures figures;
};

/* ---- options ---- */

static int parse_rate(const char *text, double *out, struct why *why)
{
	char *end;
	*out = strtod(text, &end);
	if (end == text || *end || isnan(*out) || *out <= 0)
		return err_why(why, -EINVAL, "--request-rate \"%.40s\" is neither inf nor above 0", text);
	return 0;
}

static int parse_percentiles(struct bench *b, const char *text, struct why *why)
{
	for (const char *p = text;; p++) {
		char *end;
		double x = strtod(p, &end);
		if (end == p || !(x >= 0 && x <= 100) || (*end && *end != ','))
			return err_why(why, -EINVAL, "--percentiles \"%.40s\": numbers of 0 to 100", text);
		if (b->n_percentiles == PERCENTILES_MAX)
			return err_why(why, -EINVAL, "--percentiles: at most %d", PERCENTILES_MAX);
		b->percentiles[b->n_percentiles++] = x;
		p = end;
		if (!*p)
			return 0;
	}
}

static int parse_prompts(struct bench *b, const char *text, struct why *why)
{
	unsigned lo, hi;
	int used = 0;
	b->load.prompts = WORKLOAD_IDS;
	if (strcmp(text, "words") == 0)
		b->load.prompts = WORKLOAD_WORDS;
	else if (sscanf(text, "ids:%9u,%9u%n", &lo, &hi, &used) == 2 && !text[used] && lo <= hi) {
		b->load.prompts = WORKLOAD_ID_RANGE;
		b->load.id_lo = lo;
		b->load.id_hi = hi;
	} else if (strcmp(text, "ids") != 0)
		return err_why(why, -EINVAL, "--prompts \"%.40s\" is none of words, ids, ids:LO,HI", text);
	if (b->chat && b->load.prompts != WORKLOAD_WORDS)
		return err_why(why, -EINVAL, "--prompts: a chat takes words only");
	return 0;
}

/* Refuse options that do not apply to --replay, because the file has its own prompts. */
static int check_replay(const struct bench *b, struct why *why)
{
	static const char *const others[] = {"endpoint",   "trace",         "trace-speed",
					     "input-len",  "range-ratio",   "lengths",
					     "prefix-len", "max-input-len", "prompts"};
	for (size_t i = 0; opts_has(b->opts, "replay") && i < sizeof others / sizeof *others; i++)
		if (opts_has(b->opts, others[i]))
			return err_why(why, -EINVAL, "--replay has its own requests: no --%s", others[i]);
	return 0;
}

static int parse_workload(struct bench *b, struct why *why)
{
	static const char *const of_lengths[] = {"input-len", "output-len", "range-ratio"};
	static const char *const of_trace[] = {"request-rate", "burstiness",  "input-len",
					       "output-len",   "range-ratio", "lengths"};
	const struct opts *o = b->opts;
	struct workload *w = &b->load;
	w->trace = opts_text(o, "trace");
	w->trace_speed = opts_number(o, "trace-speed");
	w->n = (size_t)opts_int_or(o, "num-prompts", w->trace || opts_has(o, "replay") ? 0 : 1000);
	w->burstiness = opts_number(o, "burstiness");
	w->n_prompt = (uint32_t)opts_int(o, "input-len");
	w->n_output = (uint32_t)opts_int(o, "output-len");
	w->range_ratio = opts_number(o, "range-ratio");
	w->n_prefix = (uint32_t)opts_int(o, "prefix-len");
	w->max_prompt = (uint32_t)opts_int(o, "max-input-len");
	w->max_output = (uint32_t)opts_int(o, "max-output-len");
	w->seed = (uint64_t)opts_int(o, "seed");
	w->by_lengths = opts_has(o, "lengths");
	for (size_t i = 0; w->trace && i < sizeof of_trace / sizeof *of_trace; i++)
		if (opts_has(o, of_trace[i]))
			return err_why(why, -EINVAL, "--trace has its own times and lengths: no --%s",
				       of_trace[i]);
	for (size_t i = 0; w->by_lengths && i < sizeof of_lengths / sizeof *of_lengths; i++)
		if (opts_has(o, of_lengths[i]))
			return err_why(why, -EINVAL, "either --lengths or --%s", of_lengths[i]);
	if (!w->trace && opts_has(o, "trace-speed"))
		return err_why(why, -EINVAL, "--trace-speed is for --trace");
	if (!(w->trace_speed >= 1e-6 && w->trace_speed <= 1e6))
		return err_why(why, -EINVAL, "--trace-speed must be 1e-6 to 1e6");
	/* With smaller shapes, the power in rng_gamma() underflows. */
	if (!(w->burstiness >= 0.01 && w->burstiness <= 1e6))
		return err_why(why, -EINVAL, "--burstiness must be 0.01 to 1e6");
	if (!(w->range_ratio >= 0 && w->range_ratio < 1))
		return err_why(why, -EINVAL, "--range-ratio must be 0 to below 1");
	int rc = parse_rate(opts_text(o, "request-rate"), &w->rate, why);
	if (!rc && w->by_lengths) {
		rc = lengths_parse(opts_text(o, "lengths"), &w->lengths, why);
		if (rc)
			err_prefix(why, rc, "--lengths");
	}
	if (!rc && opts_has(o, "prompts"))
		rc = parse_prompts(b, opts_text(o, "prompts"), why);
	return rc;
}

/* Turn "http://host:port/v1/" into "http://host:port". */
static int parse_url(struct bench *b, struct why *why)
{
	const char *given =
		opts_text_or(b->opts, "base-url", opts_text_or(b->opts, "to", "http://" OPTION_HTTP));
	if (opts_has(b->opts, "base-url") && opts_has(b->opts, "to"))
		return err_why(why, -EINVAL, "either --base-url or --to");
	const bool bare = !strstr(given, "://");
	if (!strncmp(given, "unix:", 5)) {
		b->socket = given + 5;
		given = "http://localhost";
		if (!*b->socket)
			return err_why(why, -EINVAL, "\"unix:\": must be unix:PATH");
	} else if (!bare && strncmp(given, "http://", 7) != 0 && strncmp(given, "https://", 8) != 0)
		return err_why(why, -EINVAL, "\"%.200s\": must begin with http://, https:// or unix:", given);
	b->root = xasprintf("%s%s", bare && !b->socket ? "http://" : "", given);
	size_t n = strlen(b->root);
	while (n && b->root[n - 1] == '/')
		b->root[--n] = 0;
	if (n > 3 && strcmp(b->root + n - 3, "/v1") == 0)
		b->root[n - 3] = 0;
	return 0;
}

static int parse_extra(struct bench *b, struct why *why)
{
	const char *text = opts_text(b->opts, "extra-body");
	if (!text)
		return 0;
	int rc = json_parse(text, strlen(text), &b->extra, why);
	if (!rc && !json_is_object(b->extra))
		rc = err_why(why, -EINVAL, "no JSON object");
	return rc ? err_prefix(why, -EINVAL, "--extra-body") : 0;
}

static int parse(struct bench *b, struct why *why)
{
	const struct opts *o = b->opts;
	const char *endpoint = opts_text(o, "endpoint");
	double timeout = opts_number(o, "timeout");
	b->chat = strcmp(endpoint, "chat") == 0;
	b->json = opts_flag(o, "json");
	b->api_key = environment_read().api_key;
	if (!b->chat && strcmp(endpoint, "completions") != 0)
		return err_why(why, -EINVAL, "--endpoint \"%.40s\" is neither completions nor chat",
			       endpoint);
	if (!(timeout >= 0.001 && timeout <= 1e6))
		return err_why(why, -EINVAL, "--timeout must be 0.001 to 1e6 seconds");
	int rc = parse_url(b, why);
	if (!rc)
		rc = check_replay(b, why);
	if (!rc)
		rc = parse_workload(b, why);
	if (!rc)
		rc = parse_percentiles(b, opts_text(o, "percentiles"), why);
	if (!rc && opts_has(o, "goodput")) {
		rc = load_slo_parse(opts_text(o, "goodput"), &b->slo, why);
		if (rc)
			err_prefix(why, rc, "--goodput");
	}
	return rc ? rc : parse_extra(b, why);
}

/* ---- the server ---- */

static int learn_model(struct bench *b, struct why *why)
{
	json_t *reply;
	const char *given = opts_text(b->opts, "model");
	if (given) {
		b->model = xstrdup(given);
		return 0;
	}
	char *url = xasprintf("%s/v1/models", b->root);
	int rc = load_call(url, b->socket, b->api_key, NULL, &reply, why);
	if (!rc) {
		const json_t *first = json_array_get(json_object_get(reply, "data"), 0);
		const char *id = json_string_value(json_object_get(first, "id"));
		if (id)
			b->model = xstrdup(id);
		else
			rc = err_why(why, -EPROTO, "%s lists no model: give --model", url);
		json_decref(reply);
	}
	free(url);
	return rc;
}

/* Get the ids of sample_text from the server's tokenizer (/tokenize of vLLM and quern). */
static int learn_ids(struct bench *b, struct why *why)
{
	json_t *reply, *request = json_pack("{s:s, s:s}", "model", b->model, "prompt", sample_text);
	char *body = json_dumps(request, JSON_COMPACT), *url = xasprintf("%s/tokenize", b->root);
	json_decref(request);
	int rc = body ? load_call(url, b->socket, b->api_key, body, &reply, why)
		      : err_why(why, -EILSEQ, "the model's name is not valid UTF-8");
	free(body);
	if (!rc) {
		const json_t *tokens = json_object_get(reply, "tokens");
		size_t n = json_array_size(tokens);
		b->load.ids = xcalloc(n + 1, sizeof *b->load.ids);
		for (size_t i = 0; i < n; i++) {
			json_int_t id = json_integer_value(json_array_get(tokens, i));
			if (id >= 0 && id <= UINT32_MAX)
				b->load.ids[b->load.n_ids++] = (uint32_t)id;
		}
		json_decref(reply);
		if (!n)
			rc = err_why(why, -EPROTO, "%s reports no tokens: give --prompts words or ids:LO,HI",
				     url);
	}
	free(url);
	return rc;
}

static int learn_prompts(struct bench *b, struct why *why)
{
	bool given = opts_has(b->opts, "prompts");
	if ((given && b->load.prompts != WORKLOAD_IDS) || b->chat || b->replay.n)
		return 0;
	int rc = learn_ids(b, why);
	if (rc && given)
		return rc;
	b->load.prompts = rc ? WORKLOAD_WORDS : WORKLOAD_IDS;
	return 0;
}

/* ---- requests ---- */

/* Make the requests of --replay.  Requests that follow no other arrive at the times of the workload. */
static int replay_requests(struct bench *b, const char *path, struct why *why)
{
	struct workload arrivals = b->load;
	struct load_request *v;
	size_t n = 0;
	int rc = replay_read(path, b->load.n, &b->replay, why);
	if (!rc && b->replay.batch && opts_has(b->opts, "output-len"))
		rc = err_why(why, -EINVAL, "%s: a batch has its own lengths: no --output-len", path);
	if (rc)
		return rc;
	b->chat = b->replay.chat;
	b->n_requests = b->replay.n;
	b->requests = xcalloc(b->n_requests, sizeof *b->requests);
	arrivals.n = b->n_requests;
	rc = workload_make(&arrivals, &v, &arrivals.n, why);
	for (size_t i = 0; !rc && i < b->n_requests; i++)
		b->requests[i] = (struct load_request){.at_us = v[b->replay.v[i].follows ? 0 : n++].at_us,
						       .follows = b->replay.v[i].follows};
	free(v);
	return rc;
}

static int make_requests(struct bench *b, struct why *why)
{
	const char *path = opts_text(b->opts, "replay");
	if (path)
		return replay_requests(b, path, why);
	int rc = workload_make(&b->load, &b->requests, &b->n_requests, why);
	return rc || b->n_requests ? rc : err_why(why, -EINVAL, "%s holds no request", b->load.trace);
}

/* Set the members of all requests.  Lines of a batch keep their own temperature. */
static int make_common(struct bench *b, struct why *why)
{
	json_t *o = json_pack("{s:s, s:b, s:{s:b}}", "model", b->model, "stream", 1, "stream_options",
			      "include_usage", 1);
	if (!o)
		return err_why(why, -EILSEQ, "the model's name is not valid UTF-8");
	if (!b->replay.batch || opts_has(b->opts, "temperature"))
		json_object_set_new(o, "temperature", json_real(opts_number(b->opts, "temperature")));
	if (opts_flag(b->opts, "ignore-eos"))
		json_object_set_new(o, "ignore_eos", json_true());
	if (b->extra)
		json_object_update(o, b->extra);
	b->common = o;
	if (b->replay.n)
		return 0;
	b->head = json_dumps(o, JSON_COMPACT);
	b->head[strlen(b->head) - 1] = 0; /* cut off the closing brace */
	return 0;
}

static void put_body(void *ctx, size_t nth, struct buf *out)
{
	struct bench *b = ctx;
	const struct load_request *r = &b->requests[nth];
	if (b->replay.n) {
		replay_put(&b->replay.v[nth], b->common, b->load.n_output, b->load.max_output, out);
		return;
	}
	buf_puts(out, b->head);
	buf_printf(out, ",\"max_tokens\":%u,", r->n_output);
	buf_puts(out, b->chat ? "\"messages\":[{\"role\":\"user\",\"content\":" : "\"prompt\":");
	workload_prompt(&b->load, nth, r->n_prompt, out);
	buf_puts(out, b->chat ? "}]}" : "}");
}

static void show_progress(void *ctx, const struct load_progress *p)
{
	const struct bench *b = ctx;
	double s = (double)p->now_us / 1e6;
	fprintf(stderr, "\r\x1b[K%zu/%zu requests, %zu running", p->n_done, b->n_requests, p->n_running);
	if (p->n_waiting)
		fprintf(stderr, ", %zu waiting", p->n_waiting);
	if (p->n_failed)
		fprintf(stderr, ", %s%zu failed%s", term_style(stderr, TERM_RED), p->n_failed,
			term_style(stderr, TERM_PLAIN));
	fprintf(stderr, ", %.0f s, %.0f tokens/s ", s, s > 0 ? (double)p->n_tokens / s : 0);
	fflush(stderr);
}

static struct load_config config_of(struct bench *b)
{
	return (struct load_config){
		.url = b->url,
		.socket = b->socket,
		.api_key = b->api_key,
		.max_running = (size_t)opts_int(b->opts, "max-concurrency"),
		.timeout_us = (int64_t)(opts_number(b->opts, "timeout") * 1e6),
		.keep_text = opts_flag(b->opts, "save-detailed"),
		.body = put_body,
		.progress = term_is_tty(stderr) ? show_progress : NULL,
		.ctx = b,
	};
}

/* Send copies of the first request, one at a time.  A failure ends the run. */
static int warm_up(struct bench *b, struct why *why)
{
	struct load_config c = config_of(b);
	int rc = 0;
	c.progress = NULL;
	for (int64_t i = opts_int(b->opts, "warmups"); i > 0 && !rc; i--) {
		struct load_request r = b->requests[0];
		struct load_totals totals;
		r.at_us = 0;
		rc = load_run(&c, &r, 1, &totals, why);
		if (!rc && r.error)
			rc = err_why(why, totals.interrupted ? -EINTR : -EREMOTEIO,
				     "the first request to %s failed: %s", b->url, r.error);
		load_request_fini(&r);
	}
	return rc;
}

static int measure(struct bench *b, struct why *why)
{
	struct load_config c = config_of(b);
	int rc = load_run(&c, b->requests, b->n_requests, &b->totals, why);
	if (c.progress)
		fputs("\r\x1b[K", stderr);
	if (!rc)
		load_figures_make(&b->figures, b->requests, b->n_requests, b->totals.duration_us, &b->slo);
	return rc;
}

/* ---- report ---- */

static const char *prompts_name(const struct bench *b)
{
	return b->replay.n && b->replay.batch      ? "batch"
	       : b->replay.n                       ? "conversations"
	       : b->load.prompts == WORKLOAD_WORDS ? "words"
	       : b->load.prompts == WORKLOAD_IDS   ? "ids"
						   : "id range";
}

static double cpu_us_per_token(const struct bench *b)
{
	return b->figures.total_output ? (double)b->totals.cpu_us / (double)b->figures.total_output : 0;
}

static double cpu_share(const struct bench *b)
{
	return b->totals.duration_us ? (double)b->totals.cpu_us / (double)b->totals.duration_us : 0;
}

static json_t *result_json(struct bench *b)
{
	char date[32];
	time_t now = (time_t)clock_unix();
	struct tm tm;
	gmtime_r(&now, &tm);
	strftime(date, sizeof date, "%Y%m%d-%H%M%S", &tm);
	const char *backend = b->chat ? "openai-chat" : "openai";
	const struct workload *w = &b->load;
	json_t *o = json_pack("{s:s, s:s, s:s, s:n, s:s, s:s, s:I}", "date", date, "endpoint_type", backend,
			      "backend", backend, "label", "model_id", b->model, "tokenizer_id", b->model,
			      "num_prompts", (json_int_t)b->n_requests);
	if (w->trace)
		json_object_set_new(o, "request_rate", json_null());
	else
		json_object_set_new(o, "request_rate",
				    isfinite(w->rate) ? json_real(w->rate) : json_string("inf"));
	json_object_set_new(o, "burstiness", w->trace ? json_null() : json_real(w->burstiness));
	int64_t bound = opts_int(b->opts, "max-concurrency");
	json_object_set_new(o, "max_concurrency", bound ? json_integer(bound) : json_null());
	json_object_set_new(o, "seed", json_integer((json_int_t)w->seed));
	json_object_set_new(o, "prompts", json_string(prompts_name(b)));
	load_figures_json(&b->figures, b->slo.any, b->percentiles, b->n_percentiles, o);
	json_object_set_new(o, "max_concurrent_requests", json_integer((json_int_t)b->totals.max_running));
	json_object_set_new(o, "interrupted", json_boolean(b->totals.interrupted));
	json_object_set_new(o, "load_generator_cpu_us_per_token", json_real(cpu_us_per_token(b)));
	json_object_set_new(o, "load_generator_cpu_share", json_real(cpu_share(b)));
	if (opts_flag(b->opts, "save-detailed"))
		load_figures_detail(b->requests, b->n_requests, o);
	return o;
}

static void print_latencies(struct bench *b)
{
	static const char *const names[LOAD_METRICS] = {"TTFT ms", "TPOT ms", "ITL ms", "E2EL ms"};
	struct table t = {0};
	table_row(&t, "", "MEAN", "MEDIAN", "STD", NULL);
	for (size_t i = 0; i < b->n_percentiles && i < TABLE_COLUMNS - 4; i++)
		table_format(&t, "P%g", b->percentiles[i]);
	for (int m = 0; m < LOAD_METRICS; m++) {
		struct samples *s = &b->figures.ms[m];
		table_begin(&t);
		table_text(&t, names[m]);
		table_format(&t, "%.2f", samples_mean(s));
		table_format(&t, "%.2f", samples_percentile(s, 50));
		table_format(&t, "%.2f", samples_std(s));
		for (size_t i = 0; i < b->n_percentiles && i < TABLE_COLUMNS - 4; i++)
			table_format(&t, "%.2f", samples_percentile(s, b->percentiles[i]));
	}
	table_print(&t, stdout);
	table_fini(&t);
}

static void print_report(struct bench *b)
{
	const struct load_figures *f = &b->figures;
	double s = f->duration_s > 0 ? f->duration_s : 1;
	printf("%s%s%s%s, %s of %s, prompts of %s\n", b->socket ? "unix:" : "", b->socket ? b->socket : "",
	       b->socket ? ", " : "", b->url, b->chat ? "chats" : "completions", b->model, prompts_name(b));
	printf("%zu requests completed, %zu failed, in %.2f s%s\n", f->completed, f->failed, f->duration_s,
	       b->totals.interrupted ? " (interrupted)" : "");
	printf("tokens      %" PRIu64 " in, %" PRIu64 " out\n", f->total_input, f->total_output);
	printf("throughput  %.2f requests/s, %.2f output tokens/s (best second %.0f), %.2f total tokens/s\n",
	       (double)f->completed / s, (double)f->total_output / s, f->max_output_tokens_per_s,
	       (double)(f->total_input + f->total_output) / s);
	if (b->slo.any)
		printf("goodput     %.2f requests/s (%zu of %zu met the objectives)\n", (double)f->good / s,
		       f->good, f->completed + f->failed);
	printf("concurrency %zu at the most\n", b->totals.max_running);
	printf("this client %.2f us of CPU per output token, %.0f%% of a core\n\n", cpu_us_per_token(b),
	       100 * cpu_share(b));
	print_latencies(b);
	for (size_t i = 0; i < f->n_failures; i++)
		printf("%s%zu failed: %s\n", i ? "" : "\n", f->failures[i].n, f->failures[i].error);
}

/* Check before the run that a result can be written; otherwise the error would occur only at the end. */
static int check_writable(const char *path, struct why *why)
{
	struct stat st;
	int rc = 0;
	if (!path)
		return 0;
	if (stat(path, &st) == 0) {
		rc = S_ISDIR(st.st_mode) ? -EISDIR : access(path, W_OK) ? -errno : 0;
	} else {
		int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
		rc = fd < 0 ? -errno : 0;
		if (fd >= 0)
			close(fd);
		if (fd >= 0)
			unlink(path);
	}
	return rc ? err_why(why, rc, "%s cannot be written: %s", path, strerror(-rc)) : 0;
}

static int save(const char *path, const json_t *o, struct why *why)
{
	FILE *f = fopen(path, "w");
	if (!f)
		return err_why(why, -errno, "%s: %s", path, strerror(errno));
	bool ok = json_dumpf(o, f, JSON_INDENT(1)) == 0 && fputc('\n', f) != EOF;
	ok = fclose(f) == 0 && ok;
	return ok ? 0 : err_why(why, -EIO, "%s: cannot be written: %s", path, strerror(errno));
}

static int draw(struct bench *b, const char *path, struct why *why)
{
	static const char *const names[LOAD_METRICS] = {"TTFT", "TPOT", "ITL", "E2EL"};
	double x[PLOT_POINTS + 1], y[LOAD_METRICS][PLOT_POINTS + 1];
	struct plot p = {.title = "Latency by percentile",
			 .x_label = "percentile",
			 .y_label = "milliseconds",
			 .log_y = true};
	for (int m = 0; m < LOAD_METRICS; m++) {
		for (int i = 0; i <= PLOT_POINTS; i++) {
			x[i] = 100.0 * i / PLOT_POINTS;
			y[m][i] = samples_percentile(&b->figures.ms[m], x[i]);
		}
		if (b->figures.ms[m].n)
			p.series[p.n_series++] = (struct plot_series){.name = names[m],
								      .x = x,
								      .y = y[m],
								      .n = PLOT_POINTS + 1,
								      .colour = (unsigned)m};
	}
	return plot_write(&p, path, why);
}

static int report(struct bench *b, struct why *why)
{
	json_t *o = result_json(b);
	const char *path = opts_text(b->opts, "save"), *plot = opts_text(b->opts, "plot");
	int rc = path ? save(path, o, why) : 0;
	if (!rc && plot)
		rc = draw(b, plot, why);
	if (b->json) {
		json_dumpf(o, stdout, JSON_COMPACT);
		putchar('\n');
	} else {
		print_report(b);
	}
	json_decref(o);
	if (!rc && b->totals.interrupted)
		rc = err_why(why, -EINTR, "interrupted");
	else if (!rc && !b->figures.completed)
		rc = err_why(why, -EREMOTEIO, "no request was completed: %s",
			     b->figures.n_failures ? b->figures.failures[0].error : "there was none");
	return rc;
}

static int run(struct bench *b, struct why *why)
{
	int rc = check_writable(opts_text(b->opts, "save"), why);
	if (!rc)
		rc = check_writable(opts_text(b->opts, "plot"), why);
	if (!rc)
		rc = make_requests(b, why);
	b->url = xasprintf("%s/v1/%s", b->root, b->chat ? "chat/completions" : "completions");
	if (!rc)
		rc = learn_model(b, why);
	if (!rc)
		rc = learn_prompts(b, why);
	if (!rc)
		rc = make_common(b, why);
	if (rc)
		return rc;
	interrupt_arm();
	rc = warm_up(b, why);
	if (!rc)
		rc = measure(b, why);
	interrupt_disarm();
	return rc ? rc : report(b, why);
}

static void bench_fini(struct bench *b)
{
	for (size_t i = 0; i < b->n_requests; i++)
		load_request_fini(&b->requests[i]);
	free(b->requests);
	load_figures_fini(&b->figures);
	free(b->load.ids);
	replay_fini(&b->replay);
	json_decref(b->extra);
	json_decref(b->common);
	free(b->head);
	free(b->model);
	free(b->url);
	free(b->root);
}

int cmd_bench_serve(int argc, char **argv)
{
	struct opts o = {0};
	struct bench b = {.opts = &o};
	struct why why = {""};
	opts_add_program(&o, OPTION_BENCH_SERVE);
	int status = command_parse(&o, &usage, argc, argv);
	if (status != COMMAND_GO_ON)
		goto out;
	if (parse(&b, &why)) {
		status = term_usage("bench serve", "%s", why.text);
		goto out;
	}
	status = term_finish(run(&b, &why) ? term_error("%s", why.text) : EXIT_SUCCESS);
out:
	bench_fini(&b);
	opts_fini(&o);
	return status;
}
