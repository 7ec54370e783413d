#include "controller/jobsock.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/log.h"
#include "base/version.h"
#include "controller/conns.h"
#include "controller/endpoint.h"
#include "controller/entropy.h"
#include "controller/jobmsg.h"
#include "controller/jobreq.h"
#include "controller/map.h"
#include "controller/parser.h"
#include "controller/zap.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>
#include <zmq.h>

enum {
	READ_BATCH = 64, /* requests between two looks at the engine's events */
	HANDSHAKE_MS = 3000,
	HEARTBEAT_MS = 5000,
	HEARTBEAT_TIMEOUT_MS = 15000,
	LINGER_MS = 1000,
	SEND_HWM = 100000, /* messages waiting for a client; the bytes are what counts */
	RECEIVE_HWM = 64,
	MESSAGE_COST = 256,             /* what ZeroMQ and we keep beside a message's bytes */
	CLIENT_UNSENT_MAX = 16 << 20,   /* bytes waiting for a client; one message alone may be larger */
	CLIENT_UNSENT_FAIR = 256 << 10, /* what a client may have waiting when all have too much */
	JOBS_TABLE_MAX = 5000,
	PARSE_INLINE_MAX = 16 << 10, /* larger requests are parsed beside this thread */
	STATUS_MAX = 4096,           /* questions to the engine under way */
	CONNECTIONS_MAX = 16384,     /* or this socket's share of the descriptors */
	HALF_TRIES = 3,              /* to end half a message */
};
#define ALL_UNSENT_MAX ((size_t)1 << 30)

/* Bytes that ZeroMQ still holds, for all clients: its threads give them back, also when the
 * socket is gone already. */
static atomic_size_t all_unsent;

/* The same for one client; outlives it, until the last is sent. */
struct budget {
	atomic_size_t unsent;
	atomic_size_t refs;
};

struct call;

struct client {
	uint8_t route[256]; /* ZeroMQ's routing id */
	size_t route_n;
	int fd;      /* its connection, -1: unknown */
	char owner[CURVE_SIZE]; /* its public key, verified; "": the socket asks for none */
	bool lost;   /* gone, or does not read: nothing is sent any more */
	bool queued; /* in jobsock->lost */
	struct client *next_lost;
	struct client *same_fd; /* a message of a closed connection may come when its descriptor is another's */
	struct client *same_hash;
	struct call *calls;
	struct budget *budget;
	uint32_t n_parsing; /* requests with the parser: they point here */
	bool unlinked;      /* out of the tables; freed with its last request */
};

/* A request that listens to a job, or waits for the status. */
struct call {
	struct jobsock *sock;
	struct client *client;     /* NULL: the client is gone */
	struct call *next, **prev; /* of the client */
	uint64_t listener;         /* 0: none */
	bool workers;              /* of the status: only the workers */
	bool delimiter;
	struct buf id;
};

/* Whose request is with the parser. */
struct letter {
	struct client *client;
	bool delimiter;
};

struct jobsock {
	const struct service *svc;
	struct front *front;
	struct jobs *jobs;
	void *router, *monitor;
	struct zap *zap;         /* borrowed; NULL: peers need no key */
	uint64_t zap_generation; /* of the list that the clients were last held against */
	char endpoint[256];
	struct map clients; /* hash of the routing id -> chain of clients */
	uint64_t hash_seed;
	struct client **by_fd; /* [n_fd]: whose connection it is, or NULL */
	size_t n_fd;
	struct conns *conns;
	struct client *lost; /* to be dropped by jobsock_reap() */
	struct parser *parser;
	struct buf out; /* the message being written */
	uint32_t n_clients, n_calls, n_status;
};

/* --- clients --- */

static uint64_t route_hash(const struct jobsock *s, const void *route, size_t n)
{
	return XXH3_64bits_withSeed(route, n, s->hash_seed);
}

static struct client *client_find(struct jobsock *s, const void *route, size_t n)
{
	struct client *c = map_get(&s->clients, route_hash(s, route, n));
	while (c && (c->route_n != n || memcmp(c->route, route, n) != 0))
		c = c->same_hash;
	return c;
}

static void fd_grow(struct jobsock *s, int fd)
{
	size_t n = s->n_fd ? s->n_fd : 64;
	while (n <= (size_t)fd)
		n *= 2;
	if (n == s->n_fd)
		return;
	s->by_fd = xrealloc(s->by_fd, n, sizeof(struct client *));
	memset(s->by_fd + s->n_fd, 0, (n - s->n_fd) * sizeof(struct client *));
	s->n_fd = n;
}

static struct client *client_new(struct jobsock *s, const void *route, size_t n, int fd, const char *owner)
{
	struct client *c = xcalloc(1, sizeof *c);
	snprintf(c->owner, sizeof c->owner, "%s", owner);
	memcpy(c->route, route, n);
	c->route_n = n;
	c->fd = fd;
	c->budget = xcalloc(1, sizeof *c->budget);
	atomic_init(&c->budget->refs, 1);
	uint64_t h = route_hash(s, route, n);
	c->same_hash = map_get(&s->clients, h);
	map_put(&s->clients, h, c);
	if (fd >= 0) {
		c->same_fd = s->by_fd[fd];
		s->by_fd[fd] = c;
	}
	s->n_clients++;
	return c;
}

static void budget_unref(struct budget *b)
{
	if (atomic_fetch_sub(&b->refs, 1) == 1)
		free(b);
}

static void client_free_if_done(struct client *c)
{
	if (!c->unlinked || c->n_parsing)
		return;
	assert(!c->calls);
	budget_unref(c->budget);
	free(c);
}

static void client_unlink(struct jobsock *s, struct client *c)
{
	uint64_t h = route_hash(s, c->route, c->route_n);
	struct client *head = map_get(&s->clients, h), **at = &head;
	while (*at != c)
		at = &(*at)->same_hash;
	*at = c->same_hash;
	if (head)
		map_put(&s->clients, h, head);
	else
		map_remove(&s->clients, h);
	struct client **by_fd = c->fd >= 0 ? &s->by_fd[c->fd] : NULL;
	while (by_fd && *by_fd && *by_fd != c)
		by_fd = &(*by_fd)->same_fd;
	if (by_fd && *by_fd)
		*by_fd = c->same_fd;
	s->n_clients--;
	c->unlinked = true;
}

/* Whose jobs it sees; NULL: those of nobody in particular. */
static const char *client_owner(const struct client *c)
{
	return c->owner[0] ? c->owner : NULL;
}

/* From within a callback: jobsock_reap() does the rest. */
static void client_lose(struct jobsock *s, struct client *c)
{
	c->lost = true;
	if (c->queued)
		return;
	c->queued = true;
	c->next_lost = s->lost;
	s->lost = c;
}

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

void jobsock_reap(struct jobsock *s)
{
	struct client *c;
	while ((c = s->lost)) {
		s->lost = c->next_lost;
		while (c->calls) {
			struct call *k = c->calls;
			if (k->listener)
				jobs_unlisten(s->jobs, k->listener); /* frees the call */
			else
				call_detach(k); /* its answer is still to come */
		}
		client_unlink(s, c);
		client_free_if_done(c);
	}
}

/* --- sending --- */

struct counted {
	struct budget *budget;
	size_t n;
	char bytes[];
};

/* Called by ZeroMQ's threads when a message has left. */
static void counted_free(void *data, void *hint)
{
	struct counted *m = hint;
	(void)data;
	atomic_fetch_sub(&m->budget->unsent, m->n);
	atomic_fetch_sub(&all_unsent, m->n);
	budget_unref(m->budget);
	free(m);
}

static int send_counted(struct jobsock *s, struct budget *b)
{
	size_t n = s->out.len;
	struct counted *m = xmalloc(sizeof *m + n);
	m->budget = b;
	m->n = n + MESSAGE_COST;
	memcpy(m->bytes, s->out.p, n);
	atomic_fetch_add(&b->refs, 1);
	atomic_fetch_add(&b->unsent, m->n);
	atomic_fetch_add(&all_unsent, m->n);
	zmq_msg_t msg;
	if (zmq_msg_init_data(&msg, m->bytes, n, counted_free, m)) {
		counted_free(NULL, m);
		return -ENOMEM;
	}
	if (zmq_msg_send(&msg, s->router, ZMQ_DONTWAIT) < 0) {
		zmq_msg_close(&msg);
		return -zmq_errno();
	}
	return 0;
}

/* Half a message is ended, or the next one's receiver would be taken for the rest of it. */
static void end_half(struct jobsock *s)
{
	for (int i = 0; i < HALF_TRIES && zmq_send(s->router, "", 0, ZMQ_DONTWAIT) < 0; i++)
		;
}

/* Send s->out to the client, or lose it: gone, or too much waits for it already. */
static void post(struct jobsock *s, struct client *c, bool delimiter)
{
	if (c->lost)
		return;
	size_t waiting = atomic_load(&c->budget->unsent);
	int rc = 0;
	bool began = false;
	bool crowded = atomic_load(&all_unsent) > ALL_UNSENT_MAX;
	if (waiting && waiting + s->out.len > (crowded ? CLIENT_UNSENT_FAIR : CLIENT_UNSENT_MAX))
		rc = -EAGAIN;
	else if (zmq_send(s->router, c->route, c->route_n, ZMQ_SNDMORE | ZMQ_DONTWAIT) < 0)
		rc = -zmq_errno();
	else if ((began = true) && delimiter && zmq_send(s->router, "", 0, ZMQ_SNDMORE | ZMQ_DONTWAIT) < 0)
		rc = -zmq_errno();
	else
		rc = send_counted(s, c->budget);
	if (!rc)
		return;
	if (began)
		end_half(s);
	if (rc == -EHOSTUNREACH)
		log_debug("jobsock", "client gone fd=%d", c->fd);
	else
		log_warn("jobsock", "client does not read: its streams end fd=%d unsent=%zu error=%s", c->fd,
			 waiting, zmq_strerror(-rc));
	client_lose(s, c);
}

/* --- what jobs say --- */

static void on_event(void *user, const struct job_event *e)
{
	struct call *k = user;
	struct client *c = k->client;
	if (!c || c->lost)
		return;
	/* A delta that says no more than that the output has ended: `done` says it. */
	if (e->kind == JOB_DELTA && !e->delta.text_n && !e->delta.n_tokens)
		return;
	buf_clear(&k->sock->out);
	jobmsg_event(&k->sock->out, &k->id, e);
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
	k->listener = front_listener_id(s->front);
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
			json_t *m = k->workers ? json_pack("{s:o}", "workers", jobmsg_workers(st))
					       : jobmsg_status(s->svc, st);
			jobmsg_ok(&s->out, &k->id, m);
			json_decref(m);
		} else {
			jobmsg_error(&s->out, &k->id, E_NOT_READY, "the engine does not answer");
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
			jobmsg_ok(&s->out, &k->id, NULL);
		else
			jobmsg_error(&s->out, &k->id, code, why);
		post(s, k->client, k->delimiter);
	}
	call_free(k);
}

/* --- requests --- */

static void reply_error(struct jobsock *s, struct client *c, bool delimiter, const struct buf *id,
			enum code code, const char *why)
{
	buf_clear(&s->out);
	jobmsg_error(&s->out, id, code, why);
	post(s, c, delimiter);
}

static void reply_ok(struct jobsock *s, struct client *c, bool delimiter, const struct buf *id, json_t *keys)
{
	buf_clear(&s->out);
	jobmsg_ok(&s->out, id, keys);
	json_decref(keys);
	post(s, c, delimiter);
}

static void do_attach(struct jobsock *s, struct client *c, bool delimiter, struct jobreq *r, struct job *job)
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
		reply_error(s, c, delimiter, &r->id, E_OVERLOADED, "too many listen to this job already");
		return;
	}
	struct listener l = listen_as(s, c, delimiter, &r->id);
	jobs_attach(s->jobs, job, &l, true, r->from);
}

/* The ops that name a job. */
static void do_job(struct jobsock *s, struct client *c, bool delimiter, struct jobreq *r)
{
	struct job *job = jobs_find(s->jobs, r->job);
	if (!job || !job_is_of(job, client_owner(c))) {
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

static void do_status(struct jobsock *s, struct client *c, bool delimiter, struct jobreq *r)
{
	if (s->n_status >= STATUS_MAX) {
		reply_error(s, c, delimiter, &r->id, E_OVERLOADED, "too many ask for the status");
		return;
	}
	struct call *k = call_new(s, c, delimiter, &r->id);
	k->workers = r->op == OP_WORKERS;
	s->n_status++;
	front_status(s->front, on_status, k);
}

/* Scale or drain: it may take as long as a model loads. */
static void do_order(struct jobsock *s, struct client *c, bool delimiter, struct jobreq *r)
{
	if (s->zap && !(zap_roles(s->zap, c->owner) & ZAP_ADMIN)) {
		reply_error(s, c, delimiter, &r->id, E_AUTH, "only an admin key may scale and drain");
		return;
	}
	if (s->n_status >= STATUS_MAX) {
		reply_error(s, c, delimiter, &r->id, E_OVERLOADED, "too many ask for the status");
		return;
	}
	struct call *k = call_new(s, c, delimiter, &r->id);
	s->n_status++;
	front_order(s->front, &r->order, on_order_done, k);
}

static void own_submit(const struct client *c, struct submit *submit)
{
	submit->owner = c->owner[0] ? xstrdup(c->owner) : NULL;
}

static void act(struct jobsock *s, struct client *c, bool delimiter, struct jobreq *r, int64_t now)
{
	struct listener l;
	switch (r->op) {
	case OP_NONE:
		reply_error(s, c, delimiter, &r->id, r->problem.code, r->problem.why);
		break;
	case OP_SUBMIT:
		/* Nobody is there to hear of it. */
		if (c->lost && !r->submit->keep)
			break;
		l = listen_as(s, c, delimiter, &r->id);
		own_submit(c, r->submit);
		jobs_submit(s->jobs, &r->submit, &l, now);
		break;
	case OP_CANCEL:
	case OP_ATTACH:
	case OP_RESULT:
		do_job(s, c, delimiter, r);
		break;
	case OP_JOBS:
		reply_ok(s, c, delimiter, &r->id,
			 json_pack("{s:o}", "jobs", jobs_table(s->jobs, client_owner(c), JOBS_TABLE_MAX, now)));
		break;
	case OP_STATUS:
	case OP_WORKERS:
		do_status(s, c, delimiter, r);
		break;
	case OP_SCALE:
	case OP_DRAIN:
		do_order(s, c, delimiter, r);
		break;
	case OP_TOKENIZE:
		buf_clear(&s->out);
		jobmsg_ok_tokens(&s->out, &r->id, r->tokens.ids, r->tokens.n);
		post(s, c, delimiter);
		break;
	case OP_DETOKENIZE:
		buf_clear(&s->out);
		jobmsg_ok_text(&s->out, &r->id, r->text.p ? r->text.p : "", r->text.len);
		post(s, c, delimiter);
		break;
	case OP_PING:
		reply_ok(s, c, delimiter, &r->id,
			 json_pack("{s:s, s:s, s:b}", "version", QUERN_VERSION, "model", s->svc->model_name,
				   "ready", front_ready(s->front)));
		break;
	}
}

/* --- reading --- */

static void fd_closed(struct jobsock *s, int fd)
{
	for (struct client *c = s->by_fd[fd]; c; c = c->same_fd)
		client_lose(s, c);
	conns_closed(s->conns, fd);
}

/* Of keys that are not in the list any more nothing is left. */
static void hold_against_list(struct jobsock *s)
{
	uint64_t now = s->zap ? zap_generation(s->zap) : 0;
	if (now == s->zap_generation)
		return;
	s->zap_generation = now;
	for (size_t i = 0; i < s->clients.cap; i++)
		for (struct client *c = s->clients.slots[i].value; c; c = c->same_hash)
			if (!(zap_roles(s->zap, c->owner) & ZAP_CLIENT))
				client_lose(s, c);
	jobsock_reap(s);
}

/* Everything the monitor has to say: connections come and go. */
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
			zmq_msg_recv(&m, s->monitor, 0); /* the endpoint */
		if (fd > INT32_MAX)
			continue;
		fd_grow(s, (int)fd);
		fd_closed(s, (int)fd);
		if (event == ZMQ_EVENT_ACCEPTED)
			conns_opened(s->conns, (int)fd, INT64_MAX);
	}
	zmq_msg_close(&m);
	jobsock_reap(s);
}

/* Whose message it is.  The monitor has been read since it arrived, so that the end of an older
 * connection with the same descriptor is known by now.  What such a one sent last may still come:
 * the first reply to it fails, and it is gone then. */
static struct client *client_of(struct jobsock *s, const void *route, size_t n, int fd, const char *owner)
{
	struct client *c = client_find(s, route, n);
	if (c && (c->fd != fd || strcmp(c->owner, owner) != 0)) {
		client_lose(s, c); /* it came again under the same name */
		jobsock_reap(s);
		c = NULL;
	}
	bool open = true;
	if (fd >= 0) {
		fd_grow(s, fd);
		open = conns_is_open(s->conns, fd);
		conns_keep(s->conns, fd);
	}
	if (!c)
		c = client_new(s, route, n, open ? fd : -1, owner);
	if (!open)
		client_lose(s, c);
	return c;
}

static void handle(struct jobsock *s, zmq_msg_t *route, zmq_msg_t *payload, bool delimiter, unsigned frames,
		   int64_t now)
{
	/* Only what ZAP said counts: without it a peer may call itself what it likes. */
	const char *owner = s->zap ? zmq_msg_gets(payload, "User-Id") : NULL;
	struct client *c = client_of(s, zmq_msg_data(route), zmq_msg_size(route),
				     zmq_msg_get(payload, ZMQ_SRCFD), owner ? owner : "");
	size_t n = zmq_msg_size(payload);
	struct jobreq r = {0};
	if (s->zap && !(zap_roles(s->zap, owner) & ZAP_CLIENT)) {
		jobreq_id(&r, zmq_msg_data(payload), n);
		reply_error(s, c, delimiter, &r.id, E_AUTH, "this key may not use the service any more");
		client_lose(s, c);
		jobreq_fini(&r);
		return;
	}
	if (frames != 1) {
		reply_error(s, c, delimiter, &r.id, E_BAD_REQUEST,
			    "a request is one frame that holds one map");
		return;
	}
	if (n > PARSE_INLINE_MAX && n <= s->svc->max_request_bytes) {
		struct letter *letter = xcalloc(1, sizeof *letter);
		*letter = (struct letter){c, delimiter};
		if (parser_put(s->parser, payload, letter) == 0) {
			c->n_parsing++;
			return;
		}
		free(letter);
		jobreq_id(&r, zmq_msg_data(payload), n);
		reply_error(s, c, delimiter, &r.id, E_OVERLOADED, "too many large requests are waiting");
	} else {
		jobreq_parse(&r, s->svc, front_max_context(s->front), zmq_msg_data(payload), n);
		act(s, c, delimiter, &r, now);
	}
	jobreq_fini(&r);
}

/* One message: routing id, perhaps an empty delimiter, one frame.  False: there is none. */
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
	struct jobreq r;
	struct letter *letter;
	while ((letter = parser_take(s->parser, &r))) {
		struct client *c = letter->client;
		c->n_parsing--;
		/* A client that is gone may have left a job that is kept. */
		if (!c->unlinked) {
			act(s, c, letter->delimiter, &r, now);
		} else if (r.op == OP_SUBMIT && r.submit->keep) {
			struct listener nobody = {.event = ignore_event, .id = front_listener_id(s->front)};
			own_submit(c, r.submit);
			jobs_submit(s->jobs, &r.submit, &nobody, now);
			jobs_unlisten(s->jobs, nobody.id);
		}
		client_free_if_done(c);
		free(letter);
		jobreq_fini(&r);
		jobsock_reap(s);
	}
}

bool jobsock_read(struct jobsock *s, int64_t now)
{
	read_monitor(s);
	hold_against_list(s);
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
	/* Twice what is taken: a request that is somewhat too large gets an answer; beyond that the
	 * peer is dropped. */
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
	set_int(s->monitor, ZMQ_RCVHWM, 0); /* ZeroMQ's threads would wait for us */
	return zmq_connect(s->monitor, name) ? -zmq_errno() : 0;
}

int jobsock_open(void *zmq, const struct service *svc, const struct front_config *cfg, struct front *front,
		 struct jobs *jobs, struct jobsock **out, char *why, size_t why_n)
{
	const char *endpoint = cfg->jobs;
	bool tcp = strncmp(endpoint, "ipc://", 6) != 0;
	int checked = endpoint_check(endpoint, "job socket", cfg->insecure || zap_has_key(cfg->zap), why, why_n);
	if (checked)
		return checked;
	struct jobsock *s = xcalloc(1, sizeof *s);
	s->svc = svc;
	s->front = front;
	s->jobs = jobs;
	s->zap = tcp && zap_has_key(cfg->zap) ? cfg->zap : NULL;
	s->zap_generation = s->zap ? zap_generation(s->zap) : 0;
	s->hash_seed = entropy_u64();
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
	if (!rc && !(s->parser = parser_start(svc, front)))
		rc = -EAGAIN;
	if (rc) {
		err_why(why, why_n, rc, "job socket %s: %s", endpoint, zmq_strerror(-rc));
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
	client_free_if_done(letter->client);
	free(letter);
}

void jobsock_close(struct jobsock *s)
{
	if (!s)
		return;
	parser_stop(s->parser, drop_letter);
	for (size_t i = 0; i < s->clients.cap; i++)
		for (struct client *c = s->clients.slots[i].value; c; c = c->same_hash)
			client_lose(s, c);
	jobsock_reap(s);
	assert(s->n_calls == 0);
	if (s->router)
		zmq_socket_monitor(s->router, NULL, 0);
	if (s->monitor)
		zmq_close(s->monitor);
	if (s->router)
		zmq_close(s->router);
	map_fini(&s->clients);
	free(s->by_fd);
	conns_free(s->conns);
	buf_fini(&s->out);
	free(s);
}

const char *jobsock_endpoint(const struct jobsock *s)
{
	return s->endpoint;
}

void jobsock_poll(struct jobsock *s, void **router, void **monitor, int *parsed_fd)
{
	*router = s->router;
	*monitor = s->monitor;
	*parsed_fd = parser_fd(s->parser);
}

void jobsock_counts(const struct jobsock *s, struct jobsock_counts *out)
{
	*out = (struct jobsock_counts){s->n_clients, s->n_calls, atomic_load(&all_unsent)};
}
