/* llama.cpp requests become requests of the completions dialect. */
#include "controller/apis/llamacpp/llamacpp_read.h"
#include "tests/unit/apis/read_rig.h"

#include "proto/params.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

TestSuite(llamacpp_read, .timeout = 60);

static void becomes(const char *client, const char *want)
{
	json_t *c = parsed(client);
	struct llamacpp_request r;
	struct api_problem p = {0};
	cr_assert_eq(llamacpp_read(c, false, false, &r, &p), 0, "%s: %s", client, p.why);
	cr_expect_str_eq(r.ignored, "", "%s", r.ignored);
	expect_json(r.request, want, client);
	json_decref(r.request);
	json_decref(c);
}

static void refused(const char *client, const char *param)
{
	json_t *c = parsed(client);
	struct llamacpp_request r;
	struct api_problem p = {0};
	cr_assert_neq(llamacpp_read(c, false, false, &r, &p), 0, "taken: %s", client);
	cr_expect_str_eq(p.param, param, "%s: %s", client, p.why);
	json_decref(c);
}

Test(llamacpp_read, fields_have_other_names)
{
	becomes("{\"prompt\": \"p\", \"n_predict\": 9, \"repeat_penalty\": 1.1, \"n_probs\": 3, \"seed\": 7, "
		"\"stop\": "
		"[\"x\"], \"stream\": true, \"temperature\": 0.5, \"dry_multiplier\": 0.8, "
		"\"xtc_probability\": 0.1, "
		"\"grammar\": \"root ::= \\\"a\\\"\", \"ignore_eos\": true, \"return_tokens\": true, "
		"\"mirostat\": 2, \"mirostat_tau\": 4, \"mirostat_eta\": 0.2}",
		"{\"prompt\": \"p\", \"max_tokens\": 9, \"repetition_penalty\": 1.1, \"logprobs\": 3, "
		"\"seed\": 7, "
		"\"stop\": [\"x\"], \"stream\": true, \"temperature\": 0.5, \"dry_multiplier\": 0.8, "
		"\"xtc_probability\": 0.1, \"mirostat\": 2, \"mirostat_tau\": 4, "
		"\"mirostat_eta\": 0.2, \"grammar\": \"root ::= \\\"a\\\"\", \"ignore_eos\": true}");
}

Test(llamacpp_read, parameters_of_the_table_pass_under_their_own_names)
{
	size_t n = 0;
	for (const struct params_row *row = params_rows; row < params_rows + n_params_rows; row++) {
		char client[256], want[256], value[32];
		if (!row->llamacpp)
			continue;
		if (row->type == PARAMS_BOOL)
			strcpy(value, "true");
		else
			snprintf(value, sizeof value, "%.10g", row->hi);
		snprintf(client, sizeof client, "{\"prompt\": \"p\", \"%s\": %s}", row->llamacpp, value);
		snprintf(want, sizeof want, "{\"prompt\": \"p\", \"%s\": %s}", row->name, value);
		becomes(client, want);
		snprintf(client, sizeof client, "{\"prompt\": \"p\", \"%s\": \"x\"}", row->llamacpp);
		refused(client, row->llamacpp);
		n++;
	}
	cr_expect_eq(n, 19);
}

Test(llamacpp_read, values_that_mean_none)
{
	becomes("{\"prompt\": [1, 2], \"n_predict\": -1, \"seed\": -1, \"stop\": [], \"n_probs\": 0, "
		"\"grammar\": \"\", "
		"\"json_schema\": {}, \"lora\": [], \"response_fields\": []}",
		"{\"prompt\": [1, 2]}");
	becomes("{\"prompt\": \"p\", \"n_predict\": -2, \"seed\": 4294967295}", "{\"prompt\": \"p\"}");
}

Test(llamacpp_read, a_bias_of_false_is_never)
{
	becomes("{\"prompt\": \"p\", \"logit_bias\": [[5, 1.5], [6, false]]}",
		"{\"prompt\": \"p\", \"logit_bias\": {\"5\": 1.5, \"6\": -100}}");
	refused("{\"prompt\": \"p\", \"logit_bias\": [[\"Hello\", 1]]}", "logit_bias");
	refused("{\"prompt\": \"p\", \"logit_bias\": [5]}", "logit_bias");
	refused("{\"prompt\": \"p\", \"logit_bias\": [[5, true]]}", "logit_bias");
}

Test(llamacpp_read, what_is_not_built_is_refused_by_name)
{
	refused("{}", "prompt");
	refused("{\"prompt\": 5}", "prompt");
	refused("{\"prompt\": {\"prompt_string\": \"a\"}}", "prompt");
	refused("{\"prompt\": [\"a\", \"b\"], \"stream\": true}", "prompt");
	refused("{\"prompt\": \"p\", \"n_predict\": 0}", "n_predict");
	refused("{\"prompt\": \"p\", \"n_predict\": 1.5}", "n_predict");
	refused("{\"prompt\": \"p\", \"n_probs\": 99}", "n_probs");
	refused("{\"prompt\": \"p\", \"mirostat\": 3}", "mirostat");
	refused("{\"prompt\": \"p\", \"dynatemp_range\": 0.5}", "dynatemp_range");
	refused("{\"prompt\": \"p\", \"response_fields\": [\"content\"]}", "response_fields");
	refused("{\"prompt\": \"p\", \"lora\": [{\"id\": 0}]}", "lora");
	refused("{\"prompt\": \"p\", \"t_max_predict_ms\": 100}", "t_max_predict_ms");
	refused("{\"prompt\": \"p\", \"n_cmpl\": 2}", "n_cmpl");
}

/* llama.cpp accepts such a request. */
Test(llamacpp_read, a_stream_may_have_an_array_of_one_prompt)
{
	becomes("{\"prompt\": [\"a\"], \"stream\": true}", "{\"prompt\": [\"a\"], \"stream\": true}");
	becomes("{\"prompt\": [[1, 2]], \"stream\": true}", "{\"prompt\": [[1, 2]], \"stream\": true}");
	refused("{\"prompt\": [[1], [2]], \"stream\": true}", "prompt");
}

/* Each prompt's reply repeats the stop strings, so a small request could cause a reply of many megabytes. */
Test(llamacpp_read, stop_strings_of_many_prompts_are_bounded)
{
	char stop[257];
	memset(stop, 'x', 256);
	stop[256] = 0;
	for (int n = 256; n <= 257; n++) {
		json_t *prompts = json_array(), *stops = json_array(),
		       *c = json_pack("{s:o, s:o}", "prompt", prompts, "stop", stops);
		struct llamacpp_request r;
		struct api_problem p = {0};
		for (int i = 0; i < n; i++)
			json_array_append_new(prompts, json_string("a"));
		for (int i = 0; i < 16; i++)
			json_array_append_new(stops, json_string(stop));
		cr_expect_eq(llamacpp_read(c, false, false, &r, &p), n > 256 ? -EINVAL : 0, "%d: %s", n,
			     p.why);
		if (n > 256)
			cr_expect_str_eq(p.param, "stop");
		json_decref(r.request);
		json_decref(c);
	}
}

Test(llamacpp_read, what_has_no_effect_is_named)
{
	json_t *c = parsed("{\"prompt\": \"p\", \"cache_prompt\": true, \"id_slot\": 1, \"brand_new\": 1}");
	struct llamacpp_request r;
	struct api_problem p = {0};
	cr_assert_eq(llamacpp_read(c, false, false, &r, &p), 0, "%s", p.why);
	cr_expect_str_eq(r.ignored, "cache_prompt, id_slot, brand_new");
	json_decref(r.request);
	cr_assert_neq(llamacpp_read(c, false, true, &r, &p), 0);
	cr_expect_str_eq(p.param, "brand_new");
	json_decref(c);
}
