/* gguf_keys.h - the keys of a GGUF file, from a model's configuration and tokenizer. */
#ifndef QUERN_QUANT_CONVERT_GGUF_KEYS_H
#define QUERN_QUANT_CONVERT_GGUF_KEYS_H

#include "formats/config.h"
#include "formats/gguf.h"
#include "quant/writer/writer.h"

/* Files of the old model that a GGUF file has as strings, so that its directory can be made again as it was:
 * quern.source.config.json, .. and, by the specification's name, tokenizer.huggingface.json. */
#define GGUF_SOURCE_KEY    "quern.source."
#define GGUF_TOKENIZER_KEY "tokenizer.huggingface.json"
/* Arrays of the names of vectors that had these types, and are F32 in the file. */
#define GGUF_F16_KEY       "quern.source.f16"
#define GGUF_BF16_KEY      "quern.source.bf16"
extern const char *const gguf_source_files[]; /* to NULL */

/* Whether a GGUF file can be of this model.  -ENOTSUP: what of it cannot be, named. */
int gguf_keys_check(const struct model_config *c, char *why, size_t why_n);
/* The keys of its configuration.  -ENOTSUP likewise.  name: of the model. */
int gguf_keys_config(struct writer *w, const struct model_config *c, const char *name, char *why,
		     size_t why_n);
/* The tokenizer of a directory, its template and those files.  Nothing where it has no tokenizer. */
int gguf_keys_vocab(struct writer *w, const struct model_config *c, const char *dir, char *why, size_t why_n);

/* Factors of wave lengths that are tensors of a GGUF file: rope_freqs, rope_factors_short and _long, of
 * rope_dim / 2 values.  False: the model has none of that name.  out: as many values. */
bool gguf_keys_factors(const struct model_config *c, const char *tensor, float *out);

#endif
