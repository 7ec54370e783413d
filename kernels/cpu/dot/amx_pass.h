/* amx_pass.h - passes of AMX over 17 to 32 rows.  Included by avx512amx.c.
 *
 * A pass takes its rows through segments.  A step is all rows by 2 tiles of a segment and, in int16, one
 * plane of the activations.  While the products of a step run, vector instructions scale the sums of earlier
 * steps.  If the call has no more rows, they also unpack tiles of the next segment, a quarter of a tile with
 * every four rows.  An instruction that waits also delays those after it, so the order avoids waiting: codes
 * and rows are loaded one product ahead, and a sum is stored four products after its last one.  A pass's
 * outputs, its activations of a segment and the sums of two steps fill half of the first-level cache.  Codes
 * that were unpacked long before bypass it. */
#ifndef QUERN_KERNELS_CPU_DOT_AMX_PASS_H
#define QUERN_KERNELS_CPU_DOT_AMX_PASS_H

struct amx_step {
	const int32_t *high, *low; /* sums, [2 tiles][AMX_PASS][16]; low: sums of the second plane */
	const float *scales;       /* [2][16] scales of the outputs */
	const unsigned char *act;  /* scale of each row, op->row apart */
	float *c;                  /* outputs; NULL: no step */
};

/* Rows and codes of a step, in their order of use. */
struct amx_tiles {
	const unsigned char *a, *b;
	int n_k;
};

/* Tiles that are unpacked while products run. */
struct amx_work {
	struct amx_seg *g; /* segment to unpack; NULL: none */
	int quarter;       /* index of the next quarter of its tiles */
	const unsigned char *p;
	unsigned char *to;
	qv zero;
};

/* State between two steps. */
struct amx_state {
	struct amx_tiles tiles;   /* tiles of the next step; the first are loaded */
	struct amx_step one, two; /* the previous step, and the step before that */
	int32_t *late;            /* destination of the sums that are still in tiles; NULL: none */
	int at;                   /* index in sums[] for the next step */
};

struct amx_pass {
	struct cpu_dot_tile t; /* the call, limited to this pass's rows */
	size_t first;          /* bytes from the call's first row to the pass's first row */
	struct amx_seg segs[AMX_RING];
	int n_segs;
	const struct amx_seg *now; /* the unpacked segment to multiply next; NULL: none */
	struct amx_state state;
	struct amx_work work;
	_Alignas(64) int32_t sums[4][2 * AMX_PASS * 16];
};

/* Scale rows 4 q to 4 q + 3, of `rows`. */
VFN void amx_unit(const struct amx_step *s, int q, int rows, size_t row, size_t out, const int wide)
{
	const vf scale[2] = {v_load(s->scales), v_load(s->scales + 16)};
	const unsigned char *act = s->act + (size_t)(4 * q) * row;
	const int32_t *high = s->high + 64 * q, *low = s->low + 64 * q;
	float *c = s->c + (size_t)(4 * q) * out;
	UNROLL for (int r = 0; r < 4; r++, act += row, c += out)
	{
		if (4 * q + r >= rows)
			break;
		const vf a = v_set1(*(const float *)(const void *)act);
		UNROLL for (int v = 0; v < 2; v++)
		{
			const size_t at = (size_t)(v * AMX_PASS + r) * 16;
			qa sum = qv_load((const void *)(high + at));
			if (wide)
				sum = qa_add(qa_shl(sum, 8), qv_load((const void *)(low + at)));
			v_store(c + v * 16, v_fma(v_mul(scale[v], a), qa_float(sum), v_load(c + v * 16)));
		}
	}
}

/* Unpack the next quarter of a tile; for a short segment, the whole tile at once. */
static __attribute__((noinline)) void amx_more(struct amx_work *w)
{
	struct amx_seg *g = w->g;
	const struct seg *s = &g->s;
	const int bits = s->t->codes.bits, whole = ACT_GROUP / (bits == 4 ? 8 : bits == 6 ? 16 : 4);
	const int v = w->quarter / 4, quarter = w->quarter++ % 4;
	if (quarter == 0) {
		qa rest;
		w->zero = qa_mul(amx_zeros(s, v, &rest), qa_set1(0x01010101));
		w->p = s->lines + (size_t)v * 64;
		w->to = (unsigned char *)(uintptr_t)g->b + (size_t)(v * g->n_k) * 1024;
		v_store(g->scales + v * 16, seg_scales(s, v));
		g->fixed |= qa_hsum(qa_mul(rest, rest)) != 0;
	}
	if (s->rounds != whole) {
		if (quarter == 0)
			amx_unpack(s, v, w->to, g->n_k);
		return;
	}
	if (bits == 4)
		w->to = amx_rounds(s, w->p, w->zero, w->to, 4, ACT_GROUP / 8 / 4);
	else if (bits == 6)
		w->to = amx_rounds(s, w->p, w->zero, w->to, 6, ACT_GROUP / 16 / 4);
	else
		w->to = amx_rounds(s, w->p, w->zero, w->to, 8, ACT_GROUP / 4 / 4);
	w->p += (size_t)(whole / 4 * (bits == 6 ? 3 : 1)) * s->step;
}

#define AMX_UNIT(s, q)                                                                                       \
	do {                                                                                                 \
		if ((s) && !whole && work->g)                                                                \
			amx_more(work);                                                                      \
		if ((s) && (s)->c)                                                                           \
			amx_unit(s, q, rows, row, out, wide);                                                \
	} while (0)
#define AMX_LATE(c, at)                                                                                      \
	do {                                                                                                 \
		if (late)                                                                                    \
			AMX_STORE(c, late + (at)*16, 64);                                                    \
	} while (0)

/* Multiply one step.  The tiles hold its first rows and codes, and the sums of the previous step, which are
 * stored to late.  Meanwhile scale the second half of the rows of `two`, and the first half of `one`; NULL:
 * none. */
VFN void amx_step(struct amx_pass *p, const struct amx_tiles *now, const struct amx_tiles *next,
		  int32_t *late, const struct amx_step *two, const struct amx_step *one, const int wide,
		  const int whole)
{
	const size_t row = p->t.op->row, out = (size_t)p->t.tn * 16;
	const int rows = whole ? AMX_PASS : p->t.n_rows;
	struct amx_work *work = &p->work;
	const unsigned char *a = now->a, *a2 = a + AMX_ROWS * row, *b = now->b, *b2 = b + now->n_k * 1024;
	AMX_LOAD_ONCE(3, b2, 64);
	AMX_LATE(4, 0);
	AMX_ZERO(4);
	AMX_DOT(4, 0, 2);
	AMX_UNIT(two, 4);
	AMX_LOAD(1, a2, row);
	AMX_LATE(5, AMX_PASS);
	AMX_ZERO(5);
	AMX_DOT(5, 0, 3);
	AMX_UNIT(two, 5);
	AMX_LATE(6, AMX_ROWS);
	AMX_ZERO(6);
	AMX_DOT(6, 1, 2);
	AMX_UNIT(two, 6);
	AMX_LATE(7, AMX_PASS + AMX_ROWS);
	AMX_ZERO(7);
	if (now->n_k == 2) {
		AMX_LOAD(0, a + AMX_K, row);
		AMX_LOAD_ONCE(2, b + 1024, 64);
		AMX_DOT(7, 1, 3);
		AMX_UNIT(two, 7);
		AMX_LOAD_ONCE(3, b2 + 1024, 64);
		AMX_DOT(4, 0, 2);
		AMX_UNIT(one, 0);
		AMX_LOAD(1, a2 + AMX_K, row);
		AMX_DOT(5, 0, 3);
		AMX_UNIT(one, 1);
		AMX_DOT(6, 1, 2);
		AMX_UNIT(one, 2);
		AMX_LOAD(0, next->a, row);
		AMX_LOAD_ONCE(2, next->b, 64); /* unpacked by now, if it is the first tile being unpacked
						  here */
		AMX_DOT(7, 1, 3);
		AMX_UNIT(one, 3);
		return;
	}
	AMX_UNIT(two, 7);
	for (int q = 0; q < 4; q++)
		AMX_UNIT(one, q);
	AMX_LOAD(0, next->a, row);
	AMX_LOAD_ONCE(2, next->b, 64);
	AMX_DOT(7, 1, 3);
}

/* Begin a pass over rows r0 to r0 + n - 1 of a call. */
static void pass_begin(struct amx_pass *p, const struct cpu_dot_tile *call, int r0, int n)
{
	p->t = *call;
	p->first = (size_t)r0 * call->op->row;
	p->t.x += p->first;
	p->t.c += (size_t)r0 * (size_t)call->tn * 16;
	p->t.next = call->next ? call->next + (size_t)r0 * call->next_stride : NULL;
	p->t.n_rows = n;
	p->n_segs = 0;
	p->now = NULL;
	p->state = (struct amx_state){.late = NULL};
	p->work.g = NULL;
}

/* Store the sums in tiles, and scale the remaining sums. */
VFN void pass_last(const struct cpu_dot_tile *t, const struct amx_state *s, int rows, const int wide)
{
	const size_t row = t->op->row, out = (size_t)t->tn * 16;
	if (s->late) {
		AMX_STORE(4, s->late, 64);
		AMX_STORE(5, s->late + AMX_PASS * 16, 64);
		AMX_STORE(6, s->late + AMX_ROWS * 16, 64);
		AMX_STORE(7, s->late + (AMX_PASS + AMX_ROWS) * 16, 64);
	}
	for (int q = 4; !wide && s->two.c && q < 8; q++)
		amx_unit(&s->two, q, rows, row, out, 0);
	for (int q = 0; s->one.c && q < 8; q++)
		amx_unit(&s->one, q, rows, row, out, wide);
}

static void pass_flush(struct amx_pass *p)
{
	if (p->t.op->wide)
		pass_last(&p->t, &p->state, p->t.n_rows, 1);
	else
		pass_last(&p->t, &p->state, p->t.n_rows, 0);
	p->state = (struct amx_state){.late = NULL};
}

/* Multiply segment g.  after: the next segment, or NULL.  whole: 32 rows, and nothing to unpack. */
VFN void pass_steps(struct amx_pass *p, struct amx_state *s, const struct amx_seg *g,
		    const struct amx_seg *after, const int wide, const int whole)
{
	const struct cpu_dot_tile *t = &p->t;
	for (int v = 0; v < t->tn; v += 2, s->at ^= wide ? 2 : 1) {
		const struct amx_step step = {
			.high = p->sums[s->at],
			.low = p->sums[s->at + wide],
			.scales = g->scales + v * 16,
			.act = t->x + t->op->scales + (size_t)(g->s.k0 / ACT_GROUP) * sizeof(float),
			.c = t->c + v * 16,
		};
		const struct amx_tiles now = s->tiles, low = {now.a + t->op->k_pad, now.b, now.n_k};
		s->tiles.b += (size_t)(2 * now.n_k) * 1024;
		if (v + 2 >= t->tn)
			s->tiles =
				after ? (struct amx_tiles){after->s.x + p->first, after->b, after->n_k} : now;
		if (wide) {
			amx_step(p, &now, &low, s->late, NULL, &s->one, 1, whole);
			amx_step(p, &low, &s->tiles, p->sums[s->at], &s->one, NULL, 1, whole);
			s->late = p->sums[s->at + 1];
		} else {
			amx_step(p, &now, &s->tiles, s->late, &s->two, &s->one, 0, whole);
			s->late = p->sums[s->at];
		}
		s->two = s->one;
		s->one = step;
	}
}

static void pass_narrow(struct amx_pass *p, const struct amx_seg *after)
{
	pass_steps(p, &p->state, p->now, after, 0, 0);
}

static void pass_wide(struct amx_pass *p, const struct amx_seg *after)
{
	pass_steps(p, &p->state, p->now, after, 1, 0);
}

/* Load the first step's tiles. */
static void pass_load(struct amx_pass *p, const struct amx_seg *g)
{
	p->state.tiles = (struct amx_tiles){g->s.x + p->first, g->b, g->n_k};
	AMX_LOAD(0, p->state.tiles.a, p->t.op->row);
	AMX_LOAD_ONCE(2, p->state.tiles.b, 64);
}

/* Prefetch, to the second-level cache, part i of n of the memory that is written next. */
static void pass_fetch(const struct cpu_dot_tile *t, int i, int n)
{
	for (int r = t->n_rows * i / n; t->next && r < t->n_rows * (i + 1) / n && r < t->n_rows; r++)
		for (int v = 0; v < t->tn; v++)
			__builtin_prefetch(t->next + (size_t)r * t->next_stride + v * 16, 0, 2);
}

/* Multiply the segment before g (g NULL: after the last).  unpack: unpack g meanwhile. */
static void pass_turn(struct amx_pass *p, struct amx_seg *g, bool unpack)
{
	p->work = (struct amx_work){.g = unpack ? g : NULL};
	if (p->now)
		(p->t.op->wide ? pass_wide : pass_narrow)(p, g);
	while (p->work.g && p->work.quarter < 4 * p->t.tn)
		amx_more(&p->work);
	if (!p->now && g)
		pass_load(p, g);
	p->now = g;
}

static void pass_end(struct amx_pass *p)
{
	if (p->now)
		pass_turn(p, NULL, false);
	pass_flush(p);
}

/* Multiply a segment with zeros that need a correction, alone, in the way of leftover rows. */
static void pass_general(struct amx_pass *p)
{
	const struct amx_seg *g = p->now;
	struct amx m;
	amx_begin_sums(&m, &p->t);
	p->now = NULL;
	pass_flush(p);
	amx_configure(AMX_ROWS, AMX_ROWS);
	amx_rows(&m, g, 0, p->t.n_rows);
	amx_finish(&m);
	amx_configure(AMX_ROWS, p->t.n_rows - AMX_ROWS);
}

static void pass_add(void *arg, const struct seg *run)
{
	struct amx_pass *p = arg;
	const int n = (p->t.k + ACT_GROUP - 1) / ACT_GROUP;
	for (struct seg s = *run; s.n; seg_next(&s)) {
		struct amx_seg *g = &p->segs[p->n_segs % AMX_RING];
		g->s = s;
		g->b = p->t.scratch + (size_t)(p->n_segs % 2 * BLOCK_TILES) * 2048;
		g->n_k = (s.k1 - s.k0 + AMX_K - 1) / AMX_K;
		g->fixed = false;
		pass_fetch(&p->t, p->n_segs++, n);
		pass_turn(p, g, true);
		if (g->fixed)
			pass_general(p);
	}
}

/* Compute all rows of a call, 17 to 32. */
static void amx_pass(const struct cpu_dot_tile *t)
{
	struct amx_pass p;
	pass_begin(&p, t, 0, t->n_rows);
	amx_configure(AMX_ROWS, t->n_rows - AMX_ROWS);
	dots_walk(&p.t, pass_add, &p);
	pass_end(&p);
}

/* Multiply 32 rows by n unpacked segments. */
VFN void pass_whole(struct amx_pass *p, const struct amx_seg *segs, int n, const int wide)
{
	pass_load(p, segs);
	struct amx_state s = p->state; /* a local copy, which no asm store can alias */
	for (int i = 0; i < n; i++) {
		pass_fetch(&p->t, i, n);
		pass_steps(p, &s, &segs[i], i + 1 < n ? &segs[i + 1] : NULL, wide, 1);
	}
	pass_last(&p->t, &s, AMX_PASS, wide);
}

static void pass_whole_narrow(struct amx_pass *p, const struct amx_seg *segs, int n)
{
	pass_whole(p, segs, n, 0);
}

static void pass_whole_wide(struct amx_pass *p, const struct amx_seg *segs, int n)
{
	pass_whole(p, segs, n, 1);
}

/* Multiply rows r to r + n_rows - 1, 17 to 32 of them, by unpacked segments. */
static void pass_over(const struct cpu_dot_tile *t, struct amx_seg *segs, int n, int r, int n_rows)
{
	struct amx_pass p;
	pass_begin(&p, t, r, n_rows);
	if (n_rows == AMX_PASS) {
		(t->op->wide ? pass_whole_wide : pass_whole_narrow)(&p, segs, n);
		return;
	}
	amx_configure(AMX_ROWS, n_rows - AMX_ROWS);
	for (int i = 0; i < n; i++) {
		pass_fetch(&p.t, i, n);
		pass_turn(&p, &segs[i], false);
	}
	pass_end(&p);
	amx_configure(AMX_ROWS, AMX_ROWS);
}

#endif
