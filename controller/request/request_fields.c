#include "controller/request/request_fields.h"

#include "base/json.h"
#include "formats/config.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

enum {
	SUBMIT = 1,      /* a job socket request */
	PARAMS = 2,      /* its `params` */
	TEXT = 4,        /* /v1/completions */
	CHAT = 8,        /* /v1/chat/completions */
	CONSTRAINT = 16, /* structured output: routes of other APIs take it too */
	HTTP = TEXT | CHAT,
	ALL = PARAMS | HTTP,

	NAME_BYTES_MAX = 256, /* limit of user, key, cache_salt */
	TRACE_BYTES_MAX = 8192,
	MODEL_BYTES_MAX = 1024,
	DEADLINE_MS_MAX = 7 * 24 * 3600 * 1000,
};

struct field;
typedef int set_fn(struct request_fields *f, const struct field *d, const json_t *v, struct api_problem *p);

/* Description of a field. */
struct field {
	const char *name;
	unsigned where;    /* flags: SUBMIT, ... */
	set_fn *set;       /* NULL: known, but without effect */
	size_t at;         /* offset in struct request_fields; names with the same offset are names of one
			    * field; 0: none */
	double lo, hi;     /* numbers: the range; strings: hi is the most bytes */
	const char *about; /* one line of help; a default is in brackets */
};

/* --- one value --- */

static int set_num(struct request_fields *f, const struct field *d, const json_t *v, struct api_problem *p)
{
	if (!json_is_number(v))
		return api_fail(p, E_BAD_REQUEST, d->name, "%s must be a number", d->name);
	double x = json_number_value(v);
	if (!isfinite(x) || x < d->lo || x > d->hi)
		return api_fail(p, E_BAD_REQUEST, d->name, "%s is %g, must be from %g to %g", d->name, x,
				d->lo, d->hi);
	memcpy((char *)f + d->at, &x, sizeof x);
	return 0;
}

/* Like set_num, but lo itself is excluded. */
static int set_num_above(struct request_fields *f, const struct field *d, const json_t *v,
			 struct api_problem *p)
{
	if (json_is_number(v) && json_number_value(v) <= d->lo)
		return api_fail(p, E_BAD_REQUEST, d->name, "%s is %g, must be greater than %g", d->name,
				json_number_value(v), d->lo);
	return set_num(f, d, v, p);
}

static int read_int(const struct field *d, const json_t *v, int64_t *x, struct api_problem *p)
{
	if (!json_integral(v, x))
		return api_fail(p, E_BAD_REQUEST, d->name, "%s must be an integer%s", d->name,
				json_is_real(v) && fabs(json_real_value(v)) >= 9e18 ? " below 2^63" : "");
	if ((double)*x < d->lo || (double)*x > d->hi)
		return api_fail(p, E_BAD_REQUEST, d->name, "%s is %lld, must be from %.0f to %.0f", d->name,
				(long long)*x, d->lo, d->hi);
	return 0;
}

static int set_int(struct request_fields *f, const struct field *d, const json_t *v, struct api_problem *p)
{
	int64_t x;
	int rc = read_int(d, v, &x, p);
	if (!rc)
		memcpy((char *)f + d->at, &x, sizeof x);
	return rc;
}

/* Store an integer in f->params. */
static int set_whole(struct request_fields *f, const struct field *d, const json_t *v, struct api_problem *p)
{
	int64_t x;
	int rc = read_int(d, v, &x, p);
	const double number = (double)x;
	if (!rc)
		memcpy((char *)f + d->at, &number, sizeof number);
	return rc;
}

/* Store true or false in f->params. */
static int set_flag(struct request_fields *f, const struct field *d, const json_t *v, struct api_problem *p)
{
	if (!json_is_boolean(v))
		return api_fail(p, E_BAD_REQUEST, d->name, "%s must be true or false", d->name);
	const double number = json_is_true(v);
	memcpy((char *)f + d->at, &number, sizeof number);
	return 0;
}

static int set_bool(struct request_fields *f, const struct field *d, const json_t *v, struct api_problem *p)
{
	if (!json_is_boolean(v))
		return api_fail(p, E_BAD_REQUEST, d->name, "%s must be true or false", d->name);
	bool x = json_is_true(v);
	memcpy((char *)f + d->at, &x, sizeof x);
	return 0;
}

static int set_str(struct request_fields *f, const struct field *d, const json_t *v, struct api_problem *p)
{
	if (!json_is_string(v))
		return api_fail(p, E_BAD_REQUEST, d->name, "%s must be a string", d->name);
	const char *s = json_string_value(v);
	size_t n = json_string_length(v);
	if (n == 0 || (double)n > d->hi || memchr(s, 0, n))
		return api_fail(p, E_BAD_REQUEST, d->name,
				"%s must be a string of 1 to %.0f bytes without NUL", d->name, d->hi);
	memcpy((char *)f + d->at, &s, sizeof s);
	return 0;
}

/* Like set_str, but "" counts as absent, as in OpenAI's API. */
static int set_user(struct request_fields *f, const struct field *d, const json_t *v, struct api_problem *p)
{
	return json_is_string(v) && json_string_length(v) == 0 ? 0 : set_str(f, d, v, p);
}

static int set_array(struct request_fields *f, const struct field *d, const json_t *v, struct api_problem *p)
{
	if (!json_is_array(v))
		return api_fail(p, E_BAD_REQUEST, d->name, "%s must be an array", d->name);
	memcpy((char *)f + d->at, &v, sizeof v);
	return 0;
}

static int set_object(struct request_fields *f, const struct field *d, const json_t *v, struct api_problem *p)
{
	if (!json_is_object(v))
		return api_fail(p, E_BAD_REQUEST, d->name, "%s must be an object", d->name);
	memcpy((char *)f + d->at, &v, sizeof v);
	return 0;
}

/* Store true or false as a tree, so that absence can be told. */
static int set_any_bool(struct request_fields *f, const struct field *d, const json_t *v,
			struct api_problem *p)
{
	if (!json_is_boolean(v))
		return api_fail(p, E_BAD_REQUEST, d->name, "%s must be true or false", d->name);
	memcpy((char *)f + d->at, &v, sizeof v);
	return 0;
}

/* Store any value; api.c checks the type. */
static int set_any(struct request_fields *f, const struct field *d, const json_t *v, struct api_problem *p)
{
	(void)p;
	memcpy((char *)f + d->at, &v, sizeof v);
	return 0;
}

static int set_seed(struct request_fields *f, const struct field *d, const json_t *v, struct api_problem *p)
{
	f->has_seed = true;
	return set_int(f, d, v, p);
}

static int set_early(struct request_fields *f, const struct field *d, const json_t *v, struct api_problem *p)
{
	bool never = json_is_string(v) && strcmp(json_string_value(v), "never") == 0;
	if (!json_is_boolean(v) && !never)
		return api_fail(p, E_BAD_REQUEST, d->name, "%s must be true, false or \"never\"", d->name);
	f->early = never ? PARAMS_EARLY_NEVER : json_is_true(v) ? PARAMS_EARLY_YES : PARAMS_EARLY_NO;
	return 0;
}

static int set_max_tokens(struct request_fields *f, const struct field *d, const json_t *v,
			  struct api_problem *p)
{
	int64_t x;
	f->no_output = json_integral(v, &x) && x == 0;
	return set_int(f, d, v, p);
}

/* Read llama.cpp's n_predict: -1 and -2 mean no limit but the context. */
static int set_n_predict(struct request_fields *f, const struct field *d, const json_t *v,
			 struct api_problem *p)
{
	int64_t x;
	return json_integral(v, &x) && (x == -1 || x == -2) ? 0 : set_int(f, d, v, p);
}

static int set_add_special(struct request_fields *f, const struct field *d, const json_t *v,
			   struct api_problem *p)
{
	f->add_special_given = true;
	return set_bool(f, d, v, p);
}

static int set_on_disconnect(struct request_fields *f, const struct field *d, const json_t *v,
			     struct api_problem *p)
{
	const char *s = json_is_string(v) ? json_string_value(v) : "";
	if (strcmp(s, "cancel") != 0 && strcmp(s, "keep") != 0)
		return api_fail(p, E_BAD_REQUEST, d->name, "%s must be \"cancel\" or \"keep\"", d->name);
	f->keep = s[0] == 'k';
	return 0;
}

static int set_stream_options(struct request_fields *f, const struct field *d, const json_t *v,
			      struct api_problem *p)
{
	static const struct field inner[] = {
		{"include_usage", HTTP, set_bool, offsetof(struct request_fields, include_usage), 0, 0, NULL},
		{"continuous_usage_stats", HTTP, set_bool, offsetof(struct request_fields, continuous_usage),
		 0, 0, NULL},
	};
	if (!json_is_object(v))
		return api_fail(p, E_BAD_REQUEST, d->name, "%s must be an object", d->name);
	f->has_stream_options = true;
	for (size_t i = 0; i < 2; i++) {
		const json_t *x = json_object_get(v, inner[i].name);
		int rc = x && !json_is_null(x) ? inner[i].set(f, &inner[i], x, p) : 0;
		if (rc)
			return rc;
	}
	return 0;
}

/* --- not supported: only the neutral value is accepted --- */

static int unsupported(const struct field *d, struct api_problem *p)
{
	return api_fail(p, E_BAD_REQUEST, d->name, "%s is not supported: %s", d->name, d->about);
}

static int only_false(struct request_fields *f, const struct field *d, const json_t *v, struct api_problem *p)
{
	(void)f;
	if (!json_is_boolean(v))
		return api_fail(p, E_BAD_REQUEST, d->name, "%s must be true or false", d->name);
	return json_is_true(v) ? unsupported(d, p) : 0;
}

static int only_true(struct request_fields *f, const struct field *d, const json_t *v, struct api_problem *p)
{
	(void)f;
	if (!json_is_boolean(v))
		return api_fail(p, E_BAD_REQUEST, d->name, "%s must be true or false", d->name);
	return json_is_false(v) ? unsupported(d, p) : 0;
}

static int only_zero(struct request_fields *f, const struct field *d, const json_t *v, struct api_problem *p)
{
	int64_t x;
	(void)f;
	return json_integral(v, &x) && x == 0 ? 0 : unsupported(d, p);
}

static int only_one(struct request_fields *f, const struct field *d, const json_t *v, struct api_problem *p)
{
	int64_t x;
	(void)f;
	return json_integral(v, &x) && x == 1 ? 0 : unsupported(d, p);
}

/* Accept only null, "", [] or {}. */
static int only_empty(struct request_fields *f, const struct field *d, const json_t *v, struct api_problem *p)
{
	(void)f;
	bool empty = (json_is_array(v) && json_array_size(v) == 0) ||
		     (json_is_object(v) && json_object_size(v) == 0) ||
		     (json_is_string(v) && json_string_length(v) == 0);
	return empty ? 0 : unsupported(d, p);
}

static int only_text_modality(struct request_fields *f, const struct field *d, const json_t *v,
			      struct api_problem *p)
{
	(void)f;
	const json_t *one = json_array_get(v, 0);
	if (json_array_size(v) == 1 && json_is_string(one) && strcmp(json_string_value(one), "text") == 0)
		return 0;
	return api_fail(p, E_BAD_REQUEST, d->name, "%s other than [\"text\"] are not supported", d->name);
}

/* Accept only OpenAI's default. */
static int only_medium(struct request_fields *f, const struct field *d, const json_t *v,
		       struct api_problem *p)
{
	(void)f;
	const char *s = json_is_string(v) ? json_string_value(v) : "";
	return strcmp(s, "medium") == 0 || (json_is_string(v) && !*s) ? 0 : unsupported(d, p);
}

/* Accept only "none" and "auto", which are neutral without functions. */
static int only_no_choice(struct request_fields *f, const struct field *d, const json_t *v,
			  struct api_problem *p)
{
	(void)f;
	const char *s = json_is_string(v) ? json_string_value(v) : "";
	return strcmp(s, "none") == 0 || strcmp(s, "auto") == 0 ? 0 : unsupported(d, p);
}

/* --- the table --- */

#define AT(field) offsetof(struct request_fields, field)
#define INT_MAX_D 2147483647.0

/* Fields that params_rows does not have in this format. */
static const struct field own_fields[] = {
	{"dry_sequence_breakers", ALL, set_array, AT(breakers), 0, 0,
	 "up to 64 strings that end a repetition (newline, colon, quote, star)"},
	{"max_tokens", PARAMS | CHAT, set_int, AT(max_tokens), 1, INT_MAX_D,
	 "of each output (the rest of the context; 16 in /v1/completions)"},
	{"max_tokens", TEXT, set_max_tokens, AT(max_tokens), 0, INT_MAX_D,
	 "of each output (the rest of the context; 16 in /v1/completions)"},
	{"max_completion_tokens", CHAT, set_int, AT(max_completion_tokens), 1, INT_MAX_D,
	 "the newer name of max_tokens"},
	{"best_of", ALL, set_int, AT(best_of), 1, PARAMS_N_MAX,
	 "outputs sampled, of which the n most likely are returned (n)"},
	{"use_beam_search", ALL, set_bool, AT(beams), 0, 0, "beam search instead of sampling (false)"},
	{"beam_width", ALL, set_int, AT(beam_width), 1, PARAMS_N_MAX,
	 "hypotheses of a beam search (best_of)"},
	{"early_stopping", ALL, set_early, 0, 0, 0,
	 "when a beam search is over: true, false or never (false)"},
	{"seed", ALL, set_seed, AT(seed), -9223372036854775808.0, 9223372036854775807.0,
	 "equal seeds give equal outputs (drawn)"},
	{"stop", ALL, set_any, AT(stop), 0, 0, "a string or up to 16: the output ends before them"},
	{"stop_token_ids", ALL, set_array, AT(stop_token_ids), 0, 0, "the output ends at them"},
	{"include_stop_str_in_output", ALL, set_bool, AT(include_stop), 0, 0,
	 "the stop string stays in the text (false)"},
	{"skip_special_tokens", ALL, set_bool, AT(skip_special), 0, 0,
	 "special tokens are left out of the text (true)"},
	{"logit_bias", ALL, set_any, AT(logit_bias), 0, 0,
	 "token ids, as strings, to what is added to their logits, -100 to 100"},
	{"allowed_token_ids", ALL, set_array, AT(allowed), 0, 0, "only these are sampled"},
	{"bad_words", ALL, set_array, AT(bad_words), 0, 0, "up to 512 texts that do not appear"},
	{"logprobs", PARAMS | TEXT, set_int, AT(logprobs), 0, PARAMS_LOGPROBS_MAX,
	 "log probabilities, with so many of the most likely tokens"},
	{"logprobs", CHAT, set_bool, AT(chat_logprobs), 0, 0,
	 "log probabilities of the output's tokens (false)"},
	{"top_logprobs", CHAT, set_int, AT(top_logprobs), 0, PARAMS_LOGPROBS_MAX,
	 "with so many of the most likely tokens (0)"},
	{"prompt_logprobs", ALL, set_int, AT(prompt_logprobs), 0, PARAMS_LOGPROBS_MAX,
	 "log probabilities of the prompt's tokens, with so many of the most likely"},

	{"prompt", SUBMIT | TEXT, set_any, AT(prompt), 0, 0,
	 "a string, an array of token ids, or an array of these"},
	{"tokens", SUBMIT, set_array, AT(tokens), 0, 0, "the prompt as token ids"},
	{"messages", SUBMIT | CHAT, set_array, AT(messages), 0, 0,
	 "the chat: role and content, by the model's template"},
	{"stream", SUBMIT | HTTP, set_bool, AT(stream), 0, 0, "events as the output grows (false)"},
	{"user", SUBMIT | HTTP, set_user, AT(user), 0, NAME_BYTES_MAX, "users are served in fair turns"},
	{"cache_salt", SUBMIT | HTTP, set_str, AT(cache_salt), 0, NAME_BYTES_MAX,
	 "cached prefixes are shared with requests of the same salt only"},
	{"key", SUBMIT, set_str, AT(key), 0, NAME_BYTES_MAX,
	 "idempotency key: a second submit with it attaches to the first one's job"},
	{"traceparent", SUBMIT, set_str, AT(traceparent), 0, TRACE_BYTES_MAX,
	 "W3C Trace Context: the trace that the job belongs to"},
	{"tracestate", SUBMIT, set_str, AT(tracestate), 0, TRACE_BYTES_MAX, "the same; passed through"},
	{"deadline_ms", SUBMIT | HTTP, set_int, AT(deadline_ms), 1, DEADLINE_MS_MAX,
	 "the job is cancelled after this time"},
	{"on_disconnect", SUBMIT, set_on_disconnect, 0, 0, 0, "cancel or keep (cancel)"},
	{"model", HTTP, set_str, AT(model), 0, MODEL_BYTES_MAX, "the service's model, or absent"},
	{"stream_options", HTTP, set_stream_options, 0, 0, 0, "include_usage, continuous_usage_stats"},
	{"echo", TEXT, set_bool, AT(echo), 0, 0, "the prompt precedes the text (false)"},
	{"add_special_tokens", HTTP, set_add_special, AT(add_special), 0, 0, "the tokenizer adds its own"},
	{"return_tokens_as_token_ids", HTTP, set_bool, AT(tokens_as_ids), 0, 0,
	 "tokens in logprobs as token_id:123 (false)"},
	{"return_token_ids", HTTP, set_bool, AT(return_token_ids), 0, 0,
	 "the reply has the token ids (false)"},
	{"return_timing", HTTP, set_bool, AT(return_timing), 0, 0, "the reply has the job's times (false)"},

	{"durable", SUBMIT, set_bool, AT(durable), 0, 0, "the job survives a restart of the service (false)"},
	{"priority", SUBMIT | HTTP, set_int, AT(priority), -2147483648.0, INT_MAX_D,
	 "lower ones run first (0)"},
	{"response_format", ALL | CONSTRAINT, set_any, AT(response_format), 0, 0,
	 "text, json_object, json_schema, regex, grammar or structural_tag"},
	{"structured_outputs", ALL | CONSTRAINT, set_any, AT(structured), 0, 0,
	 "vLLM's: json, regex, choice, grammar, json_object or structural_tag"},
	{"tools", CHAT, set_array, AT(tools), 0, 0, "functions that the model may call"},
	{"functions", CHAT, only_empty, 0, 0, 0, "the older name: use tools"},
	{"tool_choice", CHAT, set_any, AT(tool_choice), 0, 0,
	 "none, auto, required, a function, or allowed_tools (auto)"},
	{"parallel_tool_calls", CHAT, set_bool, AT(parallel_calls), 0, 0,
	 "several calls in one output (true)"},
	{"include_reasoning", CHAT, set_bool, AT(show_reasoning), 0, 0,
	 "the reply has the model's reasoning (true)"},
	{"function_call", CHAT, only_no_choice, 0, 0, 0, "the older name: use tool_choice"},
	{"modalities", CHAT, only_text_modality, 0, 0, 0, "text"},
	{"audio", CHAT, only_empty, 0, 0, 0, "models here write text"},
	{"web_search_options", CHAT, only_empty, 0, 0, 0, "the service reaches no web"},
	{"reasoning_effort", CHAT, set_str, AT(reasoning_effort), 0, NAME_BYTES_MAX,
	 "for the model's template; none: without reasoning"},
	{"enable_thinking", CHAT, set_any_bool, AT(enable_thinking), 0, 0, "for the model's template"},
	{"verbosity", CHAT, only_medium, 0, 0, 0, "it must be medium"},
	{"moderation", CHAT, only_empty, 0, 0, 0, "nothing is moderated"},
	{"suffix", TEXT, only_empty, 0, 0, 0, "write the model's own tokens for infilling into the prompt"},
	{"echo", CHAT, only_false, 0, 0, 0, "chats are not echoed"},
	{"add_generation_prompt", CHAT, set_bool, AT(add_generation), 0, 0,
	 "the template begins the answer (true)"},
	{"continue_final_message", CHAT, set_bool, AT(continue_final), 0, 0,
	 "the answer goes on with the last message (false)"},
	{"chat_template", CHAT, only_empty, 0, 0, 0, "the model's own template is used"},
	{"chat_template_kwargs", CHAT, set_object, AT(template_kwargs), 0, 0, "variables of the template"},
	{"documents", CHAT, set_array, AT(documents), 0, 0, "for the template"},
	{"mm_processor_kwargs", CHAT, only_empty, 0, 0, 0, "models here read text"},
	{"prompt_embeds", TEXT, only_empty, 0, 0, 0, "prompts are texts or token ids"},
	{"truncate_prompt_tokens", HTTP, only_empty, 0, 0, 0,
	 "a prompt that is too long is refused: shorten it"},
	{"logits_processors", HTTP, only_empty, 0, 0, 0, "use logit_bias, bad_words or structured output"},
	{"guided_json", ALL | CONSTRAINT, set_any, AT(guided_json), 0, 0, "a JSON schema, or its text"},
	{"guided_regex", ALL | CONSTRAINT, set_any, AT(guided_regex), 0, 0,
	 "a pattern that the whole output matches"},
	{"guided_choice", ALL | CONSTRAINT, set_any, AT(guided_choice), 0, 0,
	 "an array of strings: one of them"},
	{"guided_grammar", ALL | CONSTRAINT, set_any, AT(guided_grammar), 0, 0,
	 "GBNF where a rule is written with ::=, else Lark"},
	{"guided_whitespace_pattern", ALL | CONSTRAINT, set_user, AT(guided_space), 0, SPACE_BYTES_MAX,
	 "of JSON's whitespace, wherever it may stand, what the pattern matches, 20 characters at most (one "
	 "blank behind "
	 "commas and colons)"},
	{"schema_exact", ALL | CONSTRAINT, set_bool, AT(schema_exact), 0, 0,
	 "schemas allow all that they say: members beyond those that an object lists, numbers and whitespace "
	 "of any "
	 "length (false, or the service's)"},
	{"guided_decoding_backend", HTTP | CONSTRAINT, NULL, 0, 0, 0, "there is one"},
	{"grammar", HTTP | CONSTRAINT, set_any, AT(gbnf), 0, 0,
	 "llama.cpp's: GBNF, or Lark that begins with %llguidance; TGI's: an object of type and value"},
	{"json_schema", HTTP | CONSTRAINT, set_any, AT(json_schema), 0, 0,
	 "llama.cpp's and SGLang's: a JSON schema, or its text"},
	{"schema", HTTP | CONSTRAINT, set_any, AT(schema), 0, 0, "a JSON schema, or its text"},
	{"regex", HTTP | CONSTRAINT, set_any, AT(regex), 0, 0,
	 "SGLang's: a pattern that the whole output matches"},
	{"ebnf", HTTP | CONSTRAINT, set_any, AT(ebnf), 0, 0,
	 "SGLang's: GBNF where a rule is written with ::=, else Lark"},
	{"format", HTTP | CONSTRAINT, set_any, AT(format), 0, 0, "Ollama's: json, or a JSON schema"},
	{"structural_tag", HTTP | CONSTRAINT, set_any, AT(structural), 0, 0,
	 "SGLang's: structures and triggers, or their text"},
	{"thinking_token_budget", CHAT, set_int, AT(thinking_budget), 0, 1 << 30,
	 "tokens after which the reasoning is closed"},
	{"thinking_token_budget", TEXT, only_empty, 0, 0, 0, "a text has no reasoning"},
	{"detokenize", HTTP, only_true, 0, 0, 0, "it must be true"},

	{"n_predict", HTTP, set_n_predict, AT(max_tokens), 1, INT_MAX_D,
	 "llama.cpp's name of max_tokens; -1 and -2: the rest of the context"},
	{"max_new_tokens", HTTP, set_int, AT(max_tokens), 1, INT_MAX_D, "SGLang's name of max_tokens"},
	{"random_seed", HTTP, set_seed, AT(seed), -9223372036854775808.0, 9223372036854775807.0,
	 "Mistral's and LMDeploy's name of seed"},
	{"stop_words", HTTP, set_any, AT(stop), 0, 0, "LMDeploy's name of stop"},
	{"stop_sequences", HTTP, set_any, AT(stop), 0, 0, "TGI's and Anthropic's name of stop"},
	{"no_stop_trim", HTTP, set_bool, AT(include_stop), 0, 0,
	 "SGLang's name of include_stop_str_in_output"},
	{"stop_regex", HTTP, only_empty, 0, 0, 0, "use stop, or a pattern for the whole output"},
	{"n_probs", HTTP, only_zero, 0, 0, 0, "use logprobs"},
	{"top_a", HTTP, only_zero, 0, 0, 0, "use min_p"},
	{"tfs", HTTP, only_one, 0, 0, 0, "use min_p or typical_p"},
	{"tfs_z", HTTP, only_one, 0, 0, 0, "use min_p or typical_p"},
	{"dynatemp_range", HTTP, only_zero, 0, 0, 0, "use temperature"},
	{"mirostat_target", HTTP, only_zero, 0, 0, 0, "use mirostat and mirostat_tau"},
	{"mirostat_lr", HTTP, only_zero, 0, 0, 0, "use mirostat and mirostat_eta"},
	{"do_sample", HTTP, only_true, 0, 0, 0, "without sampling: a temperature of 0"},
	{"num_beams", HTTP, only_one, 0, 0, 0, "use use_beam_search and beam_width"},
	{"num_return_sequences", HTTP, only_one, 0, 0, 0, "use n"},
	{"guidance_scale", HTTP, only_one, 0, 0, 0, "there is no second prompt to guide by"},
	{"grammar_lazy", HTTP, only_false, 0, 0, 0,
	 "a grammar holds for the whole output; see structural_tag"},
	{"grammar_triggers", HTTP, only_empty, 0, 0, 0, "see structural_tag"},
	{"custom_logit_processor", HTTP, only_empty, 0, 0, 0,
	 "use logit_bias, bad_words or structured output"},
	{"options", HTTP, only_empty, 0, 0, 0, "its members are fields of the request itself here"},
	{"parameters", HTTP, only_empty, 0, 0, 0, "its members are fields of the request itself here"},
	{"sampling_params", HTTP, only_empty, 0, 0, 0, "its members are fields of the request itself here"},
	{"extra_body", HTTP, only_empty, 0, 0, 0,
	 "a client's library unpacks it: its members are fields of the request itself"},
	{"repeat_last_n", HTTP, NULL, 0, 0, 0, "penalties look at all tokens"},
	{"min_keep", HTTP, NULL, 0, 0, 0, NULL},
	{"samplers", HTTP, NULL, 0, 0, 0, "samplers have one order"},

	{"prediction", CHAT, NULL, 0, 0, 0, "changes speed, not the answer"},
	{"store", CHAT, NULL, 0, 0, 0, "chats are not kept: use /v1/responses"},
	{"metadata", CHAT, NULL, 0, 0, 0, "is not kept"},
	{"service_tier", HTTP, NULL, 0, 0, 0, "there is one; see priority"},
	{"safety_identifier", HTTP, NULL, 0, 0, 0, NULL},
	{"prompt_cache_key", HTTP, NULL, 0, 0, 0, "prefixes are cached by what they hold; see cache_salt"},
	{"prompt_cache_retention", HTTP, NULL, 0, 0, 0, "by how recently it was used"},
	{"prompt_cache_options", HTTP, NULL, 0, 0, 0, NULL},
	{"request_id", HTTP, NULL, 0, 0, 0, "the service makes the ids of replies"},
	{"spaces_between_special_tokens", HTTP, NULL, 0, 0, 0, "the text is what the tokenizer decodes"},
};

/* Other names of parameters over HTTP, besides llama.cpp's names in params_rows. */
static const struct {
	const char *name, *of, *about;
} aliases[] = {
	{"min_new_tokens", "min_tokens", "SGLang's name of min_tokens"},
	{"typ_p", "typical_p", "llama.cpp's other name of typical_p"},
};

/* The values that each set function accepts. */
static const struct {
	set_fn *set;
	unsigned types;
	enum field_effect effect;
	const char *neutral;
} kinds[] = {
	{NULL, FIELD_ANY, FIELD_IGNORED, NULL},
	{set_num, FIELD_NUMBER, FIELD_HONOURED, NULL},
	{set_num_above, FIELD_NUMBER, FIELD_HONOURED, NULL},
	{set_int, FIELD_INTEGER, FIELD_HONOURED, NULL},
	{set_whole, FIELD_INTEGER, FIELD_HONOURED, NULL},
	{set_flag, FIELD_BOOLEAN, FIELD_HONOURED, NULL},
	{set_seed, FIELD_INTEGER, FIELD_HONOURED, NULL},
	{set_max_tokens, FIELD_INTEGER, FIELD_HONOURED, NULL},
	{set_n_predict, FIELD_INTEGER, FIELD_HONOURED, NULL},
	{set_bool, FIELD_BOOLEAN, FIELD_HONOURED, NULL},
	{set_any_bool, FIELD_BOOLEAN, FIELD_HONOURED, NULL},
	{set_add_special, FIELD_BOOLEAN, FIELD_HONOURED, NULL},
	{set_str, FIELD_STRING, FIELD_HONOURED, NULL},
	{set_user, FIELD_STRING, FIELD_HONOURED, NULL},
	{set_on_disconnect, FIELD_STRING, FIELD_HONOURED, NULL},
	{set_array, FIELD_ARRAY, FIELD_HONOURED, NULL},
	{set_object, FIELD_OBJECT, FIELD_HONOURED, NULL},
	{set_stream_options, FIELD_OBJECT, FIELD_HONOURED, NULL},
	{set_early, FIELD_BOOLEAN | FIELD_STRING, FIELD_HONOURED, NULL},
	{set_any, FIELD_ANY, FIELD_HONOURED, NULL},
	{only_false, FIELD_BOOLEAN, FIELD_NEUTRAL, "[false]"},
	{only_true, FIELD_BOOLEAN, FIELD_NEUTRAL, "[true]"},
	{only_zero, FIELD_INTEGER, FIELD_NEUTRAL, "[0]"},
	{only_one, FIELD_INTEGER, FIELD_NEUTRAL, "[1]"},
	{only_empty, FIELD_ANY, FIELD_NEUTRAL, "[[], {}, \"\"]"},
	{only_text_modality, FIELD_ARRAY, FIELD_NEUTRAL, "[[\"text\"]]"},
	{only_medium, FIELD_STRING, FIELD_NEUTRAL, "[\"medium\", \"\"]"},
	{only_no_choice, FIELD_STRING, FIELD_NEUTRAL, "[\"none\", \"auto\"]"},
};

static struct field_row row_of(const struct field *d)
{
	size_t k = 0;
	while (kinds[k].set != d->set)
		k++;
	/* The full range of 64-bit integers counts as no bounds. */
	const bool numbers = kinds[k].types & (FIELD_NUMBER | FIELD_INTEGER) && d->hi < 9e18;
	return (struct field_row){.name = d->name,
				  .types = kinds[k].types,
				  .effect = kinds[k].effect,
				  .lo = numbers ? d->lo : 0,
				  .hi = numbers ? d->hi : 0,
				  .neutral = kinds[k].neutral,
				  .about = d->about};
}

/* All fields: the parameters, own_fields, aliases. */
enum { N_OWN = sizeof own_fields / sizeof *own_fields, N_FIELDS_MAX = N_OWN + 2 * PARAMS_ROWS_MAX + 8 };
_Static_assert(sizeof aliases / sizeof *aliases <= 8, "there is room for them");
static struct field fields[N_FIELDS_MAX];
static size_t n_fields;

static struct field_row text_rows[N_FIELDS_MAX], chat_rows[N_FIELDS_MAX], constraint_rows[N_FIELDS_MAX];
static struct field_table text_table = {text_rows, 0, NULL}, chat_table = {chat_rows, 0, NULL};
struct field_table request_constraint_fields = {constraint_rows, 0, NULL};

static struct field field_of(const struct params_row *row)
{
	return (struct field){.name = row->name,
			      .where = ALL,
			      .set = row->type == PARAMS_BOOL    ? set_flag
				     : row->type != PARAMS_FLOAT ? set_whole
				     : row->flags & PARAMS_ABOVE ? set_num_above
								 : set_num,
			      .at = AT(params) + (size_t)(row - params_rows) * sizeof(double),
			      .lo = row->type == PARAMS_BOOL        ? 0
				    : row->flags & PARAMS_OFF_BELOW ? -1
								    : row->lo,
			      .hi = row->type == PARAMS_BOOL ? 0 : row->hi,
			      .about = row->about};
}

static void add_alias(const struct params_row *row, const char *name, const char *about)
{
	fields[n_fields] = field_of(row);
	fields[n_fields].name = name;
	fields[n_fields].where = HTTP;
	fields[n_fields++].about = about;
}

static void fill_aliases(void)
{
	static char about[PARAMS_ROWS_MAX][64];
	for (size_t i = 0; i < n_params_rows; i++) {
		const struct params_row *row = &params_rows[i];
		if (row->llamacpp && strcmp(row->llamacpp, row->name) != 0) {
			snprintf(about[i], sizeof about[i], "llama.cpp's name of %s", row->name);
			add_alias(row, row->llamacpp, about[i]);
		}
		for (size_t k = 0; k < sizeof aliases / sizeof *aliases; k++)
			if (strcmp(aliases[k].of, row->name) == 0)
				add_alias(row, aliases[k].name, aliases[k].about);
	}
}

static void fill_fields(void)
{
	for (size_t i = 0; i < n_params_rows; i++)
		if (params_rows[i].about)
			fields[n_fields++] = field_of(&params_rows[i]);
	memcpy(fields + n_fields, own_fields, sizeof own_fields);
	n_fields += N_OWN;
	fill_aliases();
}

static void fill_tables(void)
{
	for (size_t i = 0; i < n_fields; i++) {
		if (fields[i].where & TEXT)
			text_rows[text_table.n_rows++] = row_of(&fields[i]);
		if (fields[i].where & CHAT)
			chat_rows[chat_table.n_rows++] = row_of(&fields[i]);
		if (fields[i].where & CONSTRAINT)
			constraint_rows[request_constraint_fields.n_rows++] = row_of(&fields[i]);
	}
}

size_t request_fields_params(size_t name_at, struct field_row *rows)
{
	size_t n = 0;
	for (size_t i = 0; i < n_params_rows; i++) {
		const struct params_row *row = &params_rows[i];
		const char *name = *(const char *const *)(const void *)((const char *)row + name_at);
		if (!name || !row->about)
			continue;
		const struct field d = field_of(row);
		rows[n] = row_of(&d);
		rows[n++].name = name;
	}
	return n;
}

void request_constraint_fields_copy(const json_t *client, const struct field_table *own, json_t *out)
{
	for (size_t i = 0; i < request_constraint_fields.n_rows; i++) {
		const char *name = constraint_rows[i].name;
		json_t *v = json_object_get(client, name);
		bool taken = constraint_rows[i].effect == FIELD_IGNORED; /* already named as ignored */
		for (const struct field_table *t = own; t && t != &request_constraint_fields; t = t->next)
			for (size_t k = 0; k < t->n_rows; k++)
				taken |= strcmp(t->rows[k].name, name) == 0;
		if (v && !taken)
			json_object_set(out, name, v);
	}
}

const struct field_table *request_fields_table(enum api_dialect dialect)
{
	return dialect == API_CHAT ? &chat_table : &text_table;
}

void request_fields_init(struct request_fields *f, const struct model_config *c)
{
	*f = (struct request_fields){.best_of = -1,
				     .beam_width = -1,
				     .logprobs = -1,
				     .prompt_logprobs = -1,
				     .top_logprobs = -1,
				     .skip_special = true,
				     .parallel_calls = true,
				     .thinking_budget = -1,
				     .show_reasoning = true,
				     .add_generation = true};
	for (size_t i = 0; i < n_params_rows; i++)
		f->params[i] = params_rows[i].neutral;
	if (!isnan(c->gen_temperature))
		FIELD_PARAM(f, temperature) = c->gen_temperature;
	if (!isnan(c->gen_top_p))
		FIELD_PARAM(f, top_p) = c->gen_top_p;
	if (!isnan(c->gen_min_p))
		FIELD_PARAM(f, min_p) = c->gen_min_p;
	if (!isnan(c->gen_repetition))
		FIELD_PARAM(f, repetition) = c->gen_repetition;
	if (c->gen_top_k > 0)
		FIELD_PARAM(f, top_k) = c->gen_top_k;
}

json_t *request_fields_model(const struct model_config *c)
{
	const struct {
		const char *name;
		double value;
	} reals[] = {{"temperature", c->gen_temperature},
		     {"top_p", c->gen_top_p},
		     {"min_p", c->gen_min_p},
		     {"repetition_penalty", c->gen_repetition}};
	json_t *d = json_object();
	for (size_t i = 0; i < sizeof reals / sizeof *reals; i++)
		if (!isnan(reals[i].value))
			json_object_set_new(d, reals[i].name, json_real(reals[i].value));
	if (c->gen_top_k >= 0)
		json_object_set_new(d, "top_k", json_integer(c->gen_top_k));
	if (c->gen_max_new_tokens >= 0)
		json_object_set_new(d, "max_tokens", json_integer(c->gen_max_new_tokens));
	return d;
}

void request_fields_ignore(struct request_fields *f, const char *name)
{
	field_table_ignore(f->ignored, sizeof f->ignored, name);
}

/* Hash table from names to fields, open addressing: index + 1 of the first field with a name; 0: free.  A
 * request may have as many unknown names as its bytes hold. */
enum { SLOTS = 2048 };
_Static_assert(SLOTS >= 4 * N_FIELDS_MAX, "at most a quarter full");
static uint16_t slots[SLOTS];

/* Return the slot that has the name, or a free one. */
static size_t slot_of(const char *name)
{
	size_t at = XXH3_64bits(name, strlen(name)) % SLOTS;
	while (slots[at] && strcmp(fields[slots[at] - 1].name, name) != 0)
		at = (at + 1) % SLOTS;
	return at;
}

static void fill_slots(void)
{
	for (size_t i = 0; i < n_fields; i++) {
		size_t at = slot_of(fields[i].name);
		if (!slots[at])
			slots[at] = (uint16_t)(i + 1);
	}
}

__attribute__((constructor)) static void fill(void)
{
	fill_fields();
	fill_tables();
	fill_slots();
}

/* Find the field of a dialect.  Dialects may each have a field of the same name; all of them are at or after
 * the first. */
static const struct field *find(const char *name, unsigned where)
{
	uint16_t first = slots[slot_of(name)];
	for (size_t i = first ? first - 1u : n_fields; i < n_fields; i++)
		if ((fields[i].where & where) && strcmp(fields[i].name, name) == 0)
			return &fields[i];
	return NULL;
}

static int read_map(const json_t *map, unsigned where, bool strict, struct request_fields *f,
		    struct api_problem *p)
{
	json_t *m = (json_t *)map; /* iteration needs a non-const pointer */
	const char *name;
	json_t *v;
	json_object_foreach(m, name, v)
	{
		const struct field *d = find(name, where);
		int rc = 0;
		if (d && json_is_null(v))
			continue;
		if (d && d->set)
			rc = json_big(v) ? api_fail_big(p, name, v) : d->set(f, d, v, p);
		else if (!d && strict)
			rc = api_fail(p, E_BAD_REQUEST, name, "unknown field %.64s%s", name,
				      where == PARAMS ? " in params" : "");
		else
			request_fields_ignore(f, name);
		if (rc)
			return rc;
	}
	return 0;
}

static bool same_value(const json_t *a, const json_t *b)
{
	return json_is_number(a) && json_is_number(b) ? json_number_value(a) == json_number_value(b)
						      : json_equal(a, b);
}

/* Check that several names of one field have the same value: n_predict and max_tokens. */
static int check_names(const json_t *map, unsigned where, struct api_problem *p)
{
	const struct field *given[N_FIELDS_MAX];
	size_t n = 0;
	for (size_t i = 0; i < n_fields; i++) {
		const struct field *d = &fields[i];
		const json_t *v = d->at && d->where & where ? json_get(map, d->name) : NULL;
		for (size_t k = 0; v && k < n; k++)
			if (given[k]->at == d->at && !same_value(v, json_get(map, given[k]->name)))
				return api_fail(p, E_BAD_REQUEST, d->name,
						"%s and %s are two names of one field, with different values",
						d->name, given[k]->name);
		if (v)
			given[n++] = d;
	}
	return 0;
}

/* Read a job socket request: its own fields, then `params`. */
static int read_submit(const json_t *request, struct request_fields *f, struct api_problem *p)
{
	json_t *m = json_copy((json_t *)request);
	json_object_del(m, "op");
	json_object_del(m, "id");
	json_object_del(m, "params");
	int rc = read_map(m, SUBMIT, true, f, p);
	json_decref(m);
	if (rc)
		return rc;
	const json_t *params = json_object_get(request, "params");
	if (!params || json_is_null(params))
		return 0;
	if (!json_is_object(params))
		return api_fail(p, E_BAD_REQUEST, "params", "params must be a map");
	return read_map(params, PARAMS, true, f, p);
}

int request_fields_read(const json_t *request, enum api_dialect dialect, bool strict,
			struct request_fields *f, struct api_problem *p)
{
	if (!json_is_object(request))
		return api_fail(p, E_BAD_REQUEST, "", "the request must be a map of fields to values");
	const unsigned where = dialect == API_CHAT ? CHAT : TEXT;
	int rc = dialect == API_JOBS ? read_submit(request, f, p) : read_map(request, where, strict, f, p);
	if (!rc && dialect != API_JOBS)
		rc = check_names(request, where, p);
	if (rc)
		return rc;
	if (f->has_stream_options && !f->stream)
		return api_fail(p, E_BAD_REQUEST, "stream_options",
				"stream_options is only allowed when stream is true");
	if (f->no_output && (!f->echo || f->stream))
		return api_fail(p, E_BAD_REQUEST, "max_tokens",
				"max_tokens is 0, which is only taken with echo and without stream");
	if (f->no_output)
		f->max_tokens = 1; /* one token is generated, but not shown */
	if (f->best_of != -1 && (double)f->best_of < FIELD_PARAM(f, n))
		return api_fail(p, E_BAD_REQUEST, "best_of", "best_of is %lld, less than n, which is %.0f",
				(long long)f->best_of, FIELD_PARAM(f, n));
	return request_fields_check_beams(dialect == API_JOBS ? json_object_get(request, "params") : request,
					  f, p);
}
