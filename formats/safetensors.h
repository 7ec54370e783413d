/* safetensors.h - the tensors of a safetensors file, or of a sharded model's files, memory-mapped.
 * The header is not trusted: lengths, types, shapes and offsets are checked; tensors must not overlap or
 * leave gaps; names are unique.  Format: huggingface/safetensors, README.
 *
 *     offset 0          8                    8 + n
 *     +-----------------+--------------------+---------------------------+
 *     | n, 64-bit LE    | header, JSON       | data of all tensors       |
 *     +-----------------+--------------------+---------------------------+
 *     header: {"name": {"dtype": "F16", "shape": [2, 3], "data_offsets": [0, 12]}, ...}, offsets into data */
#ifndef QUERN_FORMATS_SAFETENSORS_H
#define QUERN_FORMATS_SAFETENSORS_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

/* 94 layers of 128 experts in GPTQ have 145,000 tensors. */
enum { ST_DIMS_MAX = 8, ST_TENSORS_MAX = 400000, ST_SHARDS_MAX = 4096, ST_HEADER_MAX = 100000000 };

enum st_dtype {
	ST_BOOL,
	ST_U8,
	ST_I8,
	ST_F8_E5M2,
	ST_F8_E4M3,
	ST_I16,
	ST_U16,
	ST_F16,
	ST_BF16,
	ST_I32,
	ST_U32,
	ST_F32,
	ST_F64,
	ST_I64,
	ST_U64,
};

struct st_tensor {
	char *name; /* owned by the file set */
	enum st_dtype dtype;
	int n_dims;
	int64_t shape[ST_DIMS_MAX];
	size_t bytes;
	const void *data; /* in the mapping; may be unaligned */
};

struct safetensors;

/* Open one file.  -ENOENT, -EINVAL, ... with the path and the reason. */
int safetensors_open(const char *path, struct safetensors **out, struct why *why);
/* Open the files of a model directory: model.safetensors.index.json and its shards, or model.safetensors,
 * or the only *.safetensors file. */
int safetensors_open_dir(const char *dir, struct safetensors **out, struct why *why);
void safetensors_close(struct safetensors *s); /* NULL is fine */

/* NULL: no such tensor. */
const struct st_tensor *safetensors_find(const struct safetensors *s, const char *name);
int safetensors_count(const struct safetensors *s);
const struct st_tensor *safetensors_at(const struct safetensors *s, int i); /* in the order of names */
int safetensors_files(const struct safetensors *s);
int64_t safetensors_bytes(const struct safetensors *s); /* all tensors */

const char *st_dtype_name(enum st_dtype t);
int st_dtype_bytes(enum st_dtype t);

#endif
