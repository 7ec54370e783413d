/* writer.h - the tensors of a new model, written to disk as they are computed: a directory with safetensors,
 * a GGUF file, or a directory with an ak48 file.
 *
 *     writer_new           DST.partial/ is made, and locked
 *     writer_declare       every tensor: name, type, shape; no data yet
 *     writer_file, _meta   config.json, tokenizer files; keys of a GGUF file
 *     writer_begin         places are given to all tensors, the files get their sizes
 *     writer_rows          data: any tensor next, the rows of a tensor in order, once
 *     writer_commit        headers are written, everything is synced, DST.partial becomes DST
 *
 * Headers come last, so that no file of a run that was killed can be read as a model.  What such a run leaves
 * behind, DST.partial, is removed by the next one that writes DST.  Rows are written through at once: the
 * writer holds no data of tensors.  One thread at a time. */
#ifndef QUERN_QUANT_WRITER_WRITER_H
#define QUERN_QUANT_WRITER_WRITER_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum writer_format {
	WRITER_SAFETENSORS, /* DST/model.safetensors, or shards and their index */
	WRITER_GGUF,        /* DST itself */
	WRITER_AK48,        /* DST/model.ak48: writer_header() has its first 256 bytes, and tensors lie in the
			       order in which they were declared */
};
enum { WRITER_DIMS_MAX = 4 };
#define WRITER_SHARD_BYTES INT64_C(5000000000)

struct writer;

struct writer_tensor {
	const char *name; /* "model.layers.0.mlp.up_proj.weight"; of GGUF "blk.0.ffn_up.weight" */
	const char *type; /* as st_dtype_name() or gguf_type_name() have it: "BF16", "I32", "Q4_K" */
	int n_dims;
	int64_t shape[WRITER_DIMS_MAX]; /* [rows, columns]; in a GGUF file it is turned around */
};

/* "safetensors", "gguf", "ak48".  False: another word. */
bool writer_format_of(const char *name, enum writer_format *out);

/* dst: what does not exist yet.  -EEXIST, -EBUSY (another run writes it), -errno with the reason. */
int writer_new(const char *dst, enum writer_format format, struct writer **out, char *why, size_t why_n);

/* Safetensors: a file that would be larger than this begins the next shard; the default is
 * WRITER_SHARD_BYTES. */
void writer_shards(struct writer *w, int64_t bytes);

/* The index of the tensor, for writer_rows().  -EINVAL: a duplicate, or a shape that its type cannot have;
 * -ENOTSUP: a type that the format does not have. */
int writer_declare(struct writer *w, const struct writer_tensor *t, char *why, size_t why_n);

/* A file of the directory DST, whole, without a "/" in its name.  Not of GGUF. */
int writer_file(struct writer *w, const char *name, const void *data, size_t n, char *why, size_t why_n);
/* The same from a tree: config.json, into which the caller has put "quantization_config". */
int writer_json(struct writer *w, const char *name, const json_t *tree, char *why, size_t why_n);
/* The same, copied from another directory; *copied false: it is not there. */
int writer_copy(struct writer *w, const char *from_dir, const char *name, bool *copied, char *why,
		size_t why_n);

/* Keys of a GGUF file, in the order of the calls; general.alignment is the default, 32. */
void writer_meta_string(struct writer *w, const char *key, const char *s, size_t n);
void writer_meta_str(struct writer *w, const char *key, const char *s);
void writer_meta_u32(struct writer *w, const char *key, uint32_t v);
void writer_meta_f32(struct writer *w, const char *key, float v);
void writer_meta_bool(struct writer *w, const char *key, bool v);
void writer_meta_u8s(struct writer *w, const char *key, const void *v, size_t n);
void writer_meta_i32s(struct writer *w, const char *key, const int32_t *v, size_t n);
void writer_meta_f32s(struct writer *w, const char *key, const float *v, size_t n);
void writer_meta_bools(struct writer *w, const char *key, const bool *v, size_t n);
/* An array of n strings, each added by writer_meta_item(). */
void writer_meta_strings(struct writer *w, const char *key, size_t n);
void writer_meta_item(struct writer *w, const char *s, size_t n);

/* Of ak48: the header. */
void writer_header(struct writer *w, const void *head, size_t n);

/* No declaration, file or key after this.  -ENOSPC where the disk has too little room. */
int writer_begin(struct writer *w, char *why, size_t why_n);

/* Rows row0 .. row0 + n_rows - 1 of a tensor, as stored.  A row is what lies along the last dimension; a
 * vector is one row.  row0 is the number of rows that the tensor has so far. */
int writer_rows(struct writer *w, int tensor, int64_t row0, int64_t n_rows, const void *data, char *why,
		size_t why_n);
int64_t writer_n_rows(const struct writer *w, int tensor);
size_t writer_row_bytes(const struct writer *w, int tensor);
int64_t writer_bytes(const struct writer *w); /* of all tensors */

/* Every row of every tensor must be there: a missing one is a bug of the caller.  Frees *w; after an error
 * nothing of DST is there. */
int writer_commit(struct writer **w, char *why, size_t why_n);
/* DST.partial is removed.  Frees *w; NULL is fine. */
void writer_abort(struct writer **w);

#endif
