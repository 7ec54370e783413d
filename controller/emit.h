/* emit.h - what the engine says to the front end: a scheduler's events and a worker's results as
 * messages of ENGINE_OUT (engine.h).
 * Owns: the logprobs of prompts, gathered over the steps that compute them.  Engine thread only. */
#ifndef QUERN_CONTROLLER_EMIT_H
#define QUERN_CONTROLLER_EMIT_H

#include "controller/engine.h"
#include "controller/sched.h"

struct emit;

struct emit *emit_new(void *socket);    /* PUSH to ENGINE_OUT; stays the caller's */
void emit_free(struct emit *e);         /* NULL is fine */

struct engine_event *emit_event_new(enum engine_event_kind kind, uint64_t job);
void emit_event(struct emit *e, struct engine_event *ev);       /* takes it */
/* Tries again to send what could not be sent: once in a while. */
void emit_unsent(struct emit *e);
void emit_code(struct emit *e, enum engine_event_kind kind, uint64_t job, enum code code, const char *why);

/* The prompts' logprobs in a result of s, before it is applied. */
void emit_prompts(struct emit *e, const struct sched *s, const struct result *r);
/* What a job's prompt has so far is not wanted: it is computed again, elsewhere. */
void emit_forget(struct emit *e, uint64_t job);
/* What a scheduler said; empties it.  r: the result that its logprobs refer to, or NULL. */
void emit_events(struct emit *e, struct sched_events *ev, const struct result *r, const char *numerics,
		 int64_t now_us);

#endif
