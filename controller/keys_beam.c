/* keys_beam.c - what a request for a beam search may say. */
#include "controller/keys.h"

#include <stdbool.h>

/* Given, and not null. */
static bool given(const json_t *map, const char *name)
{
	const json_t *v = json_object_get(map, name);
	return v && !json_is_null(v);
}

/* Without a search, only the values that ask for nothing. */
static int check_none(const struct wants *w, struct api_problem *p)
{
	const char *name = w->beam_width > 1             ? "beam_width"
			   : w->length_penalty != 1      ? "length_penalty"
			   : w->early != PARAMS_EARLY_NO ? "early_stopping"
							 : NULL;
	return name ? api_fail(p, E_BAD_REQUEST, name, "%s is only taken with use_beam_search: true", name)
		    : 0;
}

static int check_width(struct wants *w, struct api_problem *p)
{
	long long width = w->beam_width, of = w->best_of, n = w->n;
	if (width != -1 && of != -1 && width != of)
		return api_fail(p, E_BAD_REQUEST, "beam_width",
				"beam_width is %lld and best_of %lld: in a beam search they are the same",
				width, of);
	if (width == -1)
		width = of != -1 ? of : n;
	if (width < n)
		return api_fail(p, E_BAD_REQUEST, "beam_width",
				"beam_width is %lld, less than n, which is %lld", width, n);
	w->beam_width = width;
	w->best_of = -1;
	return 0;
}

/* Hypotheses are the likeliest by the model itself: nothing that changes what is likely. */
static int check_neutral(const json_t *map, const struct wants *w, struct api_problem *p)
{
	const struct {
		const char *name;
		bool neutral;
		const char *values;
	} keys[] = {
		{"temperature", w->temperature == 0 || w->temperature == 1, "0 or 1"},
		{"top_p", w->top_p == 1, "1"},
		{"top_k", w->top_k <= 0, "0 or -1"},
		{"min_p", w->min_p == 0, "0"},
		{"presence_penalty", w->presence == 0, "0"},
		{"frequency_penalty", w->frequency == 0, "0"},
		{"logit_bias", false, NULL},
		{"allowed_token_ids", false, NULL},
		{"bad_words", false, NULL},
	};
	for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
		if (keys[i].neutral || !given(map, keys[i].name))
			continue;
		if (!keys[i].values)
			return api_fail(p, E_BAD_REQUEST, keys[i].name, "%s is not taken in a beam search",
					keys[i].name);
		return api_fail(p, E_BAD_REQUEST, keys[i].name, "%s can only be %s in a beam search",
				keys[i].name, keys[i].values);
	}
	/* The model's own default is no mere matter of sampling. */
	if (w->repetition != 1)
		return api_fail(p, E_BAD_REQUEST, "repetition_penalty",
				"repetition_penalty is %g%s; in a beam search it must be 1", w->repetition,
				given(map, "repetition_penalty") ? "" : " (generation_config.json)");
	return 0;
}

int keys_check_beams(const json_t *map, struct wants *w, struct api_problem *p)
{
	if (!w->beams)
		return check_none(w, p);
	int rc = check_width(w, p);
	if (rc || (rc = check_neutral(map, w, p)))
		return rc;
	w->temperature = w->beam_width > 1;
	w->top_p = 1;
	w->top_k = 0;
	w->min_p = 0;
	return 0;
}
