#include "controller/chat/tools_grammar_impl.h"

#include "base/err.h"
#include "controller/chat/tools.h"

#include <string.h>

/* ---- calls ---- */

static const json_t *function_of(const json_t *tool)
{
	return json_object_get(tool, "function");
}

static const char *name_of(const json_t *tool)
{
	return json_string_value(json_object_get(function_of(tool), "name"));
}

/* Make a call of this tool from its name to its end. */
static int call_part(const struct call_maker *m, const json_t *tool, json_t **out)
{
	json_t *args, *parts = json_array();
	int rc = arguments_part(m, function_of(tool), &args);
	if (rc) {
		json_decref(parts);
		return err_prefix(m->why, rc, "tool %.64s", name_of(tool));
	}
	composite_put_spelled(parts, name_of(tool), &m->g->specials);
	composite_put_spelled(parts, m->s->args, &m->g->specials);
	json_array_append_new(parts, args);
	composite_put_spelled(parts, m->s->close, &m->g->specials);
	*out = composite_sequence(parts);
	return 0;
}

/* Make a call of one of the tools. */
static int any_call(const struct call_maker *m, json_t **out)
{
	json_t *tool, *call = NULL, *calls = json_array(), *parts = json_array();
	size_t i;
	json_array_foreach(m->g->tools, i, tool)
	{
		if (m->g->named && strcmp(name_of(tool), m->g->named) != 0)
			continue;
		int rc = call_part(m, tool, &call);
		if (rc) {
			json_decref(calls);
			json_decref(parts);
			return rc;
		}
		json_array_append_new(calls, call);
	}
	composite_put_spelled(parts, m->s->call, &m->g->specials);
	json_array_append_new(parts, composite_either(calls));
	*out = composite_sequence(parts);
	return 0;
}

/* Make all calls of an output. */
static int calls_part(const struct call_maker *m, json_t **out)
{
	json_t *call = NULL, *parts = json_array(), *more = json_array();
	int rc = any_call(m, &call);
	if (rc) {
		json_decref(parts);
		json_decref(more);
		return rc;
	}
	composite_put_spelled(parts, m->s->open, &m->g->specials);
	json_array_append(parts, call);
	composite_put_spelled(more, m->s->between, &m->g->specials);
	json_array_append_new(more, call);
	json_t *rest = composite_sequence(more);
	if (m->g->parallel && !m->s->alone)
		json_array_append_new(parts, composite_repeat(rest, 0, TOOLS_CALLS_MAX - 1));
	else
		json_decref(rest);
	composite_put_spelled(parts, m->s->end, &m->g->specials);
	*out = composite_sequence(parts);
	return 0;
}

/* Make the rest of a call after a prompt that ends with the format's `after`. */
static int begun_part(const struct call_maker *m, json_t **out)
{
	const char *after = m->f->after, *args = m->s->args;
	json_t *tool, *part = NULL, *parts = json_array();
	size_t i;
	int rc = 0;
	while (*after && *args && *after == *args)
		after++, args++;
	if (!*after)
		composite_put_spelled(parts, args, &m->g->specials);
	json_array_foreach(m->g->tools, i, tool)
	{
		if (part || strcmp(name_of(tool), m->g->named) != 0)
			continue;
		rc = arguments_part(m, function_of(tool), &part);
		if (rc) {
			json_decref(parts);
			return err_prefix(m->why, rc, "tool %.64s", name_of(tool));
		}
		json_array_append_new(parts, part);
	}
	composite_put_spelled(parts, m->s->close, &m->g->specials);
	composite_put_spelled(parts, m->s->end, &m->g->specials);
	*out = composite_sequence(parts);
	return 0;
}

/* ---- text ---- */

/* Make text in which no call begins. A mark that is a special token is excluded as ordinary text too, since
 * tools.h reads the text. */
static json_t *plain_text(const struct tools_format *f)
{
	if (f->at_start) /* the text begins neither with a mark nor with its tag */
		return composite_regex(f->marks[0].text[0] == '['
					       ? "[ \\t\\r\\n]*([^ \\t\\r\\n<\\[][\\s\\S]*)?"
					       : "[ \\t\\r\\n]*([^ \\t\\r\\n<{][\\s\\S]*)?");
	json_t *until = json_array();
	for (int i = 0; i < TOOLS_MARKS_MAX && f->marks[i].text; i++)
		json_array_append_new(until, json_string(f->marks[i].text));
	return composite_text(until);
}

/* Make an optional message before calls. */
static json_t *preamble(const struct channels *c, const struct composite_specials *s)
{
	json_t *parts = json_array();
	composite_put_spelled(parts, c->preamble, s);
	json_array_append_new(parts, composite_text(NULL));
	composite_put_spelled(parts, c->end, s);
	composite_put_spelled(parts, c->next, s);
	return composite_option(composite_sequence(parts));
}

static json_t *answer_or_calls(const struct channels *c, const struct composite_specials *s, json_t *calls)
{
	json_t *answer = channels_answer(c, s, composite_text(NULL));
	return composite_either(
		json_pack("[o, o]", answer, composite_sequence(json_pack("[o, o]", preamble(c, s), calls))));
}

json_t *channels_answer(const struct channels *c, const struct composite_specials *s, json_t *part)
{
	json_t *parts = json_array();
	composite_put_spelled(parts, c->answer, s);
	json_array_append_new(parts, part);
	return composite_sequence(parts);
}

static json_t *text_or_calls(const struct tools_format *f, const struct composite_specials *s, json_t *calls)
{
	if (f->channels)
		return answer_or_calls(f->channels, s, calls);
	json_t *text = plain_text(f);
	if (f->at_start) /* calls are at the very beginning, or there are none */
		return composite_either(json_pack("[o, o]", text, calls));
	return composite_sequence(json_pack("[o, o]", text, composite_option(calls)));
}

int tools_grammar(const struct tools_grammar *g, json_t **out, struct why *why)
{
	size_t bytes = 0, steps = 0;
	struct call_maker m = {
		.g = g, .f = tools_format(g->style), .bytes = &bytes, .steps = &steps, .why = why};
	*out = NULL;
	if (!m.f)
		return err_why(why, -ENOTSUP, "the model's format of calls is not known");
	m.s = &m.f->spellings[0];
	for (int i = 1;
	     i < TOOLS_SPELLINGS_MAX && m.s->needs && !composite_is_special(&g->specials, m.s->needs); i++)
		m.s = &m.f->spellings[i];
	if (g->need == TOOLS_BEGUN)
		return begun_part(&m, out);
	int rc = calls_part(&m, out);
	if (rc == 0 && g->need == TOOLS_FREE && g->answer)
		*out = composite_either(json_pack("[o, O]", *out, g->answer));
	else if (rc == 0 && g->need == TOOLS_FREE)
		*out = text_or_calls(m.f, &g->specials, *out);
	return rc;
}

/* Make a call of any tool with any arguments, or an answer. */
static json_t *any_message(const struct channels *c, const struct composite_specials *s)
{
	json_t *parts = json_array(), *type = json_array();
	composite_put_spelled(parts, c->call_open, s);
	json_array_append_new(parts, composite_text(NULL));
	composite_put_spelled(type, c->constrain, s);
	json_array_append_new(type, composite_text(NULL));
	json_array_append_new(parts, composite_option(composite_sequence(type)));
	composite_put_spelled(parts, c->message, s);
	json_array_append_new(parts, composite_text(NULL));
	return answer_or_calls(c, s, composite_sequence(parts));
}

json_t *tools_any_text(enum tools_style style, const struct composite_specials *s, const char *without)
{
	const struct tools_format *f = tools_format(style);
	if (f && f->channels)
		return any_message(f->channels, s);
	json_t *text = composite_text(without ? json_pack("[s]", without) : NULL), *spelled = json_array();
	json_t *tokens = json_array(), *part;
	size_t i;
	for (int k = 0; f && k < TOOLS_SPELLINGS_MAX; k++) {
		const struct tools_spelling *p = &f->spellings[k];
		const char *const texts[] = {p->open, p->call, p->args, p->close, p->between, p->end, f->tag};
		for (size_t t = 0; t < sizeof texts / sizeof *texts; t++)
			composite_put_spelled(spelled, texts[t], s);
	}
	const char *const tags[] = {f ? f->tags.key_open : NULL,    f ? f->tags.key_close : NULL,
				    f ? f->tags.value_open : NULL,  f ? f->tags.text_open : NULL,
				    f ? f->tags.value_close : NULL, f ? f->literals.quote : NULL};
	for (size_t t = 0; t < sizeof tags / sizeof *tags; t++)
		composite_put_spelled(spelled, tags[t], s);
	json_array_foreach(spelled, i, part)
	{
		if (strcmp(json_string_value(json_object_get(part, "type")), "token") == 0)
			json_array_append(tokens, part);
	}
	json_decref(spelled);
	if (!json_array_size(tokens)) {
		json_decref(tokens);
		return text;
	}
	json_t *more = composite_sequence(json_pack("[o, O]", composite_either(tokens), text));
	return composite_sequence(json_pack("[o, o]", text, composite_repeat(more, 0, 1 << 20)));
}
