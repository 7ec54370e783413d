/* Structured output on the wire: constraints and their numbers, vocabularies, failed sequences. */
#include "base/alloc.h"
#include "proto/bus.h"
#include "proto/cursor.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

TestSuite(form, .timeout = 120);

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

Test(form, the_same_text_in_another_language_is_another_form)
{
	struct form *a = form_new(1, "a+", 2), *b = form_new(1, "a+", 2), *c = form_new(2, "a+", 2),
		    *d = form_new(1, "a\0", 2);
	cr_expect(form_same(a, b));
	cr_expect(!form_same(a, c));
	cr_expect(!form_same(a, d));
	cr_expect_eq(memcmp(a->hash, b->hash, sizeof a->hash), 0);
	cr_expect_neq(memcmp(a->hash, c->hash, sizeof a->hash), 0);
	cr_expect_neq(memcmp(a->hash, d->hash, sizeof a->hash), 0);
	cr_expect_str_eq(a->text, "a+");
	form_free(a);
	form_free(b);
	form_free(c);
	form_free(d);
}

/* A client that chooses texts can produce hash collisions. */
Test(form, forms_of_one_hash_are_told_apart_by_their_texts)
{
	struct form *a = form_new(1, "a+", 2), *b = form_new(1, "b+", 2);
	memcpy(b->hash, a->hash, sizeof b->hash);
	cr_expect(!form_same(a, b));
	form_free(a);
	form_free(b);
}

Test(form, the_last_reference_frees_it)
{
	struct form *f = form_new(1, "x", 1);
	cr_expect_eq(form_ref(f), f);
	form_free(f);
	cr_expect_str_eq(f->text, "x");
	form_free(f);
	cr_expect_null(form_ref(NULL));
	form_free(NULL);
}

Test(form, copies_of_parameters_share_the_form)
{
	struct params p, q;
	params_init(&p);
	p.form = form_new(4, "{}", 2);
	params_copy(&q, &p);
	cr_expect_eq(q.form, p.form);
	params_fini(&p);
	cr_expect_str_eq(q.form->text, "{}");
	params_fini(&q);
	cr_expect_null(q.form);
}

Test(form, stored_parameters_hold_the_whole_text)
{
	static const char text[] = "a\0b";
	struct params p, q;
	struct buf b = {0};
	struct cursor c;
	params_init(&p);
	p.form = form_new(3, text, sizeof text);
	params_pack_all(&b, &p);
	cursor_init(&c, b.p, b.len);
	params_unpack(&c, &q, 100);
	cr_assert(!c.bad, "%s", c.what);
	cr_assert(form_same(p.form, q.form));
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
static void encode_plan(struct buf *out, struct params *params, struct form *const *forms)
{
	static const uint32_t tokens[] = {5, 6}, blocks[] = {3};
	struct plan p = {.epoch = 2, .number = 9};
	*plan_add_drop_form(&p) = 3;
	*plan_add_drop_form(&p) = 4;
	*plan_add_form(&p) = (struct plan_form){7, forms[0]};
	*plan_add_form(&p) = (struct plan_form){8, forms[1]};
	for (uint32_t i = 0; i < 2; i++)
		*plan_add_seq(&p) = (struct plan_seq){.slot = i,
						      .n_prompt = 2,
						      .n_tokens = 2,
						      .n_blocks = 1,
						      .form = 7 + i,
						      .tokens = tokens,
						      .blocks = blocks,
						      .params = params};
	bus_encode_plan(&p, out);
	plan_fini(&p);
}

Test(form, a_plan_names_forms_by_number_and_brings_each_once)
{
	struct form *forms[] = {form_new(1, "a|b", 3), form_new(4, "", 0)};
	struct params params;
	struct plan q = {0};
	struct buf b = {0};
	char why[256] = "";
	params_init(&params);
	params.form = form_ref(forms[0]);
	encode_plan(&b, &params, forms);
	for (int again = 0; again < 2; again++) {
		cr_assert_eq(bus_decode_plan(b.p, b.len, &limits, &q, why, sizeof why), 0, "%s", why);
		cr_assert_eq(q.n_drop_forms, 2);
		cr_expect_eq(q.drop_forms[1], 4);
		cr_assert_eq(q.n_forms, 2);
		for (uint32_t i = 0; i < 2; i++) {
			cr_expect_eq(q.forms[i].number, 7 + i);
			cr_expect(form_same(q.forms[i].form, forms[i]));
			cr_expect_eq(q.seqs[i].form, 7 + i);
			cr_expect_null(q.seqs[i].params->form);
		}
	}
	struct form *kept = form_ref(q.forms[0].form);
	bus_plan_fini(&q);
	cr_expect_str_eq(kept->text, "a|b");
	form_free(kept);
	for (size_t n = 0; n < b.len; n++) {
		char *cut = xmemdup(b.p, n);
		cr_assert_lt(bus_decode_plan(cut, n, &limits, &q, why, sizeof why), 0, "%zu bytes", n);
		cr_assert_eq(q.n_forms, 0);
		free(cut);
	}
	bus_plan_fini(&q);
	params_fini(&params);
	form_free(forms[0]);
	form_free(forms[1]);
	buf_fini(&b);
}

Test(form, forms_of_a_plan_are_numbered_and_no_more_than_slots)
{
	struct form *form = form_new(1, "a", 1);
	struct plan p = {0}, q = {0};
	struct buf b = {0};
	char why[256] = "";
	*plan_add_form(&p) = (struct plan_form){0, form};
	bus_encode_plan(&p, &b);
	expect_bad(bus_decode_plan(b.p, b.len, &limits, &q, why, sizeof why), why, "without a number");
	plan_reset(&p);
	for (uint32_t i = 0; i < limits.max_slots; i++)
		*plan_add_form(&p) = (struct plan_form){i + 1, form};
	bus_encode_plan(&p, &b);
	cr_expect_eq(bus_decode_plan(b.p, b.len, &limits, &q, why, sizeof why), 0, "%s", why);
	*plan_add_form(&p) = (struct plan_form){9, form};
	bus_encode_plan(&p, &b);
	expect_bad(bus_decode_plan(b.p, b.len, &limits, &q, why, sizeof why), why, "forms: more than slots");
	plan_fini(&p);
	bus_plan_fini(&q);
	form_free(form);
	buf_fini(&b);
}

/* ---- results ---- */

Test(form, runs_that_sat_out_come_back_in_their_order)
{
	struct result r = {.epoch = 1, .number = 3}, got = {0};
	struct buf b = {0};
	char why[256] = "";
	result_add_held(&r, 3);
	result_add_held(&r, 0);
	bus_encode_result(&r, &b);
	cr_assert_eq(bus_decode_result(b.p, b.len, &limits, &got, why, sizeof why), 0, "%s", why);
	cr_assert_eq(got.n_held, 2);
	cr_expect(got.held[0] == 3 && got.held[1] == 0);
	r.held[1] = limits.max_slots;
	bus_encode_result(&r, &b);
	expect_bad(bus_decode_result(b.p, b.len, &limits, &got, why, sizeof why), why, "held");
	result_fini(&r);
	result_fini(&got);
	buf_fini(&b);
}

Test(form, a_sequence_that_fails_comes_back_with_its_reason)
{
	struct result r = {.epoch = 1, .number = 3}, got = {0};
	struct buf b = {0};
	char why[256] = "", reason[2 * RESULT_REASON_SIZE];
	memset(reason, 'x', sizeof reason - 1);
	reason[sizeof reason - 1] = '\0';
	result_add_failed(&r, 3, "nested 1,000 deep");
	result_add_failed(&r, 0, reason);
	bus_encode_result(&r, &b);
	cr_assert_eq(bus_decode_result(b.p, b.len, &limits, &got, why, sizeof why), 0, "%s", why);
	cr_assert_eq(got.n_failed, 2);
	cr_expect_eq(got.failed[0].slot, 3);
	cr_expect_str_eq(got.failed[0].reason, "nested 1,000 deep");
	cr_expect_eq(strlen(got.failed[1].reason), RESULT_REASON_SIZE - 1);
	for (size_t n = 0; n < b.len; n++) {
		char *cut = xmemdup(b.p, n);
		cr_assert_lt(bus_decode_result(cut, n, &limits, &got, why, sizeof why), 0, "%zu bytes", n);
		cr_assert_eq(got.n_failed, 0);
		free(cut);
	}
	r.failed[0].slot = limits.max_slots;
	bus_encode_result(&r, &b);
	expect_bad(bus_decode_result(b.p, b.len, &limits, &got, why, sizeof why), why, "failed: slot");
	result_reset(&r);
	for (uint32_t i = 0; i <= limits.max_slots; i++)
		result_add_failed(&r, i % limits.max_slots, "");
	bus_encode_result(&r, &b);
	expect_bad(bus_decode_result(b.p, b.len, &limits, &got, why, sizeof why), why,
		   "failed: more than slots");
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

Test(form, a_vocabulary_comes_back)
{
	struct vocabulary v = {0}, got = {0};
	struct buf b = {0};
	char why[256] = "";
	fill_vocabulary(&v);
	bus_encode_vocabulary(&v, &b);
	cr_assert_eq(bus_peek(b.p, b.len, why, sizeof why), BUS_VOCABULARY);
	for (int again = 0; again < 2; again++) {
		cr_assert_eq(bus_decode_vocabulary(b.p, b.len, 5, &got, why, sizeof why), 0, "%s", why);
		cr_assert_eq(got.n, 5);
		cr_expect_eq(memcmp(got.at, v.at, 6 * sizeof *v.at), 0);
		cr_expect_eq(memcmp(got.kinds, v.kinds, 5), 0);
		cr_expect_eq(memcmp(got.bytes, v.bytes, v.at[5]), 0);
		cr_expect_eq(vocabulary_checksum(&got), vocabulary_checksum(&v));
	}
	expect_bad(bus_decode_vocabulary(b.p, b.len, 4, &got, why, sizeof why), why, "lengths");
	cr_expect_eq(got.n, 0);
	struct bus_msg m;
	cr_expect_eq(bus_decode(b.p, b.len, &m, why, sizeof why), -EBADMSG);
	vocabulary_clear(&v);
	bus_encode_vocabulary(&v, &b);
	cr_expect_eq(bus_decode_vocabulary(b.p, b.len, 5, &got, why, sizeof why), 0, "%s", why);
	vocabulary_fini(&v);
	vocabulary_fini(&got);
	buf_fini(&b);
}

Test(form, a_vocabulary_that_was_cut_or_changed_on_the_way_is_refused)
{
	struct vocabulary v = {0}, got = {0};
	struct buf b = {0};
	char why[256] = "";
	vocabulary_add(&v, "ab", 2, VOCABULARY_TEXT);
	vocabulary_add(&v, "\xff<call>\xfe", 8, VOCABULARY_TEXT);
	vocabulary_add(&v, "</s>", 4, VOCABULARY_END);
	bus_encode_vocabulary(&v, &b);
	for (size_t n = 0; n < b.len; n++) {
		char *cut = xmemdup(b.p, n);
		cr_assert_lt(bus_decode_vocabulary(cut, n, 5, &got, why, sizeof why), 0, "%zu bytes", n);
		free(cut);
	}
	for (size_t i = 0; i < b.len; i++)
		for (int bit = 0; bit < 8; bit++) {
			b.p[i] ^= (char)(1 << bit);
			cr_assert_lt(bus_decode_vocabulary(b.p, b.len, 5, &got, why, sizeof why), 0,
				     "bit %d of byte %zu", bit, i);
			cr_assert_eq(got.n, 0);
			b.p[i] ^= (char)(1 << bit);
		}
	vocabulary_fini(&v);
	vocabulary_fini(&got);
	buf_fini(&b);
}

/* The vocabularies differ in bytes, token boundaries, kinds or number of tokens. */
Test(form, the_checksum_covers_bytes_places_and_kinds)
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
