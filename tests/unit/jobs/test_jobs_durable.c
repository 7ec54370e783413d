/* Durable jobs across several runs of the controller. */
#include "tests/unit/jobs/durable_rig.h"

TestSuite(durable, .init = init, .fini = fini, .timeout = 120);

/* --- acceptance --- */

Test(durable, accepted_when_engine_and_disk_have_it)
{
	struct recorder *e = recorder_new();
	struct submit *s = durable_request(NULL);
	jobs_submit(jobs, &s, &e->l, 0);
	cr_expect_str_eq(e->events.p, "");
	accept_job(sent[0]->job);
	generate(sent[0]->job, 0, "early");
	cr_expect_str_eq(e->events.p, "", "published before it is on the disk: %s", e->events.p);
	settle(1);
	cr_expect_eq(atomic_load(&disk.unsynced), 0);
	cr_expect_eq(strncmp(e->events.p, "accepted delta ", 15), 0, "%s", e->events.p);
	cr_expect_str_eq(e->text[0].p, "early");
	stop_service();
	cr_expect_eq(e->code, E_NOT_READY);
	cr_expect(strstr(e->why, "continues when it is back"), "%s", e->why);
	recorder_free(e);
}

Test(durable, end_before_acceptance_is_on_disk_comes_second)
{
	struct recorder *e = recorder_new();
	struct submit *s = durable_request(NULL);
	jobs_submit(jobs, &s, &e->l, 0);
	uint64_t job = sent[0]->job;
	accept_job(job);
	generate(job, 0, "quick");
	finish_job(job);
	cr_expect_str_eq(e->events.p, "");
	settle(2);
	cr_expect_eq(strncmp(e->events.p, "accepted delta ", 15), 0, "%s", e->events.p);
	cr_expect(strstr(e->events.p, "done gone"));
	cr_expect_str_eq(e->done[0].p, "quick");
	recorder_free(e);
}

Test(durable, refused_by_the_engine_leaves_no_trace)
{
	struct recorder *e = recorder_new();
	struct submit *s = durable_request("k");
	jobs_submit(jobs, &s, &e->l, 0);
	struct engine_event no = {.kind = ENGINE_REFUSED, .job = sent[0]->job, .code = E_OVERLOADED};
	jobs_event(jobs, &no, 0);
	cr_expect_eq(e->code, E_OVERLOADED);
	restart();
	cr_expect_eq(n_sent, 0);
	recorder_free(e);
}

Test(durable, refused_without_a_journal)
{
	struct jobs *plain = jobs_new(&demo.svc, take_command, NULL);
	struct recorder *e = recorder_new();
	struct submit *s = durable_request(NULL);
	jobs_submit(plain, &s, &e->l, 0);
	cr_expect_eq(e->code, E_BAD_REQUEST);
	cr_expect(strstr(e->why, "durable: this service keeps no journal; start it with --journal"), "%s",
		  e->why);
	jobs_free(plain);
	recorder_free(e);
}

Test(durable, refused_while_the_disk_is_full_and_running_jobs_continue)
{
	struct recorder *a = recorder_new(), *b = recorder_new(), *c = recorder_new(), *d = recorder_new();
	uint64_t first = start_durable(durable_request("a"), a);
	atomic_store(&disk.fail_write, SQLITE_FULL);
	struct submit *s = durable_request("b");
	jobs_submit(jobs, &s, &b->l, 0);
	accept_job(sent[n_sent - 1]->job);
	settle(1);
	cr_expect_eq(b->code, E_INTERNAL);
	cr_expect(strstr(b->why, "durable: ") && strstr(b->why, "the disk is full"), "%s", b->why);
	cr_expect_eq(sent[n_sent - 1]->kind, ENGINE_CANCEL, "the engine computes it nevertheless");
	s = durable_request("c");
	jobs_submit(jobs, &s, &c->l, 0);
	cr_expect_eq(c->code, E_INTERNAL, "%s", c->events.p);
	generate(first, 0, text);
	jobs_save(jobs);
	finish_job(first);
	cr_expect_str_eq(a->done[0].p, text);
	atomic_store(&disk.fail_write, 0);
	settle(1); /* its end, retried */
	start_durable(durable_request("d"), d);
	restart();
	struct recorder *e = recorder_new();
	jobs_result(jobs, find(a->job), &e->l);
	cr_expect_str_eq(e->done[0].p, text);
	cr_expect_null(jobs_find(jobs, b->job[0] ? b->job : "00000000000000000000000000000000"));
	recorder_free(a);
	recorder_free(b);
	recorder_free(c);
	recorder_free(d);
	recorder_free(e);
}

Test(durable, refused_at_the_stop_is_not_resumed)
{
	struct recorder *e = recorder_new();
	struct submit *s = durable_request(NULL);
	jobs_submit(jobs, &s, &e->l, 0);
	accept_job(sent[0]->job);
	stop_service();
	cr_expect_eq(e->code, E_NOT_READY);
	cr_assert_eq(start_service(), 0, "%s", why.text);
	cr_expect_eq(n_sent, 0);
	recorder_free(e);
}

/* --- ends of jobs --- */

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

Test(durable, done_when_its_end_is_on_the_disk)
{
	struct recorder *e = recorder_new(), *f = recorder_new();
	uint64_t job = start_durable(durable_request("k"), e);
	generate(job, 0, "all");
	finish_job(job);
	cr_expect_str_eq(e->text[0].p, "all", "the text need not wait");
	cr_expect_null(strstr(e->events.p, "done"), "published before it is on the disk: %s", e->events.p);
	cr_expect_not(job_finished(find(e->job)));
	cr_expect_str_eq(state_of(e->job), "running");
	int n = n_sent;
	jobs_cancel(jobs, find(e->job));
	cr_expect_eq(n_sent, n, "cancelled after its end");
	cr_assert_eq(jobs_attach(jobs, find(e->job), &f->l, true, NULL), 0);
	cr_expect_null(strstr(f->events.p, "done"));
	settle(1);
	cr_expect_eq(atomic_load(&disk.unsynced), 0);
	cr_expect(strstr(e->events.p, "done gone") && strstr(f->events.p, "done gone"));
	cr_expect_str_eq(f->done[0].p, "all");
	cr_expect_str_eq(state_of(e->job), "done");
	restart();
	cr_expect_eq(n_sent, 0, "resumed after done was published");
	cr_expect_str_eq(state_of(e->job), "done");
	recorder_free(e);
	recorder_free(f);
}

Test(durable, failing_disk_does_not_delay_the_end)
{
	struct recorder *e = recorder_new(), *f = recorder_new();
	uint64_t job = start_durable(durable_request("k"), e);
	generate(job, 0, "all");
	atomic_store(&disk.fail_write, SQLITE_FULL);
	finish_job(job);
	settle(1); /* the disk has failed */
	cr_expect(strstr(e->events.p, "done gone"), "%s", e->events.p);
	cr_expect_str_eq(e->done[0].p, "all");
	demo.svc.keep_finished_us = 0;
	jobs_sweep(jobs, 1000);
	find(e->job);
	atomic_store(&disk.fail_write, 0);
	settle(1); /* the disk works again */
	restart();
	cr_expect_eq(n_sent, 0);
	jobs_result(jobs, find(e->job), &f->l);
	cr_expect_str_eq(f->done[0].p, "all");
	recorder_free(e);
	recorder_free(f);
}

Test(durable, stop_publishes_no_end_that_is_not_on_the_disk)
{
	struct recorder *e = recorder_new();
	uint64_t job = start_durable(durable_request("k"), e);
	generate(job, 0, "all");
	finish_job(job);
	stop_service();
	cr_expect_null(strstr(e->events.p, "done"), "%s", e->events.p);
	cr_expect_eq(e->code, E_NOT_READY);
	cr_assert_eq(start_service(), 0, "%s", why.text);
	cr_expect_eq(n_sent, 0);
	cr_expect_str_eq(state_of(e->job), "done");
	recorder_free(e);
}

/* A job with its end only in memory is kept, and delays no other job's removal. */
Test(durable, unrecorded_end_does_not_delay_the_sweep)
{
	struct recorder *e = recorder_new(), *f = recorder_new();
	uint64_t job = start_durable(durable_request("k"), e);
	struct submit *s = durable_request(NULL);
	s->durable = false;
	jobs_submit(jobs, &s, &f->l, 0);
	uint64_t other = sent[n_sent - 1]->job;
	accept_job(other);
	atomic_store(&disk.fail_write, SQLITE_FULL);
	finish_job(job);
	settle(1);
	finish_job(other);
	demo.svc.keep_finished_us = 0;
	jobs_sweep(jobs, 1000);
	jobs_check(jobs);
	find(e->job);
	cr_expect_null(jobs_find(jobs, f->job), "kept because of another job");
	atomic_store(&disk.fail_write, 0);
	settle(1);
	jobs_sweep(jobs, 1000);
	find(e->job); /* found on the disk */
	recorder_free(e);
	recorder_free(f);
}

Test(durable, unsaved_tokens_are_retried_later_when_the_disk_fails)
{
	struct recorder *e = recorder_new(), *f = recorder_new();
	struct submit *s = durable_request("k");
	s->params.max_tokens = 6000;
	uint64_t job = start_durable(s, e);
	atomic_store(&disk.fail_write, SQLITE_FULL);
	s = durable_request("b"); /* detects that the disk fails */
	jobs_submit(jobs, &s, &f->l, 0);
	accept_job(sent[n_sent - 1]->job);
	settle(1);
	uint32_t ids[100];
	for (int i = 0; i < 100; i++)
		ids[i] = 300;
	for (int i = 0; i < 50; i++)
		tokens(job, 0, ids, 100);
	int64_t now = clock_us();
	jobs_save(jobs);
	cr_expect_gt(jobs_save_at(jobs), now);
	atomic_store(&disk.fail_write, 0);
	stop_service(); /* reports to the listeners */
	recorder_free(e);
	recorder_free(f);
}

/* --- resuming --- */

Test(durable, resumes_with_its_request_and_tokens)
{
	struct recorder *e = recorder_new(), *f = recorder_new();
	uint64_t job = start_durable(durable_request("k"), e);
	uint32_t n = generate(job, 0, "Once upon a");
	jobs_save(jobs);
	generate(job, 0, " time that is lost");
	restart();
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
	cr_expect_eq(memcmp(c->had, e->tokens[0], n * sizeof *c->had), 0);
	cr_assert_eq(jobs_attach(jobs, find(e->job), &f->l, true, NULL), 0);
	cr_expect_str_eq(f->text[0].p, "Once upon a");
	generate(c->job, 0, " time");
	finish_job(c->job);
	settle(1);
	cr_expect_str_eq(f->done[0].p, "Once upon a time");
	cr_expect(strstr(f->events.p, "done gone"));
	recorder_free(e);
	recorder_free(f);
}

/* The saved state is that after the last saved token; the rig's bits follow from it. */
Test(durable, resumes_with_the_state_of_mirostat)
{
	struct recorder *e = recorder_new();
	struct submit *s = durable_request("k");
	s->params.mirostat = 2;
	s->params.mirostat_tau = 3;
	uint64_t job = start_durable(s, e);
	uint32_t n = generate(job, 0, "Once upon a");
	jobs_save(jobs);
	n += generate(job, 0, " time");
	const uint32_t stop = 1663;
	tokens(job, 0, &stop,
	       1); /* saved with the earlier tokens; its end is lost, so the state is from before it */
	jobs_save(jobs);
	restart();
	cr_assert_eq(n_sent, 1);
	const struct engine_cmd *c = sent[0];
	cr_expect(c->params.mirostat == 2 && c->params.mirostat_tau == 3);
	cr_assert_eq(c->n_had[0], n);
	cr_expect_eq(c->mus[0], (int32_t)c->had[n - 1] - 1000);
	recorder_free(e);
}

Test(durable, resumes_after_many_crashes)
{
	struct recorder *e = recorder_new(), *f = recorder_new();
	struct submit *s = durable_request("k");
	s->params.logprobs = 1;
	start_durable(s, e);
	struct token_ids ids = encode(text);
	for (size_t i = 0; i < ids.n; i++) {
		uint64_t job = sent[0]->job;
		cr_assert_eq(sent[0]->n_had ? sent[0]->n_had[0] : 0, i);
		tokens(job, 0, ids.ids + i, 1);
		jobs_save(jobs);
		if (i % 3 == 0 || i + 1 == ids.n)
			restart();
		else
			sent[0]->n_had = memset(xrealloc(sent[0]->n_had, 1, 4), 0, 4),
			sent[0]->n_had[0] = (uint32_t)i + 1;
	}
	jobs_attach(jobs, find(e->job), &f->l, true, NULL);
	finish_job(sent[0]->job);
	settle(1);
	cr_expect_str_eq(f->done[0].p, text);
	cr_expect_float_eq(f->cumulative, -0.5 * (double)ids.n, 1e-6);
	token_ids_fini(&ids);
	recorder_free(e);
	recorder_free(f);
}

Test(durable, ended_outputs_stay_ended)
{
	struct recorder *e = recorder_new(), *f = recorder_new();
	struct submit *s = durable_request(NULL);
	s->params.n = 3;
	add_stop(s, "END");
	uint64_t job = start_durable(s, e);
	uint32_t stop = 1663;
	generate(job, 0, "first");
	tokens(job, 0, &stop, 1);
	output_done(job, 0, FINISH_STOP, 1663);
	generate(job, 1, "before END");
	generate(job, 2, "third");
	jobs_save(jobs);
	restart();
	struct engine_cmd *c = sent[0];
	cr_expect_eq(c->n_had[0], SEQ_OVER);
	cr_expect_eq(c->n_had[1], SEQ_OVER);
	cr_expect(c->n_had[2] > 0 && c->n_had[2] < 10);
	jobs_attach(jobs, find(e->job), &f->l, true, NULL);
	output_done(c->job, 2, FINISH_LENGTH, -1);
	job_done(c->job, 0);
	settle(1);
	cr_expect_str_eq(f->done[0].p, "first");
	cr_expect_str_eq(f->done[1].p, "before ");
	cr_expect_str_eq(f->done[2].p, "third");
	cr_expect_eq(f->done_finish[0], FINISH_STOP);
	cr_expect_str_eq(f->stop_string, "END");
	recorder_free(e);
	recorder_free(f);
}

Test(durable, stop_string_is_found_across_a_crash)
{
	struct recorder *e = recorder_new(), *f = recorder_new();
	struct submit *s = durable_request(NULL);
	add_stop(s, "abcdef");
	uint64_t job = start_durable(s, e);
	generate(job, 0, "x abc");
	jobs_save(jobs);
	restart();
	jobs_attach(jobs, find(e->job), &f->l, true, NULL);
	generate(sent[0]->job, 0, "def y");
	cr_expect_eq(sent[n_sent - 1]->kind, ENGINE_STOP);
	output_done(sent[0]->job, 0, FINISH_STOP, -1);
	job_done(sent[0]->job, 0);
	settle(1);
	cr_expect_str_eq(f->done[0].p, "x ");
	cr_expect_str_eq(f->stop_string, "abcdef");
	recorder_free(e);
	recorder_free(f);
}

Test(durable, stop_token_with_a_lost_end_is_chosen_again)
{
	struct recorder *e = recorder_new();
	uint64_t job = start_durable(durable_request(NULL), e);
	uint32_t stop = 1663, n = generate(job, 0, "all of it");
	tokens(job, 0, &stop, 1);
	jobs_save(jobs);
	restart();
	cr_expect_eq(sent[0]->n_had[0], n);
	recorder_free(e);
}

Test(durable, with_all_its_tokens_ends_without_the_engine)
{
	struct recorder *e = recorder_new(), *f = recorder_new();
	struct submit *s = durable_request(NULL);
	s->params.max_tokens = 2;
	uint64_t job = start_durable(s, e);
	uint32_t ids[] = {300, 301};
	tokens(job, 0, ids, 2);
	jobs_save(jobs);
	restart();
	cr_expect_eq(n_sent, 0);
	settle(1);
	cr_assert(job_finished(find(e->job)));
	jobs_result(jobs, find(e->job), &f->l);
	cr_expect_eq(f->n_done[0], 2);
	cr_expect_eq(f->done_finish[0], FINISH_LENGTH);
	recorder_free(e);
	recorder_free(f);
}

Test(durable, cancelled_stays_cancelled)
{
	struct recorder *e = recorder_new(), *f = recorder_new();
	uint64_t job = start_durable(durable_request(NULL), e);
	generate(job, 0, "begun");
	jobs_save(jobs);
	jobs_cancel(jobs, find(e->job));
	restart();
	cr_expect_eq(n_sent, 0);
	settle(1);
	jobs_result(jobs, find(e->job), &f->l);
	cr_expect_eq(f->done_finish[0], FINISH_ABORT);
	cr_expect_str_eq(f->done[0].p, "begun");
	recorder_free(e);
	recorder_free(f);
}

/* The job had been accepted, so it fails with a record instead of vanishing. */
Test(durable, refused_when_it_resumes_is_a_failure)
{
	struct recorder *e = recorder_new(), *f = recorder_new();
	uint64_t job = start_durable(durable_request("k"), e);
	restart();
	cr_assert_eq(n_sent, 1);
	cr_assert_eq(jobs_attach(jobs, find(e->job), &f->l, true, NULL), 0);
	struct engine_event ev = {.kind = ENGINE_REFUSED, .job = job, .code = E_TOO_LONG};
	snprintf(ev.why, sizeof ev.why, "the cache is smaller now");
	jobs_event(jobs, &ev, 0);
	cr_assert_not_null(jobs_find(jobs, e->job));
	settle(1);
	cr_expect_eq(f->code, E_TOO_LONG);
	cr_expect_str_eq(f->why, "the cache is smaller now");
	cr_expect_str_eq(state_of(e->job), "failed");
	restart();
	cr_expect_eq(n_sent, 0, "resumed once more");
	cr_expect_not_null(find(e->job));
	recorder_free(e);
	recorder_free(f);
}

Test(durable, keeps_its_deadline)
{
	struct recorder *e = recorder_new(), *f = recorder_new();
	struct submit *s = durable_request(NULL);
	s->deadline_us = 3600 * 1000000LL;
	start_durable(s, e);
	s = durable_request(NULL);
	s->deadline_us = 1;
	start_durable(s, f);
	restart();
	cr_assert_eq(n_sent, 2);
	cr_expect(sent[0]->deadline_us > 3000 * 1000000LL && sent[0]->deadline_us < 3601 * 1000000LL);
	cr_expect_eq(sent[1]->deadline_us, 1, "passed long ago, but still a deadline");
	recorder_free(e);
	recorder_free(f);
}

Test(durable, stop_saves_all_tokens)
{
	struct recorder *e = recorder_new();
	uint64_t job = start_durable(durable_request(NULL), e);
	uint32_t n = generate(job, 0, text);
	stop_service();
	cr_expect_eq(e->code, E_NOT_READY);
	cr_assert_eq(start_service(), 0, "%s", why.text);
	cr_assert_eq(n_sent, 1);
	cr_expect_eq(sent[0]->n_had[0], n);
	recorder_free(e);
}

Test(durable, other_jobs_are_gone_after_a_crash)
{
	struct recorder *e = recorder_new();
	struct submit *s = durable_request(NULL);
	s->durable = false;
	jobs_submit(jobs, &s, &e->l, 0);
	accept_job(sent[0]->job);
	cr_expect_str_eq(e->events.p, "accepted ");
	restart();
	cr_expect_eq(n_sent, 0);
	cr_expect_null(jobs_find(jobs, e->job));
	recorder_free(e);
}

/* --- finished jobs --- */

Test(durable, results_survive_a_crash)
{
	struct recorder *e = recorder_new(), *f = recorder_new(), *g = recorder_new();
	struct submit *s = durable_request(NULL);
	s->params.logprobs = 1;
	uint64_t job = start_durable(s, e);
	finish(job, text);
	restart();
	cr_expect_eq(n_sent, 0);
	jobs_result(jobs, find(e->job), &f->l);
	cr_expect_str_eq(f->done[0].p, text);
	cr_expect_eq(f->n_done[0], e->n_done[0]);
	cr_expect_float_eq(f->cumulative, e->cumulative, 1e-9);
	cr_expect_eq(f->total_us, 77);
	uint32_t from[] = {2};
	g->n_tokens[0] = 2;
	jobs_attach(jobs, find(e->job), &g->l, true, from);
	cr_expect(g->text[0].len && strlen(g->text[0].p) < strlen(text));
	cr_expect_str_eq(g->text[0].p, text + strlen(text) - g->text[0].len);
	json_t *rows = jobs_table(jobs, NULL, 10, 0);
	cr_expect_eq(json_array_size(rows), 1);
	json_decref(rows);
	recorder_free(e);
	recorder_free(f);
	recorder_free(g);
}

Test(durable, failures_survive_a_crash)
{
	struct recorder *e = recorder_new(), *f = recorder_new();
	uint64_t job = start_durable(durable_request(NULL), e);
	struct engine_event late = {.kind = ENGINE_JOB_FAILED, .job = job, .code = E_DEADLINE};
	snprintf(late.why, sizeof late.why, "the deadline has passed");
	jobs_event(jobs, &late, 0);
	settle(1);
	restart();
	jobs_result(jobs, find(e->job), &f->l);
	cr_expect_eq(f->code, E_DEADLINE);
	cr_expect_str_eq(f->why, "the deadline has passed");
	recorder_free(e);
	recorder_free(f);
}

Test(durable, table_lists_jobs_on_the_disk)
{
	struct recorder *e = recorder_new();
	finish(start_durable(durable_request("k"), e), text);
	restart();
	json_t *rows = jobs_table(jobs, NULL, 10, 0);
	cr_assert_eq(json_array_size(rows), 1);
	const json_t *row = json_array_get(rows, 0);
	cr_expect_str_eq(json_string_value(json_object_get(row, "job")), e->job);
	cr_expect_str_eq(json_string_value(json_object_get(row, "state")), "done");
	cr_expect_str_eq(json_string_value(json_object_get(row, "key")), "k");
	json_decref(rows);
	recorder_free(e);
}

/* --- keys --- */

Test(durable, same_key_is_the_same_job_in_every_life)
{
	struct recorder *e = recorder_new(), *f = recorder_new(), *g = recorder_new(), *h = recorder_new();
	uint64_t job = start_durable(durable_request("k"), e);
	restart();
	struct submit *s = durable_request("k");
	jobs_submit(jobs, &s, &f->l, 0);
	cr_expect_eq(n_sent, 1, "submitted twice");
	cr_expect_str_eq(f->job, e->job);
	job = sent[0]->job;
	finish(job, text);
	s = durable_request("k");
	jobs_submit(jobs, &s, &g->l, 0);
	cr_expect_str_eq(g->job, e->job);
	cr_expect_str_eq(g->done[0].p, text);
	restart();
	s = durable_request("k");
	jobs_submit(jobs, &s, &h->l, 0);
	cr_expect_eq(n_sent, 0);
	cr_expect_str_eq(h->job, e->job);
	cr_expect_str_eq(h->done[0].p, text);
	cr_expect_eq(strncmp(h->events.p, "accepted ", 9), 0);
	recorder_free(e);
	recorder_free(f);
	recorder_free(g);
	recorder_free(h);
}

Test(durable, other_request_under_the_same_key_is_refused_in_every_life)
{
	struct recorder *e = recorder_new(), *f = recorder_new(), *g = recorder_new();
	finish(start_durable(durable_request("k"), e), text);
	struct submit *s = durable_request("k");
	s->body[0] ^= 1;
	jobs_submit(jobs, &s, &f->l, 0);
	cr_expect_eq(f->code, E_BAD_REQUEST);
	cr_expect(strstr(f->why, "another request was submitted under \"k\""), "%s", f->why);
	restart();
	s = durable_request("k");
	s->body[0] ^= 1;
	jobs_submit(jobs, &s, &g->l, 0);
	cr_expect_eq(g->code, E_BAD_REQUEST);
	recorder_free(e);
	recorder_free(f);
	recorder_free(g);
}

/* A statement left open would pin the reader to an old snapshot, so later records would be invisible. */
Test(durable, job_read_from_the_disk_hides_none_that_ends_later)
{
	struct recorder *e = recorder_new(), *f = recorder_new(), *g = recorder_new();
	finish(start_durable(durable_request("e"), e), text);
	restart();
	cr_assert_not_null(jobs_find(jobs, e->job));
	finish(start_durable(durable_request("f"), f), text);
	demo.svc.keep_finished_us = 0;
	jobs_sweep(jobs, clock_us());
	struct submit *s = durable_request("f");
	int n = n_sent;
	jobs_submit(jobs, &s, &g->l, 0);
	cr_expect_eq(n_sent, n, "a finished job runs again under its key");
	cr_expect_str_eq(g->job, f->job);
	cr_expect_str_eq(g->done[0].p, text);
	recorder_free(e);
	recorder_free(f);
	recorder_free(g);
}

/* --- removal of expired jobs --- */

Test(durable, expired_jobs_are_swept_from_the_disk)
{
	struct recorder *e = recorder_new(), *f = recorder_new();
	demo.svc.keep_durable_us = 0;
	finish(start_durable(durable_request("k"), e), text);
	start_durable(durable_request("unfinished"), f);
	restart();
	cr_assert_eq(n_sent, 1);
	usleep(2000);
	jobs_sweep(jobs, 1000);
	journal_end(journal);
	cr_expect_null(jobs_find(jobs, e->job));
	cr_expect_not_null(jobs_find(jobs, f->job));
	restart();
	cr_expect_eq(n_sent, 1, "an unfinished job was swept");
	recorder_free(e);
	recorder_free(f);
}

Test(durable, oldest_are_swept_first_when_the_file_is_too_large)
{
	struct recorder *e = recorder_new();
	finish(start_durable(durable_request("k"), e), text);
	restart();
	demo.svc.journal_bytes = 1024;
	jobs_sweep(jobs, 1000);
	journal_end(journal);
	cr_expect_null(jobs_find(jobs, e->job));
	struct recorder *f = recorder_new();
	struct submit *s = durable_request("f");
	jobs_submit(jobs, &s, &f->l, 0);
	cr_expect_eq(f->code, E_OVERLOADED);
	cr_expect(strstr(f->why, "--journal-bytes"), "%s", f->why);
	recorder_free(e);
	recorder_free(f);
}
