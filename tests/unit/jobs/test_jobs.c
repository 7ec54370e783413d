/* The table of jobs: streams, stop strings, ends, attaching, keys, and retention. */
#include "tests/unit/jobs/jobs_rig.h"

#include <errno.h>
#include <math.h>

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
	forget_commands();
	demo_close(&demo);
}

TestSuite(jobs, .init = open_jobs, .fini = close_jobs, .timeout = 60);

static const char text[] = "Once upon a time there was a caf\xc3\xa9. \xe6\x9d\xb1\xe4\xba\xac! The end.";

/* --- streams --- */

Test(jobs, stream_is_accepted_then_deltas_then_done)
{
	struct recorder *e = recorder_new();
	uint64_t job = start(request(true), e);
	size_t n = generate(job, 0, text);
	output_done(job, 0, FINISH_STOP, 1663);
	cr_expect_eq(e->finish[0], FINISH_STOP);
	job_done(job, 0);
	cr_expect_eq(strncmp(e->events.p, "accepted delta delta ", 21), 0, "%s", e->events.p);
	cr_expect(strstr(e->events.p, "delta done gone"));
	cr_expect_str_eq(e->text[0].p, text);
	cr_expect_str_eq(e->done[0].p, text);
	cr_expect_eq(e->n_tokens[0], n);
	cr_expect_eq(e->completion_tokens, n);
	cr_expect(isnan(e->cumulative));
	recorder_free(e);
}

Test(jobs, without_stream_there_are_no_deltas)
{
	struct recorder *e = recorder_new();
	uint64_t job = start(request(false), e);
	generate_by(3, job, 0, text);
	finish_job(job);
	cr_expect_str_eq(e->events.p, "accepted done gone");
	cr_expect_str_eq(e->done[0].p, text);
	recorder_free(e);
}

Test(jobs, tokens_of_one_step_are_one_delta)
{
	struct recorder *e = recorder_new();
	uint64_t job = start(request(true), e);
	uint32_t ids[] = {300, 301, 302, 303};
	tokens(job, 0, ids, 4);
	cr_expect_str_eq(e->events.p, "accepted delta ");
	cr_expect_eq(e->n_tokens[0], 4);
	finish_job(job);
	recorder_free(e);
}

Test(jobs, outputs_are_independent)
{
	struct recorder *e = recorder_new();
	struct submit *s = request(true);
	s->params.n = 2;
	uint64_t job = start(s, e);
	generate(job, 1, "second");
	generate(job, 0, "first");
	output_done(job, 1, FINISH_LENGTH, -1);
	cr_expect_eq(e->finish[1], FINISH_LENGTH);
	cr_expect_eq(e->finish[0], FINISH_NONE);
	generate(job, 0, " and more");
	output_done(job, 0, FINISH_LENGTH, -1);
	job_done(job, 0);
	cr_expect_str_eq(e->text[0].p, "first and more");
	cr_expect_str_eq(e->done[1].p, "second");
	cr_expect_eq(e->completion_tokens, e->n_tokens[0] + e->n_tokens[1]);
	recorder_free(e);
}

/* Each token has log-probability -0.5, so the shortest text has the highest sum. */
Test(jobs, best_of_is_published_at_the_end)
{
	struct recorder *e = recorder_new();
	struct submit *s = request(true);
	s->params.n = 2;
	s->best_of = 4;
	uint64_t job = start(s, e);
	cr_expect_eq(sent[n_sent - 1]->params.n, 4);
	cr_expect_eq(sent[n_sent - 1]->params.logprobs, 0);
	generate(job, 0, "the longest text of them all, by far");
	generate(job, 1, "quite a long text, some words more");
	generate(job, 2, "short");
	generate(job, 3, "some words");
	for (uint32_t i = 0; i < 4; i++)
		output_done(job, i, FINISH_LENGTH, -1);
	cr_expect_str_eq(e->events.p, "accepted ");
	job_done(job, 0);
	cr_expect_str_eq(e->events.p, "accepted delta delta done gone");
	cr_expect_str_eq(e->done[0].p, "short");
	cr_expect_str_eq(e->done[1].p, "some words");
	cr_expect_str_eq(e->text[0].p, "short");
	cr_expect_str_eq(e->done[2].p, "");
	cr_expect_eq(e->n_logprobs, 0);
	cr_expect_float_eq(e->cumulative, -0.5 * e->n_done[0], 1e-6);
	cr_expect_eq(e->completion_tokens, e->n_done[0] + e->n_done[1]);
	recorder_free(e);
}

Test(jobs, beam_search_has_scores_without_logprobs)
{
	struct recorder *e = recorder_new();
	struct submit *s = request(true);
	s->params.n = 2;
	s->params.beam_width = 4;
	uint64_t job = start(s, e);
	cr_expect_eq(sent[n_sent - 1]->params.n, 2);
	cr_expect_eq(sent[n_sent - 1]->params.beam_width, 4);
	generate(job, 0, "the best one");
	generate(job, 1, "the second");
	output_done(job, 0, FINISH_LENGTH, -1);
	output_done(job, 1, FINISH_STOP, -1);
	job_done(job, 0);
	cr_expect_str_eq(e->done[0].p, "the best one");
	cr_expect_eq(e->n_logprobs, 0);
	cr_expect_float_eq(e->cumulative, -0.5 * e->n_done[0], 1e-6);
	recorder_free(e);
}

Test(jobs, attach_before_the_choice_gets_its_text_at_the_end)
{
	struct recorder *e = recorder_new(), *late = recorder_new(), *later = recorder_new();
	struct submit *s = request(false);
	s->best_of = 2;
	uint64_t job = start(s, e);
	generate(job, 0, "one two three");
	cr_assert_eq(jobs_attach(jobs, jobs_find(jobs, e->job), &late->l, true, NULL), 0);
	generate(job, 1, "one");
	cr_expect_eq(job_n_outputs(jobs_find(jobs, e->job)), 1);
	output_done(job, 0, FINISH_LENGTH, -1);
	output_done(job, 1, FINISH_LENGTH, -1);
	job_done(job, 0);
	cr_expect_str_eq(late->events.p, "delta done gone");
	cr_expect_str_eq(late->text[0].p, "one");
	cr_assert_eq(jobs_attach(jobs, jobs_find(jobs, e->job), &later->l, true, NULL), 0);
	cr_expect_str_eq(later->text[0].p, "one");
	recorder_free(e);
	recorder_free(late);
	recorder_free(later);
}

Test(jobs, logprobs_come_with_deltas_and_add_up)
{
	struct recorder *e = recorder_new();
	struct submit *s = request(true);
	s->params.logprobs = 1;
	uint64_t job = start(s, e);
	size_t n = generate_by(2, job, 0, text);
	finish_job(job);
	cr_expect_eq(e->n_logprobs, n);
	cr_expect_float_eq(e->cumulative, -0.5 * (double)n, 1e-6);
	recorder_free(e);
}

Test(jobs, prompt_logprobs_are_in_done)
{
	struct recorder *e = recorder_new();
	struct submit *s = request(false);
	s->params.prompt_logprobs = 0;
	uint64_t job = start(s, e);
	struct engine_token t[2] = {{.token = 5, .logprob = -1, .rank = 2},
				    {.token = 6, .logprob = -2, .rank = 9}};
	struct engine_event ev = {.kind = ENGINE_PROMPT_LOGPROBS, .job = job, .tokens = t, .n_tokens = 2};
	jobs_event(jobs, &ev, 0);
	finish_job(job);
	cr_expect_eq(e->n_prompt_logprobs, 2);
	recorder_free(e);
}

/* --- stop strings --- */

static void stopped(size_t piece, bool include, const char *expect)
{
	struct recorder *e = recorder_new();
	struct submit *s = request(true);
	add_stop(s, "never");
	add_stop(s, "was a c");
	s->include_stop = include;
	uint64_t job = start(s, e);
	int before = n_sent;
	generate_by(piece, job, 0, text);
	cr_expect_eq(e->finish[0], FINISH_STOP);
	cr_assert_eq(n_sent, before + 1);
	cr_expect_eq(sent[before]->kind, ENGINE_STOP);
	cr_expect_eq(sent[before]->index, 0);
	generate(job, 0, "late text is not shown");
	output_done(job, 0, FINISH_ABORT, -1);
	job_done(job, 0);
	cr_expect_str_eq(e->text[0].p, expect);
	cr_expect_str_eq(e->done[0].p, expect);
	cr_expect_eq(e->done_finish[0], FINISH_STOP);
	cr_expect_str_eq(e->stop_string, "was a c");
	cr_expect_eq(e->n_tokens[0], e->n_done[0]);
	cr_expect_eq(e->completion_tokens, e->n_done[0]);
	/* Every remaining token adds some text. */
	struct buf all = {0}, but_one = {0};
	tokenizer_decode(demo.tokenizer, e->tokens[0], e->n_tokens[0], true, &all);
	tokenizer_decode(demo.tokenizer, e->tokens[0], e->n_tokens[0] - 1, true, &but_one);
	cr_expect_eq(strncmp(all.p, expect, strlen(expect)), 0);
	cr_expect_lt(but_one.len, strlen(expect));
	buf_fini(&all);
	buf_fini(&but_one);
	recorder_free(e);
}

Test(jobs, stop_string_is_cut_off_with_its_tokens)
{
	for (size_t piece = 1; piece < 6; piece++)
		stopped(piece, false, "Once upon a time there ");
}

Test(jobs, include_stop_str_in_output_keeps_it)
{
	for (size_t piece = 1; piece < 6; piece++)
		stopped(piece, true, "Once upon a time there was a c");
}

Test(jobs, held_text_is_shown_at_the_end)
{
	struct recorder *e = recorder_new();
	struct submit *s = request(true);
	add_stop(s, "time travel");
	uint64_t job = start(s, e);
	generate(job, 0, "Once upon a time");
	cr_expect_str_neq(e->text[0].p, "Once upon a time");
	finish_job(job);
	cr_expect_str_eq(e->text[0].p, "Once upon a time");
	cr_expect_eq(e->done_finish[0], FINISH_LENGTH);
	recorder_free(e);
}

Test(jobs, stop_strings_are_ignored_within_min_tokens)
{
	struct recorder *e = recorder_new();
	struct submit *s = request(true);
	add_stop(s, "stop");
	struct token_ids t = encode("stop and stop again");
	s->params.min_tokens = (uint32_t)t.n / 2;
	uint64_t job = start(s, e);
	for (size_t i = 0; i < t.n; i++)
		tokens(job, 0, t.ids + i, 1);
	finish_job(job);
	cr_expect_str_eq(e->done[0].p, "stop and ");
	token_ids_fini(&t);
	recorder_free(e);
}

/* With random texts, stop strings and message sizes, shown text is never withdrawn, and the output ends where
 * a search of the whole text finds the stop string. */
Test(jobs, streams_with_stop_strings_agree_with_the_whole_text)
{
	srand(3);
	for (int round = 0; round < 300; round++) {
		char whole[200];
		struct recorder *e = recorder_new();
		struct submit *s = request(true);
		static const char *const words[] = {
			"the ", "cat", "\xc3\xa9", " sat", "\n", "\xf0\x9f\x98\x80", "on", " "};
		whole[0] = 0;
		for (int i = 0; i < 30; i++)
			strncat(whole, words[rand() % 8], sizeof whole - strlen(whole) - 1);
		size_t at = (size_t)rand() % (strlen(whole) - 12), len = 1 + (size_t)rand() % 10;
		while (((unsigned char)whole[at] & 0xc0) == 0x80)
			at++;
		while (((unsigned char)whole[at + len] & 0xc0) == 0x80)
			len++;
		char stop[32];
		snprintf(stop, sizeof stop, "%.*s", (int)len, whole + at);
		add_stop(s, stop);
		uint64_t job = start(s, e);
		generate_by(1 + (size_t)rand() % 4, job, 0, whole);
		finish_job(job);
		whole[strstr(whole, stop) - whole] = 0;
		cr_assert_str_eq(e->done[0].p, whole);
		cr_assert_str_eq(e->text[0].p, whole);
		cr_assert_eq(e->n_tokens[0], e->n_done[0]);
		recorder_free(e);
	}
}

/* --- ends of jobs --- */

Test(jobs, refused_job_leaves_no_record)
{
	struct recorder *e = recorder_new();
	struct submit *s = request(true);
	s->key = xstrdup("k");
	jobs_submit(jobs, &s, &e->l, 0);
	struct engine_event ev = {
		.kind = ENGINE_REFUSED, .job = sent[0]->job, .code = E_OVERLOADED, .why = "full"};
	jobs_event(jobs, &ev, 0);
	cr_expect_str_eq(e->events.p, "error gone");
	cr_expect_eq(e->code, E_OVERLOADED);
	struct jobs_counts c;
	jobs_counts(jobs, &c);
	cr_expect_eq(c.n_finished + c.n_queued + c.n_running, 0);
	/* The key is free again. */
	struct recorder *f = recorder_new();
	struct submit *t = request(true);
	t->key = xstrdup("k");
	start(t, f);
	cr_expect_str_eq(f->events.p, "accepted ");
	jobs_end(jobs, 0);
	recorder_free(e);
	recorder_free(f);
}

Test(jobs, failed_job_stays_an_error)
{
	struct recorder *e = recorder_new(), *f = recorder_new(), *g = recorder_new();
	uint64_t job = start(request(true), e);
	generate(job, 0, "Once");
	struct engine_event ev = {
		.kind = ENGINE_JOB_FAILED, .job = job, .code = E_WORKER_LOST, .why = "no worker"};
	jobs_event(jobs, &ev, 0);
	cr_expect(strstr(e->events.p, "error gone"));
	cr_expect_eq(e->code, E_WORKER_LOST);
	struct job *j = jobs_find(jobs, e->job);
	cr_assert(j && job_finished(j));
	jobs_result(jobs, j, &f->l);
	cr_expect_str_eq(f->events.p, "error gone");
	cr_expect_str_eq(f->why, "no worker");
	jobs_attach(jobs, j, &g->l, true, NULL);
	cr_expect_str_eq(g->events.p, "error gone");
	recorder_free(e);
	recorder_free(f);
	recorder_free(g);
}

Test(jobs, cancel_is_sent_once_and_ends_in_done)
{
	struct recorder *e = recorder_new();
	uint64_t job = start(request(true), e);
	generate(job, 0, "Once upon");
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
	recorder_free(e);
}

static struct buf order;

static void note(void *user, const struct job_event *ev)
{
	(void)ev;
	buf_puts(&order, user);
}

Test(jobs, listeners_get_an_event_in_the_order_in_which_they_came)
{
	struct recorder *e = recorder_new();
	uint64_t job = start(request(false), e);
	for (const char *name = "a\0b\0c\0"; *name; name += 2) {
		struct listener l = {.event = note, .user = (char *)name, .id = ++last_listener};
		cr_assert_eq(jobs_attach(jobs, jobs_find(jobs, e->job), &l, false, NULL), 0);
	}
	jobs_unlisten(jobs, last_listener - 1);
	finish_job(job);
	cr_expect_str_eq(order.p, "ac");
	buf_fini(&order);
	recorder_free(e);
}

Test(jobs, job_without_listeners_is_cancelled_unless_kept)
{
	struct recorder *e = recorder_new(), *f = recorder_new();
	start(request(true), e);
	struct submit *s = request(true);
	s->keep = true;
	start(s, f);
	int before = n_sent;
	jobs_unlisten(jobs, e->l.id);
	cr_expect_str_eq(e->events.p, "accepted gone");
	cr_assert_eq(n_sent, before + 1);
	cr_expect_eq(sent[before]->kind, ENGINE_CANCEL);
	jobs_unlisten(jobs, f->l.id);
	jobs_unlisten(jobs, f->l.id);
	cr_expect_eq(n_sent, before + 1);
	jobs_check(jobs);
	jobs_end(jobs, 0);
	recorder_free(e);
	recorder_free(f);
}

Test(jobs, stopping_the_service_ends_every_job)
{
	struct recorder *e = recorder_new(), *f = recorder_new();
	uint64_t job = start(request(true), e);
	generate(job, 0, "Once");
	struct submit *s = request(true);
	jobs_submit(jobs, &s, &f->l, 0);
	jobs_end(jobs, 0);
	cr_expect(strstr(e->events.p, "done gone"));
	cr_expect_eq(e->done_finish[0], FINISH_ABORT);
	cr_expect_str_eq(f->events.p, "error gone");
	recorder_free(e);
	recorder_free(f);
}

/* --- attaching, results, keys --- */

Test(jobs, attach_in_the_middle_misses_nothing)
{
	struct recorder *e = recorder_new(), *f = recorder_new();
	uint64_t job = start(request(false), e);
	generate(job, 0, "Once upon");
	cr_assert_eq(jobs_attach(jobs, jobs_find(jobs, e->job), &f->l, true, NULL), 0);
	generate(job, 0, " a time");
	finish_job(job);
	cr_expect_str_eq(f->text[0].p, "Once upon a time");
	cr_expect_str_eq(f->done[0].p, "Once upon a time");
	cr_expect_str_eq(e->events.p, "accepted done gone");
	recorder_free(e);
	recorder_free(f);
}

Test(jobs, attach_from_any_token_continues_there)
{
	struct recorder *e = recorder_new();
	uint64_t job = start(request(true), e);
	size_t n = generate(job, 0, text);
	finish_job(job);
	for (uint32_t from = 0; from <= n + 2; from++) {
		struct recorder *f = recorder_new();
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
		recorder_free(f);
	}
	recorder_free(e);
}

/* A listener that leaves at any point, and a second listener that resumes after the first one's tokens,
 * together get the whole text. This holds also if text was held back for a stop string or for an incomplete
 * character. */
static void leave_and_go_on(const struct token_ids *ids, size_t leave, const char *stop, const char *expect)
{
	struct recorder *e = recorder_new(), *f = recorder_new();
	struct submit *s = request(true);
	s->keep = true;
	add_stop(s, stop);
	uint64_t job = start(s, e);
	for (size_t i = 0; i < leave && e->finish[0] == FINISH_NONE; i++)
		tokens(job, 0, ids->ids + i, 1);
	jobs_unlisten(jobs, e->l.id);
	for (size_t i = leave; i < ids->n; i++)
		tokens(job, 0, ids->ids + i, 1);
	finish_job(job);
	uint32_t from = f->n_tokens[0] = e->n_tokens[0];
	cr_assert_eq(jobs_attach(jobs, jobs_find(jobs, e->job), &f->l, true, &from), 0);
	buf_put(&e->text[0], f->text[0].p, f->text[0].len);
	cr_assert_str_eq(e->text[0].p, expect, "left after %zu tokens, of which it had %u", leave, from);
	cr_assert_str_eq(f->done[0].p, expect);
	cr_assert_eq(f->n_tokens[0], f->n_done[0]);
	recorder_free(e);
	recorder_free(f);
}

Test(jobs, held_text_is_not_lost_between_two_listeners)
{
	static const char said[] = "Once upon a time there was a cat";
	struct token_ids ids = encode(said), smile = encode("a smile \xf0\x9f\x98\x80");
	struct buf cut = {0};
	for (const char *at = said; at[1]; at++) {
		char never[8], some[8];
		snprintf(never, sizeof never, "%.3s\x01", at); /* its start occurs often, the whole never */
		snprintf(some, sizeof some, "%.4s", at);
		buf_clear(&cut);
		buf_put(&cut, said, (size_t)(strstr(said, some) - said));
		buf_puts(&cut, "");
		for (size_t leave = 0; leave <= ids.n; leave++) {
			leave_and_go_on(&ids, leave, never, said);
			leave_and_go_on(&ids, leave, some, cut.p);
		}
	}
	smile.n--; /* its last bytes never arrive */
	tokenizer_decode(demo.tokenizer, smile.ids, smile.n, true, (buf_clear(&cut), &cut));
	for (size_t leave = 0; leave <= smile.n; leave++)
		leave_and_go_on(&smile, leave, "never", cut.p);
	buf_fini(&cut);
	token_ids_fini(&ids);
	token_ids_fini(&smile);
}

Test(jobs, attach_beyond_the_last_token_waits)
{
	struct recorder *e = recorder_new(), *f = recorder_new();
	uint64_t job = start(request(true), e);
	uint32_t from = 4, a[] = {300, 301, 302}, b[] = {303, 304, 305, 306};
	f->n_tokens[0] = from;
	tokens(job, 0, a, 3);
	cr_assert_eq(jobs_attach(jobs, jobs_find(jobs, e->job), &f->l, true, &from), 0);
	tokens(job, 0, b, 1);
	cr_expect_str_eq(f->events.p, "");
	tokens(job, 0, b + 1, 3);
	finish_job(job);
	cr_expect_eq(f->n_tokens[0], 7);
	cr_expect_eq(memcmp(f->tokens[0] + 4, b + 1, sizeof b - sizeof *b), 0);
	recorder_free(e);
	recorder_free(f);
}

Test(jobs, listeners_are_bounded)
{
	struct recorder *e = recorder_new(), *f = recorder_new();
	start(request(false), e);
	struct job *j = jobs_find(jobs, e->job);
	struct listener l = {.event = recorder_event, .user = f};
	for (int i = 1; i < JOBS_LISTENERS_MAX; i++) {
		l.id = ++last_listener;
		cr_assert_eq(jobs_attach(jobs, j, &l, false, NULL), 0);
	}
	l.id = ++last_listener;
	cr_expect_eq(jobs_attach(jobs, j, &l, false, NULL), -EBUSY);
	jobs_end(jobs, 0);
	recorder_free(e);
	recorder_free(f);
}

static struct submit *keyed(const char *key, bool stream)
{
	struct submit *s = request(stream);
	s->key = xstrdup(key);
	return s;
}

Test(jobs, same_key_is_the_same_job)
{
	struct recorder *e = recorder_new(), *f = recorder_new(), *g = recorder_new(), *h = recorder_new();
	struct submit *s = keyed("k", true), *t = keyed("k", true), *u = keyed("k", true),
		      *v = keyed("other", false);
	jobs_submit(jobs, &s, &e->l, 0);
	jobs_submit(jobs, &t, &f->l, 0);
	cr_assert_eq(n_sent, 1);
	uint64_t job = sent[0]->job;
	accept_job(job);
	generate_by(2, job, 0, text);
	finish_job(job);
	jobs_submit(jobs, &u, &g->l, 0);
	cr_expect_str_eq(e->job, f->job);
	cr_expect_str_eq(e->job, g->job);
	cr_expect_str_eq(f->text[0].p, text);
	cr_expect_str_eq(g->events.p, "accepted delta done gone");
	cr_expect_str_eq(g->text[0].p, text);
	start(v, h);
	cr_expect_str_neq(h->job, e->job);
	jobs_end(jobs, 0);
	recorder_free(e);
	recorder_free(f);
	recorder_free(g);
	recorder_free(h);
}

Test(jobs, unknown_ids_are_not_found)
{
	struct recorder *e = recorder_new();
	start(request(false), e);
	cr_assert_eq(strlen(e->job), 32);
	cr_expect_not_null(jobs_find(jobs, e->job));
	cr_expect_null(jobs_find(jobs, ""));
	cr_expect_null(jobs_find(jobs, "0123456789abcdef0123456789abcdef"));
	cr_expect_null(jobs_find(jobs, "zz"));
	e->job[31] = e->job[31] == '0' ? '1' : '0';
	cr_expect_null(jobs_find(jobs, e->job));
	jobs_end(jobs, 0);
	recorder_free(e);
}

/* --- retention --- */

Test(jobs, finished_jobs_are_kept_for_a_time)
{
	struct recorder *e = recorder_new();
	uint64_t job = start(request(false), e);
	output_done(job, 0, FINISH_LENGTH, -1);
	job_done(job, 1000);
	jobs_sweep(jobs, 1000 + demo.svc.keep_finished_us - 1);
	cr_expect_not_null(jobs_find(jobs, e->job));
	jobs_sweep(jobs, 1000 + demo.svc.keep_finished_us);
	cr_expect_null(jobs_find(jobs, e->job));
	jobs_check(jobs);
	recorder_free(e);
}

Test(jobs, finished_jobs_are_bounded_by_max_finished)
{
	demo.svc.max_finished = 3;
	char first[JOBS_ID_SIZE] = "", last[JOBS_ID_SIZE] = "";
	for (int i = 0; i < 5; i++) {
		struct recorder *e = recorder_new();
		struct submit *s = keyed(i ? "b" : "a", false);
		if (i) {
			free(s->key);
			s->key = NULL;
		}
		finish_job(start(s, e));
		strcpy(i ? last : first, e->job);
		recorder_free(e);
	}
	jobs_sweep(jobs, 1);
	struct jobs_counts c;
	jobs_counts(jobs, &c);
	cr_expect_eq(c.n_finished, 3);
	cr_expect_null(jobs_find(jobs, first));
	cr_expect_not_null(jobs_find(jobs, last));
	jobs_check(jobs);
}

Test(jobs, while_draining_new_jobs_are_refused_and_running_ones_finish)
{
	struct recorder *running = recorder_new(), *late = recorder_new(), *again = recorder_new();
	struct submit *s = request(true);
	s->key = xstrdup("mine");
	uint64_t job = start(s, running);
	cr_expect_eq(jobs_n_draining(jobs), 1);
	jobs_drain(jobs);
	s = request(true);
	jobs_submit(jobs, &s, &late->l, 0);
	cr_expect_str_eq(late->events.p, "error gone");
	cr_expect_eq(late->code, E_NOT_READY);
	/* The key finds the old job. */
	s = request(true);
	s->key = xstrdup("mine");
	jobs_submit(jobs, &s, &again->l, 0);
	cr_expect_str_eq(again->job, running->job);
	generate(job, 0, text);
	finish_job(job);
	cr_expect(strstr(running->events.p, "done gone") && strstr(again->events.p, "done gone"));
	cr_expect_eq(jobs_n_draining(jobs), 0);
	recorder_free(running);
	recorder_free(late);
	recorder_free(again);
}

Test(jobs, table_lists_jobs_with_their_seeds)
{
	struct recorder *e = recorder_new();
	struct submit *s = request(true);
	s->params.seed = 77;
	s->user = xstrdup("me");
	uint64_t job = start(s, e);
	generate(job, 0, "Once");
	json_t *t = jobs_table(jobs, NULL, 10, 0), *row = json_array_get(t, 0);
	cr_assert_eq(json_array_size(t), 1);
	cr_expect_str_eq(json_string_value(json_object_get(row, "job")), e->job);
	cr_expect_str_eq(json_string_value(json_object_get(row, "state")), "running");
	cr_expect_str_eq(json_string_value(json_object_get(row, "user")), "me");
	cr_expect_eq(json_integer_value(json_object_get(row, "seed")), 77);
	json_decref(t);
	finish_job(job);
	recorder_free(e);
}

/* A job is charged to its owner's account and to the user within it. */
Test(jobs, jobs_are_charged_to_accounts_and_users)
{
	static const struct {
		const char *owner, *user;
	} rows[] = {{NULL, NULL},    {NULL, "u"},   {"~alice", NULL}, {"~alice", "u"},
		    {"~alice", "v"}, {"~bob", "u"}, {"alice", "u"},   {"alice", "v"}};
	enum { N = sizeof rows / sizeof *rows };
	uint64_t account[N], user[N];
	for (int i = 0; i < N; i++) {
		struct recorder *e = recorder_new();
		struct submit *s = request(true);
		s->owner = rows[i].owner ? xstrdup(rows[i].owner) : NULL;
		s->user = rows[i].user ? xstrdup(rows[i].user) : NULL;
		uint64_t job = start(s, e);
		account[i] = sent[n_sent - 1]->account;
		user[i] = sent[n_sent - 1]->user;
		finish_job(job);
		recorder_free(e);
	}
	cr_expect(account[0] == 0 && account[1] == 0, "without a key: no account");
	cr_expect(account[2] != 0 && account[2] == account[3] && account[3] == account[4]);
	cr_expect(account[5] != account[2] && account[6] != account[2] && account[6] == account[7]);
	cr_expect(user[1] != user[0] && user[3] != user[2] && user[4] != user[3] && user[7] != user[6]);
}

Test(jobs, events_of_unknown_jobs_and_outputs_are_ignored)
{
	struct recorder *e = recorder_new();
	uint64_t job = start(request(true), e);
	uint32_t id = 300;
	tokens(job + 1, 0, &id, 1);
	tokens(job, 1, &id, 1);
	output_done(job, 9, FINISH_STOP, -1);
	output_done(0, 0, FINISH_STOP, -1);
	job_done(job + 7, 0);
	cr_expect_str_eq(e->events.p, "accepted ");
	finish_job(job);
	finish_job(job);
	cr_expect_str_eq(e->events.p, "accepted delta done gone");
	recorder_free(e);
}

/* Random sequences of events for many jobs: the table's invariants hold, and each listener gets exactly one
 * end. */
Test(jobs, random_lives_end_exactly_once)
{
	enum { N = 200 };
	static struct recorder *listeners[N];
	static uint64_t numbers[N];
	static bool over[N];
	srand(11);
	for (int i = 0; i < N; i++) {
		struct submit *s = request(rand() % 2);
		s->keep = rand() % 2;
		listeners[i] = recorder_new();
		jobs_submit(jobs, &s, &listeners[i]->l, 0);
		numbers[i] = sent[n_sent - 1]->job;
		forget_commands();
	}
	for (int step = 0; step < 20000; step++) {
		int i = rand() % N;
		uint32_t id = (uint32_t)(rand() % 1664);
		switch (over[i] ? 9 : rand() % 8) {
		case 0:
			accept_job(numbers[i]);
			break;
		case 1:
			if (rand() % 20 == 0)
				jobs_unlisten(jobs, listeners[i]->l.id);
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
			if (listeners[i]->n_tokens[0] < 200)
				tokens(numbers[i], 0, &id, 1);
		}
		forget_commands();
		if (step % 500 == 0) {
			jobs_sweep(jobs, step);
			jobs_check(jobs);
		}
	}
	jobs_check(jobs);
	jobs_end(jobs, 0);
	for (int i = 0; i < N; i++) {
		const char *events = listeners[i]->events.p;
		size_t len = strlen(events);
		cr_expect(len >= 4 && strcmp(events + len - 4, "gone") == 0, "%s", events);
		cr_expect_eq(strstr(events, "gone"), events + len - 4);
		recorder_free(listeners[i]);
	}
}
