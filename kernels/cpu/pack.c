/* pack.c - packs stored weights into the layout that the inner kernels read (drawn in isa.h). */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/nodes.h"
#include "kernels/cpu/pack.h"
#include "kernels/cpu/stored.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>
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

static size_t codes_tile_bytes(const struct cpu_codes *c, int k)
{
	const size_t whole = (size_t)(k / c->group) * cpu_pack_group_bytes(c, c->group);
	const size_t supers = c->super ? (size_t)((k + c->super - 1) / c->super) : 0;
	return supers * (size_t)c->super_head + whole +
	       (k % c->group ? cpu_pack_group_bytes(c, k % c->group) : 0);
}

static size_t tile_bytes(const struct cpu_part *p, int k)
{
	if (p->bf16)
		return cpu_bf16_tile_bytes(k, p->codes.bits ? p->codes.group : k, p->codes.bits);
	return p->codes.bits ? codes_tile_bytes(&p->codes, k) : (size_t)k * LANES_N * dtype_bytes(p->dtype);
}

struct pack_job {
	const struct kern_linear_src *src;
	const struct kern_linear_part *from;
	const struct cpu_part *to;
	const struct codes *codes; /* the codes of a quantized part, else NULL */
	const struct cpu_bf16 *bf16;
	const struct cpu_isa *isa;
	atomic_int *refused; /* 1 + an output with a scale or zero that the layout cannot hold; 0: none */
};

/* Return the first row of block b in floats, for packing. *tmp: rows made from codes, to be freed by the
 * caller. */
static const unsigned char *block_rows(const struct pack_job *j, int b, enum kern_dtype *dtype, float **tmp)
{
	const int n0 = b * BLOCK_N, n = j->to->n - n0 < BLOCK_N ? j->to->n - n0 : BLOCK_N;
	const size_t k = (size_t)j->src->k;
	*tmp = NULL;
	*dtype = j->from->dtype;
	if (!j->codes)
		return (const unsigned char *)j->from->w + (size_t)n0 * k * dtype_bytes(*dtype);
	*dtype = KERN_F32;
	*tmp = xmalloc((size_t)n * k * sizeof **tmp);
	codes_floats(j->codes, n0, n0 + n, *tmp);
	return (const unsigned char *)*tmp;
}

/* Return the largest allowed zero of a group.  Mode bf16 looks up a 4-bit code minus its zero in a table of
 * -16 to 15. */
static int zero_max(bool bf16, int bits)
{
	return bf16 && bits == 4 ? 16 : 255;
}

static void pack_rows_new(struct pack_rows *r, const struct cpu_part *p, const struct codes *c, int n)
{
	const size_t rows = (size_t)n, supers = (size_t)codes_supers(c), groups = (size_t)codes_groups(c);
	codes_rows_new(&r->r, c, n);
	r->d = p->codes.heads == HEADS_F32
		       ? NULL
		       : xmalloc(rows * (p->codes.heads == HEADS_SUPER ? supers : groups) * 2);
	r->dmin = r->d && c->minimums ? xmalloc(rows * supers * 2) : NULL;
}

static void pack_rows_free(struct pack_rows *r)
{
	codes_rows_free(&r->r);
	free(r->d);
	free(r->dmin);
}

/* Return true if n scales, or minimums, are within a head's range. */
static bool within(const int16_t *scale, size_t n, int least, int most)
{
	int16_t low = 0, high = 0;
	for (size_t i = 0; i < n; i++) {
		low = scale[i] < low ? scale[i] : low;
		high = scale[i] > high ? scale[i] : high;
	}
	return low >= least && high <= most;
}

/* Convert d and dmin of an output's super-groups to F16; true if that is exact, and its groups' scales (and
 * minimums) fit the heads. */
static bool supers_fit(const struct codes *c, const struct pack_rows *p, size_t row)
{
	const struct code_rows *r = &p->r;
	const size_t supers = (size_t)codes_supers(c), groups = (size_t)codes_groups(c);
	bool ok = within(r->scale + row * groups, groups, -128, 127) &&
		  (!c->minimums || within(r->offset + row * groups, groups, 0, 255));
	for (size_t s = row * supers; ok && s < (row + 1) * supers; s++)
		ok = half_to_f16(r->d[s], &p->d[s]) && (!c->minimums || half_to_f16(r->dmin[s], &p->dmin[s]));
	return ok;
}

static bool group_fits(const struct cpu_part *p, const struct codes *c, const struct pack_rows *rows,
		       size_t s, size_t g)
{
	const struct code_rows *r = &rows->r;
	const int zero = c->zero >= 0 ? c->zero : r->offset[g];
	return half_to_f16(r->d[s] * (float)r->scale[g], &rows->d[g]) && zero >= 0 &&
	       zero <= zero_max(p->bf16, p->codes.bits);
}

/* Make the F16 values of n outputs.  Returns the first output with a scale or zero that the heads cannot
 * hold, or -1. */
static int make_halves(const struct cpu_part *p, const struct codes *c, const struct pack_rows *r, int n)
{
	const int groups = codes_groups(c), supers = codes_supers(c), per = c->super / c->group;
	if (p->codes.heads == HEADS_F32)
		return -1;
	for (int row = 0; row < n; row++) {
		bool ok = true;
		if (p->codes.heads == HEADS_SUPER)
			ok = supers_fit(c, r, (size_t)row);
		else
			for (int g = 0; g < groups; g++)
				ok &= group_fits(p, c, r, (size_t)(row * supers + g / per),
						 (size_t)(row * groups + g));
		if (!ok)
			return row;
	}
	return -1;
}

static void pack_dense_block(const struct pack_job *j, int b, unsigned char *out)
{
	enum kern_dtype dtype;
	float *tmp;
	const unsigned char *rows = block_rows(j, b, &dtype, &tmp);
	const size_t es = dtype_bytes(dtype), k = (size_t)j->src->k;
	const size_t stride = (size_t)cpu_part_tiles(j->to, b) * LANES_N * es;
	int cols = j->to->n - b * BLOCK_N < BLOCK_N ? j->to->n - b * BLOCK_N : BLOCK_N;
	/* 64 k's at a time, so that the output lines stay in a near cache while they are written. */
	for (size_t k0 = 0; k0 < k; k0 += 64) {
		const size_t k1 = k0 + 64 < k ? k0 + 64 : k;
		cpu_pack_transpose(rows + k0 * es, k * es, cols, (int)(k1 - k0), (int)es, out + k0 * stride,
				   stride);
	}
	free(tmp);
}

static void pack_codes_block(const struct pack_job *j, int b, unsigned char *out)
{
	const struct codes *c = j->codes;
	const struct cpu_part *p = j->to;
	const int tiles = cpu_part_tiles(p, b), n0 = b * BLOCK_N;
	const int n = c->n - n0 < BLOCK_N ? c->n - n0 : BLOCK_N;
	struct pack_rows r;
	pack_rows_new(&r, p, c, n);
	c->read(c, n0, n0 + n, &r.r);
	const int refused = make_halves(p, c, &r, n);
	if (refused >= 0)
		atomic_store(j->refused, n0 + refused + 1);
	else if (p->bf16)
		cpu_bf16_pack_codes(j->bf16, out, c, &r, p->codes.heads == HEADS_F32, n, tiles);
	else
		cpu_pack_codes(&p->codes, c, &r, n, tiles, out);
	pack_rows_free(&r);
}

static void pack_bf16_block(const struct pack_job *j, int b, unsigned char *out)
{
	const int n0 = b * BLOCK_N, n = j->to->n - n0 < BLOCK_N ? j->to->n - n0 : BLOCK_N;
	const int tiles = cpu_part_tiles(j->to, b), k = j->src->k;
	if (!j->codes) {
		const enum kern_dtype dtype = j->from->dtype;
		cpu_bf16_pack_floats(j->bf16, out,
				     (const unsigned char *)j->from->w +
					     (size_t)n0 * (size_t)k * dtype_bytes(dtype),
				     dtype, n, k, tiles);
		return;
	}
	struct code_rows r;
	codes_rows_new(&r, j->codes, n);
	j->codes->read(j->codes, n0, n0 + n, &r);
	cpu_bf16_pack_values(j->bf16, out, j->codes, &r, j->isa->code_floats, n, tiles);
	codes_rows_free(&r);
}

static void pack_task(void *arg, int task, int thread)
{
	const struct pack_job *j = arg;
	unsigned char *out = j->to->w + (size_t)task * j->to->block_bytes;
	(void)thread;
	if (j->to->stored.read)
		cpu_stored_copy(j->to, j->codes, task);
	else if (j->to->codes.bits)
		pack_codes_block(j, task, out);
	else if (j->to->bf16)
		pack_bf16_block(j, task, out);
	else
		pack_dense_block(j, task, out);
}

/* Return true if codes fit the layout of AWQ, which F32 kernels read too. */
static bool is_awq_like(const struct codes *c)
{
	return c->bits <= 4 && !c->minimums && c->super == c->group && c->d_type == CODES_F16;
}

static int check_codes(const char *name, const struct codes *c, int n, int k, struct why *why)
{
	if (c->k != k || c->n != n || c->group <= 0 || c->super < c->group || c->super % c->group ||
	    c->bits < 2 || c->bits > 8 || c->zero > 255)
		return err_why(why, -EINVAL, "%s: codes of %d bits, %d x %d in groups of %d", name, c->bits,
			       c->n, c->k, c->group);
	return 0;
}

/* Return true if codes are E4M3 floats: sign, 4 bits of exponent with a bias of 7, 3 bits of mantissa; NaN is
 * all ones (arXiv:2209.05433). */
static bool is_e4m3(const struct codes *c)
{
	if (!c->table || c->bits != 8 || c->zero != 0 || c->minimums)
		return false;
	for (int i = 0; i < 256; i++) {
		const int e = i >> 3 & 15, m = i & 7;
		const float size = e ? (float)(8 + m) * (float)(1 << e) / 1024 : (float)m / 512;
		if ((i & 127) != 127 && c->table[i] != (i < 128 ? size : -size))
			return false;
	}
	return true;
}

/* Return true if the mode's kernels read these codes.  Others become floats. */
static bool takes_codes(const struct kern_dev *d, const struct codes *c)
{
	const bool whole = c->group >= c->k;
	if (!c->perm && is_e4m3(c)) /* kept where they would become F32 */
		return d->args.compute == KERN_COMPUTE_F32 || d->args.compute == KERN_COMPUTE_INT16;
	if (c->table || c->perm || (!is_awq_like(c) && !c->minimums && c->zero < 0))
		return false;
	if (d->bf16 && c->zero > zero_max(true, c->bits <= 4 ? 4 : 8))
		return false;
	if (d->bf16)
		return !c->minimums && (whole || (c->group % BF16_STEP == 0 && c->group <= BF16_GROUP_MAX));
	return !cpu_is_integer(d) || whole || c->group % ACT_SUM == 0;
}

/* ---- codes that kernels cannot read, converted to codes that they can ---- */

/* Convert codes as read.  A table of whole numbers: code = value + 128.  Zeros per group that the layout of
 * AWQ cannot hold become minimums: s (q - z) = s q - s z. */
static void read_plain(const struct codes *c, int n0, int n1, const struct code_rows *out)
{
	const struct codes *from = c->from[0];
	const size_t rows = (size_t)(n1 - n0), groups = rows * (size_t)codes_groups(c);
	from->read(from, n0, n1, out);
	if (from->table) {
		const struct cpu_isa *isa = c->from[1];
		uint8_t table[16];
		for (int i = 0; i < 16; i++)
			table[i] = (uint8_t)(128 + (int)from->table[i]);
		isa->map_codes(out->code, rows * (size_t)c->k, table);
	}
	for (size_t i = 0; i < groups; i++)
		out->offset[i] = from->table ? 128 : (int16_t)(out->scale[i] * out->offset[i]);
	if (c->minimums)
		memcpy(out->dmin, out->d, rows * (size_t)codes_supers(c) * sizeof *out->d);
}

static bool is_whole(const float *table)
{
	for (int i = 0; i < 16; i++)
		if (!(table[i] >= -128 && table[i] <= 127) || table[i] != (float)(int)table[i])
			return false;
	return true;
}

static void make_plain(const struct kern_dev *d, struct codes *c, const struct codes *from)
{
	*c = *from;
	if (from->table && from->bits == 4 && from->zero == 0 && !from->minimums && is_whole(from->table)) {
		c->bits = 8;
		c->zero = 128;
		c->table = NULL;
	} else if (!from->table && !from->minimums && from->zero < 0 && !is_awq_like(from)) {
		c->minimums = true;
	} else {
		return;
	}
	c->read = read_plain;
	c->from[0] = from;
	c->from[1] = d->isa;
}

/* ---- permuted inputs ---- */

static void read_as_ordered(const struct codes *c, int n0, int n1, const struct code_rows *out)
{
	const struct codes *from = c->from[0];
	from->read(from, n0, n1, out);
}

/* Return the codes without their permutation, for rows in the order of from->perm. */
static void make_ordered(struct codes *c, const struct codes *from)
{
	*c = *from;
	c->perm = NULL;
	c->read = read_as_ordered;
	c->from[0] = from;
}

/* Return true if all parts are codes that the mode's kernels read, with one order of inputs. */
static bool has_order(const struct kern_linear *w, const struct kern_linear_src *src)
{
	const struct codes *first = src->parts[0].w;
	if (!w->may_order)
		return false;
	for (int i = 0; i < src->n_parts; i++) {
		const struct codes *c = src->parts[i].w;
		struct codes ordered, plain;
		if (src->parts[i].dtype != KERN_CODES || !c->perm || c->k != src->k ||
		    memcmp(c->perm, first->perm, (size_t)src->k * sizeof *c->perm))
			return false;
		make_ordered(&ordered, c);
		make_plain(w->dev, &plain, &ordered);
		if (!takes_codes(w->dev, &plain))
			return false;
	}
	return true;
}

/* ---- load ---- */

/* Return true if perm is a permutation. */
static bool is_order(const int32_t *perm, int k)
{
	bool *has = xcalloc((size_t)k, sizeof *has), ok = true;
	for (int i = 0; ok && i < k; i++) {
		ok = perm[i] >= 0 && perm[i] < k && !has[perm[i]];
		if (ok)
			has[perm[i]] = true;
	}
	free(has);
	return ok;
}

static int check_part(const struct kern_linear_src *src, int i, struct why *why)
{
	const struct kern_linear_part *p = &src->parts[i];
	if (p->n <= 0 || !p->w)
		return err_why(why, -EINVAL, "%s: part %d has %d outputs", src->name, i, p->n);
	if (p->dtype != KERN_F32 && p->dtype != KERN_F16 && p->dtype != KERN_BF16 && p->dtype != KERN_AWQ4 &&
	    p->dtype != KERN_CODES)
		return err_why(why, -ENOTSUP, "%s: weights of type %d are not known to the CPU kernels",
			       src->name, (int)p->dtype);
	if (p->dtype == KERN_AWQ4 && (p->n % 8 || src->group <= 0 || !p->qzeros || !p->scales))
		return err_why(why, -EINVAL,
			       "%s: AWQ needs outputs in eights, a group size, zeros and scales (%d outputs, "
			       "group %d)",
			       src->name, p->n, src->group);
	const struct codes *c = p->w;
	if (p->dtype == KERN_CODES && c->perm && (c->k != src->k || !is_order(c->perm, c->k)))
		return err_why(why, -EINVAL, "%s: codes with an order that is not one of %d inputs",
			       src->name, src->k);
	if (p->bias && p->bias_dtype != KERN_F32 && p->bias_dtype != KERN_F16 && p->bias_dtype != KERN_BF16)
		return err_why(why, -EINVAL, "%s: a bias of type %d", src->name, (int)p->bias_dtype);
	return 0;
}

/* Return true if a part in floats is stored in INT8. */
static bool to_int8(const struct kern_linear *w, const struct kern_linear_src *src)
{
	const struct kern_open_args *a = &w->dev->args;
	const bool int8 = a->compute == KERN_COMPUTE_INT8;
	if (src->head)
		return a->head == KERN_HEAD_INT8 || (int8 && a->head == KERN_HEAD_MODE);
	return int8 && !w->as_stored && !w->exact;
}

/* Decide how a part is stored: its codes in *c, or c->read NULL for floats.  ordered: memory that c
 * borrows. */
static int part_codes(struct codes *c, struct codes *ordered, const struct kern_linear *w,
		      const struct kern_linear_src *src, int i, struct why *why)
{
	const struct kern_linear_part *p = &src->parts[i];
	*c = (struct codes){0};
	if (p->dtype != KERN_CODES && p->dtype != KERN_AWQ4) {
		if (to_int8(w, src))
			codes_dense(c, p, src->k);
		return 0;
	}
	if (p->dtype == KERN_CODES) {
		if (w->order)
			make_ordered(ordered, p->w);
		make_plain(w->dev, c, w->order ? ordered : p->w);
		if (!w->as_stored && !takes_codes(w->dev, c) &&
		    to_int8(w, src)) /* quantized like floats in this mode */
			codes_again(c, p->w);
	} else {
		codes_awq(c, p, src->k, src->group < src->k ? src->group : src->k);
	}
	return check_codes(src->name, c, p->n, src->k, why);
}

static enum cpu_heads heads_of(const struct codes *c, bool dots, bool bf16)
{
	if (is_awq_like(c) && (!dots || c->zero < 0))
		return HEADS_AWQ;
	if (c->d_type != CODES_F16 || bf16 || (c->minimums && c->super == c->group))
		return HEADS_F32;
	return c->super == c->group ? HEADS_F16 : HEADS_SUPER;
}

static struct cpu_codes codes_layout(const struct codes *c, bool dots, bool bf16)
{
	static const int heads[][2] = {[HEADS_AWQ] = {AWQ_HEAD, AWQ_HEAD},
				       [HEADS_F16] = {32, 32},
				       [HEADS_F32] = {64, 128},
				       [HEADS_SUPER] = {16, 32}};
	const enum cpu_heads h = heads_of(c, dots, bf16);
	const bool six = (c->bits == 5 || c->bits == 6) && !bf16 && c->group % 16 == 0;
	return (struct cpu_codes){
		.group = c->group,
		.super = h == HEADS_SUPER ? c->super : 0,
		.bits = c->bits <= 4 ? 4
			: six        ? 6
				     : 8,
		.heads = h,
		.head = heads[h][c->minimums],
		.super_head = h == HEADS_SUPER ? c->minimums ? 64 : 32 : 0,
		.minimums = c->minimums,
		.e4m3 = c->table != NULL,
		.zero = c->minimums ? 0 : c->zero,
	};
}

/* Set the sizes of a part and allocate it; weights are packed later. */
static int part_init(struct cpu_part *q, const struct kern_linear *w, const struct kern_linear_src *src,
		     int i, const struct codes *c, struct why *why)
{
	const struct kern_linear_part *p = &src->parts[i];
	*q = (struct cpu_part){.dtype = p->dtype, .n = p->n, .n0 = w->n};
	const bool quantized = p->dtype == KERN_AWQ4 || p->dtype == KERN_CODES;
	const bool for_rows = w->as_stored && p->dtype == KERN_CODES;
	const bool to_dots = cpu_is_integer(w->dev) || codes_are_made(c) || for_rows;
	q->bf16 = w->dev->bf16 && !to_dots && !w->exact;
	if (c->read && quantized && !for_rows && !takes_codes(w->dev, c)) {
		q->dtype = KERN_F32;
	} else if (c->read) {
		q->dtype = is_awq_like(c) ? KERN_AWQ4 : KERN_CODES;
		q->dots = to_dots && !c->table; /* E4M3 is multiplied as floats */
		q->codes = codes_layout(c, q->dots, q->bf16);
	}
	q->n_blocks = (p->n + BLOCK_N - 1) / BLOCK_N;
	q->tile_bytes = tile_bytes(q, w->k);
	q->block_bytes = q->tile_bytes * BLOCK_TILES;
	size_t weights = q->block_bytes * (size_t)(q->n_blocks - 1) +
			 q->tile_bytes * (size_t)cpu_part_tiles(q, q->n_blocks - 1);
	if (c->read && cpu_stored_takes(q, c)) {
		q->block_bytes = codes_row_bytes(c) * BLOCK_N;
		weights = codes_row_bytes(c) * (size_t)p->n;
	}
	weights = (weights + 63) & ~(size_t)63;
	size_t bias = p->bias ? ((size_t)p->n + 15) / 16 * 64 : 0;
	q->bytes = weights + bias;
	q->w = alloc_adjacent(q->bytes);
	if (!q->w)
		return err_why(why, -ENOMEM, "%s: no memory for %zu bytes of weights", src->name, q->bytes);
	if (c->read && cpu_stored_takes(q, c))
		codes_copied(&q->stored, c, q->w, p->n);
	if (p->bias) {
		q->bias = (float *)(void *)(q->w + weights);
		for (int n = 0; n < p->n; n++)
			q->bias[n] = half_load(p->bias, p->bias_dtype, (size_t)n);
	}
	return 0;
}

/* Place blocks on the NUMA nodes of the threads that have their tasks (linear.c).  The blocks of a layer's
 * parts follow one another; those of gate and up share tasks. */
static void place_part(const struct kern_linear *w, const struct kern_linear_src *src, int part)
{
	const struct cpu_part *q = &w->parts[part];
	int first = 0, all = 0;
	for (int i = 0; i < src->n_parts; i++) {
		const int n = (src->parts[i].n + BLOCK_N - 1) / BLOCK_N;
		first += i < part ? n : 0;
		all += n;
	}
	if (src->n_parts == 2) {
		first = 0;
		all = q->n_blocks;
	}
	cpu_nodes_place(w->dev->nodes, q->w, q->bytes, q->block_bytes, first, q->n_blocks, all);
}

static int refuse(const struct kern_linear_src *src, int part, int row, const struct cpu_part *q,
		  struct why *why)
{
	if (q->codes.heads == HEADS_SUPER)
		return err_why(why, -EINVAL,
			       "%s: part %d, output %d: the scale of a super-group is no F16, or one of its "
			       "groups is not within -128 and 127, or a minimum not within 0 and 255",
			       src->name, part, row);
	return err_why(why, -EINVAL,
		       "%s: part %d, output %d: a scale is no F16, or a zero is not within 0 and %d, the "
		       "most for codes of %d bits in this compute mode",
		       src->name, part, row, zero_max(q->bf16, q->codes.bits), q->codes.bits);
}

int cpu_pack(struct kern_linear *w, const struct kern_linear_src *src, struct why *why)
{
	if (src->k <= 0 || src->n_parts < 1 || src->n_parts > 3)
		return err_why(why, -EINVAL, "%s: %d inputs, %d parts", src->name, src->k, src->n_parts);
	w->k = src->k;
	for (int i = 0; i < src->n_parts; i++) {
		int e = check_part(src, i, why);
		if (e)
			return e;
	}
	if (has_order(w, src)) {
		const struct codes *first = src->parts[0].w;
		w->order = xmalloc((size_t)src->k * sizeof *w->order);
		memcpy(w->order, first->perm, (size_t)src->k * sizeof *w->order);
	}
	for (int i = 0; i < src->n_parts; i++) {
		struct cpu_part *q = &w->parts[i];
		struct codes c, ordered;
		int e = part_codes(&c, &ordered, w, src, i, why);
		if (!e)
			e = part_init(q, w, src, i, &c, why);
		if (e)
			return e;
		place_part(w, src, i);
		w->n_parts++;
		w->n += q->n;
		atomic_int refused = 0;
		struct pack_job j = {.src = src,
				     .from = &src->parts[i],
				     .to = q,
				     .codes = c.read ? &c : NULL,
				     .bf16 = w->dev->bf16,
				     .isa = w->dev->isa,
				     .refused = &refused};
		cpu_run(w->dev, q->n_blocks, (int64_t)q->n * w->k, pack_task, &j);
		if (refused)
			return refuse(src, i, refused - 1, q, why);
	}
	return 0;
}

/* ---- rows ---- */

bool cpu_codes_give_rows(const struct kern_dev *d, const struct codes *c)
{
	struct codes plain;
	make_plain(d, &plain, c);
	return !plain.table && !plain.perm && (c->minimums || c->zero >= 0);
}

bool cpu_head_gives_rows(const struct kern_dev *d, const struct codes *c)
{
	struct codes plain;
	make_plain(d, &plain, c);
	return !d->bf16 && cpu_codes_give_rows(d, c) && takes_codes(d, &plain);
}

/* Return the code of input i of a group, in one lane of its lines. */
static int code_at(int bits, const unsigned char *line, size_t step, int i)
{
	const int round = i / 16 * 3, r = i % 16;
	if (bits == 8)
		return line[(size_t)(i / 4) * step + (size_t)(i % 4)];
	if (bits == 4)
		return line[(size_t)(i / 8) * step + (size_t)(i % 4)] >> i % 8 / 4 * 4 & 15;
	const int low = line[(size_t)(round + r / 8) * step + (size_t)(r % 4)] >> r % 8 / 4 * 4 & 15;
	return low | (line[(size_t)(round + 2) * step + (size_t)(r % 4)] >> r / 4 * 2 & 3) << 4;
}

/* Values in the heads for a group of one output. */
struct group_head {
	float d, dmin; /* floats of the super-group */
	float scale, min;
	int zero;
};

static void read_head(const struct cpu_codes *c, const unsigned char *head, size_t lane, struct group_head *h)
{
	h->zero = c->zero;
	h->min = 0;
	if (c->heads == HEADS_SUPER) {
		h->scale = h->d * (float)(int8_t)head[lane];
		if (c->minimums)
			h->min = h->dmin * (float)head[16 + lane];
	} else if (c->heads == HEADS_F32) {
		h->scale = half_load(head, KERN_F32, lane);
		if (c->minimums)
			h->min = half_load(head + 64, KERN_F32, lane);
	} else {
		h->scale = half_load(head, KERN_F16, lane);
		if (c->heads == HEADS_AWQ)
			h->zero = head[32 + lane];
	}
}

/* Convert the codes of one output to floats, as codes_floats() does. */
static void unpack_codes(const struct cpu_codes *c, const unsigned char *in, int tiles, int n, int k,
			 float *out)
{
	const size_t tile = (size_t)(n / LANES_N), lane = (size_t)(n % LANES_N), step = (size_t)tiles * 64;
	struct group_head h = {0};
	for (int k0 = 0; k0 < k; k0 += c->group) {
		const int len = k - k0 < c->group ? k - k0 : c->group;
		if (c->super && k0 % c->super == 0) {
			const unsigned char *super = in + tile * (size_t)c->super_head;
			h.d = half_load(super, KERN_F16, lane);
			h.dmin = c->minimums ? half_load(super + 32, KERN_F16, lane) : 0;
			in += tiles * c->super_head;
		}
		read_head(c, in + tile * (size_t)c->head, lane, &h);
		const unsigned char *line = in + tiles * c->head + tile * 64 + lane * 4;
		for (int i = 0; i < len; i++) {
			const float w = h.scale * (float)(code_at(c->bits, line, step, i) - h.zero);
			out[k0 + i] = c->minimums ? w - h.min : w;
		}
		in += (size_t)tiles * cpu_pack_group_bytes(c, len);
	}
}

void cpu_unpack_row(const struct kern_linear *w, int id, float *out)
{
	const struct cpu_part *p = &w->parts[0];
	assert(id >= 0 && id < p->n);
	if (p->stored.read) {
		cpu_stored_row(p, id, out);
		return;
	}
	const int b = id / BLOCK_N;
	const unsigned char *in = p->w + (size_t)b * p->block_bytes;
	if (p->codes.bits) {
		assert(!p->bf16);
		unpack_codes(&p->codes, in, cpu_part_tiles(p, b), id % BLOCK_N, w->k, out);
		return;
	}
	if (p->bf16) {
		cpu_bf16_unpack(w->dev->bf16, out, in, cpu_part_tiles(p, b), id % BLOCK_N, w->k);
		return;
	}
	const size_t es = dtype_bytes(p->dtype), stride = (size_t)cpu_part_tiles(p, b) * LANES_N * es;
	in += (size_t)(id % BLOCK_N) * es;
	for (int k = 0; k < w->k; k++, in += stride)
		out[k] = half_load(in, p->dtype, 0);
}
