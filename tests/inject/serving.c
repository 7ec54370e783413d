/* serving.c - the paths with threads: the front end with its job socket and journal, HTTP, and a fake engine
 * (fake_engine.h).  This thread is the client, paused: its calls do not fail. */
#include "base/housekeeper.h"
#include "base/work_pool.h"
#include "controller/chat/chat.h"
#include "controller/endpoints/endpoints.h"
#include "controller/front.h"
#include "controller/http/http.h"
#include "controller/jobs/journal.h"
#include "controller/jobs/mailbox.h"
#include "controller/message/service.h"
#include "controller/metrics/metrics.h"
#include "controller/tokenizer/tokenizer.h"
#include "formats/config.h"
#include "proto/mp.h"
#include "tests/inject/cases.h"
#include "tests/inject/inject.h"
#include "tests/journal_tables.h"
#include "tests/testdata.h"
#include "tests/wire/http_client.h"

#include <errno.h>
#include <zmq.h>

/* The fake engine's sends do not fail: it would drop a message that it cannot send. */
int __real_zmq_send(void *s, const void *p, size_t n, int flags);
#define zmq_send __real_zmq_send
#include "tests/wire/fake_engine.h"

static struct service svc;
static struct model_config config;
static struct tokenizer *tokenizer;
static struct chat *chat;

struct rig {
	char path[128];
	void *zmq;
	struct journal *journal;
	struct metrics *metrics;
	struct fake_engine *engine;
	struct front *front;
	struct http *http;
	struct endpoints endpoints;
};

void serving_prepare(void)
{
	struct why why = {""};
	const char *dir = repofile("models/demo");
	if (tokenizer)
		return;
	if (tokenizer_load(dir, &tokenizer, &why) || chat_load(dir, &chat, &why) ||
	    model_config_load(dir, &config, &why)) {
		fprintf(stderr, "sweep: %s\n", why.text);
		exit(2);
	}
	svc = (struct service){.tokenizer = tokenizer,
			       .config = &config,
			       .chat = chat,
			       .model_name = "demo",
			       .started_unix = 1700000000,
			       .model_context = 2048,
			       .max_request_bytes = 1 << 20,
			       .keep_finished_us = 60 * 1000000LL,
			       .max_finished = 100,
			       .keep_durable_us = 3600 * 1000000LL,
			       .journal_bytes = 1 << 30};
}

void serving_cleanup(void)
{
	tokenizer_free(tokenizer);
	chat_free(chat);
	model_config_fini(&config);
}

static void rig_stop(struct rig *r)
{
	http_stop(r->http);
	if (r->front)
		front_stop(r->front);
	inject_pause(true);
	if (r->engine) {
		fake_stop(r->engine);
		free(r->engine);
	}
	inject_pause(false);
	front_free(r->front);
	work_pool_stop(svc.pool);
	svc.pool = NULL;
	housekeeper_stop(svc.house);
	svc.house = NULL;
	journal_close(r->journal);
	metrics_free(r->metrics);
	zmq_ctx_term(r->zmq);
}

static int rig_start(struct rig *r, bool with_http, struct why *why)
{
	struct http_config http = {.addr = "127.0.0.1:0"};
	struct front_config cfg = {.jobs = "tcp://127.0.0.1:*"};
	*r = (struct rig){0};
	snprintf(r->path, sizeof r->path, "%s/j", inject_dir());
	r->zmq = zmq_ctx_new();
	r->metrics = svc.metrics = metrics_new(2048);
	int rc = journal_with_tables(r->path, "demo", &r->journal, why);
	svc.journal = cfg.journal = r->journal;
	if (!rc)
		rc = housekeeper_start(&svc.house, why);
	if (!rc)
		rc = work_pool_start(&work_limits_usual, &svc.pool, why);
	if (!rc)
		rc = front_start(r->zmq, &svc, &cfg, &r->front, why);
	if (!rc) {
		inject_pause(true);
		r->engine = xcalloc(1, sizeof *r->engine);
		fake_start(r->engine, r->zmq);
		inject_pause(false);
		front_connect(r->front);
	}
	if (!rc && with_http) {
		struct http_app app = endpoints_app(&r->endpoints, front_mailbox(r->front), &svc, 0);
		rc = http_start(&svc, &app, &http, &r->http, why);
	}
	if (rc)
		rig_stop(r);
	return rc;
}

int serving_journal(struct why *why)
{
	struct rig r = {0};
	snprintf(r.path, sizeof r.path, "%s/j", inject_dir());
	int rc = 0;
	/* Create the journal, then open it again. */
	for (int i = 0; i < 2 && !rc; i++) {
		rc = journal_with_tables(r.path, "demo", &r.journal, why);
		if (!rc)
			journal_close(r.journal);
	}
	return rc;
}

/* Send a request; expect a reply or a closed connection, never a client left waiting. */
static int ask(struct rig *r, const char *method, const char *path, const char *type, const char *body,
	       struct why *why)
{
	struct buf b = {0}, reply = {0};
	bool ready = false;
	inject_pause(true);
	for (int i = 0; i < 500 && !(ready = mailbox_ready(front_mailbox(r->front))); i++)
		usleep(10000);
	buf_printf(&b, "%s %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n", method, path);
	if (body)
		buf_printf(&b, "Content-Type: %s\r\nContent-Length: %zu\r\n", type, strlen(body));
	buf_printf(&b, "\r\n%s", body ? body : "");
	int fd = client_connect(http_address(r->http));
	bool sent = fd >= 0 && client_send(fd, b.p, b.len);
	errno = 0;
	if (sent)
		client_read(fd, &reply, NULL);
	bool waited = sent && errno == EAGAIN;
	if (fd >= 0)
		close(fd);
	inject_pause(false);
	int status = reply.len > 12 ? atoi(reply.p + 9) : 0;
	if (waited) {
		fprintf(stderr, "%s %s: no answer and no end in %d s; so far: %s\n", method, path,
			CLIENT_TIMEOUT_S, reply.p ? reply.p : "");
		_exit(3); /* a finding: it hangs */
	}
	buf_fini(&b);
	int rc = status == 200 ? 0 : -EIO;
	if (rc)
		err_why(why, 0, "%s: status %d, engine %sready: %s", path, status, ready ? "" : "not ",
			reply.p ? reply.p : "");
	buf_fini(&reply);
	return rc;
}

int serving_http(struct why *why)
{
	struct rig r;
	int rc = rig_start(&r, true, why);
	if (rc)
		return rc;
	rc = ask(&r, "POST", "/v1/completions", "application/json",
		 "{\"model\": \"demo\", \"prompt\": \"Once\", \"max_tokens\": 4}", why);
	if (!rc)
		rc = ask(&r, "POST", "/v1/chat/completions", "application/json",
			 "{\"model\": \"demo\", \"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}], "
			 "\"max_tokens\": 4, \"stream\": true}",
			 why);
	if (!rc)
		rc = ask(&r, "GET", "/metrics", NULL, NULL, why);
	rig_stop(&r);
	return rc;
}

int serving_upload(struct why *why)
{
	static const char form[] =
		"--xyz\r\nContent-Disposition: form-data; "
		"name=\"purpose\"\r\n\r\nbatch\r\n--xyz\r\nContent-Disposition: "
		"form-data; name=\"file\"; filename=\"a.jsonl\"\r\n\r\n{\"custom_id\": \"1\", \"method\": "
		"\"POST\", "
		"\"url\": \"/v1/completions\", \"body\": {\"model\": \"demo\", \"prompt\": "
		"\"Once\"}}\n\r\n--xyz--\r\n";
	struct rig r;
	int rc = rig_start(&r, true, why);
	if (rc)
		return rc;
	rc = ask(&r, "POST", "/v1/files", "multipart/form-data; boundary=xyz", form, why);
	if (!rc)
		rc = ask(&r, "GET", "/v1/files", NULL, NULL, why);
	rig_stop(&r);
	return rc;
}

/* Run a durable job over the job socket.  A lost message may leave this client waiting, so it gives up soon;
 * the service must still end. */
int serving_jobs(struct why *why)
{
	enum { REPLY_MS = 3000, REPLIES_MAX = 64 };
	struct mp_limits limits = mp_limits_reply();
	struct rig r;
	char part[65536];
	int ms = REPLY_MS, zero = 0;
	bool done = false;
	int rc = rig_start(&r, false, why);
	if (rc)
		return rc;
	inject_pause(true);
	for (int i = 0; i < 500 && !mailbox_ready(front_mailbox(r.front)); i++)
		usleep(10000);
	json_t *v = json_loads("{\"op\": \"submit\", \"id\": 1, \"prompt\": \"Once\", \"durable\": true, "
			       "\"params\": {\"max_tokens\": 4}}",
			       0, NULL);
	struct buf b = {0};
	mp_encode(&b, v);
	json_decref(v);
	void *zmq = zmq_ctx_new(), *s = zmq_socket(zmq, ZMQ_DEALER);
	zmq_setsockopt(s, ZMQ_RCVTIMEO, &ms, sizeof ms);
	zmq_setsockopt(s, ZMQ_LINGER, &zero, sizeof zero);
	zmq_connect(s, front_jobs_endpoint(r.front));
	zmq_send(s, b.p, b.len, 0);
	err_why(why, 0, "no reply to a submit in %d ms", ms);
	for (int i = 0; i < REPLIES_MAX && !done; i++) {
		int n = zmq_recv(s, part, sizeof part, 0);
		json_t *reply = NULL;
		if (n <= 0 || mp_decode(part, (size_t)n, &limits, &reply, why))
			break;
		const char *event = json_string_value(json_object_get(reply, "op"));
		char *text = json_dumps(reply, 0);
		err_why(why, 0, "%s", text);
		done = event && !strcmp(event, "done");
		bool error = event && !strcmp(event, "error");
		free(text);
		json_decref(reply);
		if (error)
			break;
	}
	zmq_close(s);
	zmq_ctx_term(zmq);
	buf_fini(&b);
	inject_pause(false);
	rig_stop(&r);
	return done ? 0 : -EIO;
}
