#include "formats/gguf.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/file.h"

#include <assert.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ALIGN_MAX = 1 << 20, NAME_MAX_BYTES = 65535, TENSOR_NAME_MAX = 255 };

/* Values and bytes of a block, by type. */
static const struct {
	const char *name;
	int values, bytes;
} types[] = {
#define SIZE(number, NAME, values, bytes)             [number] = {#NAME, values, bytes},
#define BLOCK(number, NAME, name, values, bytes, ...) SIZE(number, NAME, values, bytes)
	PLAIN_TYPES(SIZE) BLOCK_TYPES(BLOCK, BLOCK)};
enum { N_TYPES = sizeof types / sizeof *types };

static const int value_bytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
static const char *const value_names[] = {"uint8",  "int8",    "uint16", "int16",  "uint32",
					  "int32",  "float32", "bool",   "string", "array",
					  "uint64", "int64",   "float64"};
enum { N_VALUES = sizeof value_bytes / sizeof *value_bytes };

struct key {
	struct gguf_string name;
	enum gguf_value type;
	const unsigned char *at; /* the value, or the values of an array */
	struct gguf_array array;
	struct gguf_key stored; /* for gguf_key_at() */
};

struct part {
	const unsigned char *data;
	size_t bytes;
};

struct gguf {
	char *path; /* path of the first shard */
	struct part *parts;
	int n_parts;
	struct key *keys; /* keys of the first shard, sorted by name */
	size_t n_keys;
	struct gguf_tensor *tensors; /* sorted by name */
	size_t n, cap;
};

const char *gguf_type_name(enum gguf_type t)
{
	return (unsigned)t < N_TYPES && types[t].name ? types[t].name : "?";
}

bool gguf_type_of(const char *name, enum gguf_type *out, int *values, int *bytes)
{
	for (size_t i = 0; i < N_TYPES; i++) {
		if (!types[i].name || strcmp(types[i].name, name) != 0)
			continue;
		*out = (enum gguf_type)i;
		*values = types[i].values;
		*bytes = types[i].bytes;
		return true;
	}
	return false;
}

/* ---- reading with bounds ---- */

struct reader {
	const unsigned char *p;
	size_t at, n;
	const char *path;
	char what[160]; /* item being read, for messages */
	struct why *why;
};

static int bad(const struct reader *r, int err, const char *text)
{
	return err_why(r->why, err, "%s: %s, at byte %zu: %s", r->path, r->what, r->at, text);
}

static int ends(const struct reader *r, uint64_t need)
{
	return err_why(r->why, -EINVAL,
		       "%s: %s needs %llu bytes from byte %zu on, but the file ends at byte %zu; was the "
		       "download or copy interrupted?",
		       r->path, r->what, (unsigned long long)need, r->at, r->n);
}

static int take(struct reader *r, uint64_t n, const unsigned char **out)
{
	if (n > r->n - r->at)
		return ends(r, n);
	*out = r->p + r->at;
	r->at += (size_t)n;
	return 0;
}

static uint32_t u32_of(const unsigned char *p)
{
	uint32_t v;
	memcpy(&v, p, sizeof v);
	return v;
}

static uint64_t u64_of(const unsigned char *p)
{
	uint64_t v;
	memcpy(&v, p, sizeof v);
	return v;
}

static int take_u32(struct reader *r, uint32_t *out)
{
	const unsigned char *p = NULL;
	int rc = take(r, 4, &p);
	if (!rc)
		*out = u32_of(p);
	return rc;
}

static int take_u64(struct reader *r, uint64_t *out)
{
	const unsigned char *p = NULL;
	int rc = take(r, 8, &p);
	if (!rc)
		*out = u64_of(p);
	return rc;
}

static int take_string(struct reader *r, struct gguf_string *out)
{
	const unsigned char *p = NULL;
	uint64_t n = 0;
	int rc = take_u64(r, &n);
	if (rc || (rc = take(r, n, &p)))
		return rc;
	*out = (struct gguf_string){(const char *)p, (size_t)n};
	return 0;
}

static int take_array(struct reader *r, int depth, struct gguf_array *out);

/* Skip one value of a type; *out is filled for an array. */
static int take_value(struct reader *r, uint32_t type, int depth, struct gguf_array *out)
{
	const unsigned char *p;
	struct gguf_string s;
	switch (type) {
	case GGUF_STRING:
		return take_string(r, &s);
	case GGUF_ARRAY:
		return take_array(r, depth + 1, out);
	default:
		return take(r, (uint64_t)value_bytes[type], &p);
	}
}

static int take_array(struct reader *r, int depth, struct gguf_array *out)
{
	const unsigned char *p;
	struct gguf_array inner;
	uint32_t type;
	uint64_t n;
	int rc = take_u32(r, &type);
	if (rc || (rc = take_u64(r, &n)))
		return rc;
	if (depth > GGUF_DEPTH_MAX)
		return bad(r, -EINVAL, "arrays are nested too deeply");
	if (type >= N_VALUES)
		return bad(r, -EINVAL, "an array of an unknown type");
	/* An empty string takes 8 bytes, an empty array 12. */
	const uint64_t least = type == GGUF_STRING  ? 8
			       : type == GGUF_ARRAY ? 12
						    : (uint64_t)value_bytes[type];
	if (n > (r->n - r->at) / least)
		return ends(r, n > UINT64_MAX / least ? UINT64_MAX : n * least);
	*out = (struct gguf_array){(enum gguf_value)type, (size_t)n, r->p + r->at};
	if (type != GGUF_STRING && type != GGUF_ARRAY)
		return take(r, n * least, &p);
	for (uint64_t i = 0; !rc && i < n; i++)
		rc = take_value(r, type, depth, &inner);
	return rc;
}

/* ---- keys ---- */

static int compare(const char *a, size_t an, const char *b, size_t bn)
{
	const int c = memcmp(a, b, an < bn ? an : bn);
	return c ? c : (an > bn) - (an < bn);
}

static int by_key(const void *a, const void *b)
{
	const struct key *x = a, *y = b;
	return compare(x->name.p, x->name.n, y->name.p, y->name.n);
}

static int read_key(struct reader *r, uint64_t i, struct key *k)
{
	uint32_t type;
	snprintf(r->what, sizeof r->what, "the name of key %llu", (unsigned long long)i);
	int rc = take_string(r, &k->name);
	if (rc)
		return rc;
	if (!k->name.n || k->name.n > NAME_MAX_BYTES)
		return bad(r, -EINVAL, "a name of 1 to 65535 bytes is needed");
	snprintf(r->what, sizeof r->what, "key %.*s", k->name.n < 100 ? (int)k->name.n : 100, k->name.p);
	if ((rc = take_u32(r, &type)))
		return rc;
	if (type >= N_VALUES)
		return bad(r, -EINVAL, "a value of an unknown type");
	k->type = (enum gguf_value)type;
	k->at = r->p + r->at;
	k->stored = (struct gguf_key){.name = k->name, .type = k->type, .at = k->at};
	rc = take_value(r, type, 0, &k->array);
	k->stored.bytes = (size_t)(r->p + r->at - k->at);
	return rc;
}

static int read_keys(struct reader *r, uint64_t n, struct key **out)
{
	/* A key takes at least 13 bytes: name, type and a value of one byte. */
	if (n > GGUF_KEYS_MAX || n > (r->n - r->at) / 13)
		return bad(r, -EINVAL, "too many keys for the file, or more than 65536");
	struct key *k = xcalloc(n ? (size_t)n : 1, sizeof *k);
	int rc = 0;
	*out = k;
	for (uint64_t i = 0; !rc && i < n; i++)
		rc = read_key(r, i, &k[i]);
	if (rc)
		return rc;
	qsort(k, (size_t)n, sizeof *k, by_key);
	for (uint64_t i = 1; i < n; i++)
		if (by_key(&k[i - 1], &k[i]) == 0)
			return err_why(r->why, -EINVAL, "%s: key %.*s is there twice", r->path,
				       k[i].name.n < 100 ? (int)k[i].name.n : 100, k[i].name.p);
	return 0;
}

static const struct key *find_in(const struct key *keys, size_t n, const char *name)
{
	size_t lo = 0, hi = n;
	while (lo < hi) {
		const size_t mid = lo + (hi - lo) / 2;
		const int c = compare(keys[mid].name.p, keys[mid].name.n, name, strlen(name));
		if (c == 0)
			return &keys[mid];
		if (c < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return NULL;
}

/* Read value i from p; false: not an integer type, or too large. */
static bool int_value(enum gguf_value type, const unsigned char *p, size_t i, int64_t *out)
{
	uint16_t h;
	p += i * (size_t)value_bytes[type];
	switch (type) {
	case GGUF_U8:
		*out = *p;
		return true;
	case GGUF_I8:
		*out = (int8_t)*p;
		return true;
	case GGUF_U16:
	case GGUF_I16:
		memcpy(&h, p, 2);
		*out = type == GGUF_U16 ? h : (int16_t)h;
		return true;
	case GGUF_U32:
		*out = u32_of(p);
		return true;
	case GGUF_I32:
		*out = (int32_t)u32_of(p);
		return true;
	case GGUF_U64:
	case GGUF_I64:
		*out = (int64_t)u64_of(p);
		return type == GGUF_I64 || *out >= 0;
	default:
		return false;
	}
}

static bool num_value(enum gguf_value type, const unsigned char *p, size_t i, double *out)
{
	int64_t v;
	float f;
	if (type == GGUF_F32) {
		memcpy(&f, p + i * 4, 4);
		*out = f;
		return true;
	}
	if (type == GGUF_F64) {
		memcpy(out, p + i * 8, 8);
		return true;
	}
	if (!int_value(type, p, i, &v))
		return false;
	*out = (double)v;
	return true;
}

bool gguf_int_at(const struct gguf_array *a, size_t i, int64_t *out)
{
	return i < a->n && int_value(a->type, a->at, i, out);
}

bool gguf_num_at(const struct gguf_array *a, size_t i, double *out)
{
	return i < a->n && num_value(a->type, a->at, i, out);
}

struct gguf_string gguf_next_string(struct gguf_array *a)
{
	const size_t n = (size_t)u64_of(a->at);
	const struct gguf_string s = {(const char *)a->at + 8, n};
	a->at += 8 + n;
	a->n--;
	return s;
}

static int wrong(const struct gguf *g, const char *key, const struct key *k, const char *need,
		 struct why *why)
{
	return err_why(why, -EINVAL, "%s: key %s is %s; %s is needed", g->path, key, value_names[k->type],
		       need);
}

static const struct key *find_key(const struct gguf *g, const char *key, struct why *why)
{
	const struct key *k = find_in(g->keys, g->n_keys, key);
	if (!k)
		err_why(why, -ENOENT, "%s: key %s is missing", g->path, key);
	return k;
}

int gguf_n_keys(const struct gguf *g)
{
	return (int)g->n_keys;
}

struct gguf_key gguf_key_at(const struct gguf *g, int i)
{
	assert(i >= 0 && (size_t)i < g->n_keys);
	return g->keys[i].stored;
}

int gguf_find_string(const struct gguf *g, const char *key, struct gguf_string *out, struct why *why)
{
	const struct key *k = find_key(g, key, why);
	if (!k)
		return -ENOENT;
	if (k->type != GGUF_STRING)
		return wrong(g, key, k, "a string", why);
	*out = (struct gguf_string){(const char *)k->at + 8, (size_t)u64_of(k->at)};
	return 0;
}

int gguf_find_int(const struct gguf *g, const char *key, int64_t *out, struct why *why)
{
	const struct key *k = find_key(g, key, why);
	int64_t v;
	if (!k)
		return -ENOENT;
	if (!int_value(k->type, k->at, 0, &v))
		return wrong(g, key, k, "an integer below 2^63", why);
	*out = v;
	return 0;
}

int gguf_find_num(const struct gguf *g, const char *key, double *out, struct why *why)
{
	const struct key *k = find_key(g, key, why);
	if (!k)
		return -ENOENT;
	return num_value(k->type, k->at, 0, out) ? 0 : wrong(g, key, k, "a number", why);
}

int gguf_find_bool(const struct gguf *g, const char *key, bool *out, struct why *why)
{
	const struct key *k = find_key(g, key, why);
	if (!k)
		return -ENOENT;
	if (k->type != GGUF_BOOL || *k->at > 1)
		return wrong(g, key, k, "a bool of 0 or 1", why);
	*out = *k->at;
	return 0;
}

int gguf_find_array(const struct gguf *g, const char *key, struct gguf_array *out, struct why *why)
{
	const struct key *k = find_key(g, key, why);
	if (!k)
		return -ENOENT;
	if (k->type != GGUF_ARRAY)
		return wrong(g, key, k, "an array", why);
	*out = k->array;
	return 0;
}

/* ---- tensors ---- */

/* Compute a tensor's bytes from its type and sizes. */
static int tensor_bytes(struct reader *r, struct gguf_tensor *t)
{
	const int values = types[t->type].values;
	size_t n = 1;
	if (t->size[0] % values)
		return err_why(r->why, -EINVAL, "%s: %s has rows of %lld values; %s needs multiples of %d",
			       r->path, r->what, (long long)t->size[0], types[t->type].name, values);
	for (int i = 0; i < t->n_dims; i++)
		if (__builtin_mul_overflow(n, (size_t)t->size[i], &n) || n > INT64_MAX)
			return bad(r, -EINVAL, "the product of its sizes is too large");
	if (__builtin_mul_overflow(n / (size_t)values, (size_t)types[t->type].bytes, &t->bytes) ||
	    t->bytes > INT64_MAX)
		return bad(r, -EINVAL, "the product of its sizes is too large");
	return 0;
}

static int read_tensor(struct reader *r, uint64_t i, struct gguf_tensor *t, uint64_t *offset)
{
	struct gguf_string name;
	uint32_t n_dims, type;
	uint64_t size;
	snprintf(r->what, sizeof r->what, "the name of tensor %llu", (unsigned long long)i);
	int rc = take_string(r, &name);
	if (rc)
		return rc;
	if (!name.n || name.n > TENSOR_NAME_MAX || memchr(name.p, 0, name.n))
		return bad(r, -EINVAL, "a name of 1 to 255 bytes without NUL is needed");
	t->name = xmalloc(name.n + 1);
	memcpy(t->name, name.p, name.n);
	t->name[name.n] = '\0';
	snprintf(r->what, sizeof r->what, "tensor %.120s", t->name);
	if ((rc = take_u32(r, &n_dims)))
		return rc;
	if (n_dims > GGUF_DIMS_MAX)
		return bad(r, -EINVAL, "more than 4 dimensions");
	t->n_dims = (int)n_dims;
	for (int d = 0; d < GGUF_DIMS_MAX; d++) {
		t->size[d] = 1;
		if (d >= t->n_dims)
			continue;
		if ((rc = take_u64(r, &size)))
			return rc;
		if (size > INT64_MAX)
			return bad(r, -EINVAL, "a size beyond 2^63");
		t->size[d] = (int64_t)size;
	}
	if ((rc = take_u32(r, &type)) || (rc = take_u64(r, offset)))
		return rc;
	if (type >= N_TYPES || !types[type].name)
		return err_why(r->why, -ENOTSUP, "%s: %s has the unknown type %u", r->path, r->what, type);
	t->type = (enum gguf_type)type;
	return tensor_bytes(r, t);
}

static int by_place(const void *a, const void *b)
{
	const struct gguf_tensor *x = a, *y = b;
	if (x->data != y->data)
		return x->data < y->data ? -1 : 1;
	return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

static int by_name(const void *a, const void *b)
{
	const struct gguf_tensor *x = a, *y = b;
	return strcmp(x->name, y->name);
}

/* Check that offsets are multiples of `align` within the data, which begins at byte `data`, and do not
 * overlap. */
static int place_tensors(struct reader *r, struct gguf_tensor *t, const uint64_t *offset, uint64_t n,
			 uint64_t data, uint64_t align)
{
	for (uint64_t i = 0; i < n; i++) {
		snprintf(r->what, sizeof r->what, "tensor %.120s", t[i].name);
		if (offset[i] % align)
			return err_why(r->why, -EINVAL,
				       "%s: %s is at the offset %llu, not a multiple of %llu", r->path,
				       r->what, (unsigned long long)offset[i], (unsigned long long)align);
		uint64_t at;
		if (__builtin_add_overflow(data, offset[i], &at))
			at = UINT64_MAX;
		if (at > r->n || t[i].bytes > r->n - at) {
			r->at = (size_t)at;
			return ends(r, t[i].bytes);
		}
		t[i].data = r->p + at;
	}
	qsort(t, (size_t)n, sizeof *t, by_place);
	for (uint64_t i = 1; i < n; i++)
		if ((const unsigned char *)t[i - 1].data + t[i - 1].bytes > (const unsigned char *)t[i].data)
			return err_why(r->why, -EINVAL, "%s: tensors %.100s and %.100s overlap", r->path,
				       t[i - 1].name, t[i].name);
	return 0;
}

static int read_tensors(struct gguf *g, struct reader *r, uint64_t n, uint64_t align)
{
	/* A tensor takes at least 24 bytes: an empty name of 8, dimensions, type and offset. */
	if (n > GGUF_TENSORS_MAX - g->n || n > (r->n - r->at) / 24)
		return bad(r, -EINVAL, "too many tensors for the file, or more than 100000");
	uint64_t *offset = xcalloc(n ? (size_t)n : 1, sizeof *offset);
	struct gguf_tensor *t;
	int rc = 0;
	g->tensors = xrealloc(g->tensors, g->n + (size_t)n + 1, sizeof *g->tensors);
	t = g->tensors + g->n;
	memset(t, 0, (size_t)n * sizeof *t);
	const size_t first = g->n;
	g->n += (size_t)n; /* gguf_close() frees their names */
	for (uint64_t i = 0; !rc && i < n; i++)
		rc = read_tensor(r, i, &t[i], &offset[i]);
	const uint64_t data = (r->at + align - 1) / align * align;
	if (!rc)
		rc = place_tensors(r, g->tensors + first, offset, n, data, align);
	free(offset);
	return rc;
}

/* ---- one file ---- */

static int read_header(struct reader *r, uint64_t *n_tensors, uint64_t *n_keys)
{
	const unsigned char *p;
	uint32_t version;
	snprintf(r->what, sizeof r->what, "the header");
	int rc = take(r, 4, &p);
	if (rc)
		return rc;
	if (memcmp(p, "GGUF", 4) != 0)
		return err_why(r->why, -EINVAL, "%s: not a GGUF file", r->path);
	if ((rc = take_u32(r, &version)))
		return rc;
	if (version && !(version & 0xffffff))
		return err_why(
			r->why, -ENOTSUP,
			"%s: a big-endian GGUF file is not supported; convert it with gguf_convert_endian.py "
			"of llama.cpp",
			r->path);
	if (version != 2 && version != 3)
		return err_why(r->why, -ENOTSUP,
			       "%s: GGUF version %u is not supported (supported: 2 and 3); convert the model "
			       "again",
			       r->path, version);
	if ((rc = take_u64(r, n_tensors)))
		return rc;
	return take_u64(r, n_keys);
}

static int key_int(const struct reader *r, const struct key *keys, size_t n, const char *name, int64_t lo,
		   int64_t hi, int64_t *out)
{
	const struct key *k = find_in(keys, n, name);
	if (!k)
		return 0;
	if (!int_value(k->type, k->at, 0, out) || *out < lo || *out > hi)
		return err_why(r->why, -EINVAL, "%s: key %s must be an integer from %lld to %lld", r->path,
			       name, (long long)lo, (long long)hi);
	return 0;
}

/* Read shard `no` of the model.  The first shard's keys are kept and give the number of shards. */
static int read_part(struct gguf *g, const char *path, int no, int64_t *n_parts, struct why *why)
{
	struct reader r = {.path = path, .why = why};
	struct key *keys = NULL;
	uint64_t n_tensors = 0, n_keys = 0;
	int64_t align = 32, at = no, count = 1;
	const void *data;
	int rc = file_map(path, &data, &r.n, why);
	if (rc)
		return rc;
	r.p = data;
	g->parts = xrealloc(g->parts, (size_t)g->n_parts + 1, sizeof *g->parts);
	g->parts[g->n_parts++] = (struct part){data, r.n};
	if ((rc = read_header(&r, &n_tensors, &n_keys)) || (rc = read_keys(&r, n_keys, &keys)) ||
	    (rc = key_int(&r, keys, n_keys, "general.alignment", 1, ALIGN_MAX, &align)) ||
	    (rc = key_int(&r, keys, n_keys, "split.no", 0, GGUF_PARTS_MAX - 1, &at)) ||
	    (rc = key_int(&r, keys, n_keys, "split.count", 0, GGUF_PARTS_MAX, &count)))
		goto done;
	if (align & (align - 1))
		rc = err_why(why, -EINVAL, "%s: general.alignment %lld is no power of two", path,
			     (long long)align);
	else if (at != no || (no && count != *n_parts))
		rc = err_why(why, -EINVAL, "%s: is part %lld of %lld, part %d of %lld is needed", path,
			     (long long)at + 1, (long long)count, no + 1, no ? (long long)*n_parts : 1);
	if (!rc)
		rc = read_tensors(g, &r, n_tensors, (uint64_t)align);
	if (!no)
		*n_parts = count > 1 ? count : 1;
done:
	if (no) {
		free(keys);
		return rc;
	}
	g->keys = keys;
	g->n_keys = rc ? 0 : (size_t)n_keys;
	return rc;
}

/* ---- paths ---- */

enum { SPLIT_TAIL = sizeof "-00001-of-00002.gguf" - 1 };

/* Return whether a name ends like a shard's. */
static bool is_split_name(const char *s)
{
	const size_t n = strlen(s);
	unsigned no, of;
	char tail[SPLIT_TAIL + 1];
	if (n <= SPLIT_TAIL || sscanf(s + n - SPLIT_TAIL, "-%5u-of-%5u.gguf", &no, &of) != 2 || no > 99999 ||
	    of > 99999)
		return false;
	snprintf(tail, sizeof tail, "-%05u-of-%05u.gguf", no % 100000, of % 100000);
	return strcmp(tail, s + n - SPLIT_TAIL) == 0;
}

static char *split_name(const char *any, int64_t no, int64_t of)
{
	const size_t n = strlen(any) - SPLIT_TAIL;
	char *s = xmalloc(n + SPLIT_TAIL + 1);
	memcpy(s, any, n);
	snprintf(s + n, SPLIT_TAIL + 1, "-%05u-of-%05u.gguf", (unsigned)(no + 1) % 100000,
		 (unsigned)of % 100000);
	return s;
}

static bool begins_gguf(const char *path)
{
	char head[4] = "";
	const int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	const bool yes = fd >= 0 && read(fd, head, 4) == 4 && memcmp(head, "GGUF", 4) == 0;
	if (fd >= 0)
		close(fd);
	return yes;
}

static bool ends_with(const char *s, const char *end)
{
	const size_t n = strlen(s), k = strlen(end);
	return n >= k && strcmp(s + n - k, end) == 0;
}

/* Find the only GGUF file of a directory, or the first shard; image projectors do not count.  *n: candidates,
 * 0 if the directory has other weights. */
static char *find_file(const char *dir, int *n)
{
	DIR *d = opendir(dir);
	char *found = NULL;
	bool others = false;
	*n = 0;
	for (const struct dirent *e; d && (e = readdir(d));) {
		const size_t len = strlen(e->d_name);
		others |= ends_with(e->d_name, ".safetensors");
		if (!ends_with(e->d_name, ".gguf") || strncmp(e->d_name, "mmproj", 6) == 0)
			continue;
		if (is_split_name(e->d_name) && strncmp(e->d_name + len - SPLIT_TAIL, "-00001-", 7) != 0)
			continue;
		++*n;
		free(found);
		found = file_join(dir, e->d_name);
	}
	if (d)
		closedir(d);
	if (others)
		*n = 0;
	return found;
}

bool gguf_is(const char *path)
{
	int n;
	if (!file_is_dir(path))
		return begins_gguf(path);
	char *found = find_file(path, &n);
	const bool yes = n > 0 && begins_gguf(found);
	free(found);
	return yes;
}

/* Return the path of the first shard. */
static int first_file(const char *path, char **out, struct why *why)
{
	int n;
	if (!file_is_dir(path)) {
		*out = xstrdup(path);
	} else {
		*out = find_file(path, &n);
		if (n != 1)
			return n ? err_why(why, -EINVAL, "%s holds %d GGUF files; name the one to read", path,
					   n)
				 : err_why(why, -ENOENT, "%s holds no GGUF file", path);
	}
	if (is_split_name(*out)) {
		unsigned of = 0;
		sscanf(*out + strlen(*out) - SPLIT_TAIL, "-%*5u-of-%5u", &of);
		char *first = split_name(*out, 0, of);
		free(*out);
		*out = first;
	}
	return 0;
}

/* ---- entry ---- */

static int check_names(const struct gguf *g, struct why *why)
{
	for (size_t i = 1; i < g->n; i++)
		if (strcmp(g->tensors[i - 1].name, g->tensors[i].name) == 0)
			return err_why(why, -EINVAL, "%s: tensor %.200s is there twice", g->path,
				       g->tensors[i].name);
	return 0;
}

int gguf_open(const char *path, struct gguf **out, struct why *why)
{
	struct gguf *g = xcalloc(1, sizeof *g);
	int64_t n_parts = 1;
	*out = NULL;
	int rc = first_file(path, &g->path, why);
	if (!rc)
		rc = read_part(g, g->path, 0, &n_parts, why);
	if (!rc && n_parts > 1 && !is_split_name(g->path))
		rc = err_why(why, -EINVAL,
			     "%s: is the first of %lld parts, but is not named NAME-00001-of-%05lld.gguf, so "
			     "that the others cannot be found",
			     g->path, (long long)n_parts, (long long)n_parts);
	for (int i = 1; !rc && i < n_parts; i++) {
		char *part = split_name(g->path, i, n_parts);
		rc = read_part(g, part, i, &n_parts, why);
		free(part);
	}
	if (!rc) {
		qsort(g->tensors, g->n, sizeof *g->tensors, by_name);
		rc = check_names(g, why);
	}
	if (rc) {
		gguf_close(g);
		return rc;
	}
	*out = g;
	return 0;
}

void gguf_close(struct gguf *g)
{
	if (!g)
		return;
	for (size_t i = 0; i < g->n; i++)
		free(g->tensors[i].name);
	for (int i = 0; i < g->n_parts; i++)
		file_unmap(g->parts[i].data, g->parts[i].bytes);
	free(g->tensors);
	free(g->parts);
	free(g->keys);
	free(g->path);
	free(g);
}

int gguf_count(const struct gguf *g)
{
	return (int)g->n;
}

int gguf_files(const struct gguf *g)
{
	return g->n_parts;
}

const struct gguf_tensor *gguf_at(const struct gguf *g, int i)
{
	return &g->tensors[i];
}

const char *gguf_path(const struct gguf *g)
{
	return g->path;
}

const struct gguf_tensor *gguf_find(const struct gguf *g, const char *name)
{
	size_t lo = 0, hi = g->n;
	while (lo < hi) {
		const size_t mid = lo + (hi - lo) / 2;
		const int c = strcmp(g->tensors[mid].name, name);
		if (c == 0)
			return &g->tensors[mid];
		if (c < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return NULL;
}
