/* llama2c.h - files of llama2.c (github.com/karpathy/llama2.c, export.py), little-endian.
 *
 *     version 0   seven int32: dim, hidden_dim, layers, heads, kv_heads, vocab, context; vocab negative: the
 * head is not the embedding.  F32: embedding, attention norms, wq, wk, wv, wo, FFN norms, w1 (gate), w2
 * (down), w3 (up), final norm, two tables of RoPE [context, head_dim / 2] that are not needed, head version 1
 * "ak42", the version, the seven, a byte: 1 if the head is the embedding, zeros to 256 bytes.  F32: attention
 * norms, FFN norms, final norm, embedding, wq, wk, wv, wo, w1, w2, w3, head version 2   as 1, and behind the
 * byte an int32, the group.  F32: the norms; then embedding, wq .. w3, head as Q8_0: int8 values, then a F32
 * scale for each group of them
 *
 * Each kind of tensor for all layers, one behind the other.  Norms have an epsilon of 1e-5, RoPE rotates
 * neighbouring values with a base of 10000: the files hold neither. */
#ifndef QUERN_FORMATS_LLAMA2C_H
#define QUERN_FORMATS_LLAMA2C_H

#include "formats/weights.h"

/* Version 0 has no magic: sizes that a model can have, and no group as in kuiper.h. */
bool llama2c_is(const char *path);
int llama2c_config(const char *path, struct model_config *out, char *why, size_t why_n);
int llama2c_weights(const char *path, const struct model_config *c, struct weights **out, char *why,
		    size_t why_n);

#endif
