/* tools_format.h - the syntax of tool calls, one table row per format. The parser of outputs (tools.h),
 * prompts that force a call, and the recognition of templates all use the table.
 *
 * A format consists of the marks that begin a call, the steps from a mark to the end of the arguments, and
 * the texts that may follow. Blanks before each step and each following text are skipped. Where all models
 * of a format use the same spelling, only that spelling is accepted; the chat templates are the
 * specification.
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

/* The names for --tool-parser are in the table. */
enum tools_style {
	TOOLS_NONE,
	TOOLS_HERMES,   /* also Qwen 2.5 and 3 */
	TOOLS_LLAMA3,   /* JSON, only at the very beginning */
	TOOLS_PYTHONIC, /* Llama 3.2 and 4: a list of Python calls, only at the very beginning */
	TOOLS_LFM2,     /* a list of Python calls after a mark */
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
	TOOLS_APERTUS,
	TOOLS_APRIEL,
	TOOLS_COMMAND_R,       /* Command R and R+ */
	TOOLS_FUNCTIONARY_V31, /* Functionary 3.1, which is trained from Llama 3.1 */
	TOOLS_FIREFUNCTION,
	TOOLS_HARMONY, /* gpt-oss */
	TOOLS_N_STYLES
};

enum tools_op {
	TOOLS_OP_END,      /* the call is complete */
	TOOLS_OP_LITERAL,  /* this text */
	TOOLS_OP_MAYBE,    /* this text, optional */
	TOOLS_OP_IF,       /* if this text is next, skip it and continue at step `to` */
	TOOLS_OP_NAME,     /* the tool's name, optionally preceded by `text` */
	TOOLS_OP_ID,       /* optional: this text and the word after it, an id of the call */
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

/* A text that begins something, and the step to continue at; -1: after a call. */
struct tools_mark {
	const char *text;
	int to;
	bool keep; /* the text belongs to the step and is not skipped */
};

/* How a template of the format spells calls, for a grammar: `open`; for each call NAME `args` ARGUMENTS
 * `close`; `between` separates two calls; then `end`. A byte 1 stands for the call's number. */
struct tools_spelling {
	const char *needs; /* only for models with this special token; NULL: for all */
	const char *open, *call, *args, *close, *between, *end;
	/* PAIRS: key_open KEY key_close gap value_open line VALUE line value_close pair_end */
	const char *gap, *line, *pair_end;
	bool alone; /* the output ends after one call */
};

enum { TOOLS_NUMBER = 1 };
enum { TOOLS_SPELLINGS_MAX = 2 };

enum { TOOLS_STEPS_MAX = 8, TOOLS_MARKS_MAX = 2, TOOLS_THEN_MAX = 5, TOOLS_WORDS_MAX = 2 };

/* The tags of PAIRS: key_open KEY key_close value_open VALUE value_close. */
struct tools_tags {
	const char *key_open, *key_close;
	const char *value_open;
	/* used instead of value_open for text values; NULL: the tool's schema decides */
	const char *text_open;
	const char *value_close;
};

/* The syntax of LITERALS: f(key=value, ...) with Python's literals, or f{key:value,...}. */
struct tools_literals {
	char between, close;
	const char *quote; /* encloses texts; NULL: '...' and "..." with Python's escapes */
};

struct tools_format {
	const char *name;
	/* A template of this format contains all of these words. The first match in the table's order of
	 * recognition wins. */
	const char *words[TOOLS_WORDS_MAX];
	const char *unless; /* a word that such a template never contains: it would be an unknown format */
	/* The marks that begin a call; at_start: only at the very beginning. */
	struct tools_mark marks[TOOLS_MARKS_MAX];
	const char *tag; /* at_start: an optional tag before the mark */
	bool at_start;
	struct tools_step steps[TOOLS_STEPS_MAX];
	struct tools_mark then[TOOLS_THEN_MAX]; /* texts that may follow a call */
	struct tools_tags tags;
	struct tools_literals literals;
	/* use the first with a `needs` token that the model has */
	struct tools_spelling spellings[TOOLS_SPELLINGS_MAX];
	/* A forced call: the prompt ends with before NAME after; the model writes the arguments. */
	const char *before, *after;
	const struct channels
		*channels; /* calls are messages, which channels.h converts to this syntax; NULL: text */
};

/* NULL for TOOLS_NONE. */
const struct tools_format *tools_format(enum tools_style style);

/* Parse "hermes", "llama3", ..., "none".  -EINVAL for other names. */
int tools_style_parse(const char *name, enum tools_style *out);
/* Return all names, separated by commas, for messages. */
const char *tools_style_names(void);

/* Return the first style in the order of recognition with words that satisfy mentions() and that itself
 * satisfies fits() (NULL: no condition); TOOLS_NONE if there is none. */
enum tools_style tools_style_of(bool (*mentions)(const void *user, const char *word),
				bool (*fits)(const void *user, enum tools_style style), const void *user);
/* Return the first style in that order that satisfies fits(). */
enum tools_style tools_style_first(bool (*fits)(const void *user, enum tools_style style), const void *user);

#endif
