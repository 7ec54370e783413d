/* Decoding steps from a graph.  They give the same bits as single operations, for every batch size that has a
 * graph, whatever the number of sequences and the length of their contexts, and touch only the batch's own
 * blocks.  Also tests attention's plans, with and without a graph. */
#include "tests/cudasim/cuda_test.h"
#include "tests/cudasim/kv_peek.h"

enum { LAYERS = 2, H = 64, V = 72, SEQS_MAX = 40, BLOCK = 16, SIZES = 8 };

static const int sizes[SIZES] = {1, 2, 4, 8, 16, 24, 32, 40};

/* A small decoder. */
struct shape {
	enum kern_dtype dtype; /* type of the layers; operands are F16 or BF16 */
	bool bf16;
	int dim, heads, kv_heads;
	int window; /* window of the second layer; 0: none */
	int context;
};

struct layer {
	struct kern_linear *qkv, *o, *gateup, *down;
};

struct net {
	struct kt t;
	struct shape m;
	struct kern_embed *embed;
	struct layer layers[LAYERS];
	struct kern_kv *kv;
	int n_blocks, rows; /* rows: most rows of a batch */
	void *x, *add, *normed, *proj, *q, *att, *ffn, *last, *last_add, *logits, *ones, *rope, *tokens;
	struct kern_graph *graph[SIZES];
};

/* Sequence i has len[i] tokens in the cache; its next token is in the token buffer. */
struct seqs {
	int n;
	int len[SEQS_MAX], blocks[SEQS_MAX];
	int32_t table[SEQS_MAX][128];
	int32_t next_block;
};

/* ---- the net ---- */

static void weights_open(struct net *n)
{
	struct why why = {""};
	const struct shape *m = &n->m;
	const enum kern_dtype type = m->bf16 ? KERN_BF16 : KERN_F16;
	struct kt_part emb = kt_part(type, H, V, 0, false);
	cr_assert_eq(n->t.ops->embed_load(n->t.dev, &(struct kern_embed_src){emb.w, type, V, H, true},
					  &n->embed, &why),
		     0, "%s", why.text);
	kt_part_fini(&emb);
	for (int l = 0; l < LAYERS; l++) {
		n->layers[l].qkv = ct_layer(&n->t, m->dtype, H, (m->heads + 2 * m->kv_heads) * m->dim, 0);
		n->layers[l].o = ct_layer(&n->t, m->dtype, m->heads * m->dim, H, 0);
		n->layers[l].gateup = ct_layer(&n->t, m->dtype, H, H, H);
		n->layers[l].down = ct_layer(&n->t, m->dtype, H, H, 0);
	}
}

static void net_open(struct net *n, struct shape m, int rows, int n_blocks)
{
	const size_t r = (size_t)rows, op = 2;
	memset(n, 0, sizeof *n);
	n->m = m;
	n->rows = rows;
	n->n_blocks = n_blocks;
	ct_open(&n->t, m.bf16,
		(struct kt_size){.rows = rows < 256 ? 256 : rows,
				 .seqs = rows,
				 .logits = rows,
				 .context = m.context,
				 .block_size = BLOCK});
	weights_open(n);
	n->kv = n->t.ops->kv_new(n->t.dev, LAYERS, m.kv_heads, m.dim, BLOCK, n_blocks, 0);
	cr_assert(n->kv != NULL);
	float ones[H], *rope = xmalloc((size_t)(m.context * m.dim) * sizeof *rope);
	int32_t *tokens = xmalloc((size_t)(m.context + 1) * SEQS_MAX * sizeof *tokens);
	for (int i = 0; i < H; i++)
		ones[i] = 0.05f; /* keeps the layers' outputs small */
	ct_rope(rope, m.context, m.dim);
	for (int i = 0; i < (m.context + 1) * SEQS_MAX; i++)
		tokens[i] = (int32_t)(kt_rand() % V);
	n->ones = kt_put(&n->t, ones, sizeof ones);
	n->rope = kt_put(&n->t, rope, (size_t)(m.context * m.dim) * sizeof *rope);
	n->tokens = kt_put(&n->t, tokens, (size_t)(m.context + 1) * SEQS_MAX * sizeof *tokens);
	free(rope);
	free(tokens);
	const size_t r256 = r < 256 ? 256 : r; /* rows of a chunk of a prompt */
	const size_t q = (size_t)(m.heads * m.dim), all = q + (size_t)(2 * m.kv_heads * m.dim);
	n->x = kt_new(&n->t, r * H * 4);
	n->add = kt_new(&n->t, r * H * 4);
	n->normed = kt_new(&n->t, r * H * op);
	n->proj = kt_new(&n->t, r256 * all * op);
	n->q = kt_new(&n->t, r256 * q * op);
	n->att = kt_new(&n->t, r * q * op);
	n->ffn = kt_new(&n->t, r * H * op);
	n->last = kt_new(&n->t, r * H * 4);
	n->last_add = kt_new(&n->t, r * H * 4);
	n->logits = kt_new(&n->t, r * V * 4);
}

static void net_close(struct net *n)
{
	void *all[] = {n->x,    n->add,      n->normed, n->proj, n->q,    n->att,   n->ffn,
		       n->last, n->last_add, n->logits, n->ones, n->rope, n->tokens};
	for (int i = 0; i < SIZES; i++)
		n->t.ops->graph_free(n->graph[i]);
	for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
		kt_del(&n->t, all[i]);
	for (int l = 0; l < LAYERS; l++) {
		n->t.ops->linear_free(n->layers[l].qkv);
		n->t.ops->linear_free(n->layers[l].o);
		n->t.ops->linear_free(n->layers[l].gateup);
		n->t.ops->linear_free(n->layers[l].down);
	}
	n->t.ops->kv_free(n->kv);
	n->t.ops->embed_free(n->embed);
	kt_close(&n->t);
}

/* ---- a step ---- */

static struct kern_qkv_args qkv_args(const struct net *n, int layer)
{
	return (struct kern_qkv_args){
		.q = n->q,
		.qkv = n->proj,
		.rope = n->rope,
		.rope_dim = n->m.dim,
		.n_q_heads = n->m.heads,
		.n_kv_heads = n->m.kv_heads,
		.head_dim = n->m.dim,
		.kv = n->kv,
		.layer = layer,
	};
}

static struct kern_attn_args attn_args(const struct net *n, int layer)
{
	return (struct kern_attn_args){
		.out = n->att,
		.q = n->q,
		.kv = n->kv,
		.layer = layer,
		.n_q_heads = n->m.heads,
		.n_kv_heads = n->m.kv_heads,
		.head_dim = n->m.dim,
		.scale = 1 / sqrtf((float)n->m.dim),
		.window = layer ? n->m.window : 0,
	};
}

/* Run a model's operations for `rows` rows of the current batch. */
static void operations(struct net *n, int rows)
{
	const struct kern_ops *k = n->t.ops;
	struct kern_stream *s = n->t.s;
	const void *add = NULL;
	int e = k->embed(s, n->embed, n->tokens, 0, n->x);
	for (int l = 0; l < LAYERS; l++) {
		const struct kern_qkv_args qkv = qkv_args(n, l);
		const struct kern_attn_args attn = attn_args(n, l);
		e |= k->rmsnorm(s, n->normed, n->x, add, n->ones, rows, H, 1e-6f);
		e |= k->linear(s, n->layers[l].qkv, n->proj, n->normed, rows, false);
		e |= k->qkv(s, &qkv);
		e |= k->attention(s, &attn);
		e |= k->linear(s, n->layers[l].o, n->add, n->att, rows, true);
		e |= k->rmsnorm(s, n->normed, n->x, n->add, n->ones, rows, H, 1e-6f);
		e |= k->gateup_swiglu(s, n->layers[l].gateup, n->ffn, n->normed, rows);
		e |= k->linear(s, n->layers[l].down, n->add, n->ffn, rows, true);
		add = n->add;
	}
	e |= k->gather(s, n->last, n->x, H);
	e |= k->gather(s, n->last_add, n->add, H);
	e |= k->rmsnorm(s, n->normed, n->last, n->last_add, n->ones, rows, H, 1e-6f);
	e |= k->linear(s, k->embed_linear(n->embed), n->logits, n->normed, rows, true);
	cr_assert_eq(e, 0);
}

/* Set the batch of the next token of the first `seqs` sequences, with the logits in another order. */
static void set_batch(struct net *n, const struct seqs *q, int seqs, int pad_to)
{
	int32_t token_at[SEQS_MAX], row0[SEQS_MAX + 1] = {0}, pos0[SEQS_MAX], want[SEQS_MAX];
	for (int i = 0; i < seqs; i++) {
		token_at[i] = i * (n->m.context + 1) + q->len[i];
		row0[i + 1] = i + 1;
		pos0[i] = q->len[i];
		want[i] = (i + 1) % seqs;
	}
	struct kern_batch b = {
		.n_rows = seqs,
		.n_seqs = seqs,
		.token_at = token_at,
		.row0 = row0,
		.pos0 = pos0,
		.tables = q->table[0],
		.table_stride = 128,
		.n_logits = seqs,
		.logits_row = want,
		.pad_to = pad_to,
	};
	cr_assert_eq(n->t.ops->batch_set(n->t.s, &b), 0);
}

static void get_logits(struct net *n, int seqs, float *out)
{
	kt_get(&n->t, out, n->logits, (size_t)(seqs * V) * sizeof *out);
}

/* Capture a graph as a worker does at its start, with only null rows. */
static void capture(struct net *n, int i)
{
	struct seqs none = {0};
	set_batch(n, &none, 0, sizes[i]);
	operations(n, sizes[i]);
	cr_assert_eq(n->t.ops->graph_begin(n->t.s), 0);
	operations(n, sizes[i]);
	cr_assert_eq(n->t.ops->graph_end(n->t.s, &n->graph[i]), 0);
}

static int size_for(int seqs)
{
	int i = 0;
	while (sizes[i] < seqs) /* the smallest size that is large enough */
		i++;
	return i;
}

static void launch(struct net *n, const struct seqs *q, int seqs)
{
	const int i = size_for(seqs);
	set_batch(n, q, seqs, sizes[i]);
	cr_assert_eq(n->t.ops->graph_launch(n->t.s, n->graph[i]), 0);
}

/* ---- sequences ---- */

static void more_blocks(struct seqs *q, const struct net *n, int i, int tokens)
{
	for (; q->blocks[i] * BLOCK < tokens; q->blocks[i]++) {
		cr_assert(q->next_block < n->n_blocks && q->blocks[i] < 128);
		/* scattered: 7 has no factor in common with n_blocks */
		q->table[i][q->blocks[i]] = (int32_t)((int64_t)q->next_block++ * 7 % n->n_blocks);
	}
}

/* Add a sequence with len tokens of random K and V, and room for one more token. */
static void seq_add(struct net *n, struct seqs *q, int len)
{
	const int i = q->n++, width = (n->m.heads + 2 * n->m.kv_heads) * n->m.dim;
	more_blocks(q, n, i, len + 1);
	for (int at = 0, rows; at < len; at += rows) {
		rows = len - at < 256 ? len - at : 256;
		int32_t row0[] = {0, rows}, pos0[] = {at}, token_at[256] = {0};
		float *in = kt_floats((size_t)(rows * width));
		struct kern_batch b = {
			.n_rows = rows,
			.n_seqs = 1,
			.token_at = token_at,
			.row0 = row0,
			.pos0 = pos0,
			.tables = q->table[i],
			.table_stride = 128,
		};
		cr_assert_eq(n->t.ops->batch_set(n->t.s, &b), 0);
		for (int l = 0; l < LAYERS; l++) {
			const struct kern_qkv_args qkv = qkv_args(n, l);
			kt_set_op(&n->t, n->proj, in + l, (size_t)(rows * width - l));
			cr_assert_eq(n->t.ops->qkv(n->t.s, &qkv), 0);
		}
		cr_assert_eq(n->t.ops->stream_sync(n->t.s), 0);
		free(in);
	}
	q->len[i] = len;
}

static void seq_grow(struct net *n, struct seqs *q, int i)
{
	more_blocks(q, n, i, q->len[i] + 2);
	q->len[i]++;
}

/* Run a step from a graph, then the same step without one, which stores the same K and V again. */
static void check_step(struct net *n, const struct seqs *q, int seqs, const char *what)
{
	float got[SEQS_MAX * V], want[SEQS_MAX * V];
	char text[160];
	cudasim_seed((uint64_t)seqs);
	launch(n, q, seqs);
	get_logits(n, seqs, got);
	set_batch(n, q, seqs, 0);
	operations(n, seqs);
	get_logits(n, seqs, want);
	snprintf(text, sizeof text, "%s: %d sequences in %d rows", what, seqs, sizes[size_for(seqs)]);
	kt_same(got, want, (size_t)(seqs * V), text);
	for (int i = 0; i < seqs * V; i++)
		cr_assert(isfinite(want[i]), "%s: %f", text, (double)want[i]);
}

/* ---- tests ---- */

/* Lengths around multiples of the chunk size 256, and short lengths. */
static const int lengths[] = {0, 255, 16, 256, 3, 257, 511, 40, 512, 1, 300, 767, 15, 64, 770, 1030};

TestSuite(graph, .timeout = 600);

Test(graph, every_size_and_number_of_sequences_gives_the_bits_of_single_operations)
{
	struct net n;
	struct seqs q = {0};
	net_open(&n, (struct shape){KERN_AWQ4, false, 64, 4, 2, 0, 1100}, SEQS_MAX, 1009);
	for (int i = 0; i < SIZES; i++)
		capture(&n, i);
	for (int i = 0; i < SEQS_MAX; i++)
		seq_add(&n, &q, lengths[i % 16] + (i >= 16 ? i / 2 : 0));
	/* brief: one number of sequences per batch size */
	static const int seqs[] = {1, 2, 3, 7, 16, 17, 25, 40, 5, 8, 9, 24, 31, 33};
	for (int i = 0; i < (ct_brief() ? 8 : 14); i++)
		check_step(&n, &q, seqs[i], "awq");
	net_close(&n);
}

static void check_shape(struct shape m)
{
	char what[96];
	struct net n;
	struct seqs q = {0};
	snprintf(what, sizeof what, "%s %s D %d heads %d/%d window %d",
		 m.dtype == KERN_AWQ4   ? "awq"
		 : m.dtype == KERN_BF16 ? "bf16"
					: "f16",
		 m.bf16 ? "in bf16" : "in f16", m.dim, m.heads, m.kv_heads, m.window);
	net_open(&n, m, 8, 211);
	static const int some[] = {0, 2, 3};
	for (int i = 0; i < 3; i++)
		capture(&n, some[i]);
	for (int i = 0; i < 6; i++)
		seq_add(&n, &q, lengths[(i * 5 + 5) % 16]);
	check_step(&n, &q, 1, what);
	check_step(&n, &q, 3, what);
	check_step(&n, &q, 6, what);
	net_close(&n);
}

Test(graph, heads_sizes_and_types)
{
	static const int groups[] = {1, 2, 3, 4, 5, 6, 7, 8};
	for (int i = 0; i < 8; i++) {
		if (ct_brief() && i != 1 && i != 2 &&
		    i != 6) /* brief: each type; groups of 2, 3 and 7 heads */
			continue;
		const enum kern_dtype t = i % 3 == 0 ? KERN_AWQ4 : i % 3 == 1 ? KERN_F16 : KERN_BF16;
		check_shape((struct shape){t, t == KERN_BF16 || i == 6, i % 2 ? 128 : 64,
					   groups[i] * (1 + i % 2), 1 + i % 2, 0, 1100});
	}
}

Test(graph, a_window_in_one_layer_and_none_in_the_other)
{
	check_shape((struct shape){KERN_F16, false, 64, 4, 2, 300, 1100});
	check_shape((struct shape){KERN_AWQ4, true, 64, 8, 1, 20, 1100});
}

/* More query heads per KV head than one tile takes. */
Test(graph, twenty_heads_share_one)
{
	check_shape((struct shape){KERN_F16, false, 64, 20, 1, 0, 1100});
}

/* Sequences grow across the ends of blocks and of a chunk; all steps are queued before the first is
 * awaited. */
Test(graph, replays_queued_ahead_follow_contexts_that_grow)
{
	enum { STEPS = 9, ROWS = 3 };
	struct net n;
	struct seqs q = {0}, from;
	float got[STEPS][ROWS * V], want[ROWS * V];
	char what[64];
	net_open(&n, (struct shape){KERN_AWQ4, false, 64, 4, 2, 0, 1100}, SEQS_MAX, 211);
	capture(&n, 2);
	seq_add(&n, &q, 250);
	seq_add(&n, &q, 508);
	seq_add(&n, &q, 12);
	from = q;
	void *kept = kt_new(&n.t, sizeof got);
	const unsigned long before = alloc_count();
	alloc_guard(true);
	for (int i = 0; i < STEPS; i++) {
		launch(&n, &q, ROWS);
		cr_assert_eq(n.t.ops->copy(n.t.s, (char *)kept + (size_t)i * sizeof got[0], n.logits,
					   sizeof got[0]),
			     0);
		for (int j = 0; j < ROWS; j++)
			seq_grow(&n, &q, j);
	}
	alloc_guard(false);
	cr_assert_eq(alloc_count(), before);
	kt_get(&n.t, got, kept, sizeof got);
	kt_del(&n.t, kept);
	for (int i = 0; i < STEPS; i++) {
		for (int j = 0; j < ROWS; j++)
			q.len[j] = from.len[j] + i;
		set_batch(&n, &q, ROWS, 0);
		operations(&n, ROWS);
		get_logits(&n, ROWS, want);
		snprintf(what, sizeof what, "step %d", i);
		kt_same(got[i], want, ROWS * V, what);
	}
	net_close(&n);
}

/* If sequences share a long prefix, they have more chunks than the pool: some rows are computed by one block
 * each. */
Test(graph, chunks_without_room_for_their_results)
{
	struct net n;
	struct seqs q = {0};
	net_open(&n, (struct shape){KERN_F16, false, 64, 2, 1, 0, 1100}, SEQS_MAX, 113);
	capture(&n, 7);
	seq_add(&n, &q, 1024);
	for (int i = 1; i < SEQS_MAX; i++) {
		memcpy(q.table[i], q.table[0], 64 * sizeof(int32_t));
		q.n++;
		q.len[i] = 1024;
		q.table[i][64] = (int32_t)((int64_t)q.next_block++ * 7 % n.n_blocks);
	}
	check_step(&n, &q, 38, "a shared prefix");
	net_close(&n);
}

/* Decode rows again after a step of another kind; the other step's work lists must not be reused. */
Test(graph, prompts_between_replays)
{
	struct net n;
	struct seqs q = {0};
	float first[3 * V], again[3 * V];
	net_open(&n, (struct shape){KERN_F16, false, 64, 4, 2, 0, 1100}, SEQS_MAX, 211);
	capture(&n, 2);
	seq_add(&n, &q, 600);
	seq_add(&n, &q, 5);
	seq_add(&n, &q, 256);
	launch(&n, &q, 3);
	get_logits(&n, 3, first);
	set_batch(&n, &q, 2, 0);
	operations(&n, 2);
	seq_add(&n, &q, 33);
	launch(&n, &q, 3);
	get_logits(&n, 3, again);
	kt_same(again, first, 3 * V, "after another batch");
	net_close(&n);
}

/* Compare the pool before and after: it may differ only at the rows' positions and in the null block. */
Test(graph, null_rows_touch_no_block)
{
	struct net n;
	struct seqs q = {0};
	net_open(&n, (struct shape){KERN_AWQ4, false, 64, 4, 2, 0, 600}, SEQS_MAX, 61);
	capture(&n, 2);
	seq_add(&n, &q, 300);
	seq_add(&n, &q, 31);
	seq_add(&n, &q, 0);
	const struct kv_peek kv = kv_peek_at(n.kv);
	const size_t bytes = kv.block_bytes * (size_t)kv.n_blocks, token = 64 * 2;
	unsigned char *before = xmalloc(bytes), *after = xmalloc(bytes);
	bool stored[3] = {false};
	kt_get(&n.t, before, kv.pool, bytes);
	for (size_t i = 0; i < bytes; i++) /* fills free blocks too */
		before[i] = before[i] ? before[i] : 0x5a;
	cr_assert_eq(n.t.ops->upload(n.t.s, kv.pool, before, bytes), 0);
	launch(&n, &q, 3);
	kt_get(&n.t, after, kv.pool, bytes);
	for (size_t i = 0; i < bytes; i++) {
		bool own = false;
		for (int j = 0; j < 3; j++) {
			const bool block = i / kv.block_bytes == (size_t)q.table[j][q.len[j] / BLOCK];
			if (block && i % kv.head_bytes / token == (size_t)(q.len[j] % BLOCK))
				own = stored[j] = true;
		}
		cr_assert(own || before[i] == after[i], "block %zu, byte %zu", i / kv.block_bytes,
			  i % kv.block_bytes);
	}
	cr_assert(stored[0] && stored[1] && stored[2]);
	free(before);
	free(after);
	net_close(&n);
}

#ifdef QUERN_CUDASIM
static int carveouts[101], n_captured;

static void see_carveout(const struct cudasim_launched *l)
{
	cr_assert(l->carveout >= 0 && l->carveout <= 100, "%s: a carve-out of %d", l->name, l->carveout);
	carveouts[l->carveout]++;
	n_captured++;
}

/* A multiprocessor must be empty before its carve-out changes. */
Test(graph, all_kernels_of_a_graph_have_one_carve_out)
{
	struct net n;
	net_open(&n, (struct shape){KERN_AWQ4, false, 64, 4, 2, 0, 600}, SEQS_MAX, 61);
	cudasim_watch_launches(see_carveout);
	capture(&n, 0);
	capture(&n, SIZES - 1);
	cudasim_watch_launches(NULL);
	cr_expect(n_captured > 2 * LAYERS * 8);
	cr_expect_eq(carveouts[100], n_captured);
	net_close(&n);
}

Test(graph, a_replay_makes_no_device_memory_and_all_is_given_back)
{
	struct net n;
	struct seqs q = {0};
	const uint64_t pieces = cudasim_stats().live_pieces, bytes = cudasim_stats().live_bytes;
	net_open(&n, (struct shape){KERN_AWQ4, false, 64, 4, 2, 0, 600}, SEQS_MAX, 61);
	const uint64_t without = cudasim_stats().live_bytes;
	capture(&n, 0);
	capture(&n, 1);
	const uint64_t before = cudasim_stats().live_bytes, launches = cudasim_stats().graphs;
	cr_assert(before > without, "graphs take memory");
	seq_add(&n, &q, 300);
	seq_add(&n, &q, 31);
	launch(&n, &q, 2);
	launch(&n, &q, 1);
	cr_assert_eq(n.t.ops->stream_sync(n.t.s), 0);
	cr_assert_eq(cudasim_stats().live_bytes, before);
	cr_assert_eq(cudasim_stats().graphs, launches + 2);
	net_close(&n);
	cr_assert_eq(cudasim_stats().live_pieces, pieces);
	cr_assert_eq(cudasim_stats().live_bytes, bytes);
}

/* ---- layers with different windows ---- */

enum { TURNS = 8, SEQS = 3, DIM = 32, HEADS = 2, BLOCKS = 40, CONTEXT = 600, WIDTH = HEADS * DIM };

static const char *counted; /* count launches of kernels with this in their name */
static int n_counted;

static void count_one(const struct cudasim_launched *l)
{
	n_counted += strstr(l->name, counted) != NULL;
}

static void count_begin(const char *name)
{
	counted = name;
	n_counted = 0;
	cudasim_watch_launches(count_one);
}

static int count_end(void)
{
	cudasim_watch_launches(NULL);
	return n_counted;
}

static const int32_t positions[SEQS] = {530, 40, 3};

struct turns {
	struct kt t;
	struct kern_kv *kv;
	void *q, *out;
	const int *windows; /* used in rotation */
	int n_windows;
};

static void turns_open(struct turns *a, const int *windows, int n_windows)
{
	*a = (struct turns){.windows = windows, .n_windows = n_windows};
	ct_open(&a->t, false,
		(struct kt_size){
			.rows = SEQS, .seqs = SEQS, .logits = SEQS, .context = CONTEXT, .block_size = BLOCK});
	a->kv = a->t.ops->kv_new(a->t.dev, 1, 1, DIM, BLOCK, BLOCKS, 0);
	const struct kv_peek at = kv_peek_at(a->kv);
	const size_t n = at.block_bytes * BLOCKS / 2;
	float *some = kt_floats(n), *q = kt_floats(SEQS * WIDTH);
	kt_set_op(&a->t, at.pool, some, n);
	a->q = kt_put_op(&a->t, q, SEQS * WIDTH);
	a->out = kt_new(&a->t, (size_t)TURNS * SEQS * WIDTH * 2);
	free(some);
	free(q);
}

static void turns_close(struct turns *a)
{
	kt_del(&a->t, a->q);
	kt_del(&a->t, a->out);
	a->t.ops->kv_free(a->kv);
	kt_close(&a->t);
}

static void turns_batch(struct turns *a, int pad_to)
{
	int32_t token_at[SEQS], row0[SEQS + 1] = {0}, table[SEQS][BLOCKS], rows[SEQS];
	for (int i = 0; i < SEQS; i++) {
		token_at[i] = positions[i];
		row0[i + 1] = i + 1;
		rows[i] = i;
		for (int b = 0; b < BLOCKS; b++)
			table[i][b] = (int32_t)((b * 7 + i * 11) % BLOCKS);
	}
	const struct kern_batch b = {.n_rows = SEQS,
				     .n_seqs = SEQS,
				     .token_at = token_at,
				     .row0 = row0,
				     .pos0 = positions,
				     .tables = table[0],
				     .table_stride = BLOCKS,
				     .n_logits = SEQS,
				     .logits_row = rows,
				     .pad_to = pad_to};
	cr_assert_eq(a->t.ops->batch_set(a->t.s, &b), 0);
}

static void attend(struct turns *a, int layer)
{
	const struct kern_attn_args in = {.out = (char *)a->out + (size_t)layer * SEQS * WIDTH * 2,
					  .q = a->q,
					  .kv = a->kv,
					  .n_q_heads = HEADS,
					  .n_kv_heads = 1,
					  .head_dim = DIM,
					  .scale = 0.2f,
					  .window = a->windows[layer % a->n_windows]};
	cr_assert_eq(a->t.ops->attention(a->t.s, &in), 0);
}

static void attend_all(struct turns *a)
{
	for (int l = 0; l < TURNS; l++)
		attend(a, l);
}

/* Compute the outputs of all layers, each with its own batch and so its own plan. */
static void each_alone(struct turns *a, float *out)
{
	for (int l = 0; l < TURNS; l++) {
		turns_batch(a, 0);
		attend(a, l);
	}
	kt_get_op(&a->t, out, a->out, TURNS * SEQS * WIDTH);
}

static void check_turns(struct turns *a, const float *want, const char *what)
{
	float got[TURNS * SEQS * WIDTH];
	kt_get_op(&a->t, got, a->out, TURNS * SEQS * WIDTH);
	kt_same(got, want, TURNS * SEQS * WIDTH, what);
}

static void forget(struct turns *a)
{
	static const float none[TURNS * SEQS * WIDTH];
	kt_set_op(&a->t, a->out, none, TURNS * SEQS * WIDTH);
}

static const int alternate[] = {128, 0}, three[] = {128, 0, 20};

Test(graph, layers_with_windows_in_turns_share_a_plan_for_each_window)
{
	enum { STEPS = 3 };
	struct turns a;
	float want[TURNS * SEQS * WIDTH];
	turns_open(&a, alternate, 2);
	each_alone(&a, want);
	forget(&a);
	cudasim_count_again();
	count_begin("move_kernel"); /* the kernel that sends a plan made on the host */
	for (int i = 0; i < STEPS; i++) {
		turns_batch(&a, 0);
		attend_all(&a);
	}
	const int plans = count_end();
	const uint64_t waits = cudasim_stats().syncs;
	cr_expect_eq(plans, 2 * STEPS, "%d plans in %d steps", plans, (int)STEPS);
	cr_expect_eq(waits, 0, "the host waited %llu times", (unsigned long long)waits);
	check_turns(&a, want, "steps queued ahead");
	turns_close(&a);
}

Test(graph, so_they_do_in_a_graph)
{
	struct turns a;
	struct kern_graph *g = NULL;
	float want[TURNS * SEQS * WIDTH];
	turns_open(&a, alternate, 2);
	each_alone(&a, want);
	turns_batch(&a, SEQS);
	attend_all(&a); /* the first launch of each kernel is not captured */
	cr_assert_eq(a.t.ops->graph_begin(a.t.s), 0);
	count_begin("list_kernel");
	attend_all(&a);
	const int lists = count_end();
	cr_assert_eq(a.t.ops->graph_end(a.t.s, &g), 0);
	cr_expect_eq(lists, 2, "%d lists of work", lists);
	for (int i = 0; i < 2; i++) {
		forget(&a);
		turns_batch(&a, SEQS);
		cr_assert_eq(a.t.ops->graph_launch(a.t.s, g), 0);
		check_turns(&a, want, "a replay");
	}
	/* A plan made in the graph is not used by operations after it. */
	forget(&a);
	attend_all(&a);
	check_turns(&a, want, "operations after a graph");
	a.t.ops->graph_free(g);
	turns_close(&a);
}

/* No model has that many windows. */
Test(graph, more_windows_than_there_are_plans_for_give_the_same)
{
	struct turns a;
	float want[TURNS * SEQS * WIDTH];
	turns_open(&a, three, 3);
	each_alone(&a, want);
	for (int pad_to = 0; pad_to <= SEQS; pad_to += SEQS) {
		forget(&a);
		turns_batch(&a, pad_to);
		attend_all(&a);
		check_turns(&a, want, "three windows");
	}
	turns_close(&a);
}
#endif
