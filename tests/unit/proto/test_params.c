/* The table of parameters and its readers: neutral values, ranges, and the map on the bus and in the
 * journal. */
#include "base/alloc.h"
#include "base/buf.h"
#include "proto/cursor.h"
#include "proto/mp.h"
#include "proto/params.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define EACH_ROW(row)                                                                                        \
	for (const struct params_row *row = params_rows; row < params_rows + n_params_rows; row++)

enum { VOCAB = 100 };

static size_t size_of(const struct params_row *row)
{
	return row->type == PARAMS_UINT64 ? sizeof(uint64_t) : row->type == PARAMS_BOOL ? sizeof(bool) : 4;
}

/* Set a value within the range that is not the neutral one, so that the row alone is valid. */
static void set_other(const struct params_row *row, struct params *p)
{
	const uint64_t seed = UINT64_MAX;
	if (row->type == PARAMS_UINT64)
		memcpy((char *)p + row->offset, &seed, sizeof seed);
	else if (strcmp(row->name, "pool") == 0)
		p->pool = PARAMS_POOL_MEAN;
	else
		params_set(row, p, row->neutral == row->hi ? (row->lo + row->hi) / 2 : row->hi);
}

/* ---- the table ---- */

Test(params, each_number_of_the_struct_has_one_row)
{
	unsigned char owner[offsetof(struct params, stop_ids)] = {0};
	EACH_ROW(row)
	{
		cr_assert_leq(row->offset + size_of(row), sizeof owner, "%s", row->name);
		for (size_t i = 0; i < size_of(row); i++)
			cr_assert_eq(owner[row->offset + i]++, 0, "%s", row->name);
		cr_expect_eq(params_row_at(row->offset), row);
	}
	/* The remaining bytes are padding: each gap is shorter than an alignment. */
	for (size_t i = 0, free = 0; i < sizeof owner; i++) {
		free = owner[i] ? 0 : free + 1;
		cr_expect_lt(free, sizeof(uint32_t), "bytes up to %zu belong to no row", i);
	}
}

Test(params, names_are_short_enough_to_be_read_and_stand_once)
{
	EACH_ROW(row)
	{
		cr_expect_lt(strlen(row->name), 32);
		EACH_ROW(other)
		cr_expect(other == row || strcmp(other->name, row->name) != 0, "%s", row->name);
		for (size_t i = 0; i < n_params_lists; i++)
			cr_expect_str_neq(params_lists[i].name, row->name);
	}
}

/* A new row raises BUS_VERSION and adds a number to this test's counts. */
Test(params, each_row_names_the_version_of_the_bus_that_had_it_first)
{
	static const size_t had[BUS_VERSION] = {14, 3, 9, 3, 0, 0, 0};
	size_t of[BUS_VERSION] = {0};
	EACH_ROW(row)
	{
		cr_assert(row->since >= 1 && row->since <= BUS_VERSION, "%s", row->name);
		of[row->since - 1]++;
	}
	for (size_t v = 0; v < BUS_VERSION; v++)
		cr_expect_eq(of[v], had[v], "version %zu has %zu rows", v + 1, of[v]);
}

Test(params, what_is_neutral_is_valid_and_set_by_init)
{
	struct params p;
	memset(&p, 0x5a, sizeof p);
	params_init(&p);
	EACH_ROW(row)
	if (row->type == PARAMS_FLOAT)
		cr_expect_eq(params_get(row, &p), (double)(float)row->neutral, "%s", row->name);
	else if (row->type != PARAMS_UINT64)
		cr_expect_eq(params_get(row, &p), row->neutral, "%s", row->name);
	cr_expect(p.n == 1 && p.temperature == 1 && p.top_p == 1 && p.typical_p == 1 && p.dry_base == 1.75f);
	cr_expect(p.logprobs == -1 && p.prompt_logprobs == -1 && p.dry_last_n == -1 && p.seed == 0);
	cr_expect_eq(params_check(&p, VOCAB, NULL), 0);
}

/* ---- ranges ---- */

static void expect_refused(const struct params_row *row, double x)
{
	struct why why = {""};
	struct params p;
	params_init(&p);
	params_set(row, &p, x);
	if (params_get(row, &p) != x && !isnan(x))
		return; /* the type cannot hold the value */
	cr_expect_eq(params_check(&p, VOCAB, &why), -EINVAL, "%s %g", row->name, x);
	cr_expect_eq(strncmp(why.text, row->name, strlen(row->name)), 0, "%s: %s", row->name, why.text);
}

Test(params, a_number_out_of_its_range_is_refused_by_name)
{
	EACH_ROW(row)
	{
		struct params p;
		if (row->type == PARAMS_UINT64)
			continue;
		params_init(&p);
		set_other(row, &p);
		cr_expect_eq(params_check(&p, VOCAB, NULL), 0, "%s", row->name);
		if (row->type == PARAMS_BOOL)
			continue;
		if (row->hi < 2147483647 || row->type == PARAMS_UINT32)
			expect_refused(row, row->hi + 1);
		if (row->lo > 0 || row->type != PARAMS_UINT32)
			expect_refused(row, row->lo - 1);
		if (row->type != PARAMS_FLOAT)
			continue;
		expect_refused(row, (double)nextafterf((float)row->hi, INFINITY));
		expect_refused(row, (double)nextafterf((float)row->lo, -INFINITY));
		expect_refused(row, NAN);
		expect_refused(row, INFINITY);
		params_set(row, &p, row->lo);
		cr_expect_eq(params_check(&p, VOCAB, NULL) != 0, (row->flags & PARAMS_ABOVE) != 0, "%s",
			     row->name);
	}
}

Test(params, lists_that_the_sampler_cannot_use_are_refused)
{
	static int32_t beyond[] = {1, VOCAB}, negative[] = {-1}, down[] = {5, 5}, lengths[] = {1, 2},
		       zero[] = {0, 2};
	static float bias[] = {1};
	static const struct {
		struct params p;
		const char *why;
	} cases[] = {
		{{.allowed = beyond, .n_allowed = 2}, "allowed_token_ids names token 100"},
		{{.bias_ids = negative, .bias = bias, .n_bias = 1}, "logit_bias names token -1"},
		{{.bad = beyond, .n_bad_ids = 2, .bad_len = lengths + 1, .n_bad = 1},
		 "bad_words names token"},
		{{.breakers = beyond, .n_breakers = 2}, "dry_sequence_breakers names token"},
		{{.breakers = down, .n_breakers = 2}, "not ascending"},
		{{.bad = down, .n_bad_ids = 2, .bad_len = lengths, .n_bad = 2}, "lengths of bad_words"},
		{{.bad = down, .n_bad_ids = 2, .bad_len = zero, .n_bad = 2}, "lengths of bad_words"},
		{{.bad = down, .n_bad_ids = 2, .bad_len = lengths, .n_bad = 1}, "ids of no word"},
		{{.pool = PARAMS_POOL_LOGITS}, "pooled in a way"},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct why why = {""};
		struct params p;
		params_init(&p);
		const struct params *from = &cases[i].p;
		p.pool = from->pool;
		p.allowed = from->allowed, p.n_allowed = from->n_allowed;
		p.bias_ids = from->bias_ids, p.bias = from->bias, p.n_bias = from->n_bias;
		p.bad = from->bad, p.n_bad_ids = from->n_bad_ids;
		p.bad_len = from->bad_len, p.n_bad = from->n_bad;
		p.breakers = from->breakers, p.n_breakers = from->n_breakers;
		cr_expect_eq(params_check(&p, VOCAB, &why), -EINVAL, "case %zu", i);
		cr_expect_not_null(strstr(why.text, cases[i].why), "case %zu: %s", i, why.text);
	}
}

/* ---- bytes ---- */

static void unpack(const struct buf *b, struct params *p)
{
	struct cursor c;
	cursor_init(&c, b->p, b->len);
	params_unpack(&c, p, VOCAB);
	cr_assert(!c.bad && c.p == c.end, "%s", c.what);
}

static void expect_bad(const struct buf *b, const char *reason)
{
	struct cursor c;
	struct params p;
	cursor_init(&c, b->p, b->len);
	params_unpack(&c, &p, VOCAB);
	cr_expect(c.bad && strstr(c.what, reason), "got \"%s\", expected \"%s\"", c.what, reason);
	params_fini(&p);
}

Test(params, only_what_is_not_neutral_is_packed_and_comes_back)
{
	struct params p, q;
	struct buf b = {0};
	params_init(&p);
	params_pack_changed(&b, &p);
	cr_expect(b.len == 1 && (unsigned char)b.p[0] == 0x80, "an empty map");
	EACH_ROW(row)
	{
		params_init(&p);
		set_other(row, &p);
		buf_clear(&b);
		params_pack_changed(&b, &p);
		cr_expect_eq((unsigned char)b.p[0], 0x81, "%s: a map of one", row->name);
		cr_expect_eq(memcmp(b.p + 2, row->name, strlen(row->name)), 0);
		unpack(&b, &q);
		EACH_ROW(other)
		cr_expect_eq(memcmp((char *)&p + other->offset, (char *)&q + other->offset, size_of(other)),
			     0, "%s of %s", other->name, row->name);
		params_fini(&q);
	}
	buf_fini(&b);
}

Test(params, all_are_packed_for_the_journal)
{
	struct params p, q;
	struct buf b = {0};
	struct cursor c;
	params_init(&p);
	params_pack_all(&b, &p);
	cursor_init(&c, b.p, b.len);
	cr_expect_eq(cursor_map(&c, "params"), n_params_rows);
	unpack(&b, &q);
	params_fini(&q);
	buf_fini(&b);
}

Test(params, lists_come_back_and_copies_own_theirs)
{
	static int32_t bias_ids[] = {9, 8}, allowed[] = {1}, bad[] = {4, 5, 6}, lengths[] = {1, 2},
		       dry[] = {7};
	static uint32_t stops[] = {3, 2};
	static float bias[] = {-1.5f, 2};
	struct params p, q, r;
	struct buf b = {0};
	params_init(&p);
	p.stop_ids = stops, p.n_stop_ids = 2;
	p.bias_ids = bias_ids, p.bias = bias, p.n_bias = 2;
	p.allowed = allowed, p.n_allowed = 1;
	p.bad = bad, p.n_bad_ids = 3, p.bad_len = lengths, p.n_bad = 2;
	p.breakers = dry, p.n_breakers = 1;
	params_pack_changed(&b, &p);
	unpack(&b, &r);
	params_copy(&q, &r);
	params_fini(&r);
	cr_expect(q.n_stop_ids == 2 && memcmp(q.stop_ids, stops, sizeof stops) == 0);
	cr_expect(q.n_bias == 2 && memcmp(q.bias_ids, bias_ids, sizeof bias_ids) == 0 &&
		  memcmp(q.bias, bias, sizeof bias) == 0);
	cr_expect(q.n_allowed == 1 && q.allowed[0] == 1 && q.n_breakers == 1 && q.breakers[0] == 7);
	cr_expect(q.n_bad == 2 && q.n_bad_ids == 3 && memcmp(q.bad, bad, sizeof bad) == 0 &&
		  memcmp(q.bad_len, lengths, sizeof lengths) == 0);
	params_fini(&q);
	buf_fini(&b);
}

static void put_list(struct buf *b, const char *name, uint32_t n)
{
	static const uint32_t words[8] = {1, 2, 3, 4, 5, 6, 7, 8};
	mp_put_cstr(b, name);
	mp_put_bin(b, n * sizeof *words);
	buf_put(b, words, n * sizeof *words);
}

Test(params, maps_that_no_writer_makes_are_refused)
{
	struct buf b = {0};
	mp_put_map(&b, 1);
	mp_put_cstr(&b, "topp");
	mp_put_float(&b, 1);
	expect_bad(&b, "topp is not known");
	buf_clear(&b);
	mp_put_map(&b, 2);
	for (int i = 0; i < 2; i++)
		put_list(&b, "allowed_token_ids", 2);
	expect_bad(&b, "allowed_token_ids is there twice");
	buf_clear(&b);
	mp_put_map(&b, 1);
	put_list(&b, "allowed_token_ids", 0);
	expect_bad(&b, "a list is empty");
	buf_clear(&b);
	mp_put_map(&b, 1);
	put_list(&b, "logit_bias_values", 2);
	expect_bad(&b, "as many biases as ids");
	buf_clear(&b);
	mp_put_map(&b, 2);
	put_list(&b, "logit_bias", 2);
	put_list(&b, "logit_bias_values", 3);
	expect_bad(&b, "not as long");
	buf_clear(&b);
	mp_put_map(&b, 1);
	mp_put_cstr(&b, "top_p");
	mp_put_float(&b, 1.5f);
	expect_bad(&b, "top_p is 1.5, out of its range");
	buf_clear(&b);
	mp_put_map(&b, 1);
	mp_put_cstr(&b, "form");
	mp_put_bin(&b, 0);
	expect_bad(&b, "form: empty");
	buf_clear(&b);
	mp_put_map(&b, 1);
	mp_put_cstr(&b, "stop_token_ids");
	mp_put_bin(&b, 4);
	buf_put(&b, &(uint32_t){VOCAB}, 4);
	expect_bad(&b, "a stop token beyond the vocabulary");
	buf_fini(&b);
}
