#include "controller/metrics/exemplar.h"

#include <string.h>

void exemplar_put(struct exemplar *e, const struct exemplar_value *v)
{
	uint64_t id[2];
	uint_fast64_t seq = atomic_load_explicit(&e->seq, memory_order_relaxed);
	memcpy(id, v->trace, sizeof id);
	if (seq % 2 || !atomic_compare_exchange_strong_explicit(&e->seq, &seq, seq + 1, memory_order_acquire,
								memory_order_relaxed))
		return;
	atomic_thread_fence(memory_order_release);
	atomic_store_explicit(&e->trace[0], id[0], memory_order_relaxed);
	atomic_store_explicit(&e->trace[1], id[1], memory_order_relaxed);
	atomic_store_explicit(&e->value, v->value, memory_order_relaxed);
	atomic_store_explicit(&e->unix_us, v->unix_us, memory_order_relaxed);
	atomic_store_explicit(&e->seq, seq + 2, memory_order_release);
}

bool exemplar_get(const struct exemplar *e, struct exemplar_value *out)
{
	const uint_fast64_t seq = atomic_load_explicit(&e->seq, memory_order_acquire);
	const uint64_t id[2] = {atomic_load_explicit(&e->trace[0], memory_order_relaxed),
				atomic_load_explicit(&e->trace[1], memory_order_relaxed)};
	out->value = atomic_load_explicit(&e->value, memory_order_relaxed);
	out->unix_us = atomic_load_explicit(&e->unix_us, memory_order_relaxed);
	atomic_thread_fence(memory_order_acquire);
	memcpy(out->trace, id, sizeof id);
	return seq && seq % 2 == 0 && atomic_load_explicit(&e->seq, memory_order_relaxed) == seq;
}
