/* stream.h - prints a job's replies to stdout as they arrive. */
#ifndef QUERN_CLI_STREAM_H
#define QUERN_CLI_STREAM_H

#include "base/buf.h"
#include "base/err.h"
#include "cli/client.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

struct stream {
	bool json;           /* print nothing until the end, then the whole result as one JSON object */
	bool partial;        /* attached in the middle of the job: only the deltas are printed */
	bool watch;          /* Ctrl-C does not cancel the job */
	bool stay;           /* after Ctrl-C has cancelled the job, ignore further Ctrl-C until the job has
			 * ended */
	bool reasoning;      /* the text may begin with reasoning, which is dimmed if styles are shown */
	bool reasoning_open; /* the text begins within reasoning */
	const struct reasoning_marks *marks; /* tags around reasoning; NULL: the usual ones */
	struct buf *text; /* also receives the first output, without its reasoning; may be NULL */
};

/* Send the request (submit or attach) and print the text until the job has ended.  A single output is printed
 * as it arrives; several outputs are printed one after another, with a blank line between them.  Ctrl-C
 * (term.h, armed by the caller) cancels the job.  0; -ECANCELED: the job was cancelled; other errors with the
 * reason. */
int stream_job(struct client *c, json_t *request, const struct stream *how, struct why *why);

/* Print the texts of a `done` reply as stream_job() does. */
void stream_print_done(const json_t *done);
/* Print a reply without its op and id as one line of JSON. */
void stream_print_json(json_t *reply);

#endif
