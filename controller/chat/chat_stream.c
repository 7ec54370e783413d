#include "controller/chat/chat_stream.h"

#include "base/alloc.h"
#include "base/entropy.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

bool chat_stream_parses(const struct chat_stream_rules *r)
{
	return r->reasoning || r->tools != TOOLS_NONE || (r->marks && r->marks->channels);
}

static void on_text(void *user, const char *p, size_t n)
{
	struct chat_stream *s = user;
	/* A forced call is the whole reply. */
	if (!s->called || !s->rules->forced)
		buf_put(&s->content, p, n);
}

static bool is_dropped(const struct chat_stream *s, uint32_t call)
{
	return call > 0 && (s->rules->single_call || s->rules->forced);
}

static struct chat_stream_call *call_delta(struct chat_stream *s, uint32_t call)
{
	if (s->n_calls && s->calls[s->n_calls - 1].index == call)
		return &s->calls[s->n_calls - 1];
	if (s->n_calls == s->cap_calls) {
		array_grow(s->calls, s->cap_calls, s->n_calls + (size_t)1);
		memset(s->calls + s->n_calls, 0, (s->cap_calls - s->n_calls) * sizeof *s->calls);
	}
	struct chat_stream_call *c = &s->calls[s->n_calls++];
	c->index = call;
	return c;
}

static void on_begin(void *user, uint32_t call, const char *name, size_t n)
{
	struct chat_stream *s = user;
	if (is_dropped(s, call))
		return;
	struct chat_stream_call *c = call_delta(s, call);
	s->called = true;
	const uint64_t high = s->ids ? XXH3_64bits_withSeed(&call, sizeof call, s->ids) : entropy_u64();
	const uint64_t low = s->ids ? XXH3_64bits_withSeed(&call, sizeof call, ~s->ids) : entropy_u64();
	snprintf(c->id, sizeof c->id, "call_%016" PRIx64 "%08" PRIx32, high, (uint32_t)low);
	buf_put(&c->name, name, n);
}

static void on_arguments(void *user, uint32_t call, const char *p, size_t n)
{
	struct chat_stream *s = user;
	if (!is_dropped(s, call))
		buf_put(&call_delta(s, call)->arguments, p, n);
}

static struct tools_sink sink_of(struct chat_stream *s)
{
	return (struct tools_sink){on_text, on_begin, on_arguments, s};
}

void chat_stream_init(struct chat_stream *s, const struct chat_stream_rules *rules)
{
	chat_stream_init_as(s, rules, 0);
}

void chat_stream_init_as(struct chat_stream *s, const struct chat_stream_rules *rules, uint64_t ids)
{
	*s = (struct chat_stream){.rules = rules, .ids = ids};
	reasoning_init(&s->splitter, rules->reasoning_open);
	if (rules->marks)
		s->splitter.marks = rules->marks;
	if (rules->continued) /* its first byte does not begin a line */
		s->splitter.messages =
			(struct channels_split){CHANNELS_ANSWER, .began = true, .answers = true};
	tools_init(&s->parser, rules->tools, rules->declared);
	if (rules->forced) {
		struct tools_sink to = sink_of(s);
		struct buf begun = {0};
		chat_stream_force(&begun, rules->tools, rules->forced);
		s->parser.forced = true;
		tools_push(&s->parser, begun.p, begun.len, &to);
		/* If it is not a call after all, only the generated text is content. */
		buf_clear(&s->parser.raw);
		buf_fini(&begun);
	}
}

void chat_stream_fini(struct chat_stream *s)
{
	reasoning_fini(&s->splitter);
	tools_fini(&s->parser);
	buf_fini(&s->reasoning);
	buf_fini(&s->content);
	buf_fini(&s->answer);
	for (uint32_t i = 0; i < s->cap_calls; i++) {
		buf_fini(&s->calls[i].name);
		buf_fini(&s->calls[i].arguments);
	}
	free(s->calls);
}

static void parse_answer(struct chat_stream *s)
{
	struct tools_sink to = sink_of(s);
	if (s->answer.len)
		tools_push(&s->parser, s->answer.p, s->answer.len, &to);
	buf_clear(&s->answer);
	if (!s->rules->show_reasoning)
		buf_clear(&s->reasoning);
}

void chat_stream_push(struct chat_stream *s, const char *p, size_t n)
{
	const struct chat_stream_rules *r = s->rules;
	const bool channels = r->marks && r->marks->channels;
	if ((r->reasoning || channels) && !r->forced)
		reasoning_push(&s->splitter, p, n, r->reasoning ? &s->reasoning : &s->answer, &s->answer);
	else
		buf_put(&s->answer, p, n);
	parse_answer(s);
}

void chat_stream_end(struct chat_stream *s)
{
	struct tools_sink to = sink_of(s);
	reasoning_end(&s->splitter, s->rules->reasoning ? &s->reasoning : &s->answer, &s->answer);
	parse_answer(s);
	tools_end(&s->parser, &to);
}

bool chat_stream_has_delta(const struct chat_stream *s)
{
	return s->reasoning.len || s->content.len || s->n_calls;
}

void chat_stream_take_delta(struct chat_stream *s)
{
	buf_clear(&s->reasoning);
	buf_clear(&s->content);
	for (uint32_t i = 0; i < s->n_calls; i++) {
		s->calls[i].id[0] = '\0';
		buf_clear(&s->calls[i].name);
		buf_clear(&s->calls[i].arguments);
	}
	s->n_calls = 0;
}

void chat_stream_force(struct buf *prompt, enum tools_style style, const char *name)
{
	const struct tools_format *f = tools_format(style);
	buf_puts(prompt, f->before);
	buf_puts(prompt, name);
	/* No blank at the end: the first token of an object usually includes it. */
	buf_puts(prompt, f->after);
}
