#include "store/files.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/file.h"
#include "base/json.h"
#include "formats/model_file.h"
#include "formats/model_kind.h"
#include "store/digest.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
	JSON_MAX = 256 << 20, /* limit for an index of tensors, the largest JSON file */
	HEAD_BYTES = 64 << 10,
	SAMPLES = 32,
	SAMPLE_BYTES = 4 << 10,
	PART_DIGITS = 5, /* NAME-00001-of-00003.gguf */
	PART_TAIL = sizeof "-00001-of-00003.gguf" - 1,
	CUT_BYTES = 16, /* bytes kept of each digest in a sketch */
	CUT_TEXT = 2 * CUT_BYTES,
	VERSION_TEXT = sizeof "1:" - 1,
	POINTER_MAX = 1024, /* a git-lfs pointer is smaller, by its specification */
};
_Static_assert(QUICK_FINGERPRINT_SIZE == VERSION_TEXT + 3 * CUT_TEXT + 3,
	       "a version, three digests, two points and a NUL");

/* Must change when the content of a sketch changes. */
static const char version[] = "1:";

static bool ends_with(const char *s, const char *end)
{
	const size_t n = strlen(s), k = strlen(end);
	return n >= k && strcmp(s + n - k, end) == 0;
}

static int64_t nanoseconds(struct timespec t)
{
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

struct store_id store_id_of(const struct stat *st)
{
	return (struct store_id){(uint64_t)st->st_dev, (uint64_t)st->st_ino, (int64_t)st->st_size,
				 nanoseconds(st->st_mtim), nanoseconds(st->st_ctim)};
}

bool store_id_equal(const struct store_id *a, const struct store_id *b)
{
	return a->dev == b->dev && a->ino == b->ino && a->size == b->size && a->mtime_ns == b->mtime_ns &&
	       a->ctime_ns == b->ctime_ns;
}

/* ---- the list ---- */

void store_files_fini(struct store_files *l)
{
	for (size_t i = 0; i < l->n; i++)
		free(l->files[i].name);
	free(l->files);
	free(l->dir);
	free(l->first);
	*l = (struct store_files){0};
}

/* Reject stand-ins for weights: empty files and git-lfs pointers. */
static int check_there(const char *path, const struct stat *st, struct why *why)
{
	if (!st->st_size && !ends_with(path, ".json"))
		return err_why(why, -ENODATA, "%s is empty", path);
	if (st->st_size < POINTER_MAX && model_kind_is_pointer(path))
		return err_why(why, -ENODATA, "%s is a git-lfs pointer, not the file itself", path);
	return 0;
}

static int add(struct store_files *l, const char *name, struct why *why)
{
	struct stat st;
	char *path = file_join(l->dir, name);
	int rc = 0;
	if (l->n == STORE_FILES_MAX)
		rc = err_why(why, -E2BIG, "%s: more than %d files", l->dir, STORE_FILES_MAX);
	else if (stat(path, &st) < 0)
		rc = err_why(why, -errno, "%s: %s", path, strerror(errno));
	else if (!S_ISREG(st.st_mode))
		rc = err_why(why, -EINVAL, "%s is not a file", path);
	else
		rc = check_there(path, &st, why);
	if (!rc) {
		array_grow(l->files, l->cap, l->n + 1);
		l->files[l->n++] = (struct store_file){xstrdup(name), store_id_of(&st)};
	}
	free(path);
	return rc;
}

/* Add the file if it exists. */
static int add_optional(struct store_files *l, const char *name, struct why *why)
{
	char *path = file_join(l->dir, name);
	int rc = file_exists(path) ? add(l, name, why) : 0;
	free(path);
	return rc;
}

/* Add all files of the directory with this ending. */
static int add_ending(struct store_files *l, const char *end, struct why *why)
{
	DIR *d = opendir(l->dir);
	int rc = d ? 0 : err_why(why, -errno, "%s: %s", l->dir, strerror(errno));
	for (const struct dirent *e; d && !rc && (e = readdir(d));)
		if (e->d_name[0] != '.' && ends_with(e->d_name, end) && strncmp(e->d_name, "mmproj", 6) != 0)
			rc = add(l, e->d_name, why);
	if (d)
		closedir(d);
	return rc;
}

static bool is_plain(const char *name)
{
	return name && name[0] && name[0] != '.' && !strchr(name, '/');
}

/* Add the files named by an index of tensors, each once. */
static int add_indexed(struct store_files *l, const char *index, struct why *why)
{
	json_t *o = NULL, *seen = json_object();
	const char *tensor;
	json_t *v;
	int rc = json_read(index, JSON_MAX, &o, why);
	json_object_foreach(json_object_get(o, "weight_map"), tensor, v)
	{
		const char *name = json_string_value(v);
		if (rc || (name && json_object_get(seen, name)))
			continue;
		if (!is_plain(name))
			rc = err_why(why, -EINVAL, "%s: \"%.60s\" is not a file's name", index,
				     name ? name : "");
		else if (!(rc = add(l, name, why)))
			json_object_set_new(seen, name, json_true());
	}
	json_decref(seen);
	json_decref(o);
	return rc;
}

/* Add the files that define an embedding model's pooling: modules.json, and SUB/config.json of its
 * modules. */
static int add_modules(struct store_files *l, struct why *why)
{
	char *path = file_join(l->dir, "modules.json");
	json_t *o = NULL, *m;
	size_t i;
	int rc = 0;
	if (file_exists(path) && !(rc = add(l, "modules.json", why)))
		rc = json_read(path, JSON_MAX, &o, why);
	json_array_foreach(o, i, m)
	{
		const char *sub = json_string_value(json_object_get(m, "path"));
		char *name = is_plain(sub) ? file_join(sub, "config.json") : NULL;
		if (name && !rc)
			rc = add_optional(l, name, why);
		free(name);
	}
	json_decref(o);
	free(path);
	return rc;
}

/* List the files that hf_config_load() and safetensors_open_dir() would read. */
static int list_hf(struct store_files *l, struct why *why)
{
	static const char index_name[] = "model.safetensors.index.json", single_name[] = "model.safetensors";
	char *index = file_join(l->dir, index_name), *single = file_join(l->dir, single_name);
	int rc = add(l, "config.json", why);
	if (!rc && !(rc = add_optional(l, "generation_config.json", why)))
		rc = add_modules(l, why);
	const size_t n = l->n;
	if (rc)
		;
	else if (file_exists(single))
		rc = add(l, single_name, why);
	else if (file_exists(index))
		rc = (rc = add(l, index_name, why)) ? rc : add_indexed(l, index, why);
	else
		rc = add_ending(l, ".safetensors", why);
	if (!rc && l->n == n)
		rc = err_why(why, -ENOENT, "%s has no *.safetensors", l->dir);
	free(index);
	free(single);
	return rc;
}

/* Return the number of shards of a split GGUF file; 0: the name is not a shard's. */
static unsigned parts_of(const char *name)
{
	unsigned part, of;
	int end = 0;
	const size_t n = strlen(name);
	if (n <= PART_TAIL || sscanf(name + n - PART_TAIL, "-%5u-of-%5u.gguf%n", &part, &of, &end) != 2 ||
	    end != PART_TAIL)
		return 0;
	return of;
}

/* List the path's file and its other shards. */
static int list_file(struct store_files *l, struct why *why)
{
	const unsigned of = parts_of(l->first);
	int rc = of ? 0 : add(l, l->first, why);
	for (unsigned i = 1; i <= of && !rc; i++) {
		char *name = xasprintf("%.*s-%0*u-of-%0*u.gguf", (int)(strlen(l->first) - PART_TAIL),
				       l->first, PART_DIGITS, i, PART_DIGITS, of);
		rc = add(l, name, why);
		free(name);
	}
	return rc;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct store_file *)a)->name, ((const struct store_file *)b)->name);
}

int store_files_list(const char *path, struct store_files *out, struct why *why)
{
	struct stat st;
	*out = (struct store_files){0};
	if (stat(path, &st) < 0)
		return err_why(why, -errno, "%s: %s", path, strerror(errno));
	int rc;
	if (S_ISDIR(st.st_mode)) {
		const struct model_file *kind = model_file_or_dir(path);
		out->dir = xstrdup(path);
		rc = strcmp(kind->name, "GGUF") == 0 ? add_ending(out, ".gguf", why) : list_hf(out, why);
	} else {
		const char *slash = strrchr(path, '/');
		out->dir = !slash ? xstrdup(".") : slash == path ? xstrdup("/") : xstrdup(path);
		if (slash && slash > path)
			out->dir[slash - path] = '\0';
		out->first = xstrdup(slash ? slash + 1 : path);
		rc = list_file(out, why);
	}
	if (rc)
		store_files_fini(out);
	else
		qsort(out->files, out->n, sizeof *out->files, by_name);
	return rc;
}

/* ---- the sketch ---- */

static bool is_json(const char *name)
{
	return ends_with(name, ".json");
}

/* Add bytes from..from+n of a file, as far as they exist. */
static int add_part(struct digest *d, int fd, int64_t from, int64_t n)
{
	char piece[16 << 10];
	while (n > 0) {
		const ssize_t got =
			pread(fd, piece, n < (int64_t)sizeof piece ? (size_t)n : sizeof piece, (off_t)from);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return got < 0 ? -errno : 0;
		digest_add(d, piece, (size_t)got);
		from += got;
		n -= got;
	}
	return 0;
}

struct fingerprinting {
	struct digest *config, *files, *samples;
	int64_t step; /* distance of two samples, in bytes of weights */
	int64_t at;   /* bytes of weights in the files read so far */
};

static int quick_fingerprint_file(struct fingerprinting *s, const char *dir, const struct store_file *f,
				  struct why *why)
{
	char *path = file_join(dir, f->name);
	const int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	int rc = fd < 0 ? -errno : 0;
	const int64_t size = f->id.size;
	digest_add(s->files, f->name, strlen(f->name) + 1);
	digest_add(s->files, &size, sizeof size);
	if (!rc && is_json(f->name)) {
		digest_add(s->config, f->name, strlen(f->name) + 1);
		rc = add_part(s->config, fd, 0, size);
	} else if (!rc) {
		rc = add_part(s->samples, fd, 0, HEAD_BYTES);
		/* Sample i starts at byte i * step of all weights. */
		for (int64_t i = (s->at + s->step - 1) / s->step; !rc && i * s->step < s->at + size; i++)
			rc = add_part(s->samples, fd, i * s->step - s->at, SAMPLE_BYTES);
		s->at += size;
	}
	if (fd >= 0)
		close(fd);
	if (rc)
		err_why(why, rc, "%s: %s", path, strerror(-rc));
	free(path);
	return rc;
}

static char *end_cut(struct digest *d, char *out, char then)
{
	uint8_t bytes[DIGEST_BYTES];
	digest_end(d, bytes);
	digest_hex(bytes, CUT_BYTES, out);
	out[CUT_TEXT] = then;
	return out + CUT_TEXT + 1;
}

int store_files_quick_fingerprint(const struct store_files *l, char out[QUICK_FINGERPRINT_SIZE],
				  struct why *why)
{
	struct fingerprinting s = {digest_new(), digest_new(), digest_new(), 0, 0};
	int64_t bytes = 0;
	int rc = 0;
	for (size_t i = 0; i < l->n; i++)
		bytes += is_json(l->files[i].name) ? 0 : l->files[i].id.size;
	s.step = bytes / SAMPLES + 1;
	for (size_t i = 0; i < l->n && !rc; i++)
		rc = quick_fingerprint_file(&s, l->dir, &l->files[i], why);
	memcpy(out, version, VERSION_TEXT);
	out = end_cut(s.config, out + VERSION_TEXT, '.');
	out = end_cut(s.files, out, '.');
	end_cut(s.samples, out, '\0');
	return rc;
}

bool quick_fingerprint_is_known(const char *s)
{
	return strncmp(s, version, VERSION_TEXT) == 0 && strlen(s) == QUICK_FINGERPRINT_SIZE - 1;
}

const char *quick_fingerprint_difference(const char *a, const char *b)
{
	static const char *const texts[] = {"their configurations (*.json) differ",
					    "their files have other names or sizes",
					    "their weights differ, in files of the same names and sizes"};
	if (!quick_fingerprint_is_known(a) || !quick_fingerprint_is_known(b) || strcmp(a, b) == 0)
		return NULL;
	a += VERSION_TEXT;
	b += VERSION_TEXT;
	for (int i = 0; i < 2; i++)
		if (strncmp(a + i * (CUT_TEXT + 1), b + i * (CUT_TEXT + 1), CUT_TEXT) != 0)
			return texts[i];
	return texts[2];
}

int store_files_check(const char *path, const char *quick_fingerprint, struct why *why)
{
	struct store_files l;
	char mine[QUICK_FINGERPRINT_SIZE];
	int rc = store_files_list(path, &l, why);
	if (rc)
		return rc;
	rc = store_files_quick_fingerprint(&l, mine, why);
	const char *what = rc ? NULL : quick_fingerprint_difference(mine, quick_fingerprint);
	if (what)
		rc = err_why(why, -EINVAL, "%s on this host is not the model that the controller serves: %s",
			     path, what);
	store_files_fini(&l);
	return rc;
}
