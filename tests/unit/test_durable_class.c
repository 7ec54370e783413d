/* Durable jobs and the numerics class of their tokens, through several lives of the controller. */
#include "tests/durable_rig.h"

TestSuite(durable_class, .init = init, .fini = fini, .timeout = 120);

static bool marked;

static void hear_mark(void *user, const struct job_event *ev)
{
	if (ev->kind == JOB_DONE)
		marked = ev->class_changed;
	hear(user, ev);
}

/* Its class in the order to go on, of the only job. */
static const char *resumed_in(void)
{
	cr_assert_eq(n_sent, 1);
	return sent[0]->numerics;
}

Test(durable_class, goes_on_in_the_class_of_its_tokens)
{
	struct ear *e = ear_new();
	uint64_t job = start(request("k"), e);
	say(job, 0, "Once upon");
	jobs_save(jobs);
	say(job, 0, " a");
	jobs_save(jobs);
	reborn();
	cr_expect_str_eq(resumed_in(), "class a");
	reborn();
	cr_expect_str_eq(resumed_in(), "class a", "it is kept by who has said nothing new");
	ear_free(e);
}

Test(durable_class, that_has_no_tokens_goes_on_anywhere)
{
	struct ear *e = ear_new();
	uint64_t job = start(request("k"), e);
	reborn();
	cr_expect_null(resumed_in());
	say(job, 0, "Once upon"); /* lost */
	reborn();
	cr_expect_null(resumed_in());
	ear_free(e);
}

Test(durable_class, a_change_that_was_allowed_is_marked_in_every_life)
{
	struct ear *e = ear_new(), *f = ear_new();
	uint64_t job = start(request("k"), e);
	say(job, 0, "Once upon");
	jobs_save(jobs);
	reborn();
	numerics = "class b";
	say(job, 0, " a");
	jobs_save(jobs);
	reborn();
	cr_expect_str_eq(resumed_in(), "class b");
	f->l.event = hear_mark;
	cr_assert_eq(jobs_attach(jobs, find(e->job), &f->l, true, NULL), 0);
	say(job, 0, " time");
	output_done(job, 0, FINISH_LENGTH, -1);
	job_done(job);
	settle(1);
	cr_expect(marked);
	ear_free(e);
	ear_free(f);
}
