/* windows.h - a text as windows of tokens, each a sequence of its own.  If the tokenizer starts a text with
 * BOS, each window starts with BOS.
 *
 *     text -> t0 t1 t2 t3 t4 ...     windows of 4: [BOS t0 t1 t2] [BOS t3 t4 t5] ... */
#ifndef QUERN_QUANT_WINDOWS_H
#define QUERN_QUANT_WINDOWS_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

struct windows {
	uint32_t *tokens; /* [n], owned */
	int n;            /* tokens; whole windows, but for the last one */
	int length;       /* tokens per window */
	uint64_t hash;    /* hash of the tokens */
};

/* Tokenize the first n_tokens of a UTF-8 file, or all if it has fewer.  model: a path that tokenizer_load()
 * takes.  -EINVAL: a token outside the vocabulary, or fewer than two tokens. */
int windows_read(struct windows *out, const char *model, const char *path, int length, int n_tokens,
		 int n_vocab, struct why *why);
void windows_fini(struct windows *w);

#endif
