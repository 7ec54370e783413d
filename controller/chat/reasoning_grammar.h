/* reasoning_grammar.h - the reasoning before an answer as structured output (grammar/composite.h). It ends
 * where the model ends it, or when its token budget is spent. reasoning.h parses the result. Pure. */
#ifndef QUERN_CONTROLLER_CHAT_REASONING_GRAMMAR_H
#define QUERN_CONTROLLER_CHAT_REASONING_GRAMMAR_H

#include "controller/chat/composite_parts.h"

#include <stdint.h>

enum prompt_reasoning {
	REASONING_NONE,     /* the model does not reason, or the prompt holds the reasoning */
	REASONING_OPEN,     /* the prompt ends within the reasoning */
	REASONING_OPTIONAL, /* the model may open the reasoning */
	REASONING_ENDED,    /* the prompt ends within the answer, in a continued message of a channel */
};

struct reasoning_grammar {
	enum prompt_reasoning place;
	const char *open, *close; /* "<think>", "</think>" */
	const char *next;         /* follows the reasoning; NULL: blank lines do */
	int64_t budget;           /* tokens of the output; 0: no reasoning; -1: unbounded */
	struct composite_specials specials;
};

/* Return the reasoning followed by answer.  Takes ownership of answer. */
json_t *reasoning_grammar(const struct reasoning_grammar *t, json_t *answer);

#endif
