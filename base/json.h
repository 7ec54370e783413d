/* json.h - JSON from files, clients and peers (RFC 8259), through jansson, with bounds.
 * jansson's own nesting limit (2048) is replaced by ours (JSON_DEPTH_MAX), and the memory of a tree can be
 * bounded: a text is measured before jansson sees it.  Duplicate keys
 * are refused where strict.  The getters' errors name the key and what is wrong with it.
 * Trees are small metadata: where memory is out, jansson ends the process as alloc.h does. */
#ifndef QUERN_BASE_JSON_H
#define QUERN_BASE_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { JSON_DEPTH_MAX = 128 };

/* Memory of a tree's parts, in bytes: jansson's structures as malloc rounds them, with what an empty table or
 * a growing one takes.  No part takes more. */
enum {
	JSON_BYTES_ELEMENT = 16, /* any value, within the array or object that holds it */
	JSON_BYTES_NUMBER = 32,
	JSON_BYTES_STRING = 80, /* and its text */
	JSON_BYTES_ARRAY = 128,
	JSON_BYTES_OBJECT = 224,
	JSON_BYTES_KEY = 112, /* and its text */
};

/* What a text would become, found without building it: a body of "[],[],..." takes 48 times its bytes. */
struct json_size {
	size_t n_values;   /* scalars, arrays and objects; keys are not counted */
	size_t tree_bytes; /* memory of the tree */
	unsigned depth;    /* of nested arrays and objects */
};

/* Exact for valid JSON; of another text, it covers what precedes the error. */
void json_measure(const char *text, size_t n, struct json_size *out);

/* Parse n bytes.  The result is the caller's (json_decref).  -EINVAL. */
int json_parse(const char *text, size_t n, json_t **out, char *why, size_t why_n);
/* The same; -E2BIG where the tree would take more than max_tree bytes: nothing is built then.  *size may be
 * NULL. */
int json_parse_within(const char *text, size_t n, size_t max_tree, json_t **out, struct json_size *size,
		      char *why, size_t why_n);
/* The same from a file of at most max bytes; why names the path. */
int json_read(const char *path, size_t max, json_t **out, char *why, size_t why_n);

/* Getters.  Absent or null: *out is unchanged (the caller's default), 0.
 * Wrong type or out of range: -EINVAL and a reason that names the key. */
int json_get_int(const json_t *o, const char *key, int64_t lo, int64_t hi, int64_t *out, char *why,
		 size_t why_n);
int json_get_num(const json_t *o, const char *key, double *out, char *why, size_t why_n);
int json_get_bool(const json_t *o, const char *key, bool *out, char *why, size_t why_n);
/* *out borrows from o. */
int json_get_str(const json_t *o, const char *key, const char **out, char *why, size_t why_n);
/* v as an integer: one, or a real without a fraction (5.0), as other services take it.  false: it is none.
 * Reals beyond 2^53, which may stand for another number, are not taken. */
bool json_integral(const json_t *v, int64_t *out);
/* As json_object_get, but null counts as absent. */
json_t *json_get(const json_t *o, const char *key);

#endif
