/* Steps with structured output: sampled tokens keep to the constraint, whatever else the step does. */
#include "base/buf.h"
#include "base/json.h"
#include "grammar/source.h"
#include "tests/driver.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <math.h>
#include <regex.h>

enum { MOST = 120, SLOTS = 8, PROMPT = 12, END = 330 };

static struct driver d;
static struct params params;
static uint32_t tokens[128];
static struct vocabulary vocabulary;

struct output {
	uint32_t ids[MOST];
	uint32_t n;
	bool ended;
};
static struct output outputs[SLOTS];

static void open_guided(void)
{
	driver_open_tiny(&d, &params, tokens, 128);
	params.temperature = 1;
	params.seed = 7;
	cr_assert_eq(driver_send_vocabulary(&d), 0, "%s", d.why.text);
	driver_vocabulary(&vocabulary, 331);
	memset(outputs, 0, sizeof outputs);
}

static void close_guided(void)
{
	vocabulary_fini(&vocabulary);
	driver_close(&d);
}

TestSuite(guided, .init = open_guided, .fini = close_guided, .timeout = 120);

/* Add the slot's sequence, with the constraint of this number, to the plan. */
static void add(uint32_t slot, uint32_t constraint)
{
	static struct params each[SLOTS];
	each[slot] = params;
	each[slot].seed += slot;
	d.constraint = constraint;
	driver_seq(&d, slot, tokens + slot, PROMPT, PROMPT, PROMPT + MOST, &each[slot]);
	driver_add_run(&d, slot, 0, PROMPT, true);
}

static void step(void)
{
	cr_assert_eq(driver_step(&d), 0, "%s", d.why.text);
}

static void note(struct output *o, uint32_t token)
{
	o->ended = o->ended || token == END;
	if (!o->ended)
		o->ids[o->n++] = token;
}

/* Run slots from..to-1 until they end; the plan has their prompts. */
static void run(uint32_t from, uint32_t to)
{
	for (uint32_t k = 0; k < MOST; k++) {
		for (uint32_t i = from; k && i < to; i++)
			driver_add_run(&d, i, PROMPT + k - 1, 1, true);
		step();
		cr_assert_eq(d.result.n_tokens, to - from);
		for (uint32_t i = from; i < to; i++)
			note(&outputs[i], d.result.tokens[i - from]);
	}
}

static const char *text(uint32_t slot)
{
	static struct buf b;
	const struct output *o = &outputs[slot];
	buf_clear(&b);
	for (uint32_t i = 0; i < o->n; i++)
		buf_put(&b, vocabulary.bytes + vocabulary.at[o->ids[i]],
			vocabulary.at[o->ids[i] + 1] - vocabulary.at[o->ids[i]]);
	buf_putc(&b, '\0');
	return b.p;
}

/* Expects that the whole output matches this POSIX expression. */
static void matches(uint32_t slot, const char *pattern)
{
	regex_t r;
	cr_assert_eq(regcomp(&r, pattern, REG_EXTENDED | REG_NOSUB), 0);
	cr_expect(outputs[slot].ended, "slot %u has no end: %s", slot, text(slot));
	cr_expect_eq(regexec(&r, text(slot), 0, NULL, 0), 0, "slot %u: %s", slot, text(slot));
	regfree(&r);
}

static const char object[] = "{\"type\": \"object\", \"properties\": {\"n\": {\"type\": \"integer\", "
			     "\"minimum\": -50, \"maximum\": 999}, "
			     "\"s\": {\"type\": \"string\", \"maxLength\": 12}, \"b\": {\"type\": "
			     "\"boolean\"}}, \"required\": [\"n\", "
			     "\"s\", \"b\"], \"additionalProperties\": false}";

static void check_object(uint32_t slot)
{
	json_t *o;
	struct why why;
	cr_expect(outputs[slot].ended, "slot %u has no end: %s", slot, text(slot));
	cr_assert_eq(json_parse(text(slot), strlen(text(slot)), &o, &why), 0, "%s: %s", why.text, text(slot));
	const json_int_t n = json_integer_value(json_object_get(o, "n"));
	cr_expect(json_is_integer(json_object_get(o, "n")) && n >= -50 && n <= 999);
	cr_expect(json_is_string(json_object_get(o, "s")) && json_is_boolean(json_object_get(o, "b")));
	cr_expect_eq(json_object_size(o), 3);
	json_decref(o);
}

Test(guided, outputs_keep_their_forms)
{
	driver_form(&d, 1, GRAMMAR_REGEX, "[a-f]{3}(-[0-9]{1,4}){2,5}");
	driver_form(&d, 2, GRAMMAR_SCHEMA, object);
	driver_form(&d, 3, GRAMMAR_CHOICE, "[\"yes\", \"no\", \"perhaps\"]");
	driver_form(&d, 4, GRAMMAR_GBNF, "root ::= w (\"=\" w){0,4}\nw ::= \"<\" [a-z]{0,9} \">\"");
	driver_form(&d, 5, GRAMMAR_LARK, "start: \"v\" NUMBER (\".\" NUMBER)~1..3\nNUMBER: /[0-9]{1,3}/");
	for (uint32_t i = 0; i < SLOTS; i++)
		add(i, i % 7); /* slots 0 and 7 have no constraint */
	driver_form(&d, 6, GRAMMAR_REGEX, "x{20}");
	run(0, SLOTS);
	matches(1, "^[a-f]{3}(-[0-9]{1,4}){2,5}$");
	check_object(2);
	matches(3, "^(yes|no|perhaps)$");
	matches(4, "^<[a-z]{0,9}>(=<[a-z]{0,9}>){0,4}$");
	matches(5, "^v[0-9]{1,3}(\\.[0-9]{1,3}){1,3}$");
	matches(6, "^x{20}$");
	/* An output without a constraint does not depend on the constraints of others. */
	const struct output before = outputs[7];
	memset(outputs, 0, sizeof outputs);
	add(7, 0);
	run(7, 8);
	cr_expect_arr_eq(before.ids, outputs[7].ids, sizeof before.ids);
}

Test(guided, a_prompts_log_probabilities_come_first)
{
	params.prompt_logprobs = 1;
	driver_form(&d, 1, GRAMMAR_CHOICE, "[\"yes\", \"no\"]");
	driver_form(&d, 2, GRAMMAR_REGEX, "x{20}");
	for (uint32_t i = 0; i < SLOTS; i++)
		add(i, i % 3); /* more rows of logits than one pass makes */
	run(0, SLOTS);
	for (uint32_t i = 0; i < SLOTS; i++) {
		if (i % 3)
			matches(i, i % 3 == 1 ? "^(yes|no)$" : "^x{20}$");
	}
}

/* ---- log-probabilities and sets ---- */

Test(guided, only_what_is_allowed_has_a_probability)
{
	params.logprobs = 20;
	driver_form(&d, 1, GRAMMAR_REGEX, "[abc]");
	add(0, 1);
	step();
	cr_assert_eq(d.result.n_logprobs, 1);
	const struct result_logprob *l = &d.result.logprobs[0];
	double sum = 0;
	cr_assert_eq(l->n_top, 3);
	for (uint32_t i = 0; i < 3; i++) {
		const uint32_t id = d.result.top_ids[l->top0 + i];
		cr_expect(id >= 'a' && id <= 'c', "token %u", id);
		sum += exp(d.result.top_logprobs[l->top0 + i]);
	}
	cr_expect_float_eq(sum, 1, 1e-5);
	cr_expect_geq(l->rank, 1);
	cr_expect_leq(l->rank, 3);
}

/* Beam search: each of the most likely tokens is set in a slot of its own. */
Test(guided, tokens_chosen_by_the_controller_are_followed)
{
	params.logprobs = 8;
	driver_form(&d, 1, GRAMMAR_REGEX, "a1x|b2y|c3z");
	add(0, 1);
	step();
	uint32_t ids[3], n = d.result.logprobs[0].n_top;
	cr_assert_eq(n, 3);
	memcpy(ids, d.result.top_ids + d.result.logprobs[0].top0, sizeof ids);
	for (uint32_t i = 3; i--;)
		*plan_add_set(&d.plan) = (struct plan_set){i, 0, PROMPT, ids[i]};
	for (uint32_t i = 0; i < 3; i++)
		driver_add_run(&d, i, PROMPT, 1, true);
	step();
	for (uint32_t i = 0; i < 3; i++) {
		cr_expect_eq(d.result.logprobs[i].n_top, 1);
		cr_expect_eq(d.result.tokens[i], ids[i] - 'a' + '1');
		driver_add_run(&d, i, PROMPT + 1, 1, true);
	}
	step();
	for (uint32_t i = 0; i < 3; i++)
		cr_expect_eq(d.result.tokens[i], ids[i] - 'a' + 'x');
}

/* ---- ends ---- */

Test(guided, where_only_the_end_is_allowed_min_tokens_does_not_hold_it_back)
{
	uint32_t stop[] = {END};
	params.stop_ids = stop;
	params.n_stop_ids = 1;
	params.min_tokens = 10;
	driver_form(&d, 1, GRAMMAR_REGEX, "ab?");
	add(0, 1);
	step();
	cr_expect_eq(d.result.tokens[0], 'a');
	for (uint32_t k = 0; k < 4; k++) {
		driver_add_run(&d, 0, PROMPT + k, 1, true);
		step();
		cr_expect_eq(d.result.tokens[0], k ? END : 'b', "the end was not held back");
	}
}

/* ---- failures ---- */

Test(guided, an_output_that_fails_leaves_the_others_alone)
{
	driver_form(&d, 1, GRAMMAR_REGEX, "[a-z]{4}");
	add(1, 1);
	step();
	const uint32_t want = d.result.tokens[0];
	driver_form(&d, 2, GRAMMAR_SCHEMA, "{\"type\": \"nothing\"}");
	add(0, 2);
	add(1, 1);
	step();
	cr_assert_eq(d.result.n_tokens, 2);
	cr_expect_eq(d.result.tokens[1], want);
	cr_assert_eq(d.result.n_failed, 1);
	cr_expect_eq(d.result.failed[0].slot, 0);
	cr_expect(strstr(d.result.failed[0].reason, "nothing"), "%s", d.result.failed[0].reason);
	/* Rows that were sent before the controller knew of the failure. */
	driver_add_run(&d, 0, PROMPT, 1, true);
	driver_add_run(&d, 1, PROMPT, 1, true);
	step();
	cr_expect_eq(d.result.n_failed, 0);
	add(0, 1);
	step();
	cr_expect_eq(d.result.n_failed, 0);
}

Test(guided, a_form_that_was_not_sent_contradicts)
{
	driver_form(&d, 1, GRAMMAR_REGEX, "a");
	add(0, 2);
	cr_assert_eq(driver_step(&d), -EINVAL);
	cr_expect(strstr(d.why.text, "form 2 is not known"), "%s", d.why.text);
	/* A new epoch knows none of the earlier constraints. */
	step_reset(d.step, 1, NULL);
	d.number = 0;
	driver_form(&d, 1, GRAMMAR_REGEX, "a");
	add(0, 1);
	step();
	*plan_add_drop(&d.plan) = 0;
	*plan_add_drop_constraint(&d.plan) = 1;
	add(1, 1);
	cr_assert_eq(driver_step(&d), -EINVAL);
	step_reset(d.step, 1, NULL);
	d.number = 0;
	add(0, 1);
	cr_assert_eq(driver_step(&d), -EINVAL);
	cr_expect(strstr(d.why.text, "form 1 is not known"), "%s", d.why.text);
}

Test(guided, without_a_vocabulary_an_output_with_a_form_fails)
{
	struct bus_load load = driver_load(tiny_model("llama3"));
	driver_close(&d);
	cr_assert_eq(driver_open(&d, &load), 0, "%s", d.why.text);
	driver_form(&d, 1, GRAMMAR_REGEX, "a");
	add(0, 1);
	step();
	cr_assert_eq(d.result.n_failed, 1);
	cr_expect(strstr(d.result.failed[0].reason, "vocabulary"), "%s", d.result.failed[0].reason);
}

/* ---- groups ---- */

static void group_keeps_forms(void)
{
	struct bus_load load = driver_load(tiny_model("llama3"));
	if (strcmp(driver_device(), "cpu") != 0)
		cr_skip_test("groups of ranks are tested on the CPU");
	driver_close(&d);
	load.n_ranks = 2;
	cr_assert_eq(driver_open(&d, &load), 0, "%s", d.why.text);
	cr_expect(strstr(d.ready.numerics, " grammar=2 tp=2"), "%s", d.ready.numerics);
	cr_assert_eq(driver_send_vocabulary(&d), 0, "%s", d.why.text);
	driver_form(&d, 1, GRAMMAR_REGEX, "[a-f]{3}(-[0-9]{1,4}){2,5}");
	driver_form(&d, 2, GRAMMAR_SCHEMA, object);
	for (uint32_t i = 0; i < 3; i++)
		add(i, i);
	run(0, 3);
	matches(1, "^[a-f]{3}(-[0-9]{1,4}){2,5}$");
	check_object(2);
}

Test(guided, the_ranks_of_a_group_keep_forms)
{
	group_keeps_forms();
}

/* Rank 0 sends a notice after every mask, as if each mask took long. */
Test(guided, the_ranks_of_a_group_wait_while_masks_are_made)
{
	driver_notify_us = -1;
	group_keeps_forms();
}
