#include "formats/safetensors.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/file.h"
#include "base/json.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

enum { INDEX_BYTES_MAX = 256 << 20 };

static const struct {
	const char *name;
	int size;
} dtypes[] = {
	[ST_BOOL] = {"BOOL", 1},       [ST_U8] = {"U8", 1},           [ST_I8] = {"I8", 1},
	[ST_F8_E5M2] = {"F8_E5M2", 1}, [ST_F8_E4M3] = {"F8_E4M3", 1}, [ST_I16] = {"I16", 2},
	[ST_U16] = {"U16", 2},         [ST_F16] = {"F16", 2},         [ST_BF16] = {"BF16", 2},
	[ST_I32] = {"I32", 4},         [ST_U32] = {"U32", 4},         [ST_F32] = {"F32", 4},
	[ST_F64] = {"F64", 8},         [ST_I64] = {"I64", 8},         [ST_U64] = {"U64", 8},
};

struct mapping {
	const void *data;
	size_t bytes;
};

struct safetensors {
	struct mapping *files;
	int n_files;
	struct st_tensor *tensors; /* sorted by name */
	int n;
	uint32_t cap;
};

const char *st_dtype_name(enum st_dtype t)
{
	return dtypes[t].name;
}

int st_dtype_bytes(enum st_dtype t)
{
	return dtypes[t].size;
}

/* ---- one header entry ---- */

static int read_dtype(const json_t *o, struct st_tensor *t, struct why *why)
{
	const char *name = json_string_value(json_object_get(o, "dtype"));
	if (!name)
		return err_why(why, -EINVAL, "dtype is missing");
	for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++) {
		if (strcmp(name, dtypes[i].name) == 0) {
			t->dtype = (enum st_dtype)i;
			return 0;
		}
	}
	return err_why(why, -ENOTSUP, "unknown dtype %.20s", name);
}

/* Read the shape, and compute the bytes. */
static int read_shape(const json_t *o, struct st_tensor *t, struct why *why)
{
	const json_t *a = json_object_get(o, "shape");
	if (!json_is_array(a))
		return err_why(why, -EINVAL, "shape is missing");
	if (json_array_size(a) > ST_DIMS_MAX)
		return err_why(why, -EINVAL, "shape has %zu dimensions, at most %d are accepted",
			       json_array_size(a), ST_DIMS_MAX);
	t->n_dims = (int)json_array_size(a);
	size_t bytes = (size_t)dtypes[t->dtype].size;
	for (int i = 0; i < t->n_dims; i++) {
		const json_t *v = json_array_get(a, (size_t)i);
		if (!json_is_integer(v) || json_integer_value(v) < 0)
			return err_why(why, -EINVAL, "shape[%d] is not a size", i);
		t->shape[i] = json_integer_value(v);
		if (__builtin_mul_overflow(bytes, (size_t)t->shape[i], &bytes))
			return err_why(why, -EINVAL, "the product of the shape is too large");
	}
	t->bytes = bytes;
	return 0;
}

/* Read the offsets.  at: offset of the data in the file. */
static int read_offsets(const json_t *o, struct st_tensor *t, const char *data, size_t data_bytes, size_t at,
			struct why *why)
{
	const json_t *a = json_object_get(o, "data_offsets");
	if (!json_is_array(a) || json_array_size(a) != 2 || !json_is_integer(json_array_get(a, 0)) ||
	    !json_is_integer(json_array_get(a, 1)))
		return err_why(why, -EINVAL, "data_offsets must be two integers");
	int64_t begin = json_integer_value(json_array_get(a, 0));
	int64_t end = json_integer_value(json_array_get(a, 1));
	if (begin < 0 || end < begin)
		return err_why(why, -EINVAL, "data_offsets [%lld, %lld] are no range", (long long)begin,
			       (long long)end);
	if ((uint64_t)end > data_bytes)
		return err_why(
			why, -EINVAL,
			"data_offsets [%lld, %lld] lie outside the file's %zu bytes of data, which end "
			"at byte %zu; was the download or copy interrupted?",
			(long long)begin, (long long)end, data_bytes, at + data_bytes);
	if ((uint64_t)(end - begin) != t->bytes)
		return err_why(why, -EINVAL, "data_offsets span %lld bytes, the shape needs %zu",
			       (long long)(end - begin), t->bytes);
	t->data = data + begin;
	return 0;
}

static int by_place(const void *a, const void *b)
{
	const struct st_tensor *x = a, *y = b;
	if (x->data != y->data)
		return (const char *)x->data < (const char *)y->data ? -1 : 1;
	return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct st_tensor *)a)->name, ((const struct st_tensor *)b)->name);
}

/* Check that tensors t[0..n) cover the data exactly: no overlap, no gap, no rest. */
static int check_cover(struct st_tensor *t, int n, const char *data, size_t data_bytes, struct why *why)
{
	size_t at = 0;
	qsort(t, (size_t)n, sizeof *t, by_place);
	for (int i = 0; i < n; i++) {
		size_t begin = (size_t)((const char *)t[i].data - data);
		if (begin < at)
			return err_why(why, -EINVAL, "tensor %.200s overlaps the one before it", t[i].name);
		if (begin > at)
			return err_why(why, -EINVAL, "%zu bytes before tensor %.200s belong to no tensor",
				       begin - at, t[i].name);
		at += t[i].bytes;
	}
	if (at != data_bytes)
		return err_why(why, -EINVAL, "%zu bytes after the last tensor belong to no tensor",
			       data_bytes - at);
	return 0;
}

/* ---- one file ---- */

static void add_tensor(struct safetensors *s, const struct st_tensor *t)
{
	array_grow(s->tensors, s->cap, (size_t)s->n + 1);
	s->tensors[s->n++] = *t;
}

static int read_tensors(struct safetensors *s, json_t *header, const char *data, size_t data_bytes, size_t at,
			struct why *why)
{
	const char *name;
	json_t *o;
	int first = s->n;
	json_object_foreach(header, name, o)
	{
		struct st_tensor t = {0};
		int rc;
		if (strcmp(name, "__metadata__") == 0) {
			if (!json_is_object(o) && !json_is_null(o))
				return err_why(why, -EINVAL, "__metadata__ is not an object");
			continue;
		}
		if (s->n >= ST_TENSORS_MAX)
			return err_why(why, -EINVAL, "more than %d tensors", ST_TENSORS_MAX);
		if (!json_is_object(o))
			return err_why(why, -EINVAL, "tensor %.200s is not described by an object", name);
		if ((rc = read_dtype(o, &t, why)) || (rc = read_shape(o, &t, why)) ||
		    (rc = read_offsets(o, &t, data, data_bytes, at, why)))
			return err_prefix(why, rc, "tensor %.200s", name);
		t.name = xstrdup(name);
		add_tensor(s, &t);
	}
	return check_cover(s->tensors + first, s->n - first, data, data_bytes, why);
}

static int read_header(struct safetensors *s, const char *file, size_t bytes, struct why *why)
{
	const unsigned char *u = (const unsigned char *)file;
	uint64_t n = 0;
	json_error_t e;
	if (bytes < 8)
		return err_why(why, -EINVAL,
			       "%zu bytes are too short for a safetensors file; was the download or copy "
			       "interrupted?",
			       bytes);
	for (int i = 0; i < 8; i++)
		n |= (uint64_t)u[i] << (8 * i);
	if (n > ST_HEADER_MAX || n > bytes - 8)
		return err_why(why, -EINVAL, "the header's length %llu does not fit the file's %zu bytes%s",
			       (unsigned long long)n, bytes,
			       n > ST_HEADER_MAX ? "" : "; was the download or copy interrupted?");
	/* jansson limits the depth to 2048.  Duplicate names must be an error. */
	json_t *header = json_loadb(file + 8, (size_t)n, JSON_REJECT_DUPLICATES, &e);
	if (!header)
		return err_why(why, -EINVAL, "the header is not valid JSON: byte %d: %s", e.position, e.text);
	int rc = json_is_object(header)
			 ? read_tensors(s, header, file + 8 + n, bytes - 8 - (size_t)n, 8 + (size_t)n, why)
			 : err_why(why, -EINVAL, "the header is not a JSON object");
	json_decref(header);
	return rc;
}

static int add_file(struct safetensors *s, const char *path, struct why *why)
{
	struct mapping m;
	int rc = file_map(path, &m.data, &m.bytes, why);
	if (rc)
		return rc;
	s->files = xrealloc(s->files, (size_t)s->n_files + 1, sizeof *s->files);
	s->files[s->n_files++] = m;
	rc = read_header(s, m.data, m.bytes, why);
	return rc ? err_prefix(why, rc, "%s", path) : 0;
}

/* Sort by name; refuse a name that is in two files. */
static int sort_names(struct safetensors *s, struct why *why)
{
	if (s->n)
		qsort(s->tensors, (size_t)s->n, sizeof *s->tensors, by_name);
	for (int i = 1; i < s->n; i++)
		if (strcmp(s->tensors[i - 1].name, s->tensors[i].name) == 0)
			return err_why(why, -EINVAL, "tensor %.200s is in two files", s->tensors[i].name);
	return 0;
}

int safetensors_open(const char *path, struct safetensors **out, struct why *why)
{
	struct safetensors *s = xcalloc(1, sizeof *s);
	int rc = add_file(s, path, why);
	if (!rc)
		rc = sort_names(s, why);
	if (rc) {
		safetensors_close(s);
		return rc;
	}
	*out = s;
	return 0;
}

/* ---- a directory ---- */

/* Check that a shard is a plain file name: an index cannot lead outside the directory. */
static bool shard_name_ok(const char *name)
{
	size_t n = strlen(name);
	return n > 0 && n < 256 && name[0] != '.' && !strchr(name, '/');
}

static int compare_strings(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* List the distinct file names of a weight map; the caller frees the array. */
static int shard_names(const json_t *map, const char ***names, int *n, struct why *why)
{
	const char *key;
	json_t *v;
	int k = 0;
	const char **all = xcalloc(json_object_size(map), sizeof *all);
	json_object_foreach((json_t *)map, key, v)
	{
		if (!json_is_string(v) || !shard_name_ok(json_string_value(v))) {
			free(all);
			return err_why(why, -EINVAL, "weight_map of %.200s is not a file name", key);
		}
		all[k++] = json_string_value(v);
	}
	qsort(all, (size_t)k, sizeof *all, compare_strings);
	*n = 0;
	for (int i = 0; i < k; i++)
		if (i == 0 || strcmp(all[i], all[*n - 1]) != 0)
			all[(*n)++] = all[i];
	*names = all;
	if (*n <= ST_SHARDS_MAX)
		return 0;
	free(all);
	return err_why(why, -EINVAL, "more than %d files", ST_SHARDS_MAX);
}

static int open_shards(struct safetensors *s, const char *dir, const json_t *map, struct why *why)
{
	const char **names = NULL;
	int n = 0;
	int rc = shard_names(map, &names, &n, why);
	if (rc)
		return rc;
	for (int i = 0; !rc && i < n; i++) {
		char *path = file_join(dir, names[i]);
		rc = add_file(s, path, why);
		free(path);
	}
	free(names);
	return rc;
}

/* Check that every tensor of the index is in the files. */
static int check_index(const struct safetensors *s, const json_t *map, struct why *why)
{
	const char *key;
	json_t *v;
	json_object_foreach((json_t *)map, key, v) if (!safetensors_find(s, key)) return err_why(
		why, -EINVAL, "tensor %.200s is not in %.255s, although the index says so", key,
		json_string_value(v));
	return 0;
}

static int open_index(struct safetensors *s, const char *dir, const char *path, struct why *why)
{
	json_t *index;
	int rc = json_read(path, INDEX_BYTES_MAX, &index, why);
	if (rc)
		return rc;
	const json_t *map = json_object_get(index, "weight_map");
	if (!json_is_object(map) || json_object_size(map) == 0)
		rc = err_why(why, -EINVAL, "weight_map is missing");
	else if (json_object_size(map) > ST_TENSORS_MAX)
		rc = err_why(why, -EINVAL, "more than %d tensors", ST_TENSORS_MAX);
	else if (!(rc = open_shards(s, dir, map, why)) && !(rc = sort_names(s, why)))
		rc = check_index(s, map, why);
	json_decref(index);
	return rc ? err_prefix(why, rc, "%s", path) : 0;
}

/* Return the path of the directory's only weights file, which the caller frees; NULL: there are *n files. */
static char *only_file(const char *dir, int *n)
{
	char *path = NULL;
	DIR *d = opendir(dir);
	*n = 0;
	for (struct dirent *e; d && (e = readdir(d));) {
		size_t len = strlen(e->d_name);
		if (len <= 12 || strcmp(e->d_name + len - 12, ".safetensors") != 0)
			continue;
		if ((*n)++ == 0)
			path = file_join(dir, e->d_name);
	}
	if (d)
		closedir(d);
	if (*n == 1)
		return path;
	free(path);
	return NULL;
}

int safetensors_open_dir(const char *dir, struct safetensors **out, struct why *why)
{
	char *index = file_join(dir, "model.safetensors.index.json");
	char *single = file_join(dir, "model.safetensors");
	struct safetensors *s = NULL;
	int rc = 0, n = 0;
	if (file_exists(single)) {
		rc = safetensors_open(single, out, why);
	} else if (file_exists(index)) {
		s = xcalloc(1, sizeof *s);
		rc = open_index(s, dir, index, why);
		if (rc)
			safetensors_close(s);
		else
			*out = s;
	} else {
		free(single);
		single = only_file(dir, &n);
		if (single)
			rc = safetensors_open(single, out, why);
		else
			rc = err_why(
				why, -ENOENT,
				n ? "%s: several *.safetensors files, but no model.safetensors.index.json"
				  : "%s: no model.safetensors and no model.safetensors.index.json",
				dir);
	}
	free(index);
	free(single);
	return rc;
}

void safetensors_close(struct safetensors *s)
{
	if (!s)
		return;
	for (int i = 0; i < s->n; i++)
		free(s->tensors[i].name);
	for (int i = 0; i < s->n_files; i++)
		file_unmap(s->files[i].data, s->files[i].bytes);
	free(s->tensors);
	free(s->files);
	free(s);
}

/* ---- look up ---- */

const struct st_tensor *safetensors_find(const struct safetensors *s, const char *name)
{
	struct st_tensor key = {.name = (char *)name};
	return s->n ? bsearch(&key, s->tensors, (size_t)s->n, sizeof key, by_name) : NULL;
}

int safetensors_count(const struct safetensors *s)
{
	return s->n;
}

const struct st_tensor *safetensors_at(const struct safetensors *s, int i)
{
	return &s->tensors[i];
}

int safetensors_files(const struct safetensors *s)
{
	return s->n_files;
}

int64_t safetensors_bytes(const struct safetensors *s)
{
	int64_t sum = 0;
	for (int i = 0; i < s->n; i++)
		sum += (int64_t)s->tensors[i].bytes;
	return sum;
}
