/* ak48.h - files of version 5 of KuiperLLama's descendants: Qwen3 in AWQ INT4, little-endian.
 *
 *     "ak48" as an uint32, the version, seven int32 (dim, hidden_dim, layers, heads, kv_heads, vocab,
 * context), a byte: 1 if the head is the embedding, int32 head_dim, int32 group, zeros to 256 bytes F16:
 * attention norms, FFN norms, final norm, embedding wq of all layers, then wk, wv, wo, w1 (gate), w2 (down),
 * w3 (up): each qweight, qzeros, scales as AWQ's version "gemm" has them (weights.h) F16: the head unless it
 * is the embedding, q norms, k norms
 *
 * The tensors are those of the Hugging Face model, unchanged: RoPE rotates halves.  Its base, 1000000, the
 * norms' epsilon, 1e-6, and the tokens that end a text are Qwen3's: the file holds none of them. */
#ifndef QUERN_FORMATS_AK48_H
#define QUERN_FORMATS_AK48_H

#include "formats/weights.h"

bool ak48_is(const char *path);
int ak48_config(const char *path, struct model_config *out, char *why, size_t why_n);
int ak48_weights(const char *path, const struct model_config *c, struct weights **out, char *why,
		 size_t why_n);

#endif
