#include "controller/apis/openai/openai.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/json.h"
#include "controller/apis/apis.h"
#include "controller/apis/common.h"
#include "controller/apis/openai/conversations_store.h"
#include "controller/apis/openai/openai_json.h"
#include "controller/apis/openai/responses_read.h"
#include "controller/apis/openai/responses_runs.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char BAD[] = "invalid_request_error";

enum {
	ITEMS_AT_ONCE = 20, /* OpenAI's limit */
	LIST_MAX = 100,
	LIST_DEFAULT = 20,
};

static const struct field_row metadata_row[] = {
	{"metadata", FIELD_OBJECT, FIELD_HONOURED, 0, 0, NULL, "up to 16 texts, returned as they are"}};
static const struct field_row items_row[] = {{"items", FIELD_ARRAY, FIELD_HONOURED, 0, 0, NULL,
					      "up to 20, as an input has them: messages of text, calls of "
					      "functions and their outputs, reasoning"}};
const struct field_table conversations_change_fields = {metadata_row, 1, NULL};
const struct field_table conversations_items_fields = {items_row, 1, NULL};
const struct field_table conversations_fields = {items_row, 1, &conversations_change_fields};

/* --- replies --- */

static void reply_tree(struct exchange *x, json_t *o)
{
	struct buf b = {0};
	char *text = json_text(o, JSON_COMPACT);
	buf_puts(&b, text ? text : "null");
	free(text);
	json_decref(o);
	exchange_reply(x, MHD_HTTP_OK, &b);
}

static json_t *shown(const struct stored_conversation *c)
{
	json_t *metadata = response_json(c->metadata);
	return json_pack("{s:s, s:s, s:I, s:o}", "id", c->id, "object", "conversation", "created_at",
			 (json_int_t)c->created_at, "metadata", metadata ? metadata : json_object());
}

static json_t *list_of(json_t *data, bool more)
{
	const size_t n = json_array_size(data);
	json_t *first = json_object_get(json_array_get(data, 0), "id");
	json_t *last = n ? json_object_get(json_array_get(data, n - 1), "id") : NULL;
	/* OpenAI's client expects both ids as strings. */
	return json_pack("{s:s, s:o, s:o, s:o, s:b}", "object", "list", "data", data, "first_id",
			 first ? json_incref(first) : json_string(""), "last_id",
			 last ? json_incref(last) : json_string(""), "has_more", (int)more);
}

/* --- changes, reported by the journal's thread --- */

struct change {
	struct exchange *x; /* a reference */
	json_t *reply;      /* owned */
	char id[RESPONSE_ID_SIZE];
};

static void on_changed(void *user, int rc, const char *why)
{
	struct change *c = user;
	if (!rc)
		reply_tree(c->x, json_incref(c->reply));
	else if (rc == -ENOENT)
		common_not_found(c->x, "conversation", c->id);
	else if (rc == -EINVAL)
		exchange_fail(c->x, E_TOO_LONG, "items", why);
	else
		exchange_fail(c->x, E_OVERLOADED, NULL, why);
	exchange_unref(c->x);
	json_decref(c->reply);
	free(c);
}

/* Park x until the change is on disk, which gives it the reply.  Takes reply. */
static struct change *change_new(struct exchange *x, const char *id, json_t *reply)
{
	struct change *c = xcalloc(1, sizeof *c);
	c->x = x;
	c->reply = reply;
	snprintf(c->id, sizeof c->id, "%s", id);
	exchange_ref(x);
	exchange_park(x);
	return c;
}

/* --- requests --- */

static struct responses_store *store_of(const struct exchange *x)
{
	return responses_store_of(apis_of(x)->responses);
}

/* Read and check the body, which the caller owns.  NULL: x has its reply. */
static json_t *read_body(struct exchange *x, const struct field_table *fields)
{
	struct api_problem p = {.code = E_INTERNAL};
	json_t *o = common_body_object(x);
	if (!o)
		return NULL;
	const char *metadata = openai_check_metadata(json_get(o, "metadata"));
	const json_t *items = json_get(o, "items");
	int rc = common_check_fields(x, o, fields, &p);
	if (!rc && fields != &conversations_items_fields && metadata)
		rc = api_fail(&p, E_BAD_REQUEST, "metadata", "%s", metadata);
	if (!rc && fields == &conversations_items_fields && !json_array_size(items))
		rc = api_fail(&p, E_BAD_REQUEST, "items", "items is missing, or has none");
	if (!rc && fields != &conversations_change_fields && json_array_size(items) > ITEMS_AT_ONCE)
		rc = api_fail(&p, E_BAD_REQUEST, "items",
			      "items has %zu, of at most %d: add the others later", json_array_size(items),
			      ITEMS_AT_ONCE);
	if (!rc && fields != &conversations_change_fields)
		rc = responses_check_items(items, "items", &p);
	if (!rc)
		return o;
	exchange_fail(x, p.code, p.param, p.why);
	json_decref(o);
	return NULL;
}

static bool has_store(struct exchange *x)
{
	if (apis_of(x)->responses)
		return true;
	exchange_error(x, MHD_HTTP_NOT_IMPLEMENTED, BAD, NULL, "not_implemented",
		       "conversations are stored in a journal: start the service with --journal FILE");
	return false;
}

void conversations_call(struct exchange *x, const char *rest)
{
	struct stored_conversation c = {.created_at = clock_unix()};
	(void)rest;
	if (!has_store(x))
		return;
	json_t *body = read_body(x, &conversations_fields);
	if (!body)
		return;
	const json_t *metadata = json_get(body, "metadata");
	json_t *items = response_items_named(json_get(body, "items"));
	c.metadata = metadata ? json_dumps(metadata, JSON_COMPACT) : xstrdup("{}");
	file_store_id(c.id, "conv_");
	common_owner(x, c.owner);
	conversations_create(store_of(x), &c, items, on_changed, change_new(x, c.id, shown(&c)));
	stored_conversation_fini(&c);
	json_decref(items);
	json_decref(body);
}

static void retrieve(struct exchange *x, const struct stored_conversation *c, const char *item)
{
	(void)item;
	reply_tree(x, shown(c));
}

static void update(struct exchange *x, const struct stored_conversation *c, const char *item)
{
	(void)item;
	json_t *body = read_body(x, &conversations_change_fields);
	if (!body)
		return;
	struct stored_conversation changed = *c;
	const json_t *metadata = json_get(body, "metadata");
	changed.metadata = metadata ? json_dumps(metadata, JSON_COMPACT) : xstrdup(c->metadata);
	conversations_update(store_of(x), c->owner, c->id, changed.metadata, on_changed,
			     change_new(x, c->id, shown(&changed)));
	free(changed.metadata);
	json_decref(body);
}

static void delete_one(struct exchange *x, const struct stored_conversation *c, const char *item)
{
	(void)item;
	json_t *reply =
		json_pack("{s:s, s:s, s:b}", "id", c->id, "object", "conversation.deleted", "deleted", 1);
	conversations_delete(store_of(x), c->owner, c->id, on_changed, change_new(x, c->id, reply));
}

static void add_items(struct exchange *x, const struct stored_conversation *c, const char *item)
{
	(void)item;
	json_t *body = read_body(x, &conversations_items_fields);
	if (!body)
		return;
	json_t *items = response_items_named(json_get(body, "items"));
	conversations_add(store_of(x), c->owner, c->id, items, on_changed,
			  change_new(x, c->id, list_of(json_incref(items), false)));
	json_decref(items);
	json_decref(body);
}

/* Read all items; false: x has its reply. */
static bool read_items(struct exchange *x, const struct stored_conversation *c,
		       struct conversation_items *all)
{
	responses_run_pending(apis_of(x)->responses, c->owner, c->id);
	const int rc = conversations_read(store_of(x), c->owner, c->id, all);
	if (rc == -ENOENT)
		common_not_found(x, "conversation", c->id);
	else if (rc)
		exchange_fail(x, E_NOT_READY, NULL, "conversations cannot be read: the journal's disk fails");
	return !rc;
}

static void list_items(struct exchange *x, const struct stored_conversation *c, const char *item)
{
	char order[8], after[RESPONSE_ID_SIZE];
	int64_t limit = LIST_DEFAULT;
	struct conversation_items all;
	(void)item;
	if (!common_query_int(x, "limit", 1, LIST_MAX, &limit))
		return;
	const bool ascending = common_query(x, "order", order, sizeof order) && strcmp(order, "asc") == 0;
	bool open = !common_query(x, "after", after, sizeof after), more = false;
	if (!read_items(x, c, &all))
		return;
	json_t *data = json_array();
	for (size_t i = 0; i < all.n && !more; i++) {
		const struct conversation_item *one = &all.items[ascending ? i : all.n - 1 - i];
		more = open && json_array_size(data) == (size_t)limit;
		if (open && !more)
			json_array_append_new(data, response_json(one->text));
		if (!open)
			open = strcmp(one->id, after) == 0;
	}
	conversation_items_fini(&all);
	reply_tree(x, list_of(data, more));
}

static void retrieve_item(struct exchange *x, const struct stored_conversation *c, const char *item)
{
	struct conversation_items all;
	json_t *found = NULL;
	if (!read_items(x, c, &all))
		return;
	for (size_t i = 0; i < all.n && !found; i++)
		if (strcmp(all.items[i].id, item) == 0)
			found = response_json(all.items[i].text);
	conversation_items_fini(&all);
	if (found)
		reply_tree(x, found);
	else
		common_not_found(x, "item", item);
}

static void delete_item(struct exchange *x, const struct stored_conversation *c, const char *item)
{
	struct conversation_items all;
	bool found = false;
	if (!read_items(x, c, &all))
		return;
	for (size_t i = 0; i < all.n && !found; i++)
		found = strcmp(all.items[i].id, item) == 0;
	conversation_items_fini(&all);
	if (found)
		conversations_remove(store_of(x), c->owner, c->id, item, on_changed,
				     change_new(x, c->id, shown(c)));
	else
		common_not_found(x, "item", item);
}

/* Functions for ID, ID/items and ID/items/ITEM (depth 0, 1, 2). */
static const struct {
	const char *method;
	int depth;
	void (*call)(struct exchange *x, const struct stored_conversation *c, const char *item);
} calls[] = {
	{"GET", 0, retrieve},       {"HEAD", 0, retrieve},     {"POST", 0, update},
	{"DELETE", 0, delete_one},  {"GET", 1, list_items},    {"HEAD", 1, list_items},
	{"POST", 1, add_items},     {"GET", 2, retrieve_item}, {"HEAD", 2, retrieve_item},
	{"DELETE", 2, delete_item},
};
enum { N_CALLS = sizeof calls / sizeof calls[0] };

/* Return the depth of "ID", "ID/items" or "ID/items/ITEM": 0, 1, 2; -1: another path. */
static int depth_of(const char *rest, char id[RESPONSE_ID_SIZE], const char **item)
{
	static const char items[] = "/items";
	const size_t n = strcspn(rest, "/");
	snprintf(id, RESPONSE_ID_SIZE, "%.*s", n < RESPONSE_ID_SIZE ? (int)n : 0, rest);
	*item = "";
	if (!rest[n])
		return 0;
	if (strncmp(rest + n, items, sizeof items - 1) != 0)
		return -1;
	rest += n + sizeof items - 1;
	if (!*rest)
		return 1;
	*item = rest + 1;
	return *rest == '/' && rest[1] && !strchr(rest + 1, '/') ? 2 : -1;
}

void conversations_call_one(struct exchange *x, const char *rest)
{
	struct stored_conversation c;
	char owner[FILE_OWNER_SIZE], id[RESPONSE_ID_SIZE];
	const char *item;
	const int depth = depth_of(rest, id, &item);
	size_t i = 0;
	if (!has_store(x))
		return;
	while (i < N_CALLS && (calls[i].depth != depth || strcmp(calls[i].method, x->method) != 0))
		i++;
	common_owner(x, owner);
	const int rc = i < N_CALLS ? conversations_get(store_of(x), owner, id, &c) : -ENOENT;
	if (rc == -ENOENT) {
		common_not_found(x, "conversation", rest);
		return;
	}
	if (rc) {
		exchange_fail(x, E_NOT_READY, NULL, "conversations cannot be read: the journal's disk fails");
		return;
	}
	calls[i].call(x, &c, item);
	stored_conversation_fini(&c);
}
