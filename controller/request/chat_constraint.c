#include "controller/request/chat_constraint.h"

#include "controller/chat/reasoning.h"
#include "controller/chat/tools_grammar.h"
#include "controller/request/chat_request.h"
#include "controller/request/constraint_request.h"

#include <errno.h>

static bool is_special(const void *tokenizer, const char *text, size_t n)
{
	struct token_ids ids = {0};
	tokenizer_encode(tokenizer, text, n, 0, NULL, 0, &ids, NULL);
	const bool special = ids.n == 1 && tokenizer_is_special(tokenizer, ids.ids[0]);
	token_ids_fini(&ids);
	return special;
}

static struct composite_specials specials_of(const struct service *svc)
{
	return (struct composite_specials){is_special, svc->tokenizer};
}

/* Return true if the tools constrain the outputs. */
static bool has_tool_grammar(const struct chat_constraint *c)
{
	const struct tool_request *t = c->tools;
	return t->forced || t->required || (t->may_call && (t->strict || t->allowed || c->answer));
}

/* Build the constraint of the tools.  *part: NULL if no tool may be called, or calls are not constrained. */
static int tools_part(const struct chat_constraint *c, const json_t *answer, struct grammar_account *account,
		      json_t **part, struct api_problem *p)
{
	const struct tool_request *t = c->tools;
	json_t *callable = tool_request_callable(t);
	const bool continued = c->reasoning == REASONING_ENDED; /* continued_part() adds the alternatives to a
							    * call */
	const struct tools_grammar g = {.style = c->svc->tools,
					.need = t->forced                  ? TOOLS_BEGUN
						: t->required || continued ? TOOLS_REQUIRED
									   : TOOLS_FREE,
					.tools = callable,
					.named = t->forced,
					.parallel = c->parallel_calls,
					.answer = answer,
					.account = account,
					.specials = specials_of(c->svc)};
	struct why why;
	*part = NULL;
	int rc = has_tool_grammar(c) ? tools_grammar(&g, part, &why) : 0;
	json_decref(callable);
	if (rc == -EAGAIN)
		return constraint_request_spent("tools", why.text, p);
	return rc ? api_fail(p, E_BAD_REQUEST, "tools", "tools: %s", why.text) : 0;
}

/* If the error is in the answer's own constraint, replace *p: the position is then in the answer's field.
 * Returns -EINVAL. */
static int answer_problem(const struct chat_constraint *c, struct grammar_account *account,
			  struct api_problem *p)
{
	struct api_problem own;
	struct constraint *alone = NULL;
	if (c->answer && !grammar_is_spent(account) &&
	    constraint_request_compile(c->answer, c->answer_field, c->exact, c->svc->checked, account, &alone,
				       &own))
		*p = own;
	constraint_free(alone);
	return -EINVAL;
}

/* Return the texts that may stand before an answer (first 0) or after it (1). */
static json_t *frame_part(const struct reasoning_marks *m, int first,
			  const struct composite_specials *specials)
{
	json_t *ways = json_array();
	for (int i = first; i < REASONING_FRAMES_MAX && m->frames[i]; i += 2)
		json_array_append_new(ways, composite_spelled(m->frames[i], specials));
	return composite_option(composite_either(ways));
}

static json_t *framed(const struct reasoning_marks *m, const struct composite_specials *specials,
		      json_t *answer)
{
	if (!answer || !m->frames[0])
		return answer;
	return composite_sequence(
		json_pack("[o, o, o]", frame_part(m, 0, specials), answer, frame_part(m, 1, specials)));
}

/* Return the answer's constraint with the texts around it. */
static json_t *answer_part(const struct chat_constraint *c, const struct channels *channels,
			   const struct composite_specials *specials)
{
	json_t *answer = framed(chat_request_marks(c->svc), specials, json_incref((json_t *)c->answer));
	/* If a final message is continued, its header is in the prompt. */
	return answer && channels && c->reasoning != REASONING_ENDED
		       ? channels_answer(channels, specials, answer)
		       : answer;
}

/* Return free text without more reasoning: reasoning in the answer would have no budget. */
static json_t *free_part(const struct chat_constraint *c, const struct channels *channels, const char *open,
			 const struct composite_specials *specials)
{
	if (channels && !c->tools->may_call)
		return channels_answer(channels, specials, composite_text(NULL));
	return framed(chat_request_marks(c->svc), specials,
		      tools_any_text(c->tools->may_call ? c->svc->tools : TOOLS_NONE, specials,
				     c->reasoning == REASONING_OPTIONAL ? open : NULL));
}

/* Return a message that follows the one with which the prompt ends. */
static json_t *next_message(const struct channels *c, const struct composite_specials *specials,
			    json_t *message)
{
	json_t *parts = json_array();
	composite_put_spelled(parts, c->next, specials);
	json_array_append_new(parts, message);
	return composite_sequence(parts);
}

/* Return the rest of a message that the prompt has begun, then calls.  If the answer has a constraint, return
 * calls only: the constraint covers the answer's whole text. */
static json_t *continued_part(const struct chat_constraint *f, const struct channels *c,
			      const struct composite_specials *specials, json_t *answer, json_t *calls)
{
	json_t *parts = json_array(), *marks = json_pack("[s]", c->start);
	for (int i = 0; i < CHANNELS_ENDS_MAX; i++)
		json_array_append_new(marks, json_string(c->ends[i]));
	composite_put_spelled(parts, c->end, specials);
	json_array_append_new(parts, next_message(c, specials, calls));
	json_t *behind = composite_sequence(parts);
	if (answer && !f->tools->required) {
		json_decref(marks);
		return composite_either(json_pack("[O, o]", answer, behind));
	}
	return composite_sequence(json_pack("[o, o]", composite_text(marks),
					    f->tools->required ? behind : composite_option(behind)));
}

int chat_constraint_make(const struct chat_constraint *c, struct constraint **out, struct api_problem *p)
{
	const struct composite_specials specials = specials_of(c->svc);
	const struct reasoning_marks *marks = chat_request_marks(c->svc);
	const struct channels *channels = marks->channels;
	/* If the prompt ends within reasoning, the reasoning must end, whether the reply shows it or not. */
	const bool may_think = c->svc->reasoning || (channels && c->reasoning == REASONING_OPEN);
	/* The prompt of a forced call has closed the reasoning. */
	const bool thinks = may_think && c->reasoning != REASONING_NONE && c->reasoning != REASONING_ENDED &&
			    !c->tools->forced;
	const bool bounded = thinks && c->thinking_budget >= 0;
	const char *field = has_tool_grammar(c) ? "tools"
			    : c->answer         ? c->answer_field
						: "thinking_token_budget";
	const struct reasoning_grammar reasoning = {.place = c->reasoning,
						    .open = marks->open,
						    .close = marks->close,
						    .next = channels ? channels->next : NULL,
						    .budget = c->thinking_budget,
						    .specials = specials};
	struct grammar_account account = {.units = CONSTRAINT_WORK_MAX};
	json_t *part, *answer = answer_part(c, channels, &specials);
	*out = NULL;
	int rc = tools_part(c, answer, &account, &part, p);
	if (!rc && part && c->reasoning == REASONING_ENDED)
		part = continued_part(c, channels, &specials, answer, part);
	if (!rc && !part)
		part = json_incref(answer);
	if (!rc && part && channels && c->reasoning == REASONING_NONE && !c->tools->forced)
		part = next_message(channels, &specials, part);
	if (!rc && !part && bounded)
		part = free_part(c, channels, reasoning.open, &specials);
	if (!rc && part && thinks)
		part = reasoning_grammar(&reasoning, part);
	if (!rc && part &&
	    (rc = constraint_request_compile(part, field, c->exact, c->svc->checked, &account, out, p)))
		rc = answer_problem(c, &account, p);
	json_decref(answer);
	json_decref(part);
	return rc;
}
