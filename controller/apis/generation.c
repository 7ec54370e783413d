#include "controller/apis/generation.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/json.h"
#include "controller/apis/apis.h"
#include "controller/apis/common.h"
#include "controller/apis/completion.h"
#include "controller/apis/resume.h"
#include "controller/jobs/mailbox.h"
#include "controller/http/api_keys.h"
#include "controller/request/api.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	PROMPTS_MAX = 2048,   /* per request, OpenAI's limit for lists of inputs */
	CHOICES_MAX = 4096,   /* limit of prompts times n: as many as jobs may be queued */
	LISTED_MAX = 4 << 20, /* limit of prompts times the tokens in the request's lists: each prompt's job
			       * has a copy */
};

void generation_job_key(char out[GENERATION_KEY_SIZE], const char *key, size_t n_jobs, size_t job)
{
	if (n_jobs > 1)
		snprintf(out, GENERATION_KEY_SIZE, "%s/%zu", key, job);
	else
		snprintf(out, GENERATION_KEY_SIZE, "%s", key);
}

/* Make the job an owner's: it is served from the owner's share, and shares no prefixes with other owners.
 * The user that the request names is a user of this owner. */
static void set_owner(struct submit *s, const char *owner, uint32_t share)
{
	char *salt = xasprintf("%s/%s", owner, s->cache_salt ? s->cache_salt : "");
	s->share = share;
	s->owner = xasprintf("%c%s", SUBMIT_API_KEY, owner);
	free(s->cache_salt);
	s->cache_salt = salt;
}

void generation_own_by_key(const struct exchange *x, struct submit *s)
{
	struct api_key_terms key;
	api_key_terms(x->key, &key);
	set_owner(s, key.name, key.share);
	s->priority = api_key_priority(&key, s->priority);
}

void generation_own_by_line(const struct generation_line *line, struct submit *s)
{
	if (line->peer)
		s->owner = xstrdup(line->peer);
	else if (line->owner[0])
		set_owner(s, line->owner, line->terms.share);
	const int64_t sum = (int64_t)api_key_priority(&line->terms, s->priority) + line->priority;
	s->priority = (int32_t)(sum > INT32_MAX ? INT32_MAX : sum < INT32_MIN ? INT32_MIN : sum);
}

/* Set the owner, key and flags of job i of a line. */
static void own_by_line(const struct completion *c, struct submit *s, const json_t *request, size_t i,
			const struct generation_line *line)
{
	char key[GENERATION_KEY_SIZE];
	generation_own_by_line(line, s);
	s->durable = line->durable;
	s->keep = line->keep || line->durable;
	s->existing = line->existing;
	if (!line->key[0])
		return;
	generation_job_key(key, line->key, c->n_subs, i);
	free(s->key);
	s->key = xstrdup(key);
	/* Digest the whole request only once: it may be large and have many prompts. */
	if (i)
		memcpy(s->body, c->subs[0].submit->body, sizeof s->body);
	else
		api_digest(request, s->body);
}

/* Check the limits of the whole request. */
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

static void set_chat_streams(struct completion *c, struct subrequest *s, const struct api_reply *reply,
			     const struct resume_request *resume)
{
	if (!c->forced && reply->rules.forced)
		c->forced = xstrdup(reply->rules.forced);
	if (!c->declared && reply->rules.declared)
		c->declared = json_deep_copy(reply->rules.declared);
	c->rules = reply->rules;
	c->rules.forced = c->forced;
	c->rules.declared = c->declared;
	if (c->writer->raw)
		return;
	s->chat = xcalloc(s->n_outputs, sizeof *s->chat);
	for (uint32_t k = 0; k < s->n_outputs; k++)
		chat_stream_init_as(&s->chat[k], &c->rules,
				    resume ? resume_calls(resume, s->submit, s->first + k) : 0);
}

/* Return g->resume if the jobs' stream can be resumed; otherwise NULL. */
static const struct resume_request *resume_of(const struct generation *g, const struct api_reply *reply)
{
	return g->resume && g->resume->on && reply->stream ? g->resume : NULL;
}

static int make_subrequest(struct completion *c, struct api_request *all, const json_t *request, size_t i,
			   const struct generation *g, struct api_reply *reply, struct api_problem *p)
{
	struct exchange *x = c->x;
	const struct generation_line *line = g->line ? g->line : x->line;
	struct subrequest *s = &c->subs[i];
	int rc = api_request_prompt(all, i, &s->submit, reply, p);
	if (rc)
		return rc;
	if (line)
		own_by_line(c, s->submit, request, i, line);
	else if (x->key)
		generation_own_by_key(x, s->submit);
	const struct resume_request *resume = resume_of(g, reply);
	if (resume)
		resume_own(resume, s->submit, i, c->n_subs, x->host->svc->journal != NULL,
			   json_is_integer(json_get(request, "seed")));
	const struct params *par = &s->submit->params;
	s->n_outputs = par->n;
	s->first = (uint32_t)i * par->n;
	s->n_prompt = s->submit->n_tokens;
	rc = check_size(c, par, reply, p);
	if (rc)
		return rc;
	if (chat_stream_parses(&reply->rules))
		set_chat_streams(c, s, reply, resume);
	return 0;
}

/* Set the fields that all subrequests share. */
static void set_common(struct completion *c, const struct api_reply *reply, const struct generation *g)
{
	c->model = xstrdup(reply->model ? reply->model : c->x->host->svc->model_name);
	c->stream = reply->stream;
	c->no_output = reply->no_output;
	c->created_us = clock_unix_us();
	c->created = c->created_us / 1000000;
	const struct resume_request *resume = resume_of(g, reply);
	char id[64];
	if (resume) {
		resume_id(resume, c->subs[0].submit, g->id_prefix, id, sizeof id);
		c->resume = resume_new(resume, (uint32_t)c->n_subs * c->subs[0].n_outputs, g->writer->lines);
	}
	completion_set_id(c, g->id_prefix, resume ? id : g->id);
}

/* If the key has no room for the jobs (limit is not ""), accept only existing jobs, which need no room. */
static int only_known(struct completion *c, const char *limit)
{
	if (!limit[0])
		return 0;
	if (!c->resume) {
		exchange_error(c->x, MHD_HTTP_TOO_MANY_REQUESTS, "rate_limit_error", NULL,
			       "rate_limit_exceeded", "%s", limit);
		return -ECANCELED;
	}
	snprintf(c->resume->limit, sizeof c->resume->limit, "%s", limit);
	for (size_t i = 0; i < c->n_subs; i++)
		c->subs[i].submit->existing = true;
	return 0;
}

/* Make a subrequest of every prompt, while the client is connected.  *reply: the request's. */
static int make_subrequests(struct completion *c, const json_t *request, const struct generation *g,
			    struct api_reply *reply, struct api_problem *p)
{
	const struct exchange *x = c->x;
	struct api_request *all;
	uint64_t tokens = 0;
	int rc =
		api_request_read(x->host->svc, mailbox_max_context(c->mailbox), request, g->dialect, &all, p);
	if (rc)
		return rc;
	if (g->to_context)
		api_request_to_context(all);
	for (size_t i = 0; !rc && i < c->n_subs; i++) {
		rc = exchange_is_over(c->x) ? -ECANCELED : make_subrequest(c, all, request, i, g, reply, p);
		tokens += c->subs[i].n_prompt;
	}
	api_request_free(all);
	/* Tokens of a refused or abandoned request cost the same work, so they are charged. */
	if (x->key && tokens && !g->attach && !(g->resume && g->resume->attach))
		api_key_charge(x->key, tokens, clock_us());
	return rc;
}

/* --- names of the client's API --- */

static bool in_name(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/* Replace every word that is a name of the dialect by the client's name, if there is room.  param: the field
 * of a problem; names without '_' ("user") are replaced only if they are this field, because they are also
 * ordinary words.  NULL: text is a list of names. */
static void rename_words(const struct generation_name *names, const char *param, char *text, size_t size)
{
	struct buf out = {0};
	for (const char *p = text; *p;) {
		size_t n = 0;
		while (in_name(p[n]))
			n++;
		const char *as = NULL;
		for (const struct generation_name *m = names; n && m->internal && !as; m++)
			if (strlen(m->internal) == n && memcmp(m->internal, p, n) == 0 &&
			    (!param || strchr(m->internal, '_') || strcmp(m->internal, param) == 0))
				as = m->client;
		if (as)
			buf_puts(&out, as);
		else
			buf_put(&out, p, n ? n : 1);
		p += n ? n : 1;
	}
	buf_putc(&out, '\0');
	snprintf(text, size, "%s", out.p);
	buf_fini(&out);
}

void generation_rename(const struct generation_name *names, struct api_problem *p)
{
	if (!names)
		return;
	rename_words(names, p->param, p->why, sizeof p->why);
	rename_words(names, NULL, p->param, sizeof p->param);
}

/* Set the ignored fields: first those named by the reader of the client's API, then the dialect's. */
static void add_ignored(struct exchange *x, const struct generation_name *names, struct api_reply *reply)
{
	const size_t n = strlen(x->ignored);
	if (names)
		rename_words(names, NULL, reply->ignored, sizeof reply->ignored);
	if (reply->ignored[0])
		snprintf(x->ignored + n, sizeof x->ignored - n, "%s%s", n ? ", " : "", reply->ignored);
}

/* --- the request --- */

void generation_start(struct exchange *x, const json_t *request, const struct generation *g)
{
	struct api_problem p = {.code = E_INTERNAL};
	struct api_reply reply = {0};
	size_t n = g->dialect == API_CHAT ? 1 : api_n_prompts(request);
	/* From here on the exchange frees the writer's data. */
	struct completion *c = completion_new(x, n ? n : 1, g->writer, g->writer_data);
	if (!common_check_model(x, request))
		return;
	if (n == 0 || n > PROMPTS_MAX) {
		exchange_error(x, MHD_HTTP_BAD_REQUEST, "invalid_request_error", "prompt", NULL,
			       "prompt holds %zu prompts: must be 1 to %d", n, PROMPTS_MAX);
		return;
	}
	const struct resume_request *resume = g->resume && g->resume->on ? g->resume : NULL;
	char limit[COMPLETION_LIMIT_SIZE] = "";
	if (!g->attach && !(resume && resume->attach) && !completion_begin_key(c, resume ? limit : NULL))
		return;
	int rc = g->prepare ? g->prepare(x, g->prepare_user, &p) : 0;
	if (!rc)
		rc = make_subrequests(c, request, g, &reply, &p);
	if (!rc && resume && resume->attach && !reply.stream)
		rc = api_fail(&p, E_BAD_REQUEST, "Last-Event-ID",
			      "Last-Event-ID: the request is not a stream: only streams are gone on with");
	if (!rc) {
		set_common(c, &reply, g);
		rc = only_known(c, limit);
	}
	if (rc) {
		completion_give_up(c);
		generation_rename(g->names, &p);
		if (rc != -ECANCELED)
			exchange_fail(x, p.code, p.param, p.why);
		return;
	}
	add_ignored(x, g->names, &reply);
	if (g->writer->begin)
		g->writer->begin(c, request, &reply);
	completion_submit(c);
}
