/* jobs_rig.h - the table of jobs with listeners that record events, and a fake engine: its commands are
 * collected, its events are made by the test. */
#ifndef QUERN_TESTS_UNIT_JOBS_JOBS_RIG_H
#define QUERN_TESTS_UNIT_JOBS_JOBS_RIG_H

#include "base/alloc.h"
#include "base/err.h"
#include "controller/jobs/jobs.h"
#include "tests/demo_service.h"

#include <stdlib.h>

enum { SENT_MAX = 1024, OUTPUTS_MAX = 4, TOKENS_MAX = 8192 };

static struct demo demo;
static struct jobs *jobs;
static struct engine_cmd *sent[SENT_MAX]; /* commands to the engine */
static int n_sent;
static uint64_t last_listener;
static const char *numerics = "class a"; /* of the replica that samples */

static inline void take_command(void *user, struct engine_cmd *c)
{
	(void)user;
	cr_assert_lt(n_sent, SENT_MAX);
	sent[n_sent++] = c;
}

static inline void forget_commands(void)
{
	for (int i = 0; i < n_sent; i++)
		engine_cmd_free(sent[i]);
	n_sent = 0;
}

/* --- a listener --- */

struct recorder {
	struct listener l;
	struct buf events; /* "accepted delta delta done gone" */
	char job[JOBS_ID_SIZE];
	/* Deltas of each output, joined. */
	struct buf text[OUTPUTS_MAX];
	uint32_t tokens[OUTPUTS_MAX][TOKENS_MAX];
	uint32_t n_tokens[OUTPUTS_MAX];
	float logprobs[TOKENS_MAX];
	uint32_t n_logprobs;
	enum finish finish[OUTPUTS_MAX];
	/* From the done event. */
	struct buf done[OUTPUTS_MAX];
	uint32_t n_done[OUTPUTS_MAX];
	enum finish done_finish[OUTPUTS_MAX];
	char stop_string[64];
	double cumulative; /* log-probability of output 0 */
	uint32_t completion_tokens, n_prompt_logprobs;
	int64_t total_us;
	bool class_changed;
	/* From an error event. */
	enum code code;
	char why[512];
};

static inline void recorder_delta(struct recorder *r, const struct job_event *ev)
{
	const struct output_view *o = &ev->delta;
	uint32_t i = o->index;
	cr_assert_lt(i, OUTPUTS_MAX);
	cr_assert_eq(ev->offset, r->n_tokens[i], "offset %u, had %u", ev->offset, r->n_tokens[i]);
	cr_assert_eq(r->finish[i], FINISH_NONE, "a delta after the end");
	buf_put(&r->text[i], o->text, o->text_n);
	for (uint32_t k = 0; k < o->n_tokens; k++) {
		cr_assert_lt(r->n_tokens[i], TOKENS_MAX);
		r->tokens[i][r->n_tokens[i]++] = o->tokens[k];
		if (o->logprobs)
			r->logprobs[r->n_logprobs++] = o->logprobs[k].logprob;
	}
	r->finish[i] = o->finish;
}

static inline void recorder_done(struct recorder *r, const struct job_event *ev)
{
	for (uint32_t i = 0; i < ev->n_outputs && i < OUTPUTS_MAX; i++) {
		const struct output_view *o = &ev->outputs[i];
		buf_clear(&r->done[i]);
		buf_put(&r->done[i], o->text, o->text_n);
		r->n_done[i] = o->n_tokens;
		r->done_finish[i] = o->finish;
		if (o->stop_string)
			snprintf(r->stop_string, sizeof r->stop_string, "%s", o->stop_string);
	}
	r->cumulative = ev->outputs[0].cumulative_logprob;
	r->completion_tokens = ev->completion_tokens;
	r->n_prompt_logprobs = ev->prompt_logprobs ? ev->prompt_tokens - 1 : 0;
	r->total_us = ev->total_us;
	r->class_changed = ev->class_changed;
}

static inline void recorder_event(void *user, const struct job_event *ev)
{
	static const char *const names[] = {"accepted", "delta", "done", "error"};
	struct recorder *r = user;
	buf_printf(&r->events, "%s ", names[ev->kind]);
	if (ev->job)
		snprintf(r->job, sizeof r->job, "%s", ev->job);
	if (ev->kind == JOB_DELTA)
		recorder_delta(r, ev);
	if (ev->kind == JOB_DONE)
		recorder_done(r, ev);
	if (ev->kind == JOB_ERROR) {
		r->code = ev->code;
		snprintf(r->why, sizeof r->why, "%s", ev->why);
	}
}

static inline void recorder_gone(void *user)
{
	buf_puts(&((struct recorder *)user)->events, "gone");
}

static inline struct recorder *recorder_new(void)
{
	struct recorder *r = xcalloc(1, sizeof *r);
	r->l = (struct listener){recorder_event, recorder_gone, r, ++last_listener};
	buf_puts(&r->events, "");
	for (int i = 0; i < OUTPUTS_MAX; i++) {
		buf_puts(&r->text[i], "");
		buf_puts(&r->done[i], "");
	}
	return r;
}

static inline void recorder_free(struct recorder *r)
{
	buf_fini(&r->events);
	for (int i = 0; i < OUTPUTS_MAX; i++) {
		buf_fini(&r->text[i]);
		buf_fini(&r->done[i]);
	}
	free(r);
}

/* --- the fake engine --- */

static inline struct submit *request(bool stream)
{
	struct submit *s = xcalloc(1, sizeof *s);
	params_init(&s->params);
	s->params.max_tokens = 100;
	s->tokens = xcalloc(3, sizeof *s->tokens);
	s->tokens[1] = 11;
	s->tokens[2] = 12;
	s->n_tokens = 3;
	s->stream = stream;
	s->skip_special = true;
	return s;
}

static inline void add_stop(struct submit *s, const char *stop)
{
	s->stop = xrealloc(s->stop, s->n_stop + 1, sizeof(char *));
	s->stop[s->n_stop++] = xstrdup(stop);
}

static inline void accept_job(uint64_t number)
{
	jobs_event(jobs, &(struct engine_event){.kind = ENGINE_ACCEPTED, .job = number}, 0);
}

/* Submit a request, accepted by the engine. Return the engine's number of the job. */
static inline uint64_t start(struct submit *s, struct recorder *r)
{
	jobs_submit(jobs, &s, &r->l, 0);
	cr_assert_null(s);
	cr_assert_gt(n_sent, 0, "refused: %s", r->why);
	cr_assert_eq(sent[n_sent - 1]->kind, ENGINE_SUBMIT);
	uint64_t number = sent[n_sent - 1]->job;
	accept_job(number);
	return number;
}

/* Send one message of n tokens, each with log-probability -0.5. */
static inline void tokens(uint64_t job, uint32_t index, const uint32_t *ids, size_t n)
{
	struct engine_token t[256];
	uint32_t top_ids[256];
	float top[256];
	cr_assert_leq(n, 256);
	for (size_t i = 0; i < n; i++) {
		t[i] = (struct engine_token){.job = job,
					     .index = index,
					     .token = ids[i],
					     .logprob = -0.5f,
					     .rank = 1,
					     .n_top = 1,
					     .mu = (int32_t)ids[i] - 1000,
					     .top0 = (uint32_t)i,
					     .stop = ids[i] == 1663};
		top_ids[i] = ids[i];
		top[i] = -0.5f;
	}
	struct engine_event e = {.kind = ENGINE_TOKENS,
				 .tokens = t,
				 .n_tokens = (uint32_t)n,
				 .top_ids = top_ids,
				 .top_logprobs = top};
	snprintf(e.numerics, sizeof e.numerics, "%s", numerics);
	jobs_event(jobs, &e, 0);
	jobs_check(jobs);
}

static inline struct token_ids encode(const char *text)
{
	struct token_ids ids = {0};
	struct why why;
	cr_assert_eq(tokenizer_encode(demo.tokenizer, text, strlen(text), 0, NULL, 0, &ids, &why), 0);
	return ids;
}

/* Send the tokens of a text, `piece` per message; return their number. */
static inline uint32_t generate_by(size_t piece, uint64_t job, uint32_t index, const char *text)
{
	struct token_ids ids = encode(text);
	for (size_t i = 0; i < ids.n; i += piece)
		tokens(job, index, ids.ids + i, ids.n - i < piece ? ids.n - i : piece);
	uint32_t n = (uint32_t)ids.n;
	token_ids_fini(&ids);
	return n;
}

static inline uint32_t generate(uint64_t job, uint32_t index, const char *text)
{
	return generate_by(1, job, index, text);
}

static inline void output_done(uint64_t job, uint32_t index, enum finish finish, int64_t token)
{
	struct engine_event e = {.kind = ENGINE_OUTPUT_DONE,
				 .job = job,
				 .index = index,
				 .finish = finish,
				 .stop_token = token};
	jobs_event(jobs, &e, 0);
}

static inline void job_done(uint64_t job, int64_t now)
{
	jobs_event(jobs, &(struct engine_event){.kind = ENGINE_JOB_DONE, .job = job, .total_us = 77}, now);
	jobs_check(jobs);
}

/* End the only output and the job. */
static inline void finish_job(uint64_t job)
{
	output_done(job, 0, FINISH_LENGTH, -1);
	job_done(job, 0);
}

#endif
