/* sample_impl.h - shared by the files of the sampler. */
#ifndef QUERN_KERNELS_CPU_SAMPLE_IMPL_H
#define QUERN_KERNELS_CPU_SAMPLE_IMPL_H

#include "kernels/cpu/cpu.h"

#include <stdbool.h>

struct sample_job {
	struct kern_dev *dev;
	const float *logits;
	int n_vocab;
	int32_t *tokens;
	const struct kern_sample_row *rows;
	const struct kern_sample_out *out;
};

/* out = x if the mask allows the token, else other; out may be x. */
void cpu_sample_mask(const struct cpu_isa *isa, float *out, const float *x, const uint32_t *mask, int n,
		     float other);

/* Return true if the row's logits are changed before the draw. */
bool cpu_sample_adjusts(const struct kern_sample_row *r);
/* Adjust x (NaN where masked) into s->w, in the order of kern.h.  bans: apply allowed, banned and bad. */
void cpu_sample_adjust(const struct sample_job *j, const struct kern_sample_row *r, const float *x,
		       struct cpu_sample_scratch *s, bool bans);

#endif
