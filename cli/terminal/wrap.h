/* wrap.h - breaks text that arrives in chunks between words, at a terminal's width.
 * It owns the word that is being written.  Text is shown at once: a word that turns out too long for its line
 * is erased and written again on the next line.  Lines between Markdown fences (```) are left to the
 * terminal, so that code can be copied. */
#ifndef QUERN_CLI_TERMINAL_WRAP_H
#define QUERN_CLI_TERMINAL_WRAP_H

#include "base/buf.h"

#include <stdbool.h>
#include <stdio.h>

/* Zero-initialised is at the beginning of a line. */
struct wrap {
	struct buf word;      /* text since the last blank */
	unsigned column;      /* column after the text written so far */
	unsigned word_column; /* column where the word begins */
	unsigned n_ticks;     /* backquotes at the beginning of the line; UINT_MAX: other text has followed */
	bool code;            /* between fences */
};

/* Write p[0..n) to f, a terminal of WIDTH columns; 0: the width is unknown, and no line is broken.  The text
 * must be whole UTF-8 characters, with no control characters except tabs and line feeds. */
void wrap_put(struct wrap *w, FILE *f, unsigned width, const char *p, size_t n);
void wrap_fini(struct wrap *w);

#endif
