/* The CUDA table as a device: memory, streams, swaps, block tables, the output of info(), the refusals of
 * open(). */
#include "tests/cudasim/cuda_test.h"
#include "tests/cudasim/kv_peek.h"

Test(device, memory_is_zeroed_and_copies_arrive_in_order_of_events)
{
	struct kt t;
	ct_open(&t, false, (struct kt_size){0});
	static const size_t sizes[] = {1, 1000, 5 << 20};
	for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
		unsigned char *d = kt_new(&t, sizes[i]), *h = t.ops->host_new(t.dev, sizes[i]);
		unsigned char *back = t.ops->host_new(t.dev, sizes[i]);
		cr_assert(h && back && (uintptr_t)d % 64 == 0);
		memset(back, 1, sizes[i]);
		kt_get(&t, back, d, sizes[i]);
		for (size_t b = 0; b < sizes[i]; b++)
			cr_assert_eq(back[b], 0);
		memset(h, 7, sizes[i]);
		struct kern_stream *other = t.ops->stream_new(t.dev);
		struct kern_event *e = t.ops->event_new(t.dev);
		cr_assert_eq(t.ops->upload(other, d, h, sizes[i]), 0);
		cr_assert(t.ops->event_record(e, other) == 0 && t.ops->event_wait(e, t.s) == 0);
		kt_get(&t, back, d, sizes[i]);
		cr_assert_eq(back[sizes[i] - 1], 7);
		cr_assert(t.ops->event_done(e));
		t.ops->event_free(e);
		t.ops->stream_free(other);
		kt_del(&t, d);
		t.ops->host_free(t.dev, h, sizes[i]);
		t.ops->host_free(t.dev, back, sizes[i]);
	}
	kt_close(&t);
}

/* A kernel moves up to 256 KB, in whole words, from memory of host_new(); the copy engine moves the rest. */
Test(device, what_is_small_is_moved_by_a_kernel)
{
	static const struct {
		size_t bytes;
		uint64_t copies;
	} cases[] = {{4, 0}, {6, 2}, {256 << 10, 0}, {(256 << 10) + 4, 2}};
	const size_t most = (256 << 10) + 8;
	struct kt t;
	ct_open(&t, false, (struct kt_size){0});
	unsigned char *host = t.ops->host_new(t.dev, most), *got = xmalloc(most);
	unsigned char *a = kt_new(&t, most), *b = kt_new(&t, most);
	cr_assert(host);
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		const size_t n = cases[i].bytes;
		for (size_t k = 0; k < most; k++)
			host[k] = (unsigned char)(k * 7 + i + 1);
#ifdef QUERN_CUDASIM
		cudasim_count_again();
#endif
		cr_assert_eq(t.ops->upload(t.s, a, host + 4, n), 0);
		cr_assert_eq(t.ops->copy(t.s, b, a, n), 0);
#ifdef QUERN_CUDASIM
		const struct cudasim_counters c = cudasim_stats();
		cr_expect_eq(c.copies, cases[i].copies, "%zu bytes: %lu copies", n, (unsigned long)c.copies);
		cr_expect_eq(c.syncs, 0);
#endif
		kt_get(&t, got, b, most);
		cr_expect(!memcmp(got, host + 4, n), "%zu bytes", n);
		cr_expect_eq(got[n], 0, "%zu bytes: one more was written", n);
	}
	t.ops->host_free(t.dev, host, most);
	free(got);
	kt_close(&t);
}

/* Swap blocks out to another order and back.  Pairs that are adjacent on both sides are joined; blocks are
 * larger or smaller than a piece. */
static void swap_blocks(int n_layers, int n_blocks)
{
	struct kt t;
	ct_open(&t, false, (struct kt_size){.context = 256, .block_size = 256});
	struct kern_kv *kv = t.ops->kv_new(t.dev, n_layers, 8, 128, 256, n_blocks, n_blocks);
	cr_assert(kv);
	const struct kv_peek peek = kv_peek_at(kv);
	const size_t bytes = peek.block_bytes * (size_t)n_blocks;
	unsigned char *was = xmalloc(bytes), *is = xmalloc(bytes);
	int32_t(*pairs)[2] = xcalloc((size_t)n_blocks, sizeof *pairs);
	for (size_t i = 0; i < bytes; i++)
		was[i] = (unsigned char)(i * 2654435761u >> 13);
	kt_set(&t, peek.pool, was, bytes);
	for (int i = 0; i < n_blocks; i++) { /* rotated: the last block becomes the first */
		pairs[i][0] = i;
		pairs[i][1] = (i + 1) % n_blocks;
	}
#ifdef QUERN_CUDASIM
	cudasim_count_again();
#endif
	cr_assert_eq(t.ops->kv_swap_out(t.s, kv, (const int32_t(*)[2])pairs, n_blocks), 0);
	for (int i = 0; i < n_blocks; i++)
		pairs[i][0] = pairs[i][1] = i;
	cr_assert_eq(t.ops->kv_swap_in(t.s, kv, (const int32_t(*)[2])pairs, n_blocks), 0);
#ifdef QUERN_CUDASIM
	const struct cudasim_counters c = cudasim_stats();
	const uint64_t piece = 4 << 20, least = bytes / piece;
	cr_expect_leq(c.copy_bytes_most, piece);
	/* Each way only whole pieces, except at the ends of two runs. */
	cr_expect(c.copies >= 2 * least && c.copies <= 2 * least + 4, "%lu copies of %zu bytes",
		  (unsigned long)c.copies, bytes);
	cr_expect_eq(c.syncs, 0);
#endif
	kt_get(&t, is, peek.pool, bytes);
	const size_t one = peek.block_bytes, others = bytes - one;
	cr_expect(!memcmp(is + one, was, others) && !memcmp(is, was + others, one), "other bytes");
	free(was);
	free(is);
	free(pairs);
	t.ops->kv_free(kv);
	kt_close(&t);
}

Test(device, a_swap_of_many_small_blocks_goes_in_pieces)
{
	swap_blocks(1, 17);
}

Test(device, a_swap_of_blocks_larger_than_a_piece_goes_in_pieces)
{
	swap_blocks(5, 3);
}

Test(device, info_names_the_operand_type_and_what_decides_bits)
{
	for (int bf16 = 0; bf16 < 2; bf16++) {
		struct kt t;
		struct kern_info in;
		ct_open(&t, bf16, (struct kt_size){0});
		t.ops->info(t.dev, &in);
		cr_assert_eq(in.operand, bf16 ? KERN_BF16 : KERN_F16);
		cr_assert(in.kv == (bf16 ? KERN_KV_BF16 : KERN_KV_F16) && in.name[0] && in.bytes_free > 0 &&
			  in.bytes_total >= in.bytes_free);
		cr_assert(strstr(in.numerics, bf16 ? " bf16" : " f16") && strstr(in.numerics, in.isa));
		kt_close(&t);
	}
}

Test(device, a_model_trained_in_bf16_gets_operands_of_its_range)
{
	struct why why;
	const struct kern_open_args a = {.index = -1,
					 .compute = KERN_COMPUTE_F32,
					 .model = KERN_BF16,
					 .max_rows = 1,
					 .max_seqs = 1,
					 .max_logits = 1,
					 .max_context = 1,
					 .max_blocks_per_seq = 1};
	struct kern_dev *d;
	struct kern_info in;
	cr_assert_eq(kern_cuda_ops.open(&d, &a, &why), 0, "%s", why.text);
	kern_cuda_ops.info(d, &in);
	cr_assert_eq(in.operand, KERN_BF16);
	kern_cuda_ops.close(d);
}

Test(device, what_cannot_be_opened_is_refused_with_the_reason)
{
	struct why why;
	struct kern_dev *d;
	struct kern_open_args a = {.index = -1};
	cr_assert_eq(kern_cuda_ops.open(&d, &a, &why), -EINVAL);
	a.max_rows = a.max_seqs = a.max_logits = a.max_context = a.max_blocks_per_seq = 1;
	a.index = 900;
	cr_assert_eq(kern_cuda_ops.open(&d, &a, &why), -ENODEV);
	cr_assert(strstr(why.text, "cuda:900"), "%s", why.text);
	a.index = 0;
	a.compute = KERN_COMPUTE_INT8;
	cr_assert_eq(kern_cuda_ops.open(&d, &a, &why), -ENOTSUP);
	cr_assert(strstr(why.text, "int8") && d == NULL, "%s", why.text);
	a.compute = KERN_COMPUTE_INT16;
	cr_assert_eq(kern_cuda_ops.open(&d, &a, &why), -ENOTSUP);
	cr_assert(strstr(why.text, "int16") && d == NULL, "%s", why.text);
	a.compute = KERN_COMPUTE_F32;
	a.head = KERN_HEAD_INT8;
	cr_assert_eq(kern_cuda_ops.open(&d, &a, &why), -ENOTSUP);
	cr_assert(strstr(why.text, "head") && d == NULL, "%s", why.text);
	a.head = KERN_HEAD_MODE;
	a.kv = KERN_KV_INT8;
	cr_assert_eq(kern_cuda_ops.open(&d, &a, &why), -ENOTSUP);
	cr_assert(strstr(why.text, "K and V") && d == NULL, "%s", why.text);
}

#ifdef QUERN_CUDASIM
static const char *refusal(int cuda)
{
	static struct why why;
	struct kern_dev *d;
	struct kern_open_args a = {.index = -1};
	a.max_rows = a.max_seqs = a.max_logits = a.max_context = a.max_blocks_per_seq = 1;
	cudasim_driver(cuda);
	cr_assert_eq(kern_cuda_ops.open(&d, &a, &why), -ENODEV);
	return why.text;
}

Test(device, a_driver_that_is_too_old_is_named_with_the_one_needed_and_the_remedy)
{
	const char *why = refusal(12040);
	cr_expect(strstr(why, "driver " CUDASIM_DRIVER " (CUDA 12.4) is too old"), "%s", why);
	cr_expect(strstr(why, "(CUDA 13.0): they need 580 or later"), "%s", why);
	cr_expect(strstr(why, "built with a CUDA 12 toolkit"), "%s", why);
}

/* No toolkit of this release compiles the kernels. */
Test(device, for_the_oldest_drivers_the_only_remedy_is_another_driver)
{
	const char *why = refusal(11080);
	cr_expect(strstr(why, "(CUDA 11.8) is too old") && strstr(why, "update the driver"), "%s", why);
	cr_expect_not(strstr(why, "toolkit"), "%s", why);
}

Test(device, a_machine_without_a_driver_is_told_so)
{
	const char *why = refusal(0);
	cr_expect(strstr(why, "no NVIDIA driver is installed") && strstr(why, "580 or later"), "%s", why);
	cr_expect_not(strstr(why, "too old"), "%s", why);
}
#endif

/* ---- attention on devices with less shared memory ---- */

enum { A_ROWS = 300, A_HEADS = 4, A_BLOCK = 16, A_BLOCKS = (A_ROWS + A_BLOCK - 1) / A_BLOCK };

#ifdef QUERN_CUDASIM
static uint64_t a_smem[4]; /* shared memory of the launches with dynamic shared memory */
static int a_launches;

static void note_smem(const struct cudasim_launched *l)
{
	if (l->smem)
		a_smem[a_launches++ % 4] = l->smem;
}
#endif

static void a_batch(struct kt *t, int n_rows, int pos)
{
	static int32_t token_at[A_ROWS], table[A_BLOCKS];
	const int32_t row0[] = {0, n_rows}, want[] = {n_rows - 1};
	for (int i = 0; i < A_BLOCKS; i++)
		table[i] = A_BLOCKS - 1 - i;
	const struct kern_batch b = {.n_rows = n_rows,
				     .n_seqs = 1,
				     .token_at = token_at,
				     .row0 = row0,
				     .pos0 = (const int32_t[]){pos},
				     .tables = table,
				     .table_stride = A_BLOCKS,
				     .n_logits = 1,
				     .logits_row = want};
	cr_assert_eq(t->ops->batch_set(t->s, &b), 0);
}

/* Launch attention; its block must have the shared memory of these stages. */
static void a_attention(struct kt *t, const struct kern_attn_args *a, bool split, int stages)
{
#ifdef QUERN_CUDASIM
	a_launches = 0;
	cudasim_watch_launches(note_smem);
#endif
	cr_assert_eq(t->ops->attention(t->s, a), 0);
#ifdef QUERN_CUDASIM
	cudasim_watch_launches(NULL);
	cr_assert_eq(a_launches, 1);
	cr_expect_eq(a_smem[0], (uint64_t)kv_peek_attn_smem(a->head_dim, split, stages));
#else
	(void)split, (void)stages;
#endif
}

/* Compute the outputs of a prompt of A_ROWS rows, then those of its last row as a decoding step. */
static void a_run(float *out, const float *in, int dim, float cap, int smem, int wide_stages,
		  int split_stages)
{
	const size_t row = (size_t)A_HEADS * (size_t)dim, n = A_ROWS * row,
		     n_qkv = n / A_HEADS * (A_HEADS + 2);
	struct kt t;
	ct_open(&t, false,
		(struct kt_size){.rows = A_ROWS, .seqs = 1, .context = A_ROWS, .block_size = A_BLOCK});
	kv_peek_set_smem(t.dev, smem);
	struct kern_kv *kv = t.ops->kv_new(t.dev, 1, 1, dim, A_BLOCK, A_BLOCKS, 0);
	void *qkv = kt_put_op(&t, in, n_qkv), *q = kt_new(&t, n * 2), *to = kt_new(&t, n * 2);
	const struct kern_qkv_args k = {
		.q = q, .qkv = qkv, .n_q_heads = A_HEADS, .n_kv_heads = 1, .head_dim = dim, .kv = kv};
	struct kern_attn_args a = {.out = to,
				   .q = q,
				   .kv = kv,
				   .n_q_heads = A_HEADS,
				   .n_kv_heads = 1,
				   .head_dim = dim,
				   .scale = 0.25f,
				   .cap = cap};
	a_batch(&t, A_ROWS, 0);
	cr_assert_eq(t.ops->qkv(t.s, &k), 0);
	a_attention(&t, &a, !wide_stages, wide_stages ? wide_stages : split_stages);
	kt_get_op(&t, out, to, n);
	a_batch(&t, 1, A_ROWS - 1);
	a.q = (const uint16_t *)q + (n - row);
	a_attention(&t, &a, true, split_stages);
	kt_get_op(&t, out + n, to, row);
	kt_same(out + n, out + n - row, row, "a row of a prompt, decoded");
	t.ops->kv_free(kv);
	kt_del(&t, qkv);
	kt_del(&t, q);
	kt_del(&t, to);
	kt_close(&t);
}

/* Check attention on devices with 227, 163 and 99 KB per block (9.0, 8.0, 8.6), with these stages; 0: the
 * wide kernel does not fit. */
static void a_check(int dim, const int wide[3], const int split[3])
{
	static const int smem[] = {227 << 10, 163 << 10, 99 << 10};
	const size_t n = (size_t)(A_ROWS + 1) * A_HEADS * (size_t)dim;
	float *in = kt_floats((size_t)A_ROWS * (A_HEADS + 2) * (size_t)dim), *most = xcalloc(n, sizeof *most),
	      *less = xcalloc(n, sizeof *less);
	for (int capped = 0; capped < 2; capped++)
		for (int i = 0; i < 3; i++) {
			a_run(i ? less : most, in, dim, 2.0f * (float)capped, smem[i], wide[i], split[i]);
			if (i)
				kt_same(less, most, n, "with less shared memory");
		}
	free(in);
	free(most);
	free(less);
}

Test(device, attention_has_the_same_bits_with_less_shared_memory_at_a_head_size_of_128)
{
	a_check(128, (const int[]){2, 2, 1}, (const int[]){2, 2, 2});
}

Test(device, attention_has_the_same_bits_with_less_shared_memory_at_a_head_size_of_256)
{
	a_check(256, (const int[]){2, 1, 0}, (const int[]){2, 2, 1});
}

/* ---- block tables: after every batch, the tables of its rows equal the host's, whatever happened before
 * ---- */

enum { TABLES = 10, STRIDE = 40, BLOCK = 16, SEQS = 6, ROWS = 48, POOL = 999, AHEAD = 5 };

/* The host's state, which is correct. */
struct world {
	struct kt t;
	struct kern_kv *kv;
	struct batch_peek peek;
	int32_t tables[TABLES][STRIDE];
	uint64_t editions[TABLES], given;
	int n_blocks[TABLES]; /* blocks in a table; 0: no sequence has the table */
	int32_t *kept;        /* copies of the device's tables and of its rows' tables, after each batch */
	uint64_t random;
};

/* The expected rows of a batch. */
struct expected {
	int n_rows, n_real, n_blocks[ROWS];
	int32_t tables[ROWS][STRIDE];
};

static int drawn(struct world *w, int below)
{
	w->random = w->random * 6364136223846793005u + 1442695040888963407u;
	return (int)((w->random >> 33) % (uint64_t)below);
}

static size_t kept_words(const struct world *w)
{
	return (size_t)(w->peek.n_tables * w->peek.stride + ROWS);
}

static void world_open(struct world *w, uint64_t random)
{
	struct why why = {""};
	struct kern_open_args a = {.index = -1,
				   .max_rows = ROWS,
				   .max_seqs = SEQS,
				   .max_logits = SEQS,
				   .max_context = STRIDE * BLOCK,
				   .max_blocks_per_seq = STRIDE,
				   .max_tables = TABLES};
	memset(w, 0, sizeof *w);
	w->random = random;
	w->t = (struct kt){.ops = &kern_cuda_ops, .op = KERN_F16, .isa = "f16"};
	cr_assert_eq(w->t.ops->open(&w->t.dev, &a, &why), 0, "%s", why.text);
	w->t.s = w->t.ops->stream_new(w->t.dev);
	w->kv = w->t.ops->kv_new(w->t.dev, 1, 1, 32, BLOCK, POOL, 0);
	cr_assert(w->t.s && w->kv);
	w->peek = batch_peek_at(w->t.dev);
	w->kept = kt_new(&w->t, AHEAD * kept_words(w) * sizeof *w->kept);
}

static void world_close(struct world *w)
{
	kt_del(&w->t, w->kept);
	w->t.ops->kv_free(w->kv);
	kt_close(&w->t);
}

/* ---- changes of tables ---- */

static void new_edition(struct world *w, int t)
{
	w->editions[t] = ++w->given;
}

/* Give the table to another sequence, or new blocks to its sequence, as after a swap. */
static void renew(struct world *w, int t)
{
	w->n_blocks[t] = 1 + drawn(w, STRIDE);
	for (int i = 0; i < w->n_blocks[t]; i++)
		w->tables[t][i] = drawn(w, POOL);
	new_edition(w, t);
}

static void change(struct world *w)
{
	const int t = drawn(w, TABLES), from = drawn(w, TABLES);
	switch (drawn(w, 6)) {
	case 0:
		renew(w, t);
		break;
	case 1: /* the sequence leaves */
		w->n_blocks[t] = 0;
		new_edition(w, t);
		break;
	case 2: /* a copy on write */
		if (!w->n_blocks[t])
			break;
		w->tables[t][drawn(w, w->n_blocks[t])] = drawn(w, POOL);
		new_edition(w, t);
		break;
	case 3: /* a fork */
		memcpy(w->tables[t], w->tables[from], sizeof w->tables[t]);
		w->n_blocks[t] = w->n_blocks[from];
		new_edition(w, t);
		break;
	default: /* the sequence grows */
		for (int n = 1 + drawn(w, 3); n && w->n_blocks[t] && w->n_blocks[t] < STRIDE; n--)
			w->tables[t][w->n_blocks[t]++] = drawn(w, POOL);
	}
}

/* ---- batches ---- */

/* How a batch is sent: as the worker does; without editions; with separate tables for the runs. */
enum how { KNOWN, UNKNOWN, OWN };

/* Send runs of some sequences in random order, each up to a random position. */
static struct expected send(struct world *w, enum how how)
{
	static int32_t own[SEQS][STRIDE];
	static const int32_t token_at[ROWS];
	int32_t row0[SEQS + 1] = {0}, pos0[SEQS], table_at[SEQS];
	const bool padded = drawn(w, 2);
	struct expected x = {0};
	int n = 0, order[TABLES];
	for (int i = 0; i < TABLES; i++) {
		const int at = drawn(w, i + 1);
		order[i] = order[at];
		order[at] = i;
	}
	for (int i = 0; i < TABLES && n < SEQS - padded; i++) {
		const int t = order[i], room = w->n_blocks[t] * BLOCK;
		const int rows = padded ? 1 : 1 + drawn(w, ROWS / SEQS);
		if (room < rows || drawn(w, 3) == 0)
			continue;
		pos0[n] = drawn(w, room - rows + 1);
		table_at[n] = t;
		row0[n + 1] = row0[n] + rows;
		for (int r = row0[n]; r < row0[n + 1]; r++) {
			x.n_blocks[r] = (pos0[n] + rows - 1) / BLOCK + 1;
			memcpy(x.tables[r], w->tables[t], sizeof x.tables[r]);
		}
		if (how == OWN)
			memcpy(own[n], w->tables[t], sizeof own[n]);
		n++;
	}
	const struct kern_batch b = {.n_rows = row0[n],
				     .n_seqs = n,
				     .token_at = token_at,
				     .row0 = row0,
				     .pos0 = pos0,
				     .tables = how == OWN ? own[0] : w->tables[0],
				     .table_stride = STRIDE,
				     .table_at = how == OWN ? NULL : table_at,
				     .editions = how == KNOWN ? w->editions : NULL,
				     .pad_to = padded ? SEQS : 0};
	cr_assert_eq(w->t.ops->batch_set(w->t.s, &b), 0);
	x.n_real = row0[n];
	x.n_rows = padded ? SEQS : x.n_real;
	for (int r = x.n_real; r < x.n_rows; r++) { /* null rows */
		x.n_blocks[r] = 1;
		x.tables[r][0] = POOL;
	}
	return x;
}

/* Keep the tables that kernels after this batch will read. */
static void keep(struct world *w, int at)
{
	int32_t *to = w->kept + (size_t)at * kept_words(w);
	const size_t n = (size_t)(w->peek.n_tables * w->peek.stride);
	cr_assert_eq(w->t.ops->copy(w->t.s, to, w->peek.tables, n * sizeof *to), 0);
	cr_assert_eq(w->t.ops->copy(w->t.s, to + n, w->peek.row_table, ROWS * sizeof *to), 0);
}

static void check(struct world *w, const int32_t *kept, const struct expected *x, const char *what)
{
	const int32_t *row_table = kept + (size_t)(w->peek.n_tables * w->peek.stride);
	for (int r = 0; r < x->n_rows; r++) {
		cr_assert(row_table[r] >= 0 && row_table[r] < w->peek.n_tables, "%s: row %d has table %d",
			  what, r, row_table[r]);
		for (int i = 0; i < x->n_blocks[r]; i++)
			cr_assert_eq(kept[row_table[r] * w->peek.stride + i], x->tables[r][i],
				     "%s: row %d of table %d has block %d at %d, not %d", what, r,
				     row_table[r], kept[row_table[r] * w->peek.stride + i], i,
				     x->tables[r][i]);
	}
}

/* Several batches are queued before the device processes the first. */
Test(batch, tables_on_the_device_are_the_hosts_whatever_happens)
{
	static struct world w;
	static struct expected want[AHEAD];
	const int rounds = ct_brief() ? 120 : 2000;
	char what[64];
	int32_t *got;
	world_open(&w, 7);
	got = xmalloc(AHEAD * kept_words(&w) * sizeof *got);
	for (int t = 0; t < TABLES / 2; t++)
		renew(&w, t);
	for (int round = 0; round < rounds; round++) {
		for (int i = 0; i < AHEAD; i++) {
			for (int n = drawn(&w, 4); n; n--)
				change(&w);
			const int how = drawn(&w, 8);
			want[i] = send(&w, how == 0 ? UNKNOWN : how == 1 ? OWN : KNOWN);
			keep(&w, i);
		}
		kt_get(&w.t, got, w.kept, AHEAD * kept_words(&w) * sizeof *got);
		for (int i = 0; i < AHEAD; i++) {
			snprintf(what, sizeof what, "round %d, batch %d", round, i);
			check(&w, got + (size_t)i * kept_words(&w), &want[i], what);
		}
	}
	free(got);
	world_close(&w);
}

/* Send one run of one row of table 0. */
static void send_one(struct world *w, int pos)
{
	const int32_t token_at[] = {0}, row0[] = {0, 1}, table_at[] = {0}, pos0[] = {pos};
	cr_assert_eq(w->t.ops->batch_set(w->t.s, &(struct kern_batch){.n_rows = 1,
								      .n_seqs = 1,
								      .token_at = token_at,
								      .row0 = row0,
								      .pos0 = pos0,
								      .tables = w->tables[0],
								      .table_stride = STRIDE,
								      .table_at = table_at,
								      .editions = w->editions}),
		     0);
}

static void check_first(struct world *w, int n, const char *what)
{
	int32_t got[STRIDE];
	kt_get(&w->t, got, w->peek.tables, sizeof got);
	for (int i = 0; i < n; i++)
		cr_assert_eq(got[i], w->tables[0][i], "%s: block %d at %d, not %d", what, got[i], i,
			     w->tables[0][i]);
}

/* The edition's first batch compared only the entries that it read; later entries must be compared later. */
Test(batch, an_edition_that_was_seen_in_part_is_compared_behind_that)
{
	static struct world w;
	world_open(&w, 3);
	for (int i = 0; i < STRIDE; i++)
		w.tables[0][i] = i;
	new_edition(&w, 0);
	send_one(&w, STRIDE * BLOCK - 1);
	w.tables[0][30] = 500;
	new_edition(&w, 0);
	send_one(&w, 10 * BLOCK);
	check_first(&w, 11, "the first entries");
	send_one(&w, STRIDE * BLOCK - 1);
	check_first(&w, STRIDE, "all");
	world_close(&w);
}

/* A failed launch counts as having sent nothing. */
Test(batch, after_a_launch_that_failed_tables_are_sent_again)
{
	static struct world w;
	const int32_t other[STRIDE] = {0};
	world_open(&w, 3);
	for (int i = 0; i < STRIDE; i++)
		w.tables[0][i] = i + 1;
	new_edition(&w, 0);
	send_one(&w, STRIDE * BLOCK - 1);
	batch_peek_fail();
	const int32_t token_at[] = {0}, row0[] = {0, 1}, pos0[] = {STRIDE * BLOCK - 1};
	cr_assert_eq(w.t.ops->batch_set(w.t.s, &(struct kern_batch){.n_rows = 1,
								    .n_seqs = 1,
								    .token_at = token_at,
								    .row0 = row0,
								    .pos0 = pos0,
								    .tables = w.tables[0],
								    .table_stride = STRIDE,
								    .editions = w.editions}),
		     -EIO);
	kt_set(&w.t, w.peek.tables, other, sizeof other); /* as if the launch had written these */
	send_one(&w, STRIDE * BLOCK - 1);
	check_first(&w, STRIDE, "all");
	world_close(&w);
}

#ifdef QUERN_CUDASIM
enum { LONG_SEQS = 256, LONG_STRIDE = 512 };

/* A step of so many sequences at 8,192 tokens.  The first step sends all tables; each later step sends only
 * the new blocks, for every sixteenth sequence, even after the first sequence has left. */
Test(batch, a_step_sends_what_changed)
{
	static int32_t tables[LONG_SEQS][LONG_STRIDE], token_at[LONG_SEQS], row0[LONG_SEQS + 1],
		pos0[LONG_SEQS], table_at[LONG_SEQS];
	static uint64_t editions[LONG_SEQS];
	struct kt t;
	ct_open(&t, false,
		(struct kt_size){.rows = LONG_SEQS, .seqs = LONG_SEQS, .context = LONG_STRIDE * BLOCK});
	struct kern_kv *kv = t.ops->kv_new(t.dev, 1, 1, 32, BLOCK, LONG_SEQS * LONG_STRIDE, 0);
	cr_assert(kv);
	for (int q = 0; q < LONG_SEQS; q++) {
		for (int i = 0; i < LONG_STRIDE; i++)
			tables[q][i] = i * LONG_SEQS + q;
		editions[q] = (uint64_t)q + 1;
		row0[q + 1] = q + 1;
		pos0[q] = 8000 + q % BLOCK;
		table_at[q] = q;
	}
	for (int step = 0; step < 4; step++) {
		const int gone = step == 3; /* the first sequence has left */
		const struct kern_batch b = {.n_rows = LONG_SEQS - gone,
					     .n_seqs = LONG_SEQS - gone,
					     .token_at = token_at,
					     .row0 = row0,
					     .pos0 = pos0 + gone,
					     .tables = tables[0],
					     .table_stride = LONG_STRIDE,
					     .table_at = table_at + gone,
					     .editions = step == 2 ? NULL : editions};
		cudasim_count_again();
		cr_assert_eq(t.ops->batch_set(t.s, &b), 0);
		cr_assert_eq(t.ops->stream_sync(t.s), 0);
		const struct cudasim_counters c = cudasim_stats();
		printf("step %d: %lu KB over PCIe\n", step, (unsigned long)c.mapped_bytes >> 10);
		cr_expect_eq(c.launched, 1);
		if (step)
			cr_expect_leq(c.mapped_bytes, 12 << 10, "step %d", step);
		else
			cr_expect_geq(c.mapped_bytes, 500 << 10);
		for (int q = 0; q < LONG_SEQS; q++)
			pos0[q]++;
	}
	t.ops->kv_free(kv);
	kt_close(&t);
}
#endif
