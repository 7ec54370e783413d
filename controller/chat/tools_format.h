/* tools_format.h - how models write calls of tools: one table, from which come what is looked for in an
 * output (tools.h), what a prompt ends with that forces a call, and what a template is recognized by.
 *
 * A format is what begins a call (its marks), the steps from there to the end of the arguments, and what
 * may follow.  Blanks before each step and each text that follows are passed over.  Where every model of
 * a format keeps to one spelling, that spelling is meant; the templates are the specification.
 *
 *     <tool_call>\n<function=f>\n<parameter=x>\n1\n</parameter>\n</function>\n</tool_call>
 *     ^mark       ^LITERAL ^NAME ^LITERAL  ^PAIRS               ^then       ^then
 *
 * Pure. */
#ifndef QUERN_CONTROLLER_CHAT_TOOLS_FORMAT_H
#define QUERN_CONTROLLER_CHAT_TOOLS_FORMAT_H

#include "controller/chat/channels.h"

#include <stdbool.h>
#include <stddef.h>

/* Names as --tool-parser takes them are in the table. */
enum tools_style {
	TOOLS_NONE,
	TOOLS_HERMES,   /* also Qwen 2.5 and 3 */
	TOOLS_LLAMA3,   /* JSON at the very beginning */
	TOOLS_PYTHONIC, /* Llama 3.2 and 4: a list of Python calls at the very beginning */
	TOOLS_LFM2,     /* a list of Python calls behind a mark */
	TOOLS_QWEN3_CODER,
	TOOLS_SEED_OSS,
	TOOLS_MINIMAX_M2,
	TOOLS_GLM45,
	TOOLS_DEEPSEEK_V3,
	TOOLS_DEEPSEEK_V31,
	TOOLS_DEEPSEEK_V32,
	TOOLS_KIMI_K2,
	TOOLS_MISTRAL,
	TOOLS_GRANITE,
	TOOLS_PHI4,
	TOOLS_COHERE,
	TOOLS_GEMMA4,
	TOOLS_HARMONY, /* gpt-oss */
	TOOLS_N_STYLES
};

enum tools_op {
	TOOLS_OP_END,      /* the call is complete */
	TOOLS_OP_LITERAL,  /* this text */
	TOOLS_OP_MAYBE,    /* this text, or not */
	TOOLS_OP_IF,       /* if this text is next, pass over it and go on at step `to` */
	TOOLS_OP_NAME,     /* the tool's name, behind `text` if that is there */
	TOOLS_OP_ID,       /* this text and the word behind it, an id of the call, or nothing */
	TOOLS_OP_OBJECT,   /* {"name": ..., "arguments" or "parameters": ...} */
	TOOLS_OP_JSON,     /* the arguments: an object */
	TOOLS_OP_PAIRS,    /* the arguments: keys and values between the format's tags */
	TOOLS_OP_LITERALS, /* the arguments: keys and literals, to the format's closing bracket */
};

struct tools_step {
	enum tools_op op;
	const char *text;
	int to;
};

/* A text that something begins with, and the step at which it goes on; -1: behind a call. */
struct tools_mark {
	const char *text;
	int to;
	bool keep; /* the text is the step's own */
};

/* How a template of the format spells calls, for a grammar: open, then call NAME args ARGUMENTS close for
 * each, between two of them, and end.  A byte 1 stands for the call's number. */
struct tools_spelling {
	const char *needs; /* only of models with this special token; NULL: of all */
	const char *open, *call, *args, *close, *between, *end;
	/* PAIRS: key_open KEY key_close gap value_open line VALUE line value_close pair_end */
	const char *gap, *line, *pair_end;
	bool alone; /* a call ends the output */
};

enum { TOOLS_NUMBER = 1 };
enum { TOOLS_SPELLINGS_MAX = 2 };

enum { TOOLS_STEPS_MAX = 8, TOOLS_MARKS_MAX = 2, TOOLS_THEN_MAX = 5, TOOLS_WORDS_MAX = 2 };

/* The tags of PAIRS: key_open KEY key_close value_open VALUE value_close. */
struct tools_tags {
	const char *key_open, *key_close;
	const char *value_open;
	const char *text_open; /* instead of value_open: the value is text; NULL: by the tool's schema */
	const char *value_close;
};

/* The spelling of LITERALS: f(key=value, ...), with Python's literals, or f{key:value,...}. */
struct tools_literals {
	char between, close;
	const char *quote; /* on both sides of a text; NULL: '...' and "..." with Python's escapes */
};

struct tools_format {
	const char *name;
	/* Words that a template of this format has, all of them; the first format of the table's order
	 * of recognition that fits counts. */
	const char *words[TOOLS_WORDS_MAX];
	const char *unless; /* a word that such a template never has: it is of a format not known here */
	/* What begins a call; at_start: only at the very beginning. */
	struct tools_mark marks[TOOLS_MARKS_MAX];
	const char *tag; /* at_start: may stand before the mark */
	bool at_start;
	struct tools_step steps[TOOLS_STEPS_MAX];
	struct tools_mark then[TOOLS_THEN_MAX]; /* what may follow a call */
	struct tools_tags tags;
	struct tools_literals literals;
	struct tools_spelling spellings[TOOLS_SPELLINGS_MAX]; /* the first that the model has the token for */
	/* A forced call: the prompt ends with before NAME after; what the model writes are the arguments. */
	const char *before, *after;
	const char *stop; /* ends an output behind a forced call; NULL: nothing does */
	const struct channels
		*channels; /* calls are messages, which channels.h spells as above; NULL: text */
};

/* NULL for TOOLS_NONE. */
const struct tools_format *tools_format(enum tools_style style);

/* "hermes", "llama3", ..., "none"; -EINVAL for another. */
int tools_style_parse(const char *name, enum tools_style *out);
/* All names, separated by commas, for messages. */
const char *tools_style_names(void);

/* The style of a template that mentions these words; TOOLS_NONE: not known. */
enum tools_style tools_style_of(bool (*mentions)(const void *user, const char *word), const void *user);

#endif
