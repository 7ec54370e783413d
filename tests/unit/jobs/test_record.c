/* The record of a request, of this version and of the journal's earlier formats. */
#include "base/alloc.h"
#include "controller/jobs/record.h"
#include "proto/mp.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct why why;

static int read_request(const struct buf *b, struct submit **got)
{
	struct cursor c;
	*got = NULL;
	cursor_init(&c, b->p, b->len);
	return record_get_request(&c, 100, 1, 1, got, &why);
}

Test(record, a_request_comes_back_and_one_of_another_version_does_not)
{
	enum { VERSION_BYTE = 3 }; /* after the array header */
	struct submit s = {0}, *got;
	struct buf b = {0};
	params_init(&s.params);
	s.tokens = (uint32_t[]){1, 2, 3};
	s.n_tokens = 3;
	s.params.max_tokens = 7;
	s.params.temperature = 0.5f;
	record_put_request(&b, &s, 1, 1);
	cr_assert_eq(read_request(&b, &got), 0, "%s", why.text);
	cr_expect(got->n_tokens == 3 && got->tokens[2] == 3);
	cr_expect(got->params.max_tokens == 7 && got->params.temperature == 0.5f);
	submit_free(got);
	for (int other = 1; other < 5; other++) {
		const bool same = b.p[VERSION_BYTE] == other;
		char had = b.p[VERSION_BYTE];
		b.p[VERSION_BYTE] = (char)other;
		if (!same) {
			cr_expect_eq(read_request(&b, &got), -EBADMSG);
			cr_expect_not_null(strstr(why.text, "another version"), "%s", why.text);
			cr_expect_null(got);
		}
		b.p[VERSION_BYTE] = had;
	}
	buf_fini(&b);
}

/* ---- versions 1 and 2 ---- */

static void put_blob(struct buf *out, const void *p, size_t n)
{
	mp_put_bin(out, n);
	buf_put(out, p, n);
}

/* Parameters in the old bus format: the first n of 37 positional fields. */
static void put_positional(struct buf *out, uint32_t n)
{
	struct buf fields[37] = {{0}};
	uint32_t k = 0;
	mp_put_uint(&fields[k++], 7);     /* max_tokens */
	mp_put_uint(&fields[k++], 3);     /* min_tokens */
	mp_put_uint(&fields[k++], 2);     /* n */
	mp_put_uint(&fields[k++], 4);     /* beam_width */
	mp_put_float(&fields[k++], -0.5); /* length_penalty */
	mp_put_uint(&fields[k++], PARAMS_EARLY_NEVER);
	mp_put_float(&fields[k++], 0.5f);   /* temperature */
	mp_put_float(&fields[k++], 0.25f);  /* top_p */
	mp_put_float(&fields[k++], 0.125f); /* min_p */
	mp_put_int(&fields[k++], 40);       /* top_k */
	mp_put_float(&fields[k++], -1.5f);  /* presence */
	mp_put_float(&fields[k++], 1.5f);   /* frequency */
	mp_put_float(&fields[k++], 1.25f);  /* repetition */
	mp_put_uint(&fields[k++], UINT64_MAX);
	mp_put_bool(&fields[k++], true); /* ignore_eos */
	mp_put_int(&fields[k++], 5);     /* logprobs */
	mp_put_int(&fields[k++], -1);    /* prompt_logprobs */
	put_blob(&fields[k++], (uint32_t[]){8, 9}, 8);
	put_blob(&fields[k++], (int32_t[]){10}, 4);
	put_blob(&fields[k++], (float[]){-2}, 4);
	put_blob(&fields[k++], NULL, 0); /* allowed */
	put_blob(&fields[k++], (int32_t[]){11, 12, 13}, 12);
	put_blob(&fields[k++], (int32_t[]){1, 2}, 8);
	put_blob(&fields[k++],
		 "\x03"
		 "a|b",
		 4); /* structured output */
	mp_put_uint(&fields[k++], PARAMS_POOL_NONE);
	mp_put_float(&fields[k++], 0.75f); /* typical_p */
	mp_put_float(&fields[k++], 2.5f);  /* top_n_sigma */
	mp_put_float(&fields[k++], 0.5f);  /* xtc_probability */
	mp_put_float(&fields[k++], 0.25f); /* xtc_threshold */
	mp_put_float(&fields[k++], 0.5f);  /* dry_multiplier */
	mp_put_float(&fields[k++], 2);     /* dry_base */
	mp_put_int(&fields[k++], 4);       /* dry_allowed_length */
	mp_put_int(&fields[k++], 100);     /* dry_penalty_last_n */
	put_blob(&fields[k++], (int32_t[]){14, 15}, 8);
	mp_put_uint(&fields[k++], 2);      /* mirostat */
	mp_put_float(&fields[k++], 3);     /* tau */
	mp_put_float(&fields[k++], 0.25f); /* eta */
	cr_assert_eq(k, 37);
	mp_put_array(out, n);
	for (uint32_t i = 0; i < k; i++) {
		if (i < n)
			buf_put(out, fields[i].p, fields[i].len);
		buf_fini(&fields[i]);
	}
}

static void put_old(struct buf *out, unsigned version, unsigned bus, uint32_t n_params)
{
	mp_put_array(out, version == 1 ? 18 : 20);
	mp_put_uint(out, version);
	mp_put_uint(out, bus);
	put_blob(out, (uint32_t[]){1, 2, 3}, 12);
	put_positional(out, n_params);
	mp_put_uint(out, 3);  /* best_of */
	mp_put_array(out, 1); /* stop */
	mp_put_bool(out, true);
	put_blob(out, "end", 3);
	mp_put_bool(out, true);       /* include_stop */
	mp_put_bool(out, false);      /* skip_special */
	mp_put_int(out, 1001);        /* deadline */
	mp_put_int(out, -4);          /* priority */
	mp_put_uint(out, 6);          /* share */
	for (int i = 0; i < 3; i++) { /* user, cache_salt, key */
		mp_put_bool(out, i != 1);
		put_blob(out, "name", i == 1 ? 0 : 4);
	}
	put_blob(out, "0123456789abcdef", 16);
	if (version == 1)
		return;
	mp_put_uint(out, SUBMIT_REASONING_OPTIONAL);
	put_blob(out, (uint32_t[]){17}, 4);
}

static int migrate(const struct buf *old, struct buf *out)
{
	struct cursor c;
	cursor_init(&c, old->p, old->len);
	return record_migrate_request(&c, out, &why);
}

static void check_migrated(const struct submit *s, uint32_t n_params)
{
	const struct params *p = &s->params;
	cr_expect(s->n_tokens == 3 && s->tokens[2] == 3 && s->best_of == 3);
	cr_expect(s->n_stop == 1 && strcmp(s->stop[0], "end") == 0);
	cr_expect(s->include_stop && !s->skip_special && s->deadline_us == 1001 && s->priority == -4);
	cr_expect(s->share == 6 && !s->cache_salt && strcmp(s->user, "name") == 0 &&
		  strcmp(s->key, "name") == 0);
	cr_expect_eq(memcmp(s->body, "0123456789abcdef", 16), 0);
	cr_expect(p->max_tokens == 7 && p->min_tokens == 3 && p->n == 2 && p->beam_width == 4);
	cr_expect(p->length_penalty == -0.5f && p->early == PARAMS_EARLY_NEVER && p->temperature == 0.5f);
	cr_expect(p->top_p == 0.25f && p->min_p == 0.125f && p->top_k == 40 && p->presence == -1.5f);
	cr_expect(p->frequency == 1.5f && p->repetition == 1.25f && p->seed == UINT64_MAX && p->ignore_eos);
	cr_expect(p->logprobs == 5 && p->prompt_logprobs == -1 && !p->allowed && !p->n_allowed);
	cr_expect(p->n_stop_ids == 2 && p->stop_ids[1] == 9);
	cr_expect(p->n_bias == 1 && p->bias_ids[0] == 10 && p->bias[0] == -2);
	cr_expect(p->n_bad == 2 && p->bad_len[1] == 2 && p->n_bad_ids == 3 && p->bad[2] == 13);
	cr_expect(n_params > 23 ? p->constraint && p->constraint->language == 3 &&
					  strcmp(p->constraint->text, "a|b") == 0
				: !p->constraint);
	const bool llama = n_params > 25, mirostat = n_params > 34;
	cr_expect(p->typical_p == (llama ? 0.75f : 1) && p->top_n_sigma == (llama ? 2.5f : 0));
	cr_expect(p->xtc_probability == (llama ? 0.5f : 0) && p->xtc_threshold == (llama ? 0.25f : 0.1f));
	cr_expect(p->dry_multiplier == (llama ? 0.5f : 0) && p->dry_base == (llama ? 2 : 1.75f));
	cr_expect(p->dry_allowed == (llama ? 4 : 2) && p->dry_last_n == (llama ? 100 : -1));
	cr_expect(p->n_breakers == (llama ? 2 : 0) && (!llama || p->breakers[1] == 15));
	cr_expect(p->mirostat == (mirostat ? 2 : 0) && p->mirostat_tau == (mirostat ? 3 : 5) &&
		  p->mirostat_eta == (mirostat ? 0.25f : 0.1f));
}

Test(record, requests_of_earlier_formats_are_migrated)
{
	static const struct {
		unsigned version, bus;
		uint32_t n_params;
	} had[] = {{1, 1, 23}, {1, 2, 24}, {1, 3, 25}, {1, 3, 34}, {1, 4, 37}, {2, 4, 37}, {2, 5, 37}};
	for (size_t i = 0; i < sizeof had / sizeof *had; i++) {
		struct buf old = {0}, now = {0};
		struct submit *s;
		put_old(&old, had[i].version, had[i].bus, had[i].n_params);
		cr_assert_eq(migrate(&old, &now), 0, "%zu: %s", i, why.text);
		cr_assert_eq(read_request(&now, &s), 0, "%zu: %s", i, why.text);
		check_migrated(s, had[i].n_params);
		cr_expect_eq(s->reasoning,
			     had[i].version == 1 ? SUBMIT_REASONING_NONE : SUBMIT_REASONING_OPTIONAL);
		cr_expect_eq(s->n_late_stop_ids, had[i].version - 1);
		submit_free(s);
		buf_fini(&old);
		buf_fini(&now);
	}
}

Test(record, what_no_earlier_format_has_is_not_migrated)
{
	static const struct {
		unsigned version, bus;
		uint32_t n_params;
		const char *why;
	} had[] = {{3, 5, 37, "another version"},  {2, 0, 37, "another version"},
		   {2, 6, 37, "another version"},  {2, 5, 22, "number of fields"},
		   {2, 5, 26, "number of fields"}, {2, 5, 35, "number of fields"}};
	for (size_t i = 0; i < sizeof had / sizeof *had; i++) {
		struct buf old = {0}, now = {0};
		put_old(&old, had[i].version, had[i].bus, had[i].n_params);
		cr_expect_eq(migrate(&old, &now), -EBADMSG);
		cr_expect_not_null(strstr(why.text, had[i].why), "%zu: %s", i, why.text);
		cr_expect_eq(now.len, 0);
		buf_fini(&old);
		buf_fini(&now);
	}
}

Test(record, a_request_of_an_earlier_format_that_is_cut_short_is_refused)
{
	struct buf old = {0}, now = {0};
	put_old(&old, 2, 5, 37);
	for (size_t n = 0; n < old.len; n++) {
		struct cursor c;
		char *cut = xmemdup(old.p, n ? n : 1);
		cursor_init(&c, cut, n);
		cr_expect_eq(record_migrate_request(&c, &now, &why), -EBADMSG, "%zu", n);
		free(cut);
	}
	cr_expect_eq(now.len, 0);
	buf_fini(&old);
	buf_fini(&now);
}

Test(record, a_trace_comes_back_and_what_is_none_is_refused)
{
	static const char *const states[] = {NULL, "vendor=1,other=2"};
	for (int i = 0; i < 2; i++) {
		struct trace_context t, got;
		struct buf b = {0};
		struct cursor c;
		cr_assert(trace_context_read(&t, "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
					     states[i]));
		record_put_trace(&b, &t);
		cursor_init(&c, b.p, b.len);
		record_get_trace(&c, &got);
		cr_assert_eq(record_close(&c, &why), 0, "%s", why.text);
		cr_expect(memcmp(got.trace, t.trace, 16) == 0 && memcmp(got.span, t.span, 8) == 0);
		cr_expect(got.set && got.remote && got.sampled);
		cr_expect((!got.state && !t.state) || strcmp(got.state, t.state) == 0);
		trace_context_fini(&got);
		for (size_t n = 0; n < b.len; n++) {
			cursor_init(&c, b.p, n);
			record_get_trace(&c, &got);
			cr_expect(record_close(&c, &why) == -EBADMSG && !got.set);
			trace_context_fini(&got);
		}
		trace_context_fini(&t);
		buf_fini(&b);
	}
}
