/* request_fields_beam.c - the fields that a beam search accepts, and their values. */
#include "controller/request/request_fields.h"

#include <stdbool.h>

/* Return true if the field is given and not null. */
static bool given(const json_t *map, const char *name)
{
	const json_t *v = json_object_get(map, name);
	return v && !json_is_null(v);
}

/* Without a beam search, check that its fields have neutral values. */
static int check_none(const struct request_fields *f, struct api_problem *p)
{
	const char *name = f->beam_width > 1                     ? "beam_width"
			   : FIELD_PARAM(f, length_penalty) != 1 ? "length_penalty"
			   : f->early != PARAMS_EARLY_NO         ? "early_stopping"
								 : NULL;
	return name ? api_fail(p, E_BAD_REQUEST, name, "%s is only taken with use_beam_search: true", name)
		    : 0;
}

static int check_width(struct request_fields *f, struct api_problem *p)
{
	long long width = f->beam_width, of = f->best_of, n = (long long)FIELD_PARAM(f, n);
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

static bool is_neutral(const struct params_row *row, double x)
{
	return x == row->neutral || (row->flags & PARAMS_OFF_BELOW && x < row->neutral);
}

/* Check that fields which change the model's probabilities are neutral: hypotheses are ranked by these
 * probabilities. */
static int check_neutral(const json_t *map, const struct request_fields *f, struct api_problem *p)
{
	static const char *const refused[] = {"logit_bias", "allowed_token_ids", "bad_words"};
	const double temperature = FIELD_PARAM(f, temperature), repetition = FIELD_PARAM(f, repetition);
	if (given(map, "temperature") && temperature != 0 && temperature != 1)
		return api_fail(p, E_BAD_REQUEST, "temperature",
				"temperature can only be 0 or 1 in a beam search");
	for (size_t i = 0; i < n_params_rows; i++) {
		const struct params_row *row = &params_rows[i];
		if (row->flags & PARAMS_NEUTRAL_BEAM && given(map, row->name) &&
		    !is_neutral(row, f->params[i]))
			return api_fail(p, E_BAD_REQUEST, row->name, "%s can only be %g%s in a beam search",
					row->name, row->neutral,
					row->flags & PARAMS_OFF_BELOW ? " or -1" : "");
	}
	for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
		if (given(map, refused[i]))
			return api_fail(p, E_BAD_REQUEST, refused[i], "%s is not taken in a beam search",
					refused[i]);
	/* Refused also if generation_config.json sets it, because the model needs it for its text. */
	if (repetition != 1)
		return api_fail(p, E_BAD_REQUEST, "repetition_penalty",
				"repetition_penalty is %g%s; in a beam search it must be 1", repetition,
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
	for (size_t i = 0; i < n_params_rows; i++)
		if (params_rows[i].flags & PARAMS_NEUTRAL_BEAM)
			f->params[i] = params_rows[i].neutral;
	FIELD_PARAM(f, temperature) = f->beam_width > 1;
	return 0;
}
