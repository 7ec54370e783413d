#include "controller/chat/past_calls.h"

#include "base/alloc.h"
#include "base/json.h"
#include "controller/chat/tools.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- spelling a call ---- */

/* Append text of the request. */
static void put_plain(struct spelled_calls *s, const char *p, size_t n)
{
	struct text_span *last = s->n_plain ? &s->plain[s->n_plain - 1] : NULL;
	if (!n)
		return;
	if (last && last->end == s->text.len) {
		last->end += n;
	} else {
		array_grow(s->plain, s->cap_plain, s->n_plain + 1);
		s->plain[s->n_plain++] = (struct text_span){.start = s->text.len, .end = s->text.len + n};
	}
	buf_put(&s->text, p, n);
}

/* Append text of the format; a byte TOOLS_NUMBER stands for the call's number. */
static void put_mark(struct spelled_calls *s, const char *text, size_t number)
{
	for (; text && *text; text++)
		if (*text == TOOLS_NUMBER)
			buf_printf(&s->text, "%zu", number);
		else
			buf_putc(&s->text, *text);
}

static void put_json(struct spelled_calls *s, const json_t *v)
{
	char *text = json_text(v, JSON_ENCODE_ANY);
	if (text)
		put_plain(s, text, strlen(text));
	free(text);
}

static void put_literal(struct spelled_calls *s, const json_t *v, const char *quote);

/* Append the elements of a list or the members of an object. */
static void put_literals(struct spelled_calls *s, const json_t *v, const char *quote)
{
	const char *key;
	json_t *e;
	size_t i, n = 0;
	put_plain(s, json_is_array(v) ? "[" : "{", 1);
	json_array_foreach(v, i, e)
	{
		if (n++)
			put_plain(s, ", ", 2);
		put_literal(s, e, quote);
	}
	json_object_foreach((json_t *)v, key, e)
	{
		json_t *name = json_string(key);
		if (n++)
			put_plain(s, ", ", 2);
		put_literal(s, name, quote);
		put_plain(s, ": ", 2);
		put_literal(s, e, quote);
		json_decref(name);
	}
	put_plain(s, json_is_array(v) ? "]" : "}", 1);
}

/* Append a value as a Python literal. quote: encloses texts; NULL: texts as in JSON, which
 * Python reads too. */
static void put_literal(struct spelled_calls *s, const json_t *v, const char *quote)
{
	if (json_is_array(v) || json_is_object(v)) {
		put_literals(s, v, quote);
	} else if (quote && json_is_string(v)) {
		put_mark(s, quote, 0);
		put_plain(s, json_string_value(v), json_string_length(v));
		put_mark(s, quote, 0);
	} else if (!quote && (json_is_boolean(v) || json_is_null(v))) {
		const char *word = json_is_null(v) ? "None" : json_is_true(v) ? "True" : "False";
		put_plain(s, word, strlen(word));
	} else {
		put_json(s, v);
	}
}

/* Append arguments as key=value, ..., the inside of f(...). */
static void put_keywords(struct spelled_calls *s, const struct tools_literals *l, const json_t *arguments)
{
	const char *key;
	json_t *v;
	size_t n = 0;
	json_object_foreach((json_t *)arguments, key, v)
	{
		if (n++)
			put_plain(s, ", ", l->quote ? 1 : 2);
		put_plain(s, key, strlen(key));
		put_plain(s, &l->between, 1);
		put_literal(s, v, l->quote);
	}
}

/* Append arguments as keys and values between the format's tags. */
static void put_pairs(struct spelled_calls *s, const struct past_calls *p, const json_t *arguments)
{
	const struct tools_tags *tags = &p->format->tags;
	const struct tools_spelling *sp = p->spelling;
	const char *key;
	json_t *v;
	json_object_foreach((json_t *)arguments, key, v)
	{
		const bool text = json_is_string(v);
		put_mark(s, tags->key_open, 0);
		put_plain(s, key, strlen(key));
		put_mark(s, tags->key_close, 0);
		put_mark(s, sp->gap, 0);
		put_mark(s, text && tags->text_open ? tags->text_open : tags->value_open, 0);
		put_mark(s, sp->line, 0);
		if (text)
			put_plain(s, json_string_value(v), json_string_length(v));
		else
			put_json(s, v);
		put_mark(s, sp->line, 0);
		put_mark(s, tags->value_close, 0);
		put_mark(s, sp->pair_end, 0);
	}
}

static bool has_step(const struct tools_format *f, enum tools_op op)
{
	for (int i = 0; i < TOOLS_STEPS_MAX; i++)
		if (f->steps[i].op == op)
			return true;
	return false;
}

static void put_arguments(struct spelled_calls *s, const struct past_calls *p, const json_t *arguments)
{
	if (json_is_string(arguments)) /* not JSON: as written */
		put_plain(s, json_string_value(arguments), json_string_length(arguments));
	else if (has_step(p->format, TOOLS_OP_PAIRS))
		put_pairs(s, p, arguments);
	else if (has_step(p->format, TOOLS_OP_LITERALS))
		put_keywords(s, &p->format->literals, arguments);
	else if (arguments)
		put_json(s, arguments);
	else
		put_plain(s, "{}", 2);
}

static void spell(struct spelled_calls *s, const struct past_calls *p, const json_t *calls)
{
	const struct tools_spelling *sp = p->spelling;
	const json_t *call;
	size_t i;
	put_mark(s, sp->open, 0);
	json_array_foreach(calls, i, call)
	{
		const json_t *f = json_object_get(call, "function"), *name = json_object_get(f, "name");
		put_mark(s, i ? sp->between : NULL, i);
		put_mark(s, sp->call, i);
		put_plain(s, json_string_value(name), json_string_length(name));
		put_mark(s, sp->args, i);
		put_arguments(s, p, json_object_get(f, "arguments"));
		put_mark(s, sp->close, i);
	}
	put_mark(s, sp->end, 0);
}

/* ---- the placeholder words ---- */

enum { WORD_MAX = 64 };

static size_t word_of(const struct past_calls *p, size_t i, char out[WORD_MAX])
{
	return (size_t)snprintf(out, WORD_MAX, "Xcalls%" PRIu32 "n%zu.", p->nonce, i);
}

/* Return the smallest number with words that occur in no text of the messages. */
static uint32_t nonce_for(const json_t *messages)
{
	char *all = json_text(messages, 0), word[WORD_MAX];
	uint32_t nonce = 0;
	for (;; nonce++) {
		snprintf(word, sizeof word, "calls%" PRIu32 "n", nonce);
		if (!all || !strstr(all, word))
			break;
	}
	free(all);
	return nonce;
}

/* Append the word to a content, a string or parts, on its own line. */
static void append_word(json_t *message, const char *word)
{
	json_t *content = json_object_get(message, "content"), *text;
	if (json_is_array(content)) {
		content = json_copy(content);
		json_array_append_new(content, json_pack("{s:s, s:s}", "type", "text", "text", word));
		json_object_set_new(message, "content", content);
		return;
	}
	struct buf b = {0};
	buf_put(&b, json_string_value(content), json_string_length(content));
	buf_printf(&b, "%s%s", b.len && b.p[b.len - 1] != '\n' ? "\n" : "", word);
	text = json_stringn(b.p, b.len);
	buf_fini(&b);
	json_object_set_new(message, "content", text);
}

void past_calls_take(struct past_calls *p, const struct tools_format *format,
		     const struct tools_spelling *spelling, json_t *messages)
{
	json_t *m;
	size_t i;
	char word[WORD_MAX];
	*p = (struct past_calls){.format = format, .spelling = spelling, .nonce = nonce_for(messages)};
	json_array_foreach(messages, i, m)
	{
		const json_t *calls = json_object_get(m, "tool_calls");
		if (!json_array_size(calls))
			continue;
		array_grow(p->all, p->cap_all, p->n_all + 1);
		p->all[p->n_all] = (struct spelled_calls){0};
		spell(&p->all[p->n_all], p, calls);
		word_of(p, p->n_all++, word);
		append_word(m, word);
		json_object_del(m, "tool_calls");
	}
}

/* ---- the prompt ---- */

/* A prompt being built from another prompt, with its spans of plain text. */
struct copy {
	struct jinja_result *from, to;
	size_t at;   /* bytes of `from` copied or skipped */
	size_t span; /* spans of `from` done */
	size_t cap;
};

static void add_span(struct copy *c, size_t start, size_t end)
{
	if (start >= end)
		return;
	array_grow(c->to.input, c->cap, c->to.n_input + 1);
	c->to.input[c->to.n_input++] = (struct text_span){.start = start, .end = end};
}

/* Copy up to byte `end`, then skip n bytes. */
static void copy_to(struct copy *c, size_t end, size_t n)
{
	const struct jinja_result *from = c->from;
	const size_t shift = c->to.text.len;
	for (; c->span < from->n_input && from->input[c->span].start < end; c->span++) {
		const struct text_span s = from->input[c->span];
		const size_t start = s.start > c->at ? s.start : c->at, stop = s.end < end ? s.end : end;
		if (start < stop)
			add_span(c, shift + start - c->at, shift + stop - c->at);
		if (s.end > end)
			break;
	}
	buf_put(&c->to.text, from->text.p + c->at, end - c->at);
	c->at = end + n;
}

static void copy_calls(struct copy *c, const struct spelled_calls *s)
{
	const size_t shift = c->to.text.len;
	for (size_t i = 0; i < s->n_plain; i++)
		add_span(c, shift + s->plain[i].start, shift + s->plain[i].end);
	if (s->text.len)
		buf_put(&c->to.text, s->text.p, s->text.len);
}

void past_calls_put(const struct past_calls *p, struct jinja_result *r)
{
	struct copy c = {.from = r};
	char word[WORD_MAX];
	for (size_t i = 0; i < p->n_all && c.at < r->text.len; i++) {
		const size_t n = word_of(p, i, word);
		const char *hit = memmem(r->text.p + c.at, r->text.len - c.at, word, n);
		if (!hit)
			continue;
		copy_to(&c, (size_t)(hit - r->text.p), n);
		copy_calls(&c, &p->all[i]);
	}
	if (!c.at)
		return;
	copy_to(&c, r->text.len, 0);
	jinja_result_fini(r);
	*r = c.to;
}

void past_calls_fini(struct past_calls *p)
{
	for (size_t i = 0; i < p->n_all; i++) {
		buf_fini(&p->all[i].text);
		free(p->all[i].plain);
	}
	free(p->all);
	*p = (struct past_calls){0};
}
