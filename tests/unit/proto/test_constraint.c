/* Structured output on the wire: constraints and their numbers, vocabularies, failed sequences. */
#include "base/alloc.h"
#include "proto/bus.h"
#include "proto/cursor.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

TestSuite(constraint, .timeout = 120);

static const struct bus_limits limits = {
	.max_slots = 4,
	.max_rows = 64,
	.max_runs = 8,
	.max_context = 128,
	.n_blocks = 16,
	.n_host_blocks = 4,
	.n_vocab = 100,
};

static void expect_bad(int rc, const char *why, const char *reason)
{
	cr_assert_eq(rc, -EBADMSG);
	cr_assert(strstr(why, reason), "got: %s, expected: %s", why, reason);
}

/* ---- constraints ---- */

Test(constraint, the_same_text_in_another_language_is_another_form)
{
	struct constraint *a = constraint_new(1, "a+", 2), *b = constraint_new(1, "a+", 2),
			  *c = constraint_new(2, "a+", 2), *d = constraint_new(1, "a\0", 2);
	cr_expect(constraint_same(a, b));
	cr_expect(!constraint_same(a, c));
	cr_expect(!constraint_same(a, d));
	cr_expect_eq(memcmp(a->hash, b->hash, sizeof a->hash), 0);
	cr_expect_neq(memcmp(a->hash, c->hash, sizeof a->hash), 0);
	cr_expect_neq(memcmp(a->hash, d->hash, sizeof a->hash), 0);
	cr_expect_str_eq(a->text, "a+");
	constraint_free(a);
	constraint_free(b);
	constraint_free(c);
	constraint_free(d);
}

/* A client that chooses texts can produce hash collisions. */
Test(constraint, forms_of_one_hash_are_told_apart_by_their_texts)
{
	struct constraint *a = constraint_new(1, "a+", 2), *b = constraint_new(1, "b+", 2);
	memcpy(b->hash, a->hash, sizeof b->hash);
	cr_expect(!constraint_same(a, b));
	constraint_free(a);
	constraint_free(b);
}

Test(constraint, the_last_reference_frees_it)
{
	struct constraint *f = constraint_new(1, "x", 1);
	cr_expect_eq(constraint_ref(f), f);
	constraint_free(f);
	cr_expect_str_eq(f->text, "x");
	constraint_free(f);
	cr_expect_null(constraint_ref(NULL));
	constraint_free(NULL);
}

Test(constraint, copies_of_parameters_share_the_form)
{
	struct params p, q;
	params_init(&p);
	p.constraint = constraint_new(4, "{}", 2);
	params_copy(&q, &p);
	cr_expect_eq(q.constraint, p.constraint);
	params_fini(&p);
	cr_expect_str_eq(q.constraint->text, "{}");
	params_fini(&q);
	cr_expect_null(q.constraint);
}

Test(constraint, stored_parameters_hold_the_whole_text)
{
	static const char text[] = "a\0b";
	struct params p, q;
	struct buf b = {0};
	struct cursor c;
	params_init(&p);
	p.constraint = constraint_new(3, text, sizeof text);
	params_pack_all(&b, &p);
	cursor_init(&c, b.p, b.len);
	params_unpack(&c, &q, 100);
	cr_assert(!c.bad, "%s", c.what);
	cr_assert(constraint_same(p.constraint, q.constraint));
	params_fini(&q);
	for (size_t n = 0; n < b.len; n++) {
		char *cut = xmemdup(b.p, n);
		cursor_init(&c, cut, n);
		params_unpack(&c, &q, 100);
		cr_expect(c.bad, "%zu bytes", n);
		params_fini(&q);
		free(cut);
	}
	params_fini(&p);
	buf_fini(&b);
}

/* ---- plans ---- */

/* Encode a plan that drops two constraints, adds two, and has a sequence with each. */
static void encode_plan(struct buf *out, struct params *params, struct constraint *const *constraints)
{
	static const uint32_t tokens[] = {5, 6}, blocks[] = {3};
	struct plan p = {.epoch = 2, .number = 9};
	*plan_add_drop_constraint(&p) = 3;
	*plan_add_drop_constraint(&p) = 4;
	*plan_add_constraint(&p) = (struct plan_constraint){7, constraints[0]};
	*plan_add_constraint(&p) = (struct plan_constraint){8, constraints[1]};
	for (uint32_t i = 0; i < 2; i++)
		*plan_add_seq(&p) = (struct plan_seq){.slot = i,
						      .n_prompt = 2,
						      .n_tokens = 2,
						      .n_blocks = 1,
						      .constraint = 7 + i,
						      .tokens = tokens,
						      .blocks = blocks,
						      .params = params};
	bus_encode_plan(&p, out);
	plan_fini(&p);
}

Test(constraint, a_plan_names_forms_by_number_and_brings_each_once)
{
	struct constraint *constraints[] = {constraint_new(1, "a|b", 3), constraint_new(4, "", 0)};
	struct params params;
	struct plan q = {0};
	struct buf b = {0};
	struct why why = {""};
	params_init(&params);
	params.constraint = constraint_ref(constraints[0]);
	encode_plan(&b, &params, constraints);
	for (int again = 0; again < 2; again++) {
		cr_assert_eq(bus_decode_plan(b.p, b.len, &limits, &q, &why), 0, "%s", why.text);
		cr_assert_eq(q.n_drop_constraints, 2);
		cr_expect_eq(q.drop_constraints[1], 4);
		cr_assert_eq(q.n_constraints, 2);
		for (uint32_t i = 0; i < 2; i++) {
			cr_expect_eq(q.constraints[i].number, 7 + i);
			cr_expect(constraint_same(q.constraints[i].constraint, constraints[i]));
			cr_expect_eq(q.seqs[i].constraint, 7 + i);
			cr_expect_null(q.seqs[i].params->constraint);
		}
	}
	struct constraint *kept = constraint_ref(q.constraints[0].constraint);
	bus_plan_fini(&q);
	cr_expect_str_eq(kept->text, "a|b");
	constraint_free(kept);
	for (size_t n = 0; n < b.len; n++) {
		char *cut = xmemdup(b.p, n);
		cr_assert_lt(bus_decode_plan(cut, n, &limits, &q, &why), 0, "%zu bytes", n);
		cr_assert_eq(q.n_constraints, 0);
		free(cut);
	}
	bus_plan_fini(&q);
	params_fini(&params);
	constraint_free(constraints[0]);
	constraint_free(constraints[1]);
	buf_fini(&b);
}

Test(constraint, forms_of_a_plan_are_numbered_and_no_more_than_slots)
{
	struct constraint *constraint = constraint_new(1, "a", 1);
	struct plan p = {0}, q = {0};
	struct buf b = {0};
	struct why why = {""};
	*plan_add_constraint(&p) = (struct plan_constraint){0, constraint};
	bus_encode_plan(&p, &b);
	expect_bad(bus_decode_plan(b.p, b.len, &limits, &q, &why), why.text, "without a number");
	plan_reset(&p);
	for (uint32_t i = 0; i < limits.max_slots; i++)
		*plan_add_constraint(&p) = (struct plan_constraint){i + 1, constraint};
	bus_encode_plan(&p, &b);
	cr_expect_eq(bus_decode_plan(b.p, b.len, &limits, &q, &why), 0, "%s", why.text);
	*plan_add_constraint(&p) = (struct plan_constraint){9, constraint};
	bus_encode_plan(&p, &b);
	expect_bad(bus_decode_plan(b.p, b.len, &limits, &q, &why), why.text, "forms: more than slots");
	plan_fini(&p);
	bus_plan_fini(&q);
	constraint_free(constraint);
	buf_fini(&b);
}

/* ---- results ---- */

Test(constraint, runs_that_sat_out_come_back_in_their_order)
{
	struct result r = {.epoch = 1, .number = 3}, got = {0};
	struct buf b = {0};
	struct why why = {""};
	result_add_held(&r, 3);
	result_add_held(&r, 0);
	bus_encode_result(&r, &b);
	cr_assert_eq(bus_decode_result(b.p, b.len, &limits, &got, &why), 0, "%s", why.text);
	cr_assert_eq(got.n_held, 2);
	cr_expect(got.held[0] == 3 && got.held[1] == 0);
	r.held[1] = limits.max_slots;
	bus_encode_result(&r, &b);
	expect_bad(bus_decode_result(b.p, b.len, &limits, &got, &why), why.text, "held");
	result_fini(&r);
	result_fini(&got);
	buf_fini(&b);
}

Test(constraint, a_sequence_that_fails_comes_back_with_its_reason)
{
	struct result r = {.epoch = 1, .number = 3}, got = {0};
	struct buf b = {0};
	struct why why = {""};
	char reason[2 * RESULT_REASON_SIZE];
	memset(reason, 'x', sizeof reason - 1);
	reason[sizeof reason - 1] = '\0';
	result_add_failed(&r, 3, "nested 1,000 deep");
	result_add_failed(&r, 0, reason);
	bus_encode_result(&r, &b);
	cr_assert_eq(bus_decode_result(b.p, b.len, &limits, &got, &why), 0, "%s", why.text);
	cr_assert_eq(got.n_failed, 2);
	cr_expect_eq(got.failed[0].slot, 3);
	cr_expect_str_eq(got.failed[0].reason, "nested 1,000 deep");
	cr_expect_eq(strlen(got.failed[1].reason), RESULT_REASON_SIZE - 1);
	for (size_t n = 0; n < b.len; n++) {
		char *cut = xmemdup(b.p, n);
		cr_assert_lt(bus_decode_result(cut, n, &limits, &got, &why), 0, "%zu bytes", n);
		cr_assert_eq(got.n_failed, 0);
		free(cut);
	}
	r.failed[0].slot = limits.max_slots;
	bus_encode_result(&r, &b);
	expect_bad(bus_decode_result(b.p, b.len, &limits, &got, &why), why.text, "failed: slot");
	result_reset(&r);
	for (uint32_t i = 0; i <= limits.max_slots; i++)
		result_add_failed(&r, i % limits.max_slots, "");
	bus_encode_result(&r, &b);
	expect_bad(bus_decode_result(b.p, b.len, &limits, &got, &why), why.text, "failed: more than slots");
	result_fini(&r);
	result_fini(&got);
	buf_fini(&b);
}

/* ---- vocabularies ---- */

static void fill_vocabulary(struct vocabulary *v)
{
	static char longest[VOCABULARY_TOKEN_BYTES_MAX];
	memset(longest, 'z', sizeof longest);
	vocabulary_add(v, "a\0b", 3, VOCABULARY_TEXT);
	vocabulary_add(v, "\xff<call>\xfe", 8, VOCABULARY_TEXT);
	vocabulary_add(v, NULL, 0, VOCABULARY_CONTROL);
	vocabulary_add(v, longest, sizeof longest, VOCABULARY_TEXT);
	vocabulary_add(v, "</s>", 4, VOCABULARY_END);
}

Test(constraint, a_vocabulary_comes_back)
{
	struct vocabulary v = {0}, got = {0};
	struct buf b = {0};
	struct why why = {""};
	fill_vocabulary(&v);
	bus_encode_vocabulary(&v, &b);
	cr_assert_eq(bus_peek(b.p, b.len, &why), BUS_VOCABULARY);
	for (int again = 0; again < 2; again++) {
		cr_assert_eq(bus_decode_vocabulary(b.p, b.len, 5, &got, &why), 0, "%s", why.text);
		cr_assert_eq(got.n, 5);
		cr_expect_eq(memcmp(got.at, v.at, 6 * sizeof *v.at), 0);
		cr_expect_eq(memcmp(got.kinds, v.kinds, 5), 0);
		cr_expect_eq(memcmp(got.bytes, v.bytes, v.at[5]), 0);
		cr_expect_eq(vocabulary_checksum(&got), vocabulary_checksum(&v));
	}
	expect_bad(bus_decode_vocabulary(b.p, b.len, 4, &got, &why), why.text, "lengths");
	cr_expect_eq(got.n, 0);
	struct bus_msg m;
	cr_expect_eq(bus_decode(b.p, b.len, &m, &why), -EBADMSG);
	vocabulary_clear(&v);
	bus_encode_vocabulary(&v, &b);
	cr_expect_eq(bus_decode_vocabulary(b.p, b.len, 5, &got, &why), 0, "%s", why.text);
	vocabulary_fini(&v);
	vocabulary_fini(&got);
	buf_fini(&b);
}

Test(constraint, a_vocabulary_that_was_cut_or_changed_on_the_way_is_refused)
{
	struct vocabulary v = {0}, got = {0};
	struct buf b = {0};
	struct why why = {""};
	vocabulary_add(&v, "ab", 2, VOCABULARY_TEXT);
	vocabulary_add(&v, "\xff<call>\xfe", 8, VOCABULARY_TEXT);
	vocabulary_add(&v, "</s>", 4, VOCABULARY_END);
	bus_encode_vocabulary(&v, &b);
	for (size_t n = 0; n < b.len; n++) {
		char *cut = xmemdup(b.p, n);
		cr_assert_lt(bus_decode_vocabulary(cut, n, 5, &got, &why), 0, "%zu bytes", n);
		free(cut);
	}
	for (size_t i = 0; i < b.len; i++)
		for (int bit = 0; bit < 8; bit++) {
			b.p[i] ^= (char)(1 << bit);
			cr_assert_lt(bus_decode_vocabulary(b.p, b.len, 5, &got, &why), 0,
				     "bit %d of byte %zu", bit, i);
			cr_assert_eq(got.n, 0);
			b.p[i] ^= (char)(1 << bit);
		}
	vocabulary_fini(&v);
	vocabulary_fini(&got);
	buf_fini(&b);
}

/* The vocabularies differ in bytes, token boundaries, kinds or number of tokens. */
Test(constraint, the_checksum_covers_bytes_places_and_kinds)
{
	struct vocabulary v[5] = {0};
	vocabulary_add(&v[0], "ab", 2, VOCABULARY_TEXT);
	vocabulary_add(&v[0], "c", 1, VOCABULARY_TEXT);
	vocabulary_add(&v[1], "a", 1, VOCABULARY_TEXT);
	vocabulary_add(&v[1], "bc", 2, VOCABULARY_TEXT);
	vocabulary_add(&v[2], "ab", 2, VOCABULARY_TEXT);
	vocabulary_add(&v[2], "c", 1, VOCABULARY_END);
	vocabulary_add(&v[3], "ab", 2, VOCABULARY_TEXT);
	vocabulary_add(&v[3], "d", 1, VOCABULARY_TEXT);
	for (int i = 0; i < 5; i++)
		for (int k = 0; k < i; k++)
			cr_expect_neq(vocabulary_checksum(&v[i]), vocabulary_checksum(&v[k]), "%d, %d", i, k);
	for (int i = 0; i < 5; i++)
		vocabulary_fini(&v[i]);
}
