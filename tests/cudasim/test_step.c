/* A whole step on the CUDA table: all operations are queued without a wait, batches are set while earlier
 * batches are in flight, nothing is allocated, and the bits are those of single steps. */
#include "tests/cudasim/cuda_test.h"

#include <sys/eventfd.h>
#include <unistd.h>

enum { H = 64, V = 96, D = 16, HQ = 4, HKV = 2, I = 64, ROWS = 8, STEPS = 7, CONTEXT = 64 };

struct net {
	struct kt t;
	struct kern_embed *embed;
	struct kern_linear *qkv, *o, *gateup, *down;
	struct kern_kv *kv;
	void *x, *add, *normed, *proj, *q, *att, *ffn, *last, *logits, *ones, *rope, *tokens;
	int32_t *out_token;
	float *out_logprob;
	int32_t *out_rank;
};

static void net_open(struct net *n)
{
	struct why why = {""};
	struct kt_part emb = kt_part(KERN_F16, H, V, 0, false);
	float ones[H], rope[CONTEXT * D];
	int32_t tokens[CONTEXT] = {5, 17, 3, 88};
	memset(n, 0, sizeof *n);
	ct_open(&n->t, false, (struct kt_size){.rows = ROWS, .logits = ROWS, .context = CONTEXT});
	cr_assert_eq(n->t.ops->embed_load(n->t.dev, &(struct kern_embed_src){emb.w, KERN_F16, V, H, true},
					  &n->embed, &why),
		     0, "%s", why.text);
	kt_part_fini(&emb);
	n->qkv = ct_layer(&n->t, KERN_AWQ4, H, (HQ + 2 * HKV) * D, 0);
	n->o = ct_layer(&n->t, KERN_AWQ4, HQ * D, H, 0);
	n->gateup = ct_layer(&n->t, KERN_AWQ4, H, I, I);
	n->down = ct_layer(&n->t, KERN_AWQ4, I, H, 0);
	n->kv = n->t.ops->kv_new(n->t.dev, 1, HKV, D, 16, 4, 0);
	for (int i = 0; i < H; i++)
		ones[i] = 0.05f; /* keeps the layers' outputs small */
	ct_rope(rope, CONTEXT, D);
	n->ones = kt_put(&n->t, ones, sizeof ones);
	n->rope = kt_put(&n->t, rope, sizeof rope);
	n->tokens = kt_put(&n->t, tokens, sizeof tokens);
	n->x = kt_new(&n->t, ROWS * H * 4);
	n->add = kt_new(&n->t, ROWS * H * 4);
	n->normed = kt_new(&n->t, ROWS * H * 2);
	n->proj = kt_new(&n->t, ROWS * (HQ + 2 * HKV) * D * 2);
	n->q = kt_new(&n->t, ROWS * HQ * D * 2);
	n->att = kt_new(&n->t, ROWS * HQ * D * 2);
	n->ffn = kt_new(&n->t, ROWS * I * 2);
	n->last = kt_new(&n->t, ROWS * H * 4);
	n->logits = kt_new(&n->t, ROWS * V * 4);
	n->out_token = n->t.ops->host_new(n->t.dev, STEPS * 4);
	n->out_logprob = n->t.ops->host_new(n->t.dev, STEPS * 4);
	n->out_rank = n->t.ops->host_new(n->t.dev, STEPS * 4);
}

static void net_close(struct net *n)
{
	void *all[] = {n->x,   n->add,  n->normed, n->proj, n->q,    n->att,
		       n->ffn, n->last, n->logits, n->ones, n->rope, n->tokens};
	for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
		kt_del(&n->t, all[i]);
	n->t.ops->host_free(n->t.dev, n->out_token, STEPS * 4);
	n->t.ops->host_free(n->t.dev, n->out_logprob, STEPS * 4);
	n->t.ops->host_free(n->t.dev, n->out_rank, STEPS * 4);
	n->t.ops->linear_free(n->qkv);
	n->t.ops->linear_free(n->o);
	n->t.ops->linear_free(n->gateup);
	n->t.ops->linear_free(n->down);
	n->t.ops->kv_free(n->kv);
	n->t.ops->embed_free(n->embed);
	kt_close(&n->t);
}

/* Queue rows pos .. pos + rows - 1; the last row's token is sampled into the token buffer. */
static void queue_step(struct net *n, int pos, int rows, int step)
{
	const struct kern_ops *ops = n->t.ops;
	struct kern_stream *s = n->t.s;
	int32_t token_at[ROWS], row0[] = {0, rows}, pos0[] = {pos}, table[] = {2, 0, 3, 1},
				last[] = {rows - 1};
	for (int i = 0; i < rows; i++)
		token_at[i] = pos + i;
	struct kern_batch b = {
		.n_rows = rows,
		.n_seqs = 1,
		.token_at = token_at,
		.row0 = row0,
		.pos0 = pos0,
		.tables = table,
		.table_stride = 4,
		.n_logits = 1,
		.logits_row = last,
	};
	struct kern_qkv_args qkv = {
		.q = n->q,
		.qkv = n->proj,
		.rope = n->rope,
		.rope_dim = D,
		.n_q_heads = HQ,
		.n_kv_heads = HKV,
		.head_dim = D,
		.kv = n->kv,
	};
	struct kern_attn_args attn = {
		.out = n->att,
		.q = n->q,
		.kv = n->kv,
		.n_q_heads = HQ,
		.n_kv_heads = HKV,
		.head_dim = D,
		.scale = 0.25f,
	};
	struct kern_sample_row row = {
		.n_hist = pos + rows,
		.n_prompt = 4,
		.forced = -1,
		.temperature = 1,
		.top_p = 0.95f,
		.top_k = 40,
		.repetition = 1.1f,
		.seed = 11,
		.position = (uint32_t)step,
		.n_logprobs = 0,
	};
	struct kern_sample_out out = {
		.token = n->out_token + step, .logprob = n->out_logprob + step, .rank = n->out_rank + step};
	int e = ops->batch_set(s, &b);
	e |= ops->embed(s, n->embed, n->tokens, 0, n->x);
	e |= ops->rmsnorm(s, n->normed, n->x, NULL, n->ones, rows, H, 1e-6f);
	e |= ops->linear(s, n->qkv, n->proj, n->normed, rows, false);
	e |= ops->qkv(s, &qkv);
	e |= ops->attention(s, &attn);
	e |= ops->linear(s, n->o, n->add, n->att, rows, true);
	e |= ops->rmsnorm(s, n->normed, n->x, n->add, n->ones, rows, H, 1e-6f);
	e |= ops->gateup_swiglu(s, n->gateup, n->ffn, n->normed, rows);
	e |= ops->linear(s, n->down, n->add, n->ffn, rows, true);
	e |= ops->rmsnorm(s, n->normed, n->x, n->add, n->ones, rows, H, 1e-6f);
	e |= ops->gather(s, n->last, n->x, H);
	e |= ops->rmsnorm(s, n->normed, n->last, NULL, n->ones, 1, H, 1e-6f);
	e |= ops->linear(s, ops->embed_linear(n->embed), n->logits, n->normed, 1, true);
	e |= ops->sample(s, n->logits, V, n->tokens, &row, 1, &out);
	cr_assert_eq(e, 0);
}

static void check_results(struct net *n, const int32_t *token, const float *logprob)
{
	cr_assert_eq(n->t.ops->stream_sync(n->t.s), 0);
	cr_assert(!memcmp(n->out_token, token, STEPS * 4), "other tokens");
	kt_same(n->out_logprob, logprob, STEPS, "log-probabilities");
}

Test(step, queued_ahead_or_waited_for_whole_or_row_by_row_the_tokens_are_the_same)
{
	struct net n;
	int32_t token[STEPS];
	float logprob[STEPS];
	net_open(&n);
	for (int i = 0; i < STEPS; i++) {
		queue_step(&n, i ? 3 + i : 0, i ? 1 : 4, i);
		cr_assert_eq(n.t.ops->stream_sync(n.t.s), 0);
		cr_assert(n.out_token[i] >= 0 && n.out_token[i] < V && n.out_logprob[i] <= 0);
	}
	memcpy(token, n.out_token, sizeof token);
	memcpy(logprob, n.out_logprob, sizeof logprob);
	/* queued all at once, with more steps than staging buffers; the host allocates nothing */
	memset(n.out_token, 0, STEPS * 4);
	cudasim_seed(5);
	const unsigned long before = alloc_count();
	alloc_guard(true);
	for (int i = 0; i < STEPS; i++)
		queue_step(&n, i ? 3 + i : 0, i ? 1 : 4, i);
	alloc_guard(false);
	cr_assert_eq(alloc_count(), before);
	check_results(&n, token, logprob);
	/* the tokens so far as one prompt give the last token again */
	memset(n.out_token, 0, STEPS * 4);
	memset(n.out_logprob, 0, STEPS * 4);
	queue_step(&n, 0, 5, STEPS - 1 - 5);
	cr_assert_eq(n.t.ops->stream_sync(n.t.s), 0);
	cr_assert_eq(n.out_token[1], token[1]);
	kt_same(&n.out_logprob[1], &logprob[1], 1, "one prompt");
	net_close(&n);
}

/* The notice of a step arrives while the next steps are queued; the step's token is available then. */
Test(step, a_notice_comes_for_each_step_in_turn)
{
	struct net n;
	struct kern_event *events[STEPS];
	uint64_t seen = 0;
	const int fd = eventfd(0, EFD_SEMAPHORE);
	net_open(&n);
	for (int i = 0; i < STEPS; i++)
		n.out_token[i] = -1;
	for (int i = 0; i < STEPS; i++) {
		queue_step(&n, i ? 3 + i : 0, i ? 1 : 4, i);
		events[i] = n.t.ops->event_new(n.t.dev);
		cr_assert_eq(n.t.ops->event_record(events[i], n.t.s), 0);
		cr_assert_eq(n.t.ops->event_notify(events[i], fd), 0);
	}
	for (int i = 0; i < STEPS; i++) {
		cr_assert_eq(read(fd, &seen, sizeof seen), sizeof seen);
		cr_expect(n.t.ops->event_done(events[i]));
		cr_expect(n.out_token[i] >= 0);
	}
	for (int i = 0; i < STEPS; i++) {
		cr_expect_eq(n.t.ops->event_sync(events[i]), 0);
		n.t.ops->event_free(events[i]);
	}
	net_close(&n);
	close(fd);
}

Test(step, a_copy_within_the_device_keeps_its_turn)
{
	struct net n;
	int32_t ids[4] = {1, 2, 3, 4}, more[2] = {8, 9}, got[8];
	net_open(&n);
	int e = n.t.ops->upload(n.t.s, n.tokens, ids, sizeof ids);
	e |= n.t.ops->copy(n.t.s, (int32_t *)n.tokens + 4, n.tokens, sizeof ids);
	e |= n.t.ops->upload(n.t.s, n.tokens, more, sizeof more);
	cr_assert_eq(e, 0);
	kt_get(&n.t, got, n.tokens, sizeof got);
	const int32_t want[8] = {8, 9, 3, 4, 1, 2, 3, 4};
	cr_expect_arr_eq(got, want, sizeof want);
	net_close(&n);
}

#ifdef QUERN_CUDASIM
Test(step, what_was_opened_is_given_back)
{
	struct net n;
	const uint64_t before = cudasim_stats().live_pieces;
	net_open(&n);
	queue_step(&n, 0, 4, 0);
	net_close(&n);
	cr_assert_eq(cudasim_stats().live_pieces, before);
}

Test(step, an_operation_makes_no_device_memory)
{
	struct net n;
	net_open(&n);
	const uint64_t before = cudasim_stats().live_bytes;
	for (int i = 0; i < STEPS; i++)
		queue_step(&n, i ? 3 + i : 0, i ? 1 : 4, i);
	cr_assert_eq(cudasim_stats().live_bytes, before);
	net_close(&n);
}
#endif

#ifdef QUERN_CUDASIM
static int n_launches, n_other;

static void see_carveout(const struct cudasim_launched *l)
{
	n_launches++;
	if (l->carveout == 100)
		return;
	n_other++;
	fprintf(stderr, "%s: a carve-out of %d\n", l->name, l->carveout);
}

/* A multiprocessor must be empty before its carve-out changes. */
Test(step, every_kernel_divides_shared_memory_and_l1_alike)
{
	struct net n;
	net_open(&n);
	cudasim_watch_launches(see_carveout);
	queue_step(&n, 0, 4, 0);
	queue_step(&n, 4, 1, 1);
	cr_assert_eq(n.t.ops->stream_sync(n.t.s), 0);
	cudasim_watch_launches(NULL);
	cr_expect(n_launches > 2 * 13, "%d launches", n_launches);
	cr_expect_eq(n_other, 0, "%d of %d launches", n_other, n_launches);
	net_close(&n);
}

/* ---- the sampler ---- */

enum { MANY = 256, VOCAB = 70, HISTORY = 4, EACH = HISTORY + 1 };

/* Set up rows that are greedy, drawn, cut, or penalized; or all penalized. */
static void sample_rows(struct kern_sample_row *rows, bool all_adjusted)
{
	for (int i = 0; i < MANY; i++)
		rows[i] = (struct kern_sample_row){.row = i,
						   .hist0 = i * EACH,
						   .n_hist = HISTORY,
						   .n_prompt = 1,
						   .forced = -1,
						   .temperature = i % 4 ? 1.0f : 0.0f,
						   .top_p = i % 4 == 2 ? 0.8f : 1.0f,
						   .repetition = all_adjusted || i % 4 == 3 ? 1.3f : 1.0f,
						   .seed = (uint64_t)i,
						   .n_logprobs = 0};
}

/* Sample MANY rows, `at_once` per call, for their tokens and log-probabilities. */
static void sample(struct kt *t, const void *logits, bool all_adjusted, int at_once, int32_t *token,
		   float *logprob)
{
	struct kern_sample_row rows[MANY];
	int32_t history[MANY * EACH], rank[MANY];
	for (int i = 0; i < MANY * EACH; i++)
		history[i] = i % EACH == HISTORY ? 0 : i * 13 % VOCAB;
	sample_rows(rows, all_adjusted);
	void *tokens = kt_put(t, history, sizeof history);
	for (int i = 0; i < MANY; i += at_once) {
		const struct kern_sample_out out = {
			.token = token + i, .logprob = logprob + i, .rank = rank + i};
		kt_sample(t, logits, VOCAB, tokens, rows + i, at_once, &out);
	}
	kt_del(t, tokens);
}

static void count_sample(const struct cudasim_launched *l)
{
	n_launches += strncmp(l->name, "sample_", 7) == 0;
}

/* Check that the rows take this many launches of each of three kernels, and that a row's result does not
 * depend on the other rows. */
static void check_rounds(bool all_adjusted, int rounds)
{
	int32_t want[MANY], got[MANY];
	float want_p[MANY], got_p[MANY];
	struct kt t;
	cudasim_sms(132);
	ct_open(&t, false, (struct kt_size){.rows = MANY, .seqs = MANY, .logits = MANY});
	float *some = kt_floats(MANY * VOCAB);
	void *logits = kt_put(&t, some, MANY * VOCAB * sizeof *some);
	sample(&t, logits, all_adjusted, 1, want, want_p);
	n_launches = 0;
	cudasim_watch_launches(count_sample);
	sample(&t, logits, all_adjusted, MANY, got, got_p);
	cudasim_watch_launches(NULL);
	cr_expect_eq(n_launches, 3 * rounds, "%d launches for %d rows", n_launches, (int)MANY);
	for (int i = 0; i < MANY; i++)
		cr_expect_eq(got[i], want[i], "row %d: %d, alone %d", i, got[i], want[i]);
	kt_same(got_p, want_p, MANY, "log-probabilities");
	free(some);
	kt_del(&t, logits);
	kt_close(&t);
}

Test(step, rows_are_sampled_by_as_many_blocks_as_there_are_multiprocessors)
{
	check_rounds(false, 2);
}

/* At most 32 rows at a time have adjusted logits. */
Test(step, rows_with_penalties_take_turns)
{
	check_rounds(true, 8);
}
#endif
