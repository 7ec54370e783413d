/* llama2c.h - the files of llama2.c (github.com/karpathy/llama2.c, export.py), little-endian.
 *
 *     version 0   int32: dim, hidden_dim, layers, heads, kv_heads, vocab, context;
 *                 a negative vocab: the head is not the embedding
 *                 F32: embedding, attention norms, wq, wk, wv, wo, FFN norms, w1 (gate), w2 (down), w3 (up),
 *                 final norm, two tables of RoPE [context, head_dim / 2], which are not read, head
 *     version 1   header, 256 bytes: "ak42", the version, the seven int32, a byte (1: the head is the
 *                 embedding), zeros
 *                 F32: attention norms, FFN norms, final norm, embedding, wq, wk, wv, wo, w1, w2, w3, head
 *     version 2   header: as version 1, and after the byte an int32, the group
 *                 F32: attention norms, FFN norms, final norm
 *                 Q8_0: embedding, wq, wk, wv, wo, w1, w2, w3, head; each int8 values, then an F32 scale for
 *                 each group of them
 *
 * Tensors are ordered by kind, then by layer.  The files do not store the norms' epsilon, 1e-5, or the RoPE
 * base, 10000; RoPE rotates neighbouring values. */
#ifndef QUERN_FORMATS_LLAMA2C_H
#define QUERN_FORMATS_LLAMA2C_H

#include "base/err.h"
#include "formats/weights.h"

/* Version 0 has no magic number: it is accepted if a model can have its sizes and it has no group
 * (kuiper.h). */
bool llama2c_is(const char *path);
int llama2c_config(const char *path, struct model_config *out, struct why *why);
int llama2c_weights(const char *path, const struct model_config *c, struct weights **out, struct why *why);

#endif
