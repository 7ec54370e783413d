#include "controller/endpoints/routes.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/json_write.h"
#include "controller/apis/common.h"
#include "controller/endpoints/endpoints.h"
#include "controller/http/api_keys.h"
#include "controller/message/service.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	FORM_BYTES = 64 << 10,  /* bytes of a form in addition to its file */
	FORM_BUFFER = 16 << 10, /* buffer of libmicrohttpd's parser: limits the headers of a part */
	FIELD_MAX = 64,         /* limit of a form's fields other than the file */
	LIST_DEFAULT = 100,     /* OpenAI's default is 10,000; clients read page by page */
	LIST_MAX = 1000,
	KEEP_MIN_S = 3600, /* OpenAI's limits of expires_after */
	KEEP_MAX_S = 30 * 86400,
};

/* A POST of a file: the work of its exchange. */
struct upload {
	struct exchange *x; /* its own exchange: not a reference */
	struct file_store *files;
	struct MHD_PostProcessor *form;
	struct file_writer *file; /* NULL until the file's first byte */
	struct file_info info;
	char purpose[FIELD_MAX], anchor[FIELD_MAX], seconds[FIELD_MAX];
	bool duplicate, too_long; /* a second file; a field longer than FIELD_MAX */
	int refused;              /* -errno of the journal, which refused the file */
	struct why why;           /* the reason; "": the file's writer has it */
	bool broken;              /* the form cannot be parsed */
	bool full;                /* the journal has no room */
	int64_t bytes;
};

/* --- uploads --- */

/* Store a chunk of a field's value. */
static void field(struct upload *u, char *out, const char *data, uint64_t at, size_t n)
{
	if (at + n >= FIELD_MAX) {
		u->too_long = true;
		return;
	}
	memcpy(out + at, data, n);
	out[at + n] = 0;
}

/* Return true if the journal is full.  The limit is that of durable jobs: before it is reached, finished jobs
 * have been forgotten. */
static bool is_full(const struct upload *u)
{
	struct journal_stats st;
	journal_stats(file_store_journal(u->files), &st);
	return st.file_bytes - st.free_bytes > u->x->host->svc->journal_bytes / 4 * 5;
}

static struct file_quota quota_of(const struct exchange *x)
{
	struct file_quota q = endpoints_of(x)->quota;
	struct api_key_quota own = {-1, -1};
	if (x->key)
		api_key_quota(x->key, &own);
	if (own.max_files >= 0)
		q.files = own.max_files;
	if (own.max_bytes >= 0)
		q.bytes = own.max_bytes;
	return q;
}

static void begin_file(struct upload *u, const char *name)
{
	u->full = is_full(u);
	/* Drop the directories of the client's path. */
	const char *slash = name ? strrchr(name, '/') : NULL;
	snprintf(u->info.name, sizeof u->info.name, "%s", slash ? slash + 1 : name ? name : "file");
	u->refused = journal_room(file_store_journal(u->files), JOURNAL_FILE, 0, &u->why);
	file_store_id(u->info.id, "file-");
	struct file_quota quota = quota_of(u->x);
	u->file = file_writer_new(u->files, &u->info, &quota);
	if (!u->refused)
		u->refused = file_writer_put(u->file, NULL, 0);
}

static enum MHD_Result on_part(void *cls, enum MHD_ValueKind kind, const char *key, const char *filename,
			       const char *type, const char *encoding, const char *data, uint64_t at,
			       size_t n)
{
	struct upload *u = cls;
	(void)kind;
	(void)type;
	(void)encoding;
	if (!key)
		return MHD_YES;
	if (strcmp(key, "file") == 0) {
		if (at == 0 && !u->file)
			begin_file(u, filename);
		else if (at == 0 && u->bytes)
			u->duplicate = true;
		u->bytes += (int64_t)n;
		if (!u->duplicate && !u->refused && !u->full)
			u->refused = file_writer_put(u->file, data, n);
	} else if (strcmp(key, "purpose") == 0) {
		field(u, u->purpose, data, at, n);
	} else if (strcmp(key, "expires_after[anchor]") == 0) {
		field(u, u->anchor, data, at, n);
	} else if (strcmp(key, "expires_after[seconds]") == 0) {
		field(u, u->seconds, data, at, n);
	} else {
		size_t have = strlen(u->x->ignored);
		if (at == 0 && !strstr(u->x->ignored, key))
			snprintf(u->x->ignored + have, sizeof u->x->ignored - have, "%s%s", have ? ", " : "",
				 key);
	}
	return MHD_YES;
}

static void upload_body(struct exchange *x, const char *p, size_t n)
{
	struct upload *u = x->work_data;
	if (!u->broken && MHD_post_process(u->form, p, n) != MHD_YES)
		u->broken = true;
}

static void upload_free(struct exchange *x)
{
	struct upload *u = x->work_data;
	if (u->form)
		MHD_destroy_post_processor(u->form);
	file_writer_abort(&u->file);
	free(u);
}

static const struct exchange_work upload_work = {.body = upload_body, .free = upload_free};

int files_upload(struct exchange *x)
{
	const struct endpoints *e = endpoints_of(x);
	if (!e->files)
		return 0; /* files_call() refuses the request */
	struct upload *u = xcalloc(1, sizeof *u);
	u->x = x;
	u->files = e->files;
	u->info.created_at = clock_unix();
	common_owner(x, u->info.owner);
	u->form = MHD_create_post_processor(x->conn, FORM_BUFFER, on_part, u);
	if (!u->form) {
		free(u);
		return -EINVAL;
	}
	x->max_body = e->max_file_bytes + FORM_BYTES;
	exchange_set_work(x, &upload_work, u);
	return 0;
}

static void put_file(struct buf *b, const struct file_info *f)
{
	buf_puts(b, "{\"id\":");
	json_write_str(b, f->id);
	buf_puts(b, ",\"object\":\"file\",\"bytes\":");
	json_write_int(b, f->bytes);
	buf_puts(b, ",\"created_at\":");
	json_write_int(b, f->created_at);
	buf_puts(b, ",\"expires_at\":");
	if (f->expires_at)
		json_write_int(b, f->expires_at);
	else
		buf_puts(b, "null");
	buf_puts(b, ",\"filename\":");
	json_write_str(b, f->name);
	buf_puts(b, ",\"purpose\":");
	json_write_str(b, f->purpose);
	buf_puts(b, ",\"status\":\"processed\",\"status_details\":null}");
}

/* A request that waits for the journal.  Holds a reference to x. */
struct pending {
	struct exchange *x;
	struct file_info info;
};

/* Refuse a file that cannot be stored, with the journal's rc and reason. */
static void refuse_file(struct exchange *x, int rc, const char *why)
{
	char text[640];
	if (rc == -EDQUOT) {
		exchange_error(x, MHD_HTTP_INSUFFICIENT_STORAGE, "server_error", "file",
			       "insufficient_storage", "the file is refused: %s", why);
		return;
	}
	if (rc == -E2BIG) {
		exchange_error(x, MHD_HTTP_TOO_MANY_REQUESTS, "insufficient_quota", "file",
			       "insufficient_quota", "the file is refused: %s", why);
		return;
	}
	snprintf(text, sizeof text,
		 "the file could not be written: the journal's disk is full or fails, or is too "
		 "slow: %s",
		 why);
	exchange_fail(x, E_INTERNAL, NULL, text);
}

static void on_uploaded(void *user, int rc, const char *why)
{
	struct pending *a = user;
	struct buf b = {0};
	if (rc) {
		refuse_file(a->x, rc, why);
	} else {
		put_file(&b, &a->info);
		exchange_reply(a->x, MHD_HTTP_OK, &b);
	}
	exchange_unref(a->x);
	free(a);
}

/* Return "", or the reason to refuse the form. */
static const char *check_upload(struct upload *u, const char **param, struct why *why)
{
	char *end;
	*param = NULL;
	/* Parse the form to its end: bytes after the last part make it malformed. */
	struct MHD_PostProcessor *form = u->form;
	u->form = NULL;
	bool whole = MHD_destroy_post_processor(form) == MHD_YES && !u->broken;
	if (!whole)
		return "the request's body is not a complete multipart/form-data form";
	*param = "file";
	if (!u->file)
		return "file is missing";
	if (u->duplicate)
		return "file is given more than once";
	*param = "purpose";
	if (u->too_long)
		return "a field of the form is too long";
	if (strcmp(u->purpose, "batch") != 0) {
		err_why(why, 0, "purpose must be batch%s%.32s", u->purpose[0] ? ", not " : "", u->purpose);
		return why->text;
	}
	if (!u->anchor[0] && !u->seconds[0])
		return "";
	*param = "expires_after";
	long s = strtol(u->seconds, &end, 10);
	if (strcmp(u->anchor, "created_at") != 0)
		return "expires_after.anchor must be created_at";
	if (!u->seconds[0] || *end || s < KEEP_MIN_S || s > KEEP_MAX_S)
		return "expires_after.seconds must be 3600 to 2592000";
	u->info.expires_at = u->info.created_at + s;
	return "";
}

static void end_upload(struct exchange *x)
{
	struct upload *u = x->work_data;
	const char *param;
	struct why why;
	const char *wrong = check_upload(u, &param, &why);
	if (wrong[0]) {
		exchange_error(x, MHD_HTTP_BAD_REQUEST, "invalid_request_error", param, NULL, "%s", wrong);
		return;
	}
	if (u->full) {
		exchange_fail(x, E_OVERLOADED, "file",
			      "the journal is full (--journal-bytes): delete files that are not needed");
		return;
	}
	if (u->refused) {
		refuse_file(x, u->refused, u->why.text[0] ? u->why.text : file_writer_why(u->file));
		return;
	}
	snprintf(u->info.purpose, sizeof u->info.purpose, "batch");
	file_writer_describe(u->file, &u->info);
	struct pending *a = xcalloc(1, sizeof *a);
	a->x = x;
	a->info = u->info;
	a->info.bytes = file_writer_bytes(u->file);
	exchange_ref(x);
	exchange_park(x);
	file_writer_commit(&u->file, NULL, on_uploaded, a);
}

/* --- lists --- */

static void list(struct exchange *x)
{
	char owner[FILE_OWNER_SIZE], after[FILE_ID_SIZE], purpose[FILE_PURPOSE_SIZE], order[8];
	int64_t limit = LIST_DEFAULT;
	common_owner(x, owner);
	bool has_after = common_query(x, "after", after, sizeof after);
	bool has_purpose = common_query(x, "purpose", purpose, sizeof purpose);
	bool ascending = common_query(x, "order", order, sizeof order) && strcmp(order, "asc") == 0;
	if (!common_query_int(x, "limit", 1, 10000, &limit))
		return;
	if (limit > LIST_MAX)
		limit = LIST_MAX;
	struct file_info *v = xcalloc((size_t)limit, sizeof *v);
	bool more;
	int n = file_store_list(endpoints_of(x)->files, owner, has_purpose ? purpose : NULL,
				has_after ? after : NULL, ascending, v, (int)limit, &more);
	struct buf b = {0};
	if (n < 0) {
		if (n == -ENOENT)
			common_not_found(x, "file", after);
		else
			exchange_fail(x, E_INTERNAL, NULL, "the journal cannot be read");
		free(v);
		return;
	}
	buf_puts(&b, "{\"object\":\"list\",\"data\":[");
	for (int i = 0; i < n; i++) {
		if (i)
			buf_putc(&b, ',');
		put_file(&b, &v[i]);
	}
	buf_puts(&b, "],\"first_id\":");
	json_write_str(&b, n ? v[0].id : NULL);
	buf_puts(&b, ",\"last_id\":");
	json_write_str(&b, n ? v[n - 1].id : NULL);
	buf_puts(&b, more ? ",\"has_more\":true}" : ",\"has_more\":false}");
	free(v);
	exchange_reply(x, MHD_HTTP_OK, &b);
}

bool files_have_journal(struct exchange *x)
{
	const struct endpoints *e = endpoints_of(x);
	struct why why;
	if (e->files && file_store_ready(e->files, &why))
		return true;
	if (e->files) {
		err_prefix(&why, 0, "files and batches need the journal");
		exchange_fail(x, E_NOT_READY, NULL, why.text);
		return false;
	}
	exchange_error(x, MHD_HTTP_NOT_IMPLEMENTED, "invalid_request_error", NULL, "not_implemented",
		       "files and batches need a journal: start the service with --journal FILE");
	return false;
}

void files_call(struct exchange *x, const char *rest)
{
	(void)rest;
	if (!files_have_journal(x))
		return;
	if (strcmp(x->method, "POST") == 0)
		end_upload(x);
	else
		list(x);
}

/* --- one file --- */

static void on_deleted(void *user, int rc, const char *why)
{
	struct pending *a = user;
	struct buf b = {0};
	if (rc == -EBUSY) {
		exchange_error(a->x, MHD_HTTP_CONFLICT, "invalid_request_error", NULL, "file_in_use", "%s",
			       why);
	} else if (rc) {
		char text[512];
		snprintf(text, sizeof text, "the file could not be deleted: %s", why);
		exchange_fail(a->x, E_INTERNAL, NULL, text);
	} else {
		buf_puts(&b, "{\"id\":");
		json_write_str(&b, a->info.id);
		buf_puts(&b, ",\"object\":\"file\",\"deleted\":true}");
		exchange_reply(a->x, MHD_HTTP_OK, &b);
	}
	exchange_unref(a->x);
	free(a);
}

/* A file sent as the reply: the work of its exchange. */
struct content {
	char id[FILE_ID_SIZE];
};

static void content_free(struct exchange *x)
{
	free(x->work_data);
}

static const struct exchange_work content_work = {.free = content_free};

static ssize_t content_read(void *cls, uint64_t pos, char *p, size_t max)
{
	struct exchange *x = cls;
	const struct content *f = x->work_data;
	ptrdiff_t n = file_store_read(endpoints_of(x)->files, f->id, (int64_t)pos, p, max);
	return n > 0 ? n : exchange_cut(x); /* never at the file's end, because the length is known */
}

static void reply_content(struct exchange *x, const struct file_info *f)
{
	struct content *content = xcalloc(1, sizeof *content);
	memcpy(content->id, f->id, sizeof content->id);
	exchange_set_work(x, &content_work, content);
	exchange_reply_content(x, "application/octet-stream", (uint64_t)f->bytes, FILE_PART, content_read);
}

void files_call_one(struct exchange *x, const char *rest)
{
	struct file_info f;
	char owner[FILE_OWNER_SIZE], id[FILE_ID_SIZE];
	if (!files_have_journal(x))
		return;
	size_t n = strcspn(rest, "/");
	bool wants_content = strcmp(rest + n, "/content") == 0;
	snprintf(id, sizeof id, "%.*s", n < sizeof id ? (int)n : 0, rest);
	common_owner(x, owner);
	if ((rest[n] && !wants_content) || !id[0] || file_store_get(endpoints_of(x)->files, owner, id, &f)) {
		common_not_found(x, "file", rest);
		return;
	}
	if (strcmp(x->method, "DELETE") == 0 && !wants_content) {
		struct pending *a = xcalloc(1, sizeof *a);
		a->x = x;
		a->info = f;
		exchange_ref(x);
		exchange_park(x);
		file_store_delete(endpoints_of(x)->files, owner, id, on_deleted, a);
	} else if (strcmp(x->method, "DELETE") == 0) {
		common_not_found(x, "path", rest);
	} else if (wants_content) {
		reply_content(x, &f);
	} else {
		struct buf b = {0};
		put_file(&b, &f);
		exchange_reply(x, MHD_HTTP_OK, &b);
	}
}
