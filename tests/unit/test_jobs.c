/* The table of jobs, driven by hand: commands are collected, the engine's events made up. */
#include "base/alloc.h"
#include "controller/jobs.h"
#include "tests/demo_service.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

enum { SENT_MAX = 1024 };

static struct demo demo;
static struct jobs *jobs;
static struct engine_cmd *sent[SENT_MAX];
static int n_sent;
static uint64_t last_listener;

static void take_command(void *user, struct engine_cmd *c)
{
	(void)user;
	cr_assert_lt(n_sent, SENT_MAX);
	sent[n_sent++] = c;
}

static void open_jobs(void)
{
	demo_open(&demo);
	jobs = jobs_new(&demo.svc, take_command, NULL);
}

static void close_jobs(void)
{
	jobs_check(jobs);
	jobs_end(jobs, 1000);
	jobs_check(jobs);
	jobs_free(jobs);
	for (int i = 0; i < n_sent; i++)
		engine_cmd_free(sent[i]);
	demo_close(&demo);
}

TestSuite(jobs, .init = open_jobs, .fini = close_jobs, .timeout = 60);

/* --- a listener that writes down what it is told --- */

struct ear {
	struct listener l;
	struct buf said;    /* "accepted delta delta done gone" */
	struct buf text[4]; /* joined deltas, by output */
	uint32_t tokens[4][256];
	uint32_t n_tokens[4];
	float logprobs[256];
	uint32_t n_logprobs;
	enum finish finish[4];
	char job[JOBS_ID_SIZE];
	struct buf done[4]; /* the texts of done */
	uint32_t n_done[4];
	enum finish done_finish[4];
	double cumulative;
	uint32_t completion_tokens, n_prompt_logprobs;
	enum code code;
	char why[256];
	char stop_string[64];
};

static void ear_delta(struct ear *e, const struct job_event *ev)
{
	const struct output_view *o = &ev->delta;
	uint32_t i = o->index;
	cr_assert_lt(i, 4);
	cr_assert_eq(ev->offset, e->n_tokens[i], "offset %u, had %u", ev->offset, e->n_tokens[i]);
	cr_assert_eq(e->finish[i], FINISH_NONE, "a delta after the end");
	buf_put(&e->text[i], o->text, o->text_n);
	for (uint32_t k = 0; k < o->n_tokens; k++) {
		e->tokens[i][e->n_tokens[i]++] = o->tokens[k];
		if (o->logprobs)
			e->logprobs[e->n_logprobs++] = o->logprobs[k].logprob;
	}
	e->finish[i] = o->finish;
}

static void ear_done(struct ear *e, const struct job_event *ev)
{
	for (uint32_t i = 0; i < ev->n_outputs && i < 4; i++) {
		const struct output_view *o = &ev->outputs[i];
		buf_clear(&e->done[i]);
		buf_put(&e->done[i], o->text, o->text_n);
		e->n_done[i] = o->n_tokens;
		e->done_finish[i] = o->finish;
		if (o->stop_string)
			snprintf(e->stop_string, sizeof e->stop_string, "%s", o->stop_string);
	}
	e->cumulative = ev->outputs[0].cumulative_logprob;
	e->completion_tokens = ev->completion_tokens;
	e->n_prompt_logprobs = ev->prompt_logprobs ? ev->prompt_tokens - 1 : 0;
}

static void hear(void *user, const struct job_event *ev)
{
	static const char *const names[] = {"accepted", "delta", "done", "error"};
	struct ear *e = user;
	buf_printf(&e->said, "%s ", names[ev->kind]);
	if (ev->job)
		snprintf(e->job, sizeof e->job, "%s", ev->job);
	if (ev->kind == JOB_DELTA)
		ear_delta(e, ev);
	if (ev->kind == JOB_DONE)
		ear_done(e, ev);
	if (ev->kind == JOB_ERROR) {
		e->code = ev->code;
		snprintf(e->why, sizeof e->why, "%s", ev->why);
	}
}

static void hear_gone(void *user)
{
	buf_puts(&((struct ear *)user)->said, "gone");
}

static struct ear *ear_new(void)
{
	struct ear *e = xcalloc(1, sizeof *e);
	e->l = (struct listener){hear, hear_gone, e, ++last_listener};
	for (int i = 0; i < 4; i++) {
		buf_puts(&e->text[i], "");
		buf_puts(&e->done[i], "");
	}
	buf_puts(&e->said, "");
	return e;
}

static void ear_free(struct ear *e)
{
	for (int i = 0; i < 4; i++) {
		buf_fini(&e->text[i]);
		buf_fini(&e->done[i]);
	}
	buf_fini(&e->said);
	free(e);
}

/* --- the engine's side --- */

static struct submit *request(bool stream)
{
	struct submit *s = xcalloc(1, sizeof *s);
	params_init(&s->params);
	s->params.max_tokens = 100;
	s->tokens = xcalloc(3, sizeof *s->tokens);
	s->n_tokens = 3;
	s->stream = stream;
	s->skip_special = true;
	return s;
}

static void add_stop(struct submit *s, const char *stop)
{
	s->stop = xrealloc(s->stop, s->n_stop + 1, sizeof(char *));
	s->stop[s->n_stop++] = xstrdup(stop);
}

/* Submits and accepts; the engine's number of the job. */
static uint64_t start(struct submit *s, struct ear *e)
{
	jobs_submit(jobs, &s, &e->l, 0);
	cr_assert_null(s);
	cr_assert_eq(sent[n_sent - 1]->kind, ENGINE_SUBMIT);
	uint64_t number = sent[n_sent - 1]->job;
	jobs_event(jobs, &(struct engine_event){.kind = ENGINE_ACCEPTED, .job = number}, 0);
	return number;
}

static void tokens(uint64_t job, uint32_t index, const uint32_t *ids, size_t n)
{
	struct engine_token t[256];
	uint32_t top_ids[256];
	float top[256];
	for (size_t i = 0; i < n; i++) {
		t[i] = (struct engine_token){.job = job,
					     .index = index,
					     .token = ids[i],
					     .logprob = -0.5f,
					     .rank = 1,
					     .n_top = 1,
					     .top0 = (uint32_t)i};
		top_ids[i] = ids[i];
		top[i] = -0.5f;
	}
	struct engine_event e = {.kind = ENGINE_TOKENS,
				 .tokens = t,
				 .n_tokens = (uint32_t)n,
				 .top_ids = top_ids,
				 .top_logprobs = top};
	jobs_event(jobs, &e, 0);
	jobs_check(jobs);
}

/* The text's tokens, `piece` at a time. */
static size_t say(uint64_t job, uint32_t index, const char *text, size_t piece)
{
	struct token_ids ids = {0};
	char why[256];
	cr_assert_eq(tokenizer_encode(demo.tokenizer, text, strlen(text), 0, NULL, 0, &ids, why, sizeof why),
		     0);
	for (size_t i = 0; i < ids.n; i += piece)
		tokens(job, index, ids.ids + i, ids.n - i < piece ? ids.n - i : piece);
	size_t n = ids.n;
	token_ids_fini(&ids);
	return n;
}

static void output_done(uint64_t job, uint32_t index, enum finish finish, int64_t token)
{
	struct engine_event e = {.kind = ENGINE_OUTPUT_DONE,
				 .job = job,
				 .index = index,
				 .finish = finish,
				 .stop_token = token};
	jobs_event(jobs, &e, 0);
}

static void job_done(uint64_t job, int64_t now)
{
	jobs_event(jobs, &(struct engine_event){.kind = ENGINE_JOB_DONE, .job = job, .total_us = 5}, now);
	jobs_check(jobs);
}

static void finish_job(uint64_t job)
{
	output_done(job, 0, FINISH_LENGTH, -1);
	job_done(job, 0);
}

static const char text[] = "Once upon a time there was a caf\xc3\xa9. \xe6\x9d\xb1\xe4\xba\xac! The end.";

/* --- streams --- */

Test(jobs, a_stream_is_accepted_deltas_done)
{
	struct ear *e = ear_new();
	uint64_t job = start(request(true), e);
	size_t n = say(job, 0, text, 1);
	output_done(job, 0, FINISH_STOP, 1663);
	cr_expect_eq(e->finish[0], FINISH_STOP);
	job_done(job, 0);
	cr_expect_eq(strncmp(e->said.p, "accepted delta delta ", 21), 0, "%s", e->said.p);
	cr_expect(strstr(e->said.p, "delta done gone"));
	cr_expect_str_eq(e->text[0].p, text);
	cr_expect_str_eq(e->done[0].p, text);
	cr_expect_eq(e->n_tokens[0], n);
	cr_expect_eq(e->completion_tokens, n);
	cr_expect(isnan(e->cumulative));
	ear_free(e);
}

Test(jobs, without_stream_there_is_accepted_and_done)
{
	struct ear *e = ear_new();
	uint64_t job = start(request(false), e);
	say(job, 0, text, 3);
	finish_job(job);
	cr_expect_str_eq(e->said.p, "accepted done gone");
	cr_expect_str_eq(e->done[0].p, text);
	ear_free(e);
}

Test(jobs, tokens_of_one_step_are_told_at_once)
{
	struct ear *e = ear_new();
	uint64_t job = start(request(true), e);
	uint32_t ids[] = {300, 301, 302, 303};
	tokens(job, 0, ids, 4);
	cr_expect_str_eq(e->said.p, "accepted delta ");
	cr_expect_eq(e->n_tokens[0], 4);
	finish_job(job);
	ear_free(e);
}

Test(jobs, outputs_are_apart)
{
	struct ear *e = ear_new();
	struct submit *s = request(true);
	s->params.n = 2;
	uint64_t job = start(s, e);
	say(job, 1, "second", 1);
	say(job, 0, "first", 1);
	output_done(job, 1, FINISH_LENGTH, -1);
	cr_expect_eq(e->finish[1], FINISH_LENGTH);
	cr_expect_eq(e->finish[0], FINISH_NONE);
	say(job, 0, " and more", 1);
	output_done(job, 0, FINISH_LENGTH, -1);
	job_done(job, 0);
	cr_expect_str_eq(e->text[0].p, "first and more");
	cr_expect_str_eq(e->done[1].p, "second");
	cr_expect_eq(e->completion_tokens, e->n_tokens[0] + e->n_tokens[1]);
	ear_free(e);
}

/* The shorter a text, the likelier: each token has -0.5. */
Test(jobs, the_best_outputs_are_told_at_the_end)
{
	struct ear *e = ear_new();
	struct submit *s = request(true);
	s->params.n = 2;
	s->best_of = 4;
	uint64_t job = start(s, e);
	cr_expect_eq(sent[n_sent - 1]->params.n, 4);
	cr_expect_eq(sent[n_sent - 1]->params.logprobs, 0);
	say(job, 0, "the longest text of them all, by far", 1);
	say(job, 1, "quite a long text, some words more", 1);
	say(job, 2, "short", 1);
	say(job, 3, "some words", 1);
	for (uint32_t i = 0; i < 4; i++)
		output_done(job, i, FINISH_LENGTH, -1);
	cr_expect_str_eq(e->said.p, "accepted ");
	job_done(job, 0);
	cr_expect_str_eq(e->said.p, "accepted delta delta done gone");
	cr_expect_str_eq(e->done[0].p, "short");
	cr_expect_str_eq(e->done[1].p, "some words");
	cr_expect_str_eq(e->text[0].p, "short");
	cr_expect_str_eq(e->done[2].p, "");
	cr_expect_eq(e->n_logprobs, 0);
	cr_expect_float_eq(e->cumulative, -0.5 * e->n_done[0], 1e-6);
	cr_expect_eq(e->completion_tokens, e->n_done[0] + e->n_done[1]);
	ear_free(e);
}

Test(jobs, a_beam_search_has_its_scores_though_nobody_asked_for_logprobs)
{
	struct ear *e = ear_new();
	struct submit *s = request(true);
	s->params.n = 2;
	s->params.beam_width = 4;
	uint64_t job = start(s, e);
	cr_expect_eq(sent[n_sent - 1]->params.n, 2);
	cr_expect_eq(sent[n_sent - 1]->params.beam_width, 4);
	say(job, 0, "the best one", 1);
	say(job, 1, "the second", 1);
	output_done(job, 0, FINISH_LENGTH, -1);
	output_done(job, 1, FINISH_STOP, -1);
	job_done(job, 0);
	cr_expect_str_eq(e->done[0].p, "the best one");
	cr_expect_eq(e->n_logprobs, 0);
	cr_expect_float_eq(e->cumulative, -0.5 * e->n_done[0], 1e-6);
	ear_free(e);
}

Test(jobs, who_attaches_before_the_choice_is_told_at_the_end)
{
	struct ear *e = ear_new(), *late = ear_new(), *later = ear_new();
	struct submit *s = request(false);
	s->best_of = 2;
	uint64_t job = start(s, e);
	say(job, 0, "one two three", 1);
	cr_assert_eq(jobs_attach(jobs, jobs_find(jobs, e->job), &late->l, true, NULL), 0);
	say(job, 1, "one", 1);
	cr_expect_eq(job_n_outputs(jobs_find(jobs, e->job)), 1);
	output_done(job, 0, FINISH_LENGTH, -1);
	output_done(job, 1, FINISH_LENGTH, -1);
	job_done(job, 0);
	cr_expect_str_eq(late->said.p, "delta done gone");
	cr_expect_str_eq(late->text[0].p, "one");
	cr_assert_eq(jobs_attach(jobs, jobs_find(jobs, e->job), &later->l, true, NULL), 0);
	cr_expect_str_eq(later->text[0].p, "one");
	ear_free(e);
	ear_free(late);
	ear_free(later);
}

Test(jobs, logprobs_come_with_deltas_and_add_up)
{
	struct ear *e = ear_new();
	struct submit *s = request(true);
	s->params.logprobs = 1;
	uint64_t job = start(s, e);
	size_t n = say(job, 0, text, 2);
	finish_job(job);
	cr_expect_eq(e->n_logprobs, n);
	cr_expect_float_eq(e->cumulative, -0.5 * (double)n, 1e-6);
	ear_free(e);
}

Test(jobs, prompt_logprobs_stand_in_done)
{
	struct ear *e = ear_new();
	struct submit *s = request(false);
	s->params.prompt_logprobs = 0;
	uint64_t job = start(s, e);
	struct engine_token t[2] = {{.token = 5, .logprob = -1, .rank = 2},
				    {.token = 6, .logprob = -2, .rank = 9}};
	struct engine_event ev = {.kind = ENGINE_PROMPT_LOGPROBS, .job = job, .tokens = t, .n_tokens = 2};
	jobs_event(jobs, &ev, 0);
	finish_job(job);
	cr_expect_eq(e->n_prompt_logprobs, 2);
	ear_free(e);
}

/* --- stop strings --- */

static void stopped(size_t piece, bool include, const char *expect)
{
	struct ear *e = ear_new();
	struct submit *s = request(true);
	add_stop(s, "never");
	add_stop(s, "was a c");
	s->include_stop = include;
	uint64_t job = start(s, e);
	int before = n_sent;
	say(job, 0, text, piece);
	cr_expect_eq(e->finish[0], FINISH_STOP);
	cr_assert_eq(n_sent, before + 1);
	cr_expect_eq(sent[before]->kind, ENGINE_STOP);
	cr_expect_eq(sent[before]->index, 0);
	say(job, 0, "what comes late is not shown", 1);
	output_done(job, 0, FINISH_ABORT, -1);
	job_done(job, 0);
	cr_expect_str_eq(e->text[0].p, expect);
	cr_expect_str_eq(e->done[0].p, expect);
	cr_expect_eq(e->done_finish[0], FINISH_STOP);
	cr_expect_str_eq(e->stop_string, "was a c");
	cr_expect_eq(e->n_tokens[0], e->n_done[0]);
	cr_expect_eq(e->completion_tokens, e->n_done[0]);
	/* No token is left whose text was cut off whole. */
	struct buf all = {0}, but_one = {0};
	tokenizer_decode(demo.tokenizer, e->tokens[0], e->n_tokens[0], true, &all);
	tokenizer_decode(demo.tokenizer, e->tokens[0], e->n_tokens[0] - 1, true, &but_one);
	cr_expect_eq(strncmp(all.p, expect, strlen(expect)), 0);
	cr_expect_lt(but_one.len, strlen(expect));
	buf_fini(&all);
	buf_fini(&but_one);
	ear_free(e);
}

Test(jobs, a_stop_string_is_cut_off_with_its_tokens)
{
	for (size_t piece = 1; piece < 6; piece++)
		stopped(piece, false, "Once upon a time there ");
}

Test(jobs, include_stop_str_in_output_keeps_it)
{
	for (size_t piece = 1; piece < 6; piece++)
		stopped(piece, true, "Once upon a time there was a c");
}

Test(jobs, what_was_held_is_shown_at_the_end)
{
	struct ear *e = ear_new();
	struct submit *s = request(true);
	add_stop(s, "time travel");
	uint64_t job = start(s, e);
	say(job, 0, "Once upon a time", 1);
	cr_expect_str_neq(e->text[0].p, "Once upon a time");
	finish_job(job);
	cr_expect_str_eq(e->text[0].p, "Once upon a time");
	cr_expect_eq(e->done_finish[0], FINISH_LENGTH);
	ear_free(e);
}

Test(jobs, stop_strings_are_not_looked_for_within_min_tokens)
{
	struct ear *e = ear_new();
	struct submit *s = request(true);
	add_stop(s, "stop");
	uint32_t ids[256];
	struct token_ids t = {0};
	char why[256];
	cr_assert_eq(
		tokenizer_encode(demo.tokenizer, "stop and stop again", 19, 0, NULL, 0, &t, why, sizeof why),
		0);
	memcpy(ids, t.ids, t.n * sizeof *ids);
	s->params.min_tokens = (uint32_t)t.n / 2;
	uint64_t job = start(s, e);
	for (size_t i = 0; i < t.n; i++)
		tokens(job, 0, ids + i, 1);
	output_done(job, 0, FINISH_LENGTH, -1);
	job_done(job, 0);
	cr_expect_str_eq(e->done[0].p, "stop and ");
	token_ids_fini(&t);
	ear_free(e);
}

/* Random texts, stop strings and pieces: what is shown is never taken back, and the end is where
 * a search of the whole text has it. */
Test(jobs, streams_with_stop_strings_agree_with_the_whole_text)
{
	srand(3);
	for (int round = 0; round < 300; round++) {
		char said[200];
		struct ear *e = ear_new();
		struct submit *s = request(true);
		static const char *const words[] = {
			"the ", "cat", "\xc3\xa9", " sat", "\n", "\xf0\x9f\x98\x80", "on", " "};
		said[0] = 0;
		for (int i = 0; i < 30; i++)
			strncat(said, words[rand() % 8], sizeof said - strlen(said) - 1);
		size_t at = (size_t)rand() % (strlen(said) - 12), len = 1 + (size_t)rand() % 10;
		while (((unsigned char)said[at] & 0xc0) == 0x80)
			at++;
		while (((unsigned char)said[at + len] & 0xc0) == 0x80)
			len++;
		char stop[32];
		snprintf(stop, sizeof stop, "%.*s", (int)len, said + at);
		add_stop(s, stop);
		uint64_t job = start(s, e);
		say(job, 0, said, 1 + (size_t)rand() % 4);
		finish_job(job);
		said[strstr(said, stop) - said] = 0;
		cr_assert_str_eq(e->done[0].p, said);
		cr_assert_str_eq(e->text[0].p, said);
		cr_assert_eq(e->n_tokens[0], e->n_done[0]);
		ear_free(e);
	}
}

/* --- ends --- */

Test(jobs, a_refused_job_leaves_no_record)
{
	struct ear *e = ear_new();
	struct submit *s = request(true);
	s->key = xstrdup("k");
	jobs_submit(jobs, &s, &e->l, 0);
	struct engine_event ev = {
		.kind = ENGINE_REFUSED, .job = sent[0]->job, .code = E_OVERLOADED, .why = "full"};
	jobs_event(jobs, &ev, 0);
	cr_expect_str_eq(e->said.p, "error gone");
	cr_expect_eq(e->code, E_OVERLOADED);
	struct jobs_counts c;
	jobs_counts(jobs, &c);
	cr_expect_eq(c.n_finished + c.n_queued + c.n_running, 0);
	/* The key is free again. */
	struct ear *f = ear_new();
	struct submit *t = request(true);
	t->key = xstrdup("k");
	start(t, f);
	cr_expect_str_eq(f->said.p, "accepted ");
	jobs_end(jobs, 0);
	ear_free(e);
	ear_free(f);
}

Test(jobs, a_failed_job_is_an_error_also_later)
{
	struct ear *e = ear_new(), *f = ear_new(), *g = ear_new();
	uint64_t job = start(request(true), e);
	say(job, 0, "Once", 1);
	struct engine_event ev = {
		.kind = ENGINE_JOB_FAILED, .job = job, .code = E_WORKER_LOST, .why = "no worker"};
	jobs_event(jobs, &ev, 0);
	cr_expect(strstr(e->said.p, "error gone"));
	cr_expect_eq(e->code, E_WORKER_LOST);
	struct job *j = jobs_find(jobs, e->job);
	cr_assert(j && job_finished(j));
	jobs_result(jobs, j, &f->l);
	cr_expect_str_eq(f->said.p, "error gone");
	cr_expect_str_eq(f->why, "no worker");
	jobs_attach(jobs, j, &g->l, true, NULL);
	cr_expect_str_eq(g->said.p, "error gone");
	ear_free(e);
	ear_free(f);
	ear_free(g);
}

Test(jobs, cancel_is_sent_once_and_ends_in_done)
{
	struct ear *e = ear_new();
	uint64_t job = start(request(true), e);
	say(job, 0, "Once upon", 1);
	struct job *j = jobs_find(jobs, e->job);
	jobs_cancel(jobs, j);
	jobs_cancel(jobs, j);
	cr_assert_eq(n_sent, 2);
	cr_expect_eq(sent[1]->kind, ENGINE_CANCEL);
	output_done(job, 0, FINISH_ABORT, -1);
	job_done(job, 0);
	cr_expect_eq(e->done_finish[0], FINISH_ABORT);
	cr_expect_str_eq(e->done[0].p, "Once upon");
	jobs_cancel(jobs, j);
	cr_expect_eq(n_sent, 2);
	ear_free(e);
}

Test(jobs, a_job_that_nobody_listens_to_is_cancelled_unless_kept)
{
	struct ear *e = ear_new(), *f = ear_new();
	start(request(true), e);
	struct submit *s = request(true);
	s->keep = true;
	start(s, f);
	int before = n_sent;
	jobs_unlisten(jobs, e->l.id);
	cr_expect_str_eq(e->said.p, "accepted gone");
	cr_assert_eq(n_sent, before + 1);
	cr_expect_eq(sent[before]->kind, ENGINE_CANCEL);
	jobs_unlisten(jobs, f->l.id);
	jobs_unlisten(jobs, f->l.id);
	cr_expect_eq(n_sent, before + 1);
	jobs_check(jobs);
	jobs_end(jobs, 0);
	ear_free(e);
	ear_free(f);
}

Test(jobs, the_end_of_the_service_ends_every_job)
{
	struct ear *e = ear_new(), *f = ear_new();
	uint64_t job = start(request(true), e);
	say(job, 0, "Once", 1);
	struct submit *s = request(true);
	jobs_submit(jobs, &s, &f->l, 0);
	jobs_end(jobs, 0);
	cr_expect(strstr(e->said.p, "done gone"));
	cr_expect_eq(e->done_finish[0], FINISH_ABORT);
	cr_expect_str_eq(f->said.p, "error gone");
	ear_free(e);
	ear_free(f);
}

/* --- attach, result, keys --- */

Test(jobs, attach_in_the_middle_misses_nothing)
{
	struct ear *e = ear_new(), *f = ear_new();
	uint64_t job = start(request(false), e);
	say(job, 0, "Once upon", 1);
	cr_assert_eq(jobs_attach(jobs, jobs_find(jobs, e->job), &f->l, true, NULL), 0);
	say(job, 0, " a time", 1);
	finish_job(job);
	cr_expect_str_eq(f->text[0].p, "Once upon a time");
	cr_expect_str_eq(f->done[0].p, "Once upon a time");
	cr_expect_str_eq(e->said.p, "accepted done gone");
	ear_free(e);
	ear_free(f);
}

Test(jobs, attach_from_any_token_goes_on_from_there)
{
	struct ear *e = ear_new();
	uint64_t job = start(request(true), e);
	size_t n = say(job, 0, text, 1);
	finish_job(job);
	for (uint32_t from = 0; from <= n + 2; from++) {
		struct ear *f = ear_new();
		f->n_tokens[0] = from;
		memcpy(f->tokens[0], e->tokens[0], sizeof f->tokens[0]);
		cr_assert_eq(jobs_attach(jobs, jobs_find(jobs, e->job), &f->l, true, &from), 0);
		size_t len = strlen(text);
		cr_expect_leq(f->text[0].len, len);
		cr_expect_str_eq(f->text[0].p, text + len - f->text[0].len);
		if (from == 0)
			cr_expect_eq(f->text[0].len, len);
		if (from >= n)
			cr_expect_eq(f->text[0].len, 0);
		cr_expect_str_eq(f->done[0].p, text);
		ear_free(f);
	}
	ear_free(e);
}

Test(jobs, attach_ahead_of_what_there_is_waits_for_it)
{
	struct ear *e = ear_new(), *f = ear_new();
	uint64_t job = start(request(true), e);
	uint32_t from = 4, a[] = {300, 301, 302}, b[] = {303, 304, 305, 306};
	f->n_tokens[0] = from;
	tokens(job, 0, a, 3);
	cr_assert_eq(jobs_attach(jobs, jobs_find(jobs, e->job), &f->l, true, &from), 0);
	tokens(job, 0, b, 1);
	cr_expect_str_eq(f->said.p, "");
	tokens(job, 0, b + 1, 3);
	finish_job(job);
	cr_expect_eq(f->n_tokens[0], 7);
	cr_expect_eq(memcmp(f->tokens[0] + 4, b + 1, sizeof b - sizeof *b), 0);
	ear_free(e);
	ear_free(f);
}

Test(jobs, the_number_of_listeners_is_bounded)
{
	struct ear *e = ear_new(), *f = ear_new();
	start(request(false), e);
	struct job *j = jobs_find(jobs, e->job);
	struct listener l = {.event = hear, .user = f};
	for (int i = 1; i < JOBS_LISTENERS_MAX; i++) {
		l.id = ++last_listener;
		cr_assert_eq(jobs_attach(jobs, j, &l, false, NULL), 0);
	}
	l.id = ++last_listener;
	cr_expect_eq(jobs_attach(jobs, j, &l, false, NULL), -EBUSY);
	jobs_end(jobs, 0);
	ear_free(e);
	ear_free(f);
}

static struct submit *keyed(const char *key, bool stream)
{
	struct submit *s = request(stream);
	s->key = xstrdup(key);
	return s;
}

Test(jobs, the_same_key_is_the_same_job)
{
	struct ear *e = ear_new(), *f = ear_new(), *g = ear_new(), *h = ear_new();
	struct submit *s = keyed("k", true), *t = keyed("k", true), *u = keyed("k", true),
		      *v = keyed("other", false);
	jobs_submit(jobs, &s, &e->l, 0);
	jobs_submit(jobs, &t, &f->l, 0);
	cr_assert_eq(n_sent, 1);
	uint64_t job = sent[0]->job;
	jobs_event(jobs, &(struct engine_event){.kind = ENGINE_ACCEPTED, .job = job}, 0);
	say(job, 0, text, 2);
	finish_job(job);
	jobs_submit(jobs, &u, &g->l, 0);
	cr_expect_str_eq(e->job, f->job);
	cr_expect_str_eq(e->job, g->job);
	cr_expect_str_eq(f->text[0].p, text);
	cr_expect_str_eq(g->said.p, "accepted delta done gone");
	cr_expect_str_eq(g->text[0].p, text);
	start(v, h);
	cr_expect_str_neq(h->job, e->job);
	jobs_end(jobs, 0);
	ear_free(e);
	ear_free(f);
	ear_free(g);
	ear_free(h);
}

Test(jobs, ids_that_are_no_jobs_are_not_found)
{
	struct ear *e = ear_new();
	start(request(false), e);
	cr_assert_eq(strlen(e->job), 32);
	cr_expect_not_null(jobs_find(jobs, e->job));
	cr_expect_null(jobs_find(jobs, ""));
	cr_expect_null(jobs_find(jobs, "0123456789abcdef0123456789abcdef"));
	cr_expect_null(jobs_find(jobs, "zz"));
	e->job[31] = e->job[31] == '0' ? '1' : '0';
	cr_expect_null(jobs_find(jobs, e->job));
	jobs_end(jobs, 0);
	ear_free(e);
}

/* --- what is kept --- */

Test(jobs, finished_jobs_are_kept_for_a_time)
{
	struct ear *e = ear_new();
	uint64_t job = start(request(false), e);
	output_done(job, 0, FINISH_LENGTH, -1);
	job_done(job, 1000);
	jobs_sweep(jobs, 1000 + demo.svc.keep_finished_us - 1);
	cr_expect_not_null(jobs_find(jobs, e->job));
	jobs_sweep(jobs, 1000 + demo.svc.keep_finished_us);
	cr_expect_null(jobs_find(jobs, e->job));
	jobs_check(jobs);
	ear_free(e);
}

Test(jobs, no_more_finished_jobs_are_kept_than_told)
{
	demo.svc.max_finished = 3;
	char first[JOBS_ID_SIZE] = "", last[JOBS_ID_SIZE] = "";
	for (int i = 0; i < 5; i++) {
		struct ear *e = ear_new();
		struct submit *s = keyed(i ? "b" : "a", false);
		if (i) {
			free(s->key);
			s->key = NULL;
		}
		finish_job(start(s, e));
		strcpy(i ? last : first, e->job);
		ear_free(e);
	}
	jobs_sweep(jobs, 1);
	struct jobs_counts c;
	jobs_counts(jobs, &c);
	cr_expect_eq(c.n_finished, 3);
	cr_expect_null(jobs_find(jobs, first));
	cr_expect_not_null(jobs_find(jobs, last));
	jobs_check(jobs);
}

Test(jobs, the_table_lists_them_with_their_seeds)
{
	struct ear *e = ear_new();
	struct submit *s = request(true);
	s->params.seed = 77;
	s->user = xstrdup("me");
	uint64_t job = start(s, e);
	say(job, 0, "Once", 1);
	json_t *t = jobs_table(jobs, NULL, 10, 0), *row = json_array_get(t, 0);
	cr_assert_eq(json_array_size(t), 1);
	cr_expect_str_eq(json_string_value(json_object_get(row, "job")), e->job);
	cr_expect_str_eq(json_string_value(json_object_get(row, "state")), "running");
	cr_expect_str_eq(json_string_value(json_object_get(row, "user")), "me");
	cr_expect_eq(json_integer_value(json_object_get(row, "seed")), 77);
	json_decref(t);
	finish_job(job);
	ear_free(e);
}

Test(jobs, events_of_unknown_jobs_and_outputs_are_ignored)
{
	struct ear *e = ear_new();
	uint64_t job = start(request(true), e);
	uint32_t id = 300;
	tokens(job + 1, 0, &id, 1);
	tokens(job, 1, &id, 1);
	output_done(job, 9, FINISH_STOP, -1);
	output_done(0, 0, FINISH_STOP, -1);
	job_done(job + 7, 0);
	cr_expect_str_eq(e->said.p, "accepted ");
	finish_job(job);
	finish_job(job);
	cr_expect_str_eq(e->said.p, "accepted delta done gone");
	ear_free(e);
}

/* Random lives of many jobs; the table's invariants hold, everyone hears exactly one end. */
Test(jobs, random_lives_end_exactly_once)
{
	enum { N = 200 };
	static struct ear *ears[N];
	static uint64_t numbers[N];
	static bool over[N];
	srand(11);
	for (int i = 0; i < N; i++) {
		struct submit *s = request(rand() % 2);
		s->keep = rand() % 2;
		ears[i] = ear_new();
		jobs_submit(jobs, &s, &ears[i]->l, 0);
		numbers[i] = sent[n_sent - 1]->job;
		for (int k = 0; k < n_sent; k++)
			engine_cmd_free(sent[k]);
		n_sent = 0;
	}
	for (int step = 0; step < 20000; step++) {
		int i = rand() % N;
		uint32_t id = (uint32_t)(rand() % 1664);
		switch (over[i] ? 9 : rand() % 8) {
		case 0:
			jobs_event(jobs, &(struct engine_event){.kind = ENGINE_ACCEPTED, .job = numbers[i]},
				   0);
			break;
		case 1:
			if (rand() % 20 == 0)
				jobs_unlisten(jobs, ears[i]->l.id);
			break;
		case 2:
			if (rand() % 30 == 0) {
				finish_job(numbers[i]);
				over[i] = true;
			}
			break;
		case 3:
			if (rand() % 60 == 0) {
				struct engine_event ev = {
					.kind = ENGINE_JOB_FAILED, .job = numbers[i], .code = E_DEADLINE};
				jobs_event(jobs, &ev, 0);
				over[i] = true;
			}
			break;
		case 9:
			break;
		default:
			if (ears[i]->n_tokens[0] < 200)
				tokens(numbers[i], 0, &id, 1);
		}
		for (int k = 0; k < n_sent; k++)
			engine_cmd_free(sent[k]);
		n_sent = 0;
		if (step % 500 == 0) {
			jobs_sweep(jobs, step);
			jobs_check(jobs);
		}
	}
	jobs_check(jobs);
	jobs_end(jobs, 0);
	for (int i = 0; i < N; i++) {
		const char *said = ears[i]->said.p;
		size_t len = strlen(said);
		cr_expect(len >= 4 && strcmp(said + len - 4, "gone") == 0, "%s", said);
		cr_expect_eq(strstr(said, "gone"), said + len - 4);
		ear_free(ears[i]);
	}
}
