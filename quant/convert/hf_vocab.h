/* hf_vocab.h - a directory's tokenizer as a piece table (controller/tokenizer/piece_table.h), which a GGUF
 * file's keys can hold. */
#ifndef QUERN_QUANT_CONVERT_HF_VOCAB_H
#define QUERN_QUANT_CONVERT_HF_VOCAB_H

#include "controller/tokenizer/piece_table.h"

#include <jansson.h>

struct hf_vocab {
	struct piece_table table;
	char pre[48];       /* of TABLE_BYTE_BPE: the word of tokenizer.ggml.pre */
	json_t *tree;       /* tokenizer.json, from which the table borrows; NULL */
	const void *mapped; /* tokenizer.model, likewise */
	size_t mapped_n;
	char **texts; /* [n_texts], owned: of the table, too */
	size_t n_texts, cap_texts;
};

/* Of tokenizer.json, or else of tokenizer.model.  -ENOENT: neither is there; -ENOTSUP: what GGUF's keys
 * cannot say, named with what to do. */
int hf_vocab_read(const char *dir, struct hf_vocab *out, char *why, size_t why_n);
void hf_vocab_fini(struct hf_vocab *v);

/* Added tokens with flags that GGUF's keys do not have (lstrip, single_word, and rstrip but for Phi-3's,
 * which readers know by its name): how many, and the text of the first in *first, borrowed.  Read from the
 * keys alone, a text that has them may get other ids. */
int hf_vocab_flagged(const struct hf_vocab *v, bool phi3, const char **first);

#endif
