/* responses_events.h - turn the tokens of an output into the items of a response and their events, in the
 * order of OpenAI's description:
 *
 *   response.created, response.in_progress
 *   for each item: response.output_item.added
 *     reasoning, message: response.content_part.added, ...text.delta ..., ...text.done, .content_part.done
 *     function_call:      response.function_call_arguments.delta ..., .done
 *   response.output_item.done
 *   response.completed, .incomplete or .failed
 *
 * Deterministic: the same tokens give the same events with the same numbers and ids, however the tokens are
 * grouped, because the text is cut where tokens end.  So a stream that is made again from its tokens can
 * continue after any event.  Pure: appends to a buffer. */
#ifndef QUERN_CONTROLLER_APIS_OPENAI_RESPONSES_EVENTS_H
#define QUERN_CONTROLLER_APIS_OPENAI_RESPONSES_EVENTS_H

#include "base/buf.h"
#include "controller/apis/answer.h"
#include "controller/tokenizer/tokenizer.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct responses_events;

/* Pointers are borrowed and outlive the events. */
struct responses_about {
	const char *id; /* "resp_..." */
	int64_t created_at;
	int64_t ended_at;       /* for a response that has ended already; 0: set when it ends */
	const json_t *repeated; /* fields that the response repeats (responses_repeat()), and its own: model,
				 * temperature, top_p, store, background */
	const struct tokenizer *tokenizer;
	bool skip_special;                     /* submit->skip_special */
	const struct chat_stream_rules *rules; /* rules of the output */
	int64_t after;                         /* events up to this number are not written; -1: all are
					        * written */
};

struct responses_events *responses_events_new(const struct responses_about *about);
void responses_events_free(struct responses_events *r); /* NULL is fine */

/* Write the first two events. */
void responses_events_begin(struct responses_events *r, struct buf *out);
/* Add new tokens and text of the output; v->finish ends its last item.  out NULL: no events, only items. */
void responses_events_push(struct responses_events *r, const struct output_view *v, struct buf *out);
/* Record that the response has failed, and why; call before its end. */
void responses_events_fail(struct responses_events *r, const char *message);
/* The output has ended: write the events that end its last item. */
void responses_events_close(struct responses_events *r, struct buf *out);
/* Write the last event. */
void responses_events_end(struct responses_events *r, const struct answer_usage *usage, struct buf *out);
/* Append the items that ended, "{...},{...}". */
void responses_events_items(const struct responses_events *r, struct buf *out);
/* Return true if the response ended with an output worth keeping: completed or incomplete. */
bool responses_events_last(const struct responses_events *r);
/* Append the response in its present state. */
void responses_events_whole(struct responses_events *r, const struct answer_usage *usage, struct buf *out);

#endif
