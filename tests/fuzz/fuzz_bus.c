/* fuzz_bus.c - messages of the worker bus: plans, results and all others.
 *
 *   make fuzz, or: build/asan-fuzz/fuzz/fuzz_bus CORPUS tests/fuzz/seeds/fuzz_bus
 *
 * The first byte chooses the decoder, which gets a copy of the exact size.  Two more bytes choose whether the
 * rest is the message, or replaces bytes of a valid message, so that mutations get past the envelope.  A
 * decoded message must survive another encoding and decoding unchanged. */
#include "proto/bus.h"

#include "base/alloc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const struct bus_limits limits = {
	.max_slots = 8,
	.max_rows = 64,
	.max_runs = 8,
	.max_context = 128,
	.n_blocks = 16,
	.n_host_blocks = 4,
	.n_vocab = 100,
};

static void wrong(const char *what)
{
	fprintf(stderr, "fuzz_bus: %s\n", what);
	abort();
}

static void same(const struct buf *a, const struct buf *b)
{
	if (a->len != b->len || memcmp(a->p, b->p, a->len) != 0)
		wrong("what was decoded and encoded again decodes to something else");
}

/* Check that every field of a decoded plan is within the limits. */
static void check_plan(const struct plan *p)
{
	uint32_t rows = 0;
	for (uint32_t i = 0; i < p->n_seqs; i++) {
		const struct plan_seq *s = &p->seqs[i];
		uint32_t sum = s->params->n_stop_ids + s->params->n_bias + s->params->n_allowed;
		if (s->slot >= limits.max_slots || s->n_prompt > s->n_tokens || sum > 1u << 20)
			wrong("a sequence out of range");
		for (uint32_t k = 0; k < s->n_tokens; k++)
			if (s->tokens[k] >= limits.n_vocab)
				wrong("a token out of range");
		for (uint32_t k = 0; k < s->n_blocks; k++)
			if (s->blocks[k] >= limits.n_blocks)
				wrong("a block out of range");
	}
	for (uint32_t i = 0; i < p->n_constraints; i++)
		if (p->constraints[i].number == 0 || !p->constraints[i].constraint)
			wrong("a form without a number or a text");
	for (uint32_t i = 0; i < p->n_sets; i++)
		if (p->sets[i].slot >= limits.max_slots || p->sets[i].from >= limits.max_slots ||
		    p->sets[i].position >= limits.max_context || p->sets[i].token >= limits.n_vocab)
			wrong("a set token out of range");
	for (uint32_t i = 0; i < p->n_runs; i++) {
		rows += p->runs[i].n_rows;
		if (p->runs[i].pos0 + p->runs[i].n_rows > limits.max_context ||
		    p->runs[i].slot >= limits.max_slots)
			wrong("a run out of range");
	}
	if (rows != p->n_rows || rows > limits.max_rows)
		wrong("the rows do not add up");
}

static void fuzz_plan(const uint8_t *data, size_t n)
{
	static struct plan p, q; /* reused, as in the worker */
	struct buf one = {0}, two = {0};
	struct why why;
	if (bus_decode_plan(data, n, &limits, &p, &why) == 0) {
		check_plan(&p);
		bus_encode_plan(&p, &one);
		if (bus_decode_plan(one.p, one.len, &limits, &q, &why))
			wrong(why.text);
		bus_encode_plan(&q, &two);
		same(&one, &two);
	} else if (p.n_runs || p.n_seqs || p.n_constraints) {
		wrong("a refused plan is not empty");
	}
	buf_fini(&one);
	buf_fini(&two);
}

static void fuzz_result(const uint8_t *data, size_t n)
{
	static struct result r, s;
	struct buf one = {0}, two = {0};
	struct why why;
	if (bus_decode_result(data, n, &limits, &r, &why) == 0) {
		for (uint32_t i = 0; i < r.n_logprobs; i++)
			if ((uint64_t)r.logprobs[i].top0 + r.logprobs[i].n_top > r.n_top)
				wrong("entries that are not there");
		bus_encode_result(&r, &one);
		if (bus_decode_result(one.p, one.len, &limits, &s, &why))
			wrong(why.text);
		bus_encode_result(&s, &two);
		same(&one, &two);
	}
	buf_fini(&one);
	buf_fini(&two);
}

static void fuzz_vocabulary(const uint8_t *data, size_t n)
{
	static struct vocabulary v, w;
	struct buf one = {0}, two = {0};
	struct why why;
	if (bus_decode_vocabulary(data, n, limits.n_vocab, &v, &why) == 0) {
		for (uint32_t i = 0; i < v.n; i++)
			if (v.at[i + 1] - v.at[i] > VOCABULARY_TOKEN_BYTES_MAX ||
			    v.kinds[i] >= N_VOCABULARY_KINDS)
				wrong("a token out of range");
		bus_encode_vocabulary(&v, &one);
		if (bus_decode_vocabulary(one.p, one.len, limits.n_vocab, &w, &why))
			wrong(why.text);
		bus_encode_vocabulary(&w, &two);
		same(&one, &two);
	} else if (v.n) {
		wrong("a refused vocabulary is not empty");
	}
	buf_fini(&one);
	buf_fini(&two);
}

static void fuzz_files(const uint8_t *data, size_t n)
{
	struct manifest m, k;
	struct buf one = {0}, two = {0};
	struct why why;
	if (bus_decode_files(data, n, &m, &why) == 0) {
		for (uint32_t i = 0; i < m.n; i++)
			if (!manifest_name_is_valid(m.files[i].name) ||
			    strstr(m.files[i].name, "..") == m.files[i].name || m.files[i].size < 0)
				wrong("a file out of range");
		bus_encode_files(&m, "", &one);
		if (bus_decode_files(one.p, one.len, &k, &why))
			wrong(why.text);
		bus_encode_files(&k, "", &two);
		same(&one, &two);
		manifest_fini(&k);
		manifest_fini(&m);
	} else if (m.n) {
		wrong("a refused list is not empty");
	}
	buf_fini(&one);
	buf_fini(&two);
}

static void fuzz_chunk(const uint8_t *data, size_t n)
{
	struct bus_chunk k, again;
	struct buf one = {0}, two = {0};
	struct why why;
	if (bus_decode_chunk(data, n, &k, &why) == 0) {
		if (k.n == 0 || k.n > BUS_CHUNK_MAX)
			wrong("a chunk out of range");
		bus_encode_chunk(&k, "", &one);
		if (bus_decode_chunk(one.p, one.len, &again, &why))
			wrong(why.text);
		bus_encode_chunk(&again, "", &two);
		same(&one, &two);
	}
	buf_fini(&one);
	buf_fini(&two);
}

static void fuzz_message(const uint8_t *data, size_t n)
{
	struct bus_msg m, k;
	struct buf one = {0}, two = {0};
	struct why why;
	if (bus_decode(data, n, &m, &why) == 0) {
		bus_encode(&m, &one);
		if (bus_decode(one.p, one.len, &k, &why))
			wrong(why.text);
		bus_encode(&k, &two);
		same(&one, &two);
	}
	buf_fini(&one);
	buf_fini(&two);
}

/* ---- valid messages to start from ---- */

static void sound_plan(struct buf *out)
{
	static uint32_t tokens[] = {5, 6, 7}, blocks[] = {3};
	static uint32_t stop[] = {1, 2};
	static int32_t bias_ids[] = {9}, allowed[] = {3, 4}, bad[] = {4, 5, 6}, bad_len[] = {1, 2};
	static float bias[] = {-1.5f};
	struct params params;
	struct plan p = {.epoch = 2, .number = 9};
	params_init(&params);
	params.max_tokens = 12;
	params.stop_ids = stop, params.n_stop_ids = 2;
	params.bias_ids = bias_ids, params.bias = bias, params.n_bias = 1;
	params.allowed = allowed, params.n_allowed = 2;
	params.bad = bad, params.n_bad_ids = 3, params.bad_len = bad_len, params.n_bad = 2;
	*plan_add_drop(&p) = 4;
	struct constraint *constraint = constraint_new(1, "a|b", 3);
	*plan_add_drop_constraint(&p) = 6;
	*plan_add_constraint(&p) = (struct plan_constraint){7, constraint};
	*plan_add_seq(&p) = (struct plan_seq){1, 77, 2, 2, 3, 1, 7, 5, tokens, blocks, &params};
	*plan_add_set(&p) = (struct plan_set){3, 1, 3, 8};
	*plan_add_table(&p) = (struct plan_table){1, 1, 5, 0};
	*plan_add_fork(&p) = (struct plan_fork){1, 2, 3};
	*plan_add_swap_out(&p) = (struct plan_pair){7, 1};
	*plan_add_swap_in(&p) = (struct plan_pair){2, 8};
	*plan_add_copy(&p) = (struct plan_pair){3, 9};
	*plan_add_run(&p) = (struct plan_run){.slot = 1, .n_rows = 3, .flags = PLAN_SAMPLE, .from = 1};
	*plan_add_run(&p) = (struct plan_run){.slot = 2, .pos0 = 3, .flags = PLAN_SAMPLE, .from = 1};
	*plan_add_run(&p) = (struct plan_run){
		.slot = 3, .pos0 = 20, .n_rows = 4, .flags = PLAN_SAMPLE | PLAN_OPEN, .from = 3};
	bus_encode_plan(&p, out);
	constraint_free(constraint);
	plan_fini(&p);
}

static void sound_result(struct buf *out)
{
	struct result r = {.epoch = 2, .number = 9, .step_us = 1234};
	result_add_token(&r, 3);
	result_add_token(&r, 4);
	result_add_count(&r, 2);
	*result_add_logprob(&r) = (struct result_logprob){.slot = 1, .token = 3, .rank = 1, .n_top = 2};
	*result_add_logprob(&r) =
		(struct result_logprob){.slot = 2, .position = 3, .token = 4, .rank = 2, .prompt = true};
	result_add_top(&r, 3, -0.5f);
	result_add_top(&r, 4, -1.5f);
	result_add_failed(&r, 2, "too deep");
	bus_encode_result(&r, out);
	result_fini(&r);
}

static void sound_vocabulary(struct buf *out)
{
	struct vocabulary v = {0};
	vocabulary_add(&v, "ab", 2, VOCABULARY_TEXT);
	vocabulary_add(&v, "\xff<call>\xfe", 8, VOCABULARY_TEXT);
	vocabulary_add(&v, "</s>", 4, VOCABULARY_END);
	bus_encode_vocabulary(&v, out);
	vocabulary_fini(&v);
}

static void sound_files(struct buf *out)
{
	static const uint8_t digest[MANIFEST_DIGEST] = {1, 2, 3};
	struct manifest m = {.model = "demo"};
	manifest_add(&m, "1_Pooling/config.json", 5, digest, NULL);
	manifest_add(&m, "config.json", 100, digest, NULL);
	manifest_add(&m, "model.safetensors", (int64_t)5 << 30, digest, NULL);
	bus_encode_files(&m, "", out);
	manifest_fini(&m);
}

static void sound_chunk(struct buf *out)
{
	const struct bus_chunk k = {2, 1 << 20, "some bytes", 10};
	bus_encode_chunk(&k, "", out);
}

static void sound_message(struct buf *out, unsigned kind)
{
	struct bus_msg m = {.type = BUS_HELLO,
			    .hello = {.device = "cpu:0", .host = "here", .pid = 17, .compute = "int16"}};
	switch (kind % 7) {
	case 1:
		m = (struct bus_msg){.type = BUS_LOAD,
				     .load = {.model = "models/demo", .epoch = 3, .fast = true}};
		break;
	case 2:
		m = (struct bus_msg){.type = BUS_READY,
				     .ready = {.epoch = 3,
					       .n_blocks = 9,
					       .isa = "avx2",
					       .scratch_bytes = 5,
					       .device_bytes = 1u << 31}};
		break;
	case 3:
		m = (struct bus_msg){.type = BUS_FAILED, .failed = {3, "no memory"}};
		break;
	case 4:
		m = (struct bus_msg){.type = BUS_BEAT, .beat = {3, BUS_SERVING, 4, 5, 6}};
		m.beat.cells = (struct bus_cells){
			.n_all = 20, .n_experts = 5, .from = 5, .n = 3, .rows = {7, 1 << 20, 0}};
		break;
	case 5:
		m = (struct bus_msg){.type = BUS_STOP};
		break;
	case 6:
		m = (struct bus_msg){.type = BUS_WANT, .want = {3, 2, 1 << 20, BUS_CHUNK_MAX}};
		break;
	}
	bus_encode(&m, out);
}

/* Apply triples (16-bit offset, byte) of the input to the message.  An offset beyond the message truncates
 * it.  Return the length. */
static size_t spoil(struct buf *b, const uint8_t *data, size_t n)
{
	size_t len = b->len;
	for (size_t i = 0; i + 3 <= n; i += 3) {
		size_t at = (size_t)data[i] << 8 | data[i + 1];
		if (at < len)
			b->p[at] = (char)data[i + 2];
		else if (at < 2 * len)
			len = at - len;
	}
	return len;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	if (n < 3)
		return 0;
	unsigned which = data[0] % 6;
	struct buf sound = {0};
	const uint8_t *bytes = data + 3;
	size_t len = n - 3;
	if (data[1] & 1) {
		if (which == 0)
			sound_plan(&sound);
		else if (which == 1)
			sound_result(&sound);
		else if (which == 3)
			sound_vocabulary(&sound);
		else if (which == 4)
			sound_files(&sound);
		else if (which == 5)
			sound_chunk(&sound);
		else
			sound_message(&sound, data[2]);
		len = spoil(&sound, bytes, len);
		bytes = (const uint8_t *)sound.p;
	}
	uint8_t *exact = xmemdup(bytes, len); /* exact size, so that a read beyond the end is detected */
	if (which == 0)
		fuzz_plan(exact, len);
	else if (which == 1)
		fuzz_result(exact, len);
	else if (which == 3)
		fuzz_vocabulary(exact, len);
	else if (which == 4)
		fuzz_files(exact, len);
	else if (which == 5)
		fuzz_chunk(exact, len);
	else
		fuzz_message(exact, len);
	free(exact);
	buf_fini(&sound);
	return 0;
}
