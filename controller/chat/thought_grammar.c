#include "controller/chat/thought_grammar.h"

/* Newlines after reasoning belong to neither part (reasoning.h); models write two. */
static const char gap[] = "\n{0,2}";

/* Append the rest of the reasoning, from within it to its closing marker. */
static void put_thought(json_t *parts, const struct thought_grammar *t)
{
	if (t->budget)
		json_array_append_new(parts, composite_text(json_pack("[s]", t->close)));
	if (t->budget > 0) {
		/* Cut the reasoning where the budget ends. */
		json_t *cut = json_pack("[{s:s, s:I}]", "type", "budget", "tokens", (json_int_t)t->budget);
		json_array_append_new(cut, composite_literal("\n", 1));
		json_array_append_new(parts, composite_option(composite_sequence(cut)));
	}
	if (!t->budget)
		json_array_append_new(parts, composite_option(composite_literal("\n", 1)));
	composite_put_spelled(parts, t->close, &t->specials);
	composite_put_spelled(parts, t->next, &t->specials);
	if (!t->next)
		json_array_append_new(parts, composite_regex(gap));
}

json_t *thought_grammar(const struct thought_grammar *t, json_t *answer)
{
	json_t *parts = json_array(), *thought = json_array();
	if (t->place == THOUGHT_OPEN) {
		put_thought(parts, t);
	} else if (t->place == THOUGHT_MAY && t->budget) {
		json_array_append_new(thought, composite_regex(gap));
		composite_put_spelled(thought, t->open, &t->specials);
		put_thought(thought, t);
		json_array_append_new(parts, composite_option(composite_sequence(json_incref(thought))));
	}
	json_decref(thought);
	json_array_append_new(parts, answer);
	return composite_sequence(parts);
}
