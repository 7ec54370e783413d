#include "controller/apis/llamacpp/llamacpp_read.h"

#include "base/buf.h"
#include "base/json.h"
#include "controller/message/service.h"
#include "controller/request/request_fields.h"
#include "controller/request/request_tokens.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define INT_MAX_D 2147483647
#define COUNT(a)  (sizeof(a) / sizeof *(a))

enum { STOPS_MAX = 1 << 20 /* limit of prompts times bytes of the stop strings */ };

/* Read n_predict; -1 and -2 mean no limit but the context. */
static int read_n_predict(struct translation *t, const json_t *v)
{
	int64_t n;
	if (!json_integral(v, &n) || n == 0)
		return api_fail(t->p, E_BAD_REQUEST, "n_predict",
				"n_predict must be an integer from 1, or -1 for no bound");
	if (n > 0)
		json_object_set(t->out, "max_tokens", (json_t *)v);
	return 0;
}

/* Read the seed; -1 counts as absent. */
static int read_seed(struct translation *t, const json_t *v)
{
	int64_t n;
	if (!json_integral(v, &n) || (n != -1 && n != UINT32_MAX))
		json_object_set(t->out, "seed", (json_t *)v);
	return 0;
}

static int read_n_probs(struct translation *t, const json_t *v)
{
	if (json_number_value(v) > 0)
		json_object_set(t->out, "logprobs", (json_t *)v);
	return 0;
}

/* Read [[id, bias], [id, false], ...], or an object as in OpenAI's API; false bans the token. */
static int read_bias(struct translation *t, const json_t *v)
{
	size_t at;
	const json_t *pair;
	if (json_is_object(v)) {
		json_object_set(t->out, "logit_bias", (json_t *)v);
		return 0;
	}
	json_t *all = json_object();
	json_object_set_new(t->out, "logit_bias", all);
	json_array_foreach(v, at, pair)
	{
		const json_t *bias = json_array_get(pair, 1);
		int64_t id;
		char key[24];
		if (!json_integral(json_array_get(pair, 0), &id) ||
		    !(json_is_number(bias) || json_is_false(bias)))
			return api_fail(
				t->p, E_BAD_REQUEST, "logit_bias",
				"logit_bias[%zu] must be [token id, number or false]: texts are not taken",
				at);
		snprintf(key, sizeof key, "%" PRId64, id);
		json_object_set_new(all, key,
				    json_is_false(bias) ? json_integer(-100) : json_incref((json_t *)bias));
	}
	return 0;
}

static int read_stop(struct translation *t, const json_t *v)
{
	if (json_is_string(v) || json_array_size(v))
		json_object_set(t->out, "stop", (json_t *)v);
	return 0;
}

static int read_prompt(struct translation *t, const json_t *v)
{
	const json_t *first = json_array_get(v, 0);
	if ((json_is_string(first) || json_is_array(first)) && json_array_size(v) > 1 &&
	    json_is_true(json_get(t->client, "stream")))
		return api_fail(t->p, E_BAD_REQUEST, "prompt",
				"prompt holds several prompts: a stream takes one, send a request for each");
	json_object_set(t->out, "prompt", (json_t *)v);
	return 0;
}

/* Read the grammar; an empty one counts as absent. */
static int read_grammar(struct translation *t, const json_t *v)
{
	if (json_string_length(v))
		json_object_set(t->out, "grammar", (json_t *)v);
	return 0;
}

static int read_schema(struct translation *t, const json_t *v)
{
	if (json_object_size(v))
		json_object_set(t->out, "json_schema", (json_t *)v);
	return 0;
}

static const char ALWAYS[] = "prefixes are cached anyway";
static const char ONE_CHAIN[] = "samplers have one order";
static const char OF_THE_SERVICE[] = "set when the service starts";

static const struct field_row common_rows[] = {
	{"model", FIELD_STRING, FIELD_HONOURED, 0, 0, NULL, "the service's model, or absent"},
	{"stream", FIELD_BOOLEAN, FIELD_HONOURED, 0, 0, NULL, NULL},
	{"n_predict", FIELD_INTEGER, FIELD_HONOURED, -2, INT_MAX_D, NULL,
	 "-1, -2 and absent: as many as the context takes"},
	{"dry_sequence_breakers", FIELD_ARRAY, FIELD_HONOURED, 0, 0, NULL, NULL},
	{"seed", FIELD_INTEGER, FIELD_HONOURED, 0, 0, NULL, "-1: a random one"},
	{"stop", FIELD_STRING | FIELD_ARRAY, FIELD_HONOURED, 0, 0, NULL, NULL},
	{"logit_bias", FIELD_ARRAY | FIELD_OBJECT, FIELD_HONOURED, 0, 0, NULL,
	 "`[[id, bias], [id, false]]` or `{\"id\": bias}`; texts in place of ids are refused"},
	{"n_probs", FIELD_INTEGER, FIELD_HONOURED, 0, 20, NULL, NULL},
	{"grammar", FIELD_STRING, FIELD_HONOURED, 0, 0, NULL, "GBNF, or Lark that begins with %llguidance"},
	{"json_schema", FIELD_OBJECT, FIELD_HONOURED, 0, 0, NULL, NULL},
	{"return_tokens", FIELD_BOOLEAN, FIELD_HONOURED, 0, 0, NULL, "a stream has the tokens anyway"},
	{"dynatemp_range", FIELD_NUMBER, FIELD_NEUTRAL, 0, 0, "[0]", "use temperature"},
	{"n_indent", FIELD_INTEGER, FIELD_NEUTRAL, 0, 0, "[0]", "not built"},
	{"t_max_predict_ms", FIELD_INTEGER, FIELD_NEUTRAL, 0, 0, "[0, -1]", "bound the tokens: n_predict"},
	{"post_sampling_probs", FIELD_BOOLEAN, FIELD_NEUTRAL, 0, 0, "[false]",
	 "probabilities are the model's own"},
	{"response_fields", FIELD_ARRAY, FIELD_NEUTRAL, 0, 0, "[[]]", "replies have all fields"},
	{"lora", FIELD_ARRAY, FIELD_NEUTRAL, 0, 0, "[[]]", "adapters are not built"},
	{"n_cmpl", FIELD_INTEGER, FIELD_NEUTRAL, 0, 0, "[1]", "repeat the prompt in an array of prompts"},
	{"cache_prompt", FIELD_BOOLEAN, FIELD_IGNORED, 0, 0, NULL, ALWAYS},
	{"id_slot", FIELD_INTEGER, FIELD_IGNORED, 0, 0, NULL, "the scheduler chooses"},
	{"n_keep", FIELD_INTEGER, FIELD_IGNORED, 0, 0, NULL, "a context is not shifted"},
	{"n_discard", FIELD_INTEGER, FIELD_IGNORED, 0, 0, NULL, "a context is not shifted"},
	{"n_cache_reuse", FIELD_INTEGER, FIELD_IGNORED, 0, 0, NULL, ALWAYS},
	{"repeat_last_n", FIELD_INTEGER, FIELD_IGNORED, 0, 0, NULL, "penalties look at all tokens"},
	{"min_keep", FIELD_INTEGER, FIELD_IGNORED, 0, 0, NULL, NULL},
	{"samplers", FIELD_ARRAY | FIELD_STRING, FIELD_IGNORED, 0, 0, NULL, ONE_CHAIN},
	{"dynatemp_exponent", FIELD_NUMBER, FIELD_IGNORED, 0, 0, NULL, NULL},
	{"timings_per_token", FIELD_BOOLEAN, FIELD_IGNORED, 0, 0, NULL, "the last event has the timings"},
	{"return_progress", FIELD_BOOLEAN, FIELD_IGNORED, 0, 0, NULL, NULL},
	{"sse_ping_interval", FIELD_INTEGER, FIELD_IGNORED, 0, 0, NULL, NULL},
	{"speculative.n_max", FIELD_INTEGER, FIELD_IGNORED, 0, 0, NULL, OF_THE_SERVICE},
	{"speculative.n_min", FIELD_INTEGER, FIELD_IGNORED, 0, 0, NULL, OF_THE_SERVICE},
	{"speculative.p_min", FIELD_NUMBER, FIELD_IGNORED, 0, 0, NULL, OF_THE_SERVICE},
};
static struct field_row param_rows[PARAMS_ROWS_MAX];
static struct field_table param_fields = {param_rows, 0, &request_constraint_fields};
static const struct field_table common_fields = {common_rows, COUNT(common_rows), &param_fields};

static const struct field_row prompt_rows[] = {
	{"prompt", FIELD_STRING | FIELD_ARRAY, FIELD_HONOURED, 0, 0, NULL,
	 "a text, token ids, or an array of these (of one in a stream); not texts and ids mixed in "
	 "one prompt"},
};
const struct field_table llamacpp_fields = {prompt_rows, COUNT(prompt_rows), &common_fields};

static const struct field_row infill_rows[] = {
	{"input_prefix", FIELD_STRING, FIELD_HONOURED, 0, 0, NULL, "the text before the gap"},
	{"input_suffix", FIELD_STRING, FIELD_HONOURED, 0, 0, NULL, "the text behind it"},
	{"prompt", FIELD_STRING, FIELD_HONOURED, 0, 0, NULL, "the beginning of what fills it"},
	{"input_extra", FIELD_ARRAY, FIELD_HONOURED, 0, 0, NULL,
	 "`[{\"filename\", \"text\"}]`: other files, before the gap"},
};
const struct field_table llamacpp_infill_fields = {infill_rows, COUNT(infill_rows), &common_fields};

/* The first rule does not apply to /infill. */
static const struct translate_rule rules[] = {
	{"prompt", NULL, read_prompt},
	{"model", "model", NULL},
	{"stream", "stream", NULL},
	{"n_predict", NULL, read_n_predict},
	{"dry_sequence_breakers", "dry_sequence_breakers", NULL},
	{"seed", NULL, read_seed},
	{"stop", NULL, read_stop},
	{"logit_bias", NULL, read_bias},
	{"n_probs", NULL, read_n_probs},
	{"grammar", NULL, read_grammar},
	{"json_schema", NULL, read_schema},
};

static const struct generation_name other_names[] = {{"max_tokens", "n_predict"}, {"logprobs", "n_probs"}};
struct generation_name llamacpp_names[COUNT(other_names) + PARAMS_ROWS_MAX + 1];

__attribute__((constructor)) static void fill(void)
{
	size_t n = COUNT(other_names);
	param_fields.n_rows = request_fields_params(offsetof(struct params_row, llamacpp), param_rows);
	memcpy(llamacpp_names, other_names, sizeof other_names);
	for (size_t i = 0; i < n_params_rows; i++)
		if (params_rows[i].llamacpp)
			llamacpp_names[n++] =
				(struct generation_name){params_rows[i].name, params_rows[i].llamacpp};
}

/* Limit the stop strings, because each prompt's reply repeats them. */
static int check_stops(const json_t *request, struct api_problem *p)
{
	const json_t *prompt = json_get(request, "prompt"), *stop = json_get(request, "stop"), *s;
	const json_t *first = json_array_get(prompt, 0);
	const size_t n = json_is_string(first) || json_is_array(first) ? json_array_size(prompt) : 1;
	size_t i, bytes = 0;
	json_array_foreach(stop, i, s) bytes += json_string_length(s);
	return n * bytes <= STOPS_MAX
		       ? 0
		       : api_fail(p, E_BAD_REQUEST, "stop",
				  "%zu prompts times %zu bytes of stop is more than %d: put fewer prompts "
				  "into a request",
				  n, bytes, STOPS_MAX);
}

int llamacpp_read(const json_t *client, bool infill, bool strict, struct llamacpp_request *out,
		  struct api_problem *p)
{
	struct translation t = {.out = json_object(), .within = "", .strict = strict, .p = p};
	const struct translate_table table = {infill ? &llamacpp_infill_fields : &llamacpp_fields,
					      rules + infill, COUNT(rules) - infill,
					      offsetof(struct params_row, llamacpp)};
	*out = (struct llamacpp_request){0};
	int rc = translate_object(&t, client, "", &table);
	request_constraint_fields_copy(client, table.fields, t.out);
	if (!rc && !infill && !json_get(client, "prompt"))
		rc = api_fail(p, E_BAD_REQUEST, "prompt", "prompt must be given");
	if (!rc)
		rc = check_stops(t.out, p);
	out->return_tokens = json_is_true(json_get(client, "return_tokens"));
	memcpy(out->ignored, t.ignored, sizeof t.ignored);
	if (rc)
		json_decref(t.out);
	else
		out->request = t.out;
	return rc;
}

/* --- /infill --- */

/* Tokens that a vocabulary may have: prefix, suffix, middle. */
static const char *const marks[][3] = {
	{"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"}, /* Qwen, CodeGemma */
	{"<fim_prefix>", "<fim_suffix>", "<fim_middle>"},       /* StarCoder */
	{"<fim-prefix>", "<fim-suffix>", "<fim-middle>"},
	{"<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"},       /* GLM */
	{"\xe2\x96\x81<PRE>", "\xe2\x96\x81<SUF>", "\xe2\x96\x81<MID>"}, /* CodeLlama */
	{"<PRE>", "<SUF>", "<MID>"},
	{"<\xef\xbd\x9c"
	 "fim\xe2\x96\x81"
	 "begin\xef\xbd\x9c>", /* DeepSeek */
	 "<\xef\xbd\x9c"
	 "fim\xe2\x96\x81"
	 "hole\xef\xbd\x9c>",
	 "<\xef\xbd\x9c"
	 "fim\xe2\x96\x81"
	 "end\xef\xbd\x9c>"},
};

static bool find_marks(const struct tokenizer *t, uint32_t ids[3])
{
	for (size_t i = 0; i < COUNT(marks); i++) {
		bool all = true;
		for (int k = 0; k < 3; k++) {
			const int64_t id = tokenizer_id(t, marks[i][k]);
			all = all && id >= 0;
			ids[k] = (uint32_t)id;
		}
		if (all)
			return true;
	}
	return false;
}

/* Append the ids of a text, in which special tokens are not recognized. */
static int add_text(const char *s, size_t n, const char *field, const struct llamacpp_gap *gap, json_t *out,
		    struct api_problem *p)
{
	const struct request_text text = {.field = field, .p = s, .n = n, .flags = TOKENIZER_NO_SPECIAL};
	struct token_ids ids = {0};
	int rc = request_tokens_check_bytes(gap->svc, gap->max_context, text.n, field, p);
	if (!rc)
		rc = request_tokens_encode(gap->svc, &text, &ids, p);
	/* A tree of more ids than any context holds would need many times the text's memory. */
	if (!rc && json_array_size(out) + ids.n >= gap->max_context)
		rc = api_fail(p, E_TOO_LONG, field,
			      "%s: the gap's texts have more tokens than the context, %u", field,
			      gap->max_context);
	for (size_t i = 0; i < ids.n && !rc; i++)
		json_array_append_new(out, json_integer(ids.ids[i]));
	token_ids_fini(&ids);
	return rc;
}

/* Append a mark and the text after it. */
static int add_part(const json_t *client, const char *field, uint32_t mark, const struct llamacpp_gap *gap,
		    json_t *out, struct api_problem *p)
{
	const json_t *v = json_get(client, field);
	json_array_append_new(out, json_integer(mark));
	return add_text(v ? json_string_value(v) : "", json_string_length(v), field, gap, out, p);
}

/* Tokens that a vocabulary may have: before the repository's name, before each file. */
static const char *const file_marks[][2] = {{"<|repo_name|>", "<|file_sep|>"}, /* Qwen */
					    {"<repo_name>", "<file_sep>"},     /* StarCoder */
					    {"<|repo_name|>", "<|file_separator|>"}};

static int64_t find_file_marks(const struct tokenizer *t, int64_t *repo)
{
	for (size_t i = 0; i < COUNT(file_marks); i++) {
		const int64_t file = tokenizer_id(t, file_marks[i][1]);
		*repo = tokenizer_id(t, file_marks[i][0]);
		if (*repo >= 0 && file >= 0)
			return file;
	}
	return -1;
}

/* Append other files, each after its name if the vocabulary has marks for that:
 *
 *   REPO myproject FILE name text ... FILE filename */
static int add_files(const json_t *client, const struct llamacpp_gap *gap, json_t *out, struct api_problem *p)
{
	static const char field[] = "input_extra";
	const json_t *files = json_get(client, field), *one;
	int64_t repo, mark = find_file_marks(gap->svc->tokenizer, &repo);
	size_t i;
	int rc = 0;
	if (!json_array_size(files))
		return 0;
	if (mark >= 0) {
		json_array_append_new(out, json_integer(repo));
		rc = add_text("myproject\n", 10, field, gap, out, p);
	}
	json_array_foreach(files, i, one)
	{
		const json_t *name = json_get(one, "filename"), *text = json_get(one, "text");
		if (!rc && (!json_is_string(text) || (name && !json_is_string(name))))
			rc = api_fail(p, E_BAD_REQUEST, field,
				      "input_extra[%zu] must be {\"filename\", \"text\"}, strings", i);
		if (rc)
			return rc;
		struct buf b = {0};
		if (mark >= 0) {
			json_array_append_new(out, json_integer(mark));
			buf_puts(&b, name ? json_string_value(name) : "tmp");
			buf_putc(&b, '\n');
		}
		buf_put(&b, json_string_value(text), json_string_length(text));
		buf_putc(&b, '\n');
		rc = add_text(b.p, b.len, field, gap, out, p);
		buf_fini(&b);
	}
	if (!rc && mark >= 0) {
		json_array_append_new(out, json_integer(mark));
		rc = add_text("filename\n", 9, field, gap, out, p);
	}
	return rc;
}

int llamacpp_read_infill(const json_t *client, const struct llamacpp_gap *gap, json_t *request,
			 struct api_problem *p)
{
	const struct tokenizer *t = gap->svc->tokenizer;
	static const char *const fields[3] = {"input_prefix", "input_suffix", "prompt"};
	uint32_t ids[3];
	int rc = 0;
	if (!find_marks(t, ids))
		return api_fail(p, E_BAD_REQUEST, "",
				"/infill: the model's vocabulary has no tokens to fill a gap with (FIM): use "
				"/completion");
	json_t *prompt = json_array();
	if (tokenizer_bos(t) >= 0)
		json_array_append_new(prompt, json_integer(tokenizer_bos(t)));
	rc = add_files(client, gap, prompt, p);
	for (int k = 0; k < 3 && !rc; k++)
		rc = add_part(client, fields[k], ids[k], gap, prompt, p);
	json_object_set_new(request, "prompt", prompt);
	return rc;
}
