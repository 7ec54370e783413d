/* Durable jobs through several lives of the controller. */
#include "tests/durable_rig.h"

TestSuite(durable, .init = init, .fini = fini, .timeout = 120);

/* --- acceptance --- */

Test(durable, is_accepted_when_engine_and_disk_have_it)
{
	struct ear *e = ear_new();
	struct submit *s = request(NULL);
	jobs_submit(jobs, &s, &e->l, 0);
	cr_expect_str_eq(e->said.p, "");
	accept_job(sent[0]->job);
	say(sent[0]->job, 0, "early");
	cr_expect_str_eq(e->said.p, "", "told before it is on the disk: %s", e->said.p);
	settle(1);
	cr_expect_eq(atomic_load(&disk.unsynced), 0);
	cr_expect_eq(strncmp(e->said.p, "accepted delta ", 15), 0, "%s", e->said.p);
	cr_expect_str_eq(e->text[0].p, "early");
	stop_service();
	cr_expect_eq(e->code, E_NOT_READY);
	cr_expect(strstr(e->why, "goes on when it is back"), "%s", e->why);
	ear_free(e);
}

Test(durable, that_ends_before_it_is_on_the_disk_is_accepted_first)
{
	struct ear *e = ear_new();
	struct submit *s = request(NULL);
	jobs_submit(jobs, &s, &e->l, 0);
	uint64_t job = sent[0]->job;
	accept_job(job);
	say(job, 0, "quick");
	output_done(job, 0, FINISH_LENGTH, -1);
	job_done(job);
	cr_expect_str_eq(e->said.p, "");
	settle(2);
	cr_expect_eq(strncmp(e->said.p, "accepted delta ", 15), 0, "%s", e->said.p);
	cr_expect(strstr(e->said.p, "done gone"));
	cr_expect_str_eq(e->done[0].p, "quick");
	ear_free(e);
}

Test(durable, that_the_engine_refuses_leaves_no_trace)
{
	struct ear *e = ear_new();
	struct submit *s = request("k");
	jobs_submit(jobs, &s, &e->l, 0);
	struct engine_event no = {.kind = ENGINE_REFUSED, .job = sent[0]->job, .code = E_OVERLOADED};
	jobs_event(jobs, &no, 0);
	cr_expect_eq(e->code, E_OVERLOADED);
	reborn();
	cr_expect_eq(n_sent, 0);
	ear_free(e);
}

Test(durable, without_a_journal_is_refused_with_the_remedy)
{
	struct jobs *plain = jobs_new(&demo.svc, take_command, NULL);
	struct ear *e = ear_new();
	struct submit *s = request(NULL);
	jobs_submit(plain, &s, &e->l, 0);
	cr_expect_eq(e->code, E_BAD_REQUEST);
	cr_expect(strstr(e->why, "durable: this service keeps no journal; start it with --journal"), "%s",
		  e->why);
	jobs_free(plain);
	ear_free(e);
}

Test(durable, is_refused_while_the_disk_is_full_and_what_runs_goes_on)
{
	struct ear *a = ear_new(), *b = ear_new(), *c = ear_new(), *d = ear_new();
	uint64_t first = start(request("a"), a);
	atomic_store(&disk.fail_write, SQLITE_FULL);
	struct submit *s = request("b");
	jobs_submit(jobs, &s, &b->l, 0);
	accept_job(sent[n_sent - 1]->job);
	settle(1);
	cr_expect_eq(b->code, E_INTERNAL);
	cr_expect(strstr(b->why, "durable: ") && strstr(b->why, "the disk is full"), "%s", b->why);
	cr_expect_eq(sent[n_sent - 1]->kind, ENGINE_CANCEL, "the engine computes it nevertheless");
	s = request("c");
	jobs_submit(jobs, &s, &c->l, 0);
	cr_expect_eq(c->code, E_INTERNAL, "%s", c->said.p);
	say(first, 0, text);
	jobs_save(jobs);
	output_done(first, 0, FINISH_LENGTH, -1);
	job_done(first);
	cr_expect_str_eq(a->done[0].p, text);
	atomic_store(&disk.fail_write, 0);
	settle(1); /* its end, tried again */
	start(request("d"), d);
	reborn();
	struct ear *e = ear_new();
	jobs_result(jobs, find(a->job), &e->l);
	cr_expect_str_eq(e->done[0].p, text);
	cr_expect_null(jobs_find(jobs, b->job[0] ? b->job : "00000000000000000000000000000000"));
	ear_free(a);
	ear_free(b);
	ear_free(c);
	ear_free(d);
	ear_free(e);
}

Test(durable, one_that_was_refused_when_the_service_ended_is_not_carried_out)
{
	struct ear *e = ear_new();
	struct submit *s = request(NULL);
	jobs_submit(jobs, &s, &e->l, 0);
	accept_job(sent[0]->job);
	stop_service();
	cr_expect_eq(e->code, E_INTERNAL);
	cr_assert_eq(begin_life(), 0, "%s", why);
	cr_expect_eq(n_sent, 0);
	ear_free(e);
}

/* --- the end --- */

static const char *state_of(const char *id)
{
	static char state[16];
	json_t *rows = jobs_table(jobs, NULL, 10, 0);
	state[0] = '\0';
	for (size_t i = 0; i < json_array_size(rows); i++) {
		const json_t *row = json_array_get(rows, i);
		if (strcmp(json_string_value(json_object_get(row, "job")), id) == 0)
			snprintf(state, sizeof state, "%s", json_string_value(json_object_get(row, "state")));
	}
	json_decref(rows);
	return state;
}

Test(durable, is_done_when_its_end_is_on_the_disk)
{
	struct ear *e = ear_new(), *f = ear_new();
	uint64_t job = start(request("k"), e);
	say(job, 0, "all");
	output_done(job, 0, FINISH_LENGTH, -1);
	job_done(job);
	cr_expect_str_eq(e->text[0].p, "all", "the text need not wait");
	cr_expect_null(strstr(e->said.p, "done"), "told before it is on the disk: %s", e->said.p);
	cr_expect_not(job_finished(find(e->job)));
	cr_expect_str_eq(state_of(e->job), "running");
	int n = n_sent;
	jobs_cancel(jobs, find(e->job));
	cr_expect_eq(n_sent, n, "cancelled after its end");
	cr_assert_eq(jobs_attach(jobs, find(e->job), &f->l, true, NULL), 0);
	cr_expect_null(strstr(f->said.p, "done"));
	settle(1);
	cr_expect_eq(atomic_load(&disk.unsynced), 0);
	cr_expect(strstr(e->said.p, "done gone") && strstr(f->said.p, "done gone"));
	cr_expect_str_eq(f->done[0].p, "all");
	cr_expect_str_eq(state_of(e->job), "done");
	reborn();
	cr_expect_eq(n_sent, 0, "it goes on after it was said to be done");
	cr_expect_str_eq(state_of(e->job), "done");
	ear_free(e);
	ear_free(f);
}

Test(durable, a_disk_that_fails_with_its_end_does_not_hold_it_back)
{
	struct ear *e = ear_new(), *f = ear_new();
	uint64_t job = start(request("k"), e);
	say(job, 0, "all");
	atomic_store(&disk.fail_write, SQLITE_FULL);
	output_done(job, 0, FINISH_LENGTH, -1);
	job_done(job);
	settle(1); /* the disk has failed */
	cr_expect(strstr(e->said.p, "done gone"), "%s", e->said.p);
	cr_expect_str_eq(e->done[0].p, "all");
	demo.svc.keep_finished_us = 0;
	jobs_sweep(jobs, 1000);
	find(e->job);
	atomic_store(&disk.fail_write, 0);
	settle(1); /* it writes again */
	reborn();
	cr_expect_eq(n_sent, 0);
	jobs_result(jobs, find(e->job), &f->l);
	cr_expect_str_eq(f->done[0].p, "all");
	ear_free(e);
	ear_free(f);
}

Test(durable, an_orderly_end_says_done_of_nothing_that_is_not_on_the_disk)
{
	struct ear *e = ear_new();
	uint64_t job = start(request("k"), e);
	say(job, 0, "all");
	output_done(job, 0, FINISH_LENGTH, -1);
	job_done(job);
	stop_service();
	cr_expect_null(strstr(e->said.p, "done"), "%s", e->said.p);
	cr_expect_eq(e->code, E_NOT_READY);
	cr_assert_eq(begin_life(), 0, "%s", why);
	cr_expect_eq(n_sent, 0);
	cr_expect_str_eq(state_of(e->job), "done");
	ear_free(e);
}

/* Its end is nowhere but in memory: it stays, and nothing else because of it. */
Test(durable, one_that_the_disk_does_not_take_holds_up_no_sweep)
{
	struct ear *e = ear_new(), *f = ear_new();
	uint64_t job = start(request("k"), e);
	struct submit *s = request(NULL);
	s->durable = false;
	jobs_submit(jobs, &s, &f->l, 0);
	uint64_t other = sent[n_sent - 1]->job;
	accept_job(other);
	atomic_store(&disk.fail_write, SQLITE_FULL);
	output_done(job, 0, FINISH_LENGTH, -1);
	job_done(job);
	settle(1);
	output_done(other, 0, FINISH_LENGTH, -1);
	job_done(other);
	demo.svc.keep_finished_us = 0;
	jobs_sweep(jobs, 1000);
	jobs_check(jobs);
	find(e->job);
	cr_expect_null(jobs_find(jobs, f->job), "it is kept for the sake of another");
	atomic_store(&disk.fail_write, 0);
	settle(1);
	jobs_sweep(jobs, 1000);
	find(e->job); /* on the disk */
	ear_free(e);
	ear_free(f);
}

Test(durable, tokens_that_the_disk_does_not_take_are_not_tried_again_at_once)
{
	struct ear *e = ear_new(), *f = ear_new();
	struct submit *s = request("k");
	s->params.max_tokens = 6000;
	uint64_t job = start(s, e);
	atomic_store(&disk.fail_write, SQLITE_FULL);
	s = request("b"); /* it finds that out */
	jobs_submit(jobs, &s, &f->l, 0);
	accept_job(sent[n_sent - 1]->job);
	settle(1);
	uint32_t ids[100];
	for (int i = 0; i < 100; i++)
		ids[i] = 300;
	e->n_tokens = 0;
	s = NULL;
	for (int i = 0; i < 50; i++) {
		tokens(job, 0, ids, 100);
		e->n_tokens = 0;
	}
	int64_t now = clock_us();
	jobs_save(jobs);
	cr_expect_gt(jobs_save_at(jobs), now);
	atomic_store(&disk.fail_write, 0);
	ear_free(e);
	ear_free(f);
}

/* --- another life --- */

Test(durable, goes_on_with_the_request_and_the_tokens_it_had)
{
	struct ear *e = ear_new(), *f = ear_new();
	uint64_t job = start(request("k"), e);
	uint32_t n = say(job, 0, "Once upon a");
	jobs_save(jobs);
	say(job, 0, " time that is lost");
	reborn();
	cr_assert_eq(n_sent, 1);
	struct engine_cmd *c = sent[0];
	cr_expect_eq(c->kind, ENGINE_SUBMIT);
	cr_expect(c->resumed && c->durable);
	cr_expect(c->n_tokens == 3 && c->tokens[1] == 11 && c->tokens[2] == 12);
	cr_expect_eq(c->params.seed, 7);
	cr_expect_eq(c->params.max_tokens, 100);
	cr_expect_float_eq(c->params.temperature, 0.5f, 1e-9);
	cr_expect(c->params.n_stop_ids == 1 && c->params.stop_ids[0] == 1663);
	cr_expect_eq(c->priority, -3);
	cr_expect_neq(c->user, 0);
	cr_assert_eq(c->n_had[0], n);
	cr_expect_eq(memcmp(c->had, e->tokens, n * sizeof *c->had), 0);
	cr_assert_eq(jobs_attach(jobs, find(e->job), &f->l, true, NULL), 0);
	cr_expect_str_eq(f->text[0].p, "Once upon a");
	say(c->job, 0, " time");
	output_done(c->job, 0, FINISH_LENGTH, -1);
	job_done(c->job);
	settle(1);
	cr_expect_str_eq(f->done[0].p, "Once upon a time");
	cr_expect(strstr(f->said.p, "done gone"));
	ear_free(e);
	ear_free(f);
}

Test(durable, goes_on_after_many_crashes)
{
	struct ear *e = ear_new(), *f = ear_new();
	struct submit *s = request("k");
	s->params.logprobs = 1;
	start(s, e);
	struct token_ids ids = encode(text);
	for (size_t i = 0; i < ids.n; i++) {
		uint64_t job = sent[0]->job;
		cr_assert_eq(sent[0]->n_had ? sent[0]->n_had[0] : 0, i);
		tokens(job, 0, ids.ids + i, 1);
		jobs_save(jobs);
		if (i % 3 == 0 || i + 1 == ids.n)
			reborn();
		else
			sent[0]->n_had = memset(xrealloc(sent[0]->n_had, 1, 4), 0, 4),
			sent[0]->n_had[0] = (uint32_t)i + 1;
	}
	jobs_attach(jobs, find(e->job), &f->l, true, NULL);
	output_done(sent[0]->job, 0, FINISH_LENGTH, -1);
	job_done(sent[0]->job);
	settle(1);
	cr_expect_str_eq(f->done[0].p, text);
	cr_expect_float_eq(f->cumulative, -0.5 * (double)ids.n, 1e-6);
	token_ids_fini(&ids);
	ear_free(e);
	ear_free(f);
}

Test(durable, outputs_that_have_ended_stay_ended)
{
	struct ear *e = ear_new(), *f = ear_new();
	struct submit *s = request(NULL);
	s->params.n = 3;
	s->stop = xcalloc(1, sizeof(char *));
	s->stop[s->n_stop++] = xstrdup("END");
	uint64_t job = start(s, e);
	uint32_t stop = 1663;
	say(job, 0, "first");
	tokens(job, 0, &stop, 1);
	output_done(job, 0, FINISH_STOP, 1663);
	say(job, 1, "before END");
	say(job, 2, "third");
	jobs_save(jobs);
	reborn();
	struct engine_cmd *c = sent[0];
	cr_expect_eq(c->n_had[0], SEQ_OVER);
	cr_expect_eq(c->n_had[1], SEQ_OVER);
	cr_expect(c->n_had[2] > 0 && c->n_had[2] < 10);
	jobs_attach(jobs, find(e->job), &f->l, true, NULL);
	output_done(c->job, 2, FINISH_LENGTH, -1);
	job_done(c->job);
	settle(1);
	cr_expect_str_eq(f->done[0].p, "first");
	cr_expect_str_eq(f->done[1].p, "before ");
	cr_expect_str_eq(f->done[2].p, "third");
	cr_expect_eq(f->finish[0], FINISH_STOP);
	cr_expect_str_eq(f->stop_string, "END");
	ear_free(e);
	ear_free(f);
}

Test(durable, a_stop_string_is_found_across_a_crash)
{
	struct ear *e = ear_new(), *f = ear_new();
	struct submit *s = request(NULL);
	s->stop = xcalloc(1, sizeof(char *));
	s->stop[s->n_stop++] = xstrdup("abcdef");
	uint64_t job = start(s, e);
	say(job, 0, "x abc");
	jobs_save(jobs);
	reborn();
	jobs_attach(jobs, find(e->job), &f->l, true, NULL);
	say(sent[0]->job, 0, "def y");
	cr_expect_eq(sent[n_sent - 1]->kind, ENGINE_STOP);
	output_done(sent[0]->job, 0, FINISH_STOP, -1);
	job_done(sent[0]->job);
	settle(1);
	cr_expect_str_eq(f->done[0].p, "x ");
	cr_expect_str_eq(f->stop_string, "abcdef");
	ear_free(e);
	ear_free(f);
}

Test(durable, a_stop_token_whose_end_was_lost_is_chosen_again)
{
	struct ear *e = ear_new();
	uint64_t job = start(request(NULL), e);
	uint32_t stop = 1663, n = say(job, 0, "all of it");
	tokens(job, 0, &stop, 1);
	jobs_save(jobs);
	reborn();
	cr_expect_eq(sent[0]->n_had[0], n);
	ear_free(e);
}

Test(durable, that_had_all_its_tokens_ends_without_the_engine)
{
	struct ear *e = ear_new(), *f = ear_new();
	struct submit *s = request(NULL);
	s->params.max_tokens = 2;
	uint64_t job = start(s, e);
	uint32_t ids[] = {300, 301};
	tokens(job, 0, ids, 2);
	jobs_save(jobs);
	reborn();
	cr_expect_eq(n_sent, 0);
	settle(1);
	cr_assert(job_finished(find(e->job)));
	jobs_result(jobs, find(e->job), &f->l);
	cr_expect_eq(f->n_done[0], 2);
	cr_expect_eq(f->finish[0], FINISH_LENGTH);
	ear_free(e);
	ear_free(f);
}

Test(durable, that_was_cancelled_stays_cancelled)
{
	struct ear *e = ear_new(), *f = ear_new();
	uint64_t job = start(request(NULL), e);
	say(job, 0, "begun");
	jobs_save(jobs);
	jobs_cancel(jobs, find(e->job));
	reborn();
	cr_expect_eq(n_sent, 0);
	settle(1);
	jobs_result(jobs, find(e->job), &f->l);
	cr_expect_eq(f->finish[0], FINISH_ABORT);
	cr_expect_str_eq(f->done[0].p, "begun");
	ear_free(e);
	ear_free(f);
}

Test(durable, keeps_its_deadline)
{
	struct ear *e = ear_new(), *f = ear_new();
	struct submit *s = request(NULL);
	s->deadline_us = 3600 * 1000000LL;
	start(s, e);
	s = request(NULL);
	s->deadline_us = 1;
	start(s, f);
	reborn();
	cr_assert_eq(n_sent, 2);
	cr_expect(sent[0]->deadline_us > 3000 * 1000000LL && sent[0]->deadline_us < 3601 * 1000000LL);
	cr_expect_eq(sent[1]->deadline_us, 1, "passed long ago, it must still be one");
	ear_free(e);
	ear_free(f);
}

Test(durable, an_orderly_end_saves_everything)
{
	struct ear *e = ear_new();
	uint64_t job = start(request(NULL), e);
	uint32_t n = say(job, 0, text);
	stop_service();
	cr_expect_eq(e->code, E_NOT_READY);
	cr_assert_eq(begin_life(), 0, "%s", why);
	cr_assert_eq(n_sent, 1);
	cr_expect_eq(sent[0]->n_had[0], n);
	ear_free(e);
}

Test(durable, one_that_is_not_is_gone_after_a_crash)
{
	struct ear *e = ear_new();
	struct submit *s = request(NULL);
	s->durable = false;
	jobs_submit(jobs, &s, &e->l, 0);
	accept_job(sent[0]->job);
	cr_expect_str_eq(e->said.p, "accepted ");
	reborn();
	cr_expect_eq(n_sent, 0);
	cr_expect_null(jobs_find(jobs, e->job));
	ear_free(e);
}

/* --- finished jobs --- */

Test(durable, results_are_there_after_a_crash)
{
	struct ear *e = ear_new(), *f = ear_new(), *g = ear_new();
	struct submit *s = request(NULL);
	s->params.logprobs = 1;
	uint64_t job = start(s, e);
	finish(job, text);
	reborn();
	cr_expect_eq(n_sent, 0);
	jobs_result(jobs, find(e->job), &f->l);
	cr_expect_str_eq(f->done[0].p, text);
	cr_expect_eq(f->n_done[0], e->n_done[0]);
	cr_expect_float_eq(f->cumulative, e->cumulative, 1e-9);
	cr_expect_eq(f->total_us, 77);
	uint32_t from[] = {2};
	jobs_attach(jobs, find(e->job), &g->l, true, from);
	cr_expect(g->text[0].len && strlen(g->text[0].p) < strlen(text));
	cr_expect_str_eq(g->text[0].p, text + strlen(text) - g->text[0].len);
	json_t *rows = jobs_table(jobs, NULL, 10, 0);
	cr_expect_eq(json_array_size(rows), 1);
	json_decref(rows);
	ear_free(e);
	ear_free(f);
	ear_free(g);
}

Test(durable, failures_are_there_after_a_crash)
{
	struct ear *e = ear_new(), *f = ear_new();
	uint64_t job = start(request(NULL), e);
	struct engine_event late = {.kind = ENGINE_JOB_FAILED, .job = job, .code = E_DEADLINE};
	snprintf(late.why, sizeof late.why, "the deadline has passed");
	jobs_event(jobs, &late, 0);
	settle(1);
	reborn();
	jobs_result(jobs, find(e->job), &f->l);
	cr_expect_eq(f->code, E_DEADLINE);
	cr_expect_str_eq(f->why, "the deadline has passed");
	ear_free(e);
	ear_free(f);
}

Test(durable, the_table_shows_what_is_only_on_the_disk)
{
	struct ear *e = ear_new();
	finish(start(request("k"), e), text);
	reborn();
	json_t *rows = jobs_table(jobs, NULL, 10, 0);
	cr_assert_eq(json_array_size(rows), 1);
	const json_t *row = json_array_get(rows, 0);
	cr_expect_str_eq(json_string_value(json_object_get(row, "job")), e->job);
	cr_expect_str_eq(json_string_value(json_object_get(row, "state")), "done");
	cr_expect_str_eq(json_string_value(json_object_get(row, "key")), "k");
	json_decref(rows);
	ear_free(e);
}

/* --- keys --- */

Test(durable, the_same_key_is_the_same_job_in_every_life)
{
	struct ear *e = ear_new(), *f = ear_new(), *g = ear_new(), *h = ear_new();
	uint64_t job = start(request("k"), e);
	reborn();
	struct submit *s = request("k");
	jobs_submit(jobs, &s, &f->l, 0);
	cr_expect_eq(n_sent, 1, "submitted twice");
	cr_expect_str_eq(f->job, e->job);
	job = sent[0]->job;
	finish(job, text);
	s = request("k");
	jobs_submit(jobs, &s, &g->l, 0);
	cr_expect_str_eq(g->job, e->job);
	cr_expect_str_eq(g->done[0].p, text);
	reborn();
	s = request("k");
	jobs_submit(jobs, &s, &h->l, 0);
	cr_expect_eq(n_sent, 0);
	cr_expect_str_eq(h->job, e->job);
	cr_expect_str_eq(h->done[0].p, text);
	cr_expect_eq(strncmp(h->said.p, "accepted ", 9), 0);
	ear_free(e);
	ear_free(f);
	ear_free(g);
	ear_free(h);
}

Test(durable, another_request_under_the_same_key_is_refused_in_every_life)
{
	struct ear *e = ear_new(), *f = ear_new(), *g = ear_new();
	finish(start(request("k"), e), text);
	struct submit *s = request("k");
	s->body[0] ^= 1;
	jobs_submit(jobs, &s, &f->l, 0);
	cr_expect_eq(f->code, E_BAD_REQUEST);
	cr_expect(strstr(f->why, "another request was submitted under \"k\""), "%s", f->why);
	reborn();
	s = request("k");
	s->body[0] ^= 1;
	jobs_submit(jobs, &s, &g->l, 0);
	cr_expect_eq(g->code, E_BAD_REQUEST);
	ear_free(e);
	ear_free(f);
	ear_free(g);
}

/* --- the sweep --- */

Test(durable, finished_jobs_are_swept_from_the_disk_when_their_time_is_over)
{
	struct ear *e = ear_new(), *f = ear_new();
	demo.svc.keep_durable_us = 0;
	finish(start(request("k"), e), text);
	start(request("unfinished"), f);
	reborn();
	cr_assert_eq(n_sent, 1);
	usleep(2000);
	jobs_sweep(jobs, 1000);
	journal_end(journal);
	cr_expect_null(jobs_find(jobs, e->job));
	cr_expect_not_null(jobs_find(jobs, f->job));
	reborn();
	cr_expect_eq(n_sent, 1, "an unfinished job was swept");
	ear_free(e);
	ear_free(f);
}

Test(durable, the_oldest_go_first_when_the_file_is_too_large)
{
	struct ear *e = ear_new();
	finish(start(request("k"), e), text);
	reborn();
	demo.svc.journal_bytes = 1024;
	jobs_sweep(jobs, 1000);
	journal_end(journal);
	cr_expect_null(jobs_find(jobs, e->job));
	struct ear *f = ear_new();
	struct submit *s = request("f");
	jobs_submit(jobs, &s, &f->l, 0);
	cr_expect_eq(f->code, E_OVERLOADED);
	cr_expect(strstr(f->why, "--journal-bytes"), "%s", f->why);
	ear_free(e);
	ear_free(f);
}
