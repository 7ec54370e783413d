#include "controller/endpoints/routes.h"

#include "base/alloc.h"
#include "base/json.h"
#include "base/json_write.h"
#include "controller/apis/common.h"
#include "controller/apis/generation.h"
#include "controller/endpoints/pooling.h"
#include "formats/config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Format of the vectors in the reply. */
struct shown {
	enum embeddings_shape shape;
	bool base64, normalize;
	uint32_t n; /* values per vector */
};

/* ---- the reply ---- */

static bool take(struct subrequest *s, const struct job_event *e)
{
	const struct shown *how = s->completion->writer_data;
	struct buf *b = &s->part;
	const uint32_t n = how->n < e->n_pooled ? how->n : e->n_pooled;
	float *v = xmalloc(n * sizeof *v);
	const bool fine = pooling_vector(e->pooled, n, how->normalize, v);
	if (how->shape == EMBEDDINGS_OPENAI)
		buf_printf(b, "{\"object\":\"embedding\",\"index\":%u,\"embedding\":", s->first);
	if (how->shape == EMBEDDINGS_LLAMACPP)
		buf_printf(b, "{\"index\":%u,\"embedding\":[", s->first);
	if (how->base64) {
		pooling_put_base64(b, v, fine ? n : 0);
	} else {
		for (uint32_t i = 0; fine && i < n; i++) {
			buf_putc(b, i ? ',' : '[');
			json_write_float(b, v[i]);
		}
		buf_putc(b, ']');
	}
	if (how->shape == EMBEDDINGS_LLAMACPP)
		buf_putc(b, ']');
	if (how->shape == EMBEDDINGS_OPENAI || how->shape == EMBEDDINGS_LLAMACPP)
		buf_putc(b, '}');
	free(v);
	return fine;
}

static const char *done(struct subrequest *s, const struct job_event *e)
{
	return pooling_verdict(e, e->pooled && take(s, e));
}

static void put_vectors(struct completion *c, struct buf *b)
{
	for (size_t i = 0; i < c->n_subs; i++) {
		if (i)
			buf_putc(b, ',');
		buf_put(b, c->subs[i].part.p, c->subs[i].part.len);
		buf_fini(&c->subs[i].part);
	}
}

static void put_ollama(struct completion *c, struct buf *b)
{
	buf_puts(b, "{\"model\":");
	json_write_str(b, c->model);
	buf_puts(b, ",\"embeddings\":[");
	put_vectors(c, b);
	buf_printf(b, "],\"total_duration\":%lld,\"load_duration\":0,\"prompt_eval_count\":%llu}",
		   (long long)c->timing.total_us * 1000, (unsigned long long)c->usage.prompt_tokens);
}

static void reply(struct completion *c, struct buf *b)
{
	const struct shown *how = c->writer_data;
	if (how->shape == EMBEDDINGS_OLLAMA) {
		put_ollama(c, b);
		return;
	}
	if (how->shape != EMBEDDINGS_OPENAI) {
		const bool one = how->shape == EMBEDDINGS_OLLAMA_ONE;
		buf_puts(b, one ? "{\"embedding\":" : "[");
		put_vectors(c, b);
		buf_putc(b, one ? '}' : ']');
		return;
	}
	buf_puts(b, "{\"object\":\"list\",\"data\":[");
	put_vectors(c, b);
	buf_puts(b, "],\"model\":");
	json_write_str(b, c->model);
	buf_printf(b, ",\"usage\":{\"prompt_tokens\":%llu,\"total_tokens\":%llu}}",
		   (unsigned long long)c->usage.prompt_tokens, (unsigned long long)c->usage.prompt_tokens);
}

static const struct answer_writer embedding = {.done = done, .body = reply, .free = free};

/* ---- the request ---- */

static const struct field_row rows[] = {
	{"input", FIELD_STRING | FIELD_ARRAY, FIELD_HONOURED, 0, 0, NULL,
	 "a text, token ids, or an array of up to 2,048 of these"},
	{"encoding_format", FIELD_STRING, FIELD_HONOURED, 0, 0, NULL,
	 "float, or base64: little-endian floats"},
	{"dimensions", FIELD_INTEGER, FIELD_HONOURED, 1, INT32_MAX, NULL,
	 "the first so many values, normalized again"},
	{"normalize", FIELD_BOOLEAN, FIELD_HONOURED, 0, 0, NULL, "vectors of the length 1"},
	{"normalize_embeddings", FIELD_BOOLEAN, FIELD_HONOURED, 0, 0, NULL, "normalize"},
	{"use_activation", FIELD_BOOLEAN, FIELD_HONOURED, 0, 0, NULL, "normalize"},
	{"pooling", FIELD_STRING, FIELD_HONOURED, 0, 0, NULL, "last or mean, instead of the model's own"},
};
const struct field_table embeddings_fields = {rows, sizeof rows / sizeof *rows, &pooling_table};

static int read_format(const json_t *request, struct shown *how, struct api_problem *p)
{
	const char *format = "float";
	int rc = pooling_string(request, "encoding_format", &format, p);
	if (rc)
		return rc;
	how->base64 = strcmp(format, "base64") == 0;
	if (!how->base64 && strcmp(format, "float") != 0)
		return api_fail(p, E_BAD_REQUEST, "encoding_format",
				"encoding_format is %.64s, must be float or base64", format);
	return 0;
}

/* Read the pooling method: the request's, or the model's. */
static int read_pooling(const json_t *request, const struct model_config *config, enum params_pool *out,
			struct api_problem *p)
{
	const char *name = config->pool == CONFIG_POOL_MEAN ? "mean" : "last";
	int rc = pooling_string(request, "pooling", &name, p);
	if (!rc && config->pool == CONFIG_POOL_OTHER && !json_get(request, "pooling"))
		return api_fail(p, E_BAD_REQUEST, "model",
				"this model's vectors are made in a way that is not supported (%s); "
				"pooling: last or mean makes others",
				config->pool_why);
	if (rc)
		return rc;
	*out = strcmp(name, "mean") == 0 ? PARAMS_POOL_MEAN : PARAMS_POOL_LAST;
	if (*out == PARAMS_POOL_LAST && strcmp(name, "last") != 0)
		return api_fail(p, E_BAD_REQUEST, "pooling", "pooling is %.64s, must be last or mean", name);
	return 0;
}

static int read_shown(const struct exchange *x, const json_t *request, struct shown *how,
		      struct api_problem *p)
{
	const struct model_config *config = x->host->svc->config;
	int64_t n = config->hidden;
	how->normalize = !config->pool_plain;
	int rc = read_format(request, how, p);
	if (!rc)
		rc = pooling_int(request, "dimensions", 1, config->hidden, &n, p);
	if (!rc)
		rc = pooling_bool(request, "normalize", &how->normalize, p);
	if (!rc)
		rc = pooling_bool(request, "normalize_embeddings", &how->normalize, p);
	if (!rc)
		rc = pooling_bool(request, "use_activation", &how->normalize, p);
	how->n = (uint32_t)n;
	return rc;
}

/* Return true for an array of strings or of arrays; an array of ids is one input. */
static bool is_many(const json_t *input)
{
	const json_t *first = json_array_get(input, 0);
	return json_is_string(first) || json_is_array(first);
}

static int make_jobs(struct completion *c, const json_t *request, const struct pooling_fields *f,
		     enum params_pool pool, struct api_problem *p)
{
	const json_t *input = json_get(request, "input");
	const bool many = is_many(input);
	int rc = 0;
	for (size_t i = 0; !rc && i < c->n_subs; i++) {
		const json_t *one = many ? json_array_get(input, i) : input;
		struct token_ids ids = {0};
		struct params params;
		char name[32] = "input";
		if (many)
			snprintf(name, sizeof name, "input[%zu]", i);
		if (exchange_is_over(c->x))
			return -ECANCELED;
		if (!json_is_string(one) && !json_is_array(one))
			return api_fail(p, E_BAD_REQUEST, "input",
					"%s must be a string or an array of token ids", name);
		if ((rc = pooling_encode(c->x, f, one, name, &ids, p))) {
			token_ids_fini(&ids);
			return rc;
		}
		params_init(&params);
		params.pool = pool;
		rc = pooling_job(c, i, f, &ids, &params, name, p);
	}
	return rc;
}

void embeddings_start(struct exchange *x, const json_t *request, enum embeddings_shape shape,
		      const struct generation_name *names)
{
	struct api_problem p = {.code = E_INTERNAL};
	struct pooling_fields f;
	struct shown *how = xcalloc(1, sizeof *how);
	how->shape = shape;
	enum params_pool pool = PARAMS_POOL_LAST;
	const json_t *input = json_get(request, "input");
	const size_t n = is_many(input) ? json_array_size(input) : 1;
	int rc = 0;
	if (!common_check_model(x, request))
		goto done;
	if ((rc = pooling_fields_read(x, request, &embeddings_fields, &f, &p)) ||
	    (rc = read_shown(x, request, how, &p)) ||
	    (rc = read_pooling(request, x->host->svc->config, &pool, &p)))
		;
	else if (!json_is_string(input) && json_array_size(input) == 0)
		rc = api_fail(&p, E_BAD_REQUEST, "input",
			      "input must be a string, an array of token ids, or an array of these");
	else if (n > POOLING_INPUTS_MAX)
		rc = api_fail(&p, E_BAD_REQUEST, "input", "input has %zu entries, at most %d are taken", n,
			      POOLING_INPUTS_MAX);
	if (rc) {
		generation_rename(names, &p);
		exchange_fail(x, p.code, p.param, p.why);
		goto done;
	}
	struct completion *c = pooling_begin(x, n, &embedding, how);
	how = NULL;
	if (!c)
		goto done;
	rc = make_jobs(c, request, &f, pool, &p);
	if (rc)
		generation_rename(names, &p);
	pooling_submit(c, rc, &p, "embd-");
	return;
done:
	free(how);
}

void embeddings_call(struct exchange *x, const char *rest)
{
	(void)rest;
	json_t *request = common_body_object(x);
	if (request)
		embeddings_start(x, request, EMBEDDINGS_OPENAI, NULL);
	json_decref(request);
}
