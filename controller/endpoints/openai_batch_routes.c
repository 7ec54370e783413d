/* openai_batch_routes.c - /v1/batches: passes requests to the set of batches, and replies with the result. */
#include "controller/endpoints/openai_batch.h"

#include "base/json.h"
#include "controller/apis/common.h"
#include "controller/apis/openai/openai_json.h"
#include "controller/endpoints/endpoints.h"
#include "controller/endpoints/routes.h"
#include "controller/message/service.h"
#include "controller/http/api_keys.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	LIST_DEFAULT = 20,
	LIST_MAX = 100,
	KEEP_MIN_S = 3600,
	KEEP_MAX_S = 30 * 86400,
};

static const char BAD[] = "invalid_request_error";

static void reply_batch(struct exchange *x, const json_t *batch)
{
	struct buf b = {0};
	char *text = json_dumps(batch, JSON_COMPACT);
	buf_puts(&b, text ? text : "null");
	free(text);
	exchange_reply(x, MHD_HTTP_OK, &b);
}

/* Reply with the new batch.  Holds a reference to x. */
static void on_created(void *user, int rc, const json_t *batch, const char *param, const char *why)
{
	struct exchange *x = user;
	if (!rc)
		reply_batch(x, batch);
	else if (rc == -EINVAL)
		exchange_error(x, MHD_HTTP_BAD_REQUEST, BAD, param, NULL, "%s", why);
	else
		exchange_fail(x, E_OVERLOADED, NULL, why);
	exchange_unref(x);
}

static const char *check_keep(const json_t *o, int64_t *seconds)
{
	if (!o)
		return NULL;
	const json_t *anchor = json_object_get(o, "anchor"), *s = json_object_get(o, "seconds");
	if (!json_is_string(anchor) || strcmp(json_string_value(anchor), "created_at") != 0)
		return "output_expires_after.anchor must be created_at";
	if (!json_integral(s, seconds) || *seconds < KEEP_MIN_S || *seconds > KEEP_MAX_S)
		return "output_expires_after.seconds must be 3600 to 2592000";
	return NULL;
}

static const struct field_row rows[] = {
	{"input_file_id", FIELD_STRING, FIELD_HONOURED, 0, 0, NULL, "a file of lines, with purpose batch"},
	{"endpoint", FIELD_STRING, FIELD_HONOURED, 0, 0, NULL,
	 "the url of all lines: chat, completions, responses, embeddings, rerank or score"},
	{"completion_window", FIELD_STRING, FIELD_HONOURED, 0, 0, NULL,
	 "24h, or any number with s, m, h or d, to 30 days"},
	{"metadata", FIELD_OBJECT, FIELD_HONOURED, 0, 0, NULL, "up to 16 texts, returned as they are"},
	{"output_expires_after", FIELD_OBJECT, FIELD_HONOURED, 0, 0, NULL,
	 "{anchor: created_at, seconds: 3600 to 2592000}"},
};
const struct field_table batches_fields = {rows, sizeof rows / sizeof *rows, NULL};

static const char *text_of(const json_t *request, const char *key)
{
	const json_t *v = json_get(request, key);
	return json_is_string(v) ? json_string_value(v) : NULL;
}

static bool has_batches(struct exchange *x)
{
	if (!files_have_journal(x))
		return false;
	if (batches_ready(endpoints_of(x)->batches))
		return true;
	exchange_fail(x, E_NOT_READY, NULL, "batches need the journal: it is being read");
	return false;
}

static void create(struct exchange *x)
{
	struct openai_batch_request r = {.terms = API_KEY_NO_TERMS};
	json_t *request = common_body_object(x);
	if (!request)
		return;
	if (x->key) {
		api_key_terms(x->key, &r.terms);
		snprintf(r.owner, sizeof r.owner, "%s", r.terms.name);
	}
	r.input_file = text_of(request, "input_file_id");
	r.endpoint = text_of(request, "endpoint");
	r.window = text_of(request, "completion_window");
	r.metadata = json_get(request, "metadata");
	const char *missing = !r.input_file ? "input_file_id"
			      : !r.endpoint ? "endpoint"
			      : !r.window   ? "completion_window"
					    : NULL;
	const char *metadata = openai_check_metadata(r.metadata);
	const char *keep = check_keep(json_get(request, "output_expires_after"), &r.output_keep_s);
	struct api_problem p = {.code = E_INTERNAL};
	if (common_check_fields(x, request, &batches_fields, &p)) {
		exchange_fail(x, p.code, p.param, p.why);
		json_decref(request);
		return;
	}
	if (missing || metadata || keep) {
		const char *param = missing ? missing : metadata ? "metadata" : "output_expires_after";
		exchange_error(x, MHD_HTTP_BAD_REQUEST, BAD, param, NULL, "%s%s",
			       missing    ? missing
			       : metadata ? metadata
					  : keep,
			       missing ? " must be a string" : "");
	} else {
		exchange_ref(x);
		exchange_park(x);
		batches_create(endpoints_of(x)->batches, &r, on_created, x);
	}
	json_decref(request);
}

static void list(struct exchange *x)
{
	char owner[FILE_OWNER_SIZE], after[FILE_ID_SIZE];
	int64_t limit = LIST_DEFAULT;
	bool more;
	common_owner(x, owner);
	bool has_after = common_query(x, "after", after, sizeof after);
	if (!common_query_int(x, "limit", 1, LIST_MAX, &limit))
		return;
	json_t *data =
		batches_list(endpoints_of(x)->batches, owner, has_after ? after : NULL, (int)limit, &more);
	if (!data) {
		common_not_found(x, "batch", after);
		return;
	}
	size_t n = json_array_size(data);
	json_t *reply =
		json_pack("{s:s, s:O, s:O?, s:O?, s:b}", "object", "list", "data", data, "first_id",
			  json_object_get(json_array_get(data, 0), "id"), "last_id",
			  n ? json_object_get(json_array_get(data, n - 1), "id") : NULL, "has_more", more);
	reply_batch(x, reply);
	json_decref(reply);
	json_decref(data);
}

void batches_call(struct exchange *x, const char *rest)
{
	(void)rest;
	if (!has_batches(x))
		return;
	if (strcmp(x->method, "POST") == 0)
		create(x);
	else
		list(x);
}

void batches_call_one(struct exchange *x, const char *rest)
{
	char owner[FILE_OWNER_SIZE], id[FILE_ID_SIZE];
	bool ended = false;
	if (!has_batches(x))
		return;
	size_t n = strcspn(rest, "/");
	bool post = strcmp(x->method, "POST") == 0, cancel = strcmp(rest + n, "/cancel") == 0;
	exchange_body_free(x);
	snprintf(id, sizeof id, "%.*s", n < sizeof id ? (int)n : 0, rest);
	common_owner(x, owner);
	json_t *batch = NULL;
	if (post == cancel && (cancel || !rest[n]))
		batch = cancel ? batches_cancel(endpoints_of(x)->batches, owner, id, &ended)
			       : batches_get(endpoints_of(x)->batches, owner, id);
	if (!batch)
		common_not_found(x, "batch", rest);
	else if (ended)
		exchange_error(x, MHD_HTTP_CONFLICT, BAD, NULL, NULL,
			       "the batch can no longer be cancelled: it is %s",
			       json_string_value(json_object_get(batch, "status")));
	else
		reply_batch(x, batch);
	json_decref(batch);
}
