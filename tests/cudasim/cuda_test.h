/* cuda_test.h - the CUDA table under test: on the emulated device, or on a real one.
 * Everything goes through uploads and downloads; made-up values are rounded to the operand type
 * first, so that a reference in double sees what the device sees. */
#ifndef QUERN_TESTS_CUDASIM_CUDA_TEST_H
#define QUERN_TESTS_CUDASIM_CUDA_TEST_H

#include "tests/kernels/kern_test.h"

#ifdef QUERN_CUDASIM
#include "tests/cudasim/cudasim.h"
#else
static inline void cudasim_seed(uint64_t seed) /* a real device has its own order */
{
	(void)seed;
}
#endif

extern const struct kern_ops kern_cuda_ops;

struct ct {
	const struct kern_ops *ops;
	struct kern_dev *dev;
	struct kern_stream *s;
	bool bf16;
};

static inline void ct_open(struct ct *t, bool bf16, struct kt_size z)
{
	char why[256] = "";
	const int bs = z.block_size ? z.block_size : 16;
	struct kern_open_args a = {
		.index = -1,
		.compute = bf16 ? KERN_COMPUTE_BF16 : KERN_COMPUTE_F32,
		.max_rows = z.rows ? z.rows : 1,
		.max_seqs = z.seqs ? z.seqs : 1,
		.max_logits = z.logits ? z.logits : 1,
		.max_context = z.context ? z.context : 1,
	};
	a.max_blocks_per_seq = (a.max_context + bs - 1) / bs;
	*t = (struct ct){.ops = &kern_cuda_ops, .bf16 = bf16};
	cr_assert_eq(t->ops->open(&t->dev, &a, why, sizeof why), 0, "%s", why);
	t->s = t->ops->stream_new(t->dev);
	cr_assert(t->s != NULL);
}

static inline void ct_close(struct ct *t)
{
	t->ops->stream_free(t->s);
	t->ops->close(t->dev);
}

static inline const char *ct_name(const struct ct *t)
{
	return t->bf16 ? "bf16" : "f16";
}

/* ---- the operand type ---- */

static inline uint16_t ct_to_op(bool bf16, float f)
{
	uint32_t u;
	memcpy(&u, &f, 4);
	if (bf16)
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

static inline float ct_from_op(bool bf16, uint16_t h)
{
	return bf16 ? half_from_bf16(h) : half_from_f16(h);
}

static inline void ct_round(bool bf16, float *x, size_t n)
{
	for (size_t i = 0; i < n; i++)
		x[i] = ct_from_op(bf16, ct_to_op(bf16, x[i]));
}

/* ---- memory ---- */

static inline void *ct_new(struct ct *t, size_t bytes)
{
	void *p = t->ops->mem_new(t->dev, bytes);
	cr_assert(p != NULL);
	return p;
}

static inline void *ct_put(struct ct *t, const void *from, size_t bytes)
{
	void *p = ct_new(t, bytes);
	cr_assert_eq(t->ops->upload(t->s, p, from, bytes), 0);
	cr_assert_eq(t->ops->stream_sync(t->s), 0);
	return p;
}

static inline void ct_set_op(struct ct *t, void *dev, const float *from, size_t n)
{
	uint16_t *h = xmalloc(n * 2);
	for (size_t i = 0; i < n; i++)
		h[i] = ct_to_op(t->bf16, from[i]);
	cr_assert_eq(t->ops->upload(t->s, dev, h, n * 2), 0);
	cr_assert_eq(t->ops->stream_sync(t->s), 0);
	free(h);
}

static inline void *ct_put_op(struct ct *t, const float *from, size_t n)
{
	void *p = ct_new(t, n * 2);
	ct_set_op(t, p, from, n);
	return p;
}

static inline void ct_get(struct ct *t, void *to, const void *dev, size_t bytes)
{
	cr_assert_eq(t->ops->download(t->s, to, dev, bytes), 0);
	cr_assert_eq(t->ops->stream_sync(t->s), 0);
}

static inline void ct_get_op(struct ct *t, float *to, const void *dev, size_t n)
{
	uint16_t *h = xmalloc(n * 2);
	ct_get(t, h, dev, n * 2);
	for (size_t i = 0; i < n; i++)
		to[i] = ct_from_op(t->bf16, h[i]);
	free(h);
}

static inline void ct_del(struct ct *t, void *p, size_t bytes)
{
	t->ops->mem_free(t->dev, p, bytes);
}

#endif
