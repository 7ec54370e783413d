/* tools_grammar_impl.h - shared declarations of the files of tools_grammar.h. */
#ifndef QUERN_CONTROLLER_CHAT_TOOLS_GRAMMAR_IMPL_H
#define QUERN_CONTROLLER_CHAT_TOOLS_GRAMMAR_IMPL_H

#include "base/err.h"
#include "controller/chat/tools_grammar.h"

struct call_maker {
	const struct tools_grammar *g;
	const struct tools_format *f;
	const struct tools_spelling *s;
	size_t *bytes; /* bytes of the values' schemas so far, in formats that write values separately */
	size_t *steps; /* steps taken to expand these schemas */
	struct why *why;
};

/* Set *out to the arguments of a call in the format's syntax.  Return 0 or an error, as tools_grammar(). */
int arguments_part(const struct call_maker *m, const json_t *function, json_t **out);

#endif
