/* pack.h - codes as read to codes as the inner kernels read them: what pack.c shares with pack_codes.c. */
#ifndef QUERN_KERNELS_CPU_PACK_H
#define QUERN_KERNELS_CPU_PACK_H

#include "base/codes.h"
#include "kernels/cpu/isa.h"

/* Rows as read, and what their heads hold in F16. */
struct pack_rows {
	struct code_rows r;
	uint16_t *d; /* [n][supers], of HEADS_SUPER; of HEADS_AWQ and HEADS_F16 [n][groups], d times scale */
	uint16_t *dmin; /* likewise, of HEADS_SUPER with minimums */
};

/* Of one tile; len: the inputs of a group. */
size_t cpu_pack_group_bytes(const struct cpu_codes *c, int len);
/* A block of `tiles` tiles of n outputs, as dot/dot.h draws it. */
void cpu_pack_codes(const struct cpu_codes *p, const struct codes *c, const struct pack_rows *r, int n,
		    int tiles, unsigned char *out);

/* n rows of k values of es bytes (4 or 2), row_step bytes apart, to k columns, column_step apart. */
void cpu_pack_turn(const unsigned char *rows, size_t row_step, int n, int k, int es, unsigned char *out,
		   size_t column_step);

#endif
