/* responses_events.h - the tokens of an output to the items of a response and their events, in the order that
 * OpenAI's description gives them:
 *
 *   response.created, response.in_progress
 *   for each item: response.output_item.added
 *     reasoning, message: response.content_part.added, ...text.delta ..., ...text.done, .content_part.done
 *     function_call:      response.function_call_arguments.delta ..., .done
 *   response.output_item.done
 *   response.completed, .incomplete or .failed
 *
 * Deterministic: the same tokens give the same events with the same numbers and ids, however they come in
 * pieces, since the text is cut where tokens end.  A stream that is made again from its tokens can so go on
 * behind any event.  Pure: appends to a buffer. */
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
	int64_t ended_at;       /* of one that ended before; 0: when it ends */
	const json_t *repeated; /* the fields that the response repeats (responses_repeat()) and its own ones:
				 * model, temperature, top_p, store, background */
	const struct tokenizer *tokenizer;
	bool skip_special;                     /* submit->skip_special */
	const struct chat_stream_rules *rules; /* of the output */
	int64_t after;                         /* events up to this number are not written; -1: all are */
};

struct responses_events *responses_events_new(const struct responses_about *about);
void responses_events_free(struct responses_events *r); /* NULL is fine */

/* The first two events. */
void responses_events_begin(struct responses_events *r, struct buf *out);
/* New tokens and text of the output; v->finish ends its last item.  out NULL: no events, only items. */
void responses_events_push(struct responses_events *r, const struct output_view *v, struct buf *out);
/* Before its end: the response has failed, for this reason. */
void responses_events_fail(struct responses_events *r, const char *message);
/* The last event. */
void responses_events_end(struct responses_events *r, const struct answer_usage *usage, struct buf *out);
/* The items that ended, "{...},{...}". */
void responses_events_items(const struct responses_events *r, struct buf *out);
/* Whether it has ended with an output that lasts: completed, or incomplete. */
bool responses_events_last(const struct responses_events *r);
/* The response as it is. */
void responses_events_whole(struct responses_events *r, const struct answer_usage *usage, struct buf *out);

#endif
