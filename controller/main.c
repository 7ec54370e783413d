/* quern-controller: API, tokenizer, scheduler, worker link.  Usually started by `quern serve`. */
#include "base/err.h"
#include "base/file.h"
#include "base/log.h"
#include "base/options.h"
#include "base/version.h"
#include "base/clock.h"
#include "controller/chat.h"
#include "controller/chatreq.h"
#include "controller/endpoint.h"
#include "controller/engine.h"
#include "controller/entropy.h"
#include "controller/front.h"
#include "controller/http.h"
#include "controller/zap.h"
#include "controller/metrics.h"
#include "controller/journal.h"

#include <jansson.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>
#include <zmq.h>

static const struct opt options[] = {
	OPT("model", OPT_TEXT, "DIR", "model directory (required)"),
	OPT("name", OPT_TEXT, "NAME", "the model's name for clients (default: the directory's)"),
	OPT("bus", OPT_TEXT, "ENDPOINT", "where workers connect (required), ipc://PATH or tcp://HOST:PORT"),
	OPT("jobs", OPT_TEXT, "ENDPOINT", "job socket, or none (tcp://127.0.0.1:7420)"),
	OPT("http", OPT_TEXT, "ADDR", "HTTP, or none (127.0.0.1:8080)"),
	OPT("compute", OPT_TEXT, "MODE", "f32 (bf16 and int8 are not built yet)"),
	OPT("fast", OPT_FLAG, NULL, "faster on GPUs, with bits that depend on the batch (no effect on CPUs)"),
	OPT("context", OPT_INT, "N", "longest prompt and output together (the model's)", .lo = 16,
	    .hi = 1 << 24),
	OPT("block-size", OPT_INT, "N", "tokens of a cache block: 16, 32, 64, 128 or 256 (16)", .lo = 16,
	    .hi = 256),
	OPT("max-seqs", OPT_INT, "N", "sequences in a step (256)", .lo = 1, .hi = 4096),
	OPT("max-batch-tokens", OPT_INT, "N", "tokens in a step (2048)", .lo = 1, .hi = 1 << 16),
	OPT("chunk", OPT_INT, "N", "largest part of a prompt in a step (512)", .lo = 1, .hi = 1 << 20),
	OPT("max-step-ms", OPT_INT, "MS", "how long prompts may make a step, about; 0: no limit (25)",
	    .lo = 0, .hi = 10000),
	OPT("prefill", OPT_TEXT, "MODE", "prompts mixed with decodes, or separate (mixed)"),
	OPT("preempt", OPT_TEXT, "MODE", "when blocks run out: swap, recompute or auto (auto)"),
	OPT("no-prefix-cache", OPT_FLAG, NULL, "compute what prompts have in common for each of them"),
	OPT("kv-bytes", OPT_SIZE, "SIZE", "memory of the KV cache (the worker chooses)"),
	OPT("swap-bytes", OPT_SIZE, "SIZE",
	    "host memory for swapped blocks, 0 for none (the worker chooses)"),
	OPT("threads", OPT_INT, "N", "threads of a CPU worker (one per core)", .lo = 1, .hi = 1024),
	OPT("max-queued-jobs", OPT_INT, "N", "jobs that may wait (4096)", .lo = 1, .hi = 1 << 24),
	OPT("max-queued-tokens", OPT_INT, "N", "prompt tokens that may wait (8000000)", .lo = 1,
	    .hi = INT64_MAX / 2),
	OPT("worker-wait", OPT_INT, "S", "seconds that jobs wait when no worker serves (60)", .lo = 1,
	    .hi = 86400),
	OPT("worker-timeout", OPT_INT, "S",
	    "a worker from which nothing comes for so long is lost; 0: never, for a debugger (2)", .lo = 0,
	    .hi = 86400),
	OPT("stuck-timeout", OPT_INT, "S",
	    "so is one that does not get on with a step for so long; 0: never (120)", .lo = 0, .hi = 86400),
	OPT("tp", OPT_INT, "N", "workers of a replica, each with a part of the weights (1)", .lo = 1,
	    .hi = 64),
	OPT("allow-class-change", OPT_FLAG, NULL,
	    "a running job whose worker is lost may go on where bits may differ, and is marked"),
	OPT("tool-parser", OPT_TEXT, "STYLE", "how the model calls tools: auto, none, hermes, llama3 (auto)"),
	OPT("reasoning-parser", OPT_TEXT, "STYLE",
	    "how it thinks: auto, none, qwen3, deepseek_r1 (auto)"),
	OPT("access-log", OPT_TEXT, "FILE", "one line of JSON per HTTP request there; -: stdout"),
	OPT("api-key-file", OPT_TEXT, "FILE", "HTTP asks for one of its keys (docs/OPERATING.md)"),
	OPT("cors-origin", OPT_TEXT, "ORIGIN,...", "pages of these may use HTTP from a browser; *: all"),
	OPT("tls-cert", OPT_TEXT, "FILE", "HTTP with TLS: the certificate and its chain, PEM"),
	OPT("tls-key", OPT_TEXT, "FILE", "its key, PEM"),
	OPT("journal", OPT_TEXT, "FILE", "where durable jobs are kept, made where it is not there (none)"),
	OPT("journal-bytes", OPT_SIZE, "SIZE", "beyond, the oldest finished jobs in it are forgotten (4G)"),
	OPT("max-file-bytes", OPT_SIZE, "SIZE", "largest file of /v1/files (200M)"),
	OPT("keep", OPT_INT, "S", "seconds that a finished job can be asked for (3600)", .lo = 0,
	    .hi = 366 * 86400),
	OPT("keep-durable", OPT_INT, "S", "the same of durable jobs (86400)", .lo = 0, .hi = 366 * 86400),
	OPT("curve-key", OPT_TEXT, "FILE", "the service's secret key: sockets on TCP are encrypted, peers need keys"),
	OPT("allow", OPT_TEXT, "FILE", "public keys of clients and workers that are let in"),
	OPT("insecure", OPT_FLAG, NULL, "allow other addresses than loopback without keys"),
	OPT("strict", OPT_FLAG, NULL, "HTTP: refuse unknown fields instead of ignoring them"),
	OPT("log-level", OPT_TEXT, "LEVEL", "debug, info, warn, error (info)"),
	OPT("ready-fd", OPT_INT, "FD", "write one line of JSON there when a worker serves", .lo = 0,
	    .hi = 1 << 20),
	OPT("help", OPT_FLAG, NULL, "this text"),
	OPT("version", OPT_FLAG, NULL, "the version"),
};

enum {
	MAX_REQUEST = 16 << 20,
	KEEP_FINISHED_S = 3600,
	KEEP_DURABLE_S = 86400,
	MAX_FINISHED = 4096,
	MAX_QUEUED_JOBS = 4096,
	MAX_QUEUED_TOKENS = 8000000,
};
#define JOURNAL_BYTES ((int64_t)4 << 30)

/* What the engine's thread tells the main one: lines for whoever started us. */
struct notices {
	pthread_mutex_t lock;
	json_t *lines; /* array */
	bool ready;    /* it became so since the main thread looked */
	bool supervised;
	bool served; /* a replica has served */
	int fd[2];   /* a byte for each time */
};

struct program {
	struct opts o;
	struct model_config config;
	struct tokenizer *tokenizer;
	struct chat *chat;
	struct metrics *metrics;
	struct engine_load load;
	struct service svc;
	struct notices notices;
	void *zmq;
	struct journal *journal; /* NULL: none */
	struct zap *zap;
	struct front *front;
	struct engine *engine;
	struct http *http;
	int signals;
	int ready_fd; /* -1: none */
	int64_t started_us;
};

static json_t *scale_line(const struct engine_notice *n)
{
	json_t *scale = json_pack("{s:I}", "workers", (json_int_t)n->n_workers);
	json_t *devices = json_array();
	for (uint32_t i = 0; i < n->n_devices; i++)
		json_array_append_new(devices, json_string(n->devices[i]));
	if (n->n_devices)
		json_object_set(scale, "devices", devices);
	json_decref(devices);
	if (n->memory_fraction > 0)
		json_object_set_new(scale, "memory_fraction", json_real(n->memory_fraction));
	return json_pack("{s:o}", "scale", scale);
}

static json_t *keep_line(const struct engine_notice *n)
{
	json_t *pids = json_array();
	for (uint32_t i = 0; i < n->n_pids; i++)
		json_array_append_new(pids, json_integer((json_int_t)n->pids[i]));
	return json_pack("{s:o}", "keep", pids);
}

static void on_notice(void *user, const struct engine_notice *n)
{
	struct notices *s = user;
	json_t *line = NULL;
	pthread_mutex_lock(&s->lock);
	switch (n->kind) {
	case ENGINE_NOTICE_READY:
		s->ready = s->served = true;
		break;
	case ENGINE_NOTICE_UNREADY:
		break;
	case ENGINE_NOTICE_FAILED:
		/* Where nothing has ever served, this is why. */
		if (!s->served)
			line = json_pack("{s:s%}", "failed", n->why, strlen(n->why));
		if (!s->served && !line) /* a peer's text that is not UTF-8 */
			line = json_pack("{s:s}", "failed", "a worker cannot serve; its log says why");
		break;
	case ENGINE_NOTICE_LOST:
		if (n->pid)
			line = json_pack("{s:I}", "lost", (json_int_t)n->pid);
		break;
	case ENGINE_NOTICE_SCALE:
		line = scale_line(n);
		break;
	case ENGINE_NOTICE_KEEP:
		line = keep_line(n);
		break;
	case ENGINE_NOTICE_RETIRE:
		line = json_pack("{s:I}", "retire", (json_int_t)n->pid);
		break;
	}
	/* Nobody reads them: they are not kept. */
	if (line && s->supervised)
		json_array_append_new(s->lines, line);
	else
		json_decref(line);
	pthread_mutex_unlock(&s->lock);
	if (write(s->fd[1], "x", 1) < 0)
		log_warn("main", "notices: %s", strerror(errno));
}

static void tell(struct program *p, json_t *line)
{
	char *text = json_dumps(line, JSON_COMPACT);
	json_decref(line);
	if (p->ready_fd >= 0 && dprintf(p->ready_fd, "%s\n", text) < 0)
		log_warn("main", "ready-fd: %s", strerror(errno));
	free(text);
}

static void tell_ready(struct program *p)
{
	int64_t ms = (clock_us() - p->started_us) / 1000;
	const char *jobs = front_jobs_endpoint(p->front), *http = p->http ? http_address(p->http) : "";
	log_info("main", "ready model=%s jobs=%s http=%s bus=%s ms=%lld", p->svc.model_name, jobs, http,
		 engine_bus(p->engine), (long long)ms);
	if (p->ready_fd >= 0)
		tell(p,
		     json_pack("{s:s,s:s,s:b,s:s,s:b,s:s,s:I,s:I}", "jobs", jobs, "http", http, "https",
			       opts_has(&p->o, "tls-cert"), "bus",
			       engine_bus(p->engine), "ready", 1, "model", p->svc.model_name, "max_context",
			       (json_int_t)front_max_context(p->front), "ms", (json_int_t)ms));
}

static int fail(struct program *p, const char *why)
{
	/* Whoever gave us the descriptor says it to the person. */
	if (p->ready_fd < 0)
		fprintf(stderr, "quern-controller: %s\n", why);
	tell(p, json_pack("{s:s}", "error", why));
	return 1;
}

/* The last part of the path that names something. */
static void name_of(const char *path, char *out, size_t n)
{
	const char *end = path + strlen(path);
	while (end > path && end[-1] == '/')
		end--;
	const char *begin = end;
	while (begin > path && begin[-1] != '/')
		begin--;
	snprintf(out, n, "%.*s", (int)(end - begin), begin);
}

/* What clients call the model: it stands in every reply, so it must be text. */
static int set_name(struct program *p, const char *dir, char *why, size_t why_n)
{
	const char *name = opts_text(&p->o, "name", NULL);
	size_t n = sizeof p->svc.model_name;
	if (name && (!*name || strlen(name) >= n))
		return err_why(why, why_n, -EINVAL, "--name must have 1 to %zu bytes", n - 1);
	if (name)
		snprintf(p->svc.model_name, n, "%s", name);
	else
		name_of(dir, p->svc.model_name, n);
	json_t *text = json_string(p->svc.model_name);
	json_decref(text);
	return text ? 0 : err_why(why, why_n, -EILSEQ, "the model's name is not valid UTF-8; give it one with --name");
}

static int load(struct program *p, const char *dir, char *why, size_t why_n)
{
	int rc = model_config_load(dir, &p->config, why, why_n);
	if (rc)
		return rc;
	rc = tokenizer_load(dir, &p->tokenizer, why, why_n);
	if (rc)
		return rc;
	if (tokenizer_n_vocab(p->tokenizer) > (uint32_t)p->config.n_vocab)
		return err_why(why, why_n, -EINVAL,
			       "%s: the tokenizer does not fit the model: it has %u tokens, the model %d",
			       dir, tokenizer_n_vocab(p->tokenizer), p->config.n_vocab);
	int64_t context = opts_int(&p->o, "context", p->config.max_position);
	if (context > p->config.max_position)
		return err_why(why, why_n, -EINVAL, "--context %lld: the model's is %d", (long long)context,
			       p->config.max_position);
	p->svc = (struct service){
		.tokenizer = p->tokenizer,
		.config = &p->config,
		.started_unix = clock_unix(),
		.model_context = (uint32_t)context,
		.max_request_bytes = MAX_REQUEST,
		.keep_finished_us = opts_int(&p->o, "keep", KEEP_FINISHED_S) * 1000000,
		.keep_durable_us = opts_int(&p->o, "keep-durable", KEEP_DURABLE_S) * 1000000,
		.journal_bytes = opts_int(&p->o, "journal-bytes", JOURNAL_BYTES),
		.max_finished = MAX_FINISHED,
		.strict = opts_flag(&p->o, "strict"),
	};
	p->svc.load = &p->load;
	p->svc.max_queued_jobs = (uint32_t)opts_int(&p->o, "max-queued-jobs", MAX_QUEUED_JOBS);
	p->svc.max_queued_tokens = (uint64_t)opts_int(&p->o, "max-queued-tokens", MAX_QUEUED_TOKENS);
	p->svc.metrics = p->metrics = metrics_new(p->svc.model_context);
	if (chat_load(dir, &p->chat, p->svc.chat_why, sizeof p->svc.chat_why) == 0)
		p->svc.chat = p->chat;
	rc = chatreq_styles(&p->svc, opts_text(&p->o, "tool-parser", "auto"),
			    opts_text(&p->o, "reasoning-parser", "auto"), why, why_n);
	if (rc)
		return rc;
	return set_name(p, dir, why, why_n);
}

static const char *const prefills[] = {"mixed", "separate", NULL};
static const char *const preempts[] = {"auto", "swap", "recompute", NULL};

/* One of a few words. */
static int choice(const struct opts *o, const char *name, const char *otherwise, const char *const *words,
		  char *why, size_t why_n)
{
	const char *text = opts_text(o, name, otherwise);
	char all[128] = "";
	for (int i = 0; words[i]; i++) {
		if (strcmp(text, words[i]) == 0)
			return 0;
		snprintf(all + strlen(all), sizeof all - strlen(all), "%s%s", i ? ", " : "", words[i]);
	}
	return err_why(why, why_n, -EINVAL, "--%s \"%s\": must be one of %s", name, text, all);
}

/* A worker that a debugger has stopped does not get on either. */
static int64_t stuck_us(const struct opts *o)
{
	int64_t s = opts_int(o, "worker-timeout", 1) ? opts_int(o, "stuck-timeout", 120) : 0;
	return s ? s * 1000000 : -1;
}

static int start_engine(struct program *p, const char *dir, char *why, size_t why_n)
{
	const struct opts *o = &p->o;
	struct engine_config c = {
		.n_vocab = (uint32_t)p->config.n_vocab,
		.model_context = p->svc.model_context,
		.block_size = (uint32_t)opts_int(o, "block-size", 16),
		.max_seqs = (uint32_t)opts_int(o, "max-seqs", 256),
		.max_rows = (uint32_t)opts_int(o, "max-batch-tokens", 2048),
		.chunk = (uint32_t)opts_int(o, "chunk", 512),
		.step_us = opts_int(o, "max-step-ms", 25) * 1000,
		.kv_bytes = (uint64_t)opts_int(o, "kv-bytes", 0),
		.swap_bytes = (uint64_t)opts_int(o, "swap-bytes", 0),
		.n_threads = (uint32_t)opts_int(o, "threads", 0),
		.max_jobs = p->svc.max_queued_jobs,
		.max_tokens = p->svc.max_queued_tokens,
		.worker_wait_us = opts_int(o, "worker-wait", 60) * 1000000,
		.metrics = p->metrics,
		.load = &p->load,
		.tp = (uint32_t)opts_int(o, "tp", 1),
		.class_change = opts_flag(o, "allow-class-change"),
		.silent_us = opts_int(o, "worker-timeout", 2) ? opts_int(o, "worker-timeout", 2) * 1000000 : -1,
		.stuck_us = stuck_us(o),
		.supervised = p->ready_fd >= 0,
		.on_notice = on_notice,
		.on_notice_user = &p->notices,
	};
	if (choice(o, "prefill", "mixed", prefills, why, why_n) ||
	    choice(o, "preempt", "auto", preempts, why, why_n))
		return -EINVAL;
	c.prefill_separate = strcmp(opts_text(o, "prefill", "mixed"), "separate") == 0;
	c.no_prefix_cache = opts_flag(o, "no-prefix-cache");
	snprintf(c.preempt, sizeof c.preempt, "%s", opts_text(o, "preempt", "auto"));
	c.seed = entropy_u64();
	if (c.block_size < 16 || c.block_size & (c.block_size - 1))
		return err_why(why, why_n, -EINVAL, "--block-size %u: must be 16, 32, 64, 128 or 256",
			       c.block_size);
	/* 0 on the bus lets the worker choose; less than a block is none. */
	if (opts_has(o, "swap-bytes") && c.swap_bytes == 0)
		c.swap_bytes = 1;
	if (c.max_rows < c.max_seqs)
		c.max_rows = c.max_seqs;
	/* Workers may have another working directory. */
	char *path = realpath(dir, NULL);
	snprintf(c.model, sizeof c.model, "%s", path ? path : dir);
	free(path);
	snprintf(c.bus, sizeof c.bus, "%s", opts_text(o, "bus", ""));
	c.zap = p->zap;
	snprintf(c.compute, sizeof c.compute, "%s", opts_text(o, "compute", "f32"));
	c.fast = opts_flag(o, "fast");
	return engine_start(p->zmq, &c, &p->engine, why, why_n);
}

static void quit_engine(struct program *p)
{
	void *s = zmq_socket(p->zmq, ZMQ_PUSH);
	struct engine_cmd *c = calloc(1, sizeof *c);
	if (!s || !c || zmq_connect(s, ENGINE_IN) < 0)
		abort(); /* nothing can be ended in order any more */
	c->kind = ENGINE_QUIT;
	params_init(&c->params);
	if (zmq_send(s, &c, sizeof c, 0) < 0)
		abort();
	engine_join(p->engine);
	zmq_close(s);
}

/* Tokens mean something only to the model that they are of: its shape and its vocabulary. */
static void model_identity(const struct program *p, char *out, size_t n)
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

static int start_journal(struct program *p, char *why, size_t why_n)
{
	char model[128];
	const char *path = opts_text(&p->o, "journal", NULL);
	if (!path)
		return 0;
	model_identity(p, model, sizeof model);
	int rc = journal_open(&(struct journal_config){.path = path, .model = model}, &p->journal, why, why_n);
	p->svc.journal = p->journal;
	return rc;
}

/* Who may use the sockets: before any of them is bound. */
static int start_zap(struct program *p, char *why, size_t why_n)
{
	const char *path = opts_text(&p->o, "curve-key", NULL), *allow = opts_text(&p->o, "allow", NULL);
	struct curve_key key = {0};
	if (allow && !path)
		return err_why(why, why_n, -EINVAL, "--allow needs the service's own key: --curve-key FILE");
	if (path)
		curve_protect();
	int rc = path ? curve_read(path, true, &key, why, why_n) : 0;
	if (rc)
		return err_prefix(why, why_n, rc, "--curve-key");
	rc = zap_start(p->zmq, path ? &key : NULL, allow, &p->zap, why, why_n);
	curve_forget(&key);
	return rc ? err_prefix(why, why_n, rc, "--allow") : 0;
}

static int start(struct program *p, const char *dir, char *why, size_t why_n)
{
	bool insecure = opts_flag(&p->o, "insecure"), keys = opts_has(&p->o, "curve-key");
	struct front_config fc = {.insecure = insecure};
	const char *jobs = opts_text(&p->o, "jobs", "tcp://127.0.0.1:7420");
	const char *http = opts_text(&p->o, "http", "127.0.0.1:8080");
	if (strcmp(jobs, "none") != 0)
		snprintf(fc.jobs, sizeof fc.jobs, "%s", jobs);
	const char *bus = opts_text(&p->o, "bus", "");
	int rc = endpoint_check(bus, "worker bus", insecure || keys, why, why_n);
	if (!rc && fc.jobs[0])
		rc = endpoint_check(fc.jobs, "job socket", insecure || keys, why, why_n);
	if (!rc)
		rc = load(p, dir, why, why_n);
	if (rc)
		return rc;
	rc = start_journal(p, why, why_n);
	if (rc)
		return rc;
	fc.journal = p->journal;
	p->zmq = zmq_ctx_new();
	rc = start_zap(p, why, why_n);
	if (rc)
		goto fail_zmq;
	fc.zap = p->zap;
	rc = front_start(p->zmq, &p->svc, &fc, &p->front, why, why_n);
	if (rc)
		goto fail_zap;
	rc = start_engine(p, dir, why, why_n);
	if (rc)
		goto fail_front;
	front_connect(p->front);
	if (strcmp(http, "none") == 0)
		return 0;
	struct http_config hc = {.insecure = insecure};
	snprintf(hc.addr, sizeof hc.addr, "%s", http);
	snprintf(hc.cors, sizeof hc.cors, "%s", opts_text(&p->o, "cors-origin", ""));
	snprintf(hc.tls_cert, sizeof hc.tls_cert, "%s", opts_text(&p->o, "tls-cert", ""));
	snprintf(hc.tls_key, sizeof hc.tls_key, "%s", opts_text(&p->o, "tls-key", ""));
	hc.journal = p->journal;
	hc.max_file_bytes = (size_t)opts_int(&p->o, "max-file-bytes", 0);
	snprintf(hc.api_keys, sizeof hc.api_keys, "%s", opts_text(&p->o, "api-key-file", ""));
	snprintf(hc.access_log, sizeof hc.access_log, "%s", opts_text(&p->o, "access-log", ""));
	rc = http_start(p->front, &p->svc, &hc, &p->http, why, why_n);
	if (rc)
		goto fail_engine;
	return 0;

fail_engine:
	front_stop(p->front);
	quit_engine(p);
	front_free(p->front);
	goto fail_zap;
fail_front:
	front_stop(p->front);
	front_free(p->front);
fail_zap:
	zap_stop(p->zap);
	p->zap = NULL;
fail_zmq:
	zmq_ctx_term(p->zmq);
	p->zmq = NULL;
	journal_close(p->journal);
	p->journal = NULL;
	return rc;
}

static void stop(struct program *p)
{
	http_stop(p->http);
	front_stop(p->front);
	quit_engine(p);
	front_free(p->front);
	zap_stop(p->zap);
	zmq_ctx_term(p->zmq);
	journal_close(p->journal);
}

/* Until a signal says to end. */
static void wait_for_end(struct program *p)
{
	struct pollfd fds[] = {{.fd = p->signals, .events = POLLIN},
			       {.fd = p->notices.fd[0], .events = POLLIN}};
	for (;;) {
		if (poll(fds, 2, -1) < 0)
			continue;
		struct signalfd_siginfo si;
		if ((fds[0].revents & POLLIN) && read(p->signals, &si, sizeof si) == sizeof si) {
			if (si.ssi_signo != SIGHUP) {
				log_info("main", "ending signal=%u", si.ssi_signo);
				return;
			}
			zap_reload(p->zap);
		}
		char bytes[64];
		if (!(fds[1].revents & POLLIN) || read(p->notices.fd[0], bytes, sizeof bytes) <= 0)
			continue;
		pthread_mutex_lock(&p->notices.lock);
		bool ready = p->notices.ready;
		json_t *lines = p->notices.lines, *line;
		p->notices.ready = false;
		p->notices.lines = json_array();
		pthread_mutex_unlock(&p->notices.lock);
		size_t i;
		json_array_foreach(lines, i, line) tell(p, json_incref(line));
		json_decref(lines);
		if (ready)
			tell_ready(p);
	}
}

static void block_signals(struct program *p)
{
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGHUP);
	/* Before any thread is started, so that all inherit it. */
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN); /* a write beyond the limit of file sizes fails instead */
	p->signals = signalfd(-1, &set, SFD_CLOEXEC);
}

static int usage(const char *why)
{
	fprintf(stderr, "quern-controller: %s; see quern-controller --help\n", why);
	return 2;
}

static void help(const struct opts *o)
{
	printf("usage: quern-controller --model DIR --bus ENDPOINT [options]\n\n"
	       "The controller of a quern service: job socket, HTTP, tokenizer, scheduler.\n"
	       "`quern serve` starts it, with its workers.\n\n");
	opts_help(o, stdout);
}

int main(int argc, char **argv)
{
	static struct program p = {.ready_fd = -1, .notices = {.lock = PTHREAD_MUTEX_INITIALIZER}};
	char why[512];
	file_guard_stdio();
	p.started_us = clock_us();
	opts_add(&p.o, options, sizeof options / sizeof *options);
	int rc = opts_parse(&p.o, argc, argv, why, sizeof why);
	if (rc == OPTS_HELP || (rc == 0 && opts_flag(&p.o, "help"))) {
		help(&p.o);
		return 0;
	}
	if (rc)
		return usage(why);
	if (opts_flag(&p.o, "version")) {
		printf("quern-controller %s\n", QUERN_VERSION);
		return 0;
	}
	const char *dir = opts_text(&p.o, "model", NULL);
	int level = log_level_parse(opts_text(&p.o, "log-level", "info"));
	if (!dir || !opts_has(&p.o, "bus"))
		return usage("--model and --bus are required");
	if (p.o.n_words)
		return usage("arguments that are no options");
	if (strcmp(opts_text(&p.o, "http", ""), "none") == 0 && strcmp(opts_text(&p.o, "jobs", ""), "none") == 0)
		return usage("--http none and --jobs none leave no way to reach the service: give one of them");
	if (level < 0)
		return usage("--log-level must be debug, info, warn or error");
	log_init("controller", (enum log_level)level);
	p.ready_fd = (int)opts_int(&p.o, "ready-fd", -1);
	p.notices.supervised = p.ready_fd >= 0;
	p.notices.lines = json_array();
	block_signals(&p);
	/* Sockets that are paths, and whatever else is made: ours alone. */
	umask(077);
	if (pipe(p.notices.fd) < 0)
		return fail(&p, strerror(errno));
	if (start(&p, dir, why, sizeof why))
		return fail(&p, why);
	wait_for_end(&p);
	stop(&p);
	json_decref(p.notices.lines);
	chat_free(p.chat);
	metrics_free(p.metrics);
	tokenizer_free(p.tokenizer);
	model_config_fini(&p.config);
	opts_fini(&p.o);
	return 0;
}
