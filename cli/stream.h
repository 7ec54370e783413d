/* stream.h - a job's replies to stdout as they come. */
#ifndef QUERN_CLI_STREAM_H
#define QUERN_CLI_STREAM_H

#include "base/buf.h"
#include "cli/client.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

struct stream {
	bool json;      /* print nothing until the end, then the whole result as one JSON object */
	bool partial;   /* attached in the middle: only the deltas are printed */
	bool watch;     /* Ctrl-C leaves the job alone */
	bool stay;      /* after Ctrl-C has cancelled the job, further ones are ignored until it has ended */
	bool reasoning; /* the text may begin with reasoning: dimmed where styles are shown */
	bool reasoning_open;                 /* it begins within it */
	const struct reasoning_marks *marks; /* around it; NULL: the usual ones */
	struct buf *text; /* also collects the first output, without its reasoning; may be NULL */
};

/* Sends the request (submit or attach) and prints the text until the job has ended.  A single output
 * is printed as it comes; several one after another, a blank line between them.  Ctrl-C (term.h,
 * armed by the caller) cancels the job.  0; -ECANCELED: it was cancelled; others with the reason. */
int stream_job(struct client *c, json_t *request, const struct stream *how, char *why, size_t why_n);

/* Prints the texts of a `done` reply as stream_job() does. */
void stream_print_done(const json_t *done);
/* Prints a reply without its op and id as one line of JSON. */
void stream_print_json(json_t *reply);

#endif
