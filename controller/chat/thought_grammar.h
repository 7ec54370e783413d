/* thought_grammar.h - the thought before an answer, as a part of a form (grammar/form_source.h): it ends
 * where the model ends it, or where its budget of tokens is spent.  What reasoning.h takes apart.  Pure. */
#ifndef QUERN_CONTROLLER_CHAT_THOUGHT_GRAMMAR_H
#define QUERN_CONTROLLER_CHAT_THOUGHT_GRAMMAR_H

#include "controller/chat/form_parts.h"

#include <stdint.h>

enum thought_place {
	THOUGHT_NONE, /* the model does not think, or the prompt holds the thought */
	THOUGHT_OPEN, /* the prompt ends within it */
	THOUGHT_MAY,  /* the model opens one, or does not */
	THOUGHT_PAST, /* the prompt ends within the answer, a message of channels that is continued */
};

struct thought_grammar {
	enum thought_place place;
	const char *open, *close; /* "<think>", "</think>" */
	const char *next;         /* behind the thought, instead of blank lines; NULL: these */
	int64_t budget;           /* tokens of the output; 0: no thought; -1: no bound */
	struct form_specials specials;
};

/* The thought, and then answer, which is taken over. */
json_t *thought_grammar(const struct thought_grammar *t, json_t *answer);

#endif
