/* writer.h - write the tensors of a new model to disk as they are computed: a directory with safetensors, a
 * GGUF file, or a directory with an ak48 file.
 *
 *     writer_new           makes and locks DST.partial/
 *     writer_declare       every tensor: name, type, shape; no data yet
 *     writer_file, _meta   config.json, tokenizer files; keys of a GGUF file
 *     writer_begin         gives all tensors their offsets, and the files their sizes
 *     writer_rows          data: tensors in any order, the rows of a tensor in order, once
 *     writer_commit        writes headers, syncs everything, renames DST.partial to DST
 *
 * Headers come last, so that no file of a killed run can be read as a model.  The next run that writes DST
 * removes the DST.partial of a killed run.  Rows are written through at once: the writer buffers no tensor
 * data.  One thread at a time. */
#ifndef QUERN_QUANT_WRITER_WRITER_H
#define QUERN_QUANT_WRITER_WRITER_H

#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum writer_format {
	WRITER_SAFETENSORS, /* DST/model.safetensors, or shards and their index */
	WRITER_GGUF,        /* DST itself */
	WRITER_AK48,        /* DST/model.ak48: the first 256 bytes are from writer_header(); tensors are
			     * stored in the order of declaration */
};
enum { WRITER_DIMS_MAX = 4 };
#define WRITER_SHARD_BYTES INT64_C(5000000000)

struct writer;

struct writer_tensor {
	const char *name; /* "model.layers.0.mlp.up_proj.weight"; GGUF: "blk.0.ffn_up.weight" */
	const char *type; /* name from st_dtype_name() or gguf_type_name(): "BF16", "I32", "Q4_K" */
	int n_dims;
	int64_t shape[WRITER_DIMS_MAX]; /* [rows, columns]; reversed in a GGUF file */
};

/* Parse "safetensors", "gguf", "ak48".  False: another word. */
bool writer_format_of(const char *name, enum writer_format *out);

/* Start a result.  dst must not exist.  -EEXIST, -EBUSY (another run writes it), -errno with the reason. */
int writer_new(const char *dst, enum writer_format format, struct writer **out, struct why *why);

/* Set the size limit of a safetensors file, in bytes; a tensor that would exceed it starts the next shard.
 * Default: WRITER_SHARD_BYTES. */
void writer_shards(struct writer *w, int64_t bytes);

/* Declare a tensor; return its index for writer_rows().  -EINVAL: a duplicate, or a shape that its type
 * cannot have; -ENOTSUP: the format lacks the type. */
int writer_declare(struct writer *w, const struct writer_tensor *t, struct why *why);

/* Write a whole file into the directory DST; no "/" in its name.  Not for GGUF. */
int writer_file(struct writer *w, const char *name, const void *data, size_t n, struct why *why);
/* Write a JSON tree as a file: config.json, to which the caller has added "quantization_config". */
int writer_json(struct writer *w, const char *name, const json_t *tree, struct why *why);
/* Copy a file from another directory; *copied false: it does not exist. */
int writer_copy(struct writer *w, const char *from_dir, const char *name, bool *copied, struct why *why);

/* Add a key of a GGUF file; keys are in the order of the calls.  general.alignment is the default, 32. */
void writer_meta_string(struct writer *w, const char *key, const char *s, size_t n);
void writer_meta_str(struct writer *w, const char *key, const char *s);
void writer_meta_u32(struct writer *w, const char *key, uint32_t v);
void writer_meta_f32(struct writer *w, const char *key, float v);
void writer_meta_bool(struct writer *w, const char *key, bool v);
void writer_meta_u8s(struct writer *w, const char *key, const void *v, size_t n);
void writer_meta_i32s(struct writer *w, const char *key, const int32_t *v, size_t n);
void writer_meta_f32s(struct writer *w, const char *key, const float *v, size_t n);
void writer_meta_bools(struct writer *w, const char *key, const bool *v, size_t n);
/* Add an array of n strings; writer_meta_item() adds each string. */
void writer_meta_strings(struct writer *w, const char *key, size_t n);
void writer_meta_item(struct writer *w, const char *s, size_t n);

/* Add a key with a value as another GGUF file stores it. */
struct gguf_key;
void writer_meta_key(struct writer *w, const struct gguf_key *key);

/* Set the header of an ak48 file. */
void writer_header(struct writer *w, const void *head, size_t n);

/* End declarations, files and keys.  -ENOSPC if the disk has too little room. */
int writer_begin(struct writer *w, struct why *why);

/* Before the tensors are written: return the path of the unfinished result with its headers, so that it can
 * be read.  GGUF: the file; else the directory.  The caller frees *path. */
int writer_preview(struct writer *w, char **path, struct why *why);

/* Write rows row0 .. row0 + n_rows - 1 of a tensor, as stored.  A row runs along the last dimension; a vector
 * is one row.  row0 must be the number of rows written so far. */
int writer_rows(struct writer *w, int tensor, int64_t row0, int64_t n_rows, const void *data,
		struct why *why);
int64_t writer_n_rows(const struct writer *w, int tensor);
size_t writer_row_bytes(const struct writer *w, int tensor);
int64_t writer_bytes(const struct writer *w); /* all tensors */

/* Finish the result; free *w.  A missing row is a bug of the caller.  After an error nothing of DST
 * exists. */
int writer_commit(struct writer **w, struct why *why);
/* Remove DST.partial and free *w; NULL is fine. */
void writer_abort(struct writer **w);

#endif
