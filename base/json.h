/* json.h - JSON from files, clients and peers (RFC 8259), through jansson, with bounds.
 * jansson's own nesting limit (2048) is replaced by ours (JSON_DEPTH_MAX); duplicate keys
 * are refused where strict.  The getters' errors name the key and what is wrong with it.
 * Trees are small metadata: where memory is out, jansson ends the process as alloc.h does. */
#ifndef QUERN_BASE_JSON_H
#define QUERN_BASE_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { JSON_DEPTH_MAX = 128 };

/* Parse n bytes.  The result is the caller's (json_decref). */
int json_parse(const char *text, size_t n, json_t **out, char *why, size_t why_n);
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
/* As json_object_get, but null counts as absent. */
json_t *json_get(const json_t *o, const char *key);

#endif
