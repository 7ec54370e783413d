#include "kernels/cpu/stored.h"

#include "kernels/cpu/linear.h"
#include "kernels/cpu/pack.h"

#include <assert.h>

enum { SUPER_MAX = 256 }; /* largest super-group of codes that stay as stored */

bool cpu_stored_takes(const struct cpu_part *q, const struct codes *c)
{
	return c->super_bytes && c->super <= SUPER_MAX && c->k % c->super == 0 && !c->perm && !c->table &&
	       !c->minimums && c->zero >= 0 && c->d_type == CODES_F32 && (q->codes.bits || q->bf16);
}

void cpu_stored_copy(const struct cpu_part *p, const struct codes *c, int b)
{
	const int n0 = b * BLOCK_N, n1 = p->n - n0 < BLOCK_N ? p->n : n0 + BLOCK_N;
	codes_copy_rows(c, n0, n1, p->w + (size_t)b * p->block_bytes);
}

/* ---- scratch ---- */

static size_t lines(size_t bytes)
{
	return (bytes + 63) / 64 * 64;
}

/* Offsets in the scratch: the tiles, then what read() fills in, then scratch of bf16. */
struct room {
	size_t scale, offset, d, code, values, all;
};

static struct room room_of(const struct cpu_part *p)
{
	const struct codes *c = &p->stored;
	const size_t heads = (size_t)BLOCK_N * (size_t)codes_groups(c) * sizeof(int16_t);
	struct room r;
	r.scale = lines(p->tile_bytes * BLOCK_TILES);
	r.offset = r.scale + lines(heads);
	r.d = r.offset + lines(heads);
	r.code = r.d + lines((size_t)BLOCK_N * (size_t)codes_supers(c) * sizeof(float));
	r.values = r.code + lines((size_t)BLOCK_N * (size_t)c->k);
	r.all = r.values + (p->codes.bits ? 0 : lines(cpu_bf16_values_scratch(c->k)));
	return r;
}

size_t cpu_stored_scratch(const struct kern_linear *w)
{
	size_t most = 0;
	for (int i = 0; i < w->n_parts; i++) {
		const size_t n = w->parts[i].stored.read ? room_of(&w->parts[i]).all : 0;
		most = n > most ? n : most;
	}
	return most;
}

/* ---- unpacking ---- */

const unsigned char *cpu_stored_tiles(const struct kern_linear *w, const struct cpu_linear_tile *t)
{
	const struct cpu_part *p = t->part;
	const struct codes *c = &p->stored;
	const struct room room = room_of(p);
	unsigned char *out = t->stored;
	const int n0 = t->block * BLOCK_N + t->t0 * LANES_N,
		  n = p->n - n0 < t->tn * LANES_N ? p->n - n0 : t->tn * LANES_N;
	const struct pack_rows rows = {.r = {.code = out + room.code,
					     .scale = (int16_t *)(void *)(out + room.scale),
					     .offset = (int16_t *)(void *)(out + room.offset),
					     .d = (float *)(void *)(out + room.d)}};
	assert(out);
	c->read(c, n0, n0 + n, &rows.r);
	if (!p->codes.bits)
		cpu_bf16_pack_values_in(w->dev->bf16, out,
					&(struct bf16_values){.c = c,
							      .r = &rows.r,
							      .floats = w->dev->isa->code_floats,
							      .n = n,
							      .tiles = t->tn},
					out + room.values);
	else if (p->bf16)
		cpu_bf16_pack_codes(w->dev->bf16, out, c, &rows, true, n, t->tn);
	else
		cpu_pack_codes(&p->codes, c, &rows, n, t->tn, out);
	return out;
}

void cpu_stored_row(const struct cpu_part *p, int n, float *out)
{
	const struct codes *c = &p->stored;
	const size_t row = codes_row_bytes(c);
	uint8_t code[SUPER_MAX];
	int16_t scale[SUPER_MAX], offset[SUPER_MAX];
	float d;
	const struct code_rows rows = {.code = code, .scale = scale, .offset = offset, .d = &d};
	for (int k = 0, s = 0; k < c->k; k += c->super, s++) {
		struct codes one;
		codes_copied(&one, c, p->w + (size_t)n * row + (size_t)s * (size_t)c->super_bytes, 1);
		one.k = c->super;
		one.read(&one, 0, 1, &rows);
		codes_row_floats(&one, &rows, 0, codes_group_floats, out + k);
	}
}
