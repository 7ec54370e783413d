/* json.h - JSON from files, clients and peers (RFC 8259), parsed by jansson within bounds.
 * Our nesting limit (JSON_DEPTH_MAX) replaces jansson's (2048).  The memory of a tree can be bounded: a text
 * is measured before jansson sees it.  If a key occurs twice in an object, the last value counts.  Errors of
 * the getters name the key and what is wrong with it.
 *
 * A number that jansson cannot represent (an integer beyond 64 bits, a float beyond a double) is kept as
 * written: a string of the noncharacter U+FDD0 followed by the number's text.  json_big() distinguishes it
 * from other strings; json_text() writes it as the original number.
 *
 * Trees are small metadata: if memory is out, jansson aborts the process as alloc.h does. */
#ifndef QUERN_BASE_JSON_H
#define QUERN_BASE_JSON_H

#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { JSON_DEPTH_MAX = 128 };

/* Bytes of memory per node of a tree, as an upper bound: jansson's structures as malloc rounds them,
 * including the tables of empty or growing containers. */
enum {
	JSON_BYTES_ELEMENT = 16, /* any value, within the array or object that holds it */
	JSON_BYTES_NUMBER = 32,
	JSON_BYTES_STRING = 80, /* plus its text */
	JSON_BYTES_ARRAY = 128,
	JSON_BYTES_OBJECT = 224,
	JSON_BYTES_KEY = 112, /* plus its text */
};

/* Size of the tree that a text would become, computed without building it.  A body of "[],[],..." takes 48
 * times its own bytes. */
struct json_size {
	size_t n_values;   /* scalars, arrays and objects; keys are not counted */
	size_t tree_bytes; /* memory of the tree */
	unsigned depth;    /* nesting of arrays and objects */
};

/* Measure a text.  Exact for valid JSON; for invalid text, the part before the error is measured. */
void json_measure(const char *text, size_t n, struct json_size *out);

/* Parse n bytes.  The caller owns the result (json_decref).  -EINVAL. */
int json_parse(const char *text, size_t n, json_t **out, struct why *why);
/* json_parse(), but -E2BIG, without building anything, if the tree would take more than max_tree bytes.  size
 * may be NULL. */
int json_parse_within(const char *text, size_t n, size_t max_tree, json_t **out, struct json_size *size,
		      struct why *why);
/* Parse a file of at most max bytes; why names the path. */
int json_read(const char *path, size_t max, json_t **out, struct why *why);

/* Return the text of a number that was kept as written; NULL if v is not such a number. */
const char *json_big(const json_t *v);
/* Return whether p[0..n) is the text of an object. */
bool json_is_object_text(const char *p, size_t n);
/* json_dumps(), but numbers that were kept as written are written as numbers.  The caller frees the result.
 * NULL if v cannot be written. */
char *json_text(const json_t *v, size_t flags);
/* Make a string of s, with U+FFFD in place of each invalid UTF-8 sequence. */
json_t *json_string_lossy(const char *s);
/* Return a copy in which numbers that were kept as written are the nearest floats; NULL if v has no such
 * numbers. */
json_t *json_without_big(const json_t *v);

/* Getters.  An absent or null key returns 0 and leaves *out (the caller's default) unchanged.  A wrong type
 * or range is -EINVAL, with a reason that names the key. */
int json_get_int(const json_t *o, const char *key, int64_t lo, int64_t hi, int64_t *out, struct why *why);
int json_get_num(const json_t *o, const char *key, double *out, struct why *why);
int json_get_bool(const json_t *o, const char *key, bool *out, struct why *why);
/* *out borrows from o. */
int json_get_str(const json_t *o, const char *key, const char **out, struct why *why);
/* Store v as an integer: an integer, or a real without a fraction (5.0), which other services accept too.
 * Returns false for anything else, also for reals beyond 2^53, which may stand for another number. */
bool json_integral(const json_t *v, int64_t *out);
/* json_object_get(), but null counts as absent. */
json_t *json_get(const json_t *o, const char *key);

#endif
