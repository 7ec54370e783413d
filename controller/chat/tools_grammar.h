/* tools_grammar.h - what an output must look like so that its calls of tools are as the request declares
 * them: a part of a form (grammar/form_source.h), from the entry of the format (tools_format.h), the tools
 * and the choice.  What the form accepts, tools.h reads as these calls.
 *
 *     TOOLS_REQUIRED   calls, and nothing else
 *     TOOLS_FREE       any text without a call, then calls, or none
 *     TOOLS_BEGUN      the rest of a call that the prompt has begun (chat_stream_force())
 *
 * Arguments follow the schema of their tool.  Where it is not supported, arguments of a strict tool are
 * refused and those of another are any object.  Between tags and as literals, members come in the schema's
 * order, and members that it does not name do not come. */
#ifndef QUERN_CONTROLLER_CHAT_TOOLS_GRAMMAR_H
#define QUERN_CONTROLLER_CHAT_TOOLS_GRAMMAR_H

#include "controller/chat/form_parts.h"
#include "controller/chat/tools_format.h"

enum tools_need { TOOLS_FREE, TOOLS_REQUIRED, TOOLS_BEGUN };

struct tools_grammar {
	enum tools_style style;
	enum tools_need need;
	const json_t *tools;  /* [{"type": "function", "function": {"name", "parameters"?, "strict"?}}] */
	const char *named;    /* only this one; NULL: any */
	bool parallel;        /* more than one call */
	const json_t *answer; /* TOOLS_FREE: instead of calls this, and no text before them; NULL: text */
	struct form_specials specials;
};

/* *out: a new reference.  -EINVAL, -E2BIG, -ENOTSUP: the schema of a strict tool; why names the tool. */
int tools_grammar(const struct tools_grammar *g, json_t **out, char *why, size_t why_n);

/* part, which is taken over, as the answer among messages of channels. */
json_t *channels_answer(const struct channels *c, const struct form_specials *s, json_t *part);

/* Any text, with the special tokens that calls of this style have: what a model without a form writes.
 * without: what it does not hold, or NULL. */
json_t *tools_any_text(enum tools_style style, const struct form_specials *s, const char *without);

#endif
