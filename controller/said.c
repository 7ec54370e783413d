#include "controller/said.h"

#include "base/alloc.h"
#include "controller/entropy.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool said_parses(const struct said_rules *r)
{
	return r->thoughts || r->tools != TOOLS_NONE;
}

static void on_text(void *user, const char *p, size_t n)
{
	struct said *a = user;
	/* Behind a call that was asked for there is nothing more to say. */
	if (!a->called || !a->rules->forced)
		buf_put(&a->text, p, n);
}

static bool left_out(const struct said *a, uint32_t call)
{
	return call > 0 && (a->rules->one_call || a->rules->forced);
}

static struct said_call *call_news(struct said *a, uint32_t call)
{
	if (a->n_calls && a->calls[a->n_calls - 1].index == call)
		return &a->calls[a->n_calls - 1];
	if (a->n_calls == a->cap_calls) {
		a->cap_calls = a->cap_calls ? a->cap_calls * 2 : 2;
		a->calls = xrealloc(a->calls, a->cap_calls, sizeof *a->calls);
		memset(a->calls + a->n_calls, 0, (a->cap_calls - a->n_calls) * sizeof *a->calls);
	}
	struct said_call *c = &a->calls[a->n_calls++];
	c->index = call;
	return c;
}

static void on_begin(void *user, uint32_t call, const char *name, size_t n)
{
	struct said *a = user;
	if (left_out(a, call))
		return;
	struct said_call *c = call_news(a, call);
	a->called = true;
	snprintf(c->id, sizeof c->id, "call_%016" PRIx64 "%08" PRIx32, entropy_u64(),
		 (uint32_t)entropy_u64());
	buf_put(&c->name, name, n);
}

static void on_arguments(void *user, uint32_t call, const char *p, size_t n)
{
	struct said *a = user;
	if (!left_out(a, call))
		buf_put(&call_news(a, call)->arguments, p, n);
}

static struct tools_sink sink_of(struct said *a)
{
	return (struct tools_sink){on_text, on_begin, on_arguments, a};
}

void said_init(struct said *a, const struct said_rules *rules)
{
	*a = (struct said){.rules = rules};
	reasoning_init(&a->reasoning, rules->thought_open);
	tools_init(&a->tools, rules->tools);
	if (rules->forced) {
		struct tools_sink to = sink_of(a);
		struct buf begun = {0};
		said_force(&begun, rules->tools, rules->forced);
		tools_push(&a->tools, begun.p, begun.len, &to);
		/* What turns out to be no call comes out as text, without what the model did not say. */
		buf_clear(&a->tools.raw);
		buf_fini(&begun);
	}
}

void said_fini(struct said *a)
{
	reasoning_fini(&a->reasoning);
	tools_fini(&a->tools);
	buf_fini(&a->thought);
	buf_fini(&a->text);
	buf_fini(&a->spoken);
	for (uint32_t i = 0; i < a->cap_calls; i++) {
		buf_fini(&a->calls[i].name);
		buf_fini(&a->calls[i].arguments);
	}
	free(a->calls);
}

/* What the splitter took for the answer goes on to the calls. */
static void spoken(struct said *a)
{
	struct tools_sink to = sink_of(a);
	if (a->spoken.len)
		tools_push(&a->tools, a->spoken.p, a->spoken.len, &to);
	buf_clear(&a->spoken);
	if (!a->rules->show_thoughts)
		buf_clear(&a->thought);
}

void said_push(struct said *a, const char *p, size_t n)
{
	if (a->rules->thoughts && !a->rules->forced)
		reasoning_push(&a->reasoning, p, n, &a->thought, &a->spoken);
	else
		buf_put(&a->spoken, p, n);
	spoken(a);
}

void said_end(struct said *a)
{
	struct tools_sink to = sink_of(a);
	reasoning_end(&a->reasoning, &a->thought, &a->spoken);
	spoken(a);
	tools_end(&a->tools, &to);
}

bool said_has_news(const struct said *a)
{
	return a->thought.len || a->text.len || a->n_calls;
}

void said_told(struct said *a)
{
	buf_clear(&a->thought);
	buf_clear(&a->text);
	for (uint32_t i = 0; i < a->n_calls; i++) {
		a->calls[i].id[0] = '\0';
		buf_clear(&a->calls[i].name);
		buf_clear(&a->calls[i].arguments);
	}
	a->n_calls = 0;
}

void said_force(struct buf *prompt, enum tools_style style, const char *name)
{
	/* No blank at the end: the first token of an object usually has it. */
	if (style == TOOLS_HERMES)
		buf_printf(prompt, "<tool_call>\n{\"name\": \"%s\", \"arguments\":", name);
	else
		buf_printf(prompt, "{\"name\": \"%s\", \"parameters\":", name);
}
