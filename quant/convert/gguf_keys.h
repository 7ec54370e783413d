/* gguf_keys.h - write the keys of a GGUF file from a model's configuration and tokenizer. */
#ifndef QUERN_QUANT_CONVERT_GGUF_KEYS_H
#define QUERN_QUANT_CONVERT_GGUF_KEYS_H

#include "base/err.h"
#include "formats/config.h"
#include "formats/gguf.h"
#include "quant/writer/writer.h"

/* Keys that hold files of the source directory as strings, so that it can be restored:
 * quern.source.config.json, .. and, by GGUF's specification, tokenizer.huggingface.json. */
#define GGUF_SOURCE_KEY    "quern.source."
#define GGUF_TOKENIZER_KEY "tokenizer.huggingface.json"
/* Arrays with the names of vectors that had these types in the source; the GGUF file stores them as F32. */
#define GGUF_F16_KEY       "quern.source.f16"
#define GGUF_BF16_KEY      "quern.source.bf16"
extern const char *const gguf_source_files[]; /* ends with NULL */

/* Check that a GGUF file can hold this model.  -ENOTSUP names the feature that it cannot hold. */
int gguf_keys_check(const struct model_config *c, struct why *why);
/* Write the keys of the configuration.  name: of the model.  -ENOTSUP as in gguf_keys_check(). */
int gguf_keys_config(struct writer *w, const struct model_config *c, const char *name, struct why *why);
/* Write the tokenizer of a directory, its chat template and the source files.  Nothing if it has no
 * tokenizer. */
int gguf_keys_vocab(struct writer *w, const struct model_config *c, const char *dir, struct why *why);

/* Compute RoPE frequency factors that a GGUF file stores as a tensor: rope_freqs, rope_factors_short or
 * rope_factors_long.  False: the model does not have that tensor.  out: rope_dim / 2 values. */
bool gguf_keys_factors(const struct model_config *c, const char *tensor, float *out);

#endif
