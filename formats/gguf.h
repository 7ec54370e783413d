/* gguf.h - the metadata and tensors of a GGUF file, or of the shards of a split file, memory-mapped.
 * Versions 2 and 3, little-endian.  The file is not trusted: counts, lengths, nesting, types, shapes and
 * offsets are checked before use.  Names of keys and tensors must be unique; tensors must not overlap.
 * Format: ggml-org/ggml, docs/gguf.md.
 *
 *     "GGUF" | version u32 | tensors u64 | keys u64 | keys | tensor infos | padding | data
 *     key:    name | type u32 | value          string: length u64 | bytes
 *     array:  type u32 | count u64 | values    tensor: name | dims u32 | sizes u64 | type u32 | offset u64
 *
 * The first size of a tensor is its row length: [rows, columns] is stored as columns, rows. */
#ifndef QUERN_FORMATS_GGUF_H
#define QUERN_FORMATS_GGUF_H

#include "base/block_types.h"
#include "base/err.h"
#include "formats/weights.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { GGUF_DIMS_MAX = 4, GGUF_TENSORS_MAX = 100000, GGUF_KEYS_MAX = 65536, GGUF_PARTS_MAX = 1024 };
enum { GGUF_DEPTH_MAX = 4 }; /* depth of nested arrays */

/* Value types, numbered as in the file. */
enum gguf_value {
	GGUF_U8,
	GGUF_I8,
	GGUF_U16,
	GGUF_I16,
	GGUF_U32,
	GGUF_I32,
	GGUF_F32,
	GGUF_BOOL,
	GGUF_STRING,
	GGUF_ARRAY,
	GGUF_U64,
	GGUF_I64,
	GGUF_F64,
};

/* Tensor types, numbered as in the file: GGUF_TYPE_F32, GGUF_TYPE_Q4_K, ... */
enum gguf_type {
#define TYPE(number, NAME, ...) GGUF_TYPE_##NAME = (number),
	PLAIN_TYPES(TYPE) BLOCK_TYPES(TYPE, TYPE)
#undef TYPE
};

struct gguf_string {
	const char *p; /* in the mapping; not NUL-terminated, and may hold any bytes */
	size_t n;
};

/* An array; all of its values are within the file. */
struct gguf_array {
	enum gguf_value type;
	size_t n;
	const unsigned char *at; /* the values as stored; unaligned */
};

struct gguf_tensor {
	char *name; /* owned by the file set */
	enum gguf_type type;
	int n_dims;
	int64_t size[GGUF_DIMS_MAX]; /* row length first; 1 beyond n_dims */
	size_t bytes;
	const void *data; /* in the mapping */
};

struct gguf;

/* Open a GGUF model.  path: a file, any shard of a split file, or a directory with one GGUF file (or the
 * shards of one).
 * -ENOENT, -EINVAL, -ENOTSUP; the reason names the file, the key or tensor, and the byte. */
int gguf_open(const char *path, struct gguf **out, struct why *why);
void gguf_close(struct gguf *g); /* NULL is fine */
/* Return whether path is a GGUF file or directory, by its first bytes. */
bool gguf_is(const char *path);

/* A key with its value as stored: an array begins with its type and count. */
struct gguf_key {
	struct gguf_string name;
	enum gguf_value type;
	const unsigned char *at; /* in the mapping, unaligned */
	size_t bytes;
};
int gguf_n_keys(const struct gguf *g);
struct gguf_key gguf_key_at(const struct gguf *g, int i); /* in the order of names */

/* Find a value by key.  0; -ENOENT: no such key, *out is unchanged; -EINVAL with why: another type, or too
 * large.  int takes every integer type; num takes integers and floats. */
int gguf_find_string(const struct gguf *g, const char *key, struct gguf_string *out, struct why *why);
int gguf_find_int(const struct gguf *g, const char *key, int64_t *out, struct why *why);
int gguf_find_num(const struct gguf *g, const char *key, double *out, struct why *why);
int gguf_find_bool(const struct gguf *g, const char *key, bool *out, struct why *why);
int gguf_find_array(const struct gguf *g, const char *key, struct gguf_array *out, struct why *why);

/* Remove and return the next value of an array of strings; a->n > 0. */
struct gguf_string gguf_next_string(struct gguf_array *a);
/* Read value i of an array: gguf_int_at() of integers, gguf_num_at() of integers or floats.  False: another
 * type, or an integer too large. */
bool gguf_int_at(const struct gguf_array *a, size_t i, int64_t *out);
bool gguf_num_at(const struct gguf_array *a, size_t i, double *out);

int gguf_count(const struct gguf *g); /* tensors */
int gguf_files(const struct gguf *g);
const struct gguf_tensor *gguf_at(const struct gguf *g, int i);              /* in the order of names */
const struct gguf_tensor *gguf_find(const struct gguf *g, const char *name); /* NULL: none */
const char *gguf_path(const struct gguf *g);                                 /* the first file */

/* ---- tensor types (gguf_types.c) ---- */

/* Describe a matrix of n rows and k columns in a quantized type as codes, which read it in place.  False:
 * the type is not quantized, or only its name is known. */
bool gguf_codes(enum gguf_type t, int n, int k, const void *data, struct codes *out);

extern const float gguf_iq4[16]; /* values of the codes of IQ4_NL and IQ4_XS: ascending whole numbers */

/* ---- models (gguf_config.c, gguf_weights.c), for formats/model_file.h ---- */

int gguf_config_load(const char *path, struct model_config *out, struct why *why);
int gguf_weights_open(const char *path, const struct model_config *c, struct weights **out, struct why *why);

const char *gguf_type_name(enum gguf_type t); /* "Q4_K"; "?" for an unknown type */
/* Find a type by name, with the values and bytes of its block.  False: no such type. */
bool gguf_type_of(const char *name, enum gguf_type *out, int *values, int *bytes);

#endif
