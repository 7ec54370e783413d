/* tools.h - tool calls in a model's output.  Pure and incremental: the result does not depend on how
 * the text is cut into pieces, and arguments are passed on before the call is complete.
 *
 *   TOOLS_HERMES (Qwen, Hermes)   Let me see. <tool_call>
 *                                 {"name": "f", "arguments": {"x": 1}}
 *                                 </tool_call>          (any number of them)
 *   TOOLS_LLAMA3                  {"name": "f", "parameters": {"x": 1}}; {...}
 *                                 at the very beginning, perhaps behind <|python_tag|>
 *
 * Text that looks like a call but is not one (invalid JSON, no name) is passed on as text, unchanged.
 * A call that has begun ends with the first byte that cannot belong to it.  Blanks around calls are
 * dropped.  Arguments are passed on as the model wrote them: if the output is cut, so is their JSON.
 *
 *   hermes:  TEXT --"<tool_call>"--> CALL --"}"--> AFTER --"</tool_call>", blanks--> AFTER
 *   llama3:  START --"{"-----------> CALL --"}"--> AFTER --"{"--> CALL
 *   CALL --not a call--> TEXT;  AFTER, START --anything else--> TEXT */
#ifndef QUERN_CONTROLLER_CHAT_TOOLS_H
#define QUERN_CONTROLLER_CHAT_TOOLS_H

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum tools_style { TOOLS_NONE, TOOLS_HERMES, TOOLS_LLAMA3 };

enum { TOOLS_CALLS_MAX = 128 }; /* per output; further ones are text */

/* The receiver; called by tools_push() and tools_end(). */
struct tools_sink {
	void (*text)(void *user, const char *p, size_t n);
	void (*begin)(void *user, uint32_t call, const char *name, size_t n); /* calls count from 0 */
	void (*arguments)(void *user, uint32_t call, const char *p, size_t n);
	void *user;
};

enum tools_state {
	TOOLS_TEXT,  /* looking for a marker */
	TOOLS_START, /* llama3: only blanks so far */
	TOOLS_CALL,  /* within the braces of a call */
	TOOLS_AFTER  /* behind a call: blanks, the closing marker */
};

/* The position within the braces of a call. */
enum tools_at { AT_OPEN, AT_KEY_OR_END, AT_KEY, AT_COLON, AT_VALUE_BEGIN, AT_VALUE, AT_STRING, AT_WORD };
enum tools_value { VALUE_OTHER, VALUE_NAME, VALUE_ARGUMENTS };

struct tools {
	enum tools_style style;
	enum tools_state state;
	struct buf held; /* undecided text: part of a marker, or blanks before one */
	uint32_t n_calls;

	/* The current call. */
	enum tools_at at;
	enum tools_value value;
	bool begun, has_name, has_arguments, escaped, in_string;
	uint32_t depth;     /* of the value */
	struct buf raw;     /* all of its text, until it has begun */
	struct buf key;     /* as written, without quotes */
	struct buf string;  /* a value that is a string, with its quotes */
	struct buf name;    /* as written, with its quotes */
	struct buf pending; /* arguments held back until it begins */
};

void tools_init(struct tools *t, enum tools_style style);
void tools_fini(struct tools *t);
void tools_push(struct tools *t, const char *p, size_t n, const struct tools_sink *to);
/* End of the output. */
void tools_end(struct tools *t, const struct tools_sink *to);

/* "hermes", "llama3", "none"; -EINVAL for another. */
int tools_style_parse(const char *name, enum tools_style *out);

#endif
