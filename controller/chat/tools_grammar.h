/* tools_grammar.h - structured output (grammar/composite.h) for tool calls, so that they match the
 * request's declarations. Built from the format (tools_format.h), the tools and the tool choice. tools.h
 * parses every accepted text as these calls.
 *
 *     TOOLS_REQUIRED   calls, and nothing else
 *     TOOLS_FREE       any text without a call, optionally followed by calls
 *     TOOLS_BEGUN      the rest of a call that the prompt has begun (chat_stream_force())
 *
 * Arguments follow the schema of their tool. If the schema is not supported, a strict tool is refused, and
 * another tool takes any object. Between tags and as literals, members have the schema's order, and members
 * that the schema does not name are excluded. */
#ifndef QUERN_CONTROLLER_CHAT_TOOLS_GRAMMAR_H
#define QUERN_CONTROLLER_CHAT_TOOLS_GRAMMAR_H

#include "base/err.h"
#include "controller/chat/composite_parts.h"
#include "controller/chat/tools_format.h"
#include "grammar/work.h"

enum tools_need { TOOLS_FREE, TOOLS_REQUIRED, TOOLS_BEGUN };

struct tools_grammar {
	enum tools_style style;
	enum tools_need need;
	const json_t *tools; /* [{"type": "function", "function": {"name", "parameters"?, "strict"?}}] */
	const char *named;   /* only this tool; NULL: any */
	bool parallel;       /* more than one call is allowed */
	/* TOOLS_FREE: an alternative to calls, which then have no text before them; NULL: text */
	const json_t *answer;
	struct composite_specials specials;
	struct grammar_account *account; /* charged for the checks; NULL: unbounded */
};

/* Set *out to a new reference. -EINVAL, -E2BIG, -ENOTSUP: the schema of a strict tool; -EAGAIN: the account
 * is used up; why names the tool. */
int tools_grammar(const struct tools_grammar *g, json_t **out, struct why *why);

/* Return part as the answer in messages of channels.  Takes ownership of part. */
json_t *channels_answer(const struct channels *c, const struct composite_specials *s, json_t *part);

/* Return a part for any text, including the special tokens that calls of this style use: the unconstrained
 * output of a model. without: a text that it must not contain, or NULL. */
json_t *tools_any_text(enum tools_style style, const struct composite_specials *s, const char *without);

#endif
