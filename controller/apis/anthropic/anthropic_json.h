/* anthropic_json.h - the shapes of Anthropic's replies: pure functions that append JSON, or events of a
 * stream, to a buffer.  Knows nothing of connections.
 *
 * A stream (https://docs.anthropic.com/en/docs/build-with-claude/streaming); each block is closed before the
 * next:
 *
 *   message_start ping
 *   ( content_block_start content_block_delta* content_block_stop )*
 *   message_delta message_stop
 *
 * The order of blocks in a reply: thinking, text, tool calls.  Text after a call begins a new block. */
#ifndef QUERN_CONTROLLER_APIS_ANTHROPIC_ANTHROPIC_JSON_H
#define QUERN_CONTROLLER_APIS_ANTHROPIC_ANTHROPIC_JSON_H

#include "base/buf.h"
#include "controller/apis/answer.h"
#include "controller/chat/chat_stream.h"
#include "controller/message/job_event.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Fields common to all events of a reply.  Borrowed pointers. */
struct anthropic_shape {
	const char *id; /* "msg_..." */
	const char *model;
};

enum anthropic_block { ANTHROPIC_NONE, ANTHROPIC_THINKING, ANTHROPIC_TEXT, ANTHROPIC_TOOL };

/* State of a stream; zero at the start. */
struct anthropic_stream {
	enum anthropic_block open;
	uint32_t n_blocks; /* blocks begun */
	uint32_t call;     /* index of the tool call in the open block */
};

void anthropic_put_start(struct buf *b, const struct anthropic_shape *s, uint64_t prompt_tokens);
/* Append the new segments of an output.  chat NULL: its text unchanged. */
void anthropic_put_delta(struct buf *b, struct anthropic_stream *st, const struct anthropic_shape *s,
			 const struct output_view *v, const struct chat_stream *chat);
/* Append the end.  sequence: the stop sequence that ended the output, or NULL. */
void anthropic_put_end(struct buf *b, struct anthropic_stream *st, const struct anthropic_shape *s,
		       const char *reason, const char *sequence, const struct answer_usage *u);
/* Return the stop reason, static. */
const char *anthropic_stop_reason(const struct output_view *v, const struct chat_stream *chat);

/* Append a reply that is not streamed. */
void anthropic_put_message(struct buf *b, const struct anthropic_shape *s, const struct output_view *v,
			   const struct chat_stream *chat, const struct answer_usage *u);

#endif
