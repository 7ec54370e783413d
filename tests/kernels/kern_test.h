/* kern_test.h - what the kernel tests share: devices, made-up weights, comparisons.
 * Every test runs on every table and instruction set that is there; the first of them gives
 * the bits that the others must give too. */
#ifndef QUERN_TESTS_KERNELS_KERN_TEST_H
#define QUERN_TESTS_KERNELS_KERN_TEST_H

#include <criterion/criterion.h>
#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "kernels/cpu/half.h"
#include "kernels/kern.h"

static const char *const kt_isas[] = {"avx512", "avx2", "plain"};
enum { KT_ISAS = 3 };

/* ---- devices ---- */

struct kt {
	const struct kern_ops *ops;
	struct kern_dev *dev;
	struct kern_stream *s;
	const char *isa;
};

struct kt_size {
	int threads, rows, seqs, logits, context, block_size;
};

/* False where this machine lacks the instruction set. */
static inline bool kt_open(struct kt *t, const char *isa, struct kt_size z)
{
	char why[256] = "";
	struct kern_open_args a = {
		.index = -1,
		.compute = KERN_COMPUTE_F32,
		.n_threads = z.threads,
		.isa = isa,
		.max_rows = z.rows,
		.max_seqs = z.seqs ? z.seqs : 1,
		.max_logits = z.logits ? z.logits : 1,
		.max_context = z.context ? z.context : 1,
	};
	int bs = z.block_size ? z.block_size : 16;
	a.max_blocks_per_seq = (a.max_context + bs - 1) / bs;
	*t = (struct kt){.ops = &kern_cpu_ops, .isa = isa};
	int e = t->ops->open(&t->dev, &a, why, sizeof why);
	if (e) {
		cr_assert(strstr(why, isa), "%s", why);
		return false;
	}
	t->s = t->ops->stream_new(t->dev);
	return true;
}

static inline void kt_close(struct kt *t)
{
	t->ops->stream_free(t->s);
	t->ops->close(t->dev);
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

/* A part as stored, and the same as plain floats [n][k]. */
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

static inline struct kt_part kt_part(enum kern_dtype t, int k, int n, int group, bool bias)
{
	struct kt_part p = {.part = {.dtype = t, .n = n, .bias_dtype = KERN_F32}};
	if (t == KERN_AWQ4)
		kt_awq(&p, k, n, group);
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

static inline struct kern_linear *kt_load(struct kt *t, int k, int group, struct kt_part *const *parts, int n)
{
	char why[256] = "";
	struct kern_linear *w = NULL;
	struct kern_linear_src src = {.name = "test", .k = k, .group = group, .n_parts = n};
	for (int i = 0; i < n; i++)
		src.parts[i] = parts[i]->part;
	int e = t->ops->linear_load(t->dev, &src, &w, why, sizeof why);
	cr_assert(e == 0, "%s", why);
	return w;
}

static inline const char *kt_dtype_name(enum kern_dtype t)
{
	static const char *const names[] = {"f32", "f16", "bf16", "awq4"};
	return names[t];
}

/* ---- comparisons ---- */

/* Bit for bit; says where and by how much they differ most. */
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

/* |a - ref| <= tol[i]; NaN fails. */
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
