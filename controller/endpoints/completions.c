#include "controller/endpoints/completions.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/json.h"
#include "controller/endpoints/common.h"
#include "controller/endpoints/completion.h"
#include "controller/jobs/mailbox.h"
#include "controller/http/api_keys.h"
#include "controller/request/api.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	PROMPTS_MAX = 2048,   /* of a request, as OpenAI bounds its lists of inputs */
	CHOICES_MAX = 4096,   /* prompts times n: as many as jobs may be queued */
	LISTED_MAX = 4 << 20, /* prompts times the tokens in its lists: each prompt's job has its own copy */
};

void completions_job_key(char out[COMPLETIONS_KEY_SIZE], const char *key, size_t n_jobs, size_t job)
{
	if (n_jobs > 1)
		snprintf(out, COMPLETIONS_KEY_SIZE, "%s/%zu", key, job);
	else
		snprintf(out, COMPLETIONS_KEY_SIZE, "%s", key);
}

/* The text that echo shows: the prompt as it was given, or the text of its ids. */
static void set_echo(struct subrequest *s, const struct service *svc, const json_t *request, size_t i)
{
	const json_t *p = json_get(request, "prompt");
	const json_t *one = json_is_array(p) ? json_array_get(p, i) : p;
	if (json_is_string(one)) {
		s->echo_n = json_string_length(one);
		s->echo = xmalloc(s->echo_n + 1);
		memcpy(s->echo, json_string_value(one), s->echo_n + 1);
		return;
	}
	struct buf text = {0};
	tokenizer_decode(svc->tokenizer, s->submit->tokens, s->submit->n_tokens, s->submit->skip_special,
			 &text);
	s->echo_n = text.len;
	s->echo = buf_take(&text);
}

/* The job is an owner's: served from the owner's share, and sharing no prefixes with others.  The user that
 * the request names is one of this owner's. */
static void set_owner(struct submit *s, const char *owner, uint32_t share)
{
	char *salt = xasprintf("%s/%s", owner, s->cache_salt ? s->cache_salt : "");
	s->share = share;
	s->owner = xasprintf("%c%s", SUBMIT_API_KEY, owner);
	free(s->cache_salt);
	s->cache_salt = salt;
}

void completions_own_by_key(const struct exchange *x, struct submit *s)
{
	struct api_key_terms key;
	api_key_terms(x->key, &key);
	set_owner(s, key.name, key.share);
	s->priority = api_key_priority(&key, s->priority);
}

/* A line of a batch: its jobs survive a restart, and run behind requests with a client that waits. */
static void own_by_line(const struct completion *c, struct submit *s, const json_t *request, size_t i,
			const struct completions_line *line)
{
	char key[COMPLETIONS_KEY_SIZE];
	completions_job_key(key, line->key, c->n_subs, i);
	if (line->owner[0])
		set_owner(s, line->owner, line->terms.share);
	s->priority = api_key_priority(&line->terms, s->priority);
	free(s->key);
	s->key = xstrdup(key);
	s->durable = s->keep = true;
	s->priority = s->priority > INT32_MAX - line->priority ? INT32_MAX : s->priority + line->priority;
	/* Of the whole request, which may be large and have many prompts. */
	if (i)
		memcpy(s->body, c->subs[0].submit->body, sizeof s->body);
	else
		api_digest(request, s->body);
}

bool completions_begin_key(struct completion *c)
{
	struct exchange *x = c->x;
	char why[160];
	if (!x->key)
		return true;
	if (api_key_begin(x->key, (uint32_t)c->n_subs, false, clock_us(), &x->retry_s, why, sizeof why)) {
		exchange_error(x, MHD_HTTP_TOO_MANY_REQUESTS, "rate_limit_error", NULL, "rate_limit_exceeded",
			       "%s", why);
		return false;
	}
	c->key_jobs = (uint32_t)c->n_subs;
	return true;
}

/* Bounds of the request as a whole. */
static int check_size(const struct completion *c, const struct params *par, const struct api_reply *reply,
		      struct api_problem *p)
{
	if ((uint64_t)c->n_subs * par->n > CHOICES_MAX)
		return api_fail(p, E_BAD_REQUEST, "n", "%zu prompts times n = %u is more than %d choices",
				c->n_subs, par->n, CHOICES_MAX);
	uint64_t n_listed = (uint64_t)par->n_allowed + par->n_bad_ids + par->n_bias + par->n_breakers;
	if (c->n_subs * n_listed > LISTED_MAX)
		return api_fail(p, E_BAD_REQUEST, "prompt",
				"%zu prompts times %" PRIu64 " tokens in allowed_token_ids, bad_words, "
				"logit_bias and dry_sequence_breakers is more than %d: put fewer prompts "
				"into a request",
				c->n_subs, n_listed, LISTED_MAX);
	if (reply->stream && par->prompt_logprobs >= 0)
		return api_fail(p, E_BAD_REQUEST, "stream",
				"log probabilities of the prompt (prompt_logprobs, or echo with logprobs) "
				"cannot be streamed");
	return 0;
}

static void set_chat_streams(struct completion *c, struct subrequest *s, const struct api_reply *reply)
{
	s->chat = xcalloc(s->n_outputs, sizeof *s->chat);
	if (!c->forced && reply->rules.forced)
		c->forced = xstrdup(reply->rules.forced);
	if (!c->declared && reply->rules.declared)
		c->declared = json_deep_copy(reply->rules.declared);
	c->rules = reply->rules;
	c->rules.forced = c->forced;
	c->rules.declared = c->declared;
	for (uint32_t k = 0; k < s->n_outputs; k++)
		chat_stream_init(&s->chat[k], &c->rules);
}

static int make_subrequest(struct completion *c, struct api_request *all, const json_t *request, size_t i,
			   const struct completions_line *line, struct api_reply *reply,
			   struct api_problem *p)
{
	struct exchange *x = c->x;
	const struct service *svc = x->host->svc;
	struct subrequest *s = &c->subs[i];
	int rc = api_request_prompt(all, i, &s->submit, reply, p);
	if (rc)
		return rc;
	if (x->key)
		completions_own_by_key(x, s->submit);
	if (line)
		own_by_line(c, s->submit, request, i, line);
	const struct params *par = &s->submit->params;
	s->n_outputs = par->n;
	s->first = (uint32_t)i * par->n;
	s->n_prompt = s->submit->n_tokens;
	s->offset = xcalloc(par->n, sizeof *s->offset);
	rc = check_size(c, par, reply, p);
	if (rc)
		return rc;
	if (chat_stream_parses(&reply->rules))
		set_chat_streams(c, s, reply);
	if (reply->echo)
		set_echo(s, svc, request, i);
	if (par->prompt_logprobs >= 0 || reply->return_token_ids)
		s->tokens = xmemdup(s->submit->tokens, s->n_prompt * sizeof *s->tokens);
	return 0;
}

/* The fields that all subrequests have in common, by the first one. */
static void set_shape(struct completion *c, const json_t *request, const struct api_reply *reply)
{
	struct exchange *x = c->x;
	const struct service *svc = x->host->svc;
	const struct submit *s = c->subs[0].submit;
	struct openai_shape *sh = &c->shape;
	c->model = xstrdup(reply->model ? reply->model : svc->model_name);
	c->stream = reply->stream;
	c->return_timing = reply->return_timing;
	c->no_output = reply->no_output;
	c->continuous_usage = reply->include_usage && reply->continuous_usage;
	c->echo_logprobs = reply->echo && s->params.logprobs >= 0 && s->params.prompt_logprobs >= 0;
	snprintf(x->ignored, sizeof x->ignored, "%s", reply->ignored);
	openai_id(sh->id, sh->chat ? "chatcmpl-" : "cmpl-");
	pthread_mutex_lock(&x->lock);
	snprintf(x->id, sizeof x->id, "%s", sh->id);
	pthread_mutex_unlock(&x->lock);
	sh->tokenizer = svc->tokenizer;
	sh->model = c->model;
	sh->created = clock_unix();
	sh->stream = reply->stream;
	sh->usage_null = reply->include_usage;
	sh->skip_special = s->skip_special;
	sh->tokens_as_ids = reply->tokens_as_ids;
	sh->return_token_ids = reply->return_token_ids;
	sh->logprobs = s->params.logprobs >= 0;
	sh->prompt_logprobs = json_get(request, "prompt_logprobs") != NULL;
}

/* Every prompt becomes a subrequest, as long as the client is there.  *reply: of the request. */
static int make_subrequests(struct completion *c, const json_t *request, const struct completions_line *line,
			    struct api_reply *reply, struct api_problem *p)
{
	const struct exchange *x = c->x;
	struct api_request *all;
	uint64_t tokens = 0;
	int rc = api_request_read(x->host->svc, mailbox_max_context(c->mailbox), request,
				  c->shape.chat ? API_CHAT : API_COMPLETIONS, &all, p);
	if (rc)
		return rc;
	for (size_t i = 0; !rc && i < c->n_subs; i++) {
		rc = exchange_is_over(c->x) ? -ECANCELED
					    : make_subrequest(c, all, request, i, line, reply, p);
		tokens += c->subs[i].n_prompt;
	}
	api_request_free(all);
	/* Those of a request that is refused or abandoned have cost as much. */
	if (x->key && tokens)
		api_key_charge(x->key, tokens, clock_us());
	return rc;
}

/* line: NULL for a request with a connection. */
static void generate(struct exchange *x, bool chat, const struct completions_line *line)
{
	json_t *request = common_body_object(x);
	if (!request)
		return;
	struct api_problem p = {.code = E_INTERNAL};
	struct api_reply reply = {0};
	if (!common_check_model(x, request))
		goto done;
	size_t n = chat ? 1 : api_n_prompts(request);
	if (n == 0 || n > PROMPTS_MAX) {
		exchange_error(x, MHD_HTTP_BAD_REQUEST, "invalid_request_error", "prompt", NULL,
			       "prompt holds %zu prompts: must be 1 to %d", n, PROMPTS_MAX);
		goto done;
	}
	struct completion *c = completion_new(x, n);
	c->shape.chat = chat;
	if (!completions_begin_key(c))
		goto done;
	int rc = make_subrequests(c, request, line, &reply, &p);
	if (rc) {
		completion_give_up(c);
		if (rc != -ECANCELED)
			exchange_fail(x, p.code, p.param, p.why);
		goto done;
	}
	set_shape(c, request, &reply);
	json_decref(request);
	completion_submit(c);
	return;
done:
	json_decref(request);
}

void completions_call_text(struct exchange *x, const char *rest)
{
	(void)rest;
	generate(x, false, NULL);
}

void completions_call_chat(struct exchange *x, const char *rest)
{
	(void)rest;
	generate(x, true, NULL);
}

void completions_call_line(struct exchange *x, bool chat, const struct completions_line *line)
{
	generate(x, chat, line);
}
