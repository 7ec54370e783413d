/* emit.h - events to the front end: turns scheduler events and worker results into messages of ENGINE_OUT
 * (engine_msg.h), queued here until they are sent.
 * Owns: the queue, and prompt logprobs, collected over the steps that compute them.  Engine thread only,
 * except the pool of events, to which the front end returns them. */
#ifndef QUERN_CONTROLLER_FLEET_EMIT_H
#define QUERN_CONTROLLER_FLEET_EMIT_H

#include "controller/message/engine_msg.h"
#include "controller/sched/sched.h"

struct emit;

struct emit *emit_new(void *socket); /* PUSH to ENGINE_OUT, borrowed */
void emit_free(struct emit *e);      /* NULL is fine */

struct engine_event *emit_event_new(enum engine_event_kind kind, uint64_t job);
/* Take the event and queue it.  emit_flush() sends queued events in order, as many as the socket accepts. */
void emit_event(struct emit *e, struct engine_event *ev);
void emit_flush(struct emit *e);
void emit_code(struct emit *e, enum engine_event_kind kind, uint64_t job, enum code code, const char *why);

/* Collect the prompt logprobs in a result of s, before the result is applied. */
void emit_prompts(struct emit *e, const struct sched *s, const struct result *r);
/* Drop the prompt logprobs collected so far: they are computed again elsewhere, or the job has ended. */
void emit_drop_prompt(struct emit *e, uint64_t job);
/* Queue a scheduler's events, and empty ev.  r: the result that their logprobs refer to, or NULL. */
void emit_events(struct emit *e, struct sched_events *ev, const struct result *r, const char *numerics,
		 int64_t now_us);

#endif
