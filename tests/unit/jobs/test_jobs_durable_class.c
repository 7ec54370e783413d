/* Durable jobs and the numerics class of their tokens, across several runs of the controller. */
#include "tests/unit/jobs/durable_rig.h"

TestSuite(durable_class, .init = init, .fini = fini, .timeout = 120);

/* Return the class that the only job is submitted with. */
static const char *resumed_in(void)
{
	cr_assert_eq(n_sent, 1);
	return sent[0]->numerics;
}

Test(durable_class, resumes_in_the_class_of_its_tokens)
{
	struct recorder *e = recorder_new();
	uint64_t job = start_durable(durable_request("k"), e);
	generate(job, 0, "Once upon");
	jobs_save(jobs);
	generate(job, 0, " a");
	jobs_save(jobs);
	restart();
	cr_expect_str_eq(resumed_in(), "class a");
	restart();
	cr_expect_str_eq(resumed_in(), "class a", "kept by a life without new tokens");
	recorder_free(e);
}

Test(durable_class, newer_grammar_engine_is_no_change_without_a_form)
{
	struct recorder *e = recorder_new(), *f = recorder_new();
	uint64_t job = start_durable(durable_request("k"), e);
	numerics = "class a grammar=1";
	generate(job, 0, "Once upon");
	jobs_save(jobs);
	restart();
	cr_expect_str_eq(resumed_in(), "class a grammar=1");
	numerics = "class a grammar=2";
	cr_assert_eq(jobs_attach(jobs, find(e->job), &f->l, true, NULL), 0);
	generate(job, 0, " a");
	finish_job(job);
	settle(1);
	cr_expect(!f->class_changed);
	recorder_free(e);
	recorder_free(f);
}

Test(durable_class, without_tokens_resumes_in_any_class)
{
	struct recorder *e = recorder_new();
	uint64_t job = start_durable(durable_request("k"), e);
	restart();
	cr_expect_null(resumed_in());
	generate(job, 0, "Once upon"); /* lost */
	restart();
	cr_expect_null(resumed_in());
	recorder_free(e);
}

Test(durable_class, allowed_change_is_marked_in_every_life)
{
	struct recorder *e = recorder_new(), *f = recorder_new();
	uint64_t job = start_durable(durable_request("k"), e);
	generate(job, 0, "Once upon");
	jobs_save(jobs);
	restart();
	numerics = "class b";
	generate(job, 0, " a");
	jobs_save(jobs);
	restart();
	cr_expect_str_eq(resumed_in(), "class b");
	cr_assert_eq(jobs_attach(jobs, find(e->job), &f->l, true, NULL), 0);
	generate(job, 0, " time");
	finish_job(job);
	settle(1);
	cr_expect(f->class_changed);
	recorder_free(e);
	recorder_free(f);
}
