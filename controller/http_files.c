#include "controller/http_files.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "controller/apikeys.h"
#include "controller/filestore.h"
#include "controller/http_common.h"
#include "controller/jsonw.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	FORM_BUFFER = 16 << 10, /* of libmicrohttpd's parser: the longest header of a part */
	FIELD_MAX = 64,         /* of a form's fields that are not the file */
	LIST_DEFAULT = 100,     /* OpenAI's is 10,000: pages of as many make no difference to clients */
	LIST_MAX = 1000,
	KEEP_MIN_S = 3600, /* expires_after, as OpenAI bounds it */
	KEEP_MAX_S = 30 * 86400,
};

struct upload {
	struct exchange *x; /* it is its own: no reference */
	struct filestore *files;
	struct MHD_PostProcessor *form;
	struct file_writer *file; /* NULL before the file's first byte */
	struct file_info info;
	char purpose[FIELD_MAX], anchor[FIELD_MAX], seconds[FIELD_MAX];
	bool twice, too_long, refused, broken, full;
	int64_t bytes;
};

/* --- uploads --- */

/* A field's value, which comes in parts, too. */
static void field(struct upload *u, char *out, const char *data, uint64_t at, size_t n)
{
	if (at + n >= FIELD_MAX) {
		u->too_long = true;
		return;
	}
	memcpy(out + at, data, n);
	out[at + n] = 0;
}

/* As durable jobs are refused: what can be forgotten was. */
static bool is_full(const struct upload *u)
{
	struct journal_stats st;
	journal_stats(filestore_journal(u->files), &st);
	return st.file_bytes - st.free_bytes > u->x->host->svc->journal_bytes / 4 * 5;
}

static void begin_file(struct upload *u, const char *name)
{
	u->full = is_full(u);
	/* A path says nothing here. */
	const char *slash = name ? strrchr(name, '/') : NULL;
	snprintf(u->info.name, sizeof u->info.name, "%s", slash ? slash + 1 : name ? name : "file");
	filestore_id(u->info.id, "file-");
	u->file = file_writer_new(u->files, &u->info);
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
			u->twice = true;
		u->bytes += (int64_t)n;
		if (!u->twice && !u->refused && !u->full && file_writer_put(u->file, data, n))
			u->refused = true;
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

struct upload *upload_new(struct exchange *x, struct MHD_Connection *c)
{
	struct upload *u = xcalloc(1, sizeof *u);
	u->x = x;
	u->files = x->host->files;
	u->info.created_at = clock_unix();
	http_owner(x, u->info.owner);
	u->form = MHD_create_post_processor(c, FORM_BUFFER, on_part, u);
	if (u->form)
		return u;
	free(u);
	return NULL;
}

void upload_put(struct upload *u, const char *p, size_t n)
{
	if (!u->broken && MHD_post_process(u->form, p, n) != MHD_YES)
		u->broken = true;
}

void upload_free(struct upload *u)
{
	if (!u)
		return;
	if (u->form)
		MHD_destroy_post_processor(u->form);
	file_writer_abort(&u->file);
	free(u);
}

static void put_file(struct buf *b, const struct file_info *f)
{
	buf_puts(b, "{\"id\":");
	jsonw_str(b, f->id);
	buf_puts(b, ",\"object\":\"file\",\"bytes\":");
	jsonw_int(b, f->bytes);
	buf_puts(b, ",\"created_at\":");
	jsonw_int(b, f->created_at);
	buf_puts(b, ",\"expires_at\":");
	if (f->expires_at)
		jsonw_int(b, f->expires_at);
	else
		buf_puts(b, "null");
	buf_puts(b, ",\"filename\":");
	jsonw_str(b, f->name);
	buf_puts(b, ",\"purpose\":");
	jsonw_str(b, f->purpose);
	buf_puts(b, ",\"status\":\"processed\",\"status_details\":null}");
}

/* A request that waits for the journal, with a reference of its own. */
struct asked {
	struct exchange *x;
	struct file_info info;
};

static void on_uploaded(void *user, int rc, const char *why)
{
	struct asked *a = user;
	struct buf b = {0};
	(void)why;
	if (rc) {
		exchange_fail(a->x, E_INTERNAL, NULL,
			      "the file could not be written: the journal's disk is full or fails");
	} else {
		put_file(&b, &a->info);
		exchange_reply(a->x, MHD_HTTP_OK, &b);
	}
	exchange_unref(a->x);
	free(a);
}

/* "" or what is wrong with the form. */
static const char *check_upload(struct upload *u, const char **param, char *why, size_t why_n)
{
	char *end;
	*param = NULL;
	/* What stands behind the last part is found now. */
	struct MHD_PostProcessor *form = u->form;
	u->form = NULL;
	bool whole = MHD_destroy_post_processor(form) == MHD_YES && !u->broken;
	if (!whole)
		return "the request's body is no complete multipart/form-data";
	*param = "file";
	if (!u->file)
		return "file is missing";
	if (u->twice)
		return "file stands twice";
	*param = "purpose";
	if (u->too_long)
		return "a field of the form is too long";
	if (strcmp(u->purpose, "batch") != 0) {
		snprintf(why, why_n, "purpose must be batch%s%.32s", u->purpose[0] ? ", not " : "",
			 u->purpose);
		return why;
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
	struct upload *u = x->upload;
	const char *param;
	char why[128];
	const char *wrong = check_upload(u, &param, why, sizeof why);
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
		exchange_fail(x, E_INTERNAL, NULL,
			      "the file could not be written: the journal's disk is full, or too slow");
		return;
	}
	snprintf(u->info.purpose, sizeof u->info.purpose, "batch");
	file_writer_describe(u->file, &u->info);
	struct asked *a = xcalloc(1, sizeof *a);
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
	http_owner(x, owner);
	bool has_after = http_query(x, "after", after, sizeof after);
	bool has_purpose = http_query(x, "purpose", purpose, sizeof purpose);
	bool ascending = http_query(x, "order", order, sizeof order) && strcmp(order, "asc") == 0;
	if (!http_query_int(x, "limit", 1, 10000, &limit))
		return;
	if (limit > LIST_MAX)
		limit = LIST_MAX;
	struct file_info *v = xcalloc((size_t)limit, sizeof *v);
	bool more;
	int n = filestore_list(x->host->files, owner, has_purpose ? purpose : NULL, has_after ? after : NULL,
			       ascending, v, (int)limit, &more);
	struct buf b = {0};
	if (n < 0) {
		if (n == -ENOENT)
			http_not_found(x, "file", after);
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
	jsonw_str(&b, n ? v[0].id : NULL);
	buf_puts(&b, ",\"last_id\":");
	jsonw_str(&b, n ? v[n - 1].id : NULL);
	buf_puts(&b, more ? ",\"has_more\":true}" : ",\"has_more\":false}");
	free(v);
	exchange_reply(x, MHD_HTTP_OK, &b);
}

void call_files(struct exchange *x, const char *rest)
{
	(void)rest;
	if (!http_has_journal(x))
		return;
	if (strcmp(x->method, "POST") == 0)
		end_upload(x);
	else
		list(x);
}

/* --- one file --- */

static void on_deleted(void *user, int rc, const char *why)
{
	struct asked *a = user;
	struct buf b = {0};
	if (rc == -EBUSY) {
		exchange_error(a->x, MHD_HTTP_CONFLICT, "invalid_request_error", NULL, "file_in_use", "%s",
			       why);
	} else if (rc) {
		exchange_fail(a->x, E_INTERNAL, NULL,
			      "the file could not be deleted: the journal's disk fails");
	} else {
		buf_puts(&b, "{\"id\":");
		jsonw_str(&b, a->info.id);
		buf_puts(&b, ",\"object\":\"file\",\"deleted\":true}");
		exchange_reply(a->x, MHD_HTTP_OK, &b);
	}
	exchange_unref(a->x);
	free(a);
}

static ssize_t content_read(void *cls, uint64_t pos, char *p, size_t max)
{
	struct exchange *x = cls;
	ptrdiff_t n = filestore_read(x->host->files, x->file_id, (int64_t)pos, p, max);
	return n > 0 ? n : exchange_cut(x); /* never at its end: the length is known */
}

struct MHD_Response *http_file_response(struct exchange *x)
{
	return MHD_create_response_from_callback((uint64_t)x->file_bytes, FILE_PART, content_read, x, NULL);
}

static void content(struct exchange *x, const struct file_info *f)
{
	struct buf none = {0};
	snprintf(x->file_id, sizeof x->file_id, "%s", f->id);
	x->file_bytes = f->bytes;
	exchange_reply_as(x, MHD_HTTP_OK, "application/octet-stream", &none);
}

void call_file(struct exchange *x, const char *rest)
{
	struct file_info f;
	char owner[FILE_OWNER_SIZE], id[FILE_ID_SIZE];
	if (!http_has_journal(x))
		return;
	size_t n = strcspn(rest, "/");
	bool wants_content = strcmp(rest + n, "/content") == 0;
	snprintf(id, sizeof id, "%.*s", n < sizeof id ? (int)n : 0, rest);
	http_owner(x, owner);
	if ((rest[n] && !wants_content) || !id[0] || filestore_get(x->host->files, owner, id, &f)) {
		http_not_found(x, "file", rest);
		return;
	}
	if (strcmp(x->method, "DELETE") == 0 && !wants_content) {
		struct asked *a = xcalloc(1, sizeof *a);
		a->x = x;
		a->info = f;
		exchange_ref(x);
		exchange_park(x);
		filestore_delete(x->host->files, owner, id, on_deleted, a);
	} else if (strcmp(x->method, "DELETE") == 0) {
		http_not_found(x, "path", rest);
	} else if (wants_content) {
		content(x, &f);
	} else {
		struct buf b = {0};
		put_file(&b, &f);
		exchange_reply(x, MHD_HTTP_OK, &b);
	}
}
