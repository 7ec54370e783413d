/* main.c - quern-controller: its options, and the parts of the service, started in order and stopped in
 * reverse.  Usually started by `quern serve`.  Owns: the objects that the parts share.  The main thread waits
 * for signals and writes the supervisor's lines. */
#include "base/err.h"
#include "base/alloc.h"
#include "base/file.h"
#include "base/log.h"
#include "base/housekeeper.h"
#include "base/program.h"
#include "base/trim.h"
#include "base/user_socket.h"
#include "base/work_pool.h"
#include "base/clock.h"
#include "controller/chat/chat.h"
#include "controller/chat/turn_ends.h"
#include "controller/request/chat_request.h"
#include "controller/request/checked.h"
#include "controller/net/endpoint.h"
#include "controller/engine_options.h"
#include "controller/fleet/engine.h"
#include "controller/fleet/model_server.h"
#include "base/entropy.h"
#include "base/option_table.h"
#include "controller/front.h"
#include "controller/model_vocabulary.h"
#include "controller/sched/sched.h"
#include "controller/supervisor.h"
#include "controller/endpoints/endpoints.h"
#include "controller/apis/openai/responses_runs.h"
#include "controller/http/http.h"
#include "controller/net/zap.h"
#include "controller/metrics/metrics.h"
#include "controller/metrics/tracer.h"
#include "controller/endpoints/openai_batch.h"
#include "controller/jobs/file_store.h"
#include "controller/jobs/jobs.h"
#include "controller/jobs/journal.h"
#include "controller/jobs/lines.h"
#include "controller/jobs/mailbox.h"
#include "controller/message/engine_msg.h"
#include "controller/message/service.h"
#include "controller/tokenizer/tokenizer.h"
#include "formats/config.h"
#include "formats/gguf.h"
#include "proto/bus.h"
#include "store/cached.h"

#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>
#include <zmq.h>

enum {
	MAX_REQUEST = 16 << 20,
	MAX_FINISHED = 4096,
	METRICS_CONNECTIONS = 64,
	ALIVE_MS = 5000,   /* between two "alive" lines to the supervisor */
	DRAIN_POLL_MS = 5, /* between two checks for work that still runs */
	/* Some programs signal both a process and its parent, which forwards the signal: within this time
	 * both count as one signal. */
	SIGNAL_ECHO_US = 100 * 1000,
};
#define CHECKED_CONSTRAINT_BYTES ((size_t)64 << 20)

struct controller {
	struct opts o;
	const char *dir; /* directory of the model */
	char jobs[256];  /* endpoint of the job socket; "": none */
	struct model_config config;
	struct tokenizer *tokenizer;
	struct chat *chat;
	struct metrics *metrics;
	struct buf vocabulary; /* the vocabulary as sent to workers */
	struct engine_load load;
	struct service svc;
	struct trim trim;
	int trim_part;
	struct supervisor *supervisor;
	void *zmq;
	struct journal *journal; /* NULL: --journal is not given */
	struct zap *zap;
	struct front *front;
	struct engine *engine;
	struct model_server *model_server; /* NULL: there are no weights here */
	struct endpoints endpoints;
	struct http *http, *metrics_http;
	int signals; /* signalfd */
	int64_t started_us;
	int64_t alive_us;       /* when the last "alive" line was due */
	int64_t end_us;         /* when the first signal to end arrived; 0: none yet */
	int64_t drain_until_us; /* running requests are cut off then */
	bool drain_told;        /* the supervisor has been sent the "draining" line */
};

/* --- model and limits --- */

/* Copy the last component of the path. */
static void base_name(const char *path, char *out, size_t n)
{
	const char *end = path + strlen(path);
	while (end > path && end[-1] == '/')
		end--;
	const char *begin = end;
	while (begin > path && begin[-1] != '/')
		begin--;
	snprintf(out, n, "%.*s", (int)(end - begin), begin);
}

/* Set the model's name for clients.  It is part of every reply, so it must be UTF-8. */
static int set_name(struct controller *p, const char *dir, struct why *why)
{
	const char *names = opts_text(&p->o, "name");
	const size_t n = sizeof p->svc.model_name, n_first = names ? strcspn(names, ",") : 0;
	const char *others = names && names[n_first] ? names + n_first + 1 : "";
	if (names && (!n_first || n_first >= n))
		return err_why(why, -EINVAL, "--name must have 1 to %zu bytes", n - 1);
	if (strlen(others) >= sizeof p->svc.other_names)
		return err_why(why, -EINVAL, "--name: the names after the first have more than %zu bytes",
			       sizeof p->svc.other_names - 1);
	if (names)
		snprintf(p->svc.model_name, n, "%.*s", (int)n_first, names);
	else
		base_name(dir, p->svc.model_name, n);
	snprintf(p->svc.other_names, sizeof p->svc.other_names, "%s", others);
	json_t *text = json_pack("[s, s]", p->svc.model_name, p->svc.other_names);
	json_decref(text);
	return text ? 0
		    : err_why(why, -EILSEQ, "the model's name is not valid UTF-8; give it one with --name");
}

/* Return the path if it is a directory, else the file's directory; to be freed. */
static char *directory_of(const char *path)
{
	const char *slash = strrchr(path, '/');
	if (!file_exists(path) || file_is_dir(path))
		return xstrdup(path);
	return slash ? xasprintf("%.*s", (int)(slash - path + (slash == path)), path) : xstrdup(".");
}

/* Load the chat template: from the tokenizer's file, else from the tokenizer's directory, else from the
 * model. */
static void load_chat(struct controller *p, const char *tokenizer)
{
	char *dir = directory_of(tokenizer);
	const char *paths[] = {tokenizer, dir, p->dir};
	int rc = -ENOTSUP;
	for (size_t i = 0; rc == -ENOTSUP && i < sizeof paths / sizeof *paths; i++)
		rc = chat_load(paths[i], &p->chat, &p->svc.chat_why);
	if (rc == 0)
		p->svc.chat = p->chat;
	free(dir);
}

static void encode_vocabulary(struct controller *p)
{
	struct vocabulary v = {0};
	model_vocabulary(p->tokenizer, &p->config, &v);
	bus_encode_vocabulary(&v, &p->vocabulary);
	vocabulary_fini(&v);
}

/* Add the tokens that end a turn according to the template and by name, and log all tokens that end an
 * output. */
static void find_ends(struct controller *p)
{
	struct model_config *c = &p->config;
	const int64_t eos = tokenizer_eos(p->tokenizer);
	struct buf b = {0};
	turn_ends_add(p->chat, p->svc.marks, p->tokenizer, c->eos, &c->n_eos, CONFIG_EOS_MAX);
	for (int64_t id = 0; id < c->n_vocab; id++) {
		if (!model_vocabulary_ends(p->tokenizer, c, (uint32_t)id))
			continue;
		buf_printf(&b, "%s%lld:", b.len ? "," : "", (long long)id);
		if (id < tokenizer_n_vocab(p->tokenizer))
			tokenizer_piece(p->tokenizer, (uint32_t)id, &b);
	}
	log_info("main", "end tokens ids=%s eos=%lld", b.len ? b.p : "none", (long long)eos);
	buf_fini(&b);
}

static int load_model(struct controller *p, struct why *why)
{
	const char *dir = p->dir;
	p->svc.model_is_gguf = gguf_is(dir);
	int rc = model_config_load(dir, &p->config, why);
	if (rc)
		return rc;
	const char *tokenizer = opts_text_or(&p->o, "tokenizer", dir);
	rc = tokenizer_load(tokenizer, &p->tokenizer, why);
	if (rc)
		return rc;
	if (tokenizer_n_vocab(p->tokenizer) > (uint32_t)p->config.n_vocab)
		return err_why(why, -EINVAL,
			       "%s: the tokenizer does not fit the model: it has %u tokens, the model %d",
			       tokenizer, tokenizer_n_vocab(p->tokenizer), p->config.n_vocab);
	int64_t context = opts_int_or(&p->o, "context", p->config.max_position);
	if (context > p->config.max_position)
		return err_why(why, -EINVAL, "--context %lld: the model's context is %d", (long long)context,
			       p->config.max_position);
	p->svc = (struct service){
		.tokenizer = p->tokenizer,
		.config = &p->config,
		.started_unix = clock_unix(),
		.model_context = (uint32_t)context,
		.max_request_bytes = MAX_REQUEST,
		.max_seqs = (uint32_t)opts_int(&p->o, "max-seqs"),
		.keep_finished_us = opts_int(&p->o, "keep") * 1000000,
		.keep_durable_us = opts_int(&p->o, "keep-durable") * 1000000,
		.journal_bytes = opts_int(&p->o, "journal-bytes"),
		.max_finished = MAX_FINISHED,
		.strict = opts_flag(&p->o, "strict"),
		.schema_exact = opts_flag(&p->o, "schema-exact"),
	};
	p->svc.load = &p->load;
	p->svc.max_queued_jobs = (uint32_t)opts_int(&p->o, "max-queued-jobs");
	p->svc.max_queued_tokens = (uint64_t)opts_int(&p->o, "max-queued-tokens");
	p->svc.checked = checked_new(CHECKED_CONSTRAINT_BYTES);
	p->svc.lines = lines_new();
	p->svc.metrics = p->metrics = metrics_new(p->svc.model_context);
	load_chat(p, tokenizer);
	rc = chat_request_styles(&p->svc, opts_text(&p->o, "tool-parser"),
				 opts_text(&p->o, "reasoning-parser"), why);
	if (rc)
		return rc;
	chat_request_log(&p->svc);
	find_ends(p);
	encode_vocabulary(p);
	return set_name(p, dir, why);
}

static void unload_model(struct controller *p)
{
	chat_free(p->chat);
	buf_fini(&p->vocabulary);
	metrics_free(p->metrics);
	checked_free(p->svc.checked);
	lines_free(p->svc.lines);
	tokenizer_free(p->tokenizer);
	model_config_fini(&p->config);
}

/* --- the engine --- */

static const char *const prefills[] = {"mixed", "separate", NULL};
static const char *const speculates[] = {"off", "ngram", NULL};
static const char *const preempts[] = {"auto", "swap", "recompute", NULL};
/* A worker refuses a mode that its device does not have. */
static const char *const computes[] = {"f32", "bf16", "int16", "int8", "auto", NULL};
static const char *const heads[] = {"auto", "stored", "int8", NULL};
static const char *const kvs[] = {"auto", "f32", "bf16", "int16", "int8", NULL};

/* Check that the option's value is one of words. */
static int check_choice(const struct opts *o, const char *name, const char *const *words, struct why *why)
{
	const char *text = opts_text(o, name);
	char all[128] = "";
	for (int i = 0; words[i]; i++) {
		if (strcmp(text, words[i]) == 0)
			return 0;
		snprintf(all + strlen(all), sizeof all - strlen(all), "%s%s", i ? ", " : "", words[i]);
	}
	return err_why(why, -EINVAL, "--%s \"%s\": must be one of %s", name, text, all);
}

static int check_choices(const struct controller *p, struct why *why)
{
	int rc = check_choice(&p->o, "prefill", prefills, why);
	if (!rc)
		rc = check_choice(&p->o, "preempt", preempts, why);
	if (!rc)
		rc = check_choice(&p->o, "speculate", speculates, why);
	if (!rc)
		rc = check_choice(&p->o, "compute", computes, why);
	if (!rc)
		rc = check_choice(&p->o, "head-dtype", heads, why);
	return rc ? rc : check_choice(&p->o, "kv-cache-dtype", kvs, why);
}

/* Start serving the model's files, if possible.  A controller may have no weights (its own volume): then
 * workers compare and fetch nothing. */
static void start_model_server(struct controller *p, const char *path)
{
	struct why why;
	const char *cache = opts_text(&p->o, "cache");
	char *records = cache ? cached_records(cache) : NULL;
	if (model_server_start(&p->model_server, path, p->svc.model_name, records, &why))
		log_info("main", "workers cannot compare their model with the controller's reason=\"%s\"",
			 why.text);
	free(records);
}

static int start_engine(struct controller *p, struct why *why)
{
	const struct opts *o = &p->o;
	struct engine_config c;
	int rc = engine_options(o, &c, why);
	if (rc)
		return rc;
	c.n_vocab = (uint32_t)p->config.n_vocab;
	c.vocabulary = &p->vocabulary;
	c.model_context = p->svc.model_context;
	c.mixture_rows =
		sched_mixture_rows((uint32_t)p->config.experts.n, (uint32_t)p->config.experts.n_chosen);
	c.max_jobs = p->svc.max_queued_jobs;
	c.max_tokens = p->svc.max_queued_tokens;
	c.metrics = p->metrics;
	c.load = &p->load;
	c.supervised = supervisor_is_there(p->supervisor);
	c.on_notice = supervisor_notice;
	c.on_notice_user = p->supervisor;
	c.zap = p->zap;
	if (c.autoscale.max && !c.supervised)
		return err_why(
			why, -EINVAL,
			"--max-replicas: this controller does not start workers; quern serve does, or a "
			"scheduler by its metrics (docs/deploy/kubernetes.md)");
	/* An absolute path: workers may have another working directory. */
	char *path = realpath(p->dir, NULL);
	snprintf(c.model, sizeof c.model, "%s", path ? path : p->dir);
	free(path);
	if (opts_has(o, "local-token") && local_token_read(opts_text(o, "local-token"), c.local_token, why))
		return -EINVAL;
	start_model_server(p, c.model);
	c.model_server = p->model_server;
	rc = engine_start(p->zmq, &c, &p->engine, why);
	if (rc)
		model_server_stop(p->model_server);
	return rc;
}

static void stop_engine(struct controller *p)
{
	void *s = zmq_socket(p->zmq, ZMQ_PUSH);
	struct engine_cmd *c = calloc(1, sizeof *c);
	if (!s || !c || zmq_connect(s, ENGINE_IN) < 0)
		abort(); /* an orderly shutdown is impossible */
	c->kind = ENGINE_QUIT;
	params_init(&c->params);
	if (engine_msg_send(s, c) < 0)
		abort();
	engine_join(p->engine);
	model_server_stop(p->model_server);
	zmq_close(s);
}

/* --- the other parts --- */

/* Identify the model by shape and vocabulary: the journal's tokens are meaningless for another model. */
static void model_identity(const struct controller *p, char *out, size_t n)
{
	XXH3_state_t *h = XXH3_createState();
	struct buf piece = {0};
	if (!h)
		abort();
	XXH3_64bits_reset(h);
	for (uint32_t id = 0; id < tokenizer_n_vocab(p->tokenizer); id++) {
		buf_clear(&piece);
		tokenizer_decode(p->tokenizer, &id, 1, false, &piece);
		buf_putc(&piece, '\0');
		XXH3_64bits_update(h, piece.p, piece.len);
	}
	snprintf(out, n, "%d layers of %d, vocabulary %d:%016llx", p->config.n_layers, p->config.hidden,
		 p->config.n_vocab, (unsigned long long)XXH3_64bits_digest(h));
	XXH3_freeState(h);
	buf_fini(&piece);
}

/* Convert an option to the journal's convention, where 0 is the default: an explicit 0 becomes -1. */
static int64_t margin(const struct opts *o, const char *name)
{
	int64_t n = opts_int(o, name);
	return opts_has(o, name) && !n ? -1 : n;
}

static int start_journal(struct controller *p, struct why *why)
{
	char model[128];
	const char *path = opts_text(&p->o, "journal");
	if (!path)
		return 0;
	model_identity(p, model, sizeof model);
	static const char *const schemas[] = {jobs_schema, file_store_schema, batches_schema,
					      responses_schema, NULL};
	static const char *const from_1[] = {responses_upgrade, responses_schema, NULL};
	static const char *const from_2[] = {jobs_schema_model, NULL};
	static const struct journal_migration migrations[] = {
		{1, from_1, NULL}, {2, from_2, NULL}, {3, NULL, jobs_migrate_requests}};
	struct journal_config cfg = {.path = path,
				     .model = model,
				     .schemas = schemas,
				     .migrations = migrations,
				     .n_migrations = sizeof migrations / sizeof *migrations,
				     .file_margin = margin(&p->o, "file-margin"),
				     .job_margin = margin(&p->o, "job-margin")};
	int rc = journal_open(&cfg, &p->journal, why);
	p->svc.journal = p->journal;
	return rc;
}

static void stop_journal(struct controller *p)
{
	journal_close(p->journal);
}

static int start_tracer(struct controller *p, struct why *why)
{
	struct tracer_config c;
	const double rate = opts_number_or(&p->o, "trace-sample", -1);
	if (opts_has(&p->o, "trace-sample") && !(rate >= 0 && rate <= 1))
		return err_why(why, -EINVAL, "--trace-sample %g: must be a number from 0 to 1", rate);
	int rc = tracer_configure(opts_text(&p->o, "otlp-endpoint"), rate, tracer_environment, &c, why);
	return rc || !c.url ? rc : tracer_start(&c, p->metrics, &p->svc.tracer, why);
}

static void stop_tracer(struct controller *p)
{
	tracer_stop(p->svc.tracer);
}

static int start_house(struct controller *p, struct why *why)
{
	int rc = housekeeper_start(&p->svc.house, why);
	if (!rc)
		p->trim_part = housekeeper_add(
			p->svc.house, &(struct house_part){.fd = -1, .tick = trim_tick, .user = &p->trim});
	return rc;
}

static void stop_house(struct controller *p)
{
	housekeeper_remove(p->svc.house, p->trim_part);
	housekeeper_stop(p->svc.house);
}

/* Start the threads that prepare large requests. */
static int start_pool(struct controller *p, struct why *why)
{
	return work_pool_start(&work_limits_usual, &p->svc.pool, why);
}

static void stop_pool(struct controller *p)
{
	work_pool_stop(p->svc.pool);
}

static int start_zmq(struct controller *p, struct why *why)
{
	p->zmq = zmq_ctx_new();
	return p->zmq ? 0 : err_why(why, -errno, "ZeroMQ: %s", zmq_strerror(errno));
}

static void stop_zmq(struct controller *p)
{
	zmq_ctx_term(p->zmq);
}

/* Start authentication of peers, before any socket is bound. */
static int start_zap(struct controller *p, struct why *why)
{
	const char *path = opts_text(&p->o, "curve-key"), *allow = opts_text(&p->o, "allow");
	struct curve_key key = {0};
	if (allow && !path)
		return err_why(why, -EINVAL, "--allow needs the service's own key: --curve-key FILE");
	if (path)
		curve_protect();
	int rc = path ? curve_read(path, true, &key, why) : 0;
	if (rc)
		return err_prefix(why, rc, "--curve-key");
	rc = zap_start(p->zmq, path ? &key : NULL, allow, &p->zap, why);
	curve_forget(&key);
	return rc ? err_prefix(why, rc, "--allow") : 0;
}

static void stop_zap(struct controller *p)
{
	zap_stop(p->zap);
}

/* Return whether HTTP has keys and the job socket has none: a TCP port would then be open to every local
 * user. */
static bool has_only_http_keys(const struct controller *p)
{
	return opts_has(&p->o, "api-key-file") && !opts_has(&p->o, "curve-key");
}

/* Determine the endpoint of the job socket. */
static int set_jobs(struct controller *p, struct why *why)
{
	char path[USER_SOCKET_SIZE];
	const char *jobs = opts_text(&p->o, "jobs");
	if (!jobs && has_only_http_keys(p)) {
		int rc = user_socket_new("jobs", path, why);
		if (rc)
			return err_prefix(why, rc, "job socket");
		snprintf(p->jobs, sizeof p->jobs, "ipc://%s", path);
		log_info("main",
			 "job socket is for this user only jobs=%s instead_of=%s reason=\"--api-key-file: "
			 "the job socket has no keys\"",
			 p->jobs, OPTION_JOBS);
	} else if (!jobs || strcmp(jobs, "none") != 0) {
		snprintf(p->jobs, sizeof p->jobs, "%s", jobs ? jobs : OPTION_JOBS);
		if (has_only_http_keys(p) && strncmp(p->jobs, "tcp://", 6) == 0)
			log_warn("main",
				 "job socket is not protected jobs=%s reason=\"--api-key-file does not "
				 "protect it: any process that reaches it may submit jobs, but not scale or "
				 "drain; use ipc://PATH or --curve-key\"",
				 p->jobs);
	}
	return 0;
}

static int start_front(struct controller *p, struct why *why)
{
	struct front_config c = {
		.insecure = opts_flag(&p->o, "insecure"),
		.no_orders = has_only_http_keys(p) && strncmp(p->jobs, "tcp://", 6) == 0,
		.journal = p->journal,
		.zap = p->zap,
		.on_ready = supervisor_on_ready,
		.on_ready_user = p->supervisor,
	};
	snprintf(c.jobs, sizeof c.jobs, "%s", p->jobs);
	return front_start(p->zmq, &p->svc, &c, &p->front, why);
}

static void free_front(struct controller *p)
{
	front_free(p->front);
}

static int connect_front(struct controller *p, struct why *why)
{
	(void)why;
	front_connect(p->front);
	return 0;
}

static void stop_front(struct controller *p)
{
	front_stop(p->front);
}

static int start_http(struct controller *p, struct why *why)
{
	const struct opts *o = &p->o;
	const char *addr = opts_text(o, "http");
	struct http_config c = {.insecure = opts_flag(o, "insecure")};
	struct http_app app = endpoints_app(&p->endpoints, front_mailbox(p->front), &p->svc,
					    (size_t)opts_int(o, "max-file-bytes"));
	/* Without keys one owner has all files, with the quota given by options. */
	bool keys = opts_has(o, "api-key-file");
	p->endpoints.quota = (struct file_quota){
		.files = opts_int(o, "max-files"),
		.bytes = opts_int_or(o, "max-stored-bytes", keys ? p->svc.journal_bytes / 2 : 0)};
	if (!keys && !opts_has(o, "max-files"))
		p->endpoints.quota.files = 0;
	struct responses_limits *stored = &p->endpoints.stored;
	*stored = responses_limits_of(&p->svc, keys);
	stored->owner_rows = opts_int_or(o, "max-responses", stored->owner_rows);
	stored->owner_bytes = opts_int_or(o, "max-response-bytes", stored->owner_bytes);
	if (strlen(addr) >= sizeof c.addr)
		return err_why(why, -EINVAL, "--http has more than %zu bytes", sizeof c.addr - 1);
	snprintf(c.addr, sizeof c.addr, "%s", addr);
	snprintf(c.cors, sizeof c.cors, "%s", opts_text_or(o, "cors-origin", ""));
	snprintf(c.tls_cert, sizeof c.tls_cert, "%s", opts_text_or(o, "tls-cert", ""));
	snprintf(c.tls_key, sizeof c.tls_key, "%s", opts_text_or(o, "tls-key", ""));
	snprintf(c.api_keys, sizeof c.api_keys, "%s", opts_text_or(o, "api-key-file", ""));
	snprintf(c.access_log, sizeof c.access_log, "%s", opts_text_or(o, "access-log", ""));
	return http_start(&p->svc, &app, &c, &p->http, why);
}

static void stop_http(struct controller *p)
{
	http_stop(p->http);
}

/* Start a separate server without key and TLS, on any given address, with routes for monitoring only. */
static int start_metrics_http(struct controller *p, struct why *why)
{
	struct http_config c = {.insecure = true, .max_connections = METRICS_CONNECTIONS};
	struct http_app app = endpoints_monitor_app(&p->endpoints);
	snprintf(c.addr, sizeof c.addr, "%s", opts_text(&p->o, "metrics-http"));
	int rc = http_start(&p->svc, &app, &c, &p->metrics_http, why);
	return rc ? err_prefix(why, rc, "--metrics-http") : 0;
}

static void stop_metrics_http(struct controller *p)
{
	http_stop(p->metrics_http);
}

/* --- the service --- */

/* Parts are started in this order and stopped in reverse.  The front end's thread runs before the engine,
 * which sends to it, and ends before the engine; its memory outlives the engine's last events. */
static const struct part {
	const char *name;
	int (*start)(struct controller *p, struct why *why);
	void (*stop)(struct controller *p);
} parts[] = {
	{"model", load_model, unload_model},   {"journal", start_journal, stop_journal},
	{"tracer", start_tracer, stop_tracer}, {"house", start_house, stop_house},
	{"pool", start_pool, stop_pool},       {"zmq", start_zmq, stop_zmq},
	{"zap", start_zap, stop_zap},          {"front", start_front, free_front},
	{"engine", start_engine, stop_engine}, {"front-to-engine", connect_front, stop_front},
	{"http", start_http, stop_http},       {"metrics-http", start_metrics_http, stop_metrics_http},
};
enum { N_PARTS = sizeof parts / sizeof *parts };

static void stop_parts(struct controller *p, size_t n)
{
	while (n-- > 0) {
		log_debug("main", "stopping part=%s", parts[n].name);
		parts[n].stop(p);
	}
}

static int start_parts(struct controller *p, struct why *why)
{
	for (size_t i = 0; i < N_PARTS; i++) {
		log_debug("main", "starting part=%s", parts[i].name);
		int rc = parts[i].start(p, why);
		if (rc) {
			stop_parts(p, i);
			return rc;
		}
	}
	return 0;
}

/* Called before anything is loaded, so that a wrong address is reported at once. */
static int check_endpoints(struct controller *p, struct why *why)
{
	bool guarded = opts_flag(&p->o, "insecure") || opts_has(&p->o, "curve-key");
	int rc = set_jobs(p, why);
	if (!rc)
		rc = endpoint_check(opts_text(&p->o, "bus"), "worker bus", guarded, why);
	return rc || !p->jobs[0] ? rc : endpoint_check(p->jobs, "job socket", guarded, why);
}

static void report_ready(struct controller *p, const struct supervisor_ready *r)
{
	int64_t ms = (clock_us() - p->started_us) / 1000;
	const char *jobs = front_jobs_endpoint(p->front), *http = http_address(p->http);
	const char *metrics = http_address(p->metrics_http);
	log_info("main", "ready model=%s jobs=%s http=%s metrics_http=%s bus=%s ms=%lld", p->svc.model_name,
		 jobs, http, metrics, engine_bus(p->engine), (long long)ms);
	supervisor_write(p->supervisor,
			 json_pack("{s:s,s:s,s:s,s:b,s:s,s:b,s:s,s:I,s:I,s:I,s:I}", "jobs", jobs, "http",
				   http, "metrics_http", metrics, "https", opts_has(&p->o, "tls-cert"), "bus",
				   engine_bus(p->engine), "ready", 1, "model", p->svc.model_name,
				   "max_context", (json_int_t)r->max_context, "model_context",
				   (json_int_t)p->svc.model_context, "full_kv_bytes",
				   (json_int_t)r->full_kv_bytes, "ms", (json_int_t)ms));
}

static int report_error(const struct controller *p, const char *why)
{
	/* The supervisor prints the error itself. */
	if (!supervisor_is_there(p->supervisor))
		fprintf(stderr, "quern-controller: %s\n", why);
	supervisor_error(p->supervisor, why);
	return 1;
}

/* Stop taking new work.  False: do not wait for running work. */
static bool begin_drain(struct controller *p, int64_t now)
{
	int64_t s = opts_int(&p->o, "drain-timeout");
	p->end_us = now;
	p->drain_until_us = now + s * 1000000;
	mailbox_drain(front_mailbox(p->front));
	http_drain(p->http);
	return s > 0;
}

/* Handle a signal to end: the first one drains, the second ends at once.  False: end. */
static bool on_end_signal(struct controller *p, unsigned signo)
{
	int64_t now = clock_us();
	if (!p->end_us) {
		log_info("main", "ending signal=%u", signo);
		return begin_drain(p, now);
	}
	if (now - p->end_us <= SIGNAL_ECHO_US)
		return true;
	log_warn("main", "ending at once signal=%u", signo);
	return false;
}

static bool on_signals(struct controller *p)
{
	struct signalfd_siginfo si;
	if (read(p->signals, &si, sizeof si) != sizeof si)
		return true;
	if (si.ssi_signo != SIGHUP)
		return on_end_signal(p, si.ssi_signo);
	zap_reload(p->zap);
	http_reload(p->http);
	return true;
}

/* Return whether running requests have finished, or their time has passed. */
static bool drained(struct controller *p)
{
	uint32_t jobs = mailbox_n_draining(front_mailbox(p->front));
	uint32_t requests = http_n_draining(p->http);
	int64_t now = clock_us();
	if (!jobs && !requests)
		return true;
	if (now >= p->drain_until_us) {
		log_warn("main", "--drain-timeout has passed, cutting jobs=%u requests=%u", jobs, requests);
		return true;
	}
	if (jobs != UINT32_MAX && !p->drain_told) {
		p->drain_told = true;
		int64_t s = (p->drain_until_us - now) / 1000000 + 1;
		log_info("main", "draining jobs=%u requests=%u seconds=%lld", jobs, requests, (long long)s);
		supervisor_write(p->supervisor,
				 json_pack("{s:{s:I,s:I,s:I}}", "draining", "jobs", (json_int_t)jobs,
					   "requests", (json_int_t)requests, "seconds", (json_int_t)s));
	}
	return false;
}

/* Write an "alive" line to the supervisor if one is due; if a thread hangs, none is written. */
static void report_alive(struct controller *p)
{
	int64_t now = clock_us(), us;
	if (!supervisor_is_there(p->supervisor) || now < p->alive_us + ALIVE_MS * 1000LL)
		return;
	p->alive_us = now;
	const char *thread =
		engine_load_hangs(p->svc.load, mailbox_loop_us(front_mailbox(p->front)), now, &us);
	if (thread)
		log_error("main",
			  "thread hangs thread=%s seconds=%lld remedy=\"restart the service, unless its "
			  "service manager does\"",
			  thread, (long long)(us / 1000000));
	else
		supervisor_write(p->supervisor, json_pack("{s:b}", "alive", 1));
}

/* Wait for SIGINT or SIGTERM, and then until running work has finished. */
static void wait_for_end(struct controller *p)
{
	struct pollfd fds[] = {{.fd = p->signals, .events = POLLIN},
			       {.fd = supervisor_fd(p->supervisor), .events = POLLIN}};
	struct supervisor_ready ready;
	while (!p->end_us || !drained(p)) {
		if (poll(fds, 2, p->end_us ? DRAIN_POLL_MS : ALIVE_MS) < 0)
			continue;
		if ((fds[0].revents & POLLIN) && !on_signals(p))
			break;
		if ((fds[1].revents & POLLIN) && supervisor_flush(p->supervisor, &ready) && !p->end_us)
			report_ready(p, &ready);
		report_alive(p);
	}
	if (p->drain_told)
		supervisor_write(p->supervisor, json_pack("{s:{s:i}}", "draining", "seconds", 0));
}

static void block_signals(struct controller *p)
{
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGHUP);
	/* Called before any thread is started, so that all threads inherit the mask. */
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN); /* writes beyond RLIMIT_FSIZE fail instead */
	p->signals = signalfd(-1, &set, SFD_CLOEXEC);
}

static const struct program program = {
	.name = "quern-controller",
	.usage = "--model DIR --bus ENDPOINT [options]",
	.about = "The controller of a quern service: job socket, HTTP, tokenizer, scheduler.\n"
		 "`quern serve` starts it and its workers.",
	.program = OPTION_CONTROLLER,
};

/* Parse the options.  Return PROGRAM_GOES_ON, or the exit status. */
static int parse_options(struct opts *o, int argc, char **argv)
{
	int rc = program_parse(&program, o, argc, argv);
	if (rc != PROGRAM_GOES_ON)
		return rc;
	if (!opts_has(o, "model") || !opts_has(o, "bus"))
		return program_usage(&program, "--model and --bus are required");
	if (strcmp(opts_text(o, "http"), "none") == 0 && strcmp(opts_text_or(o, "jobs", ""), "none") == 0)
		return program_usage(
			&program,
			"--http none and --jobs none leave no way to reach the service: give one of them");
	return program_start_log(&program, o, "controller");
}

int main(int argc, char **argv)
{
	static struct controller p;
	struct why why;
	file_guard_stdio();
	trim_init();
	p.started_us = clock_us();
	int rc = parse_options(&p.o, argc, argv);
	if (rc != PROGRAM_GOES_ON)
		return rc;
	p.dir = opts_text(&p.o, "model");
	p.supervisor = supervisor_new((int)opts_int_or(&p.o, "ready-fd", -1));
	block_signals(&p);
	/* Sockets with a path, and all files, are private to this user. */
	umask(077);
	rc = supervisor_open(p.supervisor);
	if (rc)
		return report_error(&p, strerror(-rc));
	rc = check_choices(&p, &why);
	if (!rc)
		rc = check_endpoints(&p, &why);
	if (!rc)
		rc = start_parts(&p, &why);
	if (rc)
		return report_error(&p, why.text);
	wait_for_end(&p);
	stop_parts(&p, N_PARTS);
	supervisor_free(p.supervisor);
	opts_fini(&p.o);
	return 0;
}
