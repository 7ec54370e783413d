/* tools.h - calls of tools in a model's output.  Pure and incremental: what comes out is the same
 * however the text comes in, and the arguments flow before the call is complete.
 *
 *   TOOLS_HERMES (Qwen, Hermes)   Let me see. <tool_call>
 *                                 {"name": "f", "arguments": {"x": 1}}
 *                                 </tool_call>          (any number of them)
 *   TOOLS_LLAMA3                  {"name": "f", "parameters": {"x": 1}}; {...}
 *                                 at the very beginning, perhaps behind <|python_tag|>
 *
 * What looks like a call and is none (no JSON, no name) comes out as text, unchanged; once a call
 * has begun, what does not belong to it ends it.  Blanks around calls are dropped.  Arguments come
 * out as the model wrote them: JSON that may be cut where the output is. */
#ifndef QUERN_CONTROLLER_TOOLS_H
#define QUERN_CONTROLLER_TOOLS_H

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum tools_style { TOOLS_NONE, TOOLS_HERMES, TOOLS_LLAMA3 };

enum { TOOLS_CALLS_MAX = 128 }; /* of an output; what follows is text */

/* Where it goes; called from within push and end. */
struct tools_sink {
	void (*text)(void *user, const char *p, size_t n);
	void (*begin)(void *user, uint32_t call, const char *name, size_t n); /* calls count from 0 */
	void (*arguments)(void *user, uint32_t call, const char *p, size_t n);
	void *user;
};

enum tools_state {
	TOOLS_TEXT,  /* looking for a marker */
	TOOLS_START, /* llama3: nothing but blanks has come */
	TOOLS_CALL,  /* within the braces of a call */
	TOOLS_AFTER  /* behind one: blanks, the closing marker */
};

/* Where within the braces. */
enum tools_at { AT_OPEN, AT_KEY_OR_END, AT_KEY, AT_COLON, AT_VALUE_BEGIN, AT_VALUE, AT_STRING, AT_WORD };
enum tools_value { VALUE_OTHER, VALUE_NAME, VALUE_ARGUMENTS };

struct tools {
	enum tools_style style;
	enum tools_state state;
	struct buf held; /* text that may become a marker, or blanks before one */
	uint32_t n_calls;
	bool any_text; /* told */

	/* The call. */
	enum tools_at at;
	enum tools_value value;
	bool begun, has_name, has_arguments, escaped, in_string;
	uint32_t depth;     /* of the value */
	struct buf raw;     /* all of it, until it has begun */
	struct buf key;     /* as written, without quotes */
	struct buf string;  /* a value that is a string, with its quotes */
	struct buf name;    /* as written, with its quotes */
	struct buf pending; /* arguments that were not told yet */
};

void tools_init(struct tools *t, enum tools_style style);
void tools_fini(struct tools *t);
void tools_push(struct tools *t, const char *p, size_t n, const struct tools_sink *to);
/* The output is over. */
void tools_end(struct tools *t, const struct tools_sink *to);

/* "hermes", "llama3", "none"; -EINVAL for another. */
int tools_style_parse(const char *name, enum tools_style *out);

#endif
