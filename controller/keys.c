#include "controller/keys.h"

#include "controller/utf8.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
	SUBMIT = 1, /* a job socket request */
	PARAMS = 2, /* its `params` */
	TEXT = 4,   /* /v1/completions */
	CHAT = 8,   /* /v1/chat/completions */
	HTTP = TEXT | CHAT,
	ALL = PARAMS | HTTP,

	NAME_BYTES_MAX = 256, /* user, key, cache_salt */
	MODEL_BYTES_MAX = 1024,
	DEADLINE_MS_MAX = 7 * 24 * 3600 * 1000,
};

struct key;
typedef int set_fn(struct wants *w, const struct key *k, const json_t *v, struct api_problem *p);

struct key {
	const char *name;
	unsigned where;
	set_fn *set;
	size_t at;     /* in struct wants */
	double lo, hi; /* numbers: the range; strings: hi bytes at most */
};

/* Names out of a request are cut where they are too long: keep whole characters only. */
static void make_whole(char *s)
{
	size_t n = strlen(s);
	for (size_t i = 0; (i += utf8_valid(s + i, n - i)) < n; i++)
		s[i] = '?';
}

int api_fail(struct api_problem *p, enum code code, const char *param, const char *fmt, ...)
{
	va_list ap;
	p->code = code;
	snprintf(p->param, sizeof p->param, "%s", param);
	va_start(ap, fmt);
	vsnprintf(p->why, sizeof p->why, fmt, ap);
	va_end(ap);
	make_whole(p->param);
	make_whole(p->why);
	return -EINVAL;
}

/* --- one value --- */

static int set_num(struct wants *w, const struct key *k, const json_t *v, struct api_problem *p)
{
	if (!json_is_number(v))
		return api_fail(p, E_BAD_REQUEST, k->name, "%s must be a number", k->name);
	double x = json_number_value(v);
	if (!isfinite(x) || x < k->lo || x > k->hi)
		return api_fail(p, E_BAD_REQUEST, k->name, "%s is %g, must be from %g to %g", k->name, x,
				k->lo, k->hi);
	memcpy((char *)w + k->at, &x, sizeof x);
	return 0;
}

/* As set_num, without lo itself. */
static int set_num_above(struct wants *w, const struct key *k, const json_t *v, struct api_problem *p)
{
	if (json_is_number(v) && json_number_value(v) <= k->lo)
		return api_fail(p, E_BAD_REQUEST, k->name, "%s is %g, must be greater than %g", k->name,
				json_number_value(v), k->lo);
	return set_num(w, k, v, p);
}

static int set_int(struct wants *w, const struct key *k, const json_t *v, struct api_problem *p)
{
	if (!json_is_integer(v))
		return api_fail(p, E_BAD_REQUEST, k->name, "%s must be an integer%s", k->name,
				json_is_real(v) && fabs(json_real_value(v)) >= 9e18 ? " below 2^63" : "");
	int64_t x = json_integer_value(v);
	if ((double)x < k->lo || (double)x > k->hi)
		return api_fail(p, E_BAD_REQUEST, k->name, "%s is %lld, must be from %.0f to %.0f", k->name,
				(long long)x, k->lo, k->hi);
	memcpy((char *)w + k->at, &x, sizeof x);
	return 0;
}

static int set_bool(struct wants *w, const struct key *k, const json_t *v, struct api_problem *p)
{
	if (!json_is_boolean(v))
		return api_fail(p, E_BAD_REQUEST, k->name, "%s must be true or false", k->name);
	bool x = json_is_true(v);
	memcpy((char *)w + k->at, &x, sizeof x);
	return 0;
}

static int set_str(struct wants *w, const struct key *k, const json_t *v, struct api_problem *p)
{
	if (!json_is_string(v))
		return api_fail(p, E_BAD_REQUEST, k->name, "%s must be a string", k->name);
	const char *s = json_string_value(v);
	size_t n = json_string_length(v);
	if (n == 0 || (double)n > k->hi || memchr(s, 0, n))
		return api_fail(p, E_BAD_REQUEST, k->name,
				"%s must be a string of 1 to %.0f bytes without NUL", k->name, k->hi);
	memcpy((char *)w + k->at, &s, sizeof s);
	return 0;
}

static int set_array(struct wants *w, const struct key *k, const json_t *v, struct api_problem *p)
{
	if (!json_is_array(v))
		return api_fail(p, E_BAD_REQUEST, k->name, "%s must be an array", k->name);
	memcpy((char *)w + k->at, &v, sizeof v);
	return 0;
}

static int set_object(struct wants *w, const struct key *k, const json_t *v, struct api_problem *p)
{
	if (!json_is_object(v))
		return api_fail(p, E_BAD_REQUEST, k->name, "%s must be an object", k->name);
	memcpy((char *)w + k->at, &v, sizeof v);
	return 0;
}

/* Its type is api.c's business. */
static int set_any(struct wants *w, const struct key *k, const json_t *v, struct api_problem *p)
{
	(void)p;
	memcpy((char *)w + k->at, &v, sizeof v);
	return 0;
}

static int set_seed(struct wants *w, const struct key *k, const json_t *v, struct api_problem *p)
{
	w->has_seed = true;
	return set_int(w, k, v, p);
}

static int set_early(struct wants *w, const struct key *k, const json_t *v, struct api_problem *p)
{
	bool never = json_is_string(v) && strcmp(json_string_value(v), "never") == 0;
	if (!json_is_boolean(v) && !never)
		return api_fail(p, E_BAD_REQUEST, k->name, "%s must be true, false or \"never\"", k->name);
	w->early = never ? PARAMS_EARLY_NEVER : json_is_true(v) ? PARAMS_EARLY_YES : PARAMS_EARLY_NO;
	return 0;
}

static int set_max_tokens(struct wants *w, const struct key *k, const json_t *v, struct api_problem *p)
{
	w->no_output = json_is_integer(v) && json_integer_value(v) == 0;
	return set_int(w, k, v, p);
}

static int set_add_special(struct wants *w, const struct key *k, const json_t *v, struct api_problem *p)
{
	w->add_special_given = true;
	return set_bool(w, k, v, p);
}

static int set_on_disconnect(struct wants *w, const struct key *k, const json_t *v, struct api_problem *p)
{
	const char *s = json_is_string(v) ? json_string_value(v) : "";
	if (strcmp(s, "cancel") != 0 && strcmp(s, "keep") != 0)
		return api_fail(p, E_BAD_REQUEST, k->name, "%s must be \"cancel\" or \"keep\"", k->name);
	w->keep = s[0] == 'k';
	return 0;
}

static int set_stream_options(struct wants *w, const struct key *k, const json_t *v, struct api_problem *p)
{
	static const struct key inner[] = {
		{"include_usage", HTTP, set_bool, offsetof(struct wants, include_usage), 0, 0},
		{"continuous_usage_stats", HTTP, set_bool, offsetof(struct wants, continuous_usage), 0, 0},
	};
	if (!json_is_object(v))
		return api_fail(p, E_BAD_REQUEST, k->name, "%s must be an object", k->name);
	w->has_stream_options = true;
	for (size_t i = 0; i < 2; i++) {
		const json_t *x = json_object_get(v, inner[i].name);
		int rc = x && !json_is_null(x) ? inner[i].set(w, &inner[i], x, p) : 0;
		if (rc)
			return rc;
	}
	return 0;
}

/* --- what is not built yet: only the value that asks for nothing is taken --- */

static int unbuilt(const struct key *k, struct api_problem *p)
{
	return api_fail(p, E_BAD_REQUEST, k->name, "%s is not built yet", k->name);
}

static int only_false(struct wants *w, const struct key *k, const json_t *v, struct api_problem *p)
{
	(void)w;
	if (!json_is_boolean(v))
		return api_fail(p, E_BAD_REQUEST, k->name, "%s must be true or false", k->name);
	return json_is_true(v) ? unbuilt(k, p) : 0;
}

static int only_true(struct wants *w, const struct key *k, const json_t *v, struct api_problem *p)
{
	(void)w;
	if (!json_is_boolean(v))
		return api_fail(p, E_BAD_REQUEST, k->name, "%s must be true or false", k->name);
	return json_is_false(v) ? api_fail(p, E_BAD_REQUEST, k->name, "%s: false is not built yet", k->name)
				: 0;
}

/* null, "", [] or {}. */
static int only_empty(struct wants *w, const struct key *k, const json_t *v, struct api_problem *p)
{
	(void)w;
	bool empty = (json_is_array(v) && json_array_size(v) == 0) ||
		     (json_is_object(v) && json_object_size(v) == 0) ||
		     (json_is_string(v) && json_string_length(v) == 0);
	return empty ? 0 : unbuilt(k, p);
}

static int only_text_format(struct wants *w, const struct key *k, const json_t *v, struct api_problem *p)
{
	(void)w;
	const json_t *type = json_object_get(v, "type");
	if (!json_is_object(v) || !json_is_string(type))
		return api_fail(p, E_BAD_REQUEST, k->name, "%s must be an object with a type", k->name);
	if (strcmp(json_string_value(type), "text") == 0)
		return 0;
	return api_fail(p, E_BAD_REQUEST, k->name, "%s of type %.64s is not built yet", k->name,
			json_string_value(type));
}

static int only_text_modality(struct wants *w, const struct key *k, const json_t *v, struct api_problem *p)
{
	(void)w;
	const json_t *one = json_array_get(v, 0);
	if (json_array_size(v) == 1 && json_is_string(one) && strcmp(json_string_value(one), "text") == 0)
		return 0;
	return api_fail(p, E_BAD_REQUEST, k->name, "%s other than [\"text\"] are not built yet", k->name);
}

/* What OpenAI's models do unless told. */
static int only_medium(struct wants *w, const struct key *k, const json_t *v, struct api_problem *p)
{
	(void)w;
	const char *s = json_is_string(v) ? json_string_value(v) : "";
	return strcmp(s, "medium") == 0 || (json_is_string(v) && !*s) ? 0 : unbuilt(k, p);
}

/* Without tools, "none" and "auto" ask for nothing. */
static int only_no_choice(struct wants *w, const struct key *k, const json_t *v, struct api_problem *p)
{
	(void)w;
	const char *s = json_is_string(v) ? json_string_value(v) : "";
	return strcmp(s, "none") == 0 || strcmp(s, "auto") == 0 ? 0 : unbuilt(k, p);
}

/* --- the table --- */

#define AT(field) offsetof(struct wants, field)
#define INT_MAX_D 2147483647.0

/* A NULL set: known, without effect on the answer here. */
static const struct key keys[] = {
	{"temperature", ALL, set_num, AT(temperature), 0, 1000},
	{"top_p", ALL, set_num_above, AT(top_p), 0, 1},
	{"top_k", ALL, set_int, AT(top_k), -1, INT_MAX_D},
	{"min_p", ALL, set_num, AT(min_p), 0, 1},
	{"presence_penalty", ALL, set_num, AT(presence), -2, 2},
	{"frequency_penalty", ALL, set_num, AT(frequency), -2, 2},
	{"repetition_penalty", ALL, set_num_above, AT(repetition), 0, 1000},
	{"max_tokens", PARAMS | CHAT, set_int, AT(max_tokens), 1, INT_MAX_D},
	{"max_tokens", TEXT, set_max_tokens, AT(max_tokens), 0, INT_MAX_D},
	{"max_completion_tokens", CHAT, set_int, AT(max_completion_tokens), 1, INT_MAX_D},
	{"min_tokens", ALL, set_int, AT(min_tokens), 0, INT_MAX_D},
	{"n", ALL, set_int, AT(n), 1, PARAMS_N_MAX},
	{"best_of", ALL, set_int, AT(best_of), 1, PARAMS_N_MAX},
	{"use_beam_search", ALL, set_bool, AT(beams), 0, 0},
	{"beam_width", ALL, set_int, AT(beam_width), 1, PARAMS_N_MAX},
	{"length_penalty", ALL, set_num, AT(length_penalty), -5, 5},
	{"early_stopping", ALL, set_early, 0, 0, 0},
	{"seed", ALL, set_seed, AT(seed), -9223372036854775808.0, 9223372036854775807.0},
	{"stop", ALL, set_any, AT(stop), 0, 0},
	{"stop_token_ids", ALL, set_array, AT(stop_token_ids), 0, 0},
	{"ignore_eos", ALL, set_bool, AT(ignore_eos), 0, 0},
	{"include_stop_str_in_output", ALL, set_bool, AT(include_stop), 0, 0},
	{"skip_special_tokens", ALL, set_bool, AT(skip_special), 0, 0},
	{"logit_bias", ALL, set_any, AT(logit_bias), 0, 0},
	{"allowed_token_ids", ALL, set_array, AT(allowed), 0, 0},
	{"bad_words", ALL, set_array, AT(bad_words), 0, 0},
	{"logprobs", PARAMS | TEXT, set_int, AT(logprobs), 0, PARAMS_LOGPROBS_MAX},
	{"logprobs", CHAT, set_bool, AT(chat_logprobs), 0, 0},
	{"top_logprobs", CHAT, set_int, AT(top_logprobs), 0, PARAMS_LOGPROBS_MAX},
	{"prompt_logprobs", ALL, set_int, AT(prompt_logprobs), 0, PARAMS_LOGPROBS_MAX},

	{"prompt", SUBMIT | TEXT, set_any, AT(prompt), 0, 0},
	{"tokens", SUBMIT, set_array, AT(tokens), 0, 0},
	{"messages", SUBMIT | CHAT, set_array, AT(messages), 0, 0},
	{"stream", SUBMIT | HTTP, set_bool, AT(stream), 0, 0},
	{"user", SUBMIT | HTTP, set_str, AT(user), 0, NAME_BYTES_MAX},
	{"cache_salt", SUBMIT | HTTP, set_str, AT(cache_salt), 0, NAME_BYTES_MAX},
	{"key", SUBMIT, set_str, AT(key), 0, NAME_BYTES_MAX},
	{"deadline_ms", SUBMIT | HTTP, set_int, AT(deadline_ms), 1, DEADLINE_MS_MAX},
	{"on_disconnect", SUBMIT, set_on_disconnect, 0, 0, 0},
	{"model", HTTP, set_str, AT(model), 0, MODEL_BYTES_MAX},
	{"stream_options", HTTP, set_stream_options, 0, 0, 0},
	{"echo", TEXT, set_bool, AT(echo), 0, 0},
	{"add_special_tokens", HTTP, set_add_special, AT(add_special), 0, 0},
	{"return_tokens_as_token_ids", HTTP, set_bool, AT(tokens_as_ids), 0, 0},
	{"return_token_ids", HTTP, set_bool, AT(return_token_ids), 0, 0},
	{"return_timing", HTTP, set_bool, AT(return_timing), 0, 0},

	{"durable", SUBMIT, set_bool, AT(durable), 0, 0},
	{"priority", SUBMIT | HTTP, set_int, AT(priority), -2147483648.0, INT_MAX_D},
	{"response_format", ALL, only_text_format, 0, 0, 0},
	{"tools", CHAT, set_array, AT(tools), 0, 0},
	{"functions", CHAT, only_empty, 0, 0, 0},
	{"tool_choice", CHAT, set_any, AT(tool_choice), 0, 0},
	{"parallel_tool_calls", CHAT, set_bool, AT(parallel_calls), 0, 0},
	{"include_reasoning", CHAT, set_bool, AT(show_thoughts), 0, 0},
	{"function_call", CHAT, only_no_choice, 0, 0, 0},
	{"modalities", CHAT, only_text_modality, 0, 0, 0},
	{"audio", CHAT, only_empty, 0, 0, 0},
	{"web_search_options", CHAT, only_empty, 0, 0, 0},
	{"reasoning_effort", CHAT, set_str, AT(reasoning_effort), 0, NAME_BYTES_MAX},
	{"verbosity", CHAT, only_medium, 0, 0, 0},
	{"moderation", CHAT, only_empty, 0, 0, 0},
	{"suffix", TEXT, only_empty, 0, 0, 0},
	{"echo", CHAT, only_false, 0, 0, 0},
	{"add_generation_prompt", CHAT, set_bool, AT(add_generation), 0, 0},
	{"continue_final_message", CHAT, set_bool, AT(continue_final), 0, 0},
	{"chat_template", CHAT, only_empty, 0, 0, 0},
	{"chat_template_kwargs", CHAT, set_object, AT(template_kwargs), 0, 0},
	{"documents", CHAT, set_array, AT(documents), 0, 0},
	{"mm_processor_kwargs", CHAT, only_empty, 0, 0, 0},
	{"prompt_embeds", TEXT, only_empty, 0, 0, 0},
	{"truncate_prompt_tokens", HTTP, only_empty, 0, 0, 0},
	{"logits_processors", HTTP, only_empty, 0, 0, 0},
	{"guided_json", HTTP, only_empty, 0, 0, 0},
	{"guided_regex", HTTP, only_empty, 0, 0, 0},
	{"guided_choice", HTTP, only_empty, 0, 0, 0},
	{"guided_grammar", HTTP, only_empty, 0, 0, 0},
	{"structured_outputs", HTTP, only_empty, 0, 0, 0},
	{"structural_tag", HTTP, only_empty, 0, 0, 0},
	{"thinking_token_budget", HTTP, only_empty, 0, 0, 0},
	{"detokenize", HTTP, only_true, 0, 0, 0},

	{"prediction", CHAT, NULL, 0, 0, 0},
	{"store", CHAT, NULL, 0, 0, 0},
	{"metadata", CHAT, NULL, 0, 0, 0},
	{"service_tier", HTTP, NULL, 0, 0, 0},
	{"safety_identifier", HTTP, NULL, 0, 0, 0},
	{"prompt_cache_key", HTTP, NULL, 0, 0, 0},
	{"prompt_cache_retention", HTTP, NULL, 0, 0, 0},
	{"prompt_cache_options", HTTP, NULL, 0, 0, 0},
	{"request_id", HTTP, NULL, 0, 0, 0},
	{"spaces_between_special_tokens", HTTP, NULL, 0, 0, 0},
};

void wants_init(struct wants *w, const struct model_config *c)
{
	*w = (struct wants){.temperature = isnan(c->gen_temperature) ? 1 : c->gen_temperature,
			    .top_p = isnan(c->gen_top_p) ? 1 : c->gen_top_p,
			    .min_p = isnan(c->gen_min_p) ? 0 : c->gen_min_p,
			    .repetition = isnan(c->gen_repetition) ? 1 : c->gen_repetition,
			    .top_k = c->gen_top_k > 0 ? c->gen_top_k : 0,
			    .n = 1,
			    .best_of = -1,
			    .beam_width = -1,
			    .length_penalty = 1,
			    .logprobs = -1,
			    .prompt_logprobs = -1,
			    .top_logprobs = -1,
			    .skip_special = true,
			    .parallel_calls = true,
			    .show_thoughts = true,
			    .add_generation = true};
}

/* Into a header it may go: nothing but what a name is made of. */
static void name_ignored(struct wants *w, const char *name)
{
	size_t n = strlen(w->ignored), room = sizeof w->ignored;
	char clean[65];
	size_t i;
	for (i = 0; name[i] && i < sizeof clean - 1; i++) {
		char c = name[i];
		bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
			     c == '_' || c == '-' || c == '.';
		clean[i] = plain ? c : '?';
	}
	clean[i] = 0;
	if (n + i + 3 < room)
		snprintf(w->ignored + n, room - n, "%s%s", n ? ", " : "", clean);
}

static const struct key *find(const char *name, unsigned where)
{
	for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
		if ((keys[i].where & where) && strcmp(keys[i].name, name) == 0)
			return &keys[i];
	return NULL;
}

static int read_map(const json_t *map, unsigned where, bool strict, struct wants *w, struct api_problem *p)
{
	json_t *m = (json_t *)map; /* iteration takes no const */
	const char *name;
	json_t *v;
	json_object_foreach(m, name, v)
	{
		const struct key *k = find(name, where);
		int rc = 0;
		if (k && json_is_null(v))
			continue;
		if (k && k->set)
			rc = k->set(w, k, v, p);
		else if (!k && strict)
			rc = api_fail(p, E_BAD_REQUEST, name, "unknown key %.64s%s", name,
				      where == PARAMS ? " in params" : "");
		else
			name_ignored(w, name);
		if (rc)
			return rc;
	}
	return 0;
}

/* A job socket request: its own keys, then `params`. */
static int read_submit(const json_t *request, struct wants *w, struct api_problem *p)
{
	json_t *m = json_copy((json_t *)request);
	json_object_del(m, "op");
	json_object_del(m, "id");
	json_object_del(m, "params");
	int rc = read_map(m, SUBMIT, true, w, p);
	json_decref(m);
	if (rc)
		return rc;
	const json_t *params = json_object_get(request, "params");
	if (!params || json_is_null(params))
		return 0;
	if (!json_is_object(params))
		return api_fail(p, E_BAD_REQUEST, "params", "params must be a map");
	return read_map(params, PARAMS, true, w, p);
}

int keys_read(const json_t *request, enum api_dialect dialect, bool strict, struct wants *w,
	      struct api_problem *p)
{
	if (!json_is_object(request))
		return api_fail(p, E_BAD_REQUEST, "", "the request must be a map of keys to values");
	int rc = dialect == API_JOBS ? read_submit(request, w, p)
				     : read_map(request, dialect == API_CHAT ? CHAT : TEXT, strict, w, p);
	if (rc)
		return rc;
	if (w->has_stream_options && !w->stream)
		return api_fail(p, E_BAD_REQUEST, "stream_options",
				"stream_options is only allowed when stream is true");
	if (w->no_output && (!w->echo || w->stream))
		return api_fail(p, E_BAD_REQUEST, "max_tokens",
				"max_tokens is 0, which is only taken with echo and without stream");
	if (w->no_output)
		w->max_tokens = 1; /* an output there is, but it is not shown */
	if (w->best_of != -1 && w->best_of < w->n)
		return api_fail(p, E_BAD_REQUEST, "best_of", "best_of is %lld, less than n, which is %lld",
				(long long)w->best_of, (long long)w->n);
	return keys_check_beams(dialect == API_JOBS ? json_object_get(request, "params") : request, w, p);
}
