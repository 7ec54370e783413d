/* kern_test.h - helpers for the kernel tests: devices, random weights, comparisons.
 *
 * One program tests every table. A test runs on the CPU or on the device that QUERN_TEST_DEVICE names
 * ("cuda:0"). Its table may be the emulated one (QUERN_CUDA_LIBRARY=build/lib/libquern-cudasim.so). A device
 * has one or more classes of operands: F32 on the CPU, F16 and BF16 on a GPU. Each class has one or more ways
 * to compute the same bits: instruction sets, or orders of blocks and threads in the emulator. The first way
 * of a class defines the bits that its other ways must give.
 *
 *   for (int c = 0; c < kt_classes(); c++)
 *           for (int way = 0; way < KT_WAYS; way++) {
 *                   if (!kt_open(&t, c, way, size))
 *                           continue;
 *                   ... kt_put_op(), t.ops->..., kt_get_op(), kt_near(), kt_same() ...
 *                   kt_close(&t);
 *           }
 *
 * QUERN_TEST_LONG=1 runs complete sweeps. */
#ifndef QUERN_TESTS_KERNELS_KERN_TEST_H
#define QUERN_TESTS_KERNELS_KERN_TEST_H

#include <criterion/criterion.h>
#include <dlfcn.h>
#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "kernels/codes.h"
#include "kernels/half.h"
#include "kernels/kern.h"

enum { KT_WAYS = 3, KT_PIECES = 32 };

/* ---- devices ---- */

struct kt {
	const struct kern_ops *ops;
	struct kern_dev *dev;
	struct kern_stream *s;
	enum kern_dtype op; /* operand type */
	const char *isa;    /* for messages */
	struct {
		void *p;
		size_t bytes;
	} mem[KT_PIECES]; /* from kt_new() and similar; kt_close() frees the rest */
};

struct kt_size {
	int threads, rows, seqs, logits, context, block_size, kinds; /* 0: the minimum */
	enum kern_kv_type kv;
};

static inline const char *kt_device(void)
{
	const char *name = getenv("QUERN_TEST_DEVICE");
	return name && name[0] ? name : "cpu";
}

static inline bool kt_on_cpu(void)
{
	return strncmp(kt_device(), "cpu", 3) == 0;
}

static inline const struct kern_ops *kt_ops(int *index)
{
	const struct kern_ops *ops = NULL;
	struct why why = {""};
	int e = kern_find(kt_device(), &ops, index, &why);
	cr_assert(e == 0, "%s", why.text);
	return ops;
}

/* Return the emulator's function that sets the order of blocks and threads; NULL on a real device. */
static inline void (*kt_seeder(void))(uint64_t)
{
	static void (*seed)(uint64_t);
	static bool looked;
	const char *lib = getenv("QUERN_CUDA_LIBRARY");
	if (!looked && !kt_on_cpu() && lib) {
		void *h = dlopen(lib, RTLD_NOW | RTLD_LOCAL); /* the library that kern_find() opened */
		void *found = h ? dlsym(h, "cudasim_seed") : NULL;
		memcpy(&seed, &found, sizeof seed);
	}
	looked = true;
	return seed;
}

static inline void kt_seed(uint64_t seed)
{
	if (kt_seeder())
		kt_seeder()(seed);
}

#ifdef __SANITIZE_ADDRESS__
enum { KT_SANITIZED = 1 };
#else
enum { KT_SANITIZED = 0 };
#endif

/* Return true if sweeps must be shortened: on the emulated device and with AddressSanitizer, unless
 * QUERN_TEST_LONG is set. */
static inline bool kt_brief(void)
{
	return (KT_SANITIZED || kt_seeder()) && !getenv("QUERN_TEST_LONG");
}

static inline int kt_classes(void)
{
	return kt_on_cpu() ? 1 : 2;
}

static inline enum kern_dtype kt_operand(int c)
{
	return kt_on_cpu() ? KERN_F32 : c ? KERN_BF16 : KERN_F16;
}

/* Return false if this machine lacks the instruction set, or the device has fewer ways. */
static inline bool kt_open(struct kt *t, int c, int way, struct kt_size z)
{
	static const char *const isas[KT_WAYS] = {"avx512", "avx2", "plain"};
	struct why why = {""};
	const int bs = z.block_size ? z.block_size : 16;
	struct kern_open_args a = {
		.compute = kt_operand(c) == KERN_BF16 ? KERN_COMPUTE_BF16 : KERN_COMPUTE_F32,
		.kv = z.kv,
		.n_threads = z.threads ? z.threads : 1,
		.isa = isas[way],
		.max_rows = z.rows ? z.rows : 1,
		.max_seqs = z.seqs ? z.seqs : 1,
		.max_logits = z.logits ? z.logits : 1,
		.max_context = z.context ? z.context : 1,
		.n_kinds = z.kinds,
	};
	a.max_blocks_per_seq = (a.max_context + bs - 1) / bs;
	*t = (struct kt){.ops = kt_ops(&a.index), .op = kt_operand(c)};
	t->isa = kt_on_cpu() ? isas[way] : c ? "bf16" : "f16";
	if (!kt_on_cpu()) {
		if (way >= (kt_seeder() ? 2 : 1))
			return false;
		kt_seed((uint64_t)way);
	}
	int e = t->ops->open(&t->dev, &a, &why);
	if (e) {
		cr_assert(kt_on_cpu() && strstr(why.text, isas[way]), "%s", why.text);
		return false;
	}
	t->s = t->ops->stream_new(t->dev);
	cr_assert(t->s != NULL);
	return true;
}

/* Open the first available way of class c. */
static inline void kt_open_any(struct kt *t, int c, struct kt_size z)
{
	for (int way = 0; way < KT_WAYS; way++)
		if (kt_open(t, c, way, z))
			return;
	cr_assert(false, "%s cannot be opened", kt_device());
}

static inline void kt_close(struct kt *t)
{
	for (int i = 0; i < KT_PIECES; i++)
		if (t->mem[i].p)
			t->ops->mem_free(t->dev, t->mem[i].p, t->mem[i].bytes);
	t->ops->stream_free(t->s);
	t->ops->close(t->dev);
}

/* ---- operands ---- */

static inline size_t kt_op_size(enum kern_dtype op)
{
	return op == KERN_F32 ? 4 : 2;
}

/* Half a unit in the last place, relative. For F32: the allowed relative error of sums. */
static inline double kt_unit(enum kern_dtype op)
{
	return op == KERN_BF16 ? 0x1p-8 : op == KERN_F16 ? 0x1p-11 : 0;
}

/* Round to nearest, ties to even. */
static inline uint16_t kt_to_half(enum kern_dtype op, float f)
{
	uint32_t u;
	memcpy(&u, &f, 4);
	if (op == KERN_BF16)
		return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
	const uint16_t sign = (uint16_t)(u >> 16 & 0x8000);
	const double v = fabs((double)f);
	int e;
	if (f != f)
		return 0x7fff;
	frexp(v, &e);
	const int ulp = e - 1 < -14 ? -24 : e - 11;
	const double r = ldexp(nearbyint(ldexp(v, -ulp)), ulp);
	if (r >= 65520)
		return sign | 0x7c00;
	if (r < 0x1p-14)
		return (uint16_t)(sign | (int)ldexp(r, 24));
	const double m = frexp(r, &e);
	return (uint16_t)(sign | (e + 14) << 10 | ((int)ldexp(m, 11) - 1024));
}

static inline float kt_from_half(enum kern_dtype op, uint16_t h)
{
	return op == KERN_BF16 ? half_from_bf16(h) : half_from_f16(h);
}

/* Round x to the operand type, as the device does. */
static inline void kt_round(enum kern_dtype op, float *x, size_t n)
{
	for (size_t i = 0; op != KERN_F32 && i < n; i++)
		x[i] = kt_from_half(op, kt_to_half(op, x[i]));
}

/* ---- memory ---- */

static inline void *kt_new(struct kt *t, size_t bytes)
{
	void *p = t->ops->mem_new(t->dev, bytes);
	cr_assert(p != NULL);
	for (int i = 0; i < KT_PIECES; i++)
		if (!t->mem[i].p) {
			t->mem[i].p = p;
			t->mem[i].bytes = bytes;
			return p;
		}
	cr_assert(false, "more than %d pieces of memory", KT_PIECES);
	return NULL;
}

static inline void kt_del(struct kt *t, void *p)
{
	for (int i = 0; i < KT_PIECES; i++)
		if (t->mem[i].p == p) {
			t->ops->mem_free(t->dev, p, t->mem[i].bytes);
			t->mem[i].p = NULL;
			return;
		}
	cr_assert(false, "no memory of this test");
}

static inline void kt_set(struct kt *t, void *dev, const void *from, size_t bytes)
{
	cr_assert_eq(t->ops->upload(t->s, dev, from, bytes), 0);
	cr_assert_eq(t->ops->stream_sync(t->s), 0);
}

static inline void *kt_put(struct kt *t, const void *from, size_t bytes)
{
	void *p = kt_new(t, bytes);
	kt_set(t, p, from, bytes);
	return p;
}

static inline void kt_get(struct kt *t, void *to, const void *dev, size_t bytes)
{
	cr_assert_eq(t->ops->download(t->s, to, dev, bytes), 0);
	cr_assert_eq(t->ops->stream_sync(t->s), 0);
}

/* Sample n rows, wait, and copy the results into the test's own memory. */
static inline void kt_sample(struct kt *t, const void *logits, int n_vocab, void *tokens,
			     const struct kern_sample_row *rows, int n, const struct kern_sample_out *out)
{
	const size_t one = (size_t)n * 4, tops = out->top_id ? one * (size_t)out->top_stride : 0;
	const size_t bytes = 4 * one + 2 * tops;
	char *p = t->ops->host_new(t->dev, bytes);
	cr_assert(p);
	const struct kern_sample_out at = {.token = (void *)p,
					   .logprob = (void *)(p + one),
					   .rank = (void *)(p + 2 * one),
					   .top_id = (void *)(p + 3 * one),
					   .top_logprob = (void *)(p + 3 * one + tops),
					   .top_stride = out->top_stride,
					   .mu = (void *)(p + 3 * one + 2 * tops)};
	cr_assert_eq(t->ops->sample(t->s, logits, n_vocab, tokens, rows, n, &at), 0);
	cr_assert_eq(t->ops->stream_sync(t->s), 0);
	memcpy(out->token, at.token, one);
	memcpy(out->logprob, at.logprob, one);
	memcpy(out->rank, at.rank, one);
	if (tops) {
		memcpy(out->top_id, at.top_id, tops);
		memcpy(out->top_logprob, at.top_logprob, tops);
	}
	if (out->mu)
		memcpy(out->mu, at.mu, one);
	t->ops->host_free(t->dev, p, bytes);
}

/* Upload n operands, given as floats. */
static inline void kt_set_op(struct kt *t, void *dev, const float *from, size_t n)
{
	uint16_t *h = t->op == KERN_F32 ? NULL : xmalloc(n * 2);
	for (size_t i = 0; h && i < n; i++)
		h[i] = kt_to_half(t->op, from[i]);
	kt_set(t, dev, h ? (const void *)h : from, n * kt_op_size(t->op));
	free(h);
}

static inline void *kt_put_op(struct kt *t, const float *from, size_t n)
{
	void *p = kt_new(t, n * kt_op_size(t->op));
	kt_set_op(t, p, from, n);
	return p;
}

static inline void kt_get_op(struct kt *t, float *to, const void *dev, size_t n)
{
	uint16_t *h = t->op == KERN_F32 ? NULL : xmalloc(n * 2);
	kt_get(t, h ? (void *)h : to, dev, n * kt_op_size(t->op));
	for (size_t i = 0; h && i < n; i++)
		to[i] = kt_from_half(t->op, h[i]);
	free(h);
}

/* ---- numbers ---- */

static uint64_t kt_state = 0x9E3779B97F4A7C15u;

static inline uint32_t kt_rand(void)
{
	kt_state ^= kt_state << 13;
	kt_state ^= kt_state >> 7;
	kt_state ^= kt_state << 17;
	return (uint32_t)(kt_state >> 32);
}

static inline float kt_float(void) /* in (-1, 1) */
{
	return (float)((double)kt_rand() / 2147483648.0 - 1.0);
}

static inline float *kt_floats(size_t n)
{
	float *p = xmalloc(n * sizeof *p);
	for (size_t i = 0; i < n; i++)
		p[i] = kt_float();
	return p;
}

/* F16 between 2^-7 and 1, BF16 between 2^-8 and 1 */
static inline uint16_t kt_half(enum kern_dtype t)
{
	uint32_t r = kt_rand();
	if (t == KERN_F16)
		return (uint16_t)((r & 0x8000) | (8 + (r >> 16) % 7) << 10 | (r & 0x3ff));
	return (uint16_t)((r & 0x8000) | (119 + (r >> 16) % 8) << 7 | (r & 0x7f));
}

/* ---- layers ---- */

/* Layer part in its storage type, and the same weights as plain floats [n][k]. */
struct kt_part {
	struct kern_linear_part part;
	void *w, *qzeros, *scales, *bias;
	float *f;
};

static inline void kt_part_fini(struct kt_part *p)
{
	free(p->w);
	free(p->qzeros);
	free(p->scales);
	free(p->bias);
	free(p->f);
}

static inline void kt_dense(struct kt_part *p, enum kern_dtype t, int k, int n)
{
	size_t all = (size_t)k * (size_t)n;
	p->f = xmalloc(all * sizeof(float));
	p->w = xmalloc(all * (t == KERN_F32 ? 4 : 2));
	for (size_t i = 0; i < all; i++) {
		if (t == KERN_F32) {
			p->f[i] = ((float *)p->w)[i] = kt_float();
			continue;
		}
		uint16_t h = kt_half(t);
		((uint16_t *)p->w)[i] = h;
		p->f[i] = t == KERN_F16 ? half_from_f16(h) : half_from_bf16(h);
	}
}

static inline void kt_awq(struct kt_part *p, int k, int n, int group)
{
	static const int nibble[8] = {0, 4, 1, 5, 2, 6, 3, 7};
	const int groups = (k + group - 1) / group;
	uint32_t *w = p->w = xcalloc((size_t)k * (size_t)n / 8, 4);
	uint32_t *z = p->qzeros = xcalloc((size_t)groups * (size_t)n / 8, 4);
	uint16_t *s = p->scales = xcalloc((size_t)groups * (size_t)n, 2);
	p->f = xmalloc((size_t)k * (size_t)n * sizeof(float));
	for (size_t i = 0; i < (size_t)groups * (size_t)n; i++)
		s[i] = kt_half(KERN_F16) & 0x7fff;
	for (size_t i = 0; i < (size_t)groups * (size_t)n / 8; i++)
		z[i] = kt_rand();
	for (size_t i = 0; i < (size_t)k * (size_t)n / 8; i++)
		w[i] = kt_rand();
	for (int r = 0; r < k; r++)
		for (int c = 0; c < n; c++) {
			size_t g = (size_t)(r / group);
			int at = 4 * nibble[c % 8];
			int q = (int)(w[(size_t)r * (size_t)(n / 8) + (size_t)c / 8] >> at & 15);
			int zero = (int)(z[g * (size_t)(n / 8) + (size_t)c / 8] >> at & 15);
			p->f[(size_t)c * (size_t)k + (size_t)r] =
				(float)(q - zero) * half_from_f16(s[g * (size_t)n + (size_t)c]);
		}
}

/* Values of kt_part()'s `group`: GGUF's code formats, and codes that cover every 4-bit or 8-bit weight. */
enum kt_codes { KT_Q4_0 = 1, KT_Q8_0, KT_Q4_K, KT_Q6_K, KT_W4, KT_W8, KT_MXFP4, KT_ZEROS, KT_W4_BF16 };

static inline uint32_t kt_code_bits(const struct codes *c, int n, int i, uint32_t what)
{
	uint32_t h =
		(uint32_t)n * 2654435761u ^ (uint32_t)i * 40503u ^ what * 0x9e3779b9u ^ (uint32_t)c->bits;
	h ^= h >> 15;
	h *= 0x2c1b3c6du;
	h ^= h >> 12;
	h *= 0x297a2d39u;
	return h ^ h >> 15;
}

static inline float kt_code_d(const struct codes *c, int n, int i, uint32_t what)
{
	const uint32_t h = kt_code_bits(c, n, i, what);
	if (c->d_type == CODES_BF16 && !c->table) /* near 2^-12, which F16 holds too */
		return ldexpf(1 + (float)(h & 127) / 128, -10 - (int)(h >> 8) % 4);
	if (c->d_type == CODES_BF16) /* powers of two, some below F16's range */
		return ldexpf(1, h % 8 ? -10 - (int)(h >> 8) % 4 : -40);
	return half_from_f16((uint16_t)((h & 0x83ff) | (3 + (h >> 16) % 3) << 10)); /* near 2^-12 */
}

static inline void kt_codes_read(const struct codes *c, int n0, int n1, const struct code_rows *out)
{
	const int groups = codes_groups(c), supers = codes_supers(c);
	for (int n = n0; n < n1; n++) {
		for (int i = 0; i < c->k; i++)
			out->code[(size_t)(n - n0) * (size_t)c->k + (size_t)i] =
				kt_code_bits(c, n, i, 1) & ((1u << c->bits) - 1);
		for (int g = 0; g < groups; g++) {
			const int at = (n - n0) * groups + g;
			const uint32_t h = kt_code_bits(c, n, g, 2);
			out->scale[at] = c->super == c->group ? 1 : (int16_t)(h & 63);
			if (c->super != c->group && !c->minimums)
				out->scale[at] = (int16_t)((int)(h & 255) - 128);
			out->offset[at] = (int16_t)(c->minimums   ? h >> 8 & 63
						    : c->zero < 0 ? h >> 8 & 15
								  : (uint32_t)c->zero);
		}
		for (int s = 0; s < supers; s++) {
			out->d[(n - n0) * supers + s] = kt_code_d(c, n, s, 3);
			if (c->minimums)
				out->dmin[(n - n0) * supers + s] = kt_code_d(c, n, s, 4);
		}
	}
}

static inline void kt_codes(struct kt_part *p, int k, int n, enum kt_codes kind)
{
	static const float e2m1[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
	static const struct codes kinds[] = {
		[KT_Q4_0] = {.bits = 4, .group = 32, .super = 32, .zero = 8},
		[KT_Q8_0] = {.bits = 8, .group = 32, .super = 32, .zero = 128},
		[KT_Q4_K] = {.bits = 4, .group = 32, .super = 256, .minimums = true, .zero = -1},
		[KT_Q6_K] = {.bits = 6, .group = 16, .super = 256, .zero = 32},
		[KT_W4] = {.bits = 4, .group = 96, .super = 96, .zero = 8},
		[KT_W8] = {.bits = 8, .group = 1 << 20, .super = 1 << 20, .zero = 128},
		[KT_MXFP4] = {.bits = 4, .group = 32, .super = 32, .table = e2m1},
		[KT_ZEROS] = {.bits = 4, .group = 96, .super = 96, .zero = -1},
		[KT_W4_BF16] = {.bits = 4, .group = 64, .super = 64, .zero = 8},
	};
	struct codes *c = p->w = xmemdup(&kinds[kind], sizeof *c);
	c->n = n;
	c->k = k;
	c->group = c->group < k ? c->group : k;
	c->super = c->super < k ? c->super : k;
	c->d_type = kind == KT_MXFP4 || kind == KT_W4_BF16 ? CODES_BF16 : CODES_F16;
	c->read = kt_codes_read;
	p->f = xmalloc((size_t)k * (size_t)n * sizeof *p->f);
	codes_floats(c, 0, n, p->f);
}

static inline struct kt_part kt_part(enum kern_dtype t, int k, int n, int group, bool bias)
{
	struct kt_part p = {.part = {.dtype = t, .n = n, .bias_dtype = KERN_F32}};
	if (t == KERN_AWQ4)
		kt_awq(&p, k, n, group);
	else if (t == KERN_CODES)
		kt_codes(&p, k, n, (enum kt_codes)group);
	else
		kt_dense(&p, t, k, n);
	if (bias)
		p.bias = kt_floats((size_t)n);
	p.part.w = p.w;
	p.part.qzeros = p.qzeros;
	p.part.scales = p.scales;
	p.part.bias = p.bias;
	return p;
}

/* Return the device's description of itself. */
static inline struct kern_info kt_info(void)
{
	struct kern_info in;
	struct kt t;
	kt_open_any(&t, 0, (struct kt_size){.threads = 1, .rows = 1});
	t.ops->info(t.dev, &in);
	kt_close(&t);
	return in;
}

/* Clamp and offset of gate and up in tests of KERN_GELU_SIGMOID. */
#define KT_LIMIT   0.75f
#define KT_UP_PLUS 1

static inline struct kern_linear *kt_load_act(struct kt *t, int k, int group, struct kt_part *const *parts,
					      int n, enum kern_act act)
{
	struct why why = {""};
	struct kern_linear *w = NULL;
	struct kern_linear_src src = {.name = "test", .k = k, .group = group, .act = act, .n_parts = n};
	if (act == KERN_GELU_SIGMOID) {
		src.limit = KT_LIMIT;
		src.up_plus = KT_UP_PLUS;
	}
	for (int i = 0; i < n; i++)
		src.parts[i] = parts[i]->part;
	int e = t->ops->linear_load(t->dev, &src, &w, &why);
	cr_assert(e == 0, "%s", why.text);
	return w;
}

static inline struct kern_linear *kt_load(struct kt *t, int k, int group, struct kt_part *const *parts, int n)
{
	return kt_load_act(t, k, group, parts, n, KERN_SILU);
}

static inline const char *kt_dtype_name(enum kern_dtype t)
{
	static const char *const names[] = {"f32", "f16", "bf16", "awq4", "codes"};
	return names[t];
}

/* ---- comparisons ---- */

/* Compare bit for bit; report where the largest difference is and its size. */
static inline void kt_same(const float *a, const float *b, size_t n, const char *what)
{
	if (!memcmp(a, b, n * sizeof *a))
		return;
	size_t worst = 0, count = 0;
	float most = -1;
	for (size_t i = 0; i < n; i++)
		if (memcmp(&a[i], &b[i], sizeof *a)) {
			count++;
			if (!(fabsf(a[i] - b[i]) <= most)) {
				most = fabsf(a[i] - b[i]);
				worst = i;
			}
		}
	cr_assert(false, "%s: %zu of %zu differ; worst at %zu: %.9g, expected %.9g (difference %g)", what,
		  count, n, worst, (double)a[worst], (double)b[worst], (double)most);
}

/* Check |a - ref| <= tol[i]; NaN fails. */
static inline void kt_near(const float *a, const double *ref, const double *tol, size_t n, const char *what)
{
	size_t worst = 0;
	double most = 0;
	for (size_t i = 0; i < n; i++) {
		double over = fabs((double)a[i] - ref[i]) / tol[i];
		if (!(over <= most)) {
			most = over;
			worst = i;
		}
	}
	cr_assert(most <= 1, "%s: worst of %zu at %zu: %.9g, expected %.9g (difference %g, allowed %g)", what,
		  n, worst, (double)a[worst], ref[worst], (double)a[worst] - ref[worst], tol[worst]);
}

#endif
