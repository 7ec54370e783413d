/* The bus: encoded messages are decoded unchanged, and damaged messages are refused by name. */
#include "base/alloc.h"
#include "proto/bus.h"
#include "proto/cursor.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const struct bus_limits limits = {
	.max_slots = 8,
	.max_rows = 64,
	.max_runs = 8,
	.max_context = 128,
	.n_blocks = 16,
	.n_host_blocks = 4,
	.n_vocab = 100,
};

static void refuse(const struct buf *b, const char *expect)
{
	struct plan p = {0};
	struct why why = {""};
	cr_assert_eq(bus_decode_plan(b->p, b->len, &limits, &p, &why), -EBADMSG);
	cr_assert(strstr(why.text, expect), "got: %s, expected: %s", why.text, expect);
	cr_assert_eq(p.n_runs, 0);
	bus_plan_fini(&p);
}

static void fill_plan(struct plan *p, struct params *params)
{
	static const uint32_t tokens[] = {5, 6, 7}, blocks[] = {3};
	p->epoch = 2;
	p->number = 9;
	*plan_add_drop(p) = 4;
	*plan_add_seq(p) = (struct plan_seq){.slot = 1,
					     .seq = 77,
					     .index = 2,
					     .n_prompt = 2,
					     .n_tokens = 3,
					     .n_blocks = 1,
					     .tokens = tokens,
					     .blocks = blocks,
					     .params = params};
	*plan_add_set(p) = (struct plan_set){3, 1, 3, 99};
	*plan_add_table(p) = (struct plan_table){1, 1, 5, 0};
	*plan_add_fork(p) = (struct plan_fork){1, 2, 3};
	*plan_add_swap_out(p) = (struct plan_pair){7, 1};
	*plan_add_swap_in(p) = (struct plan_pair){2, 8};
	*plan_add_copy(p) = (struct plan_pair){3, 9};
	*plan_add_run(p) =
		(struct plan_run){.slot = 1, .pos0 = 0, .n_rows = 3, .flags = PLAN_SAMPLE, .from = 1};
	*plan_add_run(p) =
		(struct plan_run){.slot = 2, .pos0 = 3, .n_rows = 0, .flags = PLAN_SAMPLE, .from = 1};
	*plan_add_run(p) = (struct plan_run){
		.slot = 3, .pos0 = 20, .n_rows = 4, .flags = PLAN_SAMPLE | PLAN_OPEN, .from = 3};
}

static void fill_params(struct params *p)
{
	params_init(p);
	p->max_tokens = 12;
	p->temperature = 0.5f;
	p->beam_width = 7;
	p->length_penalty = -0.5f;
	p->early = PARAMS_EARLY_NEVER;
	p->seed = UINT64_MAX;
	p->logprobs = 3;
	p->stop_ids = xmemdup((uint32_t[]){1, 2}, 8);
	p->n_stop_ids = 2;
	p->bias_ids = xmemdup((int32_t[]){9}, 4);
	p->bias = xmemdup((float[]){-1.5f}, 4);
	p->n_bias = 1;
	p->bad = xmemdup((int32_t[]){4, 5, 6}, 12);
	p->bad_len = xmemdup((int32_t[]){1, 2}, 8);
	p->n_bad = 2;
	p->n_bad_ids = 3;
	p->pool = PARAMS_POOL_MEAN;
	p->typical_p = 0.25f;
	p->top_n_sigma = 1.5f;
	p->xtc_probability = 0.5f;
	p->xtc_threshold = 0.125f;
	p->dry_multiplier = 0.75f;
	p->dry_base = 2;
	p->dry_allowed = 3;
	p->dry_last_n = 64;
	p->mirostat = 2;
	p->mirostat_tau = 3.5f;
	p->mirostat_eta = 0.25f;
	p->breakers = xmemdup((int32_t[]){7, 8, 20}, 12);
	p->n_breakers = 3;
}

static void check_llama(const struct params *p)
{
	cr_assert(p->typical_p == 0.25f && p->top_n_sigma == 1.5f);
	cr_assert(p->xtc_probability == 0.5f && p->xtc_threshold == 0.125f);
	cr_assert(p->dry_multiplier == 0.75f && p->dry_base == 2);
	cr_assert(p->dry_allowed == 3 && p->dry_last_n == 64);
	cr_assert(p->mirostat == 2 && p->mirostat_tau == 3.5f && p->mirostat_eta == 0.25f);
	cr_assert(p->n_breakers == 3 && p->breakers[0] == 7 && p->breakers[2] == 20);
}

Test(bus, a_plan_comes_back_as_it_was_sent)
{
	struct plan p = {0}, q = {0};
	struct params params;
	struct buf b = {0};
	struct why why = {""};
	fill_params(&params);
	fill_plan(&p, &params);
	bus_encode_plan(&p, &b);
	cr_assert_eq(bus_decode_plan(b.p, b.len, &limits, &q, &why), 0, "%s", why.text);
	cr_assert_eq(q.epoch, 2);
	cr_assert_eq(q.number, 9);
	cr_assert_eq(q.drop[0], 4);
	cr_assert_eq(q.seqs[0].seq, 77);
	cr_assert_eq(q.seqs[0].n_prompt, 2);
	cr_assert_eq(q.seqs[0].tokens[2], 7);
	cr_assert_eq(q.seqs[0].blocks[0], 3);
	cr_assert_eq(q.seqs[0].params->seed, UINT64_MAX);
	cr_assert_eq(q.seqs[0].params->beam_width, 7);
	cr_assert_eq(q.seqs[0].params->length_penalty, -0.5f);
	cr_assert_eq(q.seqs[0].params->early, PARAMS_EARLY_NEVER);
	cr_assert_eq(q.seqs[0].params->bias[0], -1.5f);
	cr_assert_eq(q.seqs[0].params->bad_len[1], 2);
	cr_assert_eq(q.seqs[0].params->pool, PARAMS_POOL_MEAN);
	check_llama(q.seqs[0].params);
	cr_assert_eq(q.n_sets, 1);
	cr_assert_eq(q.sets[0].slot, 3);
	cr_assert_eq(q.sets[0].from, 1);
	cr_assert_eq(q.sets[0].position, 3);
	cr_assert_eq(q.sets[0].token, 99);
	cr_assert_eq(q.tables[0].block, 5);
	cr_assert_eq(q.forks[0].index, 3);
	cr_assert_eq(q.swap_out[0].to, 1);
	cr_assert_eq(q.swap_in[0].to, 8);
	cr_assert_eq(q.copies[0].from, 3);
	cr_assert_eq(q.n_runs, 3);
	cr_assert_eq(q.runs[0].n_rows, 3);
	cr_assert_eq(q.runs[1].from, 1);
	cr_assert_eq(q.runs[2].n_rows, 4);
	cr_assert_eq(q.runs[2].flags, PLAN_SAMPLE | PLAN_OPEN);
	cr_assert_eq(q.n_rows, 7);
	cr_assert_eq(q.n_samples, 3);
	plan_fini(&p);
	bus_plan_fini(&q);
	params_fini(&params);
	buf_fini(&b);
}

/* A sequence has a table for each kind of layers, and no blocks before a window. */
Test(bus, tables_name_their_kind)
{
	static const uint32_t tokens[] = {5, 6, 7}, blocks[] = {3, PLAN_NO_BLOCK, 4, 12};
	struct bus_limits two = limits;
	struct plan p = {.n_kinds = 2}, q = {0};
	struct params params;
	struct buf b = {0};
	struct why why = {""};
	params_init(&params);
	*plan_add_seq(&p) = (struct plan_seq){.slot = 1,
					      .n_prompt = 2,
					      .n_tokens = 3,
					      .n_blocks = 2,
					      .tokens = tokens,
					      .blocks = blocks,
					      .params = &params};
	*plan_add_table(&p) = (struct plan_table){7, 1, 5, 1};
	two.n_kinds = 2;
	bus_encode_plan(&p, &b);
	cr_assert_eq(bus_decode_plan(b.p, b.len, &two, &q, &why), 0, "%s", why.text);
	cr_assert_eq(q.seqs[0].n_blocks, 2);
	cr_assert_arr_eq(q.seqs[0].blocks, blocks, sizeof blocks);
	cr_assert(q.tables[0].slot == 7 && q.tables[0].kind == 1 && q.tables[0].logical == 1);
	cr_assert_eq(q.tables[0].block, 5);
	refuse(&b, "tables: out of range"); /* with one kind */
	two.n_kinds = 3;
	cr_assert_eq(bus_decode_plan(b.p, b.len, &two, &q, &why), -EBADMSG);
	cr_assert(strstr(why.text, "blocks without those of other kinds"), "%s", why.text);
	plan_fini(&p);
	bus_plan_fini(&q);
	params_fini(&params);
	buf_fini(&b);
}

/* The tokens, blocks and parameters of all sequences share one store, which grows during decoding and is
 * reused for the next plan. */
Test(bus, long_sequences_come_back_plan_after_plan)
{
	enum { SEQS = 8, TOKENS = 4000, BLOCKS = 250 };
	static uint32_t tokens[TOKENS], blocks[BLOCKS];
	const struct bus_limits wide = {.max_slots = SEQS,
					.max_rows = 64,
					.max_runs = 8,
					.max_context = 4096,
					.n_blocks = BLOCKS,
					.n_vocab = 100};
	struct plan q = {0};
	struct params params;
	struct buf b = {0};
	struct why why = {""};
	fill_params(&params);
	for (uint32_t i = 0; i < TOKENS; i++)
		tokens[i] = i % 100;
	for (uint32_t i = 0; i < BLOCKS; i++)
		blocks[i] = BLOCKS - 1 - i;
	for (uint32_t n = 1; n <= SEQS; n++) {
		struct plan p = {.epoch = 1, .number = n};
		for (uint32_t i = 0; i < n; i++)
			*plan_add_seq(&p) = (struct plan_seq){.slot = i,
							      .n_prompt = 1,
							      .n_tokens = TOKENS - i,
							      .n_blocks = BLOCKS,
							      .tokens = tokens + i,
							      .blocks = blocks,
							      .params = &params};
		bus_encode_plan(&p, &b);
		cr_assert_eq(bus_decode_plan(b.p, b.len, &wide, &q, &why), 0, "%s", why.text);
		cr_assert_eq(q.n_seqs, n);
		for (uint32_t i = 0; i < n; i++) {
			cr_assert_eq(q.seqs[i].n_tokens, TOKENS - i);
			cr_assert_eq(memcmp(q.seqs[i].tokens, tokens + i, (TOKENS - i) * sizeof *tokens), 0);
			cr_assert_eq(memcmp(q.seqs[i].blocks, blocks, sizeof blocks), 0);
			cr_assert_eq(q.seqs[i].params->stop_ids[1], 2);
		}
		plan_fini(&p);
	}
	bus_plan_fini(&q);
	params_fini(&params);
	buf_fini(&b);
}

Test(bus, a_decoding_sequence_costs_at_most_16_bytes)
{
	struct plan p = {0};
	struct buf empty = {0}, full = {0};
	struct result r = {0};
	bus_encode_plan(&p, &empty);
	for (uint32_t i = 0; i < 256; i++)
		*plan_add_run(&p) = (struct plan_run){
			.slot = i, .pos0 = 1000, .n_rows = 1, .flags = PLAN_SAMPLE, .from = i};
	/* A block is added every 16th step. */
	for (uint32_t i = 0; i < 256 / 16; i++)
		*plan_add_table(&p) = (struct plan_table){i, 62, 7, 0};
	bus_encode_plan(&p, &full);
	cr_assert_leq(full.len - empty.len, 256 * 16);
	bus_encode_result(&r, &empty);
	for (uint32_t i = 0; i < 256; i++)
		result_add_token(&r, i);
	bus_encode_result(&r, &full);
	cr_assert_leq(full.len - empty.len, 256 * 16);
	plan_fini(&p);
	result_fini(&r);
	buf_fini(&empty);
	buf_fini(&full);
}

Test(bus, an_open_run_samples_and_has_a_bound)
{
	static const struct plan_run bad[] = {
		{.slot = 1, .n_rows = 2, .flags = PLAN_OPEN, .from = 1},
		{.slot = 1, .n_rows = 0, .flags = PLAN_SAMPLE | PLAN_OPEN, .from = 1},
		{.slot = 1, .n_rows = PLAN_OPEN_ROWS + 1, .flags = PLAN_SAMPLE | PLAN_OPEN, .from = 1}};
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		struct plan p = {.epoch = 1, .number = 1};
		struct buf b = {0};
		*plan_add_run(&p) = bad[i];
		bus_encode_plan(&p, &b);
		refuse(&b, "open run");
		plan_fini(&p);
		buf_fini(&b);
	}
}

Test(bus, tokens_set_out_of_range_are_refused)
{
	static const struct plan_set bad[] = {{8, 1, 3, 5}, {1, 8, 3, 5}, {1, 1, 128, 5}, {1, 1, 3, 100}};
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		struct plan p = {.epoch = 1, .number = 1};
		struct buf b = {0};
		*plan_add_set(&p) = bad[i];
		bus_encode_plan(&p, &b);
		refuse(&b, "sets: out of range");
		plan_fini(&p);
		buf_fini(&b);
	}
}

Test(bus, every_truncation_of_a_plan_is_refused)
{
	struct plan p = {0}, q = {0};
	struct params params;
	struct buf b = {0};
	struct why why;
	fill_params(&params);
	fill_plan(&p, &params);
	bus_encode_plan(&p, &b);
	for (size_t n = 0; n < b.len; n++) {
		void *cut = xmemdup(b.p, n); /* lets a sanitizer see a read past the end */
		cr_assert_lt(bus_decode_plan(cut, n, &limits, &q, &why), 0, "%zu bytes", n);
		free(cut);
	}
	plan_fini(&p);
	bus_plan_fini(&q);
	params_fini(&params);
	buf_fini(&b);
}

Test(bus, flipped_bytes_do_no_harm)
{
	struct plan p = {0}, q = {0};
	struct params params;
	struct buf b = {0};
	struct why why;
	fill_params(&params);
	fill_plan(&p, &params);
	bus_encode_plan(&p, &b);
	for (size_t i = 0; i < b.len; i++)
		for (int bit = 0; bit < 8; bit++) {
			b.p[i] ^= (char)(1 << bit);
			bus_decode_plan(b.p, b.len, &limits, &q, &why);
			for (uint32_t k = 0; k < q.n_runs; k++)
				cr_assert_lt(q.runs[k].slot, limits.max_slots);
			b.p[i] ^= (char)(1 << bit);
		}
	plan_fini(&p);
	bus_plan_fini(&q);
	params_fini(&params);
	buf_fini(&b);
}

Test(bus, blocks_slots_and_rows_out_of_range_are_named)
{
	struct plan p = {0};
	struct buf b = {0};
	*plan_add_run(&p) = (struct plan_run){.slot = 8, .n_rows = 1, .from = 8};
	bus_encode_plan(&p, &b);
	refuse(&b, "runs");
	plan_reset(&p);
	*plan_add_run(&p) = (struct plan_run){.slot = 1, .pos0 = 100, .n_rows = 29, .from = 1};
	bus_encode_plan(&p, &b);
	refuse(&b, "runs");
	plan_reset(&p);
	*plan_add_run(&p) = (struct plan_run){.slot = 1, .n_rows = 65, .from = 1};
	bus_encode_plan(&p, &b);
	refuse(&b, "rows");
	plan_reset(&p);
	*plan_add_table(&p) = (struct plan_table){1, 1, 16, 0};
	bus_encode_plan(&p, &b);
	refuse(&b, "tables");
	plan_reset(&p);
	*plan_add_swap_out(&p) = (struct plan_pair){1, 4};
	bus_encode_plan(&p, &b);
	refuse(&b, "block");
	plan_fini(&p);
	buf_fini(&b);
}

Test(bus, an_array_of_four_billion_is_refused_at_once)
{
	static const unsigned char bytes[] = {0x93, BUS_VERSION, BUS_PLAN, 0xdd, 0xff, 0xff, 0xff, 0xff};
	struct plan q = {0};
	struct why why;
	cr_assert_eq(bus_decode_plan(bytes, sizeof bytes, &limits, &q, &why), -EBADMSG);
	bus_plan_fini(&q);
}

Test(bus, another_version_is_refused_by_name)
{
	static const unsigned char bytes[] = {0x93, 0x63, 0x01, 0x80};
	struct bus_msg m;
	struct why why;
	cr_assert_eq(bus_decode(bytes, sizeof bytes, &m, &why), -EPROTO);
	cr_assert(strstr(why.text, "version 99"), "%s", why.text);
}

Test(bus, a_hello_comes_back)
{
	struct buf b = {0};
	struct bus_msg m = {.type = BUS_HELLO, .hello = {.device = "cpu:1", .host = "there", .pid = 17}}, got;
	struct why why;
	strcpy(m.hello.rendezvous, "shm:/x");
	strcpy(m.hello.token, "secret");
	strcpy(m.hello.compute, "int16");
	strcpy(m.hello.experts_compute, "int8");
	m.hello.loaded = m.hello.experts_loaded = true;
	bus_encode(&m, &b);
	cr_assert_eq(bus_decode(b.p, b.len, &got, &why), 0, "%s", why.text);
	cr_expect_str_eq(got.hello.device, "cpu:1");
	cr_expect_str_eq(got.hello.host, "there");
	cr_expect_str_eq(got.hello.rendezvous, "shm:/x");
	cr_expect_str_eq(got.hello.token, "secret");
	cr_expect_str_eq(got.hello.compute, "int16");
	cr_expect_str_eq(got.hello.experts_compute, "int8");
	cr_expect(got.hello.loaded && got.hello.experts_loaded);
	cr_expect_eq(got.hello.pid, 17);
	buf_fini(&b);
}

Test(bus, control_messages_come_back)
{
	struct buf b = {0};
	struct bus_msg m = {.type = BUS_LOAD}, got;
	struct why why;
	strcpy(m.load.model, "/models/x");
	strcpy(m.load.compute, "f32");
	strcpy(m.load.head, "int8");
	strcpy(m.load.kv, "bf16");
	m.load.epoch = 1ull << 40;
	m.load.max_rows = 2048;
	m.load.kv_bytes = 1ull << 33;
	m.load.n_ranks = 4;
	m.load.rank = 3;
	m.load.n_sharing = 2;
	strcpy(m.load.rendezvous, "shm:/x");
	m.load.ep = true;
	m.load.fast = true;
	bus_encode(&m, &b);
	cr_assert_eq(bus_peek(b.p, b.len, &why), BUS_LOAD);
	cr_assert_eq(bus_decode(b.p, b.len, &got, &why), 0, "%s", why.text);
	cr_assert_str_eq(got.load.model, "/models/x");
	cr_assert_str_eq(got.load.compute, "f32");
	cr_assert_str_eq(got.load.head, "int8");
	cr_assert_str_eq(got.load.kv, "bf16");
	cr_assert_eq(got.load.epoch, 1ull << 40);
	cr_assert_eq(got.load.max_rows, 2048);
	cr_assert_eq(got.load.kv_bytes, 1ull << 33);
	cr_assert_eq(got.load.n_ranks, 4);
	cr_assert_eq(got.load.rank, 3);
	cr_assert_eq(got.load.n_sharing, 2);
	cr_assert_str_eq(got.load.rendezvous, "shm:/x");
	cr_assert(got.load.ep && got.load.fast);
	m = (struct bus_msg){.type = BUS_READY,
			     .ready = {.n_blocks = 9,
				       .weights_bytes = 1ull << 33,
				       .kv_bytes = 1ull << 34,
				       .stored_bytes = 3,
				       .scratch_bytes = 5,
				       .host_bytes = 7,
				       .host_weights_bytes = 17,
				       .device_used = 1ull << 35,
				       .device_bytes = 1ull << 36,
				       .block_bytes = 11,
				       .kinds = {.n = 3, .window = {0, 128, 512}},
				       .link_bps = 13,
				       .stream_above_rows = 19}};
	bus_encode(&m, &b);
	cr_assert_eq(bus_decode(b.p, b.len, &got, &why), 0, "%s", why.text);
	cr_assert_eq(got.ready.n_blocks, 9);
	cr_assert_arr_eq(&got.ready.kinds, &m.ready.kinds, sizeof got.ready.kinds);
	cr_assert_eq(got.ready.weights_bytes, 1ull << 33);
	cr_assert_eq(got.ready.kv_bytes, 1ull << 34);
	cr_assert(got.ready.stored_bytes == 3 && got.ready.scratch_bytes == 5);
	cr_assert(got.ready.host_bytes == 7 && got.ready.host_weights_bytes == 17);
	cr_assert_eq(got.ready.device_used, 1ull << 35);
	cr_assert_eq(got.ready.device_bytes, 1ull << 36);
	cr_assert(got.ready.block_bytes == 11 && got.ready.link_bps == 13 &&
		  got.ready.stream_above_rows == 19);
	m = (struct bus_msg){.type = BUS_BEAT, .beat = {3, BUS_SERVING, 4, 5, 6}};
	bus_encode(&m, &b);
	cr_assert_eq(bus_decode(b.p, b.len, &got, &why), 0, "%s", why.text);
	cr_assert_eq(got.beat.expected, 5);
	cr_assert_eq(got.beat.moves, 6);
	cr_assert_eq(got.beat.counts.expert_rows, 0);
	m.beat.counts.expert_rows = 900, m.beat.counts.expert_reads = 70, m.beat.counts.expert_busiest = 300;
	bus_encode(&m, &b);
	cr_assert_eq(bus_decode(b.p, b.len, &got, &why), 0, "%s", why.text);
	cr_assert(got.beat.counts.expert_rows == 900 && got.beat.counts.expert_reads == 70 &&
		  got.beat.counts.expert_busiest == 300);
	m.beat = (struct bus_beat){.epoch = 3,
				   .state = BUS_LOADING,
				   .progress = 500,
				   .doing = BUS_DOING_PACK,
				   .done = 1 << 20,
				   .total = (uint64_t)7 << 32};
	bus_encode(&m, &b);
	cr_assert_eq(bus_decode(b.p, b.len, &got, &why), 0, "%s", why.text);
	cr_assert_eq(got.beat.doing, BUS_DOING_PACK);
	cr_assert_eq(got.beat.done, 1 << 20);
	cr_assert_eq(got.beat.total, (uint64_t)7 << 32);
	buf_fini(&b);
}

Test(bus, beats_report_masks_that_were_waited_for_and_the_memory_of_grammars)
{
	static struct bus_msg got;
	static const struct bus_msg m = {
		.type = BUS_BEAT,
		.beat = {.state = BUS_SERVING, .counts.mask_waits = 8, .grammar_bytes = (uint64_t)5 << 32}};
	struct buf b = {0};
	struct why why;
	bus_encode(&m, &b);
	cr_assert_eq(bus_decode(b.p, b.len, &got, &why), 0, "%s", why.text);
	cr_expect(got.beat.counts.mask_waits == 8 && got.beat.grammar_bytes == (uint64_t)5 << 32);
	buf_fini(&b);
}

Test(bus, slots_that_are_awake_come_back)
{
	static struct bus_msg got;
	static const struct bus_msg m = {.type = BUS_AWAKE, .awake = {.epoch = 3, .n = 2, .slots = {9, 4}}};
	struct buf b = {0};
	struct why why;
	bus_encode(&m, &b);
	cr_assert_eq(bus_decode(b.p, b.len, &got, &why), 0, "%s", why.text);
	cr_expect_eq(got.awake.epoch, 3);
	cr_assert_eq(got.awake.n, 2);
	cr_expect(got.awake.slots[0] == 9 && got.awake.slots[1] == 4);
	buf_fini(&b);
}

Test(bus, rows_of_experts_come_back_within_their_bound)
{
	static struct bus_msg m, got;
	struct buf b = {0};
	struct why why;
	m = (struct bus_msg){.type = BUS_BEAT, .beat = {.epoch = 3, .state = BUS_SERVING}};
	m.beat.cells =
		(struct bus_cells){.n_all = BUS_CELLS_MAX, .n_experts = 128, .from = 256, .n = BUS_CELLS};
	for (uint32_t i = 0; i < BUS_CELLS; i++)
		m.beat.cells.rows[i] = (uint64_t)i << 33 | 5;
	bus_encode(&m, &b);
	cr_assert_lt(b.len, 10u << 10);
	cr_assert_eq(bus_decode(b.p, b.len, &got, &why), 0, "%s", why.text);
	cr_assert(!memcmp(&got.beat.cells, &m.beat.cells, sizeof got.beat.cells));
	/* The number of cells is checked: 1,025 exceeds the maximum, and 512 is half of the cells sent. */
	unsigned char *n = memmem(b.p, b.len, "cells_rows", 10);
	cr_assert(n && n[10] == 0xdc && n[11] == 4 && n[12] == 0, "an array of 16-bit length");
	n[12] = 1;
	cr_assert_eq(bus_decode(b.p, b.len, &got, &why), -EBADMSG);
	cr_assert(strstr(why.text, "cells_rows"), "%s", why.text);
	n[11] = 2, n[12] = 0;
	cr_assert_eq(bus_decode(b.p, b.len, &got, &why), -EBADMSG);
	buf_fini(&b);
}

Test(bus, a_result_comes_back_and_its_counts_are_checked)
{
	struct result r = {0}, got = {0};
	struct buf b = {0};
	struct why why;
	r.epoch = 1;
	r.number = 3;
	r.step_us = 1234;
	result_add_token(&r, 42);
	*result_add_logprob(&r) = (struct result_logprob){
		.slot = 2, .position = 7, .token = 42, .logprob = -0.5f, .rank = 1, .n_top = 2, .top0 = 0};
	result_add_top(&r, 42, -0.5f);
	result_add_top(&r, 43, -1.5f);
	result_add_count(&r, 1);
	bus_encode_result(&r, &b);
	cr_assert_eq(bus_decode_result(b.p, b.len, &limits, &got, &why), 0, "%s", why.text);
	cr_assert_eq(got.tokens[0], 42);
	cr_assert_eq(got.n_counts, 1);
	cr_assert_eq(got.counts[0], 1);
	cr_assert_eq(got.logprobs[0].logprob, -0.5f);
	cr_assert_eq(got.top_ids[1], 43);
	r.logprobs[0].n_top = 3;
	bus_encode_result(&r, &b);
	cr_assert_eq(bus_decode_result(b.p, b.len, &limits, &got, &why), -EBADMSG);
	r.logprobs[0].n_top = 2;
	r.counts[0] = PLAN_OPEN_ROWS + 1;
	bus_encode_result(&r, &b);
	cr_assert_eq(bus_decode_result(b.p, b.len, &limits, &got, &why), -EBADMSG);
	r.counts[0] = 1;
	r.tokens[0] = 100;
	bus_encode_result(&r, &b);
	cr_assert_eq(bus_decode_result(b.p, b.len, &limits, &got, &why), -EBADMSG);
	result_fini(&r);
	result_fini(&got);
	buf_fini(&b);
}

/* Sums and rows of pooled runs, in sequence. */
Test(bus, pooled_rows_come_back_and_are_bounded)
{
	struct result r = {.epoch = 1, .number = 3}, got = {0};
	struct buf b = {0};
	struct why why = {""};
	for (uint32_t i = 0; i < 3; i++) {
		struct result_pool *p = result_add_pool(&r, 2 * i);
		p->slot = i;
		p->pos0 = 10 * i;
		p->n_rows = i;
		for (uint32_t k = 0; k < p->n_words; k++)
			r.pool_words[p->at + k] = 100 * i + k;
	}
	bus_encode_result(&r, &b);
	cr_assert_eq(bus_decode_result(b.p, b.len, &limits, &got, &why), 0, "%s", why.text);
	cr_assert_eq(got.n_pools, 3);
	cr_assert_eq(got.pools[2].slot, 2);
	cr_assert_eq(got.pools[2].pos0, 20);
	cr_assert_eq(got.pools[2].n_rows, 2);
	cr_assert_eq(got.pools[2].at, 2);
	cr_assert_eq(got.n_pool_words, 6);
	cr_assert_arr_eq(got.pool_words, r.pool_words, 6 * sizeof *r.pool_words);
	const struct {
		uint32_t *field, bad;
		const char *why;
	} cases[] = {
		{&r.pools[2].n_words, 5, "pools: more words than there are"},
		{&r.pools[2].n_words, UINT32_MAX, "pools: more words than there are"},
		{&r.pools[2].n_words, 3, "pool_words: words of no entry"},
		{&r.pools[0].slot, limits.max_slots, "pools: out of range"},
		{&r.pools[0].pos0, limits.max_context + 1, "pools: out of range"},
		{&r.pools[1].n_rows, limits.max_context, "pools: out of range"},
	};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		const uint32_t good = *cases[i].field;
		*cases[i].field = cases[i].bad;
		bus_encode_result(&r, &b);
		*cases[i].field = good;
		cr_expect_eq(bus_decode_result(b.p, b.len, &limits, &got, &why), -EBADMSG);
		cr_expect_str_eq(why.text, cases[i].why);
		cr_expect_eq(got.n_pools, 0);
	}
	result_fini(&r);
	result_fini(&got);
	buf_fini(&b);
}

Test(cursor, reads_integers_of_every_width_and_refuses_the_wrong_sign)
{
	static const unsigned char bytes[] = {0x7f, 0xcc, 0xff, 0xcd, 0x01, 0x00, 0xd0, 0x80, 0xff};
	struct cursor c;
	cursor_init(&c, bytes, sizeof bytes);
	cr_assert_eq(cursor_uint(&c, "a", 127), 127);
	cr_assert_eq(cursor_uint(&c, "b", 255), 255);
	cr_assert_eq(cursor_uint(&c, "c", 256), 256);
	cr_assert_eq(cursor_int(&c, "d", -128, 0), -128);
	cr_assert_eq(cursor_uint(&c, "e", UINT64_MAX), 0);
	cr_assert(c.bad);
	cr_assert_str_eq(c.what, "e: out of range");
}

Test(bus, sequences_of_a_plan_are_no_more_than_slots)
{
	static const uint32_t tokens[] = {5, 6, 7}, blocks[] = {3};
	struct plan p = {.epoch = 1, .number = 1}, got = {0};
	struct params params;
	struct buf b = {0};
	struct why why = {""};
	params_init(&params);
	params.max_tokens = 1;
	for (uint32_t i = 0; i <= limits.max_slots; i++) {
		int rc = 0;
		bus_encode_plan(&p, &b);
		rc = bus_decode_plan(b.p, b.len, &limits, &got, &why);
		cr_expect_eq(rc, 0, "%u sequences: %s", i, why.text);
		*plan_add_seq(&p) = (struct plan_seq){.slot = i % limits.max_slots,
						      .seq = i,
						      .n_prompt = 2,
						      .n_tokens = 3,
						      .n_blocks = 1,
						      .tokens = tokens,
						      .blocks = blocks,
						      .params = &params};
	}
	bus_encode_plan(&p, &b);
	refuse(&b, "seqs: more than slots");
	bus_plan_fini(&got);
	plan_fini(&p);
	params_fini(&params);
	buf_fini(&b);
}

Test(bus, top_logprobs_of_a_token_are_bounded)
{
	struct result r = {.epoch = 1, .number = 1}, got = {0};
	struct buf b = {0};
	struct why why = {""};
	*result_add_logprob(&r) = (struct result_logprob){.slot = 1, .token = 42, .n_top = PARAMS_TOP_MAX};
	for (uint32_t i = 0; i <= PARAMS_TOP_MAX; i++)
		result_add_top(&r, i % limits.n_vocab, -1);
	bus_encode_result(&r, &b);
	cr_expect_eq(bus_decode_result(b.p, b.len, &limits, &got, &why), 0, "%s", why.text);
	r.logprobs[0].n_top++; /* the additional entries exist */
	bus_encode_result(&r, &b);
	cr_expect_eq(bus_decode_result(b.p, b.len, &limits, &got, &why), -EBADMSG);
	cr_expect_str_eq(why.text, "logprobs: out of range");
	result_fini(&r);
	result_fini(&got);
	buf_fini(&b);
}
