/* jinja.h - renders Jinja chat templates as transformers does: jinja2's syntax and Python's semantics,
 * trim_blocks and lstrip_blocks, loop controls, the generation tag, tojson, raise_exception, strftime_now,
 * namespace; lists and dicts are immutable. docs/CHAT.md describes the supported subset.
 * A template has access only to its variables and the time passed to jinja_render(). Steps, memory, nesting
 * and output are bounded. A parsed template is immutable: threads may render it concurrently.
 *
 * Every string tracks which of its bytes came from variables marked as input, through all operations of the
 * template. The result has the spans of these bytes, so that the tokenizer recognizes no special tokens in a
 * user's text.
 *
 *     text --lex.c--> tokens --parse.c, parse_expr.c--> tree (ast.h)
 *     tree, variables --exec.c, eval.c--> marked text (text.h) --> struct jinja_result
 *
 * exec.c and eval.c call filters.c, sequences.c, tests.c, methods.c, str_methods.c and format.c, which
 * compute with the values of value.h in the memory of arena.h. */
#ifndef QUERN_CONTROLLER_JINJA_JINJA_H
#define QUERN_CONTROLLER_JINJA_JINJA_H

#include "base/buf.h"
#include "base/err.h"
#include "base/span.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct jinja;

enum jinja_flags {
	JINJA_TRIM_BLOCKS = 1,   /* drop the newline after a block tag */
	JINJA_LSTRIP_BLOCKS = 2, /* drop white space before a block tag at the beginning of a line */
	JINJA_CHAT = JINJA_TRIM_BLOCKS | JINJA_LSTRIP_BLOCKS,
};

/* Parse a template.  text is copied.  -EINVAL: why names the line; -E2BIG: longer than 1 MiB. */
int jinja_parse(const char *text, size_t n, unsigned flags, struct jinja **out, struct why *why);
void jinja_free(struct jinja *t); /* NULL is fine */

struct jinja_var {
	const char *name;
	const json_t *value; /* borrowed while rendering */
	bool input;          /* its strings are user input */
	/* With input: strings under the key word_key that equal one of words (NULL-terminated) are not
	 * marked, e.g. a message's role, which some templates turn into special tokens. */
	const char *word_key;
	const char *const *words;
};

/* Limits of a rendering; 0: the default.  Exceeding one is -E2BIG, and why names it. */
struct jinja_limits {
	uint64_t steps; /* expressions evaluated, list elements and 64-byte units of text handled */
	size_t memory;  /* bytes of all values */
	size_t output;  /* bytes of the result */
	unsigned depth; /* nesting of expressions, blocks and macro calls */
};

struct jinja_result {
	struct buf text;
	struct text_span *input; /* owned; ascending, disjoint spans of text that are user input */
	size_t n_input;
};
void jinja_result_fini(struct jinja_result *r);

/* Render the template. now_us: the time for strftime_now(), in microseconds since 1970, shown in local time.
 * -EINVAL: the template refused (raise_exception) or failed; -E2BIG: a limit. why names the line. */
int jinja_render(const struct jinja *t, const struct jinja_var *vars, size_t n_vars,
		 const struct jinja_limits *limits, int64_t now_us, struct jinja_result *out,
		 struct why *why);

#endif
