/* lines.h - requests for HTTP routes that arrive over the job socket, without a connection.  The text of a
 * body is passed unchanged to the code that serves its path, and the text of the reply is passed back.
 * Owns: the server of these requests, between lines_open() and lines_close().
 *
 *   job socket (front end) --lines_put()--> endpoints/job_lines.c --> the route, on a preparing thread
 *           ^                                                             |
 *           '------------- done(), by mailbox_call() <--------------------' */
#ifndef QUERN_CONTROLLER_JOBS_LINES_H
#define QUERN_CONTROLLER_JOBS_LINES_H

#include "base/buf.h"
#include "proto/codes.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct lines;

enum { LINES_PEER_SIZE = 64, LINES_KEY_SIZE = 104, LINES_CLIENT_SIZE = 112 };

struct line_reply {
	enum code code;  /* CODE_OK; otherwise there is no reply, and why has the reason */
	char why[256];   /* E_OVERLOADED and E_NOT_READY: a retry may succeed */
	unsigned status; /* HTTP status */
	char id[64];     /* id of the reply, "chatcmpl-..."; "": none */
	struct buf body;
};

struct line_request {
	char *url;
	struct buf body;
	char key[LINES_KEY_SIZE];       /* prefix of its jobs' idempotency keys; "": none */
	char peer[LINES_PEER_SIZE];     /* public key of the client; "": the job socket requires none */
	char client[LINES_CLIENT_SIZE]; /* the preparing threads take the request in this client's turn */
	int32_t priority;               /* added to the priority in the body */
	bool durable;                   /* its jobs survive a restart */
	bool keep;                      /* its jobs continue when the client has disconnected */
	/* Called once for each lines_put() that returned 0, on the front end's thread. */
	void (*done)(void *user, struct line_reply *reply);
	void *user;
};
void line_request_free(struct line_request *r); /* NULL is fine */

struct lines *lines_new(void);
void lines_free(struct lines *l); /* NULL is fine */

/* --- the client --- */

/* Pass a request to the server.  Takes *r and sets it to NULL.  *tag: for lines_drop().  -ENOTCONN, without a
 * call of done(): there is no server now. */
int lines_put(struct lines *l, struct line_request **r, uint64_t *tag);
/* Cancel the request with this tag if it is still being served: its client has disconnected.  done() is still
 * called. */
void lines_drop(struct lines *l, uint64_t tag);

/* --- the server --- */

struct lines_server {
	/* Both functions return at once, and are not running once lines_close() has returned.  put takes
	 * r. */
	void (*put)(void *user, struct line_request *r, uint64_t tag);
	void (*drop)(void *user, uint64_t tag);
	void *user;
};
void lines_open(struct lines *l, const struct lines_server *server);
void lines_close(struct lines *l);

#endif
