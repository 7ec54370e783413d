/* chat_stream.h - one output of a chat, parsed as it is generated into what OpenAI's API calls
 * reasoning_content, content and tool_calls.  Collects a delta until it is taken.
 * Pure but for the ids of calls, which are random unless they are numbered.
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

/* What to parse; the same for all outputs of a request. */
struct chat_stream_rules {
	bool reasoning; /* parse it */
	/* Of it; NULL: the usual ones.  Messages of channels are parsed in any case. */
	const struct reasoning_marks *marks;
	bool reasoning_open; /* the prompt ends within the reasoning */
	bool continued;      /* it ends within the answer, a message of channels */
	bool show_reasoning; /* false: it is dropped */
	enum tools_style tools;
	bool single_call;   /* parallel_tool_calls is false: further calls are dropped */
	const char *forced; /* the prompt begins a call of this tool; NULL: none.  Borrowed */
	const json_t
		*declared; /* the request's tools, for the types of their arguments; or NULL.  Borrowed */
};

/* Whether there is anything to parse; false: the text is the content. */
bool chat_stream_parses(const struct chat_stream_rules *r);

/* The delta of one tool call. */
struct chat_stream_call {
	uint32_t index;
	char id[32]; /* id and name: in the first delta of a call; then empty */
	struct buf name;
	struct buf arguments; /* JSON text */
};

struct chat_stream {
	const struct chat_stream_rules *rules;
	struct reasoning splitter;
	struct tools parser;
	uint64_t ids;      /* what the ids of its calls are made of; 0: they are random */
	bool called;       /* a call has begun */
	struct buf answer; /* from the splitter to the parser */
	/* The delta. */
	struct buf reasoning, content;
	struct chat_stream_call *calls; /* [n_calls] */
	uint32_t n_calls, cap_calls;
};

/* rules must outlive s. */
void chat_stream_init(struct chat_stream *s, const struct chat_stream_rules *rules);
/* The same with ids of calls that are those of this number, whenever they are made. */
void chat_stream_init_as(struct chat_stream *s, const struct chat_stream_rules *rules, uint64_t ids);
void chat_stream_fini(struct chat_stream *s);
/* Adds what a piece of the output decides to the delta; end: the output is complete. */
void chat_stream_push(struct chat_stream *s, const char *p, size_t n);
void chat_stream_end(struct chat_stream *s);
bool chat_stream_has_delta(const struct chat_stream *s);
/* The delta was sent: begin the next one. */
void chat_stream_take_delta(struct chat_stream *s);

/* Appends to the prompt the beginning of a call of this tool, so that the output is its arguments. */
void chat_stream_force(struct buf *prompt, enum tools_style style, const char *name);

#endif
