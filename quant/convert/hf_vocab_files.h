/* hf_vocab_files.h - a tokenizer's files, made from the keys of a GGUF file. */
#ifndef QUERN_QUANT_CONVERT_HF_VOCAB_FILES_H
#define QUERN_QUANT_CONVERT_HF_VOCAB_FILES_H

#include "formats/config.h"
#include "quant/writer/writer.h"

struct gguf;

/* tokenizer.json of a byte-level BPE; tokenizer.model of SentencePiece's kinds; tokenizer_config.json.
 * Nothing where the file has no tokenizer. */
int hf_vocab_files(struct writer *w, const struct gguf *g, const struct model_config *c, char *why,
		   size_t why_n);

#endif
