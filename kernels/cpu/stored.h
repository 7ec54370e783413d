/* stored.h - parts whose weights stay as stored, in fewer bits than packed codes take: the rows of a codebook
 * (base/codes.h: super_bytes).  A task unpacks the tiles that it needs into its thread's scratch, in the
 * layout that all kernels read, so that every mode has the bits that it has with packed codes.
 *
 *     part   [n][row as stored]
 *     task   16 to 64 rows --read()--> codes, scales --pack--> tiles in the scratch --> a kernel */
#ifndef QUERN_KERNELS_CPU_STORED_H
#define QUERN_KERNELS_CPU_STORED_H

#include "kernels/cpu/cpu.h"

#include <stdbool.h>
#include <stddef.h>

struct cpu_linear_tile;

/* Return whether a part with these codes stays as stored; q: its layout. */
bool cpu_stored_takes(const struct cpu_part *q, const struct codes *c);
/* Copy block b of c. */
void cpu_stored_copy(const struct cpu_part *p, const struct codes *c, int b);
/* Return the bytes of scratch that cpu_stored_tiles() needs; 0: no part of w stays as stored. */
size_t cpu_stored_scratch(const struct kern_linear *w);
/* Unpack the tiles t wants, which are then all tiles of a block; returns them. */
const unsigned char *cpu_stored_tiles(const struct kern_linear *w, const struct cpu_linear_tile *t);
/* Convert row n to floats, as codes_floats() does. */
void cpu_stored_row(const struct cpu_part *p, int n, float *out);

#endif
