/* tools.h - tool calls in a model's output.  Pure and incremental: the result does not depend on how
 * the text is cut into pieces, and arguments are passed on before the call is complete.
 *
 * What a call looks like is data (tools_format.h).  Text that looks like a call but is not one (invalid
 * JSON, no name) is passed on as text, unchanged.  A call that has begun ends with the first byte that
 * cannot belong to it.  Blanks around calls are dropped, before them at most the last 1024.  Arguments that
 * the model writes as JSON are passed on as written.  Others become JSON: values between tags by the types
 * that the request declares for them, literals by their own; where such a call breaks off, its arguments
 * are the whole pairs so far.  If the output is cut, so is the JSON.
 *
 *   TEXT --mark--> CALL --last step--> AFTER --mark--> CALL
 *   START --mark--> CALL --not a call--> TEXT <--anything else-- AFTER, START */
#ifndef QUERN_CONTROLLER_CHAT_TOOLS_H
#define QUERN_CONTROLLER_CHAT_TOOLS_H

#include "base/buf.h"
#include "controller/chat/tools_format.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TOOLS_CALLS_MAX = 128 }; /* per output; further ones are text */

/* The receiver; called by tools_push() and tools_end(). */
struct tools_sink {
	void (*text)(void *user, const char *p, size_t n);
	void (*begin)(void *user, uint32_t call, const char *name, size_t n); /* calls count from 0 */
	void (*arguments)(void *user, uint32_t call, const char *p, size_t n);
	void *user;
};

enum tools_state {
	TOOLS_TEXT,  /* looking for a mark */
	TOOLS_START, /* at the very beginning: only blanks so far */
	TOOLS_CALL,  /* at one of the steps of a call */
	TOOLS_AFTER  /* behind a call */
};

/* The position within the braces of a call that is one object. */
enum tools_at { AT_OPEN, AT_KEY_OR_END, AT_KEY, AT_COLON, AT_VALUE_BEGIN, AT_VALUE, AT_STRING, AT_WORD };
enum tools_value { VALUE_OTHER, VALUE_NAME, VALUE_ARGUMENTS };

struct tools_object {
	enum tools_at at;
	enum tools_value value;
	bool escaped, in_string;
	uint32_t depth;    /* of the value */
	struct buf key;    /* as written, without quotes */
	struct buf string; /* a value that is a string, with its quotes */
};

/* The position within arguments that are written as pairs or literals. */
enum tools_arg_at { ARG_KEY, ARG_KEY_TEXT, ARG_OPEN, ARG_VALUE };
/* What a value is made of: its text, null or its text, or whatever it reads as. */
enum tools_arg_kind { ARG_TEXT, ARG_TEXT_OR_NULL, ARG_ANY };

struct tools_arg {
	enum tools_arg_at at;
	enum tools_arg_kind kind;
	bool any;         /* a pair was passed on */
	bool began;       /* pairs: a byte of the value was seen */
	bool closed;      /* the object is complete */
	struct buf key;   /* without quotes */
	struct buf value; /* until it is complete */
	uint32_t depth;   /* literals: open brackets in the value */
	char quote;       /* literals: the one that is open, or 0 */
	bool escaped;
};

struct tools {
	const struct tools_format *format; /* NULL: all is text */
	const json_t *declared;
	bool forced; /* the output is the arguments of one call, without the text that ends it */
	enum tools_state state;
	struct buf held; /* undecided text, from `at` on */
	size_t at;
	uint32_t n_calls;

	/* The current call. */
	int step;
	bool begun, has_name, has_arguments;
	struct buf raw;     /* all of its text, until it has begun */
	struct buf name;    /* UTF-8 */
	struct buf pending; /* arguments held back until it begins */
	struct tools_object object;
	struct tools_arg arg;
};

/* declared: the request's tools in OpenAI's form, for the types of values between tags; NULL: not known.
 * It must outlive t. */
void tools_init(struct tools *t, enum tools_style style, const json_t *declared);
void tools_fini(struct tools *t);
void tools_push(struct tools *t, const char *p, size_t n, const struct tools_sink *to);
/* End of the output. */
void tools_end(struct tools *t, const struct tools_sink *to);

#endif
