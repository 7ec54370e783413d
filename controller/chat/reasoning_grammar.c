#include "controller/chat/reasoning_grammar.h"

/* Newlines after reasoning belong to neither part (reasoning.h); models write two. */
static const char gap[] = "\n{0,2}";

/* Append the rest of the reasoning, from within it to its closing marker. */
static void put_reasoning(json_t *parts, const struct reasoning_grammar *t)
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

json_t *reasoning_grammar(const struct reasoning_grammar *t, json_t *answer)
{
	json_t *parts = json_array(), *reasoning = json_array();
	if (t->place == REASONING_OPEN) {
		put_reasoning(parts, t);
	} else if (t->place == REASONING_OPTIONAL && t->budget) {
		json_array_append_new(reasoning, composite_regex(gap));
		composite_put_spelled(reasoning, t->open, &t->specials);
		put_reasoning(reasoning, t);
		json_array_append_new(parts, composite_option(composite_sequence(json_incref(reasoning))));
	}
	json_decref(reasoning);
	json_array_append_new(parts, answer);
	return composite_sequence(parts);
}
