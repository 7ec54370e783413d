/* pack.h - packs codes as read into the layout that the inner kernels read.
 * Shared by pack.c, pack_codes.c, stored.c and bf16/pack.c. */
#ifndef QUERN_KERNELS_CPU_PACK_H
#define QUERN_KERNELS_CPU_PACK_H

#include "base/codes.h"
#include "kernels/cpu/bf16/bf16.h"
#include "kernels/cpu/isa.h"

/* Rows as read, and the F16 values of their heads. */
struct pack_rows {
	struct code_rows r;
	uint16_t *d;    /* HEADS_SUPER: [n][supers]; HEADS_AWQ and HEADS_F16: [n][groups], d times scale */
	uint16_t *dmin; /* HEADS_SUPER with minimums: [n][supers] */
};

/* Return the bytes of one tile of a group of len inputs. */
size_t cpu_pack_group_bytes(const struct cpu_codes *c, int len);
/* Pack n outputs into a block of `tiles` tiles, as drawn in dot/dot.h. */
void cpu_pack_codes(const struct cpu_codes *p, const struct codes *c, const struct pack_rows *r, int n,
		    int tiles, unsigned char *out);

/* Transpose n rows of k values of es bytes (4 or 2), row_step bytes apart, to k columns, column_step
 * apart. */
void cpu_pack_transpose(const unsigned char *rows, size_t row_step, int n, int k, int es, unsigned char *out,
			size_t column_step);

/* cpu_bf16_pack_values() of bf16.h, which allocates nothing: scratch has cpu_bf16_values_scratch(c->k)
 * bytes. */
struct bf16_values {
	const struct codes *c;
	const struct code_rows *r;
	codes_group_fn *floats;
	int n, tiles;
};
size_t cpu_bf16_values_scratch(int k);
void cpu_bf16_pack_values_in(const struct cpu_bf16 *b, unsigned char *out, const struct bf16_values *v,
			     void *scratch);

#endif
