/* kuiper.h - the INT8 files of KuiperLLama (github.com/zjhellofss/KuiperLLama, tools/export.py --version3),
 * for Llama 2 models; little-endian, without a magic number.
 *
 *     int32    dim, hidden_dim, layers, heads, kv_heads, vocab, context, group;
 *              a negative vocab: the head is not the embedding
 *     int8     wq of all layers, then wk, wv, wo, w1 (gate), w2 (down), w3 (up), and the head unless it is
 *              the embedding; each [n, k], row after row, followed by an F32 scale for each group of its
 *              values
 *     F32      embedding, attention norms, FFN norms, final norm
 *
 * The eighth word distinguishes it from version 0 of llama2.c: a group here, an F32 weight there. */
#ifndef QUERN_FORMATS_KUIPER_H
#define QUERN_FORMATS_KUIPER_H

#include "base/err.h"
#include "formats/weights.h"

bool kuiper_is(const char *path);
int kuiper_config(const char *path, struct model_config *out, struct why *why);
int kuiper_weights(const char *path, const struct model_config *c, struct weights **out, struct why *why);

#endif
