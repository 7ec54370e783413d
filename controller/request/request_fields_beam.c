/* request_fields_beam.c - which fields a beam search takes, and their values. */
#include "controller/request/request_fields.h"

#include <stdbool.h>

/* Given, and not null. */
static bool given(const json_t *map, const char *name)
{
	const json_t *v = json_object_get(map, name);
	return v && !json_is_null(v);
}

/* Without a search, its fields take their neutral values only. */
static int check_none(const struct request_fields *f, struct api_problem *p)
{
	const char *name = f->beam_width > 1             ? "beam_width"
			   : f->length_penalty != 1      ? "length_penalty"
			   : f->early != PARAMS_EARLY_NO ? "early_stopping"
							 : NULL;
	return name ? api_fail(p, E_BAD_REQUEST, name, "%s is only taken with use_beam_search: true", name)
		    : 0;
}

static int check_width(struct request_fields *f, struct api_problem *p)
{
	long long width = f->beam_width, of = f->best_of, n = f->n;
	if (width != -1 && of != -1 && width != of)
		return api_fail(p, E_BAD_REQUEST, "beam_width",
				"beam_width is %lld and best_of %lld: in a beam search they are the same",
				width, of);
	if (width == -1)
		width = of != -1 ? of : n;
	if (width < n)
		return api_fail(p, E_BAD_REQUEST, "beam_width",
				"beam_width is %lld, less than n, which is %lld", width, n);
	f->beam_width = width;
	f->best_of = -1;
	return 0;
}

/* Hypotheses are ranked by the model's own probabilities: fields that change these must be neutral. */
static int check_neutral(const json_t *map, const struct request_fields *f, struct api_problem *p)
{
	const struct {
		const char *name;
		bool neutral;
		const char *values;
	} fields[] = {
		{"temperature", f->temperature == 0 || f->temperature == 1, "0 or 1"},
		{"top_p", f->top_p == 1, "1"},
		{"top_k", f->top_k <= 0, "0 or -1"},
		{"min_p", f->min_p == 0, "0"},
		{"presence_penalty", f->presence == 0, "0"},
		{"frequency_penalty", f->frequency == 0, "0"},
		{"typical_p", f->typical_p == 1, "1"},
		{"top_n_sigma", f->top_n_sigma <= 0, "0 or -1"},
		{"xtc_probability", f->xtc_probability == 0, "0"},
		{"dry_multiplier", f->dry_multiplier == 0, "0"},
		{"mirostat", f->mirostat == 0, "0"},
		{"logit_bias", false, NULL},
		{"allowed_token_ids", false, NULL},
		{"bad_words", false, NULL},
	};
	for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
		if (fields[i].neutral || !given(map, fields[i].name))
			continue;
		if (!fields[i].values)
			return api_fail(p, E_BAD_REQUEST, fields[i].name, "%s is not taken in a beam search",
					fields[i].name);
		return api_fail(p, E_BAD_REQUEST, fields[i].name, "%s can only be %s in a beam search",
				fields[i].name, fields[i].values);
	}
	/* Also where generation_config.json has it: the model needs it for its text. */
	if (f->repetition != 1)
		return api_fail(p, E_BAD_REQUEST, "repetition_penalty",
				"repetition_penalty is %g%s; in a beam search it must be 1", f->repetition,
				given(map, "repetition_penalty") ? "" : " (generation_config.json)");
	return 0;
}

int request_fields_check_beams(const json_t *map, struct request_fields *f, struct api_problem *p)
{
	if (!f->beams)
		return check_none(f, p);
	int rc = check_width(f, p);
	if (rc || (rc = check_neutral(map, f, p)))
		return rc;
	f->temperature = f->beam_width > 1;
	f->top_p = 1;
	f->top_k = 0;
	f->min_p = 0;
	return 0;
}
