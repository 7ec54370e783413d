#include "controller/request/api.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/entropy.h"
#include "controller/request/breakers.h"
#include "controller/request/chat_constraint.h"
#include "controller/request/chat_request.h"
#include "controller/request/constraint_request.h"
#include "controller/request/request_fields.h"
#include "controller/request/request_tokens.h"
#include "formats/config.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum {
	WORD_BYTES_MAX = 1024,       /* limit of a bad word */
	COMPLETIONS_MAX_TOKENS = 16, /* default of /v1/completions, as in OpenAI's API */
};
#define TEMPERATURE_GREEDY 1e-5 /* below this: greedy; vLLM's bounds */
#define TEMPERATURE_LEAST  1e-2
#define BIAS_MAX           100.0

struct api_request {
	const json_t *whole; /* borrowed, like the texts and trees of fields */
	const struct service *svc;
	uint32_t max_context;
	enum api_dialect dialect;
	bool to_context; /* a completion without max_tokens may fill the context */
	struct request_fields fields;
	struct tool_request tools;
	enum prompt_reasoning reasoning; /* the prompt ends here */
	uint32_t n_own_stop_ids;         /* the first n of s->params.stop_ids are the request's own */
	json_t *answer;                  /* owned: a chat's constraint on the answer; NULL: any text */
	const char *answer_field;
	struct submit *common; /* owned: the fields that the jobs of all prompts share; no tokens */
	struct submit *s;      /* the submit being filled: common, then a prompt's */
	struct api_problem *p; /* the current call's */
};

int api_tokenize(const struct service *svc, uint32_t max_context, const char *text, size_t n,
		 bool add_special, struct token_ids *out, struct api_problem *p)
{
	int rc = request_tokens_check_bytes(svc, max_context, n, "text", p);
	struct request_text t = {
		.field = "text", .p = text, .n = n, .flags = add_special ? TOKENIZER_ADD_SPECIAL : 0};
	return rc ? rc : request_tokens_encode(svc, &t, out, p);
}

/* --- messages --- */

static int render(struct api_request *r, const struct chat_request *c, unsigned flags, struct token_ids *out)
{
	struct chat_prompt prompt = {0};
	char *ignored = r->fields.ignored;
	int rc = chat_request_render(r->svc, r->max_context, c, &prompt, &r->reasoning, ignored,
				     sizeof r->fields.ignored, r->p);
	struct request_text text = {.field = "messages",
				    .p = prompt.text.p,
				    .n = prompt.text.len,
				    .flags = flags,
				    .plain = prompt.plain,
				    .n_plain = prompt.n_plain};
	if (!rc)
		rc = request_tokens_encode(r->svc, &text, out, r->p);
	chat_prompt_fini(&prompt);
	return rc;
}

static struct chat_request chat_of(const struct api_request *r)
{
	const struct request_fields *f = &r->fields;
	return (struct chat_request){.messages = f->messages,
				     .documents = f->documents,
				     .kwargs = f->template_kwargs,
				     .reasoning_effort = f->reasoning_effort,
				     .enable_thinking = f->enable_thinking,
				     .openai = r->dialect == API_CHAT,
				     .add_generation = f->add_generation,
				     .continue_final = f->continue_final,
				     .tools = r->tools};
}

int api_tokenize_messages(const struct service *svc, uint32_t max_context, const json_t *request,
			  struct token_ids *out, char *ignored, size_t ignored_n, struct api_problem *p)
{
	struct api_request r = {.svc = svc, .max_context = max_context, .dialect = API_CHAT, .p = p};
	request_fields_init(&r.fields, svc->config);
	int rc = request_fields_read(request, API_CHAT, false, &r.fields, p);
	if (!rc)
		rc = tool_request_read(r.fields.tools, r.fields.tool_choice, svc->tools, &r.tools, p);
	/* The caller has already named the ignored fields; only template variables are added. */
	snprintf(r.fields.ignored, sizeof r.fields.ignored, "%s", ignored);
	struct chat_request c = chat_of(&r);
	if (!rc)
		rc = render(&r, &c, r.fields.add_special ? TOKENIZER_ADD_SPECIAL : 0, out);
	snprintf(ignored, ignored_n, "%s", r.fields.ignored);
	return rc;
}

int api_render_messages(const struct service *svc, uint32_t max_context, const json_t *request,
			struct buf *out, char *ignored, size_t ignored_n, struct api_problem *p)
{
	struct api_request r = {.svc = svc, .max_context = max_context, .dialect = API_CHAT, .p = p};
	struct chat_prompt prompt = {0};
	request_fields_init(&r.fields, svc->config);
	int rc = request_fields_read(request, API_CHAT, svc->strict, &r.fields, p);
	if (!rc)
		rc = tool_request_read(r.fields.tools, r.fields.tool_choice, svc->tools, &r.tools, p);
	struct chat_request c = chat_of(&r);
	if (!rc)
		rc = chat_request_render(svc, max_context, &c, &prompt, &r.reasoning, r.fields.ignored,
					 sizeof r.fields.ignored, p);
	if (!rc)
		buf_put(out, prompt.text.p, prompt.text.len);
	snprintf(ignored, ignored_n, "%s", r.fields.ignored);
	chat_prompt_fini(&prompt);
	return rc;
}

/* --- the prompt --- */

/* Return true for an array of strings or of arrays; an array of ids is one prompt. */
static bool is_many_prompts(const json_t *prompt)
{
	const json_t *first = json_array_get(prompt, 0);
	return json_is_string(first) || json_is_array(first);
}

size_t api_n_prompts(const json_t *request)
{
	const json_t *prompt = json_object_get(request, "prompt");
	return is_many_prompts(prompt) ? json_array_size(prompt) : 1;
}

static int prompt_text(struct api_request *r, const json_t *v, struct token_ids *out)
{
	if (!json_is_string(v))
		return api_fail(r->p, E_BAD_REQUEST, "prompt", "prompt must be a string%s",
				r->dialect == API_JOBS ? ""
						       : ", an array of token ids, or an array of these");
	bool special = !r->fields.add_special_given || r->fields.add_special;
	struct request_text text = {.field = "prompt",
				    .p = json_string_value(v),
				    .n = json_string_length(v),
				    .flags = special ? TOKENIZER_ADD_SPECIAL : 0};
	int rc = request_tokens_check_bytes(r->svc, r->max_context, text.n, text.field, r->p);
	return rc ? rc : request_tokens_encode(r->svc, &text, out, r->p);
}

static int prompt_ids(struct api_request *r, size_t index, struct token_ids *out)
{
	const struct request_fields *f = &r->fields;
	struct chat_request chat = chat_of(r);
	if (r->dialect == API_CHAT) {
		if (!f->messages)
			return api_fail(r->p, E_BAD_REQUEST, "messages", "messages is missing");
		return render(r, &chat, f->add_special ? TOKENIZER_ADD_SPECIAL : 0, out);
	}
	if (r->dialect == API_JOBS) {
		if (!!f->prompt + !!f->tokens + !!f->messages != 1)
			return api_fail(r->p, E_BAD_REQUEST, "prompt",
					"a submit has exactly one of prompt, tokens and messages");
		if (f->tokens)
			return request_tokens_read(r->svc, f->tokens, "tokens", r->max_context, out, r->p);
		if (f->messages)
			return render(r, &chat, 0, out);
		return prompt_text(r, f->prompt, out);
	}
	const json_t *v = f->prompt;
	if (!v)
		return api_fail(r->p, E_BAD_REQUEST, "prompt", "prompt is missing");
	if (is_many_prompts(v))
		v = json_array_get(v, index);
	if (json_is_array(v))
		return request_tokens_read(r->svc, v, "prompt", r->max_context, out, r->p);
	return prompt_text(r, v, out);
}

/* --- lists of parameters --- */

static int get_stop(struct api_request *r)
{
	const json_t *v = r->fields.stop;
	struct submit *s = r->s;
	if (!v)
		return 0;
	size_t n = json_is_array(v) ? json_array_size(v) : 1;
	if (n > PARAMS_STOP_MAX)
		return api_fail(r->p, E_BAD_REQUEST, "stop", "stop has %zu strings, at most %d are accepted",
				n, PARAMS_STOP_MAX);
	s->stop = xcalloc(PARAMS_STOP_MAX, sizeof *s->stop);
	for (size_t i = 0; i < n; i++) {
		const json_t *e = json_is_array(v) ? json_array_get(v, i) : v;
		if (!json_is_string(e))
			return api_fail(r->p, E_BAD_REQUEST, "stop",
					"stop must be a string or an array of strings");
		size_t len = json_string_length(e);
		if (len == 0 || len > PARAMS_STOP_BYTES_MAX || memchr(json_string_value(e), 0, len))
			return api_fail(r->p, E_BAD_REQUEST, "stop",
					"stop[%zu] has %zu bytes; a stop string has 1 to %d, and no NUL", i,
					len, PARAMS_STOP_BYTES_MAX);
		s->stop[s->n_stop++] = xstrdup(json_string_value(e));
	}
	return 0;
}

static void add_stop_id(struct params *p, uint32_t id)
{
	if (!params_is_stop(p, id))
		p->stop_ids[p->n_stop_ids++] = id;
}

static int get_stop_ids(struct api_request *r)
{
	const struct model_config *c = r->svc->config;
	struct params *p = &r->s->params;
	struct token_ids ids = {0};
	int rc = r->fields.stop_token_ids
			 ? request_tokens_read(r->svc, r->fields.stop_token_ids, "stop_token_ids",
					       PARAMS_LIST_MAX - CONFIG_EOS_MAX - 1, &ids, r->p)
			 : 0;
	if (rc) {
		token_ids_fini(&ids);
		return rc;
	}
	p->stop_ids = xcalloc(ids.n + CONFIG_EOS_MAX + 1, sizeof *p->stop_ids);
	for (size_t i = 0; i < ids.n; i++)
		add_stop_id(p, ids.ids[i]);
	r->n_own_stop_ids = p->n_stop_ids;
	token_ids_fini(&ids);
	if (p->ignore_eos)
		return 0;
	for (int i = 0; i < c->n_eos; i++)
		add_stop_id(p, c->eos[i]);
	int64_t eos = tokenizer_eos(r->svc->tokenizer);
	if (eos >= 0 && eos < c->n_vocab)
		add_stop_id(p, (uint32_t)eos);
	return 0;
}

/* Check the limits of a beam search.  A step takes its 2 * width likeliest tokens in addition to the stop
 * tokens, so the vocabulary must have that many. */
static int check_search(const struct api_request *r)
{
	const struct params *p = &r->s->params;
	if (!p->beam_width)
		return 0;
	if (p->n_stop_ids > PARAMS_BEAM_STOPS_MAX)
		return api_fail(
			r->p, E_BAD_REQUEST, "stop_token_ids",
			"stop_token_ids: a beam search takes %d stop tokens, the model's own counted; here "
			"are %u",
			PARAMS_BEAM_STOPS_MAX, p->n_stop_ids);
	if (2 * p->beam_width + p->n_stop_ids > (uint32_t)r->svc->config->n_vocab)
		return api_fail(r->p, E_BAD_REQUEST, "beam_width",
				"beam_width is %u, too much for a vocabulary of %d tokens", p->beam_width,
				r->svc->config->n_vocab);
	return 0;
}

/* Read {"token id": bias}; biases are clamped to -100..100, as in vLLM. */
static int get_bias(struct api_request *r)
{
	json_t *map = (json_t *)r->fields.logit_bias, *v;
	struct params *p = &r->s->params;
	const char *name;
	if (!map)
		return 0;
	if (!json_is_object(map) || json_object_size(map) > PARAMS_LIST_MAX)
		return api_fail(r->p, E_BAD_REQUEST, "logit_bias",
				"logit_bias must be a map of at most %d token ids to numbers",
				PARAMS_LIST_MAX);
	p->bias_ids = xcalloc(PARAMS_LIST_MAX, sizeof *p->bias_ids);
	p->bias = xcalloc(PARAMS_LIST_MAX, sizeof *p->bias);
	json_object_foreach(map, name, v)
	{
		char *end;
		errno = 0;
		long id = strtol(name, &end, 10);
		/* No leading zeros: "07" and "7" would be the same token. */
		bool plain =
			name[0] >= '0' && name[0] <= '9' && (name[0] != '0' || !name[1]) && !*end && !errno;
		if (!plain || id >= r->svc->config->n_vocab)
			return api_fail(r->p, E_BAD_REQUEST, "logit_bias",
					"logit_bias: %.32s is not a token id; the vocabulary has ids 0 to %d",
					name, r->svc->config->n_vocab - 1);
		if (!json_is_number(v) || !isfinite(json_number_value(v)))
			return api_fail(r->p, E_BAD_REQUEST, "logit_bias",
					"logit_bias of %ld must be a number", id);
		p->bias_ids[p->n_bias] = (int32_t)id;
		p->bias[p->n_bias++] = (float)fmin(BIAS_MAX, fmax(-BIAS_MAX, json_number_value(v)));
	}
	return 0;
}

static int get_allowed(struct api_request *r)
{
	struct params *p = &r->s->params;
	if (!r->fields.allowed)
		return 0;
	if (json_array_size(r->fields.allowed) == 0)
		return api_fail(r->p, E_BAD_REQUEST, "allowed_token_ids", "allowed_token_ids is empty");
	struct token_ids ids = {0};
	int rc = request_tokens_read(r->svc, r->fields.allowed, "allowed_token_ids", PARAMS_ALLOWED_MAX, &ids,
				     r->p);
	if (!rc) {
		p->allowed = xcalloc(ids.n, sizeof *p->allowed);
		p->n_allowed = (uint32_t)ids.n;
		for (size_t i = 0; i < ids.n; i++)
			p->allowed[i] = (int32_t)ids.ids[i];
	}
	token_ids_fini(&ids);
	return rc;
}

static void add_bad(struct params *p, const struct token_ids *ids)
{
	for (size_t i = 0; i < ids->n; i++)
		p->bad[p->n_bad_ids++] = (int32_t)ids->ids[i];
	p->bad_len[p->n_bad++] = (int32_t)ids->n;
}

/* Ban a word as it is tokenized at the start of a text.  If its tokens after a space, as within a text,
 * differ only in the first, ban those too. */
static int get_bad_word(struct api_request *r, size_t at, const char *word, size_t n)
{
	while (n && strchr(" \t\n\r\v\f", *word)) {
		word++;
		n--;
	}
	if (n == 0 || n > WORD_BYTES_MAX)
		return api_fail(r->p, E_BAD_REQUEST, "bad_words", "bad_words[%zu] must have 1 to %d bytes",
				at, WORD_BYTES_MAX);
	struct params *p = &r->s->params;
	struct token_ids bare = {0}, spaced = {0};
	struct buf text = {0};
	buf_putc(&text, ' ');
	buf_put(&text, word, n);
	struct request_text without = {.field = "bad_words", .p = text.p + 1, .n = n};
	struct request_text with = {.field = "bad_words", .p = text.p, .n = text.len};
	int rc = request_tokens_encode(r->svc, &without, &bare, r->p);
	if (!rc)
		rc = request_tokens_encode(r->svc, &with, &spaced, r->p);
	if (!rc && (p->n_bad + 2 > PARAMS_LIST_MAX || bare.n > PARAMS_LIST_MAX || spaced.n > PARAMS_LIST_MAX))
		rc = api_fail(r->p, E_BAD_REQUEST, "bad_words", "bad_words: too many words");
	if (!rc && p->n_bad_ids + bare.n + spaced.n > PARAMS_BAD_IDS_MAX)
		rc = api_fail(r->p, E_BAD_REQUEST, "bad_words",
			      "bad_words: all words together have more than %d tokens", PARAMS_BAD_IDS_MAX);
	if (!rc) {
		p->bad = xrealloc(p->bad, p->n_bad_ids + bare.n + spaced.n + 1, sizeof *p->bad);
		p->bad_len = xrealloc(p->bad_len, p->n_bad + 2, sizeof *p->bad_len);
		if (bare.n)
			add_bad(p, &bare);
		if (bare.n && spaced.n == bare.n && spaced.ids[0] != bare.ids[0])
			add_bad(p, &spaced);
	}
	buf_fini(&text);
	token_ids_fini(&bare);
	token_ids_fini(&spaced);
	return rc;
}

/* Check that at least one allowed id can be chosen: it is not banned, and not a stop token that min_tokens
 * forbids. */
static int check_allowed(struct api_request *r)
{
	const struct params *p = &r->s->params;
	const size_t n_vocab = (size_t)r->svc->config->n_vocab;
	if (!p->n_allowed)
		return 0;
	uint8_t *never = xcalloc(n_vocab, 1);
	const uint32_t n_stop = p->min_tokens ? p->n_stop_ids : 0;
	for (uint32_t i = 0; i < n_stop; i++)
		never[p->stop_ids[i]] = 1;
	for (uint32_t i = 0, at = 0; i < p->n_bad; at += (uint32_t)p->bad_len[i++])
		if (p->bad_len[i] == 1)
			never[p->bad[at]] = 1;
	bool some = false;
	for (uint32_t i = 0; i < p->n_allowed && !some; i++)
		some = !never[p->allowed[i]];
	free(never);
	return some ? 0
		    : api_fail(r->p, E_BAD_REQUEST, "allowed_token_ids",
			       "allowed_token_ids: bad_words leave none%s",
			       n_stop ? " and, before min_tokens, what ends an output" : "");
}

static int get_bad_words(struct api_request *r)
{
	size_t i;
	const json_t *v;
	if (!r->fields.bad_words)
		return 0;
	if (json_array_size(r->fields.bad_words) > PARAMS_LIST_MAX / 2)
		return api_fail(r->p, E_BAD_REQUEST, "bad_words",
				"bad_words has %zu words, at most %d are accepted",
				json_array_size(r->fields.bad_words), PARAMS_LIST_MAX / 2);
	json_array_foreach(r->fields.bad_words, i, v)
	{
		if (!json_is_string(v))
			return api_fail(r->p, E_BAD_REQUEST, "bad_words", "bad_words[%zu] must be a string",
					i);
		int rc = get_bad_word(r, i, json_string_value(v), json_string_length(v));
		if (rc)
			return rc;
	}
	return 0;
}

/* --- the whole request --- */

static int get_logprobs(struct api_request *r)
{
	struct request_fields *f = &r->fields;
	struct params *p = &r->s->params;
	if (r->dialect == API_CHAT) {
		if (f->top_logprobs > 0 && !f->chat_logprobs)
			return api_fail(r->p, E_BAD_REQUEST, "top_logprobs",
					"top_logprobs is only allowed when logprobs is true");
		f->logprobs = !f->chat_logprobs ? -1 : f->top_logprobs < 0 ? 0 : f->top_logprobs;
	}
	if (f->echo && f->logprobs >= 0 && f->prompt_logprobs < 0)
		f->prompt_logprobs = f->logprobs;
	p->logprobs = (int32_t)f->logprobs;
	p->prompt_logprobs = (int32_t)f->prompt_logprobs;
	return 0;
}

/* Return true if x was rounded to float onto the bound that it exceeds as a double: the value that switches
 * the parameter off, or the excluded lower bound. */
static bool is_too_small(const struct params_row *row, double x, const struct params *p)
{
	const double bound = row->flags & PARAMS_ABOVE ? row->lo : row->neutral;
	return row->flags & (PARAMS_ABOVE | PARAMS_OFF_BELOW) && x > bound && !(params_get(row, p) > bound);
}

static int get_numbers(struct api_request *r)
{
	struct request_fields *f = &r->fields;
	struct params *p = &r->s->params;
	const double t = FIELD_PARAM(f, temperature), n = FIELD_PARAM(f, n);
	for (size_t i = 0; i < n_params_rows; i++) {
		const struct params_row *row = &params_rows[i];
		const bool off = row->flags & PARAMS_OFF_BELOW && f->params[i] < row->neutral;
		if (row->about)
			params_set(row, p, off ? row->neutral : f->params[i]);
		if (row->about && is_too_small(row, f->params[i], p))
			return api_fail(r->p, E_BAD_REQUEST, row->name, "%s is too small", row->name);
	}
	p->temperature = t < TEMPERATURE_GREEDY ? 0 : (float)fmax(t, TEMPERATURE_LEAST);
	if (!p->dry_last_n) /* no tokens are examined */
		p->dry_multiplier = 0;
	r->s->best_of = (double)f->best_of > n ? (uint32_t)f->best_of : 0;
	p->beam_width = f->beams && f->beam_width > 1 ? (uint32_t)f->beam_width : 0;
	p->early = f->early;
	return get_logprobs(r);
}

/* Read max_tokens and check it against the context left by the prompt. */
static int get_max_tokens(struct api_request *r)
{
	const struct request_fields *f = &r->fields;
	struct submit *s = r->s;
	bool newer = f->max_completion_tokens > 0;
	const char *name = newer ? "max_completion_tokens" : "max_tokens";
	int64_t given = newer ? f->max_completion_tokens : f->max_tokens;
	if (s->n_tokens >= r->max_context)
		return api_fail(r->p, E_TOO_LONG, r->dialect == API_CHAT ? "messages" : "prompt",
				"the prompt has %u tokens, the context %u, and one must be left to generate",
				s->n_tokens, r->max_context);
	uint32_t rest = r->max_context - s->n_tokens;
	if (given > rest)
		return api_fail(r->p, E_TOO_LONG, name,
				"the prompt has %u tokens and %s is %" PRId64 ", the context holds %u",
				s->n_tokens, name, given, r->max_context);
	int64_t most = r->dialect == API_COMPLETIONS && !r->to_context ? COMPLETIONS_MAX_TOKENS : rest;
	int64_t usual = r->svc->config->gen_max_new_tokens;
	if (usual > 0 && usual < most)
		most = usual;
	s->params.max_tokens = (uint32_t)(given ? given : most < rest ? most : rest);
	if (s->params.min_tokens > s->params.max_tokens)
		return api_fail(r->p, E_BAD_REQUEST, "min_tokens", "min_tokens is %u, more than %s %u",
				s->params.min_tokens, name, s->params.max_tokens);
	return 0;
}

void api_digest(const json_t *request, uint8_t out[16])
{
	/* Fields that do not change the result. */
	static const char *const without_effect[] = {
		"op",          "id",   "key",           "stream",      "durable",   "priority",
		"deadline_ms", "user", "on_disconnect", "traceparent", "tracestate"};
	json_t *body = json_copy((json_t *)request), *v;
	const char *name;
	void *next;
	for (size_t i = 0; i < sizeof without_effect / sizeof without_effect[0]; i++)
		json_object_del(body, without_effect[i]);
	json_object_foreach_safe(body, next, name, v) if (json_is_null(v)) json_object_del(body, name);
	char *text = json_dumps(body, JSON_COMPACT | JSON_SORT_KEYS | JSON_ENCODE_ANY);
	XXH128_canonical_t sum;
	XXH128_canonicalFromHash(&sum, XXH3_128bits(text ? text : "", text ? strlen(text) : 0));
	memcpy(out, sum.digest, sizeof sum.digest);
	free(text);
	json_decref(body);
}

static char *copy(const char *s)
{
	return s ? xstrdup(s) : NULL;
}

/* Read the structured output.  For a chat it also depends on the prompt, so get_chat_constraint() compiles
 * it. */
static int get_constraint(struct api_request *r)
{
	struct grammar_account account = {.units = CONSTRAINT_WORK_MAX};
	int rc = constraint_request_part(&r->fields, &r->answer, &r->answer_field, r->p);
	if (!rc && r->answer && !r->fields.messages)
		rc = constraint_request_compile(r->answer, r->answer_field,
						constraint_request_exact(&r->fields), r->svc->checked,
						&account, &r->s->params.constraint, r->p);
	return rc;
}

/* Return the tokens that reasoning may have; -1: no limit.  A reasoning_effort of "none" means 0 if the
 * template has no variable for it. */
static int64_t thinking_budget(const struct api_request *r)
{
	const struct request_fields *f = &r->fields;
	const bool none = f->reasoning_effort && strcmp(f->reasoning_effort, "none") == 0 &&
			  !chat_mentions(r->svc->chat, "reasoning_effort") &&
			  !chat_mentions(r->svc->chat, "enable_thinking");
	return f->thinking_budget < 0 && none ? 0 : f->thinking_budget;
}

static int get_chat_constraint(struct api_request *r)
{
	const struct service *svc = r->svc;
	const struct chat_constraint constraint = {
		.svc = svc,
		.tools = &r->tools,
		.parallel_calls = r->fields.parallel_calls,
		.reasoning = svc->reasoning_open && r->reasoning == REASONING_OPTIONAL ? REASONING_OPEN
										       : r->reasoning,
		.thinking_budget = thinking_budget(r),
		.answer = r->answer,
		.answer_field = r->answer_field,
		.exact = constraint_request_exact(&r->fields)};
	if (r->fields.thinking_budget >= 0 && !svc->reasoning && svc->strict)
		return api_fail(r->p, E_BAD_REQUEST, "thinking_token_budget",
				"thinking_token_budget: the model's chats have no reasoning");
	if (r->fields.thinking_budget >= 0 && !svc->reasoning)
		request_fields_ignore(&r->fields, "thinking_token_budget");
	return r->fields.messages ? chat_constraint_make(&constraint, &r->s->params.constraint, r->p) : 0;
}

/* Read the fields that the jobs of all prompts share. */
static int read_common(struct api_request *r)
{
	struct submit *s = r->s;
	const struct request_fields *f = &r->fields;
	int rc = get_numbers(r);
	if (rc || (rc = get_stop(r)) || (rc = get_stop_ids(r)) || (rc = check_search(r)) ||
	    (rc = get_bias(r)) || (rc = get_allowed(r)))
		return rc;
	if (r->dialect == API_CHAT)
		rc = tool_request_read(f->tools, f->tool_choice, r->svc->tools, &r->tools, r->p);
	if (rc || (rc = get_constraint(r)) || (rc = get_bad_words(r)) || (rc = check_allowed(r)) ||
	    (rc = breakers_read(f->breakers, r->svc, &s->params, r->p)))
		return rc;
	s->include_stop = f->include_stop;
	s->skip_special = f->skip_special;
	s->stream = f->stream;
	s->keep = f->keep || f->durable;
	s->durable = f->durable;
	s->priority = (int32_t)f->priority;
	s->deadline_us = f->deadline_ms ? clock_us() + f->deadline_ms * 1000 : 0;
	s->chat = f->messages != NULL;
	trace_context_read(&s->trace, f->traceparent, f->tracestate);
	s->user = copy(f->user);
	s->key = copy(f->key);
	if (s->key)
		api_digest(r->whole, s->body);
	s->cache_salt = copy(f->cache_salt);
	return 0;
}

static bool is_end_of_model(const struct service *svc, uint32_t id)
{
	const struct model_config *c = svc->config;
	bool is = tokenizer_eos(svc->tokenizer) == id;
	for (int i = 0; i < c->n_eos; i++)
		is = is || c->eos[i] == id;
	return is;
}

/* In a chat that may think, move the request's stop tokens to late_stop_ids: they count from the end of the
 * reasoning, which the engine does not know.  The engine gets only the model's own stop tokens. */
static void put_off_stops(const struct api_request *r)
{
	struct submit *s = r->s;
	struct params *p = &s->params;
	const bool open = r->reasoning == REASONING_OPEN || r->svc->reasoning_open;
	uint32_t kept = 0;
	if (!r->fields.messages || !r->svc->reasoning || p->beam_width ||
	    (r->reasoning != REASONING_OPEN && r->reasoning != REASONING_OPTIONAL))
		return;
	s->reasoning = open ? SUBMIT_REASONING_OPEN : SUBMIT_REASONING_OPTIONAL;
	s->late_stop_ids = xcalloc(r->n_own_stop_ids ? r->n_own_stop_ids : 1, sizeof *s->late_stop_ids);
	for (uint32_t i = 0; i < p->n_stop_ids; i++) {
		const uint32_t id = p->stop_ids[i];
		if (i < r->n_own_stop_ids && (p->ignore_eos || !is_end_of_model(r->svc, id)))
			s->late_stop_ids[s->n_late_stop_ids++] = id;
		else
			p->stop_ids[kept++] = id;
	}
	p->n_stop_ids = kept;
}

static struct submit *copy_common(const struct api_request *r)
{
	const struct submit *from = r->common;
	struct submit *s = xmemdup(from, sizeof *from);
	params_copy(&s->params, &from->params);
	if (from->stop)
		s->stop = xcalloc(PARAMS_STOP_MAX, sizeof *s->stop);
	for (uint32_t i = 0; i < from->n_stop; i++)
		s->stop[i] = xstrdup(from->stop[i]);
	s->user = copy(from->user);
	s->key = copy(from->key);
	s->cache_salt = copy(from->cache_salt);
	trace_context_copy(&s->trace, &from->trace);
	/* A drawn seed has 63 bits, because replies show it as a signed integer. */
	s->params.seed = r->fields.has_seed ? (uint64_t)r->fields.seed : entropy_u64() >> 1;
	return s;
}

static int get_prompt(struct api_request *r, size_t prompt)
{
	struct submit *s = r->s;
	struct token_ids ids = {0};
	int rc = prompt_ids(r, prompt, &ids);
	s->tokens = ids.ids;
	s->n_tokens = (uint32_t)ids.n;
	if (rc)
		return rc;
	if (s->n_tokens == 0)
		return api_fail(r->p, E_BAD_REQUEST, r->dialect == API_CHAT ? "messages" : "prompt",
				"the prompt has no tokens");
	return get_max_tokens(r);
}

static void fill_rules(struct chat_stream_rules *rules, const struct api_request *r)
{
	const struct service *svc = r->svc;
	const struct tools_format *f = tools_format(svc->tools);
	if (r->dialect != API_CHAT)
		return;
	/* Values between tags have the types of the tools' schemas, unless the tags give the types. */
	const bool typed = r->tools.may_call && f && f->tags.key_open && !f->tags.text_open;
	*rules = (struct chat_stream_rules){
		.reasoning = svc->reasoning,
		.marks = svc->marks,
		.reasoning_open = svc->reasoning && (r->reasoning == REASONING_OPEN || svc->reasoning_open),
		.continued = r->reasoning == REASONING_ENDED,
		.show_reasoning = r->fields.show_reasoning,
		.tools = r->tools.may_call ? svc->tools : TOOLS_NONE,
		.single_call = !r->fields.parallel_calls,
		.forced = r->tools.forced,
		.declared = typed ? r->tools.tools : NULL};
	/* Marks that are special tokens must stay in the text to be found. */
	if (svc->marks_special && chat_stream_parses(rules))
		r->s->skip_special = false;
}

static void fill_reply(struct api_reply *reply, const struct request_fields *f)
{
	*reply = (struct api_reply){.model = f->model,
				    .stream = f->stream,
				    .include_usage = f->include_usage,
				    .continuous_usage = f->continuous_usage,
				    .echo = f->echo,
				    .no_output = f->no_output,
				    .tokens_as_ids = f->tokens_as_ids,
				    .return_token_ids = f->return_token_ids,
				    .return_timing = f->return_timing};
	snprintf(reply->ignored, sizeof reply->ignored, "%s", f->ignored);
}

int api_request_read(const struct service *svc, uint32_t max_context, const json_t *request,
		     enum api_dialect dialect, struct api_request **out, struct api_problem *p)
{
	if (svc->config->embeds && !svc->config->tied)
		return api_fail(p, E_BAD_REQUEST, "model",
				"this is an embedding model: it generates no text");
	struct api_request *r = xcalloc(1, sizeof *r);
	*r = (struct api_request){
		.whole = request, .svc = svc, .max_context = max_context, .dialect = dialect, .p = p};
	r->common = r->s = xcalloc(1, sizeof *r->s);
	params_init(&r->s->params);
	request_fields_init(&r->fields, svc->config);
	r->fields.schema_exact = svc->schema_exact;
	int rc = request_fields_read(request, dialect, svc->strict || dialect == API_JOBS, &r->fields, p);
	if (!rc)
		rc = read_common(r);
	if (rc)
		api_request_free(r);
	else
		*out = r;
	return rc;
}

int api_request_prompt(struct api_request *r, size_t prompt, struct submit **out, struct api_reply *reply,
		       struct api_problem *p)
{
	r->p = p;
	r->s = copy_common(r);
	int rc = get_prompt(r, prompt);
	if (!rc)
		rc = get_chat_constraint(r);
	if (!rc)
		put_off_stops(r);
	if (rc) {
		submit_free(r->s);
		return rc;
	}
	if (reply)
		fill_reply(reply, &r->fields);
	if (reply)
		fill_rules(&reply->rules, r);
	*out = r->s;
	return 0;
}

void api_request_to_context(struct api_request *r)
{
	r->to_context = true;
}

void api_request_free(struct api_request *r)
{
	if (!r)
		return;
	submit_free(r->common);
	json_decref(r->answer);
	free(r);
}

int api_submit(const struct service *svc, uint32_t max_context, const json_t *request,
	       enum api_dialect dialect, size_t prompt, struct submit **out, struct api_reply *reply,
	       struct api_problem *p)
{
	struct api_request *r;
	int rc = api_request_read(svc, max_context, request, dialect, &r, p);
	if (rc)
		return rc;
	rc = api_request_prompt(r, prompt, out, reply, p);
	api_request_free(r);
	return rc;
}
