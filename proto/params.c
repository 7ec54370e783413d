#include "proto/params.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/err.h"
#include "proto/cursor.h"
#include "proto/mp.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AT(member) offsetof(struct params, member)
#define INT_MAX_D  2147483647.0

/* In the order of the documentation and of llama.cpp's settings. */
const struct params_row params_rows[] = {
	{"temperature", AT(temperature), PARAMS_FLOAT, 0, 1, 0, 1000, 1, "temperature", "temperature",
	 "below 1e-5: the most likely token (1, or the model's)"},
	{"top_k", AT(top_k), PARAMS_INT32, PARAMS_OFF_BELOW | PARAMS_NEUTRAL_BEAM, 1, 0, INT_MAX_D, 0,
	 "top_k", "top_k", "so many most likely tokens; 0, -1: all (the model's)"},
	{"top_p", AT(top_p), PARAMS_FLOAT, PARAMS_ABOVE | PARAMS_NEUTRAL_BEAM, 1, 0, 1, 1, "top_p", "top_p",
	 "above 0: the most likely tokens with this share of the probability (1, or the model's)"},
	{"min_p", AT(min_p), PARAMS_FLOAT, PARAMS_NEUTRAL_BEAM, 1, 0, 1, 0, "min_p", "min_p",
	 "tokens with at least this share of the best one's probability (0)"},
	{"typical_p", AT(typical_p), PARAMS_FLOAT, PARAMS_ABOVE | PARAMS_NEUTRAL_BEAM, 3, 0, 1, 1,
	 "typical_p", "typical_p",
	 "above 0: the tokens nearest to the entropy, with this share of the probability (1)"},
	{"top_n_sigma", AT(top_n_sigma), PARAMS_FLOAT, PARAMS_OFF_BELOW | PARAMS_NEUTRAL_BEAM, 3, 0, 1000, 0,
	 "top_n_sigma", NULL,
	 "logits up to so many standard deviations below the largest; 0 or less: off (0)"},
	{"xtc_probability", AT(xtc_probability), PARAMS_FLOAT, PARAMS_NEUTRAL_BEAM, 3, 0, 1, 0,
	 "xtc_probability", NULL, "how often the most likely tokens but one are dropped (0)"},
	{"xtc_threshold", AT(xtc_threshold), PARAMS_FLOAT, 0, 3, 0, 1, 0.1, "xtc_threshold", NULL,
	 "the probability from which tokens count as such (0.1)"},
	{"repetition_penalty", AT(repetition), PARAMS_FLOAT, PARAMS_ABOVE, 1, 0, 1000, 1, "repeat_penalty",
	 "repeat_penalty", "above 0: divides the logits of tokens of prompt and output (1, or the model's)"},
	{"presence_penalty", AT(presence), PARAMS_FLOAT, PARAMS_NEUTRAL_BEAM, 1, -2, 2, 0, "presence_penalty",
	 "presence_penalty", "taken from the logits of tokens of the output (0)"},
	{"frequency_penalty", AT(frequency), PARAMS_FLOAT, PARAMS_NEUTRAL_BEAM, 1, -2, 2, 0,
	 "frequency_penalty", "frequency_penalty", "as often as the token is in the output (0)"},
	{"dry_multiplier", AT(dry_multiplier), PARAMS_FLOAT, PARAMS_NEUTRAL_BEAM, 3, 0, 1000, 0,
	 "dry_multiplier", NULL, "of the penalty on tokens that go on with a repetition (0)"},
	{"dry_base", AT(dry_base), PARAMS_FLOAT, 0, 3, 1, 1000, 1.75, "dry_base", NULL,
	 "of the penalty's growth with the repetition's length (1.75)"},
	{"dry_allowed_length", AT(dry_allowed), PARAMS_INT32, 0, 3, 0, PARAMS_DRY_ALLOWED_MAX, 2,
	 "dry_allowed_length", NULL, "shorter repetitions are not penalized (2)"},
	{"dry_penalty_last_n", AT(dry_last_n), PARAMS_INT32, 0, 3, -1, INT_MAX_D, -1, "dry_penalty_last_n",
	 NULL, "tokens that are looked at; -1: all (-1)"},
	{"mirostat", AT(mirostat), PARAMS_UINT32, PARAMS_NEUTRAL_BEAM, 4, 0, 2, 0, "mirostat", "mirostat",
	 "its version, in the place of all that cuts: top_k, top_p, min_p and those above but DRY (0: off)"},
	{"mirostat_tau", AT(mirostat_tau), PARAMS_FLOAT, 0, 4, 0, PARAMS_TAU_MAX, 5, "mirostat_tau",
	 "mirostat_tau", "bits of surprise per token that mirostat keeps to (5)"},
	{"mirostat_eta", AT(mirostat_eta), PARAMS_FLOAT, 0, 4, 0, PARAMS_ETA_MAX, 0.1, "mirostat_eta",
	 "mirostat_eta", "how fast it corrects itself (0.1)"},
	{"min_tokens", AT(min_tokens), PARAMS_UINT32, 0, 1, 0, INT_MAX_D, 0, NULL, NULL,
	 "no stop token or stop string takes effect earlier (0)"},
	{"n", AT(n), PARAMS_UINT32, 0, 1, 1, PARAMS_N_MAX, 1, NULL, NULL, "outputs (1)"},
	{"length_penalty", AT(length_penalty), PARAMS_FLOAT, 0, 2, -5, 5, 1, NULL, NULL,
	 "of a beam search (1)"},
	{"ignore_eos", AT(ignore_eos), PARAMS_BOOL, 0, 1, 0, 1, 0, "ignore_eos", NULL,
	 "the model's own stop tokens do not count (false)"},
	{"max_tokens", AT(max_tokens), PARAMS_UINT32, 0, 1, 0, INT_MAX_D, 0, NULL, NULL, NULL},
	{"beam_width", AT(beam_width), PARAMS_UINT32, 0, 2, 0, PARAMS_N_MAX, 0, NULL, NULL, NULL},
	{"early_stopping", AT(early), PARAMS_UINT32, 0, 2, 0, PARAMS_EARLY_NEVER, PARAMS_EARLY_NO, NULL, NULL,
	 NULL},
	{"seed", AT(seed), PARAMS_UINT64, 0, 1, 0, 0, 0, NULL, NULL, NULL},
	{"logprobs", AT(logprobs), PARAMS_INT32, 0, 1, -1, PARAMS_TOP_MAX, -1, NULL, NULL, NULL},
	{"prompt_logprobs", AT(prompt_logprobs), PARAMS_INT32, 0, 1, -1, PARAMS_LOGPROBS_MAX, -1, NULL, NULL,
	 NULL},
	{"pool", AT(pool), PARAMS_UINT32, 0, 3, 0, PARAMS_POOL_LOGITS, PARAMS_POOL_NONE, NULL, NULL, NULL},
};
const size_t n_params_rows = sizeof params_rows / sizeof *params_rows;
_Static_assert(sizeof params_rows / sizeof *params_rows <= PARAMS_ROWS_MAX, "a request has room for all");
_Static_assert(sizeof(enum params_early) == 4 && sizeof(enum params_pool) == 4, "as the rows have them");

const struct params_list params_lists[] = {
	{"stop_token_ids", AT(stop_ids), AT(n_stop_ids), 2 * PARAMS_LIST_MAX, false},
	{"logit_bias", AT(bias_ids), AT(n_bias), PARAMS_LIST_MAX, true},
	{"logit_bias_values", AT(bias), AT(n_bias), PARAMS_LIST_MAX, false},
	{"allowed_token_ids", AT(allowed), AT(n_allowed), PARAMS_ALLOWED_MAX, true},
	{"bad_words", AT(bad), AT(n_bad_ids), PARAMS_BAD_IDS_MAX, true},
	{"bad_words_lengths", AT(bad_len), AT(n_bad), 2 * PARAMS_LIST_MAX, false},
	{"dry_sequence_breakers", AT(breakers), AT(n_breakers), PARAMS_BREAKERS_MAX, true},
};
const size_t n_params_lists = sizeof params_lists / sizeof *params_lists;
_Static_assert(sizeof params_lists / sizeof *params_lists <= PARAMS_LISTS_MAX, "as the reader has room for");

const struct params_row *params_row_at(size_t offset)
{
	for (size_t i = 0; i < n_params_rows; i++)
		if (params_rows[i].offset == offset)
			return &params_rows[i];
	assert(!"a member without a row");
	return NULL;
}

double params_get(const struct params_row *row, const struct params *p)
{
	const void *at = (const char *)p + row->offset;
	switch ((enum params_type)row->type) {
	case PARAMS_FLOAT:
		return (double)*(const float *)at;
	case PARAMS_INT32:
		return *(const int32_t *)at;
	case PARAMS_UINT32:
		return *(const uint32_t *)at;
	case PARAMS_BOOL:
		return *(const bool *)at;
	case PARAMS_UINT64:
		break;
	}
	assert(!"a number of 64 bits");
	return 0;
}

void params_set(const struct params_row *row, struct params *p, double x)
{
	void *at = (char *)p + row->offset;
	switch ((enum params_type)row->type) {
	case PARAMS_FLOAT:
		*(float *)at = (float)x;
		break;
	case PARAMS_INT32:
		*(int32_t *)at = (int32_t)x;
		break;
	case PARAMS_UINT32:
		*(uint32_t *)at = (uint32_t)x;
		break;
	case PARAMS_UINT64:
		*(uint64_t *)at = (uint64_t)x;
		break;
	case PARAMS_BOOL:
		*(bool *)at = x != 0;
		break;
	}
}

static void **list_of(const struct params_list *l, struct params *p)
{
	return (void **)(void *)((char *)p + l->offset);
}

static const void *list_at(const struct params_list *l, const struct params *p, uint32_t *n)
{
	memcpy(n, (const char *)p + l->n_offset, sizeof *n);
	return *(const void *const *)(const void *)((const char *)p + l->offset);
}

void params_init(struct params *p)
{
	*p = (struct params){0};
	for (size_t i = 0; i < n_params_rows; i++)
		params_set(&params_rows[i], p, params_rows[i].neutral);
}

void params_fini(struct params *p)
{
	for (size_t i = 0; i < n_params_lists; i++)
		free(*list_of(&params_lists[i], p));
	constraint_free(p->constraint);
	params_init(p);
}

void params_copy(struct params *to, const struct params *from)
{
	*to = *from;
	for (size_t i = 0; i < n_params_lists; i++) {
		uint32_t n;
		const void *list = list_at(&params_lists[i], from, &n);
		*list_of(&params_lists[i], to) = n ? xmemdup(list, n * sizeof(uint32_t)) : NULL;
	}
	to->constraint = constraint_ref(from->constraint);
}

bool params_needs_rows(const struct params *p)
{
	return p->prompt_logprobs >= 0 || p->pool == PARAMS_POOL_MEAN;
}

int32_t params_mirostat_units(float bits)
{
	return (int32_t)lrintf(bits * (float)PARAMS_MIROSTAT_ONE);
}

int32_t params_first_mu(const struct params *p)
{
	return p->mirostat ? 2 * params_mirostat_units(p->mirostat_tau) : 0;
}

bool params_is_stop(const struct params *p, uint32_t token)
{
	for (uint32_t i = 0; i < p->n_stop_ids; i++)
		if (p->stop_ids[i] == token)
			return true;
	return false;
}

/* ---- checks for the sampler ---- */

static int check_number(const struct params_row *row, const struct params *p, struct why *why)
{
	const double x = row->type == PARAMS_UINT64 ? row->lo : params_get(row, p);
	if (x >= row->lo && x <= row->hi && !(row->flags & PARAMS_ABOVE && x == row->lo))
		return 0; /* a NaN fails the comparisons */
	return err_why(why, -EINVAL, "%s is %g, out of its range %g to %g", row->name, x, row->lo, row->hi);
}

static int check_ids(const struct params_list *l, const struct params *p, uint32_t n_vocab, struct why *why)
{
	uint32_t n;
	const uint32_t *ids = list_at(l, p, &n);
	for (uint32_t i = 0; l->ids && i < n; i++)
		if (ids[i] >= n_vocab)
			return err_why(why, -EINVAL, "%s names token %d, the vocabulary has %u", l->name,
				       (int32_t)ids[i], n_vocab);
	return 0;
}

static int check_bad_words(const struct params *p, struct why *why)
{
	uint32_t left = p->n_bad_ids;
	for (uint32_t i = 0; i < p->n_bad; i++) {
		if (p->bad_len[i] < 1 || (uint32_t)p->bad_len[i] > left)
			return err_why(why, -EINVAL, "the lengths of bad_words are wrong");
		left -= (uint32_t)p->bad_len[i];
	}
	return left ? err_why(why, -EINVAL, "bad_words has ids of no word") : 0;
}

int params_check(const struct params *p, uint32_t n_vocab, struct why *why)
{
	int rc = 0;
	for (size_t i = 0; i < n_params_rows && !rc; i++)
		rc = check_number(&params_rows[i], p, why);
	if (rc)
		return rc;
	if ((p->pool && p->prompt_logprobs >= 0) ||
	    (p->pool == PARAMS_POOL_LOGITS && (p->n_allowed == 0 || p->n_allowed > PARAMS_POOL_IDS_MAX)))
		return err_why(why, -EINVAL, "a sequence is pooled in a way that is not known");
	for (size_t i = 0; i < n_params_lists && !rc; i++)
		rc = check_ids(&params_lists[i], p, n_vocab, why);
	if (rc || (rc = check_bad_words(p, why)))
		return rc;
	for (uint32_t i = 1; i < p->n_breakers; i++)
		if (p->breakers[i] <= p->breakers[i - 1])
			return err_why(why, -EINVAL, "dry_sequence_breakers are not ascending");
	return 0;
}

/* ---- encoding ---- */

static void pack_number(struct buf *out, const struct params_row *row, const struct params *p)
{
	mp_put_cstr(out, row->name);
	switch ((enum params_type)row->type) {
	case PARAMS_FLOAT:
		mp_put_float(out, (float)params_get(row, p));
		break;
	case PARAMS_INT32:
	case PARAMS_UINT32:
		mp_put_int(out, (int64_t)params_get(row, p));
		break;
	case PARAMS_UINT64:
		mp_put_uint(out, *(const uint64_t *)(const void *)((const char *)p + row->offset));
		break;
	case PARAMS_BOOL:
		mp_put_bool(out, params_get(row, p) != 0);
		break;
	}
}

static bool is_neutral(const struct params_row *row, const struct params *p)
{
	struct params neutral = {0};
	params_set(row, &neutral, row->neutral);
	const size_t n = row->type == PARAMS_UINT64 ? 8 : row->type == PARAMS_BOOL ? sizeof(bool) : 4;
	return memcmp((const char *)p + row->offset, (const char *)&neutral + row->offset, n) == 0;
}

static const char CONSTRAINT[] = "form";

static void pack(struct buf *out, const struct params *p, bool all)
{
	const struct constraint *constraint = all ? p->constraint : NULL;
	uint32_t n_keys = constraint != NULL, n;
	for (size_t i = 0; i < n_params_rows; i++)
		n_keys += all || !is_neutral(&params_rows[i], p);
	for (size_t i = 0; i < n_params_lists; i++) {
		list_at(&params_lists[i], p, &n);
		n_keys += n != 0;
	}
	mp_put_map(out, n_keys);
	for (size_t i = 0; i < n_params_rows; i++)
		if (all || !is_neutral(&params_rows[i], p))
			pack_number(out, &params_rows[i], p);
	for (size_t i = 0; i < n_params_lists; i++) {
		const void *list = list_at(&params_lists[i], p, &n);
		if (!n)
			continue;
		mp_put_cstr(out, params_lists[i].name);
		mp_put_bin(out, n * sizeof(uint32_t));
		buf_put(out, list, n * sizeof(uint32_t));
	}
	if (!constraint)
		return;
	mp_put_cstr(out, CONSTRAINT);
	mp_put_bin(out, (size_t)constraint->n + 1);
	buf_put(out, &constraint->language, 1);
	buf_put(out, constraint->text, constraint->n);
}

void params_pack_changed(struct buf *out, const struct params *p)
{
	pack(out, p, false);
}

void params_pack_all(struct buf *out, const struct params *p)
{
	pack(out, p, true);
}

static void unpack_number(struct cursor *c, const struct params_row *row, struct params *p)
{
	uint64_t seed;
	switch ((enum params_type)row->type) {
	case PARAMS_FLOAT:
		params_set(row, p, cursor_float(c, row->name));
		break;
	case PARAMS_INT32:
	case PARAMS_UINT32:
		params_set(row, p, (double)cursor_int(c, row->name, (int64_t)row->lo, (int64_t)row->hi));
		break;
	case PARAMS_UINT64:
		seed = cursor_uint(c, row->name, UINT64_MAX);
		memcpy((char *)p + row->offset, &seed, sizeof seed);
		break;
	case PARAMS_BOOL:
		params_set(row, p, cursor_bool(c, row->name));
		break;
	}
}

/* Read a list.  A list that shares its count with another must have the same length. */
static void unpack_list(struct cursor *c, const struct params_list *l, struct params *p)
{
	uint32_t n, had;
	list_at(l, p, &had);
	const void *words = cursor_bin(c, l->name, sizeof(uint32_t), l->max, &n);
	if (!n || (had && had != n)) {
		cursor_fail(c, "params: a list is empty, or not as long as its other one");
		return;
	}
	*list_of(l, p) = xmemdup(words, n * sizeof(uint32_t));
	memcpy((char *)p + l->n_offset, &n, sizeof n);
}

static void unpack_constraint(struct cursor *c, struct params *p)
{
	uint32_t n;
	const char *bytes = cursor_bin(c, CONSTRAINT, 1, (size_t)CONSTRAINT_TEXT_MAX + 1, &n);
	if (n)
		p->constraint = constraint_new((uint8_t)bytes[0], bytes + 1, n - 1);
	else
		cursor_fail(c, "form: empty");
}

/* Return the index of the key: rows first, then lists, then the constraint; one more: unknown. */
static size_t key_of(const char *name)
{
	size_t k = 0;
	while (k < n_params_rows && strcmp(params_rows[k].name, name) != 0)
		k++;
	if (k < n_params_rows)
		return k;
	while (k < n_params_rows + n_params_lists && strcmp(params_lists[k - n_params_rows].name, name) != 0)
		k++;
	return k < n_params_rows + n_params_lists || strcmp(name, CONSTRAINT) == 0 ? k : k + 1;
}

/* True if a list is missing although its count, shared with another list, is not 0. */
static bool list_lacks(const struct params *p)
{
	for (size_t i = 0; i < n_params_lists; i++) {
		uint32_t n;
		const void *list = list_at(&params_lists[i], p, &n);
		if (n && !list)
			return true;
	}
	return false;
}

void params_unpack(struct cursor *c, struct params *p, uint32_t n_vocab)
{
	bool had[PARAMS_ROWS_MAX + PARAMS_LISTS_MAX + 1] = {false};
	struct why why = {""};
	char name[32];
	params_init(p);
	const uint32_t n_keys = cursor_map(c, "params");
	for (uint32_t i = 0; i < n_keys && !c->bad; i++) {
		cursor_str(c, "params", name, sizeof name);
		const size_t k = key_of(name);
		if (c->bad)
			return;
		if (k > n_params_rows + n_params_lists || had[k]) {
			err_why(&why, 0, "params: %s is %s", name,
				k > n_params_rows + n_params_lists ? "not known" : "there twice");
			cursor_fail(c, why.text);
			return;
		}
		had[k] = true;
		if (k < n_params_rows)
			unpack_number(c, &params_rows[k], p);
		else if (k < n_params_rows + n_params_lists)
			unpack_list(c, &params_lists[k - n_params_rows], p);
		else
			unpack_constraint(c, p);
	}
	if (c->bad)
		return;
	if (list_lacks(p))
		cursor_fail(c, "params: as many biases as ids are due");
	else if (params_check(p, n_vocab, &why))
		cursor_fail(c, why.text);
	for (uint32_t i = 0; i < p->n_stop_ids && !c->bad; i++)
		if (p->stop_ids[i] >= n_vocab)
			cursor_fail(c, "params: a stop token beyond the vocabulary");
}
