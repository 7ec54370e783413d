/* Guided outputs: a slot's mask follows from the constraint and the text so far, however the slot came to
 * this text. */
#include "tests/unit/worker/guide_help.h"

#include "grammar/grammar.h"
#include "grammar/regex.h"

#include <errno.h>
#include <poll.h>
#include <semaphore.h>
#include <stdlib.h>

static uint32_t other[WORDS];

static void open_with(size_t limit)
{
	struct why why;
	const struct guide_limits limits = {.max_slots = SLOTS, .n_vocab = N_VOCAB, .bytes = limit};
	cr_assert_eq(guide_new(&g, &limits, &why), 0, "%s", why.text);
	cr_assert_eq(guide_words(g), WORDS);
	cr_assert_eq(guide_vocabulary(g, &vocabulary, &why), 0, "%s", why.text);
}

static void open_guide(void)
{
	make_vocabulary();
	open_with(0);
}

static void close_guide(void)
{
	guide_free(g);
}

TestSuite(guide, .init = open_guide, .fini = close_guide, .timeout = 60);

static void free_slot(uint32_t slot)
{
	cr_assert_not(guide_mask(g, slot, 1, mask));
	cr_assert_null(guide_take_failure(g, slot));
}

/* ---- masks ---- */

Test(guide, an_output_is_led_to_its_end)
{
	constraint(7, GRAMMAR_REGEX, "(abc|x1)?");
	set(0, 7, "");
	may(0, "axW3W4$");
	sample(0, 1, 0, AB);
	may(0, "c");
	sample(0, 2, 0, 'c');
	may(0, "$");
	cr_assert_not(guide_waits(g, 0));
	sample(0, 3, 0, END2);
	may(0, "$");
	sample(0, 4, 0, END);
	may(0, "$");
}

Test(guide, slots_without_a_form_are_free)
{
	constraint(7, GRAMMAR_REGEX, "abc");
	free_slot(0);
	set(0, 7, "a");
	cr_assert(guide_has(g, 0));
	set(0, 0, "zzz");
	cr_assert_not(guide_has(g, 0));
	cr_assert_not(guide_has(NULL, 0));
	free_slot(0);
	guide_expect(g, 0, 1, 0);
	guide_put(g, 0, 3, 5);
	guide_copy(g, 1, 0, 4);
	cr_assert_not(guide_waits(g, 0));
	free_slot(1);
}

Test(guide, every_language_makes_masks)
{
	constraint(1, GRAMMAR_REGEX, "true");
	constraint(2, GRAMMAR_GBNF, "root ::= \"true\"");
	constraint(3, GRAMMAR_LARK, "start: \"true\"");
	constraint(4, GRAMMAR_CHOICE, "[\"true\"]");
	constraint(5, GRAMMAR_SCHEMA, "{\"const\": true}");
	for (uint32_t i = 1; i <= 5; i++) {
		set(i, i, "");
		may(i, "tW0");
	}
}

Test(guide, an_output_sent_again_has_the_masks_it_had)
{
	static const char text[] = "{\"a\":[true,false,0.25],\"b\":\"xyz\"}";
	constraint(1, GRAMMAR_SCHEMA,
		   "{\"type\": \"object\", \"required\": [\"a\", \"b\"], \"properties\": {\"a\": "
		   "{\"type\": \"array\"}, \"b\": {\"type\": \"string\"}}}");
	set(0, 1, "");
	for (size_t i = 0; i < sizeof text - 1; i++) {
		char so_far[64] = "";
		memcpy(so_far, text, i);
		set(1, 1, so_far);
		cr_assert(guide_mask(g, 0, 1, mask) && guide_mask(g, 1, 1, other));
		cr_assert_arr_eq(mask, other, sizeof mask, "behind %s", so_far);
		cr_assert(allows(mask, (unsigned char)text[i]), "behind %s", so_far);
		sample(0, i + 1, 0, text[i]);
	}
	may(0, "$");
}

/* ---- forks and sets ---- */

Test(guide, a_copy_goes_its_own_way)
{
	constraint(1, GRAMMAR_REGEX, "a[bc]d|aX");
	set(0, 1, "a");
	may(0, "bcX");
	guide_copy(g, 1, 0, 1);
	sample(0, 1, 0, 'b');
	sample(1, 1, 1, 'X');
	may(0, "d");
	may(1, "$");
	guide_copy(g, 0, 1, 0); /* as at its beginning */
	may(0, "aW3");
	guide_drop(g, 1);
	may(0, "aW3");
}

Test(guide, a_token_is_set_behind_the_output_or_in_place_of_its_last)
{
	constraint(1, GRAMMAR_REGEX, "a(b1|c2)|d3");
	set(0, 1, "a");
	guide_put(g, 0, 1, 'b');
	may(0, "1");
	guide_put(g, 0, 1, 'c'); /* the matcher has consumed this token */
	may(0, "2");
	guide_put(g, 0, 1, 'b'); /* the matcher has not consumed this token yet */
	guide_put(g, 0, 1, 'c');
	may(0, "2");
	guide_copy(g, 1, 0, 1);
	guide_put(g, 1, 1, 'b');
	may(1, "1");
	may(0, "2");
	guide_copy(g, 2, 0, 0);
	guide_put(g, 2, 0, 'd');
	may(2, "3");
}

Test(guide, what_follows_the_end_is_taken_back_with_it)
{
	constraint(1, GRAMMAR_REGEX, "ab?");
	set(0, 1, "a");
	may(0, "b$");
	sample(0, 1, 0, END);
	may(0, "$");
	sample(0, 2, 0, END);
	may(0, "$");
	guide_put(g, 0, 2, END2);
	may(0, "$");
	guide_copy(g, 1, 0, 1);
	may(1, "b$");
	guide_copy(g, 0, 1, 1);
	guide_put(g, 0, 1, 'b');
	may(0, "$");
}

/* ---- tokens not known yet ---- */

Test(guide, tokens_of_a_plan_under_way_reach_all_copies)
{
	int32_t tokens[3] = {'x', 'y', 'b'}, later[1] = {'2'};
	constraint(1, GRAMMAR_REGEX, "ab[12]3");
	set(0, 1, "a");
	guide_expect(g, 0, 5, 2);
	cr_assert(guide_waits(g, 0));
	guide_copy(g, 1, 0, 2); /* a copy that includes the unknown token */
	guide_copy(g, 2, 0, 1); /* a copy without it */
	guide_expect(g, 0, 6, 0);
	cr_assert(guide_waits(g, 1));
	cr_assert_not(guide_waits(g, 2));
	may(2, "b");
	guide_receive(g, 4, later, 1); /* concerns none of these slots */
	guide_receive(g, 5, tokens, 3);
	guide_receive(g, 5, later, 1);
	cr_assert(guide_waits(g, 0));
	cr_assert_not(guide_waits(g, 1));
	may(1, "12");
	guide_receive(g, 6, later, 1);
	may(0, "3");
}

Test(guide, a_token_is_set_behind_one_that_is_not_known)
{
	int32_t tokens[1] = {'b'};
	constraint(1, GRAMMAR_REGEX, "a(b1|c2)x");
	set(0, 1, "a");
	guide_expect(g, 0, 5, 0);
	guide_put(g, 0, 2, '1');
	cr_assert(guide_waits(g, 0));
	guide_receive(g, 5, tokens, 1);
	may(0, "x");
}

Test(guide, a_token_that_is_set_is_not_waited_for)
{
	int32_t tokens[1] = {'c'};
	constraint(1, GRAMMAR_REGEX, "a(b1|c2)");
	set(0, 1, "a");
	guide_expect(g, 0, 5, 0);
	guide_put(g, 0, 1, 'b');
	cr_assert_not(guide_waits(g, 0));
	guide_receive(g, 5, tokens, 1);
	may(0, "1");
}

Test(guide, a_slots_next_sequence_does_not_get_the_tokens_of_the_one_before)
{
	int32_t tokens[1] = {'c'};
	constraint(1, GRAMMAR_REGEX, "a(b1|c2)");
	set(0, 1, "a");
	guide_expect(g, 0, 5, 0);
	set(0, 1, "ab");
	guide_receive(g, 5, tokens, 1);
	may(0, "1");
}

/* ---- failures of one output ---- */

Test(guide, a_form_that_does_not_compile_fails_its_outputs)
{
	constraint(1, GRAMMAR_SCHEMA, "{\"type\": \"nothing\"}");
	constraint(2, GRAMMAR_REGEX, "a");
	set(0, 1, "");
	set(1, 1, "");
	set(2, 2, "");
	fails(0, "nothing");
	fails(1, "nothing");
	may(2, "a");
	set(0, 2, "");
	may(0, "a");
}

Test(guide, a_language_that_is_not_known_is_refused)
{
	constraint(1, (enum grammar_language)200, "[\"a\"]");
	set(0, 1, "");
	fails(0, "language 200");
}

Test(guide, nesting_beyond_the_bound_fails_its_output)
{
	enum { DEEP = 1200 };
	uint32_t ids[DEEP];
	struct why why;
	constraint(1, GRAMMAR_GBNF, "root ::= \"[\" root* \"]\"");
	for (int i = 0; i < DEEP; i++)
		ids[i] = '[';
	cr_assert_eq(guide_set(g, 0, 1, ids, DEEP, &why), 0);
	cr_assert_eq(guide_set(g, 1, 1, ids, 10, &why), 0);
	fails(0, "the output's token ");
	may(1, "[]");
	guide_copy(g, 2, 0, 10); /* as before the failure */
	may(2, "[]");
}

Test(guide, a_token_that_the_form_does_not_allow_fails_its_output)
{
	constraint(1, GRAMMAR_REGEX, "abc");
	set(0, 1, "aX");
	fails(0, "token 1 (88)");
	set(1, 1, "a");
	sample(1, 1, 0, -1); /* the device sampled nothing; the step itself fails */
	fails(1, "token 1");
}

Test(guide, a_form_that_no_token_can_follow_fails_its_output)
{
	kinds['z'] = VOCABULARY_CONTROL;
	struct why why;
	constraint(1, GRAMMAR_REGEX, "az");
	set(0, 1, "");
	cr_assert_eq(guide_vocabulary(g, &vocabulary, &why), 0);
	may(0, "a");
	sample(0, 1, 0, 'a');
	fails(0, "no token of the vocabulary");
	guide_copy(g, 1, 0, 1);
	fails(1, "no token of the vocabulary");
	guide_copy(g, 1, 0, 0);
	may(1, "a");
}

/* ---- constraints and vocabularies ---- */

Test(guide, a_form_outlives_its_number)
{
	struct why why;
	constraint(1, GRAMMAR_REGEX, "ab");
	set(0, 1, "");
	may(0, "aW3");
	guide_remove(g, 1);
	guide_remove(g, 9);
	may(0, "aW3");
	guide_copy(g, 1, 0, 0);
	guide_drop(g, 0);
	may(1, "aW3");
	cr_assert_eq(guide_set(g, 0, 1, NULL, 0, &why), -EINVAL);
	cr_assert(strstr(why.text, "form 1"), "%s", why.text);
	guide_drop(g, 1);
	struct guide_counts c;
	guide_counts(g, &c);
	cr_assert_eq(c.n_constraints, 0);
}

Test(guide, a_form_sent_again_is_not_compiled_again)
{
	struct guide_counts c;
	constraint(1, GRAMMAR_REGEX, "ab");
	set(0, 1, "");
	may(0, "aW3");
	constraint(1, GRAMMAR_REGEX, "ab");
	set(0, 1, "a");
	may(0, "b");
	guide_counts(g, &c);
	cr_assert_eq(c.compiled, 1);
	cr_assert_eq(c.n_compiled, 1);
	constraint(1, GRAMMAR_REGEX, "ax");
	set(1, 1, "a");
	may(1, "x");
	may(0, "b"); /* the constraint that the slot was set with */
}

Test(guide, forms_are_compiled_when_they_are_needed)
{
	struct guide_counts c;
	constraint(1, GRAMMAR_REGEX, "ab");
	set(0, 1, "a");
	guide_counts(g, &c);
	cr_assert_eq(c.n_compiled, 0);
	may(0, "b");
	guide_counts(g, &c);
	cr_assert_eq(c.n_compiled, 1);
	cr_assert_gt(c.bytes, 0);
}

Test(guide, memory_is_bounded_and_masks_stay_the_same)
{
	struct guide_counts c;
	guide_free(g);
	open_with(1);
	constraint(1, GRAMMAR_REGEX, "[ab]{9}");
	constraint(2, GRAMMAR_REGEX, "[bc]{9}");
	set(0, 1, "");
	set(1, 2, "");
	for (uint64_t plan = 1; plan < 10; plan++) {
		may(0, plan < 9 ? "abW3" : "ab");
		may(1, "bc");
		guide_trim(g);
		guide_counts(g, &c);
		cr_assert_eq(c.n_compiled, 0);
		sample(0, plan, 0, plan == 3 ? AB : 'a');
		if (plan == 3)
			guide_put(g, 0, 2, 'a');
		sample(1, plan, 1, 'c');
	}
	cr_assert_eq(c.compiled, 18);
}

/* One step may bring a constraint for every slot. */
Test(guide, memory_is_bounded_within_a_step)
{
	struct guide_counts c;
	uint32_t most = 0;
	constraint(1, GRAMMAR_REGEX, "p+");
	set(0, 1, "");
	may(0, "p");
	guide_counts(g, &c);
	const size_t one = c.bytes;
	guide_free(g);
	open_with(one);
	for (uint32_t slot = 0; slot < SLOTS; slot++) {
		const char text[] = {(char)('p' + slot), '+', '\0'};
		constraint(1 + slot, GRAMMAR_REGEX, text);
		set(slot, 1 + slot, "");
	}
	for (uint32_t turn = 0; turn < 2; turn++) {
		for (uint32_t slot = 0; slot < SLOTS; slot++) {
			may(slot, (char[]){(char)('p' + slot), '\0'});
			guide_counts(g, &c);
			most = c.n_compiled > most ? c.n_compiled : most;
		}
		guide_trim(g);
	}
	cr_expect_leq(most, 3);
}

Test(guide, the_grammar_that_was_used_last_is_kept)
{
	struct guide_counts c;
	constraint(1, GRAMMAR_REGEX, "a+");
	set(0, 1, "");
	may(0, "a");
	guide_counts(g, &c);
	guide_free(g);
	open_with(c.bytes * 3 / 2);
	constraint(1, GRAMMAR_REGEX, "a+");
	constraint(2, GRAMMAR_REGEX, "b+");
	set(0, 1, "");
	set(1, 2, "");
	may(0, "a");
	guide_trim(g);
	may(1, "b");
	guide_trim(g);
	may(1, "b");
	guide_counts(g, &c);
	cr_assert_eq(c.n_compiled, 1);
	cr_assert_eq(c.compiled, 2);
}

Test(guide, a_vocabulary_is_cut_or_filled_to_the_models)
{
	struct why why;
	vocabulary.n = 'c' + 1;
	cr_assert_eq(guide_vocabulary(g, &vocabulary, &why), 0);
	constraint(1, GRAMMAR_REGEX, "[a-z]?");
	set(0, 1, "");
	may(0, "abc");
	struct guide *few;
	guide_new(&few, &(struct guide_limits){.max_slots = 1, .n_vocab = 'b' + 1}, &why);
	make_vocabulary();
	memset(at, 0, sizeof at);
	make_vocabulary();
	cr_assert_eq(guide_vocabulary(few, &vocabulary, &why), 0);
	guide_free(few);
	/* A later vocabulary makes everything compiled for the first one useless. */
	cr_assert_eq(guide_vocabulary(g, &vocabulary, &why), 0);
	may(0, "abcdefghijklmnopqrstuvwxyz$");
}

Test(guide, without_a_vocabulary_outputs_with_a_form_fail)
{
	struct why why;
	guide_free(g);
	guide_new(&g, &(struct guide_limits){.max_slots = SLOTS, .n_vocab = N_VOCAB}, &why);
	constraint(1, GRAMMAR_REGEX, "a");
	set(0, 1, "");
	fails(0, "vocabulary");
	cr_assert_eq(guide_vocabulary(g, &vocabulary, &why), 0);
	set(0, 1, "");
	may(0, "a");
}

Test(guide, after_a_reset_only_the_vocabulary_is_left)
{
	struct guide_counts c;
	struct why why;
	constraint(1, GRAMMAR_REGEX, "a");
	constraint(2, GRAMMAR_REGEX, "b");
	set(0, 1, "");
	may(0, "a");
	guide_remove(g, 1);
	guide_reset(g);
	guide_counts(g, &c);
	cr_assert_eq(c.n_constraints, 0);
	free_slot(0);
	cr_assert_eq(guide_set(g, 0, 2, NULL, 0, &why), -EINVAL);
	constraint(1, GRAMMAR_REGEX, "b");
	set(0, 1, "");
	may(0, "b");
}

/* ---- threads ---- */

/* Each job waits for the gate before it begins. */
static sem_t gate, begun;
static struct guide_report report;
static uint64_t plan;

static void wait_gate(void *arg)
{
	(void)arg;
	sem_post(&begun);
	sem_wait(&gate);
}

/* A guide with its thread waiting at the gate; the caller itself does at_once units. */
static void open_gated_with(uint64_t at_once, uint64_t most, size_t limit)
{
	struct why why = {""};
	const struct guide_limits limits = {.max_slots = SLOTS,
					    .n_vocab = N_VOCAB,
					    .bytes = limit,
					    .work = {1, at_once, most, wait_gate, NULL, &report}};
	sem_init(&gate, 0, 0);
	sem_init(&begun, 0, 0);
	make_vocabulary();
	cr_assert_eq(guide_new(&g, &limits, &why), 0, "%s", why.text);
	cr_assert_eq(guide_vocabulary(g, &vocabulary, &why), 0, "%s", why.text);
}

static void open_gated(uint64_t at_once, uint64_t most)
{
	open_gated_with(at_once, most, 0);
}

static void open_slow(void)
{
	open_gated(1, 0);
}

static void close_gated(void)
{
	for (int i = 0; i < 1000; i++)
		sem_post(&gate);
	guide_free(g);
}

TestSuite(guide_late, .init = open_slow, .fini = close_gated, .timeout = 60);

/* Let one more job run; expect that exactly these slots wake up, in any order. */
static void make_one(const char *slots)
{
	uint32_t slot, n = 0;
	struct pollfd fd = {guide_fd(g), POLLIN, 0};
	sem_post(&gate);
	cr_assert_eq(poll(&fd, 1, -1), 1);
	while (guide_awake(g, plan, &slot)) {
		cr_assert(strchr(slots, (int)('0' + slot)), "slot %u", slot);
		n++;
	}
	cr_assert_eq(n, strlen(slots), "%u of %s", n, slots);
}

static void is_late(uint32_t slot)
{
	cr_assert_eq(guide_mask(g, slot, ++plan, mask), GUIDE_LATER, "slot %u", slot);
}

Test(guide_late, a_mask_comes_later_and_is_the_same)
{
	uint32_t slot;
	constraint(1, GRAMMAR_REGEX, "a([bc]|b{9})");
	set(0, 1, "");
	is_late(0);
	is_late(0);
	cr_assert_not(guide_awake(g, plan, &slot), "nothing was made yet");
	make_one("0");
	may(0, "aW3");
	sample(0, plan, 0, 'a');
	is_late(0);
	make_one("0");
	may(0, "bc");
	struct guide_counts c;
	guide_counts(g, &c);
	cr_expect_eq(c.n_late, 3);
	cr_expect_eq(c.compiled, 1);
	cr_expect_eq(c.n_waits, 0);
}

/* The controller must learn that the row was held before it learns that the slot is awake. */
Test(guide_late, a_slot_is_awake_after_the_plan_that_it_sat_out_in)
{
	uint32_t slot;
	struct pollfd fd = {guide_fd(g), POLLIN, 0};
	constraint(1, GRAMMAR_REGEX, "ab");
	set(0, 1, "");
	is_late(0);
	sem_post(&gate);
	cr_assert_eq(poll(&fd, 1, -1), 1);
	cr_assert_not(guide_awake(g, plan - 1, &slot));
	cr_assert(guide_awake(g, plan, &slot));
	cr_assert_eq(slot, 0);
	cr_assert_not(guide_awake(g, plan, &slot), "told once");
}

/* Jobs of one constraint run one after another; outputs of other constraints do not wait for them. */
Test(guide_late, outputs_of_one_form_take_turns)
{
	constraint(1, GRAMMAR_REGEX, "[ab]{7}c");
	set(0, 1, "");
	set(1, 1, "aaa");
	set(2, 1, "aaaaa");
	is_late(0);
	is_late(1);
	is_late(2);
	make_one("012"); /* now compiled, so the other jobs may run at once */
	may(0, "abW3");
	is_late(1);
	is_late(2);
	make_one("1"); /* the next slot's job begins */
	may(1, "abW3");
	make_one("2");
	may(2, "abW3W4");
}

Test(guide_late, a_slot_that_changes_meanwhile_gets_the_mask_of_what_it_is)
{
	constraint(1, GRAMMAR_REGEX, "a(b|c)");
	constraint(2, GRAMMAR_REGEX, "x");
	set(0, 1, "");
	is_late(0);
	set(0, 2, "");
	is_late(0);
	make_one("");
	make_one("0");
	may(0, "x");
	set(1, 1, "a");
	guide_copy(g, 2, 1, 1);
	guide_put(g, 1, 0, 'a'); /* as before */
	is_late(1);
	guide_put(g, 1, 1, 'b');
	make_one("");
	is_late(1);
	make_one("1");
	may(1, "$");
	may(2, "bc");
}

Test(guide_late, what_fails_later_says_why)
{
	constraint(1, GRAMMAR_REGEX, "(");
	constraint(2, GRAMMAR_REGEX, "ab");
	set(0, 1, "");
	set(1, 2, "x");
	is_late(0);
	is_late(1);
	make_one("0");
	fails(0, "");
	make_one("1");
	fails(1, "token 0 (120)");
}

Test(guide_late, a_reset_leaves_jobs_alone)
{
	constraint(1, GRAMMAR_REGEX, "ab");
	set(0, 1, "");
	is_late(0);
	guide_reset(g);
	constraint(1, GRAMMAR_REGEX, "cd");
	set(0, 1, "");
	is_late(0);
	make_one("");
	make_one("0");
	may(0, "c");
	struct guide_counts c;
	guide_counts(g, &c);
	cr_expect_eq(c.n_constraints, 1);
}

Test(guide_late, another_vocabulary_comes_meanwhile)
{
	struct why why;
	uint32_t slot;
	constraint(1, GRAMMAR_REGEX, "ab");
	set(0, 1, "");
	is_late(0);
	sem_post(&gate);
	cr_assert_eq(guide_vocabulary(g, &vocabulary, &why), 0);
	cr_assert(guide_awake(g, plan, &slot) && slot == 0);
	is_late(0);
	make_one("0");
	may(0, "aW3");
}

/* The output that has waited longest is next; a slot that returns repeatedly does not overtake it. */
Test(guide_late, the_output_that_waits_longest_is_next)
{
	constraint(1, GRAMMAR_REGEX, "[ab]{9}");
	for (uint32_t slot = 0; slot < 3; slot++)
		set(slot, 1, "");
	is_late(0);
	make_one("0");
	may(0, "abW3");
	sample(0, plan, 0, 'a');
	for (uint32_t slot = 0; slot < 3; slot++)
		is_late(slot);
	make_one("0");
	may(0, "abW3");
	sample(0, plan, 0, 'a');
	is_late(0);
	make_one("1");
	make_one("2");
	make_one("0");
	may(0, "abW3");
}

/* A change of vocabulary, like the end, waits only for jobs that have begun. */
Test(guide_late, what_is_cancelled_is_not_begun_again)
{
	struct why why;
	uint32_t slot, n = 0;
	int n_begun;
	constraint(1, GRAMMAR_REGEX, "[ab]{9}");
	set(0, 1, "");
	set(1, 1, "a");
	is_late(0);
	make_one("0");
	may(0, "abW3");
	sample(0, plan, 0, 'a');
	is_late(0);
	is_late(1);
	for (int i = 0; i < 3; i++)
		sem_post(&gate);
	kinds['b'] = VOCABULARY_CONTROL;
	cr_assert_eq(guide_vocabulary(g, &vocabulary, &why), 0);
	sem_getvalue(&begun, &n_begun);
	cr_assert_eq(n_begun, 2);
	while (guide_awake(g, plan, &slot))
		n += 1 + slot;
	cr_assert_eq(n, 3, "both are awake");
	is_late(0);
	make_one("0");
	may(0, "aW3");
}

/* Grammars are freed whatever sequences and numbers an idle service has left. */
Test(guide_late, a_grammar_that_is_not_used_for_a_while_is_freed)
{
	struct guide_counts c;
	constraint(1, GRAMMAR_REGEX, "ab");
	constraint(2, GRAMMAR_REGEX, "cd");
	set(0, 1, "");
	set(1, 2, "");
	is_late(0);
	is_late(1);
	make_one("0");
	make_one("1");
	guide_rest(g, 1000);
	may(0, "aW3");
	guide_rest(g, 2000);
	guide_rest(g, 999 + GUIDE_IDLE_US);
	guide_counts(g, &c);
	cr_assert_eq(c.n_compiled, 2);
	cr_assert(c.bytes && report.bytes == c.bytes);
	guide_rest(g, 1000 + GUIDE_IDLE_US);
	guide_counts(g, &c);
	cr_expect(c.n_compiled == 1 && c.bytes && report.bytes == c.bytes);
	guide_rest(g, 2000 + GUIDE_IDLE_US);
	guide_counts(g, &c);
	cr_expect(c.n_compiled == 0 && c.bytes == 0 && report.bytes == 0);
	may(1, "c"); /* compiled by then */
	is_late(0);
	make_one("0");
	may(0, "aW3");
}

Test(guide_bound, work_of_a_mask_is_bounded, .fini = close_gated, .timeout = 60)
{
	open_gated(1, 40);
	constraint(1, GRAMMAR_SCHEMA,
		   "{\"type\":\"string\",\"minLength\":8,\"allOf\":[{\"not\":{\"pattern\":\"a.{3}$\"}},"
		   "{\"not\":{\"pattern\":\"b.{4}$\"}},{\"not\":{\"pattern\":\"c.{5}$\"}}]}");
	constraint(2, GRAMMAR_REGEX, "ab");
	set(0, 1, "\"a");
	set(1, 2, "");
	is_late(0);
	is_late(1);
	make_one("0");
	fails(0, "more than 40 units of work");
	make_one("1");
	may(1, "aW3");
}

/* The caller takes no job back, as during a long step. */
Test(guide_bound, grammars_that_are_made_meanwhile_are_bounded, .fini = close_gated, .timeout = 60)
{
	struct guide_counts c;
	open_gated(1, 0);
	constraint(1, GRAMMAR_REGEX, "p+");
	set(0, 1, "");
	is_late(0);
	make_one("0");
	guide_counts(g, &c);
	guide_free(g);
	open_gated_with(1, 0, 4 * c.bytes);
	for (uint32_t slot = 0; slot < SLOTS; slot++) {
		constraint(1 + slot, GRAMMAR_REGEX, (char[]){(char)('p' + slot), '+', '\0'});
		set(slot, 1 + slot, "");
		is_late(slot);
	}
	for (uint32_t slot = 1; slot < SLOTS; slot++)
		sem_post(&gate);
	for (uint32_t slot = 0; slot < SLOTS; slot++)
		sem_wait(&begun); /* one thread: all jobs before the last have finished */
	guide_rest(g, 1);
	guide_counts(g, &c);
	cr_expect_eq(c.n_compiled, 1);
	make_one("01234567");
	for (uint32_t slot = 0; slot < SLOTS; slot++)
		may(slot, (char[]){(char)('p' + slot), '\0'});
}

/* No output keeps a state of the freed grammar. */
Test(guide_bound, a_grammar_that_was_freed_beside_the_step_is_made_again, .fini = close_gated, .timeout = 60)
{
	struct guide_counts c;
	uint32_t slot;
	open_gated(1, 0);
	constraint(1, GRAMMAR_REGEX, "p+");
	set(0, 1, "");
	is_late(0);
	make_one("0");
	guide_counts(g, &c);
	guide_free(g);
	open_gated_with(1, 0, 4 * c.bytes);
	for (uint32_t i = 0; i < 3; i++)
		constraint(1 + i, GRAMMAR_REGEX, (char[]){(char)('p' + i), '+', '\0'});
	set(1, 2, "");
	is_late(1);
	make_one("1");
	may(1, "q");
	sample(1, plan, 0, 'q'); /* this output has a state in the second grammar */
	set(0, 1, "");
	for (int i = 0; i < 2; i++)
		sem_wait(&begun); /* it has begun: the next two queue after it, in this order */
	set(2, 2, "q");
	is_late(0);
	is_late(2);
	set(3, 3, "");
	is_late(3);
	for (int i = 0; i < 2; i++)
		sem_post(&gate);
	for (int i = 0; i < 2; i++)
		sem_wait(&begun); /* one thread: all jobs before the last have finished */
	while (guide_awake(g, plan, &slot))
		cr_assert(slot == 0 || slot == 2, "slot %u", slot);
	guide_counts(g, &c);
	cr_assert_eq(c.n_compiled, 1, "this tests nothing");
	is_late(1);
	make_one("3");
	make_one("1");
	may(1, "q$");
}

Test(guide_bound, what_is_cheap_is_made_at_once, .fini = close_gated, .timeout = 60)
{
	open_gated(0, 0);
	constraint(1, GRAMMAR_REGEX, "[ab]*c");
	set(0, 1, "");
	is_late(0); /* it is compiled while the step runs */
	make_one("0");
	for (int i = 0; i < 5; i++) {
		may(0, "abcW3W4");
		sample(0, ++plan, 0, 'a');
	}
	may(0, "abcW3W4");
}
