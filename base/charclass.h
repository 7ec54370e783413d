/* charclass.h - the few character classes that split patterns use.
 * The data is Unicode 16, as in the reference (Hugging Face's tokenizers 0.23): utf8proc's categories, plus
 * the letters and numbers assigned since. */
#ifndef QUERN_BASE_CHARCLASS_H
#define QUERN_BASE_CHARCLASS_H

#include "base/buf.h"

#include <stdbool.h>
#include <stdint.h>

enum charclass {
	CHAR_OTHER,
	CHAR_LETTER,  /* \p{L} */
	CHAR_NUMBER,  /* \p{N} */
	CHAR_SPACE,   /* \s except \r and \n */
	CHAR_NEWLINE, /* \r, \n */
};

extern const uint8_t charclass_ascii[128];
enum charclass charclass_other(uint32_t cp); /* cp >= 128 */

static inline enum charclass charclass_of(uint32_t cp)
{
	return cp < 128 ? (enum charclass)charclass_ascii[cp] : charclass_other(cp);
}

bool charclass_is_space(uint32_t cp); /* White_Space */
bool charclass_is_word(uint32_t cp);  /* \w: Alphabetic, marks, Nd, Pc, joiners */

/* Append the ranges of letters or numbers that PCRE2 (Unicode 14 or later) may not know, as "\x{a}-\x{b}..."
 * for a character class. */
void charclass_newer(enum charclass c, struct buf *out);

#endif
