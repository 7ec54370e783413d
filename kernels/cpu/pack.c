/* pack.c - weights as stored to weights as the inner kernels read them (isa.h draws both ends). */
#include "kernels/cpu/cpu.h"

#include <assert.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "kernels/codes.h"
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

struct pack_job {
	const struct kern_linear_src *src;
	const struct kern_linear_part *from;
	const struct cpu_part *to;
	const struct kern_codes *codes; /* of a quantized part */
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

/* One group of one tile: its head, and its lines, which lie step bytes apart. */
static void pack_codes_tile(const struct kern_codes *c, const struct kern_code_rows *r, int g, int row0,
			    int rows, unsigned char *head, unsigned char *lines, size_t step)
{
	const int groups = codes_groups(c), k0 = g * c->group;
	const int len = c->k - k0 < c->group ? c->k - k0 : c->group;
	for (int n = 0; n < rows; n++) {
		const size_t at = (size_t)(row0 + n) * (size_t)groups + (size_t)g;
		uint16_t scale = 0;
		const bool exact = half_to_f16(r->d[at], &scale);
		assert(exact && r->scale[at] == 1 && r->offset[at] >= 0 && r->offset[at] < 16);
		memcpy(head + n * 2, &scale, 2);
		head[32 + n] = (unsigned char)r->offset[at];
	}
	for (int k = 0; k < len; k += 8, lines += step)
		for (int n = 0; n < rows; n++) {
			const uint8_t *code = r->code + (size_t)(row0 + n) * (size_t)c->k + k0 + k;
			uint32_t word = 0;
			for (int i = 0; i < 8 && k + i < len; i++)
				word |= (uint32_t)(code[i] & 15) << (i < 4 ? 8 * i : 8 * (i - 4) + 4);
			memcpy(lines + n * 4, &word, 4);
		}
}

static void pack_codes_block(const struct pack_job *j, int b, unsigned char *out)
{
	const struct kern_codes *c = j->codes;
	const int tiles = cpu_part_tiles(j->to, b), n0 = b * BLOCK_N;
	const int n = c->n - n0 < BLOCK_N ? c->n - n0 : BLOCK_N;
	const size_t step = (size_t)tiles * 64;
	struct kern_code_rows r;
	codes_rows_new(&r, c, n);
	c->read(c, n0, n0 + n, &r);
	for (int g = 0; g < codes_groups(c); g++) {
		int len = c->k - g * c->group < c->group ? c->k - g * c->group : c->group;
		for (int t = 0; t * LANES_N < n; t++) {
			int rows = n - t * LANES_N < LANES_N ? n - t * LANES_N : LANES_N;
			pack_codes_tile(c, &r, g, t * LANES_N, rows, out + t * AWQ_HEAD,
					out + tiles * AWQ_HEAD + t * 64, step);
		}
		out += (size_t)tiles * AWQ_HEAD + (size_t)(len + 7) / 8 * step;
	}
	codes_rows_free(&r);
}

static void pack_task(void *arg, int task, int thread)
{
	const struct pack_job *j = arg;
	unsigned char *out = j->to->w + (size_t)task * j->to->block_bytes;
	(void)thread;
	if (j->to->dtype == KERN_AWQ4)
		pack_codes_block(j, task, out);
	else
		pack_dense_block(j, task, out);
}

static int check_codes(const struct kern_linear_src *src, const struct kern_codes *c, char *why, size_t why_n)
{
	if (c->k != src->k || c->n <= 0 || c->group <= 0 || c->super % c->group)
		return err_why(why, why_n, -EINVAL, "%s: codes of %d x %d in groups of %d", src->name, c->n,
			       c->k, c->group);
	if (c->bits > 4 || c->minimums || c->table || c->perm || c->super != c->group ||
	    c->d_type != KERN_F16)
		return err_why(why, why_n, -ENOTSUP,
			       "%s: the CPU takes codes of 4 bits with zeros and one F16 scale per group",
			       src->name);
	return 0;
}

static int check_part(const struct kern_linear_src *src, int i, char *why, size_t why_n)
{
	const struct kern_linear_part *p = &src->parts[i];
	if (p->n <= 0 || !p->w)
		return err_why(why, why_n, -EINVAL, "%s: part %d has %d outputs", src->name, i, p->n);
	if (p->dtype == KERN_CODES)
		return check_codes(src, p->w, why, why_n);
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
	*q = (struct cpu_part){.dtype = p->dtype == KERN_CODES ? KERN_AWQ4 : p->dtype, .n = p->n, .n0 = w->n};
	q->n_blocks = (p->n + BLOCK_N - 1) / BLOCK_N;
	size_t tile = tile_bytes(q->dtype, w->k, w->group);
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
		struct kern_codes awq;
		struct pack_job j = {.src = src, .from = &src->parts[i], .to = q, .codes = src->parts[i].w};
		if (src->parts[i].dtype == KERN_AWQ4) {
			codes_awq(&awq, &src->parts[i], w->k, w->group);
			j.codes = &awq;
		}
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
