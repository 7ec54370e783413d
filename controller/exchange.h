/* exchange.h - one HTTP request and its reply, from the request's first byte until the reply was
 * sent or the client has gone and the front end has let go of it.
 *
 * Several threads meet here: libmicrohttpd's (reads the request, sends the reply), those that
 * prepare large requests (prep.h), the front end's (events of the jobs, which become chunks or
 * the body) and the watching one (the client has gone).  Each exchange has a lock; a connection is suspended
 * only under it and resumed only when it was suspended, so that the two always pair.
 *
 *   READING --> REPLY                      answered at once, or refused
 *          \--> WAITING --> REPLY          jobs run; refused, or all done
 *                      \--> STREAM         all jobs were accepted; chunks follow
 *
 * A completions request may hold several prompts: each is a job of its own, here called a leg. */
#ifndef QUERN_CONTROLLER_EXCHANGE_H
#define QUERN_CONTROLLER_EXCHANGE_H

#include "base/buf.h"
#include "controller/front.h"
#include "controller/hangup.h"
#include "controller/http_openai.h"

#include <microhttpd.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

struct accesslog;
struct apikey;
struct apikeys;
struct viewers;

struct exchange;
struct filestore;
struct batches;
struct upload;

enum { EXCHANGE_KEY_SIZE = 128, EXCHANGE_FILE_SIZE = 48 };

/* An exchange without a connection: a line of a batch.  Its jobs are durable, with keys of their
 * own. */
struct exchange_line {
	char key[EXCHANGE_KEY_SIZE - 16];
	int32_t priority;  /* added to what the request says */
	const char *owner; /* name of the key that the batch belongs to; "" for none */
	uint32_t share;
	/* The exchange goes: status and out are its reply, status 0: it has none.  Any thread. */
	void (*gone)(struct exchange *x, void *user);
	void *user;
};
/* The key of one of its jobs. */
void exchange_line_key(char out[EXCHANGE_KEY_SIZE], const char *key, size_t n_legs, size_t leg);

/* What the exchanges of a server share. */
struct exchange_host {
	struct filestore *files;  /* NULL: no journal, no files and batches */
	struct batches *batches;
	size_t max_file_bytes;    /* of an upload */
	struct front *front;
	const struct service *svc;
	struct accesslog *log; /* NULL: none */
	struct apikeys *keys;  /* NULL: whoever reaches the service uses it */
	struct hangup *hangup;
	struct viewers *viewers;
	size_t max_unread;     /* bytes of a stream that the client has not read */
	size_t max_unread_all; /* of all streams; beyond it, each may have a fair share unread */
	atomic_size_t unread_bytes;
	size_t max_bodies; /* bytes of all request bodies that are held */
	atomic_size_t body_bytes;
	pthread_mutex_t lock;   /* what follows */
	pthread_cond_t none;    /* n is 0 */
	struct exchange *first; /* all of them */
	size_t n;
	bool stopping;
};

enum exchange_phase { EXCHANGE_READING, EXCHANGE_WAITING, EXCHANGE_REPLY, EXCHANGE_STREAM };

/* One prompt of a request: one job. */
struct leg {
	struct exchange *x;
	struct submit *submit; /* owned until it is handed over */
	uint32_t first;        /* number of its first choice */
	uint32_t n_outputs;
	uint32_t n_prompt; /* tokens */
	char *echo;        /* owned: the prompt's text, or NULL */
	size_t echo_n;
	uint32_t *tokens; /* owned: a copy of the prompt's, where the reply shows them */
	/* Under the exchange's lock. */
	uint64_t listener;
	uint64_t n_generated; /* tokens, also of a client that has gone */
	char job[64]; /* its id, once it was accepted; "" before */
	bool submitted, finished, unlistened;
	bool settled; /* its place in the key's limit was given back */
	struct said *said;        /* [n_outputs] of a chat whose outputs are looked into; NULL; owned */
	uint64_t *offset;           /* [n_outputs] characters sent, owned */
	struct buf choices;         /* not streamed: its choices, "{...},{...}" */
	struct buf prompt_logprobs; /* not streamed, chat: the reply's field */
};

/* Fields from `legs` on are set before exchange_submit() and are not changed afterwards. */
struct exchange {
	struct exchange_host *host;
	struct exchange *prev, *next;
	atomic_uint refs; /* libmicrohttpd's, the preparing thread's, one for each leg that was submitted */

	/* Set when the headers are complete, not changed afterwards. */
	int64_t started_us;    /* clock_us() */
	char method[16];       /* cut to fit, as the next two */
	char path[256];        /* without the query */
	char remote[64];       /* the client's address, "" unknown */
	char request_id[64];   /* the client's own, "" for none */
	char origin[256];      /* of a page that may see the reply (CORS); "": none */
	struct apikey *key;    /* NULL: none is asked for; else it was given */

	/* libmicrohttpd's thread only. */
	struct buf body;
	size_t body_seen; /* bytes that came, kept or not */
	bool refused;     /* the body is being passed over, the reply is ready */
	bool preflight;   /* it is a browser's question, answered */
	struct upload *upload; /* of a body that is a file (http_files.h), NULL: none */
	bool parked;      /* set before another thread gets to see it */
	uint64_t watch;

	const struct exchange_line *line; /* set at once; NULL: a request with a connection */
	char file_id[EXCHANGE_FILE_SIZE]; /* the reply is the content of this file; "": it is out */
	int64_t file_bytes;

	struct leg *legs; /* owned */
	size_t n_legs;
	struct openai_shape shape;
	struct said_rules rules;
	char *forced; /* owned: rules.forced */
	char *model; /* owned: shape.model */
	bool stream, continuous_usage, echo_logprobs;
	bool return_timing;
	bool no_output; /* the outputs' tokens are left out */
	uint32_t key_jobs; /* of the key's limit: n_legs, each given back when its job ends; 0: none was taken */
	char ignored[512]; /* header x-quern-ignored */

	pthread_mutex_t lock; /* what follows */
	enum exchange_phase phase;
	struct MHD_Connection *conn; /* NULL: libmicrohttpd has let go of it */
	bool suspended;
	bool chunked;              /* a stream's end is a chunk; else (HTTP/1.0) the connection's end */
	bool handed_over;          /* exchange_submit() has begun: what follows `legs` is set */
	bool dead;                 /* the client has gone, or the service goes: no byte more */
	bool over;                 /* nothing more will be put into out */
	unsigned status;           /* of the reply; 0: none was begun */
	const char *type;          /* of the reply, static; NULL: JSON */
	unsigned retry_s;          /* header Retry-After, where the status has one; 0: 1 */
	char error[32];            /* code or type of an error, for the access log */
	char policy[256];          /* header Content-Security-Policy of a page, "" for none */
	const char *allow;         /* header Allow, static, or NULL */
	struct buf out;            /* the reply's body, or what of the stream was not read yet */
	size_t out_head;           /* bytes of out that were read */
	size_t counted;            /* of the host's unread_bytes */
	size_t n_accepted, n_done; /* legs */
	struct openai_usage usage;
	struct openai_timing timing; /* of the jobs that ended: the longest of each */
	unsigned finishes;           /* bits 1 << enum finish, of outputs that ended */
	uint64_t streamed_tokens;
};

/* NULL when the server is stopping.  conn NULL: a line, whose x->line is set by the caller. */
struct exchange *exchange_new(struct exchange_host *host, struct MHD_Connection *conn);
void exchange_ref(struct exchange *x);
void exchange_unref(struct exchange *x);
/* libmicrohttpd has let go of the connection: jobs that still run are cancelled, the request is
 * counted and logged, its reference is given up.  cut: the reply was not sent to its end. */
void exchange_close(struct exchange *x, bool cut);

/* A part of the request's body.  false: there is no room for it now. */
bool exchange_body(struct exchange *x, const char *p, size_t n);
void exchange_body_free(struct exchange *x);

/* The reply, ready to be sent; takes what is in the buffer. */
void exchange_reply(struct exchange *x, unsigned status, struct buf *json);
/* The same of another type than JSON (static). */
void exchange_reply_as(struct exchange *x, unsigned status, const char *type, struct buf *body);
void exchange_error(struct exchange *x, unsigned status, const char *type, const char *param,
		    const char *code, const char *fmt, ...) __attribute__((format(printf, 6, 7)));
/* A stream of events that others than jobs make, from another thread, with exchange_push(). */
void exchange_stream(struct exchange *x);
/* Appends to it.  -EAGAIN: more than max_unread bytes lie there unread, nothing was appended; -EPIPE:
 * the client has gone. */
int exchange_push(struct exchange *x, const struct buf *bytes, size_t max_unread);
/* One of our codes. */
void exchange_fail(struct exchange *x, enum code code, const char *param, const char *why);

/* Suspends the connection, to be woken by the reply: once for a request, from libmicrohttpd's access
 * handler.  Does nothing for one that is parked already, as large ones are before another thread
 * prepares them: from any thread then. */
void exchange_park(struct exchange *x);
/* Hands over x->legs.  Parks first. */
void exchange_submit(struct exchange *x);
/* Suspends the connection if it still waits; false: go on. */
bool exchange_wait(struct exchange *x);
/* The stream, as a MHD_ContentReaderCallback. */
ssize_t exchange_read(void *cls, uint64_t pos, char *p, size_t max);
/* What another such callback returns where its bytes cannot be had: the connection is cut. */
ssize_t exchange_cut(struct exchange *x);

/* The client has gone: cancels.  Any thread that holds a reference, or from the hangup watch. */
void exchange_gone(void *user);

/* The service ends: no new ones; whoever waits gets an error, open streams a last event that says
 * so.  Returns when these were sent, or after 2 s, when the rest is cut. */
void exchange_stop_all(struct exchange_host *host);
/* Waits until the front end has let go of all; false after 10 s. */
bool exchange_wait_none(struct exchange_host *host);

#endif
