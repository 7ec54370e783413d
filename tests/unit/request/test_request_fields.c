/* The table of parameters (proto/params.h) as fields of a request. */
#include "tests/unit/request/api_rig.h"

#include <stdio.h>
#include <string.h>

TestSuite(parameters, .init = open_demo, .fini = close_demo, .timeout = 60);

static int read_job(const char *params, struct submit **s, struct api_problem *p)
{
	char text[512];
	snprintf(text, sizeof text, "{\"op\": \"submit\", \"id\": 1, \"prompt\": \"Once\", \"params\": {%s}}",
		 params);
	return submit(API_JOBS, text, s, NULL, p);
}

/* Write a value that is not neutral. */
static void put_other(const struct params_row *row, char *text, size_t n)
{
	if (row->type == PARAMS_BOOL)
		snprintf(text, n, "\"%s\": true", row->name);
	else
		snprintf(text, n, "\"%s\": %.10g", row->name, row->neutral == row->hi ? 0.5 : row->hi);
}

Test(parameters, each_parameter_of_the_table_is_read_by_its_name)
{
	for (const struct params_row *row = params_rows; row < params_rows + n_params_rows; row++) {
		char text[128];
		struct params neutral;
		struct submit *s;
		struct api_problem p;
		/* Skipped: min_tokens is limited by max_tokens, and length_penalty needs a beam search. */
		if (!row->about || strcmp(row->name, "min_tokens") == 0 ||
		    strcmp(row->name, "length_penalty") == 0)
			continue;
		put_other(row, text, sizeof text);
		cr_assert_eq(read_job(text, &s, &p), 0, "%s: %s", text, p.why);
		params_init(&neutral);
		cr_expect_neq(params_get(row, &s->params), params_get(row, &neutral), "%s", text);
		submit_free(s);
		if (row->flags & PARAMS_NEUTRAL_BEAM) {
			strcat(text, ", \"use_beam_search\": true");
			cr_expect_neq(read_job(text, &s, &p), 0, "taken: %s", text);
			cr_expect_str_eq(p.param, row->name);
		}
	}
}
