#include "controller/apis/openai/openai.h"

#include "base/alloc.h"
#include "base/entropy.h"
#include "base/json.h"
#include "controller/apis/apis.h"
#include "controller/apis/common.h"
#include "controller/apis/generation.h"
#include "controller/apis/openai/conversations_store.h"
#include "controller/apis/openai/responses_read.h"
#include "controller/apis/openai/responses_answer.h"
#include "controller/apis/openai/responses_runs.h"
#include "controller/http/api_keys.h"
#include "controller/message/service.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

static const char BAD[] = "invalid_request_error";

enum { LIST_MAX = 100, LIST_DEFAULT = 20 };

/* --- creating a response --- */

struct creation {
	json_t *client, *request, *history, *items; /* owned */
	char owner[FILE_OWNER_SIZE];
	char id[FILE_ID_SIZE];    /* id of the response; "": drawn */
	const char *conversation; /* points into client; NULL: none */
	bool stored, background, stream;
};

static void creation_fini(struct creation *c)
{
	json_decref(c->client);
	json_decref(c->request);
	json_decref(c->history);
	json_decref(c->items);
}

static int not_stored(const char *field, struct api_problem *p)
{
	return api_fail(p, E_BAD_REQUEST, field,
			"%s needs stored responses: start the service with --journal FILE", field);
}

/* Read the items that precede the previous response, its input and its output. */
static int read_previous(struct responses *rs, struct creation *c, const char *id, struct api_problem *p)
{
	static const char field[] = "previous_response_id";
	struct response_row row;
	if (responses_store_get(responses_store_of(rs), c->owner, id, &row))
		return api_fail(p, E_BAD_REQUEST, field, "%s: no such response: %.100s", field, id);
	int rc = row.done ? 0
			  : api_fail(p, E_BAD_REQUEST, field, "%s: %.100s is not done yet: wait for its end",
				     field, id);
	json_t *body = response_json(row.body);
	c->history = response_json(row.context);
	json_array_extend(c->history, json_object_get(body, "output"));
	json_decref(body);
	response_row_fini(&row);
	return rc;
}

/* Read all items of the conversation. */
static int read_conversation(struct responses *rs, struct creation *c, struct api_problem *p)
{
	struct conversation_items all;
	responses_run_pending(rs, c->owner, c->conversation);
	const int rc = conversations_read(responses_store_of(rs), c->owner, c->conversation, &all);
	if (rc == -ENOENT)
		return api_fail(p, E_NO_SUCH_JOB, "conversation", "no such conversation: %.100s",
				c->conversation);
	if (rc)
		return api_fail(p, E_NOT_READY, "conversation",
				"conversations cannot be read: the journal's disk fails");
	c->history = json_array();
	for (size_t i = 0; i < all.n; i++)
		json_array_append_new(c->history, response_json(all.items[i].text));
	conversation_items_fini(&all);
	if (json_array_size(c->history) < CONVERSATION_ITEMS_MAX)
		return 0;
	return api_fail(p, E_TOO_LONG, "conversation", "the conversation has %d items: begin another",
			CONVERSATION_ITEMS_MAX);
}

/* Read the items that precede the input. */
static int read_history(const struct exchange *x, struct creation *c, struct api_problem *p)
{
	struct responses *rs = apis_of(x)->responses;
	const char *previous = json_string_value(json_get(c->client, "previous_response_id"));
	const json_t *conversation = json_get(c->client, "conversation");
	c->conversation = responses_conversation(c->client);
	if (conversation && !c->conversation)
		return api_fail(p, E_BAD_REQUEST, "conversation",
				"conversation must be an id, or an object with one as its id");
	if (previous && conversation)
		return api_fail(p, E_BAD_REQUEST, "previous_response_id",
				"previous_response_id and conversation: only one may precede the input");
	if (!rs && (previous || conversation))
		return not_stored(previous ? "previous_response_id" : "conversation", p);
	if (previous)
		return read_previous(rs, c, previous, p);
	return conversation ? read_conversation(rs, c, p) : 0;
}

static int read_creation(struct exchange *x, struct creation *c, struct api_problem *p)
{
	int rc = common_check_fields(x, c->client, &responses_fields, p);
	if (rc)
		return rc;
	if (json_get(json_get(c->client, "text"), "verbosity"))
		field_table_ignore(x->ignored, sizeof x->ignored, "text.verbosity");
	if (json_get(json_get(c->client, "reasoning"), "summary"))
		field_table_ignore(x->ignored, sizeof x->ignored, "reasoning.summary");
	c->background = json_is_true(json_get(c->client, "background"));
	c->stream = json_is_true(json_get(c->client, "stream"));
	if (c->background && !apis_of(x)->responses)
		return not_stored("background", p);
	if (c->background && !c->stored)
		return api_fail(p, E_BAD_REQUEST, "store",
				"store is false: a response in the background must "
				"be stored");
	rc = read_history(x, c, p);
	if (!rc)
		rc = responses_read(c->client, c->history, &c->request, &c->items, p);
	if (!rc && c->conversation) {
		json_t *named = response_items_named(c->items);
		json_decref(c->items);
		c->items = named;
	}
	return rc;
}

/* Fill in the stored fields known so far. */
static int fill_row(struct exchange *x, struct creation *c, struct response_row *row, struct api_problem *p)
{
	const char *field = c->conversation ? "conversation" : "previous_response_id";
	snprintf(row->owner, sizeof row->owner, "%s", c->owner);
	snprintf(row->conversation, sizeof row->conversation, "%s", c->conversation ? c->conversation : "");
	row->background = c->background;
	if (!c->stored && !c->conversation)
		return 0;
	json_t *all = c->history ? json_incref(c->history) : json_array();
	row->n_before = (int64_t)json_array_size(all);
	json_array_extend(all, c->items);
	row->context = json_dumps(all, JSON_COMPACT | JSON_REAL_PRECISION(17));
	json_decref(all);
	if (c->background) {
		/* If the job is made again from this request, it must have the same tokens. */
		if (!json_get(c->request, "seed"))
			json_object_set_new(c->request, "seed",
					    json_integer((json_int_t)(entropy_u64() >> 1)));
		json_object_set_new(c->request, "stream", json_true());
		row->request = json_dumps(c->request, JSON_COMPACT);
	}
	if (strlen(row->context) <= x->host->svc->max_request_bytes)
		return 0;
	return api_fail(p, E_TOO_LONG, field,
			"the items before and the input have more than %u bytes: begin anew",
			x->host->svc->max_request_bytes);
}

/* Create a background response.  Its job is durable, and a run stores its result. */
static void create_in_background(struct exchange *x, struct generation *g, struct responses_answer *a,
				 const json_t *request)
{
	struct generation_line line = {.terms = API_KEY_NO_TERMS, .durable = true};
	struct responses_begun begun = {0};
	char id[FILE_ID_SIZE], owner[FILE_OWNER_SIZE];
	struct api_key *key = x->key;
	if (g->id)
		snprintf(id, sizeof id, "%s", g->id);
	else
		file_store_id(id, "resp_");
	struct run *run = responses_run_reserve(apis_of(x)->responses, id);
	if (!run) {
		responses_writer.free(a);
		exchange_fail(x, E_NOT_READY, NULL, SERVICE_ENDING);
		return;
	}
	snprintf(owner, sizeof owner, "%s", a->row.owner);
	snprintf(line.key, sizeof line.key, "%s", id);
	line.owner = owner;
	if (key)
		api_key_terms(key, &line.terms);
	else if (x->line)
		line.terms = x->line->terms;
	a->begun = &begun;
	g->line = &line;
	g->id = id;
	generation_start(x, request, g); /* x may have been freed */
	responses_run_begin(run, &begun, key);
	response_row_fini(&begun.row);
}

static void create(struct exchange *x, struct creation *c)
{
	struct api_problem p = {.code = E_INTERNAL};
	struct responses_answer *a = xcalloc(1, sizeof *a);
	if (read_creation(x, c, &p) || fill_row(x, c, &a->row, &p)) {
		exchange_fail(x, p.code, p.param, p.why);
		responses_writer.free(a);
		return;
	}
	if (c->stored || c->conversation) {
		struct why why;
		if (responses_store_room(responses_store_of(apis_of(x)->responses), &why)) {
			responses_writer.free(a);
			exchange_error(x, MHD_HTTP_INSUFFICIENT_STORAGE, "server_error", NULL,
				       "insufficient_storage", "%s cannot be stored: %s%s",
				       c->conversation ? "the conversation's turn" : "the response", why.text,
				       c->conversation ? "" : "; with \"store\": false it is not stored");
			return;
		}
	}
	a->mode = c->background && !c->stream ? RESPONSES_BEGIN : RESPONSES_CREATE;
	a->store = c->stored ? responses_store_of(apis_of(x)->responses) : NULL;
	a->repeated = responses_repeat(c->client);
	if (c->conversation && !c->background) {
		a->conversations = responses_store_of(apis_of(x)->responses);
		a->own_items = responses_items_from(a->row.context, a->row.n_before);
	}
	struct generation g = {
		.dialect = API_CHAT,
		.writer = &responses_writer,
		.writer_data = a,
		.id_prefix = "resp_",
		.names = responses_names,
		.id = c->id[0] ? c->id : NULL,
	};
	if (c->background)
		create_in_background(x, &g, a, c->request);
	else
		generation_start(x, c->request, &g);
}

static void reply_text(struct exchange *x, const char *text)
{
	struct buf b = {0};
	buf_puts(&b, text);
	exchange_reply(x, MHD_HTTP_OK, &b);
}

/* Derive the id of a line's response from the owner, the key and the request.  A line with a key is sent
 * again if its reply was lost, and must get the same response. */
static void name_by_line(const struct exchange *x, struct creation *c)
{
	if (!c->stored || !x->line || !x->line->key[0])
		return;
	char *request = json_dumps(c->client, JSON_COMPACT | JSON_SORT_KEYS);
	char *of = xasprintf("%s\n%s\n%s", c->owner, x->line->key, request);
	const XXH128_hash_t h = XXH3_128bits(of, strlen(of));
	snprintf(c->id, sizeof c->id, "resp_%016" PRIx64 "%016" PRIx64, h.high64, h.low64);
	free(of);
	free(request);
}

/* Reply with the stored response of such a line.  false: it is not stored. */
static bool reply_again(struct exchange *x, const struct creation *c)
{
	struct response_row row;
	if (!c->id[0] ||
	    responses_store_get(responses_store_of(apis_of(x)->responses), c->owner, c->id, &row))
		return false;
	if (!row.done)
		responses_run(apis_of(x)->responses, &row, false);
	pthread_mutex_lock(&x->lock);
	snprintf(x->id, sizeof x->id, "%s", c->id);
	pthread_mutex_unlock(&x->lock);
	reply_text(x, row.body);
	response_row_fini(&row);
	return true;
}

void responses_call(struct exchange *x, const char *rest)
{
	(void)rest;
	struct creation c = {.client = common_body_object(x)};
	if (c.client) {
		common_owner(x, c.owner);
		c.stored = apis_of(x)->responses && !json_is_false(json_get(c.client, "store"));
		name_by_line(x, &c);
		if (!reply_again(x, &c))
			create(x, &c);
	}
	creation_fini(&c);
}

/* --- stored responses --- */

static void reply_tree(struct exchange *x, json_t *o)
{
	char *text = json_text(o, JSON_COMPACT | JSON_REAL_PRECISION(9));
	reply_text(x, text ? text : "null");
	free(text);
	json_decref(o);
}

static void get(struct exchange *x, const struct response_row *row)
{
	char stream[8];
	int64_t after = -1;
	const bool again = common_query(x, "stream", stream, sizeof stream) && strcmp(stream, "true") == 0;
	if (!common_query_int(x, "starting_after", 0, INT64_MAX - 1, &after))
		return;
	if (again && !row->background) {
		exchange_error(x, MHD_HTTP_BAD_REQUEST, BAD, "stream", NULL,
			       "only responses that were made in the background can be streamed again");
		return;
	}
	if (row->background && !row->done)
		responses_run(apis_of(x)->responses, row, false);
	if (again)
		responses_read_again(x, row, after);
	else
		reply_text(x, row->body);
}

struct cancelling {
	struct exchange *x; /* a reference */
	char id[RESPONSE_ID_SIZE], owner[FILE_OWNER_SIZE];
};

/* Reply when the response has ended, cancelled or by itself, and its end is stored. */
static void on_cancelled(void *user, int rc, const char *why)
{
	struct cancelling *c = user;
	struct exchange *x = c->x;
	struct response_row row = {0};
	if (!rc) {
		why = "responses cannot be read: the journal's disk fails";
		rc = responses_store_get(responses_store_of(apis_of(x)->responses), c->owner, c->id, &row);
	}
	if (exchange_is_over(x))
		;
	else if (!rc)
		reply_text(x, row.body);
	else if (rc == -ENOENT)
		common_not_found(x, "response", c->id);
	else
		exchange_fail(x, E_NOT_READY, NULL, why);
	response_row_fini(&row);
	exchange_unref(x);
	free(c);
}

static void cancel(struct exchange *x, const struct response_row *row)
{
	if (!row->background) {
		exchange_error(x, MHD_HTTP_BAD_REQUEST, BAD, NULL, NULL,
			       "only responses that were made in the background can be cancelled");
		return;
	}
	if (row->done) {
		reply_text(x, row->body);
		return;
	}
	struct cancelling *c = xcalloc(1, sizeof *c);
	c->x = x;
	snprintf(c->id, sizeof c->id, "%s", row->id);
	snprintf(c->owner, sizeof c->owner, "%s", row->owner);
	exchange_ref(x);
	exchange_park(x);
	responses_cancel(apis_of(x)->responses, row, on_cancelled, c);
}

struct deletion {
	struct exchange *x; /* a reference */
	char id[RESPONSE_ID_SIZE];
};

static void on_deleted(void *user, int rc, const char *why)
{
	struct deletion *d = user;
	if (rc)
		exchange_fail(d->x, E_OVERLOADED, NULL, why);
	else
		reply_tree(d->x,
			   json_pack("{s:s, s:s, s:b}", "id", d->id, "object", "response", "deleted", 1));
	exchange_unref(d->x);
	free(d);
}

static void delete (struct exchange *x, const struct response_row *row)
{
	struct deletion *d = xcalloc(1, sizeof *d);
	if (row->background && !row->done)
		responses_run(apis_of(x)->responses, row, true);
	d->x = x;
	snprintf(d->id, sizeof d->id, "%s", row->id);
	exchange_ref(x);
	exchange_park(x);
	responses_store_delete(responses_store_of(apis_of(x)->responses), row->id, on_deleted, d);
}

static void list_items(struct exchange *x, const struct response_row *row)
{
	char order[8], after[128], id[2 * RESPONSE_ID_SIZE];
	int64_t limit = LIST_DEFAULT;
	if (!common_query_int(x, "limit", 1, LIST_MAX, &limit))
		return;
	const bool ascending = common_query(x, "order", order, sizeof order) && strcmp(order, "asc") == 0;
	bool open = !common_query(x, "after", after, sizeof after), more = false;
	json_t *all = response_json(row->context), *data = json_array();
	const size_t from = (size_t)row->n_before, end = json_array_size(all);
	for (size_t i = from; i < end; i++) {
		const size_t at = ascending ? i : end - 1 - (i - from);
		snprintf(id, sizeof id, "item_%s%02zx", row->id + strlen("resp_"), at);
		json_t *item = response_item_listed(json_array_get(all, at), id);
		more = open && json_array_size(data) == (size_t)limit;
		if (open && !more)
			json_array_append(data, item);
		if (!open)
			open = strcmp(json_string_value(json_object_get(item, "id")), after) == 0;
		json_decref(item);
		if (more)
			break;
	}
	const size_t n = json_array_size(data);
	reply_tree(x, json_pack("{s:s, s:O, s:O?, s:O?, s:b}", "object", "list", "data", data, "first_id",
				json_object_get(json_array_get(data, 0), "id"), "last_id",
				n ? json_object_get(json_array_get(data, n - 1), "id") : NULL, "has_more",
				(int)more));
	json_decref(data);
	json_decref(all);
}

void responses_call_one(struct exchange *x, const char *rest)
{
	static const struct {
		const char *method, *path;
		void (*call)(struct exchange *x, const struct response_row *row);
	} calls[] = {
		{"GET", "", get},
		{"HEAD", "", get},
		{"DELETE", "", delete},
		{"POST", "/cancel", cancel},
		{"GET", "/input_items", list_items},
		{"HEAD", "/input_items", list_items},
	};
	struct responses *rs = apis_of(x)->responses;
	struct response_row row;
	char owner[FILE_OWNER_SIZE], id[RESPONSE_ID_SIZE];
	const size_t n = strcspn(rest, "/");
	size_t i = 0;
	exchange_body_free(x);
	if (!rs) {
		exchange_error(x, MHD_HTTP_NOT_IMPLEMENTED, BAD, NULL, "not_implemented",
			       "responses are stored in a journal: start the service with --journal FILE");
		return;
	}
	while (i < sizeof calls / sizeof calls[0] &&
	       (strcmp(x->method, calls[i].method) != 0 || strcmp(rest + n, calls[i].path) != 0))
		i++;
	snprintf(id, sizeof id, "%.*s", n < sizeof id ? (int)n : 0, rest);
	common_owner(x, owner);
	int rc = i < sizeof calls / sizeof calls[0]
			 ? responses_store_get(responses_store_of(rs), owner, id, &row)
			 : -ENOENT;
	if (rc == -ENOENT) {
		common_not_found(x, "response", rest);
		return;
	}
	if (rc) {
		exchange_fail(x, E_NOT_READY, NULL, "responses cannot be read: the journal's disk fails");
		return;
	}
	calls[i].call(x, &row);
	response_row_fini(&row);
}
