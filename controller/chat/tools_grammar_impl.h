/* tools_grammar_impl.h - what the files of tools_grammar.h share. */
#ifndef QUERN_CONTROLLER_CHAT_TOOLS_GRAMMAR_IMPL_H
#define QUERN_CONTROLLER_CHAT_TOOLS_GRAMMAR_IMPL_H

#include "controller/chat/tools_grammar.h"

struct call_maker {
	const struct tools_grammar *g;
	const struct tools_format *f;
	const struct tools_spelling *s;
	size_t *bytes; /* of the values' schemas so far, in formats that write values one by one */
	size_t *steps; /* that expanding these took */
	char *why;
	size_t why_n;
};

/* The arguments of a call, as the format writes them.  0 or an error, as tools_grammar(). */
int arguments_part(const struct call_maker *m, const json_t *function, json_t **out);

#endif
