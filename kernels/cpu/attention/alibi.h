/* alibi.h - ALiBi's part of the scores of a chunk, with the vectors of the including file. */
#ifndef QUERN_KERNELS_CPU_ATTENTION_ALIBI_H
#define QUERN_KERNELS_CPU_ATTENTION_ALIBI_H

#include "kernels/cpu/attention/kvtype.h"

/* Add slope * (t - at) to the scores of query i of a head, in place, in the tiles that the query sees at
 * least in part.  unit: the scores' unit, 1 or log2(e). */
static void alibi_scores(const struct cpu_kv_chunk *c, int head, int i, float *s, size_t tile_stride,
			 float unit)
{
	static const float steps[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
	const vf slope = v_set1(c->alibi[head * c->alibi_step + i % c->alibi_heads] * unit);
	for (int t = c->from[i] / 16; t < (c->to[i] + 15) / 16; t++) {
		float *at = s + (size_t)t * tile_stride;
		const vf far = v_add(v_set1((float)(t * 16 - c->at[i])), v_load(steps));
		v_store(at, v_fma(slope, far, v_load(at)));
	}
}

#endif
