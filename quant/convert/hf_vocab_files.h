/* hf_vocab_files.h - write a tokenizer's files from the keys of a GGUF file. */
#ifndef QUERN_QUANT_CONVERT_HF_VOCAB_FILES_H
#define QUERN_QUANT_CONVERT_HF_VOCAB_FILES_H

#include "formats/config.h"
#include "quant/writer/writer.h"

struct gguf;

/* Write tokenizer.json for a byte-level BPE, tokenizer.model for SentencePiece; and tokenizer_config.json.
 * Nothing if the file has no tokenizer. */
int hf_vocab_files(struct writer *w, const struct gguf *g, const struct model_config *c, char *why,
		   size_t why_n);

#endif
