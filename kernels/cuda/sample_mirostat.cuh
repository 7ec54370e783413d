/* sample_mirostat.cuh - mirostat's draw by one block, with the integers of the CPU (kernels/mirostat.h). */
#ifndef QUERN_KERNELS_CUDA_SAMPLE_MIROSTAT_CUH
#define QUERN_KERNELS_CUDA_SAMPLE_MIROSTAT_CUH

#include "kernels/cuda/sample_draw.cuh"

#define MIROSTAT_FN KERN_DEV
#include "kernels/mirostat.h"

static_assert((int)MIROSTAT_TOP <= (int)BINS && (int)MIROSTAT_TOP <= (int)THREADS,
	      "a thread and a bin for each");

/* Return how many tokens version 1 keeps of the n in f.ids.  Leaves at most MIROSTAT_TOP of them there. */
KERN_DEV int mirostat_top_of(struct shared *s, const struct source &f, int n, int32_t mu)
{
	auto key = [=](int i) { return key_of(logit(f, f.ids[i])); };
	auto one = [](int) -> uint64_t { return 1; };
	if (n > MIROSTAT_TOP)
		n = keep(
			s, n, find_cut(s, n, MIROSTAT_TOP, key, one), [=](int i) { return f.ids[i]; }, key,
			[](int) { return true; }, f.ids);
	block_sync();
	if (tid() < n) {
		int at = 0; /* rank of this token: the number before it; ids ascend */
		for (int o = 0; o < n; o++)
			at += key(o) > key(tid()) || (key(o) == key(tid()) && o < tid());
		s->lo[at] = (uint32_t)f32_mul_rn(below_max(f, f.ids[tid()]), MIROSTAT_PER_NAT);
	}
	block_sync();
	const bool pair = tid() + 1 < n;
	const uint64_t step = pair ? mirostat_step(tid()) : 0;
	const uint64_t tb = block_add_wide(s, pair ? step * (s->lo[tid() + 1] - s->lo[tid()]) : 0);
	return mirostat_top(tb, block_add_wide(s, step * step), f.n, mu);
}

/* Draw with mirostat and update *mu.  best: the first id with the largest logit. */
KERN_DEV int draw_mirostat(struct shared *s, const struct row &r, const struct source &f, int best,
			   int32_t *mu)
{
	const struct cut everything = {true, 0, 0};
	const struct bounds any = {-INFINITY, p_min};
	auto weight = [=](int i) { return weight_at(f, f.ids[i]); };
	int n;
	if (!(f.max > -flt_max))
		return f.parts ? 0 : best;
	if (r.mirostat == 1) {
		auto key = [=](int i) { return key_of(logit(f, f.ids[i])); };
		auto one = [](int) -> uint64_t { return 1; };
		const int k = mirostat_top_of(s, f, candidates(s, f, any), *mu);
		n = candidates(s, f, any);
		if (k < n)
			n = keep(
				s, n, find_cut(s, n, (uint64_t)k, key, one), [=](int i) { return f.ids[i]; },
				key, [](int) { return true; }, f.ids);
	} else {
		const uint64_t least = mirostat_least(weight_of_all(s, f), *mu);
		n = keep(
			s, f.n, everything, [](int i) { return i; }, [](int) { return 0u; },
			[=](int i) { return weight_at(f, i) >= least; }, f.ids);
		if (n == 0) {
			if (tid() == 0)
				f.ids[0] = best;
			block_sync();
			n = 1;
		}
	}
	uint64_t more;
	const uint64_t bits = sample_bits((uint64_t)r.seed_hi << 32 | r.seed_lo, r.index, r.position, &more);
	const uint64_t all = add_weights(s, n, weight);
	uint64_t target = target_of(bits, all);
	const int token = f.ids[find_weight(s, 0, n, &target, weight)];
	*mu = mirostat_next(*mu, r.mirostat_tau, r.mirostat_eta, weight_at(f, token), all);
	return token;
}

#endif
