/* pack.c - weights as stored to weights as the inner kernels read them (isa.h draws both ends). */
#include "kernels/cpu/cpu.h"

#include <assert.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "kernels/half.h"

static size_t dtype_bytes(enum kern_dtype t)
{
	return t == KERN_F32 ? 4 : 2;
}

int cpu_part_tiles(const struct cpu_part *p, int b)
{
	int tiles = (p->n - b * BLOCK_N + LANES_N - 1) / LANES_N;
	return tiles >= 3 ? 4 : tiles;
}

static size_t awq_tile_bytes(int k, int group)
{
	size_t full = (size_t)(k / group), rest = (size_t)(k % group);
	size_t bytes = full * (AWQ_HEAD + ((size_t)group + 7) / 8 * 64);
	return bytes + (rest ? AWQ_HEAD + (rest + 7) / 8 * 64 : 0);
}

static size_t tile_bytes(enum kern_dtype dtype, int k, int group)
{
	return dtype == KERN_AWQ4 ? awq_tile_bytes(k, group) : (size_t)k * LANES_N * dtype_bytes(dtype);
}

static uint32_t get32(const void *base, size_t i)
{
	uint32_t v;
	memcpy(&v, (const unsigned char *)base + i * 4, 4);
	return v;
}

/* where column c of eight stands in a stored word */
static const int awq_nibble[8] = {0, 4, 1, 5, 2, 6, 3, 7};

static uint32_t awq_at(const void *words, size_t row, int n, int col)
{
	return get32(words, row * (size_t)(n / 8) + (size_t)col / 8) >> (4 * awq_nibble[col & 7]) & 15;
}

struct pack_job {
	const struct kern_linear_src *src;
	const struct kern_linear_part *from;
	const struct cpu_part *to;
	int group;
};

static void pack_dense_block(const struct pack_job *j, int b, unsigned char *out)
{
	const size_t es = dtype_bytes(j->to->dtype), k = (size_t)j->src->k;
	const size_t stride = (size_t)cpu_part_tiles(j->to, b) * LANES_N * es;
	int cols = j->to->n - b * BLOCK_N < BLOCK_N ? j->to->n - b * BLOCK_N : BLOCK_N;
	/* 64 k's at a time, so that the output lines are written while they are near. */
	for (size_t k0 = 0; k0 < k; k0 += 64) {
		size_t k1 = k0 + 64 < k ? k0 + 64 : k;
		for (int c = 0; c < cols; c++) {
			const unsigned char *in =
				(const unsigned char *)j->from->w + (size_t)(b * BLOCK_N + c) * k * es;
			for (size_t i = k0; i < k1; i++)
				memcpy(out + i * stride + (size_t)c * es, in + i * es, es);
		}
	}
}

static void pack_awq_tile(const struct pack_job *j, int g, int k0, int len, int col0, unsigned char *out)
{
	const int n = j->to->n, cols = n - col0 < LANES_N ? n - col0 : LANES_N;
	for (int c = 0; c < cols; c++) {
		memcpy(out + c * 2,
		       (const unsigned char *)j->from->scales +
			       ((size_t)g * (size_t)n + (size_t)(col0 + c)) * 2,
		       2);
		out[32 + c] = (unsigned char)awq_at(j->from->qzeros, (size_t)g, n, col0 + c);
	}
	for (int k = 0; k < len; k += 8) {
		uint32_t word[LANES_N] = {0};
		for (int i = 0; i < 8 && k + i < len; i++)
			for (int c = 0; c < cols; c++)
				word[c] |= awq_at(j->from->w, (size_t)(k0 + k + i), n, col0 + c) << (4 * i);
		memcpy(out + AWQ_HEAD + (size_t)k * 8, word, sizeof word);
	}
}

static void pack_awq_block(const struct pack_job *j, int b, unsigned char *out)
{
	const int k = j->src->k, group = j->group, tiles = cpu_part_tiles(j->to, b);
	for (int g = 0; g * group < k; g++) {
		int len = k - g * group < group ? k - g * group : group;
		for (int t = 0; t < tiles; t++) {
			int col0 = b * BLOCK_N + t * LANES_N;
			if (col0 < j->to->n)
				pack_awq_tile(j, g, g * group, len, col0, out);
			out += AWQ_HEAD + (size_t)(len + 7) / 8 * 64;
		}
	}
}

static void pack_task(void *arg, int task, int thread)
{
	const struct pack_job *j = arg;
	unsigned char *out = j->to->w + (size_t)task * j->to->block_bytes;
	(void)thread;
	if (j->to->dtype == KERN_AWQ4)
		pack_awq_block(j, task, out);
	else
		pack_dense_block(j, task, out);
}

static int check_part(const struct kern_linear_src *src, int i, char *why, size_t why_n)
{
	const struct kern_linear_part *p = &src->parts[i];
	if (p->n <= 0 || !p->w)
		return err_why(why, why_n, -EINVAL, "%s: part %d has %d outputs", src->name, i, p->n);
	if (p->dtype != KERN_F32 && p->dtype != KERN_F16 && p->dtype != KERN_BF16 && p->dtype != KERN_AWQ4)
		return err_why(why, why_n, -ENOTSUP,
			       "%s: weights of type %d are not known to the CPU kernels", src->name,
			       (int)p->dtype);
	if (p->dtype == KERN_AWQ4 && (p->n % 8 || src->group <= 0 || !p->qzeros || !p->scales))
		return err_why(why, why_n, -EINVAL,
			       "%s: AWQ needs outputs in eights, a group size, zeros and scales (%d outputs, "
			       "group %d)",
			       src->name, p->n, src->group);
	if (p->bias && p->bias_dtype != KERN_F32 && p->bias_dtype != KERN_F16 && p->bias_dtype != KERN_BF16)
		return err_why(why, why_n, -EINVAL, "%s: a bias of type %d", src->name, (int)p->bias_dtype);
	return 0;
}

/* Sizes and memory of a part; the weights follow. */
static int part_init(struct cpu_part *q, const struct kern_linear *w, const struct kern_linear_src *src,
		     int i, char *why, size_t why_n)
{
	const struct kern_linear_part *p = &src->parts[i];
	*q = (struct cpu_part){.dtype = p->dtype, .n = p->n, .n0 = w->n};
	q->n_blocks = (p->n + BLOCK_N - 1) / BLOCK_N;
	size_t tile = tile_bytes(p->dtype, w->k, w->group);
	q->block_bytes = tile * BLOCK_TILES;
	size_t weights = q->block_bytes * (size_t)(q->n_blocks - 1) +
			 tile * (size_t)cpu_part_tiles(q, q->n_blocks - 1);
	weights = (weights + 63) & ~(size_t)63;
	size_t bias = p->bias ? ((size_t)p->n + 15) / 16 * 64 : 0;
	q->bytes = weights + bias;
	q->w = alloc_big(q->bytes);
	if (!q->w)
		return err_why(why, why_n, -ENOMEM, "%s: no memory for %zu bytes of weights", src->name,
			       q->bytes);
	if (p->bias) {
		q->bias = (float *)(void *)(q->w + weights);
		for (int c = 0; c < p->n; c++)
			q->bias[c] = half_load(p->bias, p->bias_dtype, (size_t)c);
	}
	return 0;
}

int cpu_pack(struct kern_linear *w, const struct kern_linear_src *src, char *why, size_t why_n)
{
	if (src->k <= 0 || src->n_parts < 1 || src->n_parts > 3)
		return err_why(why, why_n, -EINVAL, "%s: %d inputs, %d parts", src->name, src->k,
			       src->n_parts);
	w->k = src->k;
	w->group = src->group > 0 && src->group < src->k ? src->group : src->k;
	for (int i = 0; i < src->n_parts; i++) {
		int e = check_part(src, i, why, why_n);
		if (e)
			return e;
	}
	for (int i = 0; i < src->n_parts; i++) {
		struct cpu_part *q = &w->parts[i];
		int e = part_init(q, w, src, i, why, why_n);
		if (e)
			return e;
		w->n_parts++;
		w->n += q->n;
		struct pack_job j = {.src = src, .from = &src->parts[i], .to = q, .group = w->group};
		cpu_run(w->dev, q->n_blocks, (int64_t)q->n * w->k, pack_task, &j);
	}
	return 0;
}

void cpu_unpack_row(const struct kern_linear *w, int id, float *out)
{
	const struct cpu_part *p = &w->parts[0];
	assert(p->dtype != KERN_AWQ4 && id >= 0 && id < p->n);
	const int b = id / BLOCK_N;
	const unsigned char *in = p->w + (size_t)b * p->block_bytes;
	const size_t es = dtype_bytes(p->dtype), stride = (size_t)cpu_part_tiles(p, b) * LANES_N * es;
	in += (size_t)(id % BLOCK_N) * es;
	for (int k = 0; k < w->k; k++, in += stride)
		out[k] = half_load(in, p->dtype, 0);
}
