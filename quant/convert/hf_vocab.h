/* hf_vocab.h - read a directory's tokenizer into a piece table (controller/tokenizer/piece_table.h), which
 * the keys of a GGUF file can hold. */
#ifndef QUERN_QUANT_CONVERT_HF_VOCAB_H
#define QUERN_QUANT_CONVERT_HF_VOCAB_H

#include "base/err.h"
#include "controller/tokenizer/piece_table.h"

#include <jansson.h>

struct hf_vocab {
	struct piece_table table;
	char pre[48];       /* TABLE_BYTE_BPE: the value of tokenizer.ggml.pre */
	json_t *tree;       /* tokenizer.json, from which the table borrows; or NULL */
	const void *mapped; /* tokenizer.model, from which the table borrows; or NULL */
	size_t mapped_n;
	char **texts; /* [n_texts] texts of the table that are in neither file, owned */
	size_t n_texts, cap_texts;
};

/* Read tokenizer.json, or else tokenizer.model.  -ENOENT: neither exists; -ENOTSUP: the reason has the
 * feature that GGUF's keys cannot express, and what to do. */
int hf_vocab_read(const char *dir, struct hf_vocab *out, struct why *why);
void hf_vocab_fini(struct hf_vocab *v);

/* Count added tokens with flags that GGUF's keys lack: lstrip, single_word, and rstrip except Phi-3's, which
 * readers know by the model's name.  *first: the text of the first one, borrowed.  A reader that has only the
 * keys may give other ids to a text with these tokens. */
int hf_vocab_flagged(const struct hf_vocab *v, bool rstrip, const char **first);

#endif
