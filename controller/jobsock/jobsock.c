#include "controller/jobsock/jobsock.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/user_socket.h"
#include "base/work_pool.h"
#include "base/version.h"
#include "controller/net/conns.h"
#include "controller/net/endpoint.h"
#include "controller/jobs/lines.h"
#include "controller/jobs/mailbox.h"
#include "controller/jobsock/clients.h"
#include "controller/jobsock/job_reply.h"
#include "controller/jobsock/job_request.h"
#include "controller/jobsock/parser.h"
#include "controller/net/zap.h"
#include "controller/request/request_cost.h"
#include "controller/request/request_fields.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>
#include <zmq.h>

enum {
	READ_BATCH = 64, /* requests per iteration, so that the engine's events are read in between */
	HANDSHAKE_MS = 3000,
	HEARTBEAT_MS = 5000,
	HEARTBEAT_TIMEOUT_MS = 15000,
	LINGER_MS = 1000,
	SEND_HWM = 100000, /* messages per client; the byte limits of clients.c are reached first */
	RECEIVE_HWM = 64,
	JOBS_TABLE_MAX = 5000,
	PARSE_INLINE_MAX = 16 << 10, /* larger or costly requests are parsed by the pool's threads */
	STATUS_MAX = 4096,           /* queries to the engine in progress */
	LINES_MAX = 16384,           /* requests for HTTP routes in progress */
	CONNECTIONS_MAX = 16384,     /* or this socket's share of the descriptors */
};

/* A request that listens to a job, or waits for the engine's reply. */
struct call {
	struct jobsock *sock;
	struct client *client;     /* NULL: its client is lost */
	struct call *next, **prev; /* links in the client's list of calls */
	uint64_t listener;         /* id of its listener; 0: none */
	uint64_t line;             /* tag of its request to an HTTP route, dropped with the client; 0: none */
	bool workers;              /* reply only with the workers of the status */
	bool delimiter;
	struct buf id;
};

/* The sender of a request in the parser, returned with the parsed request. */
struct letter {
	struct client *client;
	bool delimiter;
	int64_t received_us;
};

struct jobsock {
	const struct service *svc;
	struct mailbox *mailbox;
	struct jobs *jobs;
	void *router, *monitor;
	struct zap *zap;         /* borrowed; NULL: peers need no key */
	uint64_t zap_generation; /* generation of the key list that the clients were last checked against */
	char endpoint[256];
	bool no_orders;
	struct clients clients; /* lost clients are dropped by jobsock_reap() */
	struct conns *conns;
	struct parser *parser;
	struct buf out; /* the message being written */
	uint32_t n_calls, n_status, n_lines;
};

/* --- calls --- */

static struct call *call_new(struct jobsock *s, struct client *c, bool delimiter, struct buf *id)
{
	struct call *k = xcalloc(1, sizeof *k);
	k->sock = s;
	k->client = c;
	k->delimiter = delimiter;
	k->id = *id;
	*id = (struct buf){0};
	k->next = c->calls;
	k->prev = &c->calls;
	if (k->next)
		k->next->prev = &k->next;
	c->calls = k;
	s->n_calls++;
	return k;
}

static void call_detach(struct call *k)
{
	if (!k->client)
		return;
	*k->prev = k->next;
	if (k->next)
		k->next->prev = k->prev;
	k->client = NULL;
}

static void call_free(struct call *k)
{
	call_detach(k);
	k->sock->n_calls--;
	buf_fini(&k->id);
	free(k);
}

/* The call's client is lost; the call is freed with its reply. */
static void drop_call(struct jobsock *s, struct call *k)
{
	call_detach(k);
	if (k->line)
		lines_drop(s->svc->lines, k->line);
}

void jobsock_reap(struct jobsock *s)
{
	struct client *c;
	while ((c = clients_take_lost(&s->clients))) {
		while (c->calls) {
			struct call *k = c->calls;
			if (k->listener)
				jobs_unlisten(s->jobs, k->listener); /* frees the call */
			else
				drop_call(s, k);
		}
		clients_unlink(&s->clients, c);
		clients_release(c);
	}
}

/* --- sending --- */

/* Send s->out to the client; lose the client if it has disconnected or does not read. */
static void post(struct jobsock *s, struct client *c, bool delimiter)
{
	if (c->lost)
		return;
	int rc = clients_send(c, s->router, delimiter, s->out.p, s->out.len);
	if (!rc)
		return;
	if (rc == -EHOSTUNREACH)
		log_debug("jobsock", "client gone fd=%d", c->fd);
	else
		log_warn("jobsock", "client does not read fd=%d unsent=%zu reason=\"%s\"", c->fd,
			 clients_unsent(c), zmq_strerror(-rc));
	clients_lose(&s->clients, c);
}

/* --- events of jobs, replies from the engine --- */

static void on_event(void *user, const struct job_event *e)
{
	struct call *k = user;
	struct client *c = k->client;
	if (!c || c->lost)
		return;
	/* An empty last delta only carries the end of an output, which `done` repeats. */
	if (e->kind == JOB_DELTA && !e->delta.text_n && !e->delta.n_tokens)
		return;
	buf_clear(&k->sock->out);
	job_reply_event(&k->sock->out, &k->id, e);
	post(k->sock, c, k->delimiter);
}

static void ignore_event(void *user, const struct job_event *e)
{
	(void)user;
	(void)e;
}

static void on_gone(void *user)
{
	call_free(user);
}

static struct listener listen_as(struct jobsock *s, struct client *c, bool delimiter, struct buf *id)
{
	struct call *k = call_new(s, c, delimiter, id);
	k->listener = mailbox_listener_id(s->mailbox);
	return (struct listener){.event = on_event, .gone = on_gone, .user = k, .id = k->listener};
}

static void on_status(void *user, const struct engine_status *st)
{
	struct call *k = user;
	struct jobsock *s = k->sock;
	s->n_status--;
	if (k->client && !k->client->lost) {
		buf_clear(&s->out);
		if (st) {
			json_t *m = k->workers ? json_pack("{s:o}", "workers", job_reply_workers(st))
					       : job_reply_status(s->svc, st);
			job_reply_ok(&s->out, &k->id, m);
			json_decref(m);
		} else {
			job_reply_error(&s->out, &k->id, E_NOT_READY, "", "the engine does not answer");
		}
		post(s, k->client, k->delimiter);
	}
	call_free(k);
}

static void on_order_done(void *user, enum code code, const char *why)
{
	struct call *k = user;
	struct jobsock *s = k->sock;
	s->n_status--;
	if (k->client && !k->client->lost) {
		buf_clear(&s->out);
		if (code == CODE_OK)
			job_reply_ok(&s->out, &k->id, NULL);
		else
			job_reply_error(&s->out, &k->id, code, "", why);
		post(s, k->client, k->delimiter);
	}
	call_free(k);
}

/* --- requests --- */

static void reply_error(struct jobsock *s, struct client *c, bool delimiter, const struct buf *id,
			enum code code, const char *why)
{
	buf_clear(&s->out);
	job_reply_error(&s->out, id, code, "", why);
	post(s, c, delimiter);
}

static void reply_ok(struct jobsock *s, struct client *c, bool delimiter, const struct buf *id, json_t *keys)
{
	buf_clear(&s->out);
	job_reply_ok(&s->out, id, keys);
	json_decref(keys);
	post(s, c, delimiter);
}

static void do_attach(struct jobsock *s, struct client *c, bool delimiter, struct job_request *r,
		      struct job *job)
{
	uint32_t n = job_n_outputs(job);
	if (r->n_from && r->n_from != n) {
		char why[128];
		snprintf(why, sizeof why, "from has %u offsets, the job has %u outputs", r->n_from, n);
		reply_error(s, c, delimiter, &r->id, E_BAD_REQUEST, why);
		return;
	}
	for (uint32_t i = 1; !r->n_from && i < n; i++)
		r->from[i] = r->from[0];
	if (job_n_listeners(job) >= JOBS_LISTENERS_MAX) {
		reply_error(s, c, delimiter, &r->id, E_OVERLOADED, "this job has too many listeners already");
		return;
	}
	struct listener l = listen_as(s, c, delimiter, &r->id);
	jobs_attach(s->jobs, job, &l, true, r->from);
}

/* Handle an op that names a job. */
static void do_job(struct jobsock *s, struct client *c, bool delimiter, struct job_request *r)
{
	struct job *job = jobs_find(s->jobs, r->job);
	struct why why;
	if (!job && jobs_unread(s->jobs, &why)) {
		err_prefix(&why, 0, "no such job, but those of the journal are not known yet");
		reply_error(s, c, delimiter, &r->id, E_NOT_READY, why.text);
	} else if (!job || !job_is_of(job, clients_owner(c))) {
		reply_error(s, c, delimiter, &r->id, E_NO_SUCH_JOB, "no such job");
	} else if (r->op == OP_ATTACH) {
		do_attach(s, c, delimiter, r, job);
	} else if (r->op == OP_CANCEL) {
		jobs_cancel(s->jobs, job);
		reply_ok(s, c, delimiter, &r->id, json_pack("{s:s}", "job", job_id(job)));
	} else if (!job_finished(job)) {
		reply_error(s, c, delimiter, &r->id, E_NOT_READY, "the job has not ended yet");
	} else {
		struct listener l = listen_as(s, c, delimiter, &r->id);
		jobs_result(s->jobs, job, &l);
	}
}

static void do_status(struct jobsock *s, struct client *c, bool delimiter, struct job_request *r)
{
	if (s->n_status >= STATUS_MAX) {
		reply_error(s, c, delimiter, &r->id, E_OVERLOADED,
			    "too many requests for the status in progress");
		return;
	}
	struct call *k = call_new(s, c, delimiter, &r->id);
	k->workers = r->op == OP_WORKERS;
	s->n_status++;
	mailbox_status(s->mailbox, on_status, k);
}

static void on_explained(void *user, json_t *explained, enum code code, const char *why)
{
	struct call *k = user;
	struct jobsock *s = k->sock;
	s->n_status--;
	if (k->client && !k->client->lost) {
		buf_clear(&s->out);
		if (explained)
			job_reply_ok(&s->out, &k->id, explained);
		else
			job_reply_error(&s->out, &k->id, code, "", why);
		post(s, k->client, k->delimiter);
	}
	call_free(k);
}

static void do_explain(struct jobsock *s, struct client *c, bool delimiter, struct job_request *r)
{
	if (s->n_status >= STATUS_MAX) {
		reply_error(s, c, delimiter, &r->id, E_OVERLOADED,
			    "too many requests to the engine in progress");
		return;
	}
	struct call *k = call_new(s, c, delimiter, &r->id);
	s->n_status++;
	const char *owner = clients_owner(c);
	mailbox_explain(s->mailbox, r->job, owner ? owner : "", on_explained, k);
}

/* Forward scale, drain or reset_prefix_cache to the engine; may take as long as loading a model. */
static void do_order(struct jobsock *s, struct client *c, bool delimiter, struct job_request *r)
{
	if (s->no_orders) {
		reply_error(s, c, delimiter, &r->id, E_AUTH,
			    "with --api-key-file, scale, drain and reset_prefix_cache need a job socket that "
			    "is a path "
			    "(--jobs ipc://PATH), or keys (--curve-key)");
		return;
	}
	if (s->zap && !(zap_roles(s->zap, c->owner) & ZAP_ADMIN)) {
		reply_error(s, c, delimiter, &r->id, E_AUTH,
			    "only an admin key may scale, drain and reset_prefix_cache");
		return;
	}
	if (s->n_status >= STATUS_MAX) {
		reply_error(s, c, delimiter, &r->id, E_OVERLOADED,
			    "too many requests for the status in progress");
		return;
	}
	struct call *k = call_new(s, c, delimiter, &r->id);
	s->n_status++;
	mailbox_order(s->mailbox, &r->order, on_order_done, k);
}

/* Write the name of the client's queue in the pool: its key, which several connections may share, or its
 * routing id. */
static void pool_name(const struct client *c, char out[WORK_CLIENT_SIZE])
{
	if (c->owner[0])
		snprintf(out, WORK_CLIENT_SIZE, "jobs %s", c->owner);
	else
		snprintf(out, WORK_CLIENT_SIZE, "jobs %016llx",
			 (unsigned long long)XXH3_64bits(c->route, c->route_n));
}

static void on_line(void *user, struct line_reply *reply)
{
	struct call *k = user;
	struct jobsock *s = k->sock;
	s->n_lines--;
	if (k->client && !k->client->lost) {
		buf_clear(&s->out);
		if (reply->code == CODE_OK)
			job_reply_line(&s->out, &k->id, reply);
		else
			job_reply_error(&s->out, &k->id, reply->code, "", reply->why);
		post(s, k->client, k->delimiter);
	}
	call_free(k);
}

/* Pass on a request for an HTTP route. */
static void do_line(struct jobsock *s, struct client *c, bool delimiter, struct job_request *r)
{
	struct line_request *l = r->line;
	const bool keep = l->keep;
	uint64_t tag;
	if (c->lost && !keep)
		return;
	if (s->n_lines >= LINES_MAX) {
		reply_error(s, c, delimiter, &r->id, E_OVERLOADED, "too many requests in progress");
		return;
	}
	struct call *k = call_new(s, c, delimiter, &r->id);
	if (c->unlinked)
		call_detach(k);
	snprintf(l->peer, sizeof l->peer, "%s", c->owner);
	pool_name(c, l->client);
	l->done = on_line;
	l->user = k;
	s->n_lines++;
	if (!s->svc->lines || lines_put(s->svc->lines, &r->line, &tag)) {
		struct line_reply none = {.code = E_NOT_READY, .why = "HTTP's routes are not served now"};
		on_line(k, &none);
	} else if (!keep) {
		k->line = tag;
	}
}

static void own_submit(const struct client *c, struct submit *submit)
{
	submit->owner = c->owner[0] ? xstrdup(c->owner) : NULL;
}

static void act(struct jobsock *s, struct client *c, bool delimiter, struct job_request *r,
		int64_t received_us, int64_t now)
{
	struct listener l;
	switch (r->op) {
	case OP_NONE:
		buf_clear(&s->out);
		job_reply_error(&s->out, &r->id, r->problem.code, r->problem.param, r->problem.why);
		post(s, c, delimiter);
		break;
	case OP_SUBMIT:
		/* A job without its client would be cancelled at once. */
		if (c->lost && !r->submit->keep)
			break;
		l = listen_as(s, c, delimiter, &r->id);
		own_submit(c, r->submit);
		r->submit->received_us = received_us;
		jobs_submit(s->jobs, &r->submit, &l, now);
		break;
	case OP_REQUEST:
		do_line(s, c, delimiter, r);
		break;
	case OP_CANCEL:
	case OP_ATTACH:
	case OP_RESULT:
		do_job(s, c, delimiter, r);
		break;
	case OP_EXPLAIN:
		do_explain(s, c, delimiter, r);
		break;
	case OP_JOBS:
		reply_ok(s, c, delimiter, &r->id,
			 json_pack("{s:o}", "jobs",
				   jobs_table(s->jobs, clients_owner(c), JOBS_TABLE_MAX, now)));
		break;
	case OP_STATUS:
	case OP_WORKERS:
		do_status(s, c, delimiter, r);
		break;
	case OP_SCALE:
	case OP_DRAIN:
	case OP_RESET_PREFIX_CACHE:
		do_order(s, c, delimiter, r);
		break;
	case OP_TOKENIZE:
		buf_clear(&s->out);
		job_reply_ok_tokens(&s->out, &r->id, r->tokens.ids, r->tokens.n);
		post(s, c, delimiter);
		break;
	case OP_DETOKENIZE:
		buf_clear(&s->out);
		job_reply_ok_text(&s->out, &r->id, r->text.p ? r->text.p : "", r->text.len, r->pieces);
		post(s, c, delimiter);
		break;
	case OP_PING:
		reply_ok(s, c, delimiter, &r->id,
			 json_pack("{s:s, s:s, s:b, s:b, s:s, s:s, s:o}", "version", QUERN_VERSION, "model",
				   s->svc->model_name, "ready", mailbox_ready(s->mailbox), "chat",
				   s->svc->chat != NULL, "reasoning",
				   s->svc->chat_thinks ? "open"
				   : s->svc->reasoning ? "tagged"
						       : "none",
				   "reasoning_marks", s->svc->marks ? s->svc->marks->name : "none",
				   "sampling_defaults", request_fields_model(s->svc->config)));
		break;
	}
}

/* --- reading --- */

static void fd_closed(struct jobsock *s, int fd)
{
	for (struct client *c = clients_of_fd(&s->clients, fd); c; c = c->same_fd)
		clients_lose(&s->clients, c);
	conns_closed(s->conns, fd);
}

static bool is_revoked(void *user, const struct client *c)
{
	return !(zap_roles(user, c->owner) & ZAP_CLIENT);
}

/* Drop the clients with keys that are no longer in the list. */
static void drop_revoked(struct jobsock *s)
{
	uint64_t now = s->zap ? zap_generation(s->zap) : 0;
	if (now == s->zap_generation)
		return;
	s->zap_generation = now;
	clients_lose_if(&s->clients, is_revoked, s->zap);
	jobsock_reap(s);
}

/* Read all events of the monitor: connections accepted and closed. */
static void read_monitor(struct jobsock *s)
{
	zmq_msg_t m;
	zmq_msg_init(&m);
	while (zmq_msg_recv(&m, s->monitor, ZMQ_DONTWAIT) >= 0) {
		uint16_t event = 0;
		uint32_t fd = UINT32_MAX;
		if (zmq_msg_size(&m) >= sizeof event + sizeof fd) {
			memcpy(&event, zmq_msg_data(&m), sizeof event);
			memcpy(&fd, (char *)zmq_msg_data(&m) + sizeof event, sizeof fd);
		}
		if (zmq_msg_more(&m))
			zmq_msg_recv(&m, s->monitor, 0); /* the endpoint's frame */
		if (fd > INT32_MAX)
			continue;
		fd_closed(s, (int)fd);
		if (event == ZMQ_EVENT_ACCEPTED)
			conns_opened(s->conns, (int)fd, INT64_MAX);
	}
	zmq_msg_close(&m);
	jobsock_reap(s);
}

/* Return the client of a message.  The monitor has been read since the message arrived, so the end of an
 * older connection with the same descriptor is known.  Last messages of that connection may still arrive: the
 * first reply to them fails, and the client is lost then. */
static struct client *client_of(struct jobsock *s, const void *route, size_t n, int fd, const char *owner)
{
	struct client *c = clients_find(&s->clients, route, n);
	if (c && (c->fd != fd || strcmp(c->owner, owner) != 0)) {
		clients_lose(&s->clients, c); /* reconnected with the same routing id */
		jobsock_reap(s);
		c = NULL;
	}
	bool open = true;
	if (fd >= 0) {
		open = conns_is_open(s->conns, fd);
		conns_keep(s->conns, fd);
	}
	if (!c)
		c = clients_add(&s->clients, route, n, open ? fd : -1, owner);
	if (!open)
		clients_lose(&s->clients, c);
	return c;
}

static void handle(struct jobsock *s, zmq_msg_t *route, zmq_msg_t *payload, bool delimiter, unsigned frames,
		   int64_t now)
{
	/* Without ZAP the peer could choose its own User-Id. */
	const char *owner = s->zap ? zmq_msg_gets(payload, "User-Id") : NULL;
	struct client *c = client_of(s, zmq_msg_data(route), zmq_msg_size(route),
				     zmq_msg_get(payload, ZMQ_SRCFD), owner ? owner : "");
	size_t n = zmq_msg_size(payload);
	struct job_request r = {0};
	if (s->zap && !(zap_roles(s->zap, owner) & ZAP_CLIENT)) {
		job_request_id(&r, zmq_msg_data(payload), n);
		reply_error(s, c, delimiter, &r.id, E_AUTH, "this key may not use the service any more");
		clients_lose(&s->clients, c);
		job_request_fini(&r);
		return;
	}
	if (frames != 1) {
		reply_error(s, c, delimiter, &r.id, E_BAD_REQUEST,
			    "a request is one frame that holds one map");
		return;
	}
	const bool costly = request_is_costly(zmq_msg_data(payload), n);
	/* A request waits for earlier requests of its client: it may name their jobs. */
	if ((n > PARSE_INLINE_MAX || costly || c->n_parsing) && n <= s->svc->max_request_bytes) {
		struct letter *letter = xcalloc(1, sizeof *letter);
		struct why why;
		char name[WORK_CLIENT_SIZE];
		*letter = (struct letter){c, delimiter, now};
		pool_name(c, name);
		if (parser_put(s->parser, name, payload, costly, letter, &why) == 0) {
			c->n_parsing++;
			return;
		}
		free(letter);
		job_request_id(&r, zmq_msg_data(payload), n);
		reply_error(s, c, delimiter, &r.id, E_OVERLOADED, why.text);
	} else {
		job_request_parse(&r, s->svc, mailbox_max_context(s->mailbox), zmq_msg_data(payload), n);
		act(s, c, delimiter, &r, now, clock_us());
	}
	job_request_fini(&r);
}

/* Handle a message: routing id, optional empty delimiter, one frame.  False: there is none. */
static bool read_one(struct jobsock *s, int64_t now)
{
	zmq_msg_t route, payload;
	zmq_msg_init(&route);
	zmq_msg_init(&payload);
	bool got = zmq_msg_recv(&route, s->router, ZMQ_DONTWAIT) >= 0;
	bool delimiter = false, more = got && zmq_msg_more(&route);
	unsigned frames = 0;
	while (more) {
		if (zmq_msg_recv(&payload, s->router, 0) < 0)
			break;
		more = zmq_msg_more(&payload);
		if (!frames && !delimiter && more && zmq_msg_size(&payload) == 0)
			delimiter = true;
		else
			frames++;
	}
	if (got && zmq_msg_size(&route) < sizeof((struct client *)0)->route) {
		read_monitor(s);
		handle(s, &route, &payload, delimiter, frames, now);
		jobsock_reap(s);
	}
	zmq_msg_close(&payload);
	zmq_msg_close(&route);
	return got;
}

static void read_parsed(struct jobsock *s, int64_t now)
{
	struct job_request r;
	struct letter *letter;
	while ((letter = parser_take(s->parser, &r))) {
		struct client *c = letter->client;
		c->n_parsing--;
		/* on_disconnect=keep: the job runs without the client that submitted it. */
		if (!c->unlinked || (r.op == OP_REQUEST && r.line->keep)) {
			act(s, c, letter->delimiter, &r, letter->received_us, now);
		} else if (r.op == OP_SUBMIT && r.submit->keep) {
			struct listener none = {.event = ignore_event, .id = mailbox_listener_id(s->mailbox)};
			own_submit(c, r.submit);
			r.submit->received_us = letter->received_us;
			jobs_submit(s->jobs, &r.submit, &none, now);
			jobs_unlisten(s->jobs, none.id);
		}
		clients_release(c);
		free(letter);
		job_request_fini(&r);
		jobsock_reap(s);
	}
}

bool jobsock_read(struct jobsock *s, int64_t now)
{
	read_monitor(s);
	drop_revoked(s);
	read_parsed(s, now);
	for (int i = 0; i < READ_BATCH; i++)
		if (!read_one(s, now))
			return false;
	return true;
}

/* --- lifecycle --- */

static void set_int(void *socket, int option, int value)
{
	int rc = zmq_setsockopt(socket, option, &value, sizeof value);
	assert(rc == 0);
	(void)rc;
}

static void set_options(struct jobsock *s, const char *endpoint)
{
	/* Twice the limit of a request: a request that is a little too large gets an error; the sender of a
	 * larger one is disconnected. */
	int64_t max = 2 * (int64_t)s->svc->max_request_bytes + (1 << 20);
	zmq_setsockopt(s->router, ZMQ_MAXMSGSIZE, &max, sizeof max);
	set_int(s->router, ZMQ_ROUTER_MANDATORY, 1);
	set_int(s->router, ZMQ_ROUTER_HANDOVER, 0);
	set_int(s->router, ZMQ_SNDHWM, SEND_HWM);
	set_int(s->router, ZMQ_RCVHWM, RECEIVE_HWM);
	set_int(s->router, ZMQ_HANDSHAKE_IVL, HANDSHAKE_MS);
	set_int(s->router, ZMQ_HEARTBEAT_IVL, HEARTBEAT_MS);
	set_int(s->router, ZMQ_HEARTBEAT_TIMEOUT, HEARTBEAT_TIMEOUT_MS);
	set_int(s->router, ZMQ_LINGER, LINGER_MS);
	set_int(s->router, ZMQ_BACKLOG, 1024);
	if (strchr(endpoint, '['))
		set_int(s->router, ZMQ_IPV6, 1);
}

static int open_monitor(struct jobsock *s, void *zmq)
{
	char name[64];
	snprintf(name, sizeof name, "inproc://jobs-monitor-%p", (void *)s);
	if (zmq_socket_monitor(s->router, name,
			       ZMQ_EVENT_ACCEPTED | ZMQ_EVENT_DISCONNECTED | ZMQ_EVENT_CLOSED))
		return -zmq_errno();
	s->monitor = zmq_socket(zmq, ZMQ_PAIR);
	if (!s->monitor)
		return -zmq_errno();
	set_int(s->monitor, ZMQ_LINGER, 0);
	set_int(s->monitor, ZMQ_RCVHWM, 0); /* a limit would block ZeroMQ's threads */
	return zmq_connect(s->monitor, name) ? -zmq_errno() : 0;
}

int jobsock_open(void *zmq, const struct service *svc, const struct jobsock_config *cfg,
		 struct mailbox *mailbox, struct jobs *jobs, struct jobsock **out, struct why *why)
{
	const char *endpoint = cfg->endpoint;
	bool tcp = strncmp(endpoint, "ipc://", 6) != 0;
	int checked = endpoint_check(endpoint, "job socket", cfg->insecure || zap_has_key(cfg->zap), why);
	if (checked)
		return checked;
	/* libzmq would take the path over from the other service. */
	if (!tcp && user_socket_answers(endpoint + 6))
		return err_why(why, -EADDRINUSE,
			       "job socket %s: another service listens there; give this one another --jobs",
			       endpoint);
	struct jobsock *s = xcalloc(1, sizeof *s);
	s->svc = svc;
	s->mailbox = mailbox;
	s->jobs = jobs;
	s->no_orders = cfg->no_orders;
	s->zap = tcp && zap_has_key(cfg->zap) ? cfg->zap : NULL;
	s->zap_generation = s->zap ? zap_generation(s->zap) : 0;
	clients_init(&s->clients);
	s->router = zmq_socket(zmq, ZMQ_ROUTER);
	int rc = s->router ? 0 : -zmq_errno();
	if (!rc) {
		set_options(s, endpoint);
		rc = zap_guard(cfg->zap, s->router, endpoint, ZAP_JOBS);
	}
	if (!rc) {
		rc = open_monitor(s, zmq);
	}
	if (!rc && zmq_bind(s->router, endpoint))
		rc = -zmq_errno();
	size_t n = sizeof s->endpoint;
	if (!rc && zmq_getsockopt(s->router, ZMQ_LAST_ENDPOINT, s->endpoint, &n))
		rc = -zmq_errno();
	if (!rc)
		s->conns = conns_new(s->endpoint, conns_limit(CONNECTIONS_MAX, CONNS_JOBS));
	if (!rc && !(s->parser = parser_new(svc, mailbox)))
		rc = -EAGAIN;
	if (rc) {
		err_why(why, rc, "job socket %s: %s", endpoint, zmq_strerror(-rc));
		jobsock_close(s);
		return rc;
	}
	if (strncmp(s->endpoint, "ipc://", 6) == 0 && s->endpoint[6] != '@')
		chmod(s->endpoint + 6, 0600);
	*out = s;
	return 0;
}

static void drop_letter(void *user)
{
	struct letter *letter = user;
	letter->client->n_parsing--;
	clients_release(letter->client);
	free(letter);
}

void jobsock_close(struct jobsock *s)
{
	if (!s)
		return;
	parser_free(s->parser, drop_letter);
	clients_lose_if(&s->clients, NULL, NULL);
	jobsock_reap(s);
	assert(s->n_calls == 0);
	if (s->router)
		zmq_socket_monitor(s->router, NULL, 0);
	if (s->monitor)
		zmq_close(s->monitor);
	if (s->router)
		zmq_close(s->router);
	clients_fini(&s->clients);
	conns_free(s->conns);
	buf_fini(&s->out);
	free(s);
}

const char *jobsock_endpoint(const struct jobsock *s)
{
	return s->endpoint;
}

uint32_t jobsock_n_lines(const struct jobsock *s)
{
	return s->n_lines;
}

void jobsock_poll(struct jobsock *s, void **router, void **monitor, int *parsed_fd)
{
	*router = s->router;
	*monitor = s->monitor;
	*parsed_fd = parser_fd(s->parser);
}
