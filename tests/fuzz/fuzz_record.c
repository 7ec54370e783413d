/* fuzz_record.c - damaged records of the journal with a valid checksum: an accepted record is within the
 * limits.  The first byte chooses the kind of record.
 *
 *   make fuzz, or: build/asan-fuzz/fuzz/fuzz_record CORPUS */
#include "controller/jobs/record.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum { VOCAB = 1664, N_STOP = 2 };

static const struct tokenizer *demo(void)
{
	static struct tokenizer *t;
	struct why why = {""};
	if (!t && tokenizer_load(QUERN_ROOT "/models/demo", &t, &why)) {
		fprintf(stderr, "fuzz_record: %s\n", why.text);
		exit(2);
	}
	return t;
}

static void request(struct cursor *c)
{
	struct submit *s = NULL;
	struct why why = {""};
	if (record_get_request(c, VOCAB, 1000, 2000, &s, &why)) {
		assert(why.text[0]);
		return;
	}
	assert(s->n_tokens > 0 && s->params.n >= 1 && s->params.n <= PARAMS_N_MAX &&
	       s->n_stop <= PARAMS_STOP_MAX);
	for (uint32_t i = 0; i < s->n_tokens; i++)
		assert(s->tokens[i] < VOCAB);
	/* An accepted record can be written and read back. */
	struct buf b = {0};
	struct cursor again;
	struct submit *t = NULL;
	record_put_request(&b, s, 1000, 2000);
	cursor_init(&again, b.p, b.len);
	int rc = record_get_request(&again, VOCAB, 1000, 2000, &t, &why);
	assert(rc == 0 && t->n_tokens == s->n_tokens);
	submit_free(t);
	submit_free(s);
	buf_fini(&b);
}

/* Migrate a request of a journal before format 4; an accepted result can be read. */
static void old_request(struct cursor *c)
{
	struct submit *s = NULL;
	struct buf b = {0};
	struct cursor again;
	struct why why = {""};
	if (record_migrate_request(c, &b, &why)) {
		assert(why.text[0] && b.len == 0);
		return;
	}
	cursor_init(&again, b.p, b.len);
	int rc = record_get_request(&again, UINT32_MAX, 1000, 2000, &s, &why);
	assert(rc == 0);
	submit_free(s);
	buf_fini(&b);
}

static void trace(struct cursor *c)
{
	struct trace_context t, got;
	record_get_trace(c, &t);
	assert(t.set == !c->bad);
	if (t.set) {
		struct buf b = {0};
		struct cursor again;
		record_put_trace(&b, &t);
		cursor_init(&again, b.p, b.len);
		record_get_trace(&again, &got);
		assert(got.set && memcmp(got.trace, t.trace, sizeof t.trace) == 0 &&
		       (!t.state || strcmp(got.state, t.state) == 0));
		trace_context_fini(&got);
		buf_fini(&b);
	}
	trace_context_fini(&t);
}

static void tokens(struct cursor *c)
{
	struct record_tokens t;
	record_get_tokens(c, &t);
	for (uint32_t i = 0; i < t.n; i++)
		for (uint32_t k = 0; k < t.tokens[i].n_top; k++)
			assert(t.top_ids[t.tokens[i].top0 + k] + 1 != t.top_logprobs[t.tokens[i].top0 + k] ||
			       true);
	record_tokens_fini(&t);
}

static void output(struct cursor *c, bool logprobs)
{
	static char *const stop[N_STOP] = {"a", "b"};
	struct output_rules r = {.tokenizer = demo(), .logprobs = logprobs, .stop = stop};
	struct output o;
	output_init(&o, 0, &r);
	record_get_output(c, &o, &r, N_STOP);
	if (!c->bad) {
		assert(o.finish != FINISH_NONE && o.n_shown == o.log.n && o.shown == o.text.len);
		for (uint32_t i = 0; i < o.log.n; i++)
			assert(o.start[i] <= o.text.len);
	}
	output_fini(&o);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	struct cursor c;
	if (n == 0)
		return 0;
	cursor_init(&c, data + 1, n - 1);
	switch (data[0] % 4) {
	case 0:
		if (data[0] < 64)
			request(&c);
		else if (data[0] < 128)
			old_request(&c);
		else
			trace(&c);
		break;
	case 1:
		tokens(&c);
		break;
	default:
		output(&c, data[0] % 4 == 3);
	}
	return 0;
}
