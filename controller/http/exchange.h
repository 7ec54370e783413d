/* exchange.h - one HTTP request and its reply on a connection.  Transport only: the jobs, uploads and
 * files behind a request are its endpoint's `work`.
 * Owns: the request's body, the bytes of the reply that are not sent yet, whether the connection is
 * suspended.
 *
 * Threads that meet in an exchange:
 *
 *   libmicrohttpd's   reads the request, calls the endpoint, sends the reply         one at a time
 *   preparers         call the endpoint of a large request (prep.h), the connection parked
 *   the front end's   events of jobs, which the endpoint writes as chunks or as the body
 *   the housekeeper   frames of the live stream: exchange_push(); the client has closed its end (hangup.h):
 *   the journal's     results of an upload or a batch: exchange_reply()
 *                     exchange_abort()
 *
 * Phases, changed under the lock:
 *
 *   READING ---> REPLY                    answered at once, or refused
 *        |-----> WAITING ---> REPLY       parked; refused, or all work done
 *        |             `----> STREAM      work accepted: chunks follow until `over`
 *        `-----> STREAM                   a live stream
 *
 * The connection is suspended while the endpoint owes it bytes: in WAITING, and in
 * STREAM when all of `out` was sent.  Suspended and resumed only under the lock, and resumed only
 * when suspended, so that the two always pair:
 *
 *   libmicrohttpd    exchange_park()           exchange_read(), out is empty
 *                       | suspend                 | suspend
 *                       v                         v
 *   other threads    reply, or first chunk     next chunk, or the end
 *                       | resume                  | resume
 *                       v                         v
 *   libmicrohttpd    exchange_wait(): false    exchange_read()
 *
 * References: one is the connection's (exchange_new() to exchange_close()), one each of a preparing
 * thread, of a job's listener, of a viewer, of a request to the journal.  The last one to go frees the
 * work and the exchange; the connection may have gone long before (conn is NULL then).
 *
 * Lock order: hangup's, the host's, the viewers' or the batches' lock, then an exchange's, then those of
 * the keys, the access log and the mailbox.  So an exchange's lock is not held in hangup_add(),
 * hangup_del() and exchange_unref(). */
#ifndef QUERN_CONTROLLER_HTTP_EXCHANGE_H
#define QUERN_CONTROLLER_HTTP_EXCHANGE_H

#include "base/buf.h"
#include "controller/message/trace_context.h"
#include "proto/codes.h"

#include <microhttpd.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct access_log;
struct api_key;
struct api_keys;
struct hangup;
struct http_failure;
struct http_route;
struct service;

struct exchange;

/* What the exchanges of a server share. */
struct exchange_host {
	void *user;                /* the endpoints' objects (http.h, struct http_app) */
	const struct service *svc; /* its limits and metrics */
	struct access_log *log;    /* NULL: none */
	struct api_keys *keys;     /* NULL: requests need no key */
	struct hangup *hangup;
	size_t max_unread;     /* bytes of a stream that the client has not read */
	size_t max_unread_all; /* of all streams; beyond it, each may have a fair share unread */
	atomic_size_t unread_bytes;
	size_t max_bodies; /* bytes of all request bodies that are held */
	atomic_size_t body_bytes;
	pthread_mutex_t lock;   /* guards the fields below */
	pthread_cond_t none;    /* n is 0 */
	struct exchange *first; /* all of them */
	size_t n;
	bool stopping;
	atomic_bool draining; /* the service is about to end: new work is refused */
};

enum exchange_phase { EXCHANGE_READING, EXCHANGE_WAITING, EXCHANGE_REPLY, EXCHANGE_STREAM };

enum { EXCHANGE_FINISH_SIZE = 64 };

/* The endpoint's jobs, uploads or files behind an exchange.  Any function but free may be NULL. */
struct exchange_work {
	/* Takes the request's body as it comes; NULL: it is gathered in x->body.  libmicrohttpd's thread. */
	void (*body)(struct exchange *x, const char *p, size_t n);
	/* Nothing more can be sent: ends the work that still runs for the client.  Any thread, not under the
	 * lock; may be called more than once. */
	void (*cancel)(struct exchange *x);
	/* For the access log: fields, each as ,"name":value, and how the outputs ended ("stop,length").
	 * Under the lock. */
	void (*log)(const struct exchange *x, struct buf *fields, char finish[EXCHANGE_FINISH_SIZE]);
	/* An error ends the stream: appends it to x->out, and what ends a stream.  Under the lock.  false, or
	 * NULL: it is written as OpenAI's. */
	bool (*error)(struct exchange *x, const struct http_failure *f);
	/* The client has read all of a stream so far: appends to x->out what was held back for that.  Under
	 * the lock, on libmicrohttpd's thread. */
	void (*more)(struct exchange *x);
	/* The last reference is gone. */
	void (*free)(struct exchange *x);
};

struct exchange {
	struct exchange_host *host;
	struct exchange *prev, *next;
	atomic_uint refs;

	/* For an exchange without a connection: called when the last reference is gone, before anything is
	 * freed.  status and out are the reply; status 0: there was none.  Any thread.  Set before other
	 * threads see the exchange. */
	void (*released)(struct exchange *x, void *user);
	void *released_user;

	/* Set when the headers are complete, not changed afterwards. */
	const struct http_route *route; /* NULL: no such path */
	int64_t started_us;             /* clock_us() */
	char method[16];                /* cut to fit, as the next two */
	char path[256];                 /* without the query */
	char remote[64];                /* the client's address, "" unknown */
	char request_id[64];            /* the client's own, "" for none */
	char drawn_id[40];              /* "req_..." of a route with ROUTE_REQUEST_ID, "" of others */
	struct trace_context trace;     /* owned: the request's; its span is the client's */
	uint8_t span[8];                /* of this exchange */
	/* The shape of errors; NULL: OpenAI's. */
	void (*errors)(struct buf *b, const struct http_failure *f);
	bool openmetrics;    /* Accept prefers OpenMetrics */
	char origin[256];    /* of a page that may see the reply (CORS); "": none */
	struct api_key *key; /* NULL: the service has no keys, or the path needs none */
	uint64_t max_body;   /* bytes of the body */

	/* libmicrohttpd's thread only. */
	struct buf body;
	size_t body_seen; /* bytes that came, kept or not */
	bool refused;     /* the rest of the body is discarded, the reply is ready */
	bool preflight;   /* a CORS preflight, answered */
	bool closing;     /* the connection is closed after the reply: framing.h */
	bool parked;      /* set before another thread sees the exchange */
	uint64_t watch;

	/* The endpoint's, before the reply. */
	char ignored[512]; /* header x-quern-ignored */
	/* A reply that is read as it is sent: exchange_reply_content(). */
	uint64_t content_bytes;
	size_t content_part;
	MHD_ContentReaderCallback content_read; /* NULL: the reply is in out */

	pthread_mutex_t lock;             /* guards the fields below */
	const struct exchange_work *work; /* NULL: none; exchange_set_work() */
	void *work_data;
	enum exchange_phase phase;
	struct MHD_Connection *conn; /* NULL: libmicrohttpd has released it */
	bool suspended;
	bool chunked;      /* a stream's end is a chunk; else (HTTP/1.0) the connection's end */
	bool dead;         /* the client has disconnected, or the service ends: nothing more is sent */
	bool endless;      /* a stream that ends when its client closes it */
	bool over;         /* nothing more will be put into out */
	char id[64];       /* the reply's, where it has one ("chatcmpl-...") */
	unsigned status;   /* of the reply; 0: none was begun */
	const char *type;  /* of the reply, static; NULL: JSON, of a stream: server-sent events */
	unsigned retry_s;  /* header Retry-After, where the status has one; 0: 1 */
	char error[32];    /* code or type of an error, for the access log */
	char policy[320];  /* header Content-Security-Policy of a page, "" for none */
	const char *allow; /* header Allow, static, or NULL */
	const char *vary;  /* header Vary: what the reply was chosen by, static, or NULL */
	struct buf out;    /* the reply's body, or the unread part of the stream */
	size_t out_head;   /* bytes of out that libmicrohttpd has taken */
	size_t counted;    /* this exchange's part of the host's unread_bytes */
};

void exchange_host_init(struct exchange_host *host, const struct service *svc);
void exchange_host_fini(struct exchange_host *host);

/* NULL when the server is stopping.  conn NULL: a request that came without a connection (a line of a
 * batch); the caller sets x->released. */
struct exchange *exchange_new(struct exchange_host *host, struct MHD_Connection *conn);
void exchange_ref(struct exchange *x);
void exchange_unref(struct exchange *x);
/* Sets the work, once. */
void exchange_set_work(struct exchange *x, const struct exchange_work *work, void *data);
/* libmicrohttpd has released the connection: work that still runs is cancelled, the request is counted
 * and logged, the connection's reference is released.  cut: the reply was not sent to its end. */
void exchange_close(struct exchange *x, bool cut);

/* The trace of a job of this exchange, which has none: a span in the exchange's. */
void exchange_trace_job(const struct exchange *x, struct trace_context *out);

/* A part of the request's body.  false: there is no room for it now. */
bool exchange_body(struct exchange *x, const char *p, size_t n);
/* The body of a request without a connection: always finds room. */
void exchange_body_give(struct exchange *x, const char *text);
void exchange_body_free(struct exchange *x);

/* The reply, ready to be sent; takes the buffer's bytes. */
void exchange_reply(struct exchange *x, unsigned status, struct buf *json);
/* The same with another content type than JSON (a static string). */
void exchange_reply_as(struct exchange *x, unsigned status, const char *type, struct buf *body);
/* 200 with a body of `bytes`, read `part` bytes at a time as it is sent: read's cls is x. */
void exchange_reply_content(struct exchange *x, const char *type, uint64_t bytes, size_t part,
			    MHD_ContentReaderCallback read);
void exchange_error(struct exchange *x, unsigned status, const char *type, const char *param,
		    const char *code, const char *fmt, ...) __attribute__((format(printf, 6, 7)));
/* The same with the status and type that belong to a code of proto/codes.h. */
void exchange_fail(struct exchange *x, enum code code, const char *param, const char *why);
/* The reply becomes a stream of events that another thread appends with exchange_push(), until the client
 * closes it: nothing is cut by that. */
void exchange_stream(struct exchange *x);
/* Appends to the stream.  -EAGAIN: more than max_unread bytes of it are not read yet, nothing was appended;
 * -EPIPE: the client has disconnected. */
int exchange_push(struct exchange *x, const struct buf *bytes, size_t max_unread);

/* For work that writes to x->out itself.  The caller holds x->lock. */
void exchange_reply_locked(struct exchange *x, unsigned status, struct buf *json);
/* The error is the reply, or the last event of the stream. */
void exchange_error_locked(struct exchange *x, unsigned status, const char *type, const char *code,
			   const char *message);
/* Bytes were appended to out, which held unread_before bytes (x->counted) until then: the connection
 * resumes, or is cut because its client does not read. */
void exchange_written_locked(struct exchange *x, size_t unread_before);

/* Suspends the connection until there is a reply.  Once for a request, from libmicrohttpd's access handler.
 * A large request is parked before it is handed to a preparing thread; further calls, from any thread, then
 * do nothing. */
void exchange_park(struct exchange *x);
/* Suspends the connection if it still waits for its reply; false: there is a reply, or no client. */
bool exchange_wait(struct exchange *x);
/* The stream, as a MHD_ContentReaderCallback. */
ssize_t exchange_read(void *cls, uint64_t pos, char *p, size_t max);
/* The return value of another such callback that cannot read its bytes: the connection is cut. */
ssize_t exchange_cut(struct exchange *x);

/* The client has disconnected (user: the exchange): nothing more is sent, the work is cancelled.  Any thread
 * that holds a reference, or the hangup watch. */
void exchange_abort(void *user);

/* Nothing more will be sent, or there is a reply: work for the client need not go on.  Any thread. */
bool exchange_is_over(struct exchange *x);

/* Requests whose replies the end of the service would cut: uploads, those that wait for a reply, and replies
 * that are not sent to their end; not the streams of routes that have none (ROUTE_ENDLESS). */
uint32_t exchange_n_draining(struct exchange_host *host);
/* The service ends: no new exchanges; those that wait get an error, open streams a last event that says so.
 * Returns when all of these are sent, or after 2 s, when the rest is cut. */
void exchange_stop_all(struct exchange_host *host);
/* Waits until the last reference to each is gone; false after 10 s. */
bool exchange_wait_none(struct exchange_host *host);

#endif
