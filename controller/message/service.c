#include "controller/message/service.h"

#include "controller/message/engine_msg.h"

#include <inttypes.h>
#include <stdio.h>

bool service_full(const struct service *svc, char *why, size_t why_n)
{
	if (!svc->load)
		return false;
	unsigned jobs = atomic_load_explicit(&svc->load->n_queued, memory_order_relaxed);
	uint64_t tokens = atomic_load_explicit(&svc->load->queued_tokens, memory_order_relaxed);
	if (jobs < svc->max_queued_jobs && tokens < svc->max_queued_tokens)
		return false;
	snprintf(why, why_n, "the queue is full: %u jobs, %" PRIu64 " tokens wait", jobs, tokens);
	return true;
}
