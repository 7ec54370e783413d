/* windows.h - a text as windows of tokens, each a sequence of its own.  Where the tokenizer begins a text
 * with BOS, so begins each window.
 *
 *     text -> t0 t1 t2 t3 t4 ...     windows of 4: [BOS t0 t1 t2] [BOS t3 t4 t5] ... */
#ifndef QUERN_QUANT_WINDOWS_H
#define QUERN_QUANT_WINDOWS_H

#include <stddef.h>
#include <stdint.h>

struct windows {
	uint32_t *tokens; /* [n], owned */
	int n;            /* whole windows, but for the last */
	int length;       /* tokens of a window */
	uint64_t hash;    /* of the tokens */
};

/* The first n_tokens of a file's text in UTF-8, or as many as there are.  model: a path that tokenizer_load()
 * takes. -EINVAL: a token that the model does not have, or fewer than two.  */
int windows_read(struct windows *out, const char *model, const char *path, int length, int n_tokens,
		 int n_vocab, char *why, size_t why_n);
void windows_fini(struct windows *w);

#endif
