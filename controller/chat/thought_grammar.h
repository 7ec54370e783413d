/* thought_grammar.h - the reasoning before an answer as structured output (grammar/composite.h). It ends
 * where the model ends it, or when its token budget is spent. reasoning.h parses the result. Pure. */
#ifndef QUERN_CONTROLLER_CHAT_THOUGHT_GRAMMAR_H
#define QUERN_CONTROLLER_CHAT_THOUGHT_GRAMMAR_H

#include "controller/chat/composite_parts.h"

#include <stdint.h>

enum thought_place {
	THOUGHT_NONE, /* the model does not reason, or the prompt holds the reasoning */
	THOUGHT_OPEN, /* the prompt ends within the reasoning */
	THOUGHT_MAY,  /* the model may open the reasoning */
	THOUGHT_PAST, /* the prompt ends within the answer, in a continued message of a channel */
};

struct thought_grammar {
	enum thought_place place;
	const char *open, *close; /* "<think>", "</think>" */
	const char *next;         /* follows the reasoning; NULL: blank lines do */
	int64_t budget;           /* tokens of the output; 0: no reasoning; -1: unbounded */
	struct composite_specials specials;
};

/* Return the reasoning followed by answer.  Takes ownership of answer. */
json_t *thought_grammar(const struct thought_grammar *t, json_t *answer);

#endif
