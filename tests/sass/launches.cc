/* launches.cc - prints the launches of a step of Qwen3-8B on 132 multiprocessors: one layer and the two ends,
 * on the emulated device, without computing.  One line per launch:
 *
 *     PHASE ROWS CONTEXT OPERATION KERNEL GRID THREADS SHARED_BYTES
 *
 * KERNEL: its address minus that of main(), which tests/sass looks up in the program's symbols. */
#include "kernels/cuda/linear.cuh"
#include "tests/cudasim/cudasim.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

extern "C" const struct kern_ops kern_cuda_ops;

enum {
	HIDDEN = 4096,
	INTERMEDIATE = 12288,
	HEADS = 32,
	KV_HEADS = 8,
	DIM = 128,
	VOCAB = 151936,
	GROUP = 128,
	SMS = 132, /* as on an H200 */
	BLOCK = 16,
	CONTEXT = 1024, /* tokens of each decoding sequence */
	ROWS = 2048,
	SEQS = 256,
};

static const struct kern_ops *const ops = &kern_cuda_ops;
static struct kern_dev *dev;
static struct kern_stream *stream;
static char operation[32], phase[32];
static int rows, context;

int main(void);

static void print_launch(const struct cudasim_launched *l)
{
	printf("%s %d %d %s %td %u %u %llu\n", phase, rows, context, operation,
	       (const char *)l->kernel - (const char *)main, l->grid[0] * l->grid[1] * l->grid[2], l->threads,
	       (unsigned long long)l->smem);
}

static void named(const char *name)
{
	snprintf(operation, sizeof operation, "%s", name);
}

static void must(int e, const char *what)
{
	if (e) {
		fprintf(stderr, "%s failed: %d\n", what, e);
		exit(1);
	}
}

/* Return stored weights: zeros that take no memory. */
static void *zeros(size_t bytes)
{
	void *p =
		mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	return p == MAP_FAILED ? NULL : p;
}

static struct kern_linear *awq(int k, int n0, int n1, int n2)
{
	const int n[3] = {n0, n1, n2};
	struct kern_linear_src src = {};
	struct kern_linear *w = NULL;
	struct why why = {""};
	src.name = "layer";
	src.k = k;
	src.group = GROUP;
	for (int i = 0; i < 3 && n[i]; i++) {
		struct kern_linear_part *p = &src.parts[src.n_parts++];
		p->dtype = KERN_AWQ4;
		p->n = n[i];
		p->w = zeros((size_t)k * (size_t)n[i] / 2);
		p->qzeros = zeros((size_t)k / GROUP * (size_t)n[i] / 2);
		p->scales = zeros((size_t)k / GROUP * (size_t)n[i] * 2);
	}
	must(ops->linear_load(dev, &src, &w, &why), why.text);
	return w;
}

struct net {
	struct kern_linear *qkv, *o, *gateup, *down;
	struct kern_embed *embed;
	struct kern_kv *kv;
	void *x, *op, *logits, *norm;
};

static void open_net(struct net *n)
{
	struct why why = {""};
	struct kern_open_args a = {};
	a.index = -1;
	a.model = KERN_F16;
	a.max_rows = ROWS;
	a.max_seqs = a.max_logits = SEQS;
	a.max_context = 4096;
	a.max_blocks_per_seq = a.max_context / BLOCK;
	a.n_vocab = VOCAB;
	cudasim_memory((uint64_t)141 << 30, 0);
	cudasim_idle(true);
	cudasim_sms(SMS);
	must(ops->open(&dev, &a, &why), why.text);
	stream = ops->stream_new(dev);
	n->qkv = awq(HIDDEN, HEADS * DIM, KV_HEADS * DIM, KV_HEADS * DIM);
	n->o = awq(HEADS * DIM, HIDDEN, 0, 0);
	n->gateup = awq(HIDDEN, INTERMEDIATE, INTERMEDIATE, 0);
	n->down = awq(INTERMEDIATE, HIDDEN, 0, 0);
	const struct kern_embed_src embed = {zeros((size_t)VOCAB * HIDDEN * 2), KERN_F16, VOCAB, HIDDEN,
					     true};
	must(ops->embed_load(dev, &embed, &n->embed, &why), why.text);
	n->kv = ops->kv_new(dev, 1, KV_HEADS, DIM, BLOCK, SEQS * CONTEXT / BLOCK, 0);
	n->x = ops->mem_new(dev, (size_t)ROWS * HIDDEN * 4);
	n->op = ops->mem_new(dev, (size_t)ROWS * 2 * INTERMEDIATE * 2);
	n->logits = ops->mem_new(dev, (size_t)SEQS * VOCAB * 4);
	n->norm = ops->mem_new(dev, (size_t)INTERMEDIATE * 4 * DIM);
	if (!n->kv || !n->x || !n->op || !n->logits || !n->norm)
		must(-ENOMEM, "memory");
}

/* Set a batch of n_seqs sequences with n_rows / n_seqs rows each, at `pos`.  One row per sequence: a step of
 * a graph. */
static void set_batch(int n_rows, int n_seqs, int pos)
{
	static int32_t token_at[ROWS], row0[SEQS + 1], pos0[SEQS], table[SEQS * 4096 / BLOCK], want[SEQS];
	struct kern_batch b = {};
	const int each = n_rows / n_seqs;
	for (int i = 0; i < n_seqs; i++) {
		row0[i + 1] = (i + 1) * each;
		pos0[i] = pos;
		want[i] = (i + 1) * each - 1;
	}
	b.n_rows = n_rows;
	b.n_seqs = b.n_logits = n_seqs;
	b.token_at = token_at;
	b.row0 = row0;
	b.pos0 = pos0;
	b.tables = table;
	b.table_stride = 4096 / BLOCK;
	b.logits_row = want;
	b.pad_to = each == 1 ? n_rows : 0;
	must(ops->batch_set(stream, &b), "batch");
}

static void layer(const struct net *n, int n_rows)
{
	struct kern_qkv_args q = {};
	struct kern_attn_args t = {};
	q.q = n->op, q.qkv = n->op, q.q_norm = q.k_norm = q.rope = n->norm;
	q.rope_dim = q.head_dim = t.head_dim = DIM;
	q.n_q_heads = t.n_q_heads = HEADS;
	q.n_kv_heads = t.n_kv_heads = KV_HEADS;
	q.kv = t.kv = n->kv;
	t.out = n->op, t.q = n->op;
	t.scale = 1;
	named("norm");
	must(ops->rmsnorm(stream, n->op, n->x, n->x, n->norm, n_rows, HIDDEN, 1e-6f), operation);
	named("qkv");
	must(ops->linear(stream, n->qkv, n->op, n->op, n_rows, false), operation);
	named("rotate");
	must(ops->qkv(stream, &q), operation);
	named("attention");
	must(ops->attention(stream, &t), operation);
	named("o");
	must(ops->linear(stream, n->o, n->x, n->op, n_rows, true), operation);
	named("norm");
	must(ops->rmsnorm(stream, n->op, n->x, n->x, n->norm, n_rows, HIDDEN, 1e-6f), operation);
	named("gateup");
	must(ops->gateup_swiglu(stream, n->gateup, n->op, n->op, n_rows), operation);
	named("down");
	must(ops->linear(stream, n->down, n->x, n->op, n_rows, true), operation);
}

static void step(const struct net *n, const char *name, int n_rows, int n_seqs, int pos)
{
	static struct kern_sample_row samples[SEQS];
	static void *results[3]; /* shared by all steps */
	struct kern_sample_out out = {};
	for (int i = 0; i < 3; i++)
		results[i] = results[i] ? results[i] : ops->host_new(dev, SEQS * 4);
	snprintf(phase, sizeof phase, "%s", name);
	rows = n_rows;
	context = pos + n_rows / n_seqs;
	named("batch");
	set_batch(n_rows, n_seqs, pos);
	named("embed");
	must(ops->embed(stream, n->embed, (int32_t *)n->norm, 0, n->x), operation);
	layer(n, n_rows);
	named("gather");
	must(ops->gather(stream, n->x, n->x, HIDDEN), operation);
	must(ops->gather(stream, n->x, n->x, HIDDEN), operation);
	named("last_norm");
	must(ops->rmsnorm(stream, n->op, n->x, n->x, n->norm, n_seqs, HIDDEN, 1e-6f), operation);
	named("head");
	must(ops->linear(stream, ops->embed_linear(n->embed), n->logits, n->op, n_seqs, true), operation);
	for (int i = 0; i < n_seqs; i++) {
		samples[i] = (struct kern_sample_row){};
		samples[i].row = i;
		samples[i].forced = samples[i].n_logprobs = -1;
		samples[i].temperature = samples[i].top_p = samples[i].repetition = 1;
		samples[i].n_hist = context;
	}
	out.token = (int32_t *)results[0];
	out.logprob = (float *)results[1];
	out.rank = (int32_t *)results[2];
	named("sample");
	must(ops->sample(stream, n->logits, VOCAB, (int32_t *)n->norm, samples, n_seqs, &out), operation);
	must(ops->stream_sync(stream), "the stream");
}

int main(void)
{
	struct net n;
	open_net(&n);
	cudasim_watch_launches(print_launch);
	step(&n, "decode", 1, 1, CONTEXT - 1);
	step(&n, "decode", 16, 16, CONTEXT - 1);
	step(&n, "decode", 64, 64, CONTEXT - 1);
	step(&n, "decode", 256, 256, CONTEXT - 1);
	step(&n, "prompt", 2048, 1, 0);
	return 0;
}
