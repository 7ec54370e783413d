#include "cli/models/cache.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/file.h"
#include "base/json.h"
#include "base/replace.h"
#include "cli/terminal/environment.h"
#include "store/cached.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static const char manifest_name[] = ".quern-model.json";
enum { MANIFEST_MAX = 8 << 20, DEPTH_MAX = SOURCE_DEPTH_MAX + 2 };

char *cache_root(struct why *why)
{
	const struct environment env = environment_read();
	char *root = cached_root(env.models_dir, env.cache_dir, env.home);
	if (!root)
		err_why(why, -ENOENT, "no place for models: set QUERN_MODELS to a directory");
	return root;
}

/* ---- directory trees ---- */

typedef int visit(void *ctx, const char *dir, const char *name, const struct stat *st);

/* Call f for every entry below dir, for a directory after its contents.  An error of f ends the walk. */
static int walk(const char *dir, int depth, visit *f, void *ctx)
{
	DIR *d = depth < DEPTH_MAX ? opendir(dir) : NULL;
	int rc = d ? 0 : depth < DEPTH_MAX ? -errno : -ELOOP;
	for (const struct dirent *e; d && !rc && (e = readdir(d));) {
		struct stat st;
		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 ||
		    fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		char *path = file_join(dir, e->d_name);
		if (S_ISDIR(st.st_mode))
			rc = walk(path, depth + 1, f, ctx);
		if (!rc)
			rc = f(ctx, dir, e->d_name, &st);
		free(path);
	}
	if (d)
		closedir(d);
	return rc;
}

static int add_bytes(void *ctx, const char *dir, const char *name, const struct stat *st)
{
	(void)dir;
	(void)name;
	if (S_ISREG(st->st_mode))
		*(int64_t *)ctx += (int64_t)st->st_blocks * 512 < st->st_size ? (int64_t)st->st_blocks * 512
									      : (int64_t)st->st_size;
	return 0;
}

static int remove_one(void *ctx, const char *dir, const char *name, const struct stat *st)
{
	char *path = file_join(dir, name);
	int rc = (S_ISDIR(st->st_mode) ? rmdir(path) : unlink(path)) < 0 ? -errno : 0;
	(void)ctx;
	free(path);
	return rc;
}

static int remove_tree(const char *dir)
{
	int rc = walk(dir, 0, remove_one, NULL);
	return rc ? rc : rmdir(dir) < 0 ? -errno : 0;
}

/* ---- the list ---- */

void cache_list_fini(struct cache_list *l)
{
	for (size_t i = 0; i < l->n; i++)
		free(l->entries[i].dir);
	free(l->entries);
	*l = (struct cache_list){0};
}

static bool ends(const char *s, const char *suffix)
{
	const size_t n = strlen(s), m = strlen(suffix);
	return n > m && strcasecmp(s + n - m, suffix) == 0;
}

struct holding {
	bool safetensors, config;
	int n_gguf, n_bin;
	char single[256]; /* name of the first GGUF file, else of the first .bin file */
};

static bool is_later_part(const char *name)
{
	const char *of = strstr(name, "-of-");
	return of && of - name >= 6 && strncmp(of - 6, "-00001", 6) != 0;
}

static int look_at(void *ctx, const char *dir, const char *name, const struct stat *st)
{
	struct holding *h = ctx;
	(void)dir;
	(void)st;
	h->config = h->config || strcmp(name, "config.json") == 0;
	h->safetensors = h->safetensors || ends(name, ".safetensors");
	const bool gguf = ends(name, ".gguf") && !is_later_part(name),
		   bin = ends(name, ".bin") && strcmp(name, "tokenizer.bin") != 0;
	if ((gguf || bin) && (!h->single[0] || (gguf && !h->n_gguf)))
		snprintf(h->single, sizeof h->single, "%s", name);
	h->n_gguf += gguf;
	h->n_bin += bin;
	return 0;
}

static void read_manifest(struct cached *c)
{
	char *path = file_join(c->dir, manifest_name);
	const char *revision = NULL;
	json_t *o = NULL;
	if (!json_read(path, MANIFEST_MAX, &o, NULL)) {
		json_get_str(o, "revision", &revision, NULL);
		json_get_int(o, "date", 0, INT64_MAX, &c->date, NULL);
	}
	snprintf(c->revision, sizeof c->revision, "%s", revision ? revision : "");
	json_decref(o);
	free(path);
}

/* Add a directory below ROOT/ORG/NAME to the list, if it is a finished or partial model. */
static void add_entry(struct cache_list *l, const char *dir, const char *name, const char *base)
{
	struct cached c = {.partial = *base == '.'};
	const size_t n = strlen(base);
	struct holding h = {0};
	char hex[DIGEST_HEX + 8];
	if (c.partial && !ends(base, ".part"))
		return;
	snprintf(hex, sizeof hex, "%.*s", (int)(c.partial ? n - 6 : n), base + c.partial);
	if (!file_list_hex(hex, strlen(hex), c.commit) || strlen(hex) < 7)
		return;
	c.dir = file_join(dir, base);
	snprintf(c.name, sizeof c.name, "%s", name);
	walk(c.dir, 0, add_bytes, &c.bytes);
	walk(c.dir, 0, look_at, &h);
	if (!c.partial)
		read_manifest(&c);
	snprintf(c.kind, sizeof c.kind, "%s",
		 c.partial       ? "partial"
		 : h.safetensors ? "safetensors"
		 : h.n_gguf      ? "GGUF"
		 : h.n_bin       ? "bin"
				 : "files");
	array_grow(l->entries, l->cap, l->n + 1);
	l->entries[l->n++] = c;
}

/* Call f for each directory below dir. */
static int each_dir(const char *dir, void (*f)(void *ctx, const char *dir, const char *base), void *ctx)
{
	DIR *d = opendir(dir);
	if (!d)
		return -errno;
	for (const struct dirent *e; (e = readdir(d));) {
		struct stat st;
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 &&
		    fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode))
			f(ctx, dir, e->d_name);
	}
	closedir(d);
	return 0;
}

struct reading {
	struct cache_list *l;
	const char *org;
	char name[CACHED_NAME];
};

static void read_entry(void *ctx, const char *dir, const char *base)
{
	const struct reading *r = ctx;
	add_entry(r->l, dir, r->name, base);
}

static void read_name(void *ctx, const char *dir, const char *base)
{
	struct reading *r = ctx;
	char revision[SOURCE_REVISION], *path = file_join(dir, base),
					*name = xasprintf("%s/%s", r->org, base);
	if (!source_name(name, r->name, revision, NULL))
		each_dir(path, read_entry, r);
	free(name);
	free(path);
}

static void read_org(void *ctx, const char *dir, const char *base)
{
	struct reading r = {.l = ctx, .org = base};
	char *path = file_join(dir, base);
	each_dir(path, read_name, &r);
	free(path);
}

static int by_name_and_date(const void *a, const void *b)
{
	const struct cached *x = a, *y = b;
	int c = strcmp(x->name, y->name);
	if (!c)
		c = x->partial - y->partial;
	if (!c)
		c = (x->date < y->date) - (x->date > y->date);
	return c ? c : strcmp(x->commit, y->commit);
}

int cache_list_read(struct cache_list *l, struct why *why)
{
	*l = (struct cache_list){0};
	char *root = cache_root(why);
	if (!root)
		return -ENOENT;
	int rc = each_dir(root, read_org, l);
	if (rc == -ENOENT)
		rc = 0;
	if (rc)
		err_why(why, rc, "cannot read %s: %s", root, strerror(-rc));
	if (l->n)
		qsort(l->entries, l->n, sizeof *l->entries, by_name_and_date);
	free(root);
	return rc;
}

bool cache_matches(const struct cached *c, const char *text)
{
	const char *at = strchr(text, '@'), *slash = strchr(c->name, '/');
	const size_t n = at ? (size_t)(at - text) : strlen(text);
	if (!(strlen(c->name) == n && strncmp(c->name, text, n) == 0) &&
	    !(strlen(slash + 1) == n && strncmp(slash + 1, text, n) == 0))
		return false;
	return !at || strcmp(c->revision, at + 1) == 0 ||
	       (strlen(at + 1) >= 7 && strncmp(c->commit, at + 1, strlen(at + 1)) == 0);
}

/* Return whether a worker fetched the model from its controller.  Such a model has no tokenizer, and only its
 * whole name matches. */
static bool is_fetched(const struct cached *c)
{
	return strncmp(c->name, CACHED_FETCHED "/", sizeof CACHED_FETCHED) == 0;
}

void cache_find(const char *word, char out[PATH_MAX], char name[CACHED_NAME])
{
	struct cache_list l;
	const struct cached *found = NULL;
	snprintf(out, PATH_MAX, "%s", word);
	name[0] = '\0';
	if (file_exists(word) || *word == '/' || *word == '.' || cache_list_read(&l, NULL))
		return;
	/* "NAME" alone matches only if it is unique. */
	for (size_t i = 0; i < l.n; i++) {
		const struct cached *c = &l.entries[i];
		if (c->partial || !cache_matches(c, word))
			continue;
		if (is_fetched(c) && strncmp(word, c->name, strlen(c->name)) != 0)
			continue;
		if (found && strcmp(found->name, c->name) != 0) {
			found = NULL;
			break;
		}
		if (!found || c->date > found->date)
			found = c;
	}
	if (found) {
		struct holding h = {0};
		walk(found->dir, 0, look_at, &h);
		const bool single = !h.config && !h.safetensors && h.n_gguf + h.n_bin == 1;
		snprintf(out, PATH_MAX, "%s%s%s", found->dir, single ? "/" : "", single ? h.single : "");
		snprintf(name, CACHED_NAME, "%s", found->name);
	}
	cache_list_fini(&l);
}

/* ---- writing ---- */

static int make_dirs(char *path, struct why *why)
{
	for (char *slash = path + 1;; slash++) {
		slash = slash + strcspn(slash, "/");
		const char c = *slash;
		*slash = '\0';
		if (mkdir(path, 0777) < 0 && errno != EEXIST)
			return err_why(why, -errno,
				       "cannot make %s: %s; QUERN_MODELS names another place for models",
				       path, strerror(errno));
		*slash = c;
		if (!c)
			return 0;
	}
}

static int take_lock(const char *dir, int *fd, struct why *why)
{
	char *path = file_join(dir, ".lock");
	int rc = 0;
	*fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
	if (*fd < 0)
		rc = err_why(why, -errno, "cannot write %s: %s", path, strerror(errno));
	else if (flock(*fd, LOCK_EX | LOCK_NB) < 0) {
		rc = err_why(why, -EBUSY, "another quern pull or rm is running in %s; wait until it ends",
			     dir);
		close(*fd);
		*fd = -1;
	}
	free(path);
	return rc;
}

int cache_target_open(struct cache_target *p, const char *name, const char *commit, struct why *why)
{
	*p = (struct cache_target){.lock = -1};
	char *root = cache_root(why);
	if (!root)
		return -ENOENT;
	p->dir = file_join(root, name);
	p->final = file_join(p->dir, commit);
	p->staging = xasprintf("%s/.%s.part", p->dir, commit);
	free(root);
	int rc = make_dirs(p->dir, why);
	return rc ? rc : take_lock(p->dir, &p->lock, why);
}

void cache_target_close(struct cache_target *p)
{
	if (p->lock >= 0)
		close(p->lock);
	free(p->dir);
	free(p->final);
	free(p->staging);
	*p = (struct cache_target){.lock = -1};
}

static bool is_file_of(const char *dir, const char *path, int64_t size)
{
	struct stat st;
	char *full = file_join(dir, path);
	const bool yes = lstat(full, &st) == 0 && S_ISREG(st.st_mode) && st.st_size == size;
	free(full);
	return yes;
}

bool cache_target_has(const struct cache_target *p, const struct file_list *l)
{
	for (size_t i = 0; i < l->n; i++)
		if (l->files[i].chosen && !is_file_of(p->final, l->files[i].path, l->files[i].size))
			return false;
	return file_is_dir(p->final);
}

/* Links the files of the finished entry, which were checked when they were fetched.  If the file system has
 * no links, they are fetched again. */
struct linking {
	const char *from, *to;
};

static int link_one(void *ctx, const char *dir, const char *name, const struct stat *st)
{
	const struct linking *k = ctx;
	if (!S_ISREG(st->st_mode) || strcmp(name, manifest_name) == 0)
		return 0;
	char *from = file_join(dir, name), *to = file_join(k->to, from + strlen(k->from) + 1);
	char *slash = strrchr(to, '/');
	*slash = '\0';
	int rc = make_dirs(to, NULL);
	*slash = '/';
	if (!rc)
		(void)link(from, to); /* a file that cannot be linked is fetched */
	free(from);
	free(to);
	return rc;
}

/* Link files of another commit's entry that have the same digest in its manifest. */
static void link_same(const struct cache_target *p, const char *other, const struct file_list *l)
{
	char *path = file_join(other, manifest_name);
	json_t *o = NULL;
	if (!json_read(path, MANIFEST_MAX, &o, NULL))
		for (size_t i = 0; i < l->n; i++) {
			const struct file_entry *f = &l->files[i];
			const char *hex =
				json_string_value(json_object_get(json_object_get(o, "digests"), f->path));
			if (!f->chosen || f->digest == DIGEST_NONE || !hex || strcmp(hex, f->hex) != 0 ||
			    !is_file_of(other, f->path, f->size))
				continue;
			char *from = file_join(other, f->path), *to = file_join(p->staging, f->path);
			char *slash = strrchr(to, '/');
			*slash = '\0';
			if (!make_dirs(to, NULL)) {
				*slash = '/';
				if (link(from, to) < 0) /* the file is fetched again */
					errno = 0;
			}
			free(from);
			free(to);
		}
	json_decref(o);
	free(path);
}

struct others {
	const struct cache_target *p;
	const struct file_list *l;
};

static void link_from(void *ctx, const char *dir, const char *base)
{
	const struct others *o = ctx;
	char *other = file_join(dir, base);
	if (*base != '.' && strcmp(other, o->p->final) != 0)
		link_same(o->p, other, o->l);
	free(other);
}

int cache_target_stage(const struct cache_target *p, const struct file_list *l, struct why *why)
{
	int rc = make_dirs(p->staging, why);
	if (!rc && file_is_dir(p->final)) {
		struct linking k = {p->final, p->staging};
		walk(p->final, 0, link_one, &k);
	}
	if (!rc)
		each_dir(p->dir, link_from, &(struct others){p, l});
	return rc;
}

static int write_manifest(const char *dir, const struct source *s, const struct file_list *l, struct why *why)
{
	char *path = file_join(dir, manifest_name);
	json_t *digests = json_object();
	int64_t bytes;
	const size_t n = file_list_chosen(l, &bytes);
	const char *from = s->kind == SOURCE_HUB ? s->endpoint : s->url; /* the query, which may hold a
									  * signature, is cut off below */
	for (size_t i = 0; i < l->n; i++)
		if (l->files[i].chosen && l->files[i].digest != DIGEST_NONE)
			json_object_set_new(digests, l->files[i].path, json_string(l->files[i].hex));
	json_t *o = json_pack("{s:s, s:s, s:s, s:s%, s:I, s:I, s:I, s:o}", "name", s->name, "revision",
			      s->revision, "commit", l->commit, "source", from, strcspn(from, "?#"), "date",
			      (json_int_t)clock_unix(), "files", (json_int_t)n, "bytes", (json_int_t)bytes,
			      "digests", digests);
	int rc = replace_json(path, o, why);
	json_decref(o);
	free(path);
	return rc;
}

int cache_target_touch(const struct cache_target *p, const struct source *s, const struct file_list *l,
		       struct why *why)
{
	return write_manifest(p->final, s, l, why);
}

int cache_target_publish(const struct cache_target *p, const struct source *s, const struct file_list *l,
			 struct why *why)
{
	char *old = xasprintf("%s/.%s.old", p->dir, l->commit);
	int rc = write_manifest(p->staging, s, l, why);
	remove_tree(old);
	if (!rc && rename(p->staging, p->final) < 0) {
		/* A finished entry with fewer files exists. */
		if (rename(p->final, old) < 0 || rename(p->staging, p->final) < 0)
			rc = err_why(why, -errno, "cannot rename %s to %s: %s", p->staging, p->final,
				     strerror(errno));
		else
			remove_tree(old);
	}
	file_sync_folder(p->final);
	free(old);
	return rc;
}

int cache_remove(const struct cached *c, int64_t *bytes, struct why *why)
{
	char *dir = xstrdup(c->dir), *slash = strrchr(dir, '/');
	int lock, rc;
	*slash = '\0';
	char *old = xasprintf("%s/.%s.old", dir, c->commit);
	rc = take_lock(dir, &lock, why);
	if (!rc) {
		remove_tree(old);
		if (rename(c->dir, old) < 0)
			rc = err_why(why, -errno, "cannot remove %s: %s", c->dir, strerror(errno));
		else if ((rc = remove_tree(old)))
			err_why(why, rc, "cannot remove %s: %s", old, strerror(-rc));
		*bytes = rc ? 0 : c->bytes;
		/* If no other entry has this name, remove the lock, and then the folders if they are
		 * empty. */
		char *lock_path = file_join(dir, ".lock"), *org = xstrdup(dir);
		*strrchr(org, '/') = '\0';
		struct cache_list l;
		bool last = !cache_list_read(&l, NULL);
		for (size_t i = 0; last && i < l.n; i++)
			last = strcmp(l.entries[i].name, c->name) != 0;
		if (last && unlink(lock_path) == 0 && rmdir(dir) == 0)
			rmdir(org);
		cache_list_fini(&l);
		free(lock_path);
		free(org);
		close(lock);
	}
	free(old);
	free(dir);
	return rc;
}
