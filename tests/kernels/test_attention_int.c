/* Attention on INT8 and INT16 keys and values, and attention of mode bf16: run one chunk through every kernel
 * and compare bit for bit, and with double precision. */
#include "kernels/cpu/attention/bf16.h"
#include "kernels/cpu/attention/int.h"
#include "tests/kernels/emulated.h"
#include "tests/kernels/emulated_attention.h"
#include "tests/kernels/kern_test.h"

typedef const struct cpu_kv_ints *ints_fn(void);
static ints_fn *const tables[] = {cpu_kv_ints_plain,        cpu_kv_ints_avx2, cpu_kv_ints_avxvnni,
				  cpu_kv_ints_avx512vnni,   cpu_kv_ints_amx,  emulated_ints_avxvnni,
				  emulated_ints_avx512vnni, emulated_ints_amx};
enum { N_TABLES = sizeof tables / sizeof tables[0], N_EMULATED = 3 };

static const struct cpu_kv_type *dots_of(const struct cpu_isa *isa)
{
	return isa ? isa->kv_dots : NULL;
}

/* `bits` value that selects mode bf16. */
enum { BF16 = 0 };

static const struct cpu_kv_type *type_at(int i, int bits)
{
	const struct cpu_kv_ints *t = NULL;
	if (i >= N_TABLES - N_EMULATED && !cpu_kv_ints_avx2())
		return NULL;
	if (bits != BF16) {
		t = tables[i]();
		return !t ? NULL : bits == 8 ? &t->int8 : &t->int16;
	}
	switch (i) {
	case 0:
		return dots_of(cpu_isa_plain());
	case 1:
		return dots_of(cpu_isa_avx2());
	case 2:
		return dots_of(cpu_isa_avx512());
	case 3:
		return cpu_kv_bf16_amx();
	case N_TABLES - 2:
		return dots_of(emulated_avx512());
	case N_TABLES - 1:
		return emulated_attention_bf16();
	default:
		return NULL;
	}
}

/* ---- one chunk ---- */

struct shape {
	int dim, heads, m;
	int first, step; /* query i sees tokens before first + i / step */
	int window;      /* window in tokens; 0: none */
};

struct world {
	struct shape z;
	float *q, *k, *v; /* [heads][m][dim], [heads][CHUNK][dim] */
	int from[KV_QUERIES], to[KV_QUERIES];
	float cap;
};

enum { CHANNELS = 1, NO_V = 2, LOUD = 4, CAPPED = 8 };

/* CHANNELS: one channel of K is 30 times larger; NO_V: some tokens have zero values; LOUD: some tokens have
 * large values; CAPPED: scores have a soft cap. */
static void world_make(struct world *w, struct shape z, int how)
{
	const size_t n = (size_t)(z.heads * CHUNK * z.dim), nq = (size_t)(z.heads * z.m * z.dim);
	*w = (struct world){.z = z, .q = kt_floats(nq), .k = kt_floats(n), .v = kt_floats(n)};
	w->cap = how & CAPPED ? 1.5f : 0;
	for (size_t i = 0; i < nq; i++)
		w->q[i] *= 4;
	for (size_t i = 0; i < n; i++) {
		const int t = (int)(i / (size_t)z.dim);
		if (how & CHANNELS && i % (size_t)z.dim % 37 == 5)
			w->k[i] *= 30;
		if (how & NO_V && t % 5 == 1)
			w->v[i] = 0;
		if (how & LOUD && t % 7 == 3)
			w->v[i] *= 1000;
	}
	for (int i = 0; i < z.m; i++) {
		const int to = z.first + i / z.step;
		w->to[i] = to < 0 ? 0 : to > CHUNK ? CHUNK : to;
		w->from[i] = z.window && to > z.window ? to - z.window : 0;
		w->from[i] = w->from[i] > CHUNK ? CHUNK : w->from[i];
	}
}

static void world_free(struct world *w)
{
	free(w->q);
	free(w->k);
	free(w->v);
}

/* Chunk stored and computed by one table of kernels. */
struct result {
	size_t tile_bytes, n;
	unsigned char *tiles; /* [CHUNK_TILES] */
	float *max, *sum, *o;
};

static void *zeros64(size_t n)
{
	void *p = aligned_alloc(64, (n + 63) / 64 * 64);
	memset(p, 0, (n + 63) / 64 * 64);
	return p;
}

static void result_free(struct result *r)
{
	free(r->tiles);
	free(r->max);
	free(r->sum);
	free(r->o);
}

static void store_all(const struct cpu_kv_type *t, const struct world *w, struct result *r)
{
	const struct shape *z = &w->z;
	const size_t kb = t->k_bytes(z->dim), vb = t->v_bytes(z->dim), heads = (size_t)z->heads;
	r->tile_bytes = heads * (kb + vb);
	r->tiles = zeros64(r->tile_bytes * CHUNK_TILES);
	/* Fill the last tile's unused tokens, as if another sequence had used the tile before. */
	memset(r->tiles, 0x7f, r->tile_bytes * CHUNK_TILES);
	for (size_t h = 0; h < heads; h++)
		for (int i = 0; i < w->to[z->m - 1]; i++) {
			unsigned char *tile = r->tiles + (size_t)(i / 16) * r->tile_bytes;
			const size_t at = (h * CHUNK + (size_t)i) * (size_t)z->dim;
			t->store(tile + h * kb, tile + heads * kb + h * vb, i % 16, w->k + at, w->v + at,
				 z->dim);
		}
}

static struct result run(const struct cpu_kv_type *t, const struct world *w)
{
	const struct shape *z = &w->z;
	const size_t heads = (size_t)z->heads, m = (size_t)z->m;
	struct result r = {.n = heads * m};
	struct cpu_kv_chunk c = {.n_heads = z->heads,
				 .m = z->m,
				 .dim = z->dim,
				 .dim_pad = (z->dim + 15) / 16 * 16,
				 .scale = 1 / sqrtf((float)z->dim),
				 .cap = w->cap,
				 .q_stride = t->q_bytes(z->dim, z->m),
				 .k_bytes = t->k_bytes(z->dim),
				 .v_bytes = t->v_bytes(z->dim),
				 .from = w->from,
				 .to = w->to};
	store_all(t, w, &r);
	for (int i = 0; i < CHUNK_TILES; i++) {
		c.k[i] = r.tiles + (size_t)i * r.tile_bytes;
		c.v[i] = c.k[i] + heads * c.k_bytes;
	}
	unsigned char *q = zeros64(heads * c.q_stride);
	for (size_t h = 0; h < heads; h++) {
		const float *rows[KV_QUERIES];
		for (size_t i = 0; i < m; i++)
			rows[i] = w->q + (h * m + i) * (size_t)z->dim;
		t->queries(q + h * c.q_stride, rows, z->m, z->dim, c.scale);
	}
	c.q = q;
	c.work = zeros64(t->work_bytes(z->dim, z->heads, z->m));
	memset(c.work, 0xff, t->work_bytes(z->dim, z->heads, z->m));
	c.max = r.max = zeros64(r.n * 4);
	c.sum = r.sum = zeros64(r.n * 4);
	c.o = r.o = zeros64(r.n * (size_t)c.dim_pad * 4);
	t->chunk(&c);
	free(q);
	free(c.work);
	return r;
}

/* ---- against double precision ---- */

static void reference(const struct world *w, int head, int i, double *out)
{
	const struct shape *z = &w->z;
	const float *q = w->q + (size_t)((head * z->m + i) * z->dim);
	double p[CHUNK], max = -INFINITY, sum = 0;
	for (int t = w->from[i]; t < w->to[i]; t++) {
		const float *k = w->k + (size_t)((head * CHUNK + t) * z->dim);
		p[t] = 0;
		for (int d = 0; d < z->dim; d++)
			p[t] += (double)q[d] * (double)k[d];
		p[t] /= sqrt(z->dim);
		if (w->cap > 0)
			p[t] = (double)w->cap * tanh(p[t] / (double)w->cap);
		max = p[t] > max ? p[t] : max;
	}
	for (int t = w->from[i]; t < w->to[i]; t++)
		sum += p[t] = exp(p[t] - max);
	for (int d = 0; d < z->dim; d++) {
		out[d] = 0;
		for (int t = w->from[i]; t < w->to[i]; t++)
			out[d] += p[t] * (double)w->v[(head * CHUNK + t) * z->dim + d];
		out[d] /= sum;
	}
}

/* Return the root mean square error of all outputs relative to the outputs' root mean square. */
static double error_of(const struct world *w, const struct result *r)
{
	const struct shape *z = &w->z;
	const int pad = (z->dim + 15) / 16 * 16;
	double *out = xmalloc((size_t)z->dim * sizeof *out), e = 0, all = 0;
	for (int h = 0; h < z->heads; h++)
		for (int i = 0; i < z->m; i++) {
			const int at = h * z->m + i;
			if (w->from[i] >= w->to[i])
				continue;
			reference(w, h, i, out);
			for (int d = 0; d < z->dim; d++) {
				const double y = (double)r->o[at * pad + d] / (double)r->sum[at];
				e += (y - out[d]) * (y - out[d]);
				all += out[d] * out[d];
			}
		}
	free(out);
	return sqrt(e / all);
}

static void check(int bits, struct shape z, int how, double most)
{
	struct world w;
	struct result want = {0};
	char what[160];
	const size_t pad = (size_t)(z.dim + 15) / 16 * 16;
	world_make(&w, z, how);
	for (int i = 0; i < N_TABLES; i++) {
		const struct cpu_kv_type *t = type_at(i, bits);
		if (!t)
			continue;
		snprintf(what, sizeof what, "%s%s: D %d, %d x %d queries, first %d step %d window %d",
			 t->name, i >= N_TABLES - N_EMULATED ? " (emulated)" : "", z.dim, z.heads, z.m,
			 z.first, z.step, z.window);
		struct result r = run(t, &w);
		for (size_t q = 0; q < r.n; q++)
			if (w.from[q % (size_t)z.m] >= w.to[q % (size_t)z.m]) {
				r.max[q] = r.sum[q] = 0;
				memset(r.o + q * pad, 0, pad * sizeof *r.o);
			}
		if (!want.o) {
			const double e = error_of(&w, &r);
			cr_assert(e <= most, "%s: relative error %.2e, at most %.2e", what, e, most);
			want = r;
			continue;
		}
		cr_assert(!memcmp(r.tiles, want.tiles, r.tile_bytes * CHUNK_TILES), "%s: codes", what);
		kt_same(r.max, want.max, r.n, what);
		kt_same(r.sum, want.sum, r.n, what);
		kt_same(r.o, want.o, r.n * pad, what);
		result_free(&r);
	}
	result_free(&want);
	world_free(&w);
}

static void check_shapes(int bits, double most)
{
	static const struct shape shapes[] = {
		{64, 2, 1, 256, 1, 0},   {128, 2, 2, 100, 2, 0},   {128, 1, 64, 200, 2, 0},
		{128, 1, 33, 256, 1, 0}, {64, 1, 20, 5, 1, 0},     {256, 1, 18, 130, 1, 70},
		{80, 3, 4, 77, 4, 0},    {96, 1, 48, 31, 3, 0},    {40, 2, 17, 17, 17, 0},
		{8, 2, 3, 1, 3, 0},      {100, 1, 12, 240, 1, 33}, {64, 1, 40, -3, 1, 0},
		{120, 2, 7, 255, 1, 16}, {128, 8, 8, 256, 8, 0},   {16, 1, 64, 16, 8, 3},
		{64, 1, 24, 120, 1, 0},  {64, 1, 24, 138, 1, 20},  {128, 2, 4, 126, 1, 0}};
	for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
		check(bits, shapes[i], 0, most);
}

Test(attention_int, int8_has_the_same_bits_in_every_kernel)
{
	check_shapes(8, 0.03);
}

Test(attention_int, int16_has_the_same_bits_in_every_kernel)
{
	check_shapes(16, 2e-4);
}

Test(attention_int, bf16_has_the_same_bits_in_every_kernel)
{
	check_shapes(BF16, 6e-3);
}

/* Large channels of K cost INT8 little accuracy, because K is rotated. Tokens with zero or large values keep
 * their weight. */
Test(attention_int, outliers_cost_little)
{
	static const struct shape shapes[] = {
		{64, 2, 2, 256, 1, 0}, {128, 2, 20, 200, 2, 0}, {256, 1, 4, 99, 1, 50}};
	for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
		for (int how = 1; how < 8; how++) {
			check(8, shapes[i], how, how & CHANNELS ? 0.06 : 0.04);
			check(16, shapes[i], how, how & CHANNELS ? 1e-3 : 3e-4);
		}
}

Test(attention_int, capped_scores_have_the_same_bits_in_every_kernel)
{
	static const struct shape shapes[] = {{64, 2, 1, 256, 1, 0},   {128, 1, 64, 200, 2, 0},
					      {128, 1, 33, 256, 1, 0}, {256, 1, 18, 130, 1, 70},
					      {80, 3, 4, 77, 4, 0},    {128, 8, 8, 256, 8, 0},
					      {64, 1, 40, -3, 1, 0},   {100, 1, 12, 240, 1, 33}};
	for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
		for (int how = CAPPED; how < 2 * CAPPED; how += LOUD) {
			check(8, shapes[i], how, 0.04);
			check(16, shapes[i], how, 3e-4);
			check(BF16, shapes[i], how, 8e-3);
		}
}

/* Reach the largest possible sums: every code and weight at its limit, head size D at its maximum. */
Test(attention_int, sums_at_their_bounds_fit)
{
	const struct shape z = {512, 1, 17, 256, 17, 0};
	const size_t n = (size_t)(CHUNK * z.dim);
	for (int bits = 8; bits <= 16; bits += 8)
		for (int sign = -1; sign <= 1; sign += 2) {
			struct world w;
			world_make(&w, z, 0);
			for (size_t i = 0; i < (size_t)(z.m * z.dim); i++)
				w.q[i] = 0.01f;
			/* A Hadamard transform turns a constant vector into one with a single nonzero
			 * value. */
			for (size_t i = 0; i < n; i++) {
				w.k[i] = (float)sign;
				w.v[i] = (float)sign * (i % 2 ? 1 : -1);
			}
			for (int i = 0; i < N_TABLES; i++) {
				if (!type_at(i, bits))
					continue;
				struct result r = run(type_at(i, bits), &w);
				for (int q = 0; q < z.m; q++)
					for (int d = 0; d < z.dim; d++) {
						const float y = r.o[q * z.dim + d] / r.sum[q];
						const float want = (float)sign * (d % 2 ? 1 : -1);
						cr_assert(fabsf(y - want) < 0.011f, "%s: %g, expected %g",
							  type_at(i, bits)->name, (double)y, (double)want);
					}
				cr_assert(fabsf(r.max[0] - r.max[16]) == 0);
				result_free(&r);
			}
			world_free(&w);
		}
}

/* A non-finite value gives NaN for every query that sees its token (for floats, the value itself), and
 * changes no other query. */
Test(attention_int, what_is_not_finite_reaches_only_queries_that_see_it)
{
	const struct shape z = {64, 2, 24, 40, 1, 20};
	enum { AT = 35 };
	for (int bits = BF16; bits <= 16; bits += 8)
		for (int what = 0; what < (bits == BF16 ? 3 : 8); what++) {
			struct world w;
			world_make(&w, z, what & 4 ? CAPPED : 0);
			float *x = what % 2 ? w.k : w.v;
			x[(CHUNK + AT) * z.dim + 5] = what % 4 < 2 ? NAN : -INFINITY; /* in the second head */
			for (int i = 0; i < N_TABLES; i++) {
				if (!type_at(i, bits))
					continue;
				struct result r = run(type_at(i, bits), &w);
				for (int q = 0; q < 2 * z.m; q++) {
					const bool sees =
						q >= z.m && AT >= w.from[q % z.m] && AT < w.to[q % z.m];
					const float y = r.o[q * z.dim + 5] / r.sum[q];
					cr_assert((bits == BF16 ? !isfinite(y) : y != y) == sees,
						  "%s: query %d", type_at(i, bits)->name, q);
				}
				result_free(&r);
			}
			world_free(&w);
		}
}

/* Scores are so large that a score and the maximum are rounded by many nats: weights exceed 65535. */
Test(attention_int, large_scores_have_the_same_bits_in_every_kernel)
{
	static const struct shape shapes[] = {{64, 2, 4, 256, 1, 0}, {128, 1, 20, 200, 1, 0}};
	for (int i = 0; i < 16; i++) {
		struct world w;
		struct result want = {0};
		world_make(&w, shapes[i % 2], 0);
		for (size_t q = 0; q < (size_t)(w.z.heads * w.z.m * w.z.dim); q++)
			w.q[q] *= i % 4 < 2 ? 1e5f : 3e7f;
		for (size_t k = 0; k < (size_t)(w.z.heads * CHUNK * w.z.dim); k++)
			w.k[k] = w.k[k % (size_t)w.z.dim] * (1e5f + (float)(k / (size_t)w.z.dim % 9) * 1e-2f);
		for (int t = 0; t < N_TABLES; t++) {
			const struct cpu_kv_type *type = type_at(t, i % 3 ? 16 : 8);
			if (!type)
				continue;
			struct result r = run(type, &w);
			if (!want.o) {
				want = r;
				continue;
			}
			kt_same(r.max, want.max, r.n, type->name);
			kt_same(r.sum, want.sum, r.n, type->name);
			kt_same(r.o, want.o, r.n * (size_t)w.z.dim, type->name);
			result_free(&r);
		}
		result_free(&want);
		world_free(&w);
	}
}

/* A token's codes depend on that token only, and storing later tokens does not change them. */
Test(attention_int, a_token_is_stored_once_and_for_all)
{
	const int dim = 80;
	for (int bits = 8; bits <= 16; bits += 8) {
		const struct cpu_kv_type *t = type_at(0, bits);
		const size_t kb = t->k_bytes(dim), vb = t->v_bytes(dim);
		unsigned char *a = zeros64(kb + vb), *b = zeros64(kb + vb);
		float *k = kt_floats((size_t)(16 * dim)), *v = kt_floats((size_t)(16 * dim));
		for (int i = 0; i < 16; i++)
			t->store(a, a + kb, i, k + i * dim, v + i * dim, dim);
		for (int i = 15; i >= 0; i--)
			for (int twice = 0; twice < 2; twice++)
				t->store(b, b + kb, i, k + i * dim, v + i * dim, dim);
		cr_assert(!memcmp(a, b, kb + vb));
		free(a);
		free(b);
		free(k);
		free(v);
	}
}
