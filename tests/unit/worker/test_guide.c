/* Outputs with forms: masks are those of the form behind the output, however the slot came to it. */
#include "worker/guide.h"

#include "grammar/grammar.h"
#include "grammar/regex.h"
#include "grammar/source.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Token t < 256 is the byte t; then some words, and two that end a text. */
static const char *const words[] = {"true", "false", "{\"a\":", "ab", "abc", "0123456789"};
enum { N_WORDS = 6, AB = 256 + 3, END = 256 + N_WORDS, END2, N_TOKENS, N_VOCAB = 300, WORDS = 10 };
enum { SLOTS = 8 };

static struct guide *g;
static struct vocabulary vocabulary;
static char bytes[512];
static uint32_t at[N_TOKENS + 1], mask[WORDS], other[WORDS];
static uint8_t kinds[N_TOKENS];

static void add(uint32_t *n, const char *p, size_t len, uint8_t kind)
{
	memcpy(bytes + at[*n], p, len);
	kinds[*n] = kind;
	at[*n + 1] = at[*n] + (uint32_t)len;
	++*n;
}

static void make_vocabulary(void)
{
	uint32_t n = 0;
	for (int b = 0; b < 256; b++)
		add(&n, &(char){(char)b}, 1, VOCABULARY_TEXT);
	for (int i = 0; i < N_WORDS; i++)
		add(&n, words[i], strlen(words[i]), VOCABULARY_TEXT);
	add(&n, "<eos>", 5, VOCABULARY_END);
	add(&n, "<eot>", 5, VOCABULARY_END);
	vocabulary = (struct vocabulary){.n = n, .at = at, .kinds = kinds, .bytes = bytes};
}

static void open_with(size_t limit)
{
	char why[200];
	guide_new(&g, &(struct guide_limits){.max_slots = SLOTS, .n_vocab = N_VOCAB, .bytes = limit});
	cr_assert_eq(guide_words(g), WORDS);
	cr_assert_eq(guide_vocabulary(g, &vocabulary, why, sizeof why), 0, "%s", why);
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

static void form(uint32_t number, enum grammar_language language, const char *text)
{
	struct form *f = form_new((uint8_t)language, text, strlen(text));
	guide_add(g, number, f);
	form_free(f);
}

static void set(uint32_t slot, uint32_t number, const char *output)
{
	uint32_t ids[64], n = (uint32_t)strlen(output);
	char why[200];
	for (uint32_t i = 0; i < n; i++)
		ids[i] = (unsigned char)output[i];
	cr_assert_eq(guide_set(g, slot, number, ids, n, why, sizeof why), 0, "%s", why);
}

static bool allows(const uint32_t *m, uint32_t token)
{
	return m[token / 32] >> token % 32 & 1;
}

/* The slot may go on with exactly these tokens: bytes, 'W' + word for the words, '$' for both ends. */
static void may(uint32_t slot, const char *tokens)
{
	uint32_t want[WORDS] = {0};
	for (const char *p = tokens; *p; p++) {
		uint32_t t = (unsigned char)*p;
		if (*p == 'W')
			t = 256 + (uint32_t)(*++p - '0');
		if (*p == '$')
			want[END2 / 32] |= 1u << END2 % 32, t = END;
		want[t / 32] |= 1u << t % 32;
	}
	memset(mask, 0xa5, sizeof mask);
	cr_assert(guide_mask(g, slot, mask), "slot %u: no mask, %s", slot, guide_take_failure(g, slot));
	for (uint32_t t = 0; t < WORDS * 32; t++)
		cr_assert_eq(allows(mask, t), allows(want, t), "slot %u: token %u is %s", slot, t,
			     allows(mask, t) ? "allowed" : "not allowed");
}

static void free_slot(uint32_t slot)
{
	cr_assert_not(guide_mask(g, slot, mask));
	cr_assert_null(guide_take_failure(g, slot));
}

static void fails(uint32_t slot, const char *reason)
{
	cr_assert_not(guide_mask(g, slot, mask));
	const char *why = guide_take_failure(g, slot);
	cr_assert(why && strstr(why, reason), "\"%s\" does not say \"%s\"", why ? why : "", reason);
	cr_assert_not(guide_mask(g, slot, mask));
	cr_assert_null(guide_take_failure(g, slot), "told twice");
}

/* The slot samples `token` as the one with this index of a plan. */
static void sample(uint32_t slot, uint64_t plan, uint32_t index, int32_t token)
{
	int32_t tokens[4] = {-1, -1, -1, -1};
	tokens[index] = token;
	guide_expect(g, slot, plan, index);
	guide_hear(g, plan, tokens, 4);
}

/* ---- masks ---- */

Test(guide, an_output_is_led_to_its_end)
{
	form(7, GRAMMAR_REGEX, "(abc|x1)?");
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
	form(7, GRAMMAR_REGEX, "abc");
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
	form(1, GRAMMAR_REGEX, "true");
	form(2, GRAMMAR_GBNF, "root ::= \"true\"");
	form(3, GRAMMAR_LARK, "start: \"true\"");
	form(4, GRAMMAR_CHOICE, "[\"true\"]");
	form(5, GRAMMAR_SCHEMA, "{\"const\": true}");
	for (uint32_t i = 1; i <= 5; i++) {
		set(i, i, "");
		may(i, "tW0");
	}
}

Test(guide, an_output_sent_again_has_the_masks_it_had)
{
	static const char text[] = "{\"a\":[true,false,0.25],\"b\":\"xyz\"}";
	form(1, GRAMMAR_SCHEMA,
	     "{\"type\": \"object\", \"required\": [\"a\", \"b\"], \"properties\": {\"a\": "
	     "{\"type\": \"array\"}, \"b\": {\"type\": \"string\"}}}");
	set(0, 1, "");
	for (size_t i = 0; i < sizeof text - 1; i++) {
		char so_far[64] = "";
		memcpy(so_far, text, i);
		set(1, 1, so_far);
		cr_assert(guide_mask(g, 0, mask) && guide_mask(g, 1, other));
		cr_assert_arr_eq(mask, other, sizeof mask, "behind %s", so_far);
		cr_assert(allows(mask, (unsigned char)text[i]), "behind %s", so_far);
		sample(0, i + 1, 0, text[i]);
	}
	may(0, "$");
}

/* ---- forks, sets ---- */

Test(guide, a_copy_goes_its_own_way)
{
	form(1, GRAMMAR_REGEX, "a[bc]d|aX");
	set(0, 1, "a");
	may(0, "bcX");
	guide_copy(g, 1, 0, 1);
	sample(0, 1, 0, 'b');
	sample(1, 1, 1, 'X');
	may(0, "d");
	may(1, "$");
	guide_copy(g, 0, 1, 0); /* as it was at its beginning */
	may(0, "aW3");
	guide_drop(g, 1);
	may(0, "aW3");
}

Test(guide, a_token_is_set_behind_the_output_or_in_place_of_its_last)
{
	form(1, GRAMMAR_REGEX, "a(b1|c2)|d3");
	set(0, 1, "a");
	guide_put(g, 0, 1, 'b');
	may(0, "1");
	guide_put(g, 0, 1, 'c'); /* the matcher had it */
	may(0, "2");
	guide_put(g, 0, 1, 'b'); /* the matcher has it not yet */
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
	form(1, GRAMMAR_REGEX, "ab?");
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

/* ---- tokens that are not known yet ---- */

Test(guide, tokens_of_a_plan_under_way_reach_all_copies)
{
	int32_t tokens[3] = {'x', 'y', 'b'}, later[1] = {'2'};
	form(1, GRAMMAR_REGEX, "ab[12]3");
	set(0, 1, "a");
	guide_expect(g, 0, 5, 2);
	cr_assert(guide_waits(g, 0));
	guide_copy(g, 1, 0, 2); /* with the token that is not known */
	guide_copy(g, 2, 0, 1); /* without */
	guide_expect(g, 0, 6, 0);
	cr_assert(guide_waits(g, 1));
	cr_assert_not(guide_waits(g, 2));
	may(2, "b");
	guide_hear(g, 4, later, 1); /* none of theirs */
	guide_hear(g, 5, tokens, 3);
	guide_hear(g, 5, later, 1);
	cr_assert(guide_waits(g, 0));
	cr_assert_not(guide_waits(g, 1));
	may(1, "12");
	guide_hear(g, 6, later, 1);
	may(0, "3");
}

Test(guide, a_token_is_set_behind_one_that_is_not_known)
{
	int32_t tokens[1] = {'b'};
	form(1, GRAMMAR_REGEX, "a(b1|c2)x");
	set(0, 1, "a");
	guide_expect(g, 0, 5, 0);
	guide_put(g, 0, 2, '1');
	cr_assert(guide_waits(g, 0));
	guide_hear(g, 5, tokens, 1);
	may(0, "x");
}

Test(guide, a_token_that_is_set_is_not_waited_for)
{
	int32_t tokens[1] = {'c'};
	form(1, GRAMMAR_REGEX, "a(b1|c2)");
	set(0, 1, "a");
	guide_expect(g, 0, 5, 0);
	guide_put(g, 0, 1, 'b');
	cr_assert_not(guide_waits(g, 0));
	guide_hear(g, 5, tokens, 1);
	may(0, "1");
}

Test(guide, a_slots_next_sequence_does_not_get_the_tokens_of_the_one_before)
{
	int32_t tokens[1] = {'c'};
	form(1, GRAMMAR_REGEX, "a(b1|c2)");
	set(0, 1, "a");
	guide_expect(g, 0, 5, 0);
	set(0, 1, "ab");
	guide_hear(g, 5, tokens, 1);
	may(0, "1");
}

/* ---- failures: of one output ---- */

Test(guide, a_form_that_does_not_compile_fails_its_outputs)
{
	form(1, GRAMMAR_SCHEMA, "{\"type\": \"nothing\"}");
	form(2, GRAMMAR_REGEX, "a");
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
	form(1, (enum grammar_language)200, "[\"a\"]");
	set(0, 1, "");
	fails(0, "language 200");
}

Test(guide, nesting_beyond_the_bound_fails_its_output)
{
	enum { DEEP = 1200 };
	uint32_t ids[DEEP];
	char why[200];
	form(1, GRAMMAR_GBNF, "root ::= \"[\" root* \"]\"");
	for (int i = 0; i < DEEP; i++)
		ids[i] = '[';
	cr_assert_eq(guide_set(g, 0, 1, ids, DEEP, why, sizeof why), 0);
	cr_assert_eq(guide_set(g, 1, 1, ids, 10, why, sizeof why), 0);
	fails(0, "the output's token ");
	may(1, "[]");
	guide_copy(g, 2, 0, 10); /* as it was before */
	may(2, "[]");
}

Test(guide, a_token_that_the_form_does_not_allow_fails_its_output)
{
	form(1, GRAMMAR_REGEX, "abc");
	set(0, 1, "aX");
	fails(0, "token 1 (88)");
	set(1, 1, "a");
	sample(1, 1, 0, -1); /* a device that sampled nothing; the step fails by itself */
	fails(1, "token 1");
}

Test(guide, a_form_that_no_token_can_follow_fails_its_output)
{
	kinds['z'] = VOCABULARY_CONTROL;
	char why[200];
	form(1, GRAMMAR_REGEX, "az");
	set(0, 1, "");
	cr_assert_eq(guide_vocabulary(g, &vocabulary, why, sizeof why), 0);
	may(0, "a");
	sample(0, 1, 0, 'a');
	fails(0, "no token of the vocabulary");
	guide_copy(g, 1, 0, 1);
	fails(1, "no token of the vocabulary");
	guide_copy(g, 1, 0, 0);
	may(1, "a");
}

/* ---- forms and vocabularies ---- */

Test(guide, a_form_outlives_its_number)
{
	char why[200];
	form(1, GRAMMAR_REGEX, "ab");
	set(0, 1, "");
	may(0, "aW3");
	guide_remove(g, 1);
	guide_remove(g, 9);
	may(0, "aW3");
	guide_copy(g, 1, 0, 0);
	guide_drop(g, 0);
	may(1, "aW3");
	cr_assert_eq(guide_set(g, 0, 1, NULL, 0, why, sizeof why), -EINVAL);
	cr_assert(strstr(why, "form 1"), "%s", why);
	guide_drop(g, 1);
	struct guide_counts c;
	guide_counts(g, &c);
	cr_assert_eq(c.n_forms, 0);
}

Test(guide, a_form_sent_again_is_not_compiled_again)
{
	struct guide_counts c;
	form(1, GRAMMAR_REGEX, "ab");
	set(0, 1, "");
	may(0, "aW3");
	form(1, GRAMMAR_REGEX, "ab");
	set(0, 1, "a");
	may(0, "b");
	guide_counts(g, &c);
	cr_assert_eq(c.compiled, 1);
	cr_assert_eq(c.n_compiled, 1);
	form(1, GRAMMAR_REGEX, "ax");
	set(1, 1, "a");
	may(1, "x");
	may(0, "b"); /* the one it was set with */
}

Test(guide, forms_are_compiled_when_they_are_needed)
{
	struct guide_counts c;
	form(1, GRAMMAR_REGEX, "ab");
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
	form(1, GRAMMAR_REGEX, "[ab]{9}");
	form(2, GRAMMAR_REGEX, "[bc]{9}");
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

/* One step may bring a form for every slot. */
Test(guide, memory_is_bounded_within_a_step)
{
	struct guide_counts c;
	uint32_t most = 0;
	form(1, GRAMMAR_REGEX, "p+");
	set(0, 1, "");
	may(0, "p");
	guide_counts(g, &c);
	const size_t one = c.bytes;
	guide_free(g);
	open_with(one);
	for (uint32_t slot = 0; slot < SLOTS; slot++) {
		const char text[] = {(char)('p' + slot), '+', '\0'};
		form(1 + slot, GRAMMAR_REGEX, text);
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
	form(1, GRAMMAR_REGEX, "a+");
	set(0, 1, "");
	may(0, "a");
	guide_counts(g, &c);
	guide_free(g);
	open_with(c.bytes * 3 / 2);
	form(1, GRAMMAR_REGEX, "a+");
	form(2, GRAMMAR_REGEX, "b+");
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
	char why[200];
	vocabulary.n = 'c' + 1;
	cr_assert_eq(guide_vocabulary(g, &vocabulary, why, sizeof why), 0);
	form(1, GRAMMAR_REGEX, "[a-z]?");
	set(0, 1, "");
	may(0, "abc");
	struct guide *few;
	guide_new(&few, &(struct guide_limits){.max_slots = 1, .n_vocab = 'b' + 1});
	make_vocabulary();
	memset(at, 0, sizeof at);
	make_vocabulary();
	cr_assert_eq(guide_vocabulary(few, &vocabulary, why, sizeof why), 0);
	guide_free(few);
	/* Another one later: what was compiled for the first is of no use. */
	cr_assert_eq(guide_vocabulary(g, &vocabulary, why, sizeof why), 0);
	may(0, "abcdefghijklmnopqrstuvwxyz$");
}

Test(guide, without_a_vocabulary_outputs_with_a_form_fail)
{
	char why[200];
	guide_free(g);
	guide_new(&g, &(struct guide_limits){.max_slots = SLOTS, .n_vocab = N_VOCAB});
	form(1, GRAMMAR_REGEX, "a");
	set(0, 1, "");
	fails(0, "vocabulary");
	cr_assert_eq(guide_vocabulary(g, &vocabulary, why, sizeof why), 0);
	set(0, 1, "");
	may(0, "a");
}

Test(guide, after_a_reset_only_the_vocabulary_is_left)
{
	struct guide_counts c;
	char why[200];
	form(1, GRAMMAR_REGEX, "a");
	form(2, GRAMMAR_REGEX, "b");
	set(0, 1, "");
	may(0, "a");
	guide_remove(g, 1);
	guide_reset(g);
	guide_counts(g, &c);
	cr_assert_eq(c.n_forms, 0);
	free_slot(0);
	cr_assert_eq(guide_set(g, 0, 2, NULL, 0, why, sizeof why), -EINVAL);
	form(1, GRAMMAR_REGEX, "b");
	set(0, 1, "");
	may(0, "b");
}
