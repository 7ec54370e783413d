#include "controller/http_routes.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/version.h"
#include "controller/api.h"
#include "controller/apikeys.h"
#include "controller/http_common.h"
#include "controller/http_files.h"
#include "controller/journal.h"
#include "controller/jsonw.h"
#include "controller/metrics.h"
#include "controller/page.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	PROMPTS_MAX = 2048,   /* of a request, as OpenAI bounds its lists of inputs */
	VALUES_MAX = 4 << 20, /* in a body: as a tree, each takes many times its bytes */
	CHOICES_MAX = 4096,   /* prompts times n: as many as jobs may be queued */
	LISTED_MAX = 4 << 20, /* prompts times what lists of tokens hold: each prompt's job has its own */
};

static const char BAD[] = "invalid_request_error";

static void fail(struct exchange *x, const struct api_problem *p)
{
	exchange_fail(x, p->code, p->param, p->why);
}

/* Commas outside strings. */
static size_t count_values(const char *s, size_t n)
{
	size_t k = 0;
	bool in_string = false;
	for (size_t i = 0; i < n; i++) {
		if (s[i] == '"')
			in_string = !in_string;
		else if (in_string)
			i += s[i] == '\\';
		else
			k += s[i] == ',';
	}
	return k;
}

bool http_body_fits(struct exchange *x)
{
	if (count_values(x->body.p, x->body.len) <= VALUES_MAX)
		return true;
	exchange_body_free(x);
	exchange_error(x, MHD_HTTP_BAD_REQUEST, BAD, NULL, NULL,
		       "the request's body holds more than %d values", VALUES_MAX);
	return false;
}

/* The body as an object; NULL: x has its reply. */
static json_t *body_object(struct exchange *x)
{
	char why[256];
	json_t *o = NULL;
	if (!http_body_fits(x))
		return NULL;
	int rc = json_parse(x->body.p ? x->body.p : "", x->body.len, &o, why, sizeof why);
	exchange_body_free(x);
	if (rc) {
		exchange_error(x, MHD_HTTP_BAD_REQUEST, BAD, NULL, NULL, "the request's body is %s", why);
		return NULL;
	}
	if (!json_is_object(o)) {
		exchange_error(x, MHD_HTTP_BAD_REQUEST, BAD, NULL, NULL,
			       "the request's body must be a JSON object");
		json_decref(o);
		return NULL;
	}
	return o;
}

/* The service. */

static void call_health(struct exchange *x, const char *rest)
{
	(void)rest;
	if (!front_ready(x->host->front)) {
		exchange_fail(x, E_NOT_READY, NULL,
			      "no replica can serve now: workers are loading, or were lost");
		return;
	}
	struct buf b = {0};
	char why[256];
	struct journal *journal = x->host->svc->journal;
	buf_puts(&b, "{\"status\":\"ok\"");
	if (journal && !journal_health(journal, why, sizeof why)) {
		/* It serves; only durable jobs are refused. */
		buf_puts(&b, ",\"journal\":");
		jsonw_str(&b, why);
	}
	buf_putc(&b, '}');
	exchange_reply(x, MHD_HTTP_OK, &b);
}

static void call_version(struct exchange *x, const char *rest)
{
	(void)rest;
	struct buf b = {0};
	buf_puts(&b, "{\"version\":\"" QUERN_VERSION "\"}");
	exchange_reply(x, MHD_HTTP_OK, &b);
}

/* On the front end's thread.  x: a reference of its own. */
static void on_metrics_status(void *user, const struct engine_status *s)
{
	struct exchange *x = user;
	struct buf b = {0};
	metrics_write(x->host->svc->metrics, x->host->svc->model_name, s, &b);
	exchange_reply_as(x, MHD_HTTP_OK, "text/plain; version=0.0.4; charset=utf-8", &b);
	exchange_unref(x);
}

static void call_metrics(struct exchange *x, const char *rest)
{
	(void)rest;
	exchange_ref(x);
	exchange_park(x);
	front_status(x->host->front, on_metrics_status, x);
}

static void put_model(struct buf *b, const struct exchange *x)
{
	const struct service *svc = x->host->svc;
	buf_puts(b, "{\"id\":");
	jsonw_str(b, svc->model_name);
	buf_puts(b, ",\"object\":\"model\",\"created\":");
	jsonw_int(b, svc->started_unix);
	buf_puts(b, ",\"owned_by\":\"quern\",\"max_model_len\":");
	jsonw_uint(b, front_max_context(x->host->front));
	buf_putc(b, '}');
}

static void call_models(struct exchange *x, const char *rest)
{
	(void)rest;
	struct buf b = {0};
	buf_puts(&b, "{\"object\":\"list\",\"data\":[");
	put_model(&b, x);
	buf_puts(&b, "]}");
	exchange_reply(x, MHD_HTTP_OK, &b);
}

/* The served name, or its last part: the model's directory. */
static bool is_model(const struct service *svc, const char *name)
{
	const char *slash = strrchr(svc->model_name, '/');
	return !strcmp(name, svc->model_name) || (slash && !strcmp(name, slash + 1));
}

static void no_model(struct exchange *x, const char *name)
{
	exchange_error(x, MHD_HTTP_NOT_FOUND, BAD, "model", "model_not_found",
		       "The model '%.200s' does not exist; this service has '%s'", name,
		       x->host->svc->model_name);
}

static void call_model(struct exchange *x, const char *rest)
{
	if (!is_model(x->host->svc, rest)) {
		no_model(x, rest);
		return;
	}
	struct buf b = {0};
	put_model(&b, x);
	exchange_reply(x, MHD_HTTP_OK, &b);
}

/* Completions. */

/* false: x has its reply.  A `model` of another type is left for api_submit() to refuse. */
static bool check_model(struct exchange *x, const json_t *request)
{
	const json_t *m = json_get(request, "model");
	if (!json_is_string(m) || is_model(x->host->svc, json_string_value(m)))
		return true;
	no_model(x, json_string_value(m));
	return false;
}

/* The text that echo shows: the prompt as it was given, or the text of its ids. */
static void leg_echo(struct leg *l, const struct service *svc, const json_t *request, size_t i)
{
	const json_t *p = json_get(request, "prompt");
	const json_t *one = json_is_array(p) ? json_array_get(p, i) : p;
	if (json_is_string(p) || json_is_string(one)) {
		const json_t *s = json_is_string(p) ? p : one;
		l->echo_n = json_string_length(s);
		l->echo = xmalloc(l->echo_n + 1);
		memcpy(l->echo, json_string_value(s), l->echo_n + 1);
		return;
	}
	struct buf text = {0};
	tokenizer_decode(svc->tokenizer, l->submit->tokens, l->submit->n_tokens, l->submit->skip_special,
			 &text);
	l->echo_n = text.len;
	l->echo = buf_take(&text);
}

/* A key is served from its own share and shares no prefixes with others, whatever the request says
 * of users. */
static void own_by_key(const struct exchange *x, struct submit *s)
{
	char name[APIKEY_NAME_MAX];
	apikey_who(x->key, name, &s->share);
	free(s->user);
	s->user = xstrdup(name);
	char *salt = xasprintf("%s/%s", name, s->cache_salt ? s->cache_salt : "");
	free(s->cache_salt);
	s->cache_salt = salt;
}

/* A line of a batch: its jobs survive whatever dies, and run behind who waits for a reply. */
static void own_by_line(const struct exchange *x, struct submit *s, const json_t *request, size_t leg)
{
	const struct exchange_line *line = x->line;
	char key[EXCHANGE_KEY_SIZE];
	exchange_line_key(key, line->key, x->n_legs, leg);
	if (line->owner[0]) {
		s->share = line->share;
		free(s->user);
		s->user = xstrdup(line->owner);
		char *salt = xasprintf("%s/%s", line->owner, s->cache_salt ? s->cache_salt : "");
		free(s->cache_salt);
		s->cache_salt = salt;
	}
	free(s->key);
	s->key = xstrdup(key);
	s->durable = s->keep = true;
	s->priority = s->priority > INT32_MAX - line->priority ? INT32_MAX : s->priority + line->priority;
	/* Of the whole request, which may be large and have many prompts. */
	if (leg)
		memcpy(s->body, x->legs[0].submit->body, sizeof s->body);
	else
		api_digest(request, s->body);
}

/* What the key may run at once, and its prompts.  false: x has its reply. */
static bool begin_key(struct exchange *x)
{
	char why[160];
	uint64_t tokens = 0;
	if (!x->key)
		return true;
	int64_t now = clock_us();
	if (apikey_begin(x->key, (uint32_t)x->n_legs, false, now, &x->retry_s, why, sizeof why)) {
		exchange_error(x, MHD_HTTP_TOO_MANY_REQUESTS, "rate_limit_error", NULL,
			       "rate_limit_exceeded", "%s", why);
		return false;
	}
	x->key_jobs = (uint32_t)x->n_legs;
	for (size_t i = 0; i < x->n_legs; i++)
		tokens += x->legs[i].n_prompt;
	apikey_charge(x->key, tokens, now);
	return true;
}

static int leg_make(struct exchange *x, const json_t *request, size_t i, struct api_reply *reply,
		    struct api_problem *p)
{
	struct exchange_host *host = x->host;
	struct leg *l = &x->legs[i];
	bool chat = x->shape.chat;
	int rc = api_submit(host->svc, front_max_context(host->front), request,
			    chat ? API_CHAT : API_COMPLETIONS, i, &l->submit, reply, p);
	if (rc)
		return rc;
	if (x->key)
		own_by_key(x, l->submit);
	if (x->line)
		own_by_line(x, l->submit, request, i);
	const struct params *par = &l->submit->params;
	l->x = x;
	l->n_outputs = par->n;
	l->first = (uint32_t)i * par->n;
	l->n_prompt = l->submit->n_tokens;
	l->offset = xcalloc(par->n, sizeof *l->offset);
	if ((uint64_t)x->n_legs * par->n > CHOICES_MAX)
		return api_fail(p, E_BAD_REQUEST, "n", "%zu prompts times n = %u is more than %d choices",
				x->n_legs, par->n, CHOICES_MAX);
	uint64_t n_listed = (uint64_t)par->n_allowed + par->n_bad_ids + par->n_bias;
	if (x->n_legs * n_listed > LISTED_MAX)
		return api_fail(p, E_BAD_REQUEST, "prompt",
				"%zu prompts times %" PRIu64 " tokens in allowed_token_ids, bad_words and "
				"logit_bias is more than %d: put fewer prompts into a request",
				x->n_legs, n_listed, LISTED_MAX);
	if (reply->stream && par->prompt_logprobs >= 0)
		return api_fail(p, E_BAD_REQUEST, "stream",
				"log probabilities of the prompt (prompt_logprobs, or echo with logprobs) "
				"cannot be streamed");
	if (said_parses(&reply->rules)) {
		l->said = xcalloc(par->n, sizeof *l->said);
		if (!x->forced && reply->rules.forced)
			x->forced = xstrdup(reply->rules.forced);
		x->rules = reply->rules;
		x->rules.forced = x->forced;
		for (uint32_t k = 0; k < par->n; k++)
			said_init(&l->said[k], &x->rules);
	}
	if (reply->echo)
		leg_echo(l, host->svc, request, i);
	if (par->prompt_logprobs >= 0 || reply->return_token_ids)
		l->tokens = xmemdup(l->submit->tokens, l->n_prompt * sizeof *l->tokens);
	return 0;
}

/* What all legs have in common; from the first one. */
static void set_shape(struct exchange *x, const json_t *request, const struct api_reply *reply)
{
	const struct submit *s = x->legs[0].submit;
	struct openai_shape *sh = &x->shape;
	x->model = xstrdup(reply->model ? reply->model : x->host->svc->model_name);
	x->stream = reply->stream;
	x->return_timing = reply->return_timing;
	x->no_output = reply->no_output;
	x->continuous_usage = reply->include_usage && reply->continuous_usage;
	x->echo_logprobs = reply->echo && s->params.logprobs >= 0 && s->params.prompt_logprobs >= 0;
	snprintf(x->ignored, sizeof x->ignored, "%s", reply->ignored);
	openai_id(sh->id, sh->chat ? "chatcmpl-" : "cmpl-");
	sh->tokenizer = x->host->svc->tokenizer;
	sh->model = x->model;
	sh->created = clock_unix();
	sh->stream = reply->stream;
	sh->usage_null = reply->include_usage;
	sh->skip_special = s->skip_special;
	sh->tokens_as_ids = reply->tokens_as_ids;
	sh->return_token_ids = reply->return_token_ids;
	sh->logprobs = s->params.logprobs >= 0;
	sh->prompt_logprobs = json_get(request, "prompt_logprobs") != NULL;
}

static void generate(struct exchange *x, bool chat)
{
	json_t *request = body_object(x);
	if (!request)
		return;
	struct api_problem p = {.code = E_INTERNAL};
	struct api_reply reply = {0};
	if (!check_model(x, request))
		goto done;
	size_t n = chat ? 1 : api_n_prompts(request);
	if (n == 0 || n > PROMPTS_MAX) {
		exchange_error(x, MHD_HTTP_BAD_REQUEST, BAD, "prompt", NULL,
			       "prompt holds %zu prompts: must be 1 to %d", n, PROMPTS_MAX);
		goto done;
	}
	x->shape.chat = chat;
	x->legs = xcalloc(n, sizeof *x->legs);
	x->n_legs = n;
	for (size_t i = 0; i < n; i++)
		if (leg_make(x, request, i, &reply, &p)) {
			fail(x, &p);
			goto done;
		}
	set_shape(x, request, &reply);
	if (!begin_key(x))
		goto done;
	json_decref(request);
	exchange_submit(x);
	return;
done:
	json_decref(request);
}

static void call_completions(struct exchange *x, const char *rest)
{
	(void)rest;
	generate(x, false);
}

static void call_chat(struct exchange *x, const char *rest)
{
	(void)rest;
	generate(x, true);
}

/* Tokens: vLLM's /tokenize and /detokenize. */

static const char *const tokenize_keys[] = {
	"model",      "prompt",      "messages",  "add_special_tokens",   "return_token_strs",
	"tools",      "tool_choice", "documents", "chat_template_kwargs", "add_generation_prompt",
	"continue_final_message", NULL};
static const char *const detokenize_keys[] = {"model", "tokens", NULL};

static int check_keys(const struct service *svc, const json_t *request, const char *const *known,
		      char *ignored, size_t ignored_n, struct api_problem *p)
{
	const char *key;
	json_t *v;
	json_object_foreach((json_t *)request, key, v)
	{
		size_t i = 0;
		while (known[i] && strcmp(known[i], key) != 0)
			i++;
		if (known[i])
			continue;
		if (svc->strict)
			return api_fail(p, E_BAD_REQUEST, key, "unknown key %.100s", key);
		size_t at = strlen(ignored);
		snprintf(ignored + at, ignored_n - at, "%s%s", at ? ", " : "", key);
	}
	return 0;
}

static int get_bool(const json_t *request, const char *key, bool *out, struct api_problem *p)
{
	char why[256];
	if (json_get_bool(request, key, out, why, sizeof why))
		return api_fail(p, E_BAD_REQUEST, key, "%s", why);
	return 0;
}

static int tokenize(struct exchange *x, const json_t *request, struct token_ids *ids, bool *strs,
		    struct api_problem *p)
{
	const struct service *svc = x->host->svc;
	uint32_t context = front_max_context(x->host->front);
	const json_t *prompt = json_get(request, "prompt"), *messages = json_get(request, "messages");
	bool add_special = true;
	int rc = check_keys(svc, request, tokenize_keys, x->ignored, sizeof x->ignored, p);
	if (!rc)
		rc = get_bool(request, "add_special_tokens", &add_special, p);
	if (!rc)
		rc = get_bool(request, "return_token_strs", strs, p);
	if (rc)
		return rc;
	if (!prompt == !messages)
		return api_fail(p, E_BAD_REQUEST, "prompt",
				"exactly one of prompt and messages must be given");
	if (messages)
		return api_tokenize_messages(svc, context, request, ids, x->ignored, sizeof x->ignored, p);
	if (!json_is_string(prompt))
		return api_fail(p, E_BAD_REQUEST, "prompt", "prompt must be a string");
	return api_tokenize(svc, context, json_string_value(prompt), json_string_length(prompt), add_special,
			    ids, p);
}

static void call_tokenize(struct exchange *x, const char *rest)
{
	(void)rest;
	json_t *request = body_object(x);
	if (!request)
		return;
	struct api_problem p = {.code = E_INTERNAL};
	struct token_ids ids = {0};
	bool strs = false;
	if (!check_model(x, request))
		goto done;
	if (tokenize(x, request, &ids, &strs, &p)) {
		fail(x, &p);
		goto done;
	}
	struct buf b = {0}, piece = {0};
	buf_printf(&b, "{\"count\":%zu,\"max_model_len\":%" PRIu32 ",\"tokens\":", ids.n,
		   front_max_context(x->host->front));
	jsonw_ids(&b, ids.ids, ids.n);
	buf_puts(&b, strs ? ",\"token_strs\":[" : ",\"token_strs\":null");
	for (size_t i = 0; strs && i < ids.n; i++) {
		buf_clear(&piece);
		tokenizer_piece(x->host->svc->tokenizer, ids.ids[i], &piece);
		if (i)
			buf_putc(&b, ',');
		jsonw_string(&b, piece.p, piece.len);
	}
	buf_puts(&b, strs ? "]}" : "}");
	buf_fini(&piece);
	exchange_reply(x, MHD_HTTP_OK, &b);
done:
	token_ids_fini(&ids);
	json_decref(request);
}

static void call_detokenize(struct exchange *x, const char *rest)
{
	(void)rest;
	json_t *request = body_object(x);
	if (!request)
		return;
	const struct service *svc = x->host->svc;
	struct api_problem p = {.code = E_INTERNAL};
	struct token_ids ids = {0};
	const json_t *tokens = json_get(request, "tokens");
	if (!check_model(x, request))
		goto done;
	int rc = check_keys(svc, request, detokenize_keys, x->ignored, sizeof x->ignored, &p);
	if (!rc && !json_is_array(tokens))
		rc = api_fail(&p, E_BAD_REQUEST, "tokens", "tokens must be an array of token ids");
	if (!rc)
		rc = api_token_ids(svc, tokens, "tokens", svc->max_request_bytes, &ids, &p);
	struct buf text = {0}, b = {0};
	if (!rc && tokenizer_decode(svc->tokenizer, ids.ids, ids.n, false, &text))
		rc = api_fail(&p, E_BAD_REQUEST, "tokens", "a token id is out of range");
	if (rc) {
		fail(x, &p);
	} else {
		buf_puts(&b, "{\"prompt\":");
		jsonw_string(&b, text.p, text.len);
		buf_putc(&b, '}');
		exchange_reply(x, MHD_HTTP_OK, &b);
	}
	buf_fini(&text);
done:
	token_ids_fini(&ids);
	json_decref(request);
}

static const struct http_route routes[] = {
	{"/health", "GET, HEAD", call_health, ROUTE_OPEN},
	{"/ready", "GET, HEAD", call_health, ROUTE_OPEN},
	{"/version", "GET, HEAD", call_version, ROUTE_OPEN},
	{"/metrics", "GET, HEAD", call_metrics, 0},
	{"/v1/models", "GET, HEAD", call_models, 0},
	{"/v1/models/", "GET, HEAD", call_model, ROUTE_PREFIX},
	{"/v1/completions", "POST", call_completions, ROUTE_JSON | ROUTE_COUNTED | ROUTE_QUEUED},
	{"/v1/chat/completions", "POST", call_chat, ROUTE_JSON | ROUTE_COUNTED | ROUTE_QUEUED},
	{"/tokenize", "POST", call_tokenize, ROUTE_JSON | ROUTE_COUNTED},
	{"/detokenize", "POST", call_detokenize, ROUTE_JSON | ROUTE_COUNTED},
	{"/", "GET, HEAD", page_call_root, ROUTE_OPEN},
	{"/api/live", "GET, HEAD", page_call_live, 0},
	{"/api/cancel", "POST", page_call_cancel, ROUTE_JSON},
	{"/v1/embeddings", "POST", NULL, ROUTE_JSON},
	{"/v1/files", "GET, HEAD, POST", call_files, ROUTE_UPLOAD | ROUTE_COUNTED},
	{"/v1/files/", "GET, HEAD, DELETE", call_file, ROUTE_PREFIX},
	{"/v1/batches", "GET, HEAD, POST", call_batches, ROUTE_JSON_POST | ROUTE_COUNTED},
	{"/v1/batches/", "GET, HEAD, POST", call_batch, ROUTE_PREFIX},
};

const struct http_route *http_route_find(const char *url, const char **rest)
{
	for (size_t i = 0; i < sizeof routes / sizeof routes[0]; i++) {
		const struct http_route *r = &routes[i];
		size_t n = strlen(r->path);
		if (r->marks & ROUTE_PREFIX ? !strncmp(url, r->path, n) : !strcmp(url, r->path)) {
			*rest = url + n;
			return r;
		}
	}
	return NULL;
}
