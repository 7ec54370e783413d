#include "controller/apis/openai/conversations_store.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/json.h"
#include "controller/apis/openai/responses_store_impl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void stored_conversation_fini(struct stored_conversation *c)
{
	free(c->metadata);
	*c = (struct stored_conversation){0};
}

void conversation_items_fini(struct conversation_items *all)
{
	for (size_t i = 0; i < all->n; i++)
		free(all->items[i].text);
	free(all->items);
	*all = (struct conversation_items){0};
}

/* --- operations: on the journal's thread --- */

static int insert_items(const struct store_op *o, struct journal_db *db)
{
	json_t *all = response_json(o->items), *item;
	const char *id = o->row.conversation;
	int64_t n;
	size_t i;
	int rc = store_int(db, "SELECT max(n) FROM conversation_items WHERE conversation = ?",
			   JOURNAL_VALUES(journal_text(id)), 0, &n);
	json_array_foreach(all, i, item)
	{
		char *text = rc ? NULL : json_dumps(item, JSON_COMPACT | JSON_REAL_PRECISION(17));
		const char *item_id = json_string_value(json_get(item, "id"));
		if (text && item_id)
			rc = journal_run(
				db,
				"INSERT OR IGNORE INTO conversation_items(conversation, n, id, bytes, item)"
				" VALUES(?, ?, ?, ?, ?)",
				JOURNAL_VALUES(journal_text(id), journal_int(++n), journal_text(item_id),
					       journal_int((int64_t)strlen(text) + ITEM_BYTES),
					       journal_text(text)));
		free(text);
	}
	json_decref(all);
	return rc;
}

int conversations_add_items(const struct store_op *o, struct journal_db *db, const char *owner)
{
	const char *id = o->row.conversation;
	int64_t there;
	if (!id[0] || !o->items)
		return SQLITE_OK;
	int rc = store_int(db, "SELECT count(*) FROM conversations WHERE id = ? AND owner = ?",
			   JOURNAL_VALUES(journal_text(id), journal_text(owner)), 0, &there);
	if (rc || !there)
		return rc;
	rc = store_make_room(o, db, owner, id, 0, (int64_t)strlen(o->items));
	if (!rc)
		rc = insert_items(o, db);
	return rc ? rc
		  : journal_run(
			    db, "UPDATE conversations SET expires_at = ? WHERE id = ?",
			    JOURNAL_VALUES(journal_int(o->now + o->store->limits.keep_s), journal_text(id)));
}

static int fail(struct store_op *o, int rc, const char *why)
{
	o->rc = rc;
	snprintf(o->why, sizeof o->why, "%s", why);
	return SQLITE_ABORT;
}

/* Check that the conversation has room for the items. */
static int check_room(struct store_op *o, struct journal_db *db)
{
	const struct responses_limits *l = &o->store->limits;
	int64_t n = 0, bytes = 0;
	sqlite3_stmt *q = journal_query(
		db, "SELECT n_items, bytes FROM conversations WHERE id = ? AND owner = ? AND expires_at > ?",
		JOURNAL_VALUES(journal_text(o->row.conversation), journal_text(o->row.owner),
			       journal_int(o->now)));
	if (!q)
		return journal_error(db);
	const int rc = sqlite3_step(q);
	if (rc == SQLITE_ROW) {
		n = sqlite3_column_int64(q, 0);
		bytes = sqlite3_column_int64(q, 1);
	}
	sqlite3_reset(q);
	if (rc == SQLITE_DONE)
		return fail(o, -ENOENT, "the conversation is gone");
	if (rc != SQLITE_ROW)
		return rc;
	if (n + o->row.n_before > l->conversation_items ||
	    bytes + (int64_t)strlen(o->items) > l->conversation_bytes)
		return fail(o, -EINVAL,
			    "the conversation has as many items or bytes as it may have: begin another");
	return SQLITE_OK;
}

static int run_create(struct journal_op *op, struct journal_db *db)
{
	struct store_op *o = (struct store_op *)op;
	const struct response_row *r = &o->row;
	const int64_t bytes = ROW_BYTES + (int64_t)strlen(r->body);
	int rc = store_make_room(o, db, r->owner, "", 1, bytes);
	if (!rc)
		rc = journal_run(
			db,
			"INSERT INTO conversations(id, owner, created_at, expires_at, n_items, bytes,"
			" metadata) VALUES(?, ?, ?, ?, 0, ?, ?)",
			JOURNAL_VALUES(journal_text(r->conversation), journal_text(r->owner),
				       journal_int(r->created_at),
				       journal_int(o->now + o->store->limits.keep_s), journal_int(bytes),
				       journal_text(r->body)));
	return rc ? rc : conversations_add_items(o, db, r->owner);
}

static int run_add(struct journal_op *op, struct journal_db *db)
{
	struct store_op *o = (struct store_op *)op;
	const int rc = check_room(o, db);
	return rc ? rc : conversations_add_items(o, db, o->row.owner);
}

static int run_append(struct journal_op *op, struct journal_db *db)
{
	const struct store_op *o = (struct store_op *)op;
	return conversations_add_items(o, db, o->row.owner);
}

static int run_update(struct journal_op *op, struct journal_db *db)
{
	const struct store_op *o = (struct store_op *)op;
	return journal_run(db,
			   "UPDATE conversations SET bytes = bytes - length(CAST(metadata AS BLOB)) + ?1,"
			   " metadata = ?2, expires_at = ?3 WHERE id = ?4 AND owner = ?5",
			   JOURNAL_VALUES(journal_int((int64_t)strlen(o->row.body)),
					  journal_text(o->row.body),
					  journal_int(o->now + o->store->limits.keep_s),
					  journal_text(o->row.conversation), journal_text(o->row.owner)));
}

static int run_delete(struct journal_op *op, struct journal_db *db)
{
	const struct store_op *o = (struct store_op *)op;
	return journal_run(db, "DELETE FROM conversations WHERE id = ? AND owner = ?",
			   JOURNAL_VALUES(journal_text(o->row.conversation), journal_text(o->row.owner)));
}

static int run_remove(struct journal_op *op, struct journal_db *db)
{
	const struct store_op *o = (struct store_op *)op;
	return journal_run(db,
			   "DELETE FROM conversation_items WHERE conversation = ?1 AND id = ?2 AND EXISTS"
			   " (SELECT 1 FROM conversations WHERE id = ?1 AND owner = ?3)",
			   JOURNAL_VALUES(journal_text(o->row.conversation), journal_text(o->item),
					  journal_text(o->row.owner)));
}

/* --- changes: any thread --- */

static struct store_op *change(struct responses_store *s,
			       int (*run)(struct journal_op *, struct journal_db *), const char *owner,
			       const char *id, conversations_done *done, void *user)
{
	struct store_op *o = store_op_new(s, run);
	snprintf(o->row.owner, sizeof o->row.owner, "%s", owner);
	snprintf(o->row.conversation, sizeof o->row.conversation, "%s", id);
	o->op.need = JOURNAL_JOB;
	o->done = done;
	o->user = user;
	return o;
}

void conversations_create(struct responses_store *s, const struct stored_conversation *c, const json_t *items,
			  conversations_done *done, void *user)
{
	struct store_op *o = change(s, run_create, c->owner, c->id, done, user);
	o->row.created_at = c->created_at;
	o->row.body = xstrdup(c->metadata);
	o->items = json_array_size(items) ? json_dumps(items, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
	store_op_put(o, false);
}

void conversations_update(struct responses_store *s, const char *owner, const char *id, const char *metadata,
			  conversations_done *done, void *user)
{
	struct store_op *o = change(s, run_update, owner, id, done, user);
	o->row.body = xstrdup(metadata);
	store_op_put(o, false);
}

void conversations_delete(struct responses_store *s, const char *owner, const char *id,
			  conversations_done *done, void *user)
{
	struct store_op *o = change(s, run_delete, owner, id, done, user);
	o->op.need = JOURNAL_END;
	o->op.frees = true;
	store_op_put(o, false);
}

void conversations_add(struct responses_store *s, const char *owner, const char *id, const json_t *items,
		       conversations_done *done, void *user)
{
	struct store_op *o = change(s, run_add, owner, id, done, user);
	o->row.n_before = (int64_t)json_array_size(items);
	o->items = json_dumps(items, JSON_COMPACT | JSON_REAL_PRECISION(17));
	store_op_put(o, false);
}

void conversations_remove(struct responses_store *s, const char *owner, const char *id, const char *item,
			  conversations_done *done, void *user)
{
	struct store_op *o = change(s, run_remove, owner, id, done, user);
	snprintf(o->item, sizeof o->item, "%s", item);
	o->op.need = JOURNAL_END;
	o->op.frees = true;
	store_op_put(o, false);
}

void conversations_append(struct responses_store *s, const char *owner, const char *id, const char *items,
			  conversations_done *done, void *user)
{
	struct store_op *o = change(s, run_append, owner, id, done, user);
	o->op.need = JOURNAL_END; /* the response began while there was room */
	o->items = xstrdup(items);
	store_op_put(o, true);
}

/* --- reading --- */

static int read_one(struct journal_db *db, const char *owner, const char *id, struct stored_conversation *out)
{
	sqlite3_stmt *q = journal_query(
		db,
		"SELECT created_at, metadata FROM conversations WHERE id = ? AND owner = ? AND expires_at > "
		"?",
		JOURNAL_VALUES(journal_text(id), journal_text(owner), journal_int(clock_unix())));
	if (!q)
		return -EIO;
	const int step = sqlite3_step(q);
	if (step == SQLITE_ROW) {
		snprintf(out->id, sizeof out->id, "%s", id);
		snprintf(out->owner, sizeof out->owner, "%s", owner);
		out->created_at = sqlite3_column_int64(q, 0);
		const char *metadata = (const char *)sqlite3_column_text(q, 1);
		out->metadata = xstrdup(metadata ? metadata : "{}");
	}
	sqlite3_reset(q);
	return step == SQLITE_ROW ? 0 : step == SQLITE_DONE ? -ENOENT : -EIO;
}

int conversations_get(struct responses_store *s, const char *owner, const char *id,
		      struct stored_conversation *out)
{
	*out = (struct stored_conversation){0};
	struct journal_db *db = store_read_begin(s);
	if (!db)
		return -EIO;
	const int rc = read_one(db, owner, id, out);
	store_read_end(s);
	return rc;
}

/* Append an item.  Takes text. */
static void add_item(struct conversation_items *all, const char *id, char *text)
{
	array_grow(all->items, all->cap, all->n + 1);
	struct conversation_item *item = &all->items[all->n++];
	snprintf(item->id, sizeof item->id, "%s", id);
	item->text = text;
	all->bytes += strlen(text);
}

static int read_items(struct journal_db *db, const char *id, struct conversation_items *out)
{
	sqlite3_stmt *q =
		journal_query(db, "SELECT id, item FROM conversation_items WHERE conversation = ? ORDER BY n",
			      JOURNAL_VALUES(journal_text(id)));
	int step = q ? SQLITE_ROW : SQLITE_ERROR;
	while (q && (step = sqlite3_step(q)) == SQLITE_ROW) {
		const char *item_id = (const char *)sqlite3_column_text(q, 0);
		const char *text = (const char *)sqlite3_column_text(q, 1);
		if (item_id && text)
			add_item(out, item_id, xstrdup(text));
	}
	if (q)
		sqlite3_reset(q);
	return step == SQLITE_DONE ? 0 : -EIO;
}

struct held {
	struct store_op **ops; /* [n], newest first; each is a reference */
	size_t n, cap;
};

static void hold(struct responses_store *s, const char *id, struct held *h)
{
	pthread_mutex_lock(&s->lock);
	for (struct store_op *o = s->waiting; o; o = o->next) {
		if (!o->items || strcmp(o->row.conversation, id) != 0)
			continue;
		array_grow(h->ops, h->cap, h->n + 1);
		h->ops[h->n++] = o;
		o->refs++;
	}
	pthread_mutex_unlock(&s->lock);
}

static bool has_item(const struct conversation_items *all, const char *id)
{
	for (size_t i = all->n; i > 0; i--) /* an equal id is among the last, if at all */
		if (strcmp(all->items[i - 1].id, id) == 0)
			return true;
	return false;
}

static void add_held(struct conversation_items *all, const struct store_op *o)
{
	json_t *items = response_json(o->items), *item;
	size_t i;
	json_array_foreach(items, i, item)
	{
		const char *id = json_string_value(json_get(item, "id"));
		if (id && !has_item(all, id))
			add_item(all, id, json_dumps(item, JSON_COMPACT | JSON_REAL_PRECISION(17)));
	}
	json_decref(items);
}

int conversations_read(struct responses_store *s, const char *owner, const char *id,
		       struct conversation_items *out)
{
	struct stored_conversation c = {0};
	struct held held = {0};
	*out = (struct conversation_items){0};
	/* Read the waiting operations first: those that leave the list meanwhile are on disk by then. */
	hold(s, id, &held);
	struct journal_db *db = store_read_begin(s);
	int rc = db ? read_one(db, owner, id, &c) : -EIO;
	if (!rc)
		rc = read_items(db, id, out);
	if (db)
		store_read_end(s);
	for (size_t i = held.n; i > 0; i--) {
		if (!rc)
			add_held(out, held.ops[i - 1]);
		store_op_unref(held.ops[i - 1]);
	}
	free(held.ops);
	stored_conversation_fini(&c);
	if (rc)
		conversation_items_fini(out);
	return rc;
}

int conversations_pending(struct responses_store *s, const char *id, char (*out)[RESPONSE_ID_SIZE], int max)
{
	int n = 0, step = SQLITE_ERROR;
	struct journal_db *db = store_read_begin(s);
	if (!db)
		return -EIO;
	sqlite3_stmt *q = journal_query(db,
					"SELECT id FROM responses WHERE conversation = ? AND done = 0 AND"
					" conversation <> '' LIMIT ?",
					JOURNAL_VALUES(journal_text(id), journal_int(max)));
	while (q && n < max && (step = sqlite3_step(q)) == SQLITE_ROW)
		snprintf(out[n++], RESPONSE_ID_SIZE, "%s", (const char *)sqlite3_column_text(q, 0));
	if (q)
		sqlite3_reset(q);
	store_read_end(s);
	return n || step == SQLITE_DONE ? n : -EIO;
}
