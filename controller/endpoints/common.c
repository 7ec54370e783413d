#include "controller/endpoints/common.h"

#include "base/json.h"
#include "controller/message/service.h"
#include "controller/http/api_keys.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VALUES_MAX = 4 << 20 /* in a body: as a tree, each takes many times its bytes */ };

static const char BAD[] = "invalid_request_error";

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

bool common_body_fits(struct exchange *x)
{
	if (count_values(x->body.p, x->body.len) <= VALUES_MAX)
		return true;
	exchange_body_free(x);
	exchange_error(x, MHD_HTTP_BAD_REQUEST, BAD, NULL, NULL,
		       "the request's body holds more than %d values", VALUES_MAX);
	return false;
}

json_t *common_body_object(struct exchange *x)
{
	char why[256];
	json_t *o = NULL;
	if (!common_body_fits(x))
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

bool common_has_journal(struct exchange *x)
{
	if (endpoints_of(x)->files)
		return true;
	exchange_error(x, MHD_HTTP_NOT_IMPLEMENTED, BAD, NULL, "not_implemented",
		       "files and batches need a journal: start the service with --journal FILE");
	return false;
}

void common_owner(const struct exchange *x, char owner[FILE_OWNER_SIZE])
{
	uint32_t share;
	_Static_assert((int)FILE_OWNER_SIZE >= (int)APIKEY_NAME_MAX, "names of keys are owners");
	owner[0] = 0;
	if (x->key)
		api_key_name(x->key, owner, &share);
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
	return !strcmp(name, svc->model_name) || (slash && !strcmp(name, slash + 1));
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
