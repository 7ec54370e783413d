#include "controller/message/engine_msg.h"

#include "base/tsan.h"
#include "controller/message/submit.h"
#include "controller/message/service.h"

#include <errno.h>
#include <stdlib.h>
#include <zmq.h>
#include <inttypes.h>
#include <stdio.h>

/* Both loops run several times a second, even when idle. */
static const int64_t hang_us = 60 * 1000000LL;

const char *engine_load_hangs(const struct engine_load *load, int64_t front_loop_us, int64_t now_us,
			      int64_t *us)
{
	const int64_t front_us = now_us - front_loop_us;
	const int64_t loop = load ? (int64_t)atomic_load(&load->loop_us) : 0;
	const int64_t engine_us = loop ? now_us - loop : 0;
	*us = front_us > hang_us ? front_us : engine_us;
	return front_us > hang_us ? "front" : engine_us > hang_us ? "engine" : NULL;
}

void engine_status_free(struct engine_status *s)
{
	for (uint32_t i = 0; s && i < s->n_replicas; i++) {
		free(s->replicas[i].map);
		free(s->replicas[i].host_map);
	}
	if (s)
		free(s->experts.rows);
	free(s);
}

void engine_cmd_free(struct engine_cmd *c)
{
	if (!c)
		return;
	free(c->tokens);
	free(c->devices);
	free(c->had);
	free(c->n_had);
	free(c->mus);
	free(c->numerics);
	params_fini(&c->params);
	free(c);
}

void engine_event_fini(struct engine_event *e)
{
	free(e->tokens);
	free(e->top_ids);
	free(e->top_logprobs);
	free(e->values);
	engine_status_free(e->status);
	free(e->times);
}

void engine_event_free(struct engine_event *e)
{
	if (!e)
		return;
	if (e->recycle) {
		e->recycle(e);
		return;
	}
	engine_event_fini(e);
	free(e);
}

int engine_msg_send(void *socket, void *msg)
{
	tsan_hand_over(msg);
	return zmq_send(socket, &msg, sizeof msg, ZMQ_DONTWAIT) < 0 ? -errno : 0;
}

void *engine_msg_recv(void *socket)
{
	void *msg;
	if (zmq_recv(socket, &msg, sizeof msg, ZMQ_DONTWAIT) != (int)sizeof msg)
		return NULL;
	tsan_take_over(msg);
	return msg;
}

void submit_free(struct submit *s)
{
	if (!s)
		return;
	free(s->tokens);
	params_fini(&s->params);
	for (uint32_t i = 0; i < s->n_stop; i++)
		free(s->stop[i]);
	free(s->stop);
	free(s->late_stop_ids);
	free(s->user);
	free(s->key);
	free(s->owner);
	free(s->cache_salt);
	trace_context_fini(&s->trace);
	free(s);
}

bool service_full(const struct service *svc, struct why *why)
{
	if (!svc->load)
		return false;
	unsigned jobs = atomic_load_explicit(&svc->load->n_queued, memory_order_relaxed);
	uint64_t tokens = atomic_load_explicit(&svc->load->queued_tokens, memory_order_relaxed);
	if (jobs < svc->max_queued_jobs && tokens < svc->max_queued_tokens)
		return false;
	err_why(why, 0, "the queue is full: %u jobs, %" PRIu64 " tokens wait", jobs, tokens);
	return true;
}
