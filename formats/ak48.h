/* ak48.h - the ak48 file format, version 5 (a descendant of KuiperLLama's): Qwen3 in AWQ INT4,
 * little-endian.
 *
 *     header, 256 bytes   "ak48" as a uint32; the version
 *                         int32: dim, hidden_dim, layers, heads, kv_heads, vocab, context
 *                         a byte: 1 if the head is the embedding; int32: head_dim, group; zeros
 *     F16                 attention norms, FFN norms, final norm, embedding
 *     AWQ "gemm"          wq of all layers, then wk, wv, wo, w1 (gate), w2 (down), w3 (up);
 *                         each has qweight, qzeros, scales (weights.h)
 *     F16                 the head, unless it is the embedding; q norms, k norms
 *
 * The tensors have the values of the Hugging Face model: RoPE rotates halves.  The file does not store the
 * RoPE base, the epsilon of the norms or the tokens that end a text.  The reader uses Qwen3's: base
 * 1000000, epsilon 1e-6. */
#ifndef QUERN_FORMATS_AK48_H
#define QUERN_FORMATS_AK48_H

#include "base/err.h"
#include "formats/weights.h"

bool ak48_is(const char *path);
int ak48_config(const char *path, struct model_config *out, struct why *why);
int ak48_weights(const char *path, const struct model_config *c, struct weights **out, struct why *why);

#endif
