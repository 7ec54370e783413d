#include "controller/apis/common.h"

#include "base/json.h"
#include "controller/apis/generation.h"
#include "controller/message/service.h"
#include "controller/http/api_keys.h"
#include "controller/request/api_error.h"
#include "controller/message/submit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char BAD[] = "invalid_request_error";

/* Return the memory limit for the tree of a body: four times the largest body.  With bodies of 16 MiB this is
 * enough for a prompt of 1.4 million ids. */
static size_t max_tree(const struct service *svc)
{
	return 4 * (size_t)svc->max_request_bytes;
}

int common_body(struct exchange *x, json_t **out)
{
	struct why why;
	struct json_size size;
	*out = NULL;
	int rc = json_parse_within(x->body.p ? x->body.p : "", x->body.len, max_tree(x->host->svc), out,
				   &size, &why);
	exchange_body_free(x);
	if (!rc)
		return 0;
	exchange_error(x, MHD_HTTP_BAD_REQUEST, BAD, NULL, rc == -E2BIG ? "too_many_values" : NULL,
		       "the request's body is %s%s", why.text,
		       rc == -E2BIG ? ": send fewer prompts, messages or values in a request" : "");
	return rc;
}

json_t *common_body_object(struct exchange *x)
{
	json_t *o;
	if (common_body(x, &o))
		return NULL;
	const bool streams = x->line && json_is_true(json_get(o, "stream"));
	if (json_is_object(o) && !streams)
		return o;
	if (streams)
		exchange_error(x, MHD_HTTP_BAD_REQUEST, BAD, "stream", NULL,
			       "a batch's lines cannot be streamed");
	else
		exchange_error(x, MHD_HTTP_BAD_REQUEST, BAD, NULL, NULL,
			       "the request's body must be a JSON object");
	json_decref(o);
	return NULL;
}

void common_owner(const struct exchange *x, char owner[FILE_OWNER_SIZE])
{
	uint32_t share;
	_Static_assert((int)FILE_OWNER_SIZE >= (int)APIKEY_NAME_MAX, "names of keys are owners");
	owner[0] = 0;
	if (x->key)
		api_key_name(x->key, owner, &share);
	else if (x->line)
		snprintf(owner, FILE_OWNER_SIZE, "%s", x->line->peer ? x->line->peer : x->line->owner);
}

void common_job_owner(const struct exchange *x, char owner[COMMON_JOB_OWNER_SIZE])
{
	uint32_t share;
	owner[0] = 0;
	if (!x->key)
		return;
	owner[0] = SUBMIT_API_KEY;
	api_key_name(x->key, owner + 1, &share);
}

bool common_query(const struct exchange *x, const char *name, char *out, size_t n)
{
	const char *v = MHD_lookup_connection_value(x->conn, MHD_GET_ARGUMENT_KIND, name);
	snprintf(out, n, "%s", v ? v : "");
	return v != NULL;
}

bool common_query_int(struct exchange *x, const char *name, int64_t lo, int64_t hi, int64_t *out)
{
	char text[24], *end;
	if (!common_query(x, name, text, sizeof text))
		return true;
	errno = 0;
	long long v = strtoll(text, &end, 10);
	if (!errno && text[0] && !*end && v >= lo && v <= hi) {
		*out = v;
		return true;
	}
	exchange_error(x, MHD_HTTP_BAD_REQUEST, BAD, name, NULL, "%s must be an integer from %lld to %lld",
		       name, (long long)lo, (long long)hi);
	return false;
}

void common_not_found(struct exchange *x, const char *what, const char *id)
{
	exchange_error(x, MHD_HTTP_NOT_FOUND, BAD, NULL, "not_found", "no such %s: %.100s", what, id);
}

bool common_is_model(const struct service *svc, const char *name)
{
	const char *slash = strrchr(svc->model_name, '/');
	if (!strcmp(name, svc->model_name) || (slash && !strcmp(name, slash + 1)))
		return true;
	const size_t n = strlen(name);
	for (const char *other = svc->other_names; n && *other;) {
		const size_t k = strcspn(other, ",");
		if (k == n && memcmp(other, name, n) == 0)
			return true;
		other += k + (other[k] == ',');
	}
	return false;
}

int common_check_fields(struct exchange *x, const json_t *request, const struct field_table *t,
			struct api_problem *p)
{
	return field_table_check(t, request, x->host->svc->strict, x->ignored, sizeof x->ignored, p);
}

void common_no_model(struct exchange *x, const char *name)
{
	exchange_error(x, MHD_HTTP_NOT_FOUND, BAD, "model", "model_not_found",
		       "The model '%.200s' does not exist; this service has '%s'", name,
		       x->host->svc->model_name);
}

bool common_check_model(struct exchange *x, const json_t *request)
{
	const json_t *m = json_get(request, "model");
	if (!json_is_string(m) || common_is_model(x->host->svc, json_string_value(m)))
		return true;
	common_no_model(x, json_string_value(m));
	return false;
}
