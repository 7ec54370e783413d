/* heads.h - loads the heads of a block of codes (dot/dot.h) as vectors.  Included after a vec_*.h. */
#ifndef QUERN_KERNELS_CPU_HEADS_H
#define QUERN_KERNELS_CPU_HEADS_H

#include "kernels/cpu/isa.h"

/* Return the lines of k inputs. */
VFN int heads_lines(int bits, int k)
{
	return bits == 4 ? (k + 7) / 8 : bits == 6 ? (k + 15) / 16 * 3 : (k + 3) / 4;
}

/* Return the scales of 16 outputs, from a tile's super-head and head. */
VFN vf heads_scales(const struct cpu_codes *c, const unsigned char *super, const unsigned char *head)
{
	if (c->heads == HEADS_SUPER)
		return v_mul(v_load_f16((const uint16_t *)(const void *)super), v_load_i8(head));
	if (c->heads == HEADS_F32)
		return v_load((const float *)(const void *)head);
	return v_load_f16((const uint16_t *)(const void *)head);
}

/* Return the minimums, if the codes have them. */
VFN vf heads_minimums(const struct cpu_codes *c, const unsigned char *super, const unsigned char *head)
{
	if (c->heads == HEADS_SUPER)
		return v_mul(v_load_f16((const uint16_t *)(const void *)(super + 32)), v_load_u8(head + 16));
	return v_load((const float *)(const void *)(head + 64));
}

#endif
