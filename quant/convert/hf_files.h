/* hf_files.h - the files of a directory in Hugging Face's layout beside its tensors, made from a GGUF file or
 * from a configuration alone. */
#ifndef QUERN_QUANT_CONVERT_HF_FILES_H
#define QUERN_QUANT_CONVERT_HF_FILES_H

#include "formats/config.h"
#include "quant/writer/writer.h"

struct gguf;

/* config.json of a configuration.  The caller's, json_decref(). */
json_t *hf_config_tree(const struct model_config *c);

/* config.json and generation_config.json: those that the file holds (quant/convert/gguf_keys.h), if they say
 * what its own keys do, or new ones.  -ENOTSUP: what of a mixture config.json cannot say, named. */
int hf_files_config(struct writer *w, const struct gguf *g, const struct model_config *c, char *why,
		    size_t why_n);
/* The tokenizer's, likewise: tokenizer.json, or of SentencePiece's kinds tokenizer.model;
 * tokenizer_config.json. Nothing where the file has none. */
int hf_files_vocab(struct writer *w, const struct gguf *g, const struct model_config *c, char *why,
		   size_t why_n);
/* Copies what another directory in this layout has beside its tensors; config.json with `config`. */
int hf_files_copy(struct writer *w, const char *dir, bool config, char *why, size_t why_n);

#endif
