#include "controller/endpoints/pooling.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/json.h"
#include "controller/apis/common.h"
#include "controller/apis/apis.h"
#include "controller/apis/generation.h"
#include "controller/http/api_keys.h"
#include "controller/jobs/mailbox.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_BYTES_MAX = 256, DEADLINE_MS_MAX = 7 * 24 * 3600 * 1000 };

/* ---- fields ---- */

int pooling_string(const json_t *request, const char *name, const char **out, struct api_problem *p)
{
	const json_t *v = json_get(request, name);
	if (!v)
		return 0;
	if (!json_is_string(v))
		return api_fail(p, E_BAD_REQUEST, name, "%s must be a string", name);
	if (!json_string_length(v) || memchr(json_string_value(v), 0, json_string_length(v)))
		return api_fail(p, E_BAD_REQUEST, name, "%s must be a string of 1 byte or more without NUL",
				name);
	*out = json_string_value(v);
	return 0;
}

int pooling_bool(const json_t *request, const char *name, bool *out, struct api_problem *p)
{
	struct why why;
	return json_get_bool(request, name, out, &why) ? api_fail(p, E_BAD_REQUEST, name, "%s", why.text) : 0;
}

int pooling_int(const json_t *request, const char *name, int64_t lo, int64_t hi, int64_t *out,
		struct api_problem *p)
{
	const json_t *v = json_get(request, name);
	int64_t x;
	if (!v)
		return 0;
	if (!json_integral(v, &x))
		return api_fail(p, E_BAD_REQUEST, name, "%s must be an integer", name);
	if (x < lo || x > hi)
		return api_fail(p, E_BAD_REQUEST, name, "%s is %lld, must be from %lld to %lld", name,
				(long long)x, (long long)lo, (long long)hi);
	*out = x;
	return 0;
}

/* Read a name of at most NAME_BYTES_MAX bytes; "" counts as absent. */
static int get_name(const json_t *request, const char *name, const char **out, struct api_problem *p)
{
	const json_t *v = json_get(request, name);
	if (json_is_string(v) && json_string_length(v) > NAME_BYTES_MAX)
		return api_fail(p, E_BAD_REQUEST, name, "%s has %zu bytes, at most %d are taken", name,
				json_string_length(v), NAME_BYTES_MAX);
	return json_is_string(v) && !json_string_length(v) ? 0 : pooling_string(request, name, out, p);
}

static const struct field_row rows[] = {
	{"model", FIELD_STRING, FIELD_HONOURED, 0, 0, NULL, "the service's model, or absent"},
	{"user", FIELD_STRING, FIELD_HONOURED, 0, 0, NULL,
	 "a name of at most 256 bytes: users are served in fair turns"},
	{"cache_salt", FIELD_STRING, FIELD_HONOURED, 0, 0, NULL,
	 "cached prefixes are shared with requests of the same salt only"},
	{"priority", FIELD_INTEGER, FIELD_HONOURED, INT32_MIN, INT32_MAX, NULL, "lower ones run first"},
	{"deadline_ms", FIELD_INTEGER, FIELD_HONOURED, 1, DEADLINE_MS_MAX, NULL, "cancelled after this time"},
	{"truncate_prompt_tokens", FIELD_INTEGER, FIELD_HONOURED, -1, INT32_MAX, NULL,
	 "a longer input loses its end; -1: what the context holds"},
	{"add_special_tokens", FIELD_BOOLEAN, FIELD_HONOURED, 0, 0, NULL,
	 "the tokenizer adds its own (true)"},
};
const struct field_table pooling_table = {rows, sizeof rows / sizeof *rows, NULL};

int pooling_fields_read(struct exchange *x, const json_t *request, const struct field_table *table,
			struct pooling_fields *f, struct api_problem *p)
{
	const int64_t context = mailbox_max_context(apis_of(x)->mailbox);
	*f = (struct pooling_fields){.add_special = true};
	int rc = common_check_fields(x, request, table, p);
	if (rc || (rc = get_name(request, "user", &f->user, p)) ||
	    (rc = get_name(request, "cache_salt", &f->cache_salt, p)) ||
	    (rc = pooling_int(request, "priority", INT32_MIN, INT32_MAX, &f->priority, p)) ||
	    (rc = pooling_int(request, "deadline_ms", 1, DEADLINE_MS_MAX, &f->deadline_ms, p)) ||
	    (rc = pooling_int(request, "truncate_prompt_tokens", -1, INT32_MAX, &f->truncate, p)) ||
	    (rc = pooling_bool(request, "add_special_tokens", &f->add_special, p)))
		return rc;
	/* -1, as in vLLM: as many tokens as fit. */
	if (f->truncate == -1)
		f->truncate = context > 1 ? context - 1 : 1;
	else if (f->truncate == 0 && json_get(request, "truncate_prompt_tokens"))
		return api_fail(p, E_BAD_REQUEST, "truncate_prompt_tokens",
				"truncate_prompt_tokens is 0, must be -1, or 1 or more");
	return 0;
}

/* ---- prompts ---- */

/* Cut a text's own tokens from the end; the special tokens before and after them stay. */
static int cut_text(const struct service *svc, const struct request_text *text, size_t most,
		    struct token_ids *ids, struct api_problem *p)
{
	struct token_ids own = {0};
	struct request_text bare = *text;
	size_t before = 0;
	bare.flags &= ~(unsigned)TOKENIZER_ADD_SPECIAL;
	int rc = request_tokens_encode(svc, &bare, &own, p);
	const size_t added = own.n < ids->n ? ids->n - own.n : 0;
	while (before < added && memcmp(ids->ids + before, own.ids, own.n * sizeof *own.ids) != 0)
		before++;
	if (!rc && most < added)
		rc = api_fail(p, E_BAD_REQUEST, "truncate_prompt_tokens",
			      "truncate_prompt_tokens is %zu, less than the tokenizer adds", most);
	if (!rc) {
		const size_t behind = added - before, end = before + (most - added);
		memmove(ids->ids + end, ids->ids + ids->n - behind, behind * sizeof *ids->ids);
		ids->n = most;
	}
	token_ids_fini(&own);
	return rc;
}

int pooling_encode(const struct exchange *x, const struct pooling_fields *f, const json_t *input,
		   const char *field, struct token_ids *ids, struct api_problem *p)
{
	const struct service *svc = x->host->svc;
	const uint32_t context = mailbox_max_context(apis_of(x)->mailbox);
	const size_t most = f->truncate ? (size_t)f->truncate : SIZE_MAX;
	if (json_is_array(input)) {
		int rc = request_tokens_read(svc, input, field, f->truncate ? SIZE_MAX : context, ids, p);
		ids->n = !rc && ids->n > most ? most : ids->n;
		return rc;
	}
	const struct request_text text = {.field = field,
					  .p = json_string_value(input),
					  .n = json_string_length(input),
					  .flags = f->add_special ? TOKENIZER_ADD_SPECIAL : 0};
	int rc = f->truncate ? 0 : request_tokens_check_bytes(svc, context, text.n, field, p);
	if (!rc)
		rc = request_tokens_encode(svc, &text, ids, p);
	return !rc && ids->n > most ? cut_text(svc, &text, most, ids, p) : rc;
}

static char *copy(const char *s)
{
	return s ? xstrdup(s) : NULL;
}

int pooling_job(struct completion *c, size_t i, const struct pooling_fields *f, struct token_ids *ids,
		struct params *params, const char *field, struct api_problem *p)
{
	struct exchange *x = c->x;
	const uint32_t context = mailbox_max_context(c->mailbox);
	struct subrequest *s = &c->subs[i];
	struct submit *job = s->submit = xcalloc(1, sizeof *job);
	job->params = *params;
	params_init(params);
	job->params.max_tokens = 1;
	job->params.temperature = 0;
	job->tokens = ids->ids;
	*ids = (struct token_ids){.n = ids->n};
	const size_t n = ids->n;
	if (n == 0)
		return api_fail(p, E_BAD_REQUEST, field, "%s has no tokens", field);
	if (n >= context)
		return api_fail(p, E_TOO_LONG, field, "%s has %zu tokens, at most %u are possible", field, n,
				context ? context - 1 : 0);
	job->n_tokens = s->n_prompt = (uint32_t)n;
	job->user = copy(f->user);
	job->cache_salt = copy(f->cache_salt);
	job->priority = (int32_t)f->priority;
	job->deadline_us = f->deadline_ms ? clock_us() + f->deadline_ms * 1000 : 0;
	s->n_outputs = 1;
	s->first = (uint32_t)i;
	/* A vector is not stored: if its reply is lost, it is computed again. */
	if (x->line)
		generation_own_by_line(x->line, job);
	else if (x->key)
		generation_own_by_key(x, job);
	return 0;
}

/* ---- the request ---- */

struct completion *pooling_begin(struct exchange *x, size_t n, const struct answer_writer *writer, void *data)
{
	struct completion *c = completion_new(x, n, writer, data);
	return completion_begin_key(c, NULL) ? c : NULL;
}

const char *pooling_verdict(const struct job_event *e, bool numbers)
{
	if (numbers)
		return NULL;
	return e->pooled ? "the model's output is not a number" : "the job was cancelled";
}

void pooling_submit(struct completion *c, int rc, const struct api_problem *p, const char *id_prefix)
{
	struct exchange *x = c->x;
	uint64_t tokens = 0;
	for (size_t i = 0; i < c->n_subs; i++)
		tokens += c->subs[i].n_prompt;
	/* Tokens of a refused or abandoned request cost the same work, so they are charged. */
	if (x->key && tokens)
		api_key_charge(x->key, tokens, clock_us());
	if (rc) {
		completion_give_up(c);
		if (rc != -ECANCELED)
			exchange_fail(x, p->code, p->param, p->why);
		return;
	}
	completion_set_id(c, id_prefix, NULL);
	c->created = clock_unix();
	c->model = xstrdup(x->host->svc->model_name);
	completion_submit(c);
}

/* ---- vectors ---- */

bool pooling_vector(const float *values, uint32_t n, bool normalize, float *out)
{
	const double sum = pooling_dot(values, values, n);
	if (!isfinite(sum))
		return false;
	const double by = normalize && sum > 0 ? 1 / sqrt(sum) : 1;
	for (uint32_t i = 0; i < n; i++)
		out[i] = (float)(values[i] * by);
	return true;
}

double pooling_dot(const float *a, const float *b, uint32_t n)
{
	double sum = 0;
	for (uint32_t i = 0; i < n; i++)
		sum += (double)a[i] * (double)b[i];
	return sum;
}

void pooling_put_base64(struct buf *b, const float *values, uint32_t n)
{
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	const unsigned char *in = (const unsigned char *)values;
	const size_t bytes = (size_t)n * sizeof *values;
	buf_putc(b, '"');
	for (size_t i = 0; i < bytes; i += 3) {
		const size_t left = bytes - i;
		const uint32_t w = (uint32_t)in[i] << 16 | (left > 1 ? (uint32_t)in[i + 1] << 8 : 0) |
				   (left > 2 ? in[i + 2] : 0);
		const char four[4] = {digits[w >> 18], digits[w >> 12 & 63],
				      left > 1 ? digits[w >> 6 & 63] : '=', left > 2 ? digits[w & 63] : '='};
		buf_put(b, four, 4);
	}
	buf_putc(b, '"');
}
