/* exchange.h - one HTTP request and its reply on a connection.  Transport only: the jobs, uploads and files
 * of a request are its endpoint's `work`.
 * Owns: the request's body, the reply's unsent bytes, and whether the connection is suspended.
 *
 * Threads that use an exchange:
 *
 *   libmicrohttpd     reads the request, calls the endpoint, sends the reply; one at a time
 *   preparers         call the endpoint of a large request (prep.h) while the connection is parked
 *   front end         job events, which the endpoint writes as chunks or as the body
 *   housekeeper       frames of the live stream: exchange_push();
 *                     the client has closed its end (hangup.h): exchange_abort()
 *   journal           results of an upload or a batch: exchange_reply()
 *
 * Phases, changed under the lock:
 *
 *   READING ---> REPLY                    answered at once, or refused
 *        |-----> WAITING ---> REPLY       parked; refused, or all work done
 *        |             `----> STREAM      work accepted: chunks follow until `over`
 *        `-----> STREAM                   a live stream
 *
 * The connection is suspended while the endpoint owes it bytes: in WAITING, and in STREAM when all of `out`
 * was sent.  Suspending and resuming happen only under the lock, and only a suspended connection is resumed,
 * so that the two always pair:
 *
 *   libmicrohttpd    exchange_park()           exchange_read(), out is empty
 *                       | suspend                 | suspend
 *                       v                         v
 *   other threads    reply, or first chunk     next chunk, or the end
 *                       | resume                  | resume
 *                       v                         v
 *   libmicrohttpd    exchange_wait(): false    exchange_read()
 *
 * References: one for the connection (exchange_new() to exchange_close()), one each for a preparing thread, a
 * job's listener, a viewer, and a request to the journal.  The last unref frees the work and the exchange;
 * the connection may have gone long before (conn is NULL then).
 *
 * Lock order: the lock of hangup, the host, the viewers or the batches; then an exchange's lock; then the
 * locks of the keys, the access log and the mailbox.  So hangup_add(), hangup_del() and exchange_unref() must
 * not be called with an exchange's lock held. */
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
struct generation_line;
struct hangup;
struct http_failure;
struct http_route;
struct service;

struct exchange;

/* State shared by the exchanges of a server. */
struct exchange_host {
	void *user;                      /* the endpoints' objects (http.h, struct http_app) */
	const struct http_route *routes; /* [n_routes]: the application's routes */
	size_t n_routes;
	const struct service *svc; /* limits and metrics */
	struct access_log *log;    /* NULL: none */
	struct api_keys *keys;     /* NULL: requests need no key */
	struct hangup *hangup;
	size_t max_unread;     /* limit for one stream: bytes that the client has not read */
	size_t max_unread_all; /* limit for all streams; above it, each may have a fair share unread */
	atomic_size_t unread_bytes;
	size_t max_bodies; /* limit for all request bodies held, bytes */
	atomic_size_t body_bytes;
	pthread_mutex_t lock;   /* guards the fields below */
	pthread_cond_t none;    /* signalled when n is 0 */
	struct exchange *first; /* list of all exchanges */
	size_t n;
	bool stopping;
	atomic_bool draining; /* the service is about to stop: new work is refused */
};

enum exchange_phase { EXCHANGE_READING, EXCHANGE_WAITING, EXCHANGE_REPLY, EXCHANGE_STREAM };

enum { EXCHANGE_FINISH_SIZE = 64 };

/* The work of an exchange: its endpoint's jobs, uploads or files.  Every function except free may be NULL. */
struct exchange_work {
	/* Takes the request's body chunk by chunk; NULL: the body is gathered in x->body.  libmicrohttpd's
	 * thread. */
	void (*body)(struct exchange *x, const char *p, size_t n);
	/* Ends the client's running work, because nothing more can be sent.  Any thread, without the lock;
	 * may be called more than once. */
	void (*cancel)(struct exchange *x);
	/* Supplies the access log: fields, each as ,"name":value, and how the outputs ended ("stop,length").
	 * Under the lock. */
	void (*log)(const struct exchange *x, struct buf *fields, char finish[EXCHANGE_FINISH_SIZE]);
	/* Appends an error that ends the stream to x->out, and the end of the stream.  Under the lock.  If it
	 * returns false or is NULL, the error is written in OpenAI's shape. */
	bool (*error)(struct exchange *x, const struct http_failure *f);
	/* Appends held-back bytes to x->out when the client has read the whole stream so far.  Under the
	 * lock, on libmicrohttpd's thread. */
	void (*more)(struct exchange *x);
	/* Frees the work when the last reference is released. */
	void (*free)(struct exchange *x);
};

struct exchange {
	struct exchange_host *host;
	struct exchange *prev, *next;
	atomic_uint refs;

	/* Without a connection only: called when the last reference is released, before anything is freed.
	 * status and out are the reply; status 0: there was none.  Any thread.  Set before other threads see
	 * the exchange. */
	void (*released)(struct exchange *x, void *user);
	void *released_user;
	/* The line that this exchange runs (apis/generation.h); outlives it.  NULL: an HTTP client, or
	 * g->line. */
	const struct generation_line *line;

	/* Set when the headers are complete, not changed afterwards. */
	const struct http_route *route;        /* NULL: no such path */
	int64_t started_us;                    /* clock_us() */
	char method[16];                       /* cut to fit, like path and remote */
	char path[256];                        /* without the query */
	char remote[64];                       /* client address, or "unix"; "": unknown */
	char request_id[64];                   /* header sent by the client; "": none */
	char *idempotency_key, *last_event_id; /* headers, owned; NULL: not sent */
	char drawn_id[40];                     /* "req_..." if the route has ROUTE_REQUEST_ID, otherwise "" */
	struct trace_context
		trace;   /* the request's trace, owned; trace.span is the client's span, the parent */
	uint8_t span[8]; /* span id of this exchange */
	/* Writes an error in the API's shape; NULL: OpenAI's. */
	void (*errors)(struct buf *b, const struct http_failure *f);
	bool openmetrics;    /* Accept prefers OpenMetrics */
	char origin[256];    /* origin of a page that may see the reply (CORS); "": none */
	struct api_key *key; /* NULL: the service has no keys, or the path needs none */
	uint64_t max_body;   /* limit for the body, bytes */

	/* Used on libmicrohttpd's thread only. */
	struct buf body;
	size_t body_seen; /* bytes received, kept or not */
	bool refused;     /* the reply is ready; the rest of the body is discarded */
	bool preflight;   /* a CORS preflight, already answered */
	bool closing;     /* the connection is closed after the reply: framing.h */
	bool parked;      /* set before another thread sees the exchange */
	uint64_t watch;

	/* Set by the endpoint before the reply. */
	char ignored[512]; /* header x-quern-ignored */
	/* A reply that is read while it is sent: exchange_reply_content(). */
	uint64_t content_bytes;
	size_t content_part;
	MHD_ContentReaderCallback content_read; /* NULL: the reply is in out */

	pthread_mutex_t lock;             /* guards the fields below */
	const struct exchange_work *work; /* NULL: none; exchange_set_work() */
	void *work_data;
	enum exchange_phase phase;
	struct MHD_Connection *conn; /* NULL: libmicrohttpd has released it */
	bool suspended;
	bool chunked;      /* the stream ends with a final chunk; false (HTTP/1.0): with the connection */
	bool dead;         /* the client has disconnected, or the service stops: nothing more is sent */
	bool endless;      /* the stream ends only when its client closes it */
	bool over;         /* nothing more will be appended to out */
	char id[64];       /* id of the reply, if it has one ("chatcmpl-...") */
	unsigned status;   /* status of the reply; 0: no reply yet */
	const char *type;  /* content type of the reply, static; NULL: JSON, or for a stream server-sent
			    * events */
	unsigned retry_s;  /* header Retry-After for a status that has it, seconds; 0: 1 */
	char error[32];    /* error code or type for the access log */
	char policy[320];  /* header Content-Security-Policy of a page; "": none */
	const char *allow; /* header Allow, static, or NULL */
	const char *vary;  /* header Vary, static: request headers that selected the reply; or NULL */
	struct buf out;    /* the reply's body, or the unread part of the stream */
	size_t out_head;   /* bytes of out that libmicrohttpd has taken */
	size_t counted;    /* bytes of this exchange in the host's unread_bytes */
};

void exchange_host_init(struct exchange_host *host, const struct service *svc);
void exchange_host_fini(struct exchange_host *host);

/* Make an exchange; NULL if the server is stopping.  conn NULL: the request has no connection (a line of a
 * batch); the caller sets x->released. */
struct exchange *exchange_new(struct exchange_host *host, struct MHD_Connection *conn);
void exchange_ref(struct exchange *x);
void exchange_unref(struct exchange *x);
/* Sets the work, once. */
void exchange_set_work(struct exchange *x, const struct exchange_work *work, void *data);
/* Close the exchange: libmicrohttpd has released the connection.  Cancels running work, counts and logs the
 * request, and releases the connection's reference.  cut: the reply was not sent to its end. */
void exchange_close(struct exchange *x, bool cut);

/* Make the trace of a job that has none: a child span of the exchange's span. */
void exchange_trace_job(const struct exchange *x, struct trace_context *out);

/* Append a chunk of the request's body.  false: there is no room now. */
bool exchange_body(struct exchange *x, const char *p, size_t n);
/* Append to the body of a request without a connection.  Always succeeds. */
void exchange_body_give(struct exchange *x, const char *text, size_t n);
void exchange_body_free(struct exchange *x);

/* Set the reply, ready to be sent.  Takes the buffer's bytes. */
void exchange_reply(struct exchange *x, unsigned status, struct buf *json);
/* Set the reply with a content type other than JSON (a static string). */
void exchange_reply_as(struct exchange *x, unsigned status, const char *type, struct buf *body);
/* Reply 200 with a body of `bytes` bytes, read `part` bytes at a time while it is sent.  read's cls is x. */
void exchange_reply_content(struct exchange *x, const char *type, uint64_t bytes, size_t part,
			    MHD_ContentReaderCallback read);
void exchange_error(struct exchange *x, unsigned status, const char *type, const char *param,
		    const char *code, const char *fmt, ...) __attribute__((format(printf, 6, 7)));
/* Reply with an error: the status and type of a code of proto/codes.h. */
void exchange_fail(struct exchange *x, enum code code, const char *param, const char *why);
/* Make the reply a stream of events that another thread appends with exchange_push() until the client closes
 * it.  The access log does not count that close as a cut. */
void exchange_stream(struct exchange *x);
/* Append to the stream.  -EAGAIN: more than max_unread bytes are unread, nothing was appended.  -EPIPE: the
 * client has disconnected. */
int exchange_push(struct exchange *x, const struct buf *bytes, size_t max_unread);

/* Set the reply, for work that writes to x->out itself.  The caller holds x->lock. */
void exchange_reply_locked(struct exchange *x, unsigned status, struct buf *json);
/* Make the error the reply, or the last event of the stream.  The caller holds x->lock. */
void exchange_error_locked(struct exchange *x, unsigned status, const char *type, const char *code,
			   const char *message);
/* Report bytes appended to out; unread_before is the unread bytes (x->counted) before them.  Resumes the
 * connection, or cuts it if its client does not read. */
void exchange_written_locked(struct exchange *x, size_t unread_before);

/* Suspend the connection until there is a reply.  Once per request, from libmicrohttpd's access handler.  A
 * large request is parked before it is handed to a preparing thread; further calls, from any thread, then do
 * nothing. */
void exchange_park(struct exchange *x);
/* Suspend the connection if it still waits for its reply.  false: there is a reply, or no client. */
bool exchange_wait(struct exchange *x);
/* Read the stream: a MHD_ContentReaderCallback. */
ssize_t exchange_read(void *cls, uint64_t pos, char *p, size_t max);
/* Cut the connection: the return value of a content reader that cannot read its bytes. */
ssize_t exchange_cut(struct exchange *x);

/* Abort: the client has disconnected (user: the exchange).  Nothing more is sent, and the work is cancelled.
 * Called from any thread that holds a reference, or by the hangup watch. */
void exchange_abort(void *user);

/* Return true if nothing more will be sent, or there is a reply: work for the client need not continue.  Any
 * thread. */
bool exchange_is_over(struct exchange *x);

/* Count the requests whose replies a shutdown would cut: uploads, requests that wait for a reply, and replies
 * not sent to their end.  Streams of ROUTE_ENDLESS routes are not counted. */
uint32_t exchange_n_draining(struct exchange_host *host);
/* Stop: make no new exchanges, answer waiting ones with an error, and end open streams with a last event that
 * reports it.  Returns when all of these are sent, or after 2 s, when the rest is cut. */
void exchange_stop_all(struct exchange_host *host);
/* Wait until the last reference to every exchange is released; false after 10 s. */
bool exchange_wait_none(struct exchange_host *host);

#endif
