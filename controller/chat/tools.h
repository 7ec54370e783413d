/* tools.h - parses tool calls in a model's output. Pure and incremental: the result does not depend on how
 * the text is cut into chunks, and arguments are passed on before the call is complete.
 *
 * The syntax of calls is data (tools_format.h). Text that only resembles a call (invalid JSON, no name) is
 * passed on as text, unchanged. A begun call ends at the first byte that cannot belong to it. Blanks around
 * calls are dropped, at most the last 1024 before a call. JSON arguments are passed on as written. Other
 * arguments are converted to JSON: values between tags by the types that the request declares, literals by
 * their own type. A closing tag within a value is part of the value unless valid syntax follows
 * (tools_pairs.c); until that is known the tag is held back. If such a call breaks off, its arguments are
 * the complete pairs so far. If the output is cut, so is the JSON.
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

enum { TOOLS_CALLS_MAX = 128 }; /* per output; further calls are text */

/* The receiver; called by tools_push() and tools_end(). */
struct tools_sink {
	void (*text)(void *user, const char *p, size_t n);
	void (*begin)(void *user, uint32_t call, const char *name, size_t n); /* calls count from 0 */
	void (*arguments)(void *user, uint32_t call, const char *p, size_t n);
	void *user;
};

enum tools_state {
	TOOLS_TEXT,  /* searching for a mark */
	TOOLS_START, /* at the very beginning: only blanks so far */
	TOOLS_CALL,  /* at a step of a call */
	TOOLS_AFTER  /* after a call */
};

/* The position within a call that is one JSON object. */
enum tools_at { AT_OPEN, AT_KEY_OR_END, AT_KEY, AT_COLON, AT_VALUE_BEGIN, AT_VALUE, AT_STRING, AT_WORD };
enum tools_value { VALUE_OTHER, VALUE_NAME, VALUE_ARGUMENTS };

struct tools_object {
	enum tools_at at;
	enum tools_value value;
	bool escaped, in_string;
	uint32_t depth;    /* nesting within the value */
	struct buf key;    /* as written, without quotes */
	struct buf string; /* a string value, with its quotes */
};

/* The position within arguments written as pairs or literals. */
enum tools_arg_at { ARG_KEY, ARG_KEY_TEXT, ARG_OPEN, ARG_VALUE };
/* How a value is converted: as text, as null or text, or by what it parses as. */
enum tools_arg_kind { ARG_TEXT, ARG_TEXT_OR_NULL, ARG_ANY };

struct tools_arg {
	enum tools_arg_at at;
	enum tools_arg_kind kind;
	bool any;         /* a pair was passed on */
	bool began;       /* pairs: a byte of the value was read */
	bool closed;      /* the object is complete */
	struct buf key;   /* without quotes */
	struct buf value; /* collected until it is complete */
	uint32_t depth;   /* literals: number of open brackets in the value */
	char quote;       /* literals: the open quote, or 0 */
	bool escaped;
};

struct tools {
	const struct tools_format *format; /* NULL: everything is text */
	const json_t *declared;
	bool forced; /* the output is the arguments of one call, without the call's closing text */
	bool ended;  /* no more text will arrive */
	enum tools_state state;
	struct buf held; /* undecided text, from `at` on */
	size_t at;
	uint32_t n_calls;

	/* The current call. */
	int step;
	bool bare; /* the format's first mark, which wraps calls, was missing */
	bool begun, has_name, has_arguments;
	struct buf raw;     /* the text of the call, until the call has begun */
	struct buf name;    /* UTF-8 */
	struct buf pending; /* arguments held back until the call begins */
	struct tools_object object;
	struct tools_arg arg;
};

/* declared: the request's tools as in OpenAI's API, for the types of values between tags; NULL: unknown. It
 * must outlive t. */
void tools_init(struct tools *t, enum tools_style style, const json_t *declared);
void tools_fini(struct tools *t);
void tools_push(struct tools *t, const char *p, size_t n, const struct tools_sink *to);
/* Decide the rest at the end of the output. */
void tools_end(struct tools *t, const struct tools_sink *to);

#endif
