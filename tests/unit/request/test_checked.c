/* A constraint checked for one request is not checked again for the next. */
#include "controller/request/checked.h"
#include "grammar/source.h"
#include "tests/unit/request/api_rig.h"

#include <stdlib.h>
#include <string.h>

enum { FORM_BYTES = 60 }; /* limit for all constraints together: holds three of this test's */
enum { ASKED_MAX = 32 };

static struct constraint *asked[ASKED_MAX];
static int n_asked;

static void open_checked(void)
{
	open_demo();
	demo.svc.checked = checked_new(FORM_BYTES);
}

static void close_checked(void)
{
	while (n_asked)
		constraint_free(asked[--n_asked]);
	checked_free(demo.svc.checked);
	close_demo();
}

TestSuite(checked, .init = open_checked, .fini = close_checked, .timeout = 60);

static struct submit *job(const char *params)
{
	struct submit *s;
	struct api_problem p;
	struct buf text = {0};
	buf_printf(&text, "{\"op\": \"submit\", \"id\": 1, \"prompt\": \"a\", \"params\": {%s}}", params);
	cr_assert_eq(submit(API_JOBS, text.p, &s, NULL, &p), 0, "%s: %s", params, p.why);
	buf_fini(&text);
	return s;
}

/* Return the constraint of a request for the constant n. All constraints stay allocated until the end, so
 * that none gets the address of one that was dropped from the cache. */
static const struct constraint *form_of(int n)
{
	char params[100];
	snprintf(params, sizeof params, "\"guided_json\": {\"const\": 1000%02d}", n);
	struct submit *s = job(params);
	cr_assert_eq(s->params.constraint->n, strlen("{\"const\":100000}"), "%u", s->params.constraint->n);
	cr_assert_lt(n_asked, ASKED_MAX);
	asked[n_asked] = constraint_ref(s->params.constraint);
	submit_free(s);
	return asked[n_asked++];
}

Test(checked, the_same_form_is_shared)
{
	const struct constraint *a = form_of(1);
	cr_expect(form_of(1) == a);
	cr_expect(form_of(2) != a);
	cr_expect(form_of(1) == a);
	struct constraint *same_text = constraint_new(GRAMMAR_CHOICE, a->text, a->n);
	cr_expect_null(checked_constraint(demo.svc.checked, same_text));
	constraint_free(same_text);
}

Test(checked, the_form_not_asked_for_the_longest_time_goes_first)
{
	const struct constraint *known[4];
	for (int i = 0; i < 4; i++) {
		known[i] = form_of(i);
		cr_expect(form_of(0) == known[0]);
	}
	cr_expect(form_of(3) == known[3]);
	cr_expect(form_of(2) == known[2]);
	cr_expect(form_of(1) != known[1]);
}

Test(checked, a_form_larger_than_all_may_be_is_taken_and_not_kept)
{
	static const char params[] =
		"\"guided_json\": {\"enum\": [\"a form with more than sixty bytes\", \"and another value\"]}";
	struct submit *s = job(params), *t = job(params);
	const struct constraint *small = form_of(1);
	cr_expect(s->params.constraint->n > FORM_BYTES);
	cr_expect(s->params.constraint != t->params.constraint);
	cr_expect(constraint_same(s->params.constraint, t->params.constraint));
	cr_expect(form_of(1) == small);
	submit_free(s);
	submit_free(t);
}

Test(checked, what_was_refused_is_refused_again)
{
	for (int i = 0; i < 2; i++) {
		struct submit *s;
		struct api_problem p;
		cr_expect_neq(submit(API_JOBS,
				     "{\"op\": \"submit\", \"id\": 1, \"prompt\": \"a\", "
				     "\"params\": {\"guided_regex\": \"(a\"}}",
				     &s, NULL, &p),
			      0);
		cr_expect(strstr(p.why, "guided_regex"), "%s", p.why);
	}
}

static void expect_same_breakers(const char *params, bool same)
{
	struct submit *s = job("\"dry_multiplier\": 1, \"dry_sequence_breakers\": [\"e\"]"), *t = job(params);
	const struct params *p = &s->params, *q = &t->params;
	cr_expect(p->n_breakers > 0);
	cr_expect_eq(p->n_breakers == q->n_breakers &&
			     memcmp(p->breakers, q->breakers, p->n_breakers * sizeof *p->breakers) == 0,
		     same, "%s: %u and %u", params, p->n_breakers, q->n_breakers);
	submit_free(s);
	submit_free(t);
}

Test(checked, breakers_are_those_of_the_strings)
{
	expect_same_breakers("\"dry_multiplier\": 1, \"dry_sequence_breakers\": [\"e\"]", true);
	expect_same_breakers("\"dry_multiplier\": 1, \"dry_sequence_breakers\": [\"a\"]", false);
	expect_same_breakers("\"dry_multiplier\": 1, \"dry_sequence_breakers\": []", false);
	expect_same_breakers("\"dry_multiplier\": 1", false);
	expect_same_breakers("\"dry_multiplier\": 1, \"dry_sequence_breakers\": [\"e\"]", true);
}

/* The default breakers need not occur in a token; breakers in the request must. */
Test(checked, breakers_that_are_named_must_be_in_a_token)
{
	struct submit *s;
	struct api_problem p;
	submit_free(job("\"dry_multiplier\": 1"));
	const int rc = submit(
		API_JOBS,
		"{\"op\": \"submit\", \"id\": 1, \"prompt\": \"a\", \"params\": {\"dry_multiplier\": 1, "
		"\"dry_sequence_breakers\": [\"\\n\", \":\", \"\\\"\", \"*\"]}}",
		&s, NULL, &p);
	struct submit *usual = job("\"dry_multiplier\": 1");
	cr_expect(rc ? strstr(p.why, "is in no token's text") != NULL
		     : s->params.n_breakers == usual->params.n_breakers);
	submit_free(usual);
	submit_free(s);
}
