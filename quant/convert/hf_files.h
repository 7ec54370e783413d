/* hf_files.h - write the files of a Hugging Face directory other than its tensors, from a GGUF file or from a
 * configuration alone. */
#ifndef QUERN_QUANT_CONVERT_HF_FILES_H
#define QUERN_QUANT_CONVERT_HF_FILES_H

#include "base/err.h"
#include "formats/config.h"
#include "quant/writer/writer.h"

#include <jansson.h>

struct gguf;

/* Return config.json for a configuration; the caller's, json_decref(). */
json_t *hf_config_tree(const struct model_config *c);

/* Write config.json and generation_config.json: the ones stored in the GGUF file (quant/convert/gguf_keys.h)
 * if they agree with its own keys, else new ones.  -ENOTSUP names a property of a mixture that config.json
 * cannot express. */
int hf_files_config(struct writer *w, const struct gguf *g, const struct model_config *c, struct why *why);
/* Write the tokenizer's files, stored or new: tokenizer.json, or tokenizer.model for SentencePiece;
 * tokenizer_config.json.  Nothing if the GGUF file has no tokenizer. */
int hf_files_vocab(struct writer *w, const struct gguf *g, const struct model_config *c, struct why *why);
/* Copy the files other than tensors from another directory in this layout; config.json only if `config`. */
int hf_files_copy(struct writer *w, const char *dir, bool config, struct why *why);

/* Return a number of config.json: the shortest decimal that reads back as the same float. */
json_t *hf_number(double v);

/* Write a tokenizer's files from the keys of a GGUF file: tokenizer.json for a byte-level BPE,
 * tokenizer.model for SentencePiece; and tokenizer_config.json. Nothing if the file has no tokenizer. */
int hf_vocab_files(struct writer *w, const struct gguf *g, const struct model_config *c, struct why *why);

#endif
