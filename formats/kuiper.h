/* kuiper.h - the INT8 files of KuiperLLama (github.com/zjhellofss/KuiperLLama, tools/export.py --version3),
 * of Llama 2 models; little-endian, without a magic.
 *
 *     eight int32: dim, hidden_dim, layers, heads, kv_heads, vocab (negative: the head is not the embedding),
 * context, group wq of all layers, then wk, wv, wo, w1 (gate), w2 (down), w3 (up), the head unless it is the
 * embedding: each int8, [n, k], then a F32 scale for each group of its values, one row behind the other F32:
 * embedding, attention norms, FFN norms, final norm
 *
 * Told from version 0 of llama2.c by the eighth word: a group, where that has a weight in F32. */
#ifndef QUERN_FORMATS_KUIPER_H
#define QUERN_FORMATS_KUIPER_H

#include "formats/weights.h"

bool kuiper_is(const char *path);
int kuiper_config(const char *path, struct model_config *out, char *why, size_t why_n);
int kuiper_weights(const char *path, const struct model_config *c, struct weights **out, char *why,
		   size_t why_n);

#endif
