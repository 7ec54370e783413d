/* imatrix.h - an importance matrix: for each input of a linear layer, the mean square of its values on some
 * text.  Errors of weights that meet large inputs matter more (gguf_encode.h).
 *
 * llama.cpp's files are read in both formats; its GGUF format is written (tools/imatrix/README.md there).
 *
 *     legacy  entries i32 | entries: name length i32 | name | calls i32 | values i32 | sums f32 [values]
 *             | chunks i32 | length i32 | name of the text            the last line may be missing
 *     GGUF    general.type "imatrix", imatrix.datasets [strings], imatrix.chunk_count, imatrix.chunk_size;
 *             for each tensor T: T.in_sum2 f32 [parts][inputs], T.counts f32 [parts]
 *
 * A tensor of all experts of a layer has a part for each expert.  An expert that no row of the text reached
 * has the importance 1 for all inputs. */
#ifndef QUERN_QUANT_ROUND_IMATRIX_H
#define QUERN_QUANT_ROUND_IMATRIX_H

#include "base/err.h"
#include "quant/writer/writer.h"

#include <stddef.h>

struct imatrix;

/* text: name of the text; chunks, chunk_size: windows of it, and tokens in one. */
struct imatrix *imatrix_new(const char *text, int chunks, int chunk_size);
void imatrix_free(struct imatrix *m); /* NULL is fine */

/* Read a file.  -ENOENT, -EINVAL: the reason names the entry. */
int imatrix_read(const char *path, struct imatrix **out, struct why *why);
/* Write a GGUF file; path must not exist. */
int imatrix_write(const struct imatrix *m, const char *path, struct why *why);

/* Set part `part` of a tensor: sums of squares of its k inputs over `rows` rows.  tensor: name in a GGUF
 * file.  All parts of a tensor have the same k. */
void imatrix_set(struct imatrix *m, const char *tensor, int part, int parts, const double *sums, int k,
		 double rows);

/* Find the importance of the k inputs of part `part` of a tensor.  1: *out is [k], borrowed from m; 0: no
 * entry; -EINVAL: an entry of another size. */
int imatrix_find(const struct imatrix *m, const char *tensor, int part, int parts, int64_t k,
		 const float **out, struct why *why);

/* Add llama.cpp's keys about the matrix.  path: of the file. */
void imatrix_keys(const struct imatrix *m, const char *path, struct writer *w);

#endif
