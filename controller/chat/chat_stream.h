/* chat_stream.h - parses one chat output, as it is generated, into the reasoning_content, content and
 * tool_calls of OpenAI's API. Collects a delta until it is taken.
 * Pure, except that the ids of calls are random unless they are derived from a number.
 *
 *     generated text --reasoning.h--> reasoning
 *                          \--answer--tools.h--> content
 *                                        \-----> tool calls: name, arguments */
#ifndef QUERN_CONTROLLER_CHAT_CHAT_STREAM_H
#define QUERN_CONTROLLER_CHAT_CHAT_STREAM_H

#include "base/buf.h"
#include "controller/chat/reasoning.h"
#include "controller/chat/tools.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The parsers to use; the same for all outputs of a request. */
struct chat_stream_rules {
	bool reasoning; /* parse reasoning */
	/* Markers of the reasoning; NULL: reasoning_usual. Messages in channels are parsed even if reasoning
	 * is false. */
	const struct reasoning_marks *marks;
	bool reasoning_open; /* the prompt ends within the reasoning */
	bool continued;      /* the prompt ends within the answer, in a message of a channel */
	bool show_reasoning; /* false: drop the reasoning */
	enum tools_style tools;
	bool single_call;   /* parallel_tool_calls is false: drop calls after the first */
	const char *forced; /* the prompt begins a call of this tool; NULL: none.  Borrowed */
	const json_t
		*declared; /* the request's tools, for the types of their arguments; or NULL.  Borrowed */
};

/* Return true if any parser is needed; false: the whole text is content. */
bool chat_stream_parses(const struct chat_stream_rules *r);

/* The delta of one tool call. */
struct chat_stream_call {
	uint32_t index;
	char id[32]; /* id and name are set in the first delta of a call, then empty */
	struct buf name;
	struct buf arguments; /* JSON text */
};

struct chat_stream {
	const struct chat_stream_rules *rules;
	struct reasoning splitter;
	struct tools parser;
	uint64_t ids;      /* seed of the ids of the calls; 0: random ids */
	bool called;       /* a call has begun */
	struct buf answer; /* from the splitter to the tool parser */
	/* The current delta. */
	struct buf reasoning, content;
	struct chat_stream_call *calls; /* [n_calls] */
	uint32_t n_calls, cap_calls;
};

/* rules must outlive s. */
void chat_stream_init(struct chat_stream *s, const struct chat_stream_rules *rules);
/* Like chat_stream_init(), with the ids of calls derived from the number ids: the same in every run. */
void chat_stream_init_as(struct chat_stream *s, const struct chat_stream_rules *rules, uint64_t ids);
void chat_stream_fini(struct chat_stream *s);
/* Parse a chunk of the output into the delta.  chat_stream_end(): the output is complete. */
void chat_stream_push(struct chat_stream *s, const char *p, size_t n);
void chat_stream_end(struct chat_stream *s);
bool chat_stream_has_delta(const struct chat_stream *s);
/* Clear the delta after it was sent. */
void chat_stream_take_delta(struct chat_stream *s);

/* Append the beginning of a call of this tool to the prompt, so that the output is the call's arguments. */
void chat_stream_force(struct buf *prompt, enum tools_style style, const char *name);

#endif
