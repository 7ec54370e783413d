#include "cli/models/hub.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/json.h"

#include <stdlib.h>
#include <string.h>

enum {
	REPLY_MAX = 16 << 20,
	TREE_BYTES_MAX = 256 << 20, /* memory of a reply's JSON tree */
	PAGES_MAX = 100,
};

static int bad_reply(const char *what, struct why *why)
{
	return err_why(why, -EBADMSG, "the server's list of files is not one of a hub: %s", what);
}

/* ---- a hub's replies ---- */

static int add(struct file_list *l, const char *prefix, const char *path, const json_t *o, const json_t *lfs,
	       const char *git, struct why *why)
{
	struct file_entry f = {.path = (char *)path, .size = -1};
	const char *sha256 = NULL;
	int rc = json_get_int(o, "size", 0, FILES_BYTES_MAX, &f.size, why);
	if (!rc && lfs) {
		if (json_get_int(lfs, "size", 0, FILES_BYTES_MAX, &f.size, why))
			rc = -EBADMSG;
		sha256 = json_string_value(json_get(lfs, json_get(lfs, "sha256") ? "sha256" : "oid"));
	}
	if (rc || f.size < 0)
		return err_why(why, -EBADMSG, "the server lists %s without a size", path);
	if (file_list_hex(sha256, 64, f.hex))
		f.digest = DIGEST_SHA256;
	else if (!lfs && file_list_hex(git, 40, f.hex))
		f.digest = DIGEST_GIT;
	struct buf url = {0};
	buf_puts(&url, prefix);
	source_escape(&url, path, true);
	f.url = url.p;
	rc = file_list_add(l, &f, why);
	buf_fini(&url);
	return rc;
}

int hub_read_revision(const char *text, size_t n, const char *url, struct file_list *l, bool *sized,
		      struct why *why)
{
	json_t *o;
	int rc = json_parse_within(text, n, TREE_BYTES_MAX, &o, NULL, why);
	if (rc)
		return err_prefix(why, rc, "the server's reply is not JSON");
	const char *sha = NULL;
	const json_t *files = json_get(o, "siblings");
	rc = json_get_str(o, "sha", &sha, why);
	if (!rc && !(sha && (file_list_hex(sha, 40, l->commit) || file_list_hex(sha, 64, l->commit))))
		rc = bad_reply("\"sha\", the commit, is missing", why);
	if (!rc && files && !json_is_array(files))
		rc = bad_reply("\"siblings\" is not an array", why);
	*sized = json_array_size(files) > 0;
	for (size_t i = 0; i < json_array_size(files); i++)
		*sized = *sized && json_get(json_array_get(files, i), "size");
	char *prefix = xasprintf("%s%s/", url, l->commit);
	for (size_t i = 0; !rc && *sized && i < json_array_size(files); i++) {
		const json_t *f = json_array_get(files, i), *lfs = json_get(f, "lfs");
		const char *path = json_string_value(json_get(f, "rfilename"));
		rc = path ? add(l, prefix, path, f, json_is_object(lfs) ? lfs : NULL,
				json_string_value(json_get(f, "blobId")), why)
			  : bad_reply("a file has no name", why);
	}
	free(prefix);
	json_decref(o);
	return rc;
}

int hub_read_tree(const char *text, size_t n, const char *url, struct file_list *l, struct why *why)
{
	json_t *o;
	int rc = json_parse_within(text, n, TREE_BYTES_MAX, &o, NULL, why);
	if (rc)
		return err_prefix(why, rc, "the server's reply is not JSON");
	if (!json_is_array(o))
		rc = bad_reply("the tree is not an array", why);
	for (size_t i = 0; !rc && i < json_array_size(o); i++) {
		const json_t *f = json_array_get(o, i), *lfs = json_get(f, "lfs");
		const char *path = json_string_value(json_get(f, "path")),
			   *type = json_string_value(json_get(f, "type"));
		if (!path || !type)
			rc = bad_reply("an entry has no path or type", why);
		else if (strcmp(type, "file") == 0)
			rc = add(l, url, path, f, json_is_object(lfs) ? lfs : NULL,
				 json_string_value(json_get(f, "oid")), why);
	}
	json_decref(o);
	return rc;
}

/* ---- a hub ---- */

static int read_pages(struct http *h, const char *first, const char *prefix, struct file_list *l,
		      struct why *why)
{
	char origin[SOURCE_URL_MAX], other[SOURCE_URL_MAX], *url = xstrdup(first);
	struct buf text = {0};
	int rc = 0;
	source_origin(first, origin, sizeof origin);
	for (int page = 0; url && !rc; page++) {
		struct http_reply reply;
		buf_clear(&text);
		if (page >= PAGES_MAX)
			rc = bad_reply("it has more than 100 pages", why);
		if (!rc)
			rc = http_get(h, url, REPLY_MAX, &text, &reply, why);
		if (!rc)
			rc = hub_read_tree(text.p ? text.p : "", text.len, prefix, l, why);
		free(url);
		url = NULL;
		if (!rc && reply.next[0]) {
			if (!source_origin(reply.next, other, sizeof other) || strcmp(origin, other) != 0)
				rc = bad_reply("its next page is of another server", why);
			else
				url = xstrdup(reply.next);
		}
	}
	free(url);
	buf_fini(&text);
	return rc;
}

static int list_hub(struct http *h, const struct source *s, struct file_list *l, struct why *why)
{
	struct buf url = {0}, text = {0};
	bool sized = false;
	buf_printf(&url, "%s/api/models/%s/revision/", s->endpoint, s->name);
	source_escape(&url, s->revision, false);
	buf_puts(&url, "?blobs=true");
	char *prefix = xasprintf("%s/%s/resolve/", s->endpoint, s->name);
	int rc = http_get(h, url.p, REPLY_MAX, &text, NULL, why);
	if (!rc)
		rc = hub_read_revision(text.p ? text.p : "", text.len, prefix, l, &sized, why);
	if (!rc && !sized) {
		char *tree = xasprintf("%s/api/models/%s/tree/%s?recursive=true", s->endpoint, s->name,
				       l->commit),
		     *at = xasprintf("%s%s/", prefix, l->commit);
		rc = read_pages(h, tree, at, l, why);
		free(tree);
		free(at);
	}
	if (!rc && l->n == 0)
		rc = err_why(why, -ENOENT, "%s at %s has no files", s->name, s->endpoint);
	free(prefix);
	buf_fini(&text);
	buf_fini(&url);
	return rc;
}

/* ---- a web server ---- */

/* Add a file, described by the reply to a request for its first byte.  -ENOENT: the server does not have
 * it. */
static int probe(struct http *h, const char *url, const char *path, struct file_list *l, struct why *why)
{
	struct http_reply r = {0};
	int rc = http_get(h, url, 0, NULL, &r, why);
	if (rc)
		return rc;
	struct file_entry f = {.path = (char *)path, .url = (char *)url};
	f.size = r.status == 206 || r.status == 416 ? r.total : r.length;
	if (f.size < 0)
		return err_why(why, -EBADMSG, "%s: the server does not tell its size", url);
	memcpy(f.etag, r.etag, sizeof f.etag);
	if (r.linked[0]) {
		f.digest = DIGEST_SHA256;
		memcpy(f.hex, r.linked, sizeof f.hex);
	}
	return file_list_add(l, &f, why);
}

static int probe_below(struct http *h, const struct source *s, const char *path, struct file_list *l,
		       struct why *why)
{
	struct buf url = {0};
	const size_t n = strcspn(s->url, "?#");
	buf_put(&url, s->url, n);
	source_escape(&url, path, true);
	buf_puts(&url, s->url + n);
	int rc = probe(h, url.p, path, l, why);
	buf_fini(&url);
	return rc;
}

/* Add the files that an index of the weights names. */
static int probe_shards(struct http *h, const struct source *s, const char *index_url, struct file_list *l,
			struct why *why)
{
	struct buf text = {0};
	const char *tensor;
	json_t *o = NULL, *file;
	int rc = http_get(h, index_url, REPLY_MAX, &text, NULL, why);
	if (!rc)
		rc = json_parse_within(text.p ? text.p : "", text.len, TREE_BYTES_MAX, &o, NULL, why);
	json_object_foreach(json_object_get(o, "weight_map"), tensor, file)
	{
		const char *path = json_string_value(file);
		bool there = !path;
		for (size_t i = 0; path && i < l->n; i++)
			there = there || strcmp(l->files[i].path, path) == 0;
		if (rc || there)
			continue;
		rc = source_path_check(path, why);
		if (!rc)
			rc = probe_below(h, s, path, l, why);
	}
	json_decref(o);
	buf_fini(&text);
	return rc;
}

static int list_dir(struct http *h, const struct source *s, struct file_list *l, struct why *why)
{
	static const char *const names[] = {
		"config.json",
		"model.safetensors.index.json",
		"model.safetensors",
		"tokenizer.json",
		"tokenizer_config.json",
		"generation_config.json",
		"tokenizer.model",
		"special_tokens_map.json",
		"added_tokens.json",
		"vocab.json",
		"merges.txt",
		"chat_template.jinja",
		"quantize_config.json",
		"quant_config.json",
	};
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		int rc = probe_below(h, s, names[i], l, why);
		/* Some servers reply with 403 instead of 404 for missing files. */
		if (rc == -ENOENT && i == 0)
			return err_prefix(why, rc, "not the directory of a model, which has a config.json");
		if (rc && !(i > 0 && (rc == -ENOENT || rc == -EACCES)))
			return rc;
		if (!rc && i == 1 && (rc = probe_shards(h, s, l->files[l->n - 1].url, l, why)))
			return rc;
	}
	return 0;
}

int hub_list(struct http *h, const struct source *s, struct file_list *l, struct why *why)
{
	if (s->kind == SOURCE_HUB)
		return list_hub(h, s, l, why);
	int rc = s->kind == SOURCE_DIR ? list_dir(h, s, l, why) : probe(h, s->url, s->file, l, why);
	return rc ? rc : file_list_name(l, s->url, why);
}
