/* moe.cu - mixtures of experts: the weighted sum of the outputs of each row's experts.
 *
 *   route()     (row, expert) pairs, [row][C], experts ascending
 *   list        pairs sorted by expert, and the entries that blocks compute, made on the device:
 *
 *       pair    0    1    2    3    4    5    6         sorted
 *       expert  0    0    2    5    5    5    5
 *       from    r1   r4   r0   r0   r1   r2   r3        row of x
 *       to      3    8    1    2    ...                 place of its output: C * row + its place in the row
 *       entries {0, first 0, 2 rows}  {2, 2, 1}  {5, 3, 4}     one list for few rows, one for many
 *
 *   gate, up    entry by entry, from rows of x to `middle`, in sorted order
 *   down        from `middle` to `given`, [row][C][H] F32
 *   sum         a row's C vectors, in that order
 *
 * The host knows the most entries that a number of rows can make; blocks after the list's end leave at once.
 * Launches therefore depend only on the number of rows, and a graph can hold them.  One row needs no list:
 * its pairs are its experts.  If a rank has only some of the experts, the list and the sum leave out pairs of
 * the others.  Pairs of one expert come in any order: a row's bits do not depend on its place.
 *
 * Experts of different kinds (types, group sizes, with or without a bias) are in different stacks.  List,
 * gate, up and down run once per stack; the sum runs once.
 *
 * Rows are processed in pieces of PIECE_ROWS, which bounds the size of `given`. */
#include "kernels/cuda/linear.cuh"

#include <assert.h>
#include <stdlib.h>

enum {
	PIECE_ROWS = 1024,
	LIST_THREADS = 1024, /* one block, a thread per expert */
	SUM_THREADS = 256,
	SUM_AHEAD = 8,
	FEW_ROWS = 16, /* most rows of an expert that the stream kernel computes */
	STACKS_MAX = 8,
};
static_assert((int)LIST_THREADS >= (int)KERN_EXPERTS_MAX, "");

/* Experts of one kind. */
struct stack {
	int n;
	int32_t *place; /* on the device: [n_all] an expert's index in the stack, or -1; NULL: all are here */
	struct kern_linear *gateup, *down;
};

struct kern_experts {
	struct kern_dev *dev;
	int n_all, n_chosen, hidden, inter; /* n_all: experts of the layer, from which rows choose */
	int32_t *place; /* on the device: [n_all] >= 0 if an expert is in some stack; NULL: all are */
	int ldm;        /* stride of pairs in `middle`, in values: inter rounded up to a multiple of 8 */
	bool away;      /* saved: the stacks do not own the memory of their weights */
	int n_stacks;
	struct stack stacks[STACKS_MAX];
};

/* ---- load ---- */

/* Offsets in CUDA_WS_PAIRS, for `pairs` pairs of n experts. */
struct places {
	size_t from, to, few, many, counts, bytes;
};

static int most_few(int n, int pairs)
{
	return min(n, pairs);
}

/* Return the most entries of `rows` rows, for experts with more than FEW_ROWS rows. */
static int most_many(int n, int pairs, int rows)
{
	return pairs / rows + min(n, pairs / (FEW_ROWS + 1));
}

static struct places places_of(int n, int pairs)
{
	struct places p;
	p.from = 0;
	p.to = p.from + (size_t)pairs * sizeof(int32_t);
	p.few = (p.to + (size_t)pairs * sizeof(int32_t) + 15) & ~(size_t)15;
	p.many = p.few + (size_t)most_few(n, pairs) * sizeof(struct lin_entry);
	p.counts = p.many + (size_t)most_many(n, pairs, 32) * sizeof(struct lin_entry);
	p.bytes = p.counts + 2 * sizeof(int);
	return p;
}

static int most_pairs(const struct kern_experts *x)
{
	return min(x->dev->args.max_rows, (int)PIECE_ROWS) * x->n_chosen;
}

static int reserve(const struct kern_experts *x, const char *name, struct why *why)
{
	const int pairs = most_pairs(x);
	const size_t middle = (size_t)pairs * (size_t)x->ldm * 2,
		     given = (size_t)pairs * (size_t)x->hidden * sizeof(float);
	int e = 0;
	for (int i = 0; i < x->n_stacks && !e; i++)
		e = cuda_ws_reserve(x->dev, CUDA_WS_PAIRS, places_of(x->stacks[i].n, pairs).bytes);
	if (!e)
		e = cuda_ws_reserve(x->dev, CUDA_WS_MIDDLE, middle);
	if (!e)
		e = cuda_ws_reserve(x->dev, CUDA_WS_GIVEN, given);
	return e ? err_why(why, e, "%s: no device memory for %zu bytes of what experts give", name,
			   middle + given)
		 : 0;
}

/* The stack of each expert; -1: the expert is not here. */
struct plan {
	const struct kern_experts_src *src;
	int8_t stack[KERN_EXPERTS_MAX];
	int n_stacks;
	struct lin_signature signature[STACKS_MAX][2]; /* gate and up's; down's */
};

static int ask(const struct plan *p, int e, struct kern_linear_src *gateup, struct kern_linear_src *down,
	       struct lin_signature signature[2], struct why *why)
{
	const struct kern_experts_src *src = p->src;
	*gateup = *down = {};
	int rc = src->expert(src->arg, e, gateup, down, why);
	if (rc)
		return rc;
	assert(gateup->n_parts == 2 && gateup->k == src->hidden && gateup->parts[0].n == src->intermediate);
	assert(gateup->parts[1].n == src->intermediate);
	assert(down->n_parts == 1 && down->k == src->intermediate && down->parts[0].n == src->hidden);
	rc = lin_stack_signature(gateup, &signature[0], why);
	return rc ? rc : lin_stack_signature(down, &signature[1], why);
}

/* Return the stack with this likeness, adding one if there is none; -1: too many. */
static int plan_stack(struct plan *p, const struct lin_signature signature[2])
{
	int i = 0;
	while (i < p->n_stacks && !(lin_same_signature(&p->signature[i][0], &signature[0]) &&
				    lin_same_signature(&p->signature[i][1], &signature[1])))
		i++;
	if (i == STACKS_MAX)
		return -1;
	if (i == p->n_stacks) {
		p->signature[i][0] = signature[0];
		p->signature[i][1] = signature[1];
		p->n_stacks++;
	}
	return i;
}

/* Assign all experts that are here to stacks of their kinds. */
static int plan_sort(struct plan *p, struct why *why)
{
	struct kern_linear_src gateup, down;
	struct lin_signature signature[2];
	p->n_stacks = 0;
	for (int e = 0; e < p->src->n_experts; e++) {
		int rc = p->stack[e] < 0 ? 0 : ask(p, e, &gateup, &down, signature, why);
		if (rc)
			return rc;
		const int i = p->stack[e] < 0 ? -1 : plan_stack(p, signature);
		if (p->stack[e] >= 0 && i < 0)
			return err_why(
				why, -ENOTSUP,
				"%s: experts of more than %d kinds (types of gate, up and down, sizes of "
				"groups, bias) in one layer; --experts cpu computes them on the CPU",
				gateup.name, STACKS_MAX);
		p->stack[e] = (int8_t)i;
	}
	return 0;
}

/* Load expert e at index `at` of its stack; 1: it is of another kind. */
static int expert_load(struct kern_experts *x, const struct plan *p, int e, int at, struct why *why)
{
	struct kern_linear_src gateup, down;
	struct lin_signature signature[2];
	struct stack *s = &x->stacks[p->stack[e]];
	int rc = ask(p, e, &gateup, &down, signature, why);
	if (rc)
		return rc;
	if (at && !(lin_same_signature(&s->gateup->signature, &signature[0]) &&
		    lin_same_signature(&s->down->signature, &signature[1])))
		return 1;
	rc = lin_stack_load(x->dev, &gateup, at, s->n, &s->gateup, why);
	return rc ? rc : lin_stack_load(x->dev, &down, at, s->n, &s->down, why);
}

/* Load a map to the device, unless it contains all experts. */
static int place_load(const struct kern_experts *x, const int32_t *place, int32_t **out, const char *name,
		      struct why *why)
{
	const size_t bytes = (size_t)x->n_all * sizeof *place;
	int n = 0;
	for (int e = 0; e < x->n_all; e++)
		n += place[e] >= 0;
	if (n == x->n_all)
		return 0;
	*out = (int32_t *)cuda_mem_new(x->dev, bytes);
	if (!*out)
		return err_why(why, -ENOMEM, "%s: no device memory for %zu bytes of places", name, bytes);
	int e = cuda_upload_now(x->dev, *out, place, bytes);
	return e ? err_why(why, e, "%s: places could not be copied to the device", name) : 0;
}

static int places_load(struct kern_experts *x, const struct plan *p, struct why *why)
{
	int32_t place[KERN_EXPERTS_MAX];
	for (int e = 0; e < x->n_all; e++)
		place[e] = p->stack[e];
	int rc = place_load(x, place, &x->place, p->src->name, why);
	for (int i = 0; i < p->n_stacks && !rc; i++) {
		struct stack *s = &x->stacks[i];
		for (int e = 0; e < x->n_all; e++)
			place[e] = p->stack[e] == i ? s->n++ : -1;
		assert(s->n > 0);
		rc = place_load(x, place, &s->place, p->src->name, why);
	}
	return rc;
}

/* Load all stacks; 1: an expert is of another kind than the first of its stack. */
static int stacks_load(struct kern_experts *x, const struct plan *p, struct why *why)
{
	int at[STACKS_MAX] = {};
	x->n_stacks = p->n_stacks;
	int rc = places_load(x, p, why);
	for (int e = 0; !rc && e < x->n_all; e++)
		rc = p->stack[e] < 0 ? 0 : expert_load(x, p, e, at[p->stack[e]]++, why);
	for (int i = 0; i < x->n_stacks; i++) {
		if (x->stacks[i].gateup)
			lin_stage_free(x->stacks[i].gateup);
		if (x->stacks[i].down)
			lin_stage_free(x->stacks[i].down);
	}
	return rc;
}

static void stacks_free(struct kern_experts *x)
{
	const size_t bytes = (size_t)x->n_all * sizeof *x->place;
	for (int i = 0; i < x->n_stacks; i++) {
		if (x->away)
			x->stacks[i].gateup->n_owned = x->stacks[i].down->n_owned = 0;
		cuda_linear_free(x->stacks[i].gateup);
		cuda_linear_free(x->stacks[i].down);
		if (x->stacks[i].place)
			cuda_mem_free(x->dev, x->stacks[i].place, bytes);
		x->stacks[i] = {};
	}
	if (x->place)
		cuda_mem_free(x->dev, x->place, bytes);
	x->place = NULL;
	x->n_stacks = 0;
}

int cuda_experts_load(struct kern_dev *d, const struct kern_experts_src *src, struct kern_experts **out,
		      struct why *why)
{
	assert(src->n_experts > 0 && src->n_experts <= KERN_EXPERTS_MAX);
	assert(src->n_chosen > 0 && src->n_chosen <= KERN_CHOSEN_MAX && src->n_chosen <= src->n_experts);
	*out = NULL;
	if (src->hidden % 8)
		return err_why(
			why, -ENOTSUP,
			"%s: the CUDA kernels take experts of a hidden size that is a multiple of 8, not %d; "
			"--device cpu takes any",
			src->name, src->hidden);
	struct kern_experts *x = (struct kern_experts *)xcalloc(1, sizeof *x);
	x->dev = d;
	x->n_all = src->n_experts;
	x->n_chosen = src->n_chosen;
	x->hidden = src->hidden;
	x->inter = src->intermediate;
	x->ldm = (src->intermediate + 7) / 8 * 8;
	struct plan p = {};
	p.src = src;
	p.n_stacks = 1;
	for (int e = 0; src->here && e < src->n_experts; e++)
		p.stack[e] = src->here[e] ? 0 : -1;
	int rc = stacks_load(x, &p, why);
	if (rc == 1) { /* most layers have experts of one kind; only other layers are read twice */
		stacks_free(x);
		rc = plan_sort(&p, why);
		if (!rc)
			rc = stacks_load(x, &p, why);
		assert(rc <= 0);
	}
	if (!rc)
		rc = reserve(x, src->name, why);
	if (rc) {
		cuda_experts_free(x);
		return rc;
	}
	*out = x;
	return 0;
}

void cuda_experts_free(struct kern_experts *x)
{
	if (!x)
		return;
	stacks_free(x);
	free(x);
}

int64_t cuda_experts_bytes(const struct kern_experts *x)
{
	int64_t n = 0;
	for (int i = 0; i < x->n_stacks; i++)
		n += cuda_linear_bytes(x->stacks[i].gateup) + cuda_linear_bytes(x->stacks[i].down);
	return n;
}

/* ---- weights that are moved between host and device ----
 *
 *     | gate, up of stack 0: weights | scales | ... | down of stack 0: ... | gate, up of stack 1: ... |
 *
 * Each buffer that a layer of a stack owns, at a multiple of SAVED_ALIGN.  The maps of experts stay on the
 * device. */

enum { SAVED_ALIGN = 256 };

static size_t saved_piece(const struct cuda_buf *b)
{
	return (b->bytes + SAVED_ALIGN - 1) / SAVED_ALIGN * SAVED_ALIGN;
}

static size_t saved_bytes(const struct kern_linear *w)
{
	size_t n = 0;
	for (int i = 0; i < w->n_owned; i++)
		n += saved_piece(&w->owned[i]);
	return n;
}

size_t cuda_experts_packed_bytes(const struct kern_experts *x)
{
	size_t n = 0;
	for (int i = 0; i < x->n_stacks; i++)
		n += saved_bytes(x->stacks[i].gateup) + saved_bytes(x->stacks[i].down);
	return n;
}

static int layer_save(struct kern_linear *w, unsigned char *to)
{
	for (int i = 0; i < w->n_owned; i++) {
		const struct cuda_buf *b = &w->owned[i];
		int e = cuda_check(cudaMemcpy(to, b->p, b->bytes, cudaMemcpyDeviceToHost), "saving experts");
		if (e)
			return e;
		to += saved_piece(b);
	}
	return 0;
}

/* Free the layer's buffers but keep their addresses, by which layer_place() finds them. */
static void layer_leave(struct kern_linear *w)
{
	for (int i = 0; i < w->n_owned; i++)
		cuda_mem_free(w->dev, w->owned[i].p, w->owned[i].bytes);
}

int cuda_experts_save(struct kern_experts *x, void *host)
{
	unsigned char *to = (unsigned char *)host;
	assert(!x->away);
	for (int i = 0; i < x->n_stacks; i++) {
		struct kern_linear *both[] = {x->stacks[i].gateup, x->stacks[i].down};
		for (int j = 0; j < 2; j++) {
			int e = layer_save(both[j], to);
			if (e)
				return -EIO;
			to += saved_bytes(both[j]);
		}
	}
	for (int i = 0; i < x->n_stacks; i++) {
		layer_leave(x->stacks[i].gateup);
		layer_leave(x->stacks[i].down);
	}
	x->away = true;
	return 0;
}

/* Change *p, the start of a buffer, to the buffer's new address. */
template <typename T> static void piece_move(const struct kern_linear *w, T **p, unsigned char *at)
{
	if (!*p)
		return;
	for (int i = 0; i < w->n_owned; i++) {
		if ((const void *)*p == w->owned[i].p) {
			*p = (T *)(void *)at;
			return;
		}
		at += saved_piece(&w->owned[i]);
	}
	assert(!"weights of experts begin where a piece of theirs does");
}

static void layer_place(struct kern_linear *w, unsigned char *at)
{
	struct lin_seg *s = &w->segs[0];
	for (int i = 0; s->kind == LIN_DENSE && i < s->n_parts; i++)
		piece_move(w, &s->parts[i].w, at);
	piece_move(w, &s->w, at);
	piece_move(w, &s->scales, at);
	piece_move(w, &s->zeros, at);
	piece_move(w, &s->heads, at);
	piece_move(w, &w->bias, at);
	for (int i = 0; i < w->n_owned; i++) {
		w->owned[i].p = at;
		at += saved_piece(&w->owned[i]);
	}
}

void cuda_experts_place(struct kern_experts *x, void *at)
{
	unsigned char *to = (unsigned char *)at;
	assert(x->away && (uintptr_t)at % SAVED_ALIGN == 0);
	for (int i = 0; i < x->n_stacks; i++) {
		layer_place(x->stacks[i].gateup, to);
		to += saved_bytes(x->stacks[i].gateup);
		layer_place(x->stacks[i].down, to);
		to += saved_bytes(x->stacks[i].down);
	}
}

/* ---- the list ---- */

struct list_args {
	const int32_t *expert;   /* [n_rows][C] */
	const int32_t *place;    /* as in struct stack */
	const int32_t *token_at; /* the batch's, to skip null rows; or NULL */
	int n_rows, n_chosen, n_experts;
	int few, many_rows; /* most rows of an expert in the first list; most rows per entry in the second */
	int32_t *from, *to;
	struct lin_entry *few_list, *many_list;
	int *counts; /* [2] number of entries of each list */
};

/* Return the sum of v over this lane and the lower lanes of the warp. */
KERN_DEV int upto(int v)
{
	for (int m = 1; m < WARP; m *= 2) {
		const int other = shfl_up(v, m);
		v += lane_id() >= m ? other : 0;
	}
	return v;
}

/* Return the sum of v over the threads before this one; *total gets the sum over all.  sums: shared memory, a
 * word per warp. */
KERN_DEV int before(int v, int *sums, int *total)
{
	static_assert((int)LIST_THREADS == WARP * WARP, "a lane for each warp");
	const int here = upto(v);
	block_sync(); /* all threads have read the previous call's sums */
	if (lane_id() == WARP - 1)
		sums[warp_id()] = here;
	block_sync();
	const int all = sums[lane_id()], with = upto(all);
	*total = shfl(with, WARP - 1);
	return shfl(with - all, warp_id()) + here - v;
}

/* Return the place of pair i's expert; -1: the expert is not here, or the row is a null row. */
KERN_DEV int pair_place(const struct list_args &a, int i)
{
	if (a.token_at && a.token_at[i / a.n_chosen] < 0)
		return -1;
	return a.place ? a.place[a.expert[i]] : a.expert[i];
}

/* Make both lists, with one block. */
static __global__ void __launch_bounds__(LIST_THREADS) moe_list_kernel(const struct list_args a)
{
	int *at = (int *)(void *)kern_smem(); /* [LIST_THREADS] an expert's rows, then its next pair */
	int *sums = at + LIST_THREADS;
	const int t = (int)threadIdx.x, pairs = a.n_rows * a.n_chosen;
	at[t] = 0;
	block_sync();
#pragma unroll 1
	for (int i = t; i < pairs; i += LIST_THREADS) {
		const int e = pair_place(a, i);
		if (e >= 0)
			atomic_add(&at[e], 1);
	}
	block_sync();
	const int n = t < a.n_experts ? at[t] : 0;
	const int few = n > 0 && n <= a.few, many = n > a.few ? (n + a.many_rows - 1) / a.many_rows : 0;
	int total, n_few, n_many;
	const int first = before(n, sums, &total), few_at = before(few, sums, &n_few),
		  many_at = before(many, sums, &n_many);
	if (few)
		a.few_list[few_at] = {t, first, n};
#pragma unroll 1
	for (int i = 0; i < many; i++)
		a.many_list[many_at + i] = {t, first + i * a.many_rows,
					    min(a.many_rows, n - i * a.many_rows)};
	if (t == 0) {
		a.counts[0] = n_few;
		a.counts[1] = n_many;
	}
	at[t] = first;
	block_sync();
#pragma unroll 1
	for (int i = t; i < pairs; i += LIST_THREADS) {
		const int e = pair_place(a, i);
		if (e >= 0) {
			const int p = atomic_add(&at[e], 1);
			a.from[p] = i / a.n_chosen;
			a.to[p] = i;
		}
	}
}

/* ---- the sum ---- */

struct sum_args {
	float *out;         /* [n_rows][H] */
	const float *given; /* [n_rows][C][H] */
	const float *weight;
	const float *begin, *begin_by;            /* or NULL */
	const int32_t *expert, *place, *token_at; /* as in list_args; place: as in kern_experts */
	int hidden, n_chosen;
};

/* grid: (blocks of outputs, rows).  A null row has no expert outputs and gets its begin value. */
static __global__ void __launch_bounds__(SUM_THREADS) moe_sum_kernel(const struct sum_args a)
{
	const size_t row = blockIdx.y, h = (size_t)a.hidden;
	const int o = (int)blockIdx.x * SUM_THREADS + (int)threadIdx.x;
	const int n = a.token_at && a.token_at[row] < 0 ? 0 : a.n_chosen;
	if (o >= a.hidden)
		return;
	const float *given = a.given + row * (size_t)a.n_chosen * h + (size_t)o,
		    *weight = a.weight + row * (size_t)a.n_chosen;
	const int32_t *expert = a.expert + row * (size_t)a.n_chosen;
	float sum = a.begin ? a.begin[row * h + (size_t)o] : 0;
	if (a.begin && a.begin_by)
		sum = f32_mul_rn(a.begin_by[row], sum);
	for (int i0 = 0; i0 < n; i0 += SUM_AHEAD) {
		float v[SUM_AHEAD], w[SUM_AHEAD];
		bool here[SUM_AHEAD];
#pragma unroll
		for (int i = 0; i < SUM_AHEAD; i++) {
			here[i] = i0 + i < n && (!a.place || a.place[expert[i0 + i]] >= 0);
			v[i] = here[i] ? given[(size_t)(i0 + i) * h] : 0;
			w[i] = here[i] ? weight[i0 + i] : 0;
		}
#pragma unroll
		for (int i = 0; i < SUM_AHEAD; i++)
			if (here[i])
				sum = f32_add_rn(sum, f32_mul_rn(w[i], v[i]));
	}
	a.out[row * h + (size_t)o] = sum;
}

/* ---- run ---- */

/* Set the padding of each pair in `middle` to zero, because 16-byte loads of down reach it. */
static __global__ void moe_pad_kernel(uint16_t *middle, int pairs, int inter, int ldm)
{
	const int at = (int)(blockIdx.x * SUM_THREADS + threadIdx.x), pad = ldm - inter;
	if (at < pairs * pad)
		middle[(size_t)(at / pad) * (size_t)ldm + (size_t)(inter + at % pad)] = 0;
}

/* One piece of the rows, with a stack of experts. */
struct piece {
	const struct kern_experts *x;
	const struct stack *k;
	struct kern_stream *s;
	const int32_t *token_at;
	int n_rows;
	bool one;           /* a single row with all its experts here: it needs no list */
	int few, many_rows; /* as in list_args; many_rows 0: no expert has more than `few` rows */
	struct places at;
	unsigned char *pairs;
};

static int make_list(const struct piece *p, const int32_t *expert)
{
	const struct list_args a = {expert,
				    p->k->place,
				    p->token_at,
				    p->n_rows,
				    p->x->n_chosen,
				    p->k->n,
				    p->few,
				    max(p->many_rows, 1),
				    (int32_t *)(void *)(p->pairs + p->at.from),
				    (int32_t *)(void *)(p->pairs + p->at.to),
				    (struct lin_entry *)(void *)(p->pairs + p->at.few),
				    (struct lin_entry *)(void *)(p->pairs + p->at.many),
				    (int *)(void *)(p->pairs + p->at.counts)};
	return KERN_LAUNCH(moe_list_kernel, dim3(1), dim3(LIST_THREADS),
			   (LIST_THREADS + LIST_THREADS / WARP) * sizeof(int), p->s->s, a);
}

static int pad_middle(const struct piece *p)
{
	const struct kern_experts *x = p->x;
	const int pairs = p->n_rows * x->n_chosen, n = pairs * (x->ldm - x->inter);
	return n ? KERN_LAUNCH(moe_pad_kernel, dim3((unsigned)((n + SUM_THREADS - 1) / SUM_THREADS)),
			       dim3(SUM_THREADS), 0, p->s->s, (uint16_t *)x->dev->ws[CUDA_WS_MIDDLE].p, pairs,
			       x->inter, x->ldm)
		 : 0;
}

/* Run one layer for all pairs.  l: rows and outputs are set, and the experts if there is one row. */
static int run_layer(const struct piece *p, const struct kern_linear *w, struct lin_list *l)
{
	const struct kern_dev *d = p->x->dev;
	const int pairs = p->n_rows * p->x->n_chosen, few = most_few(p->k->n, pairs);
	const bool bf16 = cuda_is_bf16(d);
	const int *counts = (const int *)(const void *)(p->pairs + p->at.counts);
	lin_stack_list(w, l);
	struct lin_plan plan = {};
	plan.kernel = LIN_STREAM;
	plan.rows = p->few;
	plan.warps = max(4, l->a.seg.slices);
	plan.cols = (int64_t)l->cols * l->a.seg.slices * few >= 20 * (int64_t)d->sms ? 2 : 1;
	if (!l->layer) {
		l->entries = (const struct lin_entry *)(const void *)(p->pairs + p->at.few);
		l->n_entries = counts;
	}
	int e = lin_stream_list(p->s, l, few, &plan, bf16);
	if (e || !p->many_rows)
		return e;
	l->entries = (const struct lin_entry *)(const void *)(p->pairs + p->at.many);
	l->n_entries = counts + 1;
	plan.kernel = LIN_TILE;
	plan.rows = p->many_rows;
	return lin_tile_list(p->s, l, most_many(p->k->n, pairs, p->many_rows), &plan, bf16);
}

static int run_layers(const struct piece *p, const struct kern_moe_args *a, size_t row0)
{
	const struct kern_experts *x = p->x;
	const bool one = p->one;
	struct lin_list l = {};
	if (one)
		l.layer = a->expert + row0 * (size_t)x->n_chosen;
	else
		l.from = (const int32_t *)(const void *)(p->pairs + p->at.from);
	l.a.x = (const uint16_t *)a->in + row0 * (size_t)x->hidden;
	l.a.ldx = one ? 0 : x->hidden; /* all pairs belong to the one row */
	l.a.out = x->dev->ws[CUDA_WS_MIDDLE].p;
	l.a.ldo = x->ldm;
	l.a.to = LIN_OUT_SWIGLU;
	int e = run_layer(p, p->k->gateup, &l);
	if (!e)
		e = pad_middle(p);
	if (e)
		return e;
	if (!one) {
		l.from = NULL;
		l.to = (const int32_t *)(const void *)(p->pairs + p->at.to);
	}
	l.a.x = (const uint16_t *)x->dev->ws[CUDA_WS_MIDDLE].p;
	l.a.ldx = x->ldm;
	l.a.out = x->dev->ws[CUDA_WS_GIVEN].p;
	l.a.ldo = x->hidden;
	l.a.to = LIN_OUT_F32;
	l.a.wide = x->hidden % 2 == 0;
	return run_layer(p, p->k->down, &l);
}

/* Return the rows per entry of the second list, from the average rows per expert. */
static int many_rows(const struct kern_experts *x, int n_rows)
{
	if (n_rows <= FEW_ROWS)
		return 0;
	return n_rows * x->n_chosen > 32 * x->n_all ? 64 : 32;
}

static int run_stack(struct piece *p, const struct kern_moe_args *a, size_t row0)
{
	const struct kern_experts *x = p->x;
	p->one = p->n_rows == 1 && !p->k->place;
	p->many_rows = many_rows(x, p->n_rows);
	p->at = places_of(p->k->n, most_pairs(x));
	int e = !p->one ? make_list(p, a->expert + row0 * (size_t)x->n_chosen) : 0;
	return e ? e : run_layers(p, a, row0);
}

static int run_piece(struct piece *p, const struct kern_moe_args *a, size_t row0)
{
	const struct kern_experts *x = p->x;
	const size_t c = (size_t)x->n_chosen, h = (size_t)x->hidden;
	const struct sum_args sum = {(float *)a->out + row0 * h,
				     (const float *)x->dev->ws[CUDA_WS_GIVEN].p,
				     a->weight + row0 * c,
				     a->begin ? (const float *)a->begin + row0 * h : NULL,
				     a->begin_by ? a->begin_by + row0 : NULL,
				     a->expert + row0 * c,
				     x->place,
				     p->token_at,
				     x->hidden,
				     x->n_chosen};
	for (int i = 0; i < x->n_stacks; i++) {
		p->k = &x->stacks[i];
		int e = run_stack(p, a, row0);
		if (e)
			return e;
	}
	return KERN_LAUNCH(moe_sum_kernel,
			   dim3((unsigned)((x->hidden + SUM_THREADS - 1) / SUM_THREADS), (unsigned)p->n_rows),
			   dim3(SUM_THREADS), 0, p->s->s, sum);
}

int cuda_moe(struct kern_stream *s, const struct kern_experts *x, const struct kern_moe_args *a, int n_rows)
{
	struct kern_dev *d = s->dev;
	const struct cuda_batch *b = &d->batch;
	assert(d == x->dev && n_rows <= d->args.max_rows && a->begin != a->out);
	for (int r = 0; r < n_rows; r += PIECE_ROWS) {
		struct piece p = {};
		p.x = x;
		p.s = s;
		p.token_at = b->pad_to > 1 && b->pad_to == n_rows ? b->token_at + r : NULL;
		p.n_rows = min(n_rows - r, (int)PIECE_ROWS);
		p.few = p.n_rows <= 8 ? 8 : (int)FEW_ROWS;
		p.pairs = (unsigned char *)d->ws[CUDA_WS_PAIRS].p;
		int e = run_piece(&p, a, (size_t)r);
		if (e)
			return e;
	}
	return 0;
}
