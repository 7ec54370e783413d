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
	SUBMIT = 1, /* a job socket request */
	PARAMS = 2, /* its `params` */
	TEXT = 4,   /* /v1/completions */
	CHAT = 8,   /* /v1/chat/completions */
	HTTP = TEXT | CHAT,
	ALL = PARAMS | HTTP,

	NAME_BYTES_MAX = 256, /* user, key, cache_salt */
	TRACE_BYTES_MAX = 8192,
	MODEL_BYTES_MAX = 1024,
	DEADLINE_MS_MAX = 7 * 24 * 3600 * 1000,
};

struct field;
typedef int set_fn(struct request_fields *f, const struct field *d, const json_t *v, struct api_problem *p);

/* A field's description. */
struct field {
	const char *name;
	unsigned where;    /* SUBMIT, ... */
	set_fn *set;       /* NULL: known, without effect */
	size_t at;         /* in struct request_fields */
	double lo, hi;     /* numbers: the range; strings: hi bytes at most */
	const char *about; /* a line for people; a default in brackets */
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

/* As set_num, without lo itself. */
static int set_num_above(struct request_fields *f, const struct field *d, const json_t *v,
			 struct api_problem *p)
{
	if (json_is_number(v) && json_number_value(v) <= d->lo)
		return api_fail(p, E_BAD_REQUEST, d->name, "%s is %g, must be greater than %g", d->name,
				json_number_value(v), d->lo);
	return set_num(f, d, v, p);
}

static int set_int(struct request_fields *f, const struct field *d, const json_t *v, struct api_problem *p)
{
	int64_t x;
	if (!json_integral(v, &x))
		return api_fail(p, E_BAD_REQUEST, d->name, "%s must be an integer%s", d->name,
				json_is_real(v) && fabs(json_real_value(v)) >= 9e18 ? " below 2^63" : "");
	if ((double)x < d->lo || (double)x > d->hi)
		return api_fail(p, E_BAD_REQUEST, d->name, "%s is %lld, must be from %.0f to %.0f", d->name,
				(long long)x, d->lo, d->hi);
	memcpy((char *)f + d->at, &x, sizeof x);
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

/* As OpenAI's API does, "" is as good as none. */
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

/* true or false, or not given. */
static int set_any_bool(struct request_fields *f, const struct field *d, const json_t *v,
			struct api_problem *p)
{
	if (!json_is_boolean(v))
		return api_fail(p, E_BAD_REQUEST, d->name, "%s must be true or false", d->name);
	memcpy((char *)f + d->at, &v, sizeof v);
	return 0;
}

/* The type is checked in api.c. */
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

/* --- not supported: only the neutral value is taken --- */

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

/* null, "", [] or {}. */
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

/* OpenAI's default. */
static int only_medium(struct request_fields *f, const struct field *d, const json_t *v,
		       struct api_problem *p)
{
	(void)f;
	const char *s = json_is_string(v) ? json_string_value(v) : "";
	return strcmp(s, "medium") == 0 || (json_is_string(v) && !*s) ? 0 : unsupported(d, p);
}

/* Without functions, "none" and "auto" are neutral. */
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

static const struct field fields[] = {
	{"temperature", ALL, set_num, AT(temperature), 0, 1000,
	 "below 1e-5: the most likely token (1, or the model's)"},
	{"top_p", ALL, set_num_above, AT(top_p), 0, 1,
	 "above 0: the most likely tokens with this share of the probability (1, or the model's)"},
	{"top_k", ALL, set_int, AT(top_k), -1, INT_MAX_D,
	 "so many most likely tokens; 0, -1: all (the model's)"},
	{"min_p", ALL, set_num, AT(min_p), 0, 1,
	 "tokens with at least this share of the best one's probability (0)"},
	{"presence_penalty", ALL, set_num, AT(presence), -2, 2,
	 "taken from the logits of tokens of the output (0)"},
	{"frequency_penalty", ALL, set_num, AT(frequency), -2, 2,
	 "as often as the token is in the output (0)"},
	{"repetition_penalty", ALL, set_num_above, AT(repetition), 0, 1000,
	 "above 0: divides the logits of tokens of prompt and output (1, or the model's)"},
	{"typical_p", ALL, set_num_above, AT(typical_p), 0, 1,
	 "above 0: the tokens nearest to the entropy, with this share of the probability (1)"},
	{"top_n_sigma", ALL, set_num, AT(top_n_sigma), -1, 1000,
	 "logits up to so many standard deviations below the largest; 0 or less: off (0)"},
	{"xtc_probability", ALL, set_num, AT(xtc_probability), 0, 1,
	 "how often the most likely tokens but one are dropped (0)"},
	{"xtc_threshold", ALL, set_num, AT(xtc_threshold), 0, 1,
	 "the probability from which tokens count as such (0.1)"},
	{"dry_multiplier", ALL, set_num, AT(dry_multiplier), 0, 1000,
	 "of the penalty on tokens that go on with a repetition (0)"},
	{"dry_base", ALL, set_num, AT(dry_base), 1, 1000,
	 "of the penalty's growth with the repetition's length (1.75)"},
	{"dry_allowed_length", ALL, set_int, AT(dry_allowed), 0, PARAMS_DRY_ALLOWED_MAX,
	 "shorter repetitions are not penalized (2)"},
	{"dry_penalty_last_n", ALL, set_int, AT(dry_last_n), -1, INT_MAX_D,
	 "tokens that are looked at; -1: all (-1)"},
	{"dry_sequence_breakers", ALL, set_array, AT(breakers), 0, 0,
	 "up to 64 strings that end a repetition (newline, colon, quote, star)"},
	{"mirostat", ALL, set_int, AT(mirostat), 0, 2,
	 "its version, in the place of all that cuts: top_k, top_p, min_p and those above but DRY (0: off)"},
	{"mirostat_tau", ALL, set_num, AT(mirostat_tau), 0, PARAMS_TAU_MAX,
	 "bits of surprise per token that mirostat keeps to (5)"},
	{"mirostat_eta", ALL, set_num, AT(mirostat_eta), 0, PARAMS_ETA_MAX,
	 "how fast it corrects itself (0.1)"},
	{"max_tokens", PARAMS | CHAT, set_int, AT(max_tokens), 1, INT_MAX_D,
	 "of each output (the rest of the context; 16 in /v1/completions)"},
	{"max_tokens", TEXT, set_max_tokens, AT(max_tokens), 0, INT_MAX_D,
	 "of each output (the rest of the context; 16 in /v1/completions)"},
	{"max_completion_tokens", CHAT, set_int, AT(max_completion_tokens), 1, INT_MAX_D,
	 "the newer name of max_tokens"},
	{"min_tokens", ALL, set_int, AT(min_tokens), 0, INT_MAX_D,
	 "no stop token or stop string takes effect earlier (0)"},
	{"n", ALL, set_int, AT(n), 1, PARAMS_N_MAX, "outputs (1)"},
	{"best_of", ALL, set_int, AT(best_of), 1, PARAMS_N_MAX,
	 "outputs sampled, of which the n most likely are returned (n)"},
	{"use_beam_search", ALL, set_bool, AT(beams), 0, 0, "beam search instead of sampling (false)"},
	{"beam_width", ALL, set_int, AT(beam_width), 1, PARAMS_N_MAX,
	 "hypotheses of a beam search (best_of)"},
	{"length_penalty", ALL, set_num, AT(length_penalty), -5, 5, "of a beam search (1)"},
	{"early_stopping", ALL, set_early, 0, 0, 0,
	 "when a beam search is over: true, false or never (false)"},
	{"seed", ALL, set_seed, AT(seed), -9223372036854775808.0, 9223372036854775807.0,
	 "equal seeds give equal outputs (drawn)"},
	{"stop", ALL, set_any, AT(stop), 0, 0, "a string or up to 16: the output ends before them"},
	{"stop_token_ids", ALL, set_array, AT(stop_token_ids), 0, 0, "the output ends at them"},
	{"ignore_eos", ALL, set_bool, AT(ignore_eos), 0, 0,
	 "the model's own stop tokens do not count (false)"},
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
	{"response_format", ALL, set_any, AT(response_format), 0, 0,
	 "text, json_object, json_schema or structural_tag"},
	{"structured_outputs", ALL, set_any, AT(structured), 0, 0,
	 "vLLM's: json, regex, choice, grammar, json_object or structural_tag"},
	{"tools", CHAT, set_array, AT(tools), 0, 0, "functions that the model may call"},
	{"functions", CHAT, only_empty, 0, 0, 0, "the older name: use tools"},
	{"tool_choice", CHAT, set_any, AT(tool_choice), 0, 0,
	 "none, auto, required, a function, or allowed_tools (auto)"},
	{"parallel_tool_calls", CHAT, set_bool, AT(parallel_calls), 0, 0,
	 "several calls in one output (true)"},
	{"include_reasoning", CHAT, set_bool, AT(show_reasoning), 0, 0,
	 "the reply has the model's thought (true)"},
	{"function_call", CHAT, only_no_choice, 0, 0, 0, "the older name: use tool_choice"},
	{"modalities", CHAT, only_text_modality, 0, 0, 0, "text"},
	{"audio", CHAT, only_empty, 0, 0, 0, "models here write text"},
	{"web_search_options", CHAT, only_empty, 0, 0, 0, "the service reaches no web"},
	{"reasoning_effort", CHAT, set_str, AT(reasoning_effort), 0, NAME_BYTES_MAX,
	 "for the model's template; none: without a thought"},
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
	{"logits_processors", HTTP, only_empty, 0, 0, 0, "use logit_bias, bad_words or a form"},
	{"guided_json", ALL, set_any, AT(guided_json), 0, 0, "a JSON schema, or its text"},
	{"guided_regex", ALL, set_any, AT(guided_regex), 0, 0, "a pattern that the whole output matches"},
	{"guided_choice", ALL, set_any, AT(guided_choice), 0, 0, "an array of strings: one of them"},
	{"guided_grammar", ALL, set_any, AT(guided_grammar), 0, 0,
	 "GBNF where a rule is written with ::=, else Lark"},
	{"guided_whitespace_pattern", ALL, set_user, AT(guided_space), 0, SPACE_BYTES_MAX,
	 "of JSON's whitespace, wherever it may stand, what the pattern matches, 20 characters at most (one "
	 "blank behind "
	 "commas and colons)"},
	{"guided_decoding_backend", HTTP, NULL, 0, 0, 0, "there is one"},
	{"grammar", HTTP, set_any, AT(gbnf), 0, 0, "GBNF, as llama.cpp has it"},
	{"json_schema", HTTP, set_any, AT(json_schema), 0, 0, "a JSON schema, as llama.cpp has it"},
	{"structural_tag", HTTP, only_empty, 0, 0, 0, "use response_format"},
	{"thinking_token_budget", CHAT, set_int, AT(thinking_budget), 0, 1 << 30,
	 "tokens after which the thought is closed"},
	{"thinking_token_budget", TEXT, only_empty, 0, 0, 0, "a text has no thought"},
	{"detokenize", HTTP, only_true, 0, 0, 0, "it must be true"},

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

/* What the functions that set a value take. */
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
	{set_seed, FIELD_INTEGER, FIELD_HONOURED, NULL},
	{set_max_tokens, FIELD_INTEGER, FIELD_HONOURED, NULL},
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
	/* Bounds of all integers of 64 bits are none. */
	const bool numbers = kinds[k].types & (FIELD_NUMBER | FIELD_INTEGER) && d->hi < 9e18;
	return (struct field_row){.name = d->name,
				  .types = kinds[k].types,
				  .effect = kinds[k].effect,
				  .lo = numbers ? d->lo : 0,
				  .hi = numbers ? d->hi : 0,
				  .neutral = kinds[k].neutral,
				  .about = d->about};
}

static struct field_row text_rows[sizeof fields / sizeof *fields], chat_rows[sizeof fields / sizeof *fields];
static struct field_table text_table = {text_rows, 0, NULL}, chat_table = {chat_rows, 0, NULL};

__attribute__((constructor)) static void fill_tables(void)
{
	for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
		if (fields[i].where & TEXT)
			text_rows[text_table.n_rows++] = row_of(&fields[i]);
		if (fields[i].where & CHAT)
			chat_rows[chat_table.n_rows++] = row_of(&fields[i]);
	}
}

const struct field_table *request_fields_table(enum api_dialect dialect)
{
	return dialect == API_CHAT ? &chat_table : &text_table;
}

void request_fields_init(struct request_fields *f, const struct model_config *c)
{
	*f = (struct request_fields){.temperature = isnan(c->gen_temperature) ? 1 : c->gen_temperature,
				     .top_p = isnan(c->gen_top_p) ? 1 : c->gen_top_p,
				     .min_p = isnan(c->gen_min_p) ? 0 : c->gen_min_p,
				     .repetition = isnan(c->gen_repetition) ? 1 : c->gen_repetition,
				     .top_k = c->gen_top_k > 0 ? c->gen_top_k : 0,
				     .typical_p = 1,
				     .xtc_threshold = 0.1,
				     .dry_base = 1.75,
				     .dry_allowed = 2,
				     .dry_last_n = -1,
				     .mirostat_tau = 5,
				     .mirostat_eta = 0.1,
				     .n = 1,
				     .best_of = -1,
				     .beam_width = -1,
				     .length_penalty = 1,
				     .logprobs = -1,
				     .prompt_logprobs = -1,
				     .top_logprobs = -1,
				     .skip_special = true,
				     .parallel_calls = true,
				     .thinking_budget = -1,
				     .show_reasoning = true,
				     .add_generation = true};
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

/* Names to fields, by open addressing: index + 1 of the first field of a name, 0: free.  A request may have
 * as many unknown names as its bytes hold. */
enum { N_FIELDS = sizeof fields / sizeof fields[0], SLOTS = 1024 };
_Static_assert(SLOTS >= 4 * N_FIELDS && N_FIELDS < 256, "at most a quarter full");
static uint8_t slots[SLOTS];

/* The slot that has the name, or a free one. */
static size_t slot_of(const char *name)
{
	size_t at = XXH3_64bits(name, strlen(name)) % SLOTS;
	while (slots[at] && strcmp(fields[slots[at] - 1].name, name) != 0)
		at = (at + 1) % SLOTS;
	return at;
}

__attribute__((constructor)) static void fill_slots(void)
{
	for (size_t i = 0; i < N_FIELDS; i++) {
		size_t at = slot_of(fields[i].name);
		if (!slots[at])
			slots[at] = (uint8_t)(i + 1);
	}
}

/* Dialects may each have a field of the same name: somewhere behind the first. */
static const struct field *find(const char *name, unsigned where)
{
	uint8_t first = slots[slot_of(name)];
	for (size_t i = first ? first - 1u : N_FIELDS; i < N_FIELDS; i++)
		if ((fields[i].where & where) && strcmp(fields[i].name, name) == 0)
			return &fields[i];
	return NULL;
}

static int read_map(const json_t *map, unsigned where, bool strict, struct request_fields *f,
		    struct api_problem *p)
{
	json_t *m = (json_t *)map; /* iteration takes no const */
	const char *name;
	json_t *v;
	json_object_foreach(m, name, v)
	{
		const struct field *d = find(name, where);
		int rc = 0;
		if (d && json_is_null(v))
			continue;
		if (d && d->set)
			rc = d->set(f, d, v, p);
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

/* A job socket request: its own fields, then `params`. */
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
	int rc = dialect == API_JOBS ? read_submit(request, f, p)
				     : read_map(request, dialect == API_CHAT ? CHAT : TEXT, strict, f, p);
	if (rc)
		return rc;
	if (f->has_stream_options && !f->stream)
		return api_fail(p, E_BAD_REQUEST, "stream_options",
				"stream_options is only allowed when stream is true");
	if (f->no_output && (!f->echo || f->stream))
		return api_fail(p, E_BAD_REQUEST, "max_tokens",
				"max_tokens is 0, which is only taken with echo and without stream");
	if (f->no_output)
		f->max_tokens = 1; /* generated, not shown */
	if (f->best_of != -1 && f->best_of < f->n)
		return api_fail(p, E_BAD_REQUEST, "best_of", "best_of is %lld, less than n, which is %lld",
				(long long)f->best_of, (long long)f->n);
	return request_fields_check_beams(dialect == API_JOBS ? json_object_get(request, "params") : request,
					  f, p);
}
