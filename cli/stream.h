/* stream.h - a job's replies to stdout as they come. */
#ifndef QUERN_CLI_STREAM_H
#define QUERN_CLI_STREAM_H

#include "base/buf.h"
#include "cli/client.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

struct stream {
	bool json;        /* nothing until the end, then the whole result as one JSON object */
	bool partial;     /* attached in the middle: the deltas are all there is to print */
	bool watch;       /* Ctrl-C leaves the job alone */
	struct buf *text; /* also collects the first output; NULL: not wanted */
};

/* Sends the request (submit or attach) and prints what comes, until the job has ended.  One output
 * is printed as it comes; of several, each in turn, a blank line between them.  Ctrl-C (term.h,
 * armed by the caller) cancels the job.  0; -ECANCELED: it was cancelled; others with the reason. */
int stream_job(struct client *c, json_t *request, const struct stream *how, char *why, size_t why_n);

/* The texts of a `done` reply to stdout, as stream_job() prints them. */
void stream_print_done(const json_t *done);
/* A reply less what only the socket needs (op, id), as one line of JSON. */
void stream_print_json(json_t *reply);

#endif
