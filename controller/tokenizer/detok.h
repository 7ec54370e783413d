/* detok.h - converts token ids to text, one token at a time, in whole characters.
 * Holds back at most the bytes of one incomplete UTF-8 character, or a run of byte-fallback tokens. The text
 * of all calls together equals tokenizer_decode() of all ids. */
#ifndef QUERN_CONTROLLER_TOKENIZER_DETOK_H
#define QUERN_CONTROLLER_TOKENIZER_DETOK_H

#include "controller/tokenizer/tokenizer.h"

struct detok;

/* The tokenizer must outlive the result. continues: the ids follow a prompt, so the first token keeps its
 * leading space (metaspace decoders strip it at the start of a text). */
struct detok *detok_new(const struct tokenizer *t, bool skip_special, bool continues);
void detok_free(struct detok *d); /* NULL is fine */

/* Append the text that this id completes.  An id out of range gives U+FFFD. */
void detok_push(struct detok *d, uint32_t id, struct buf *out);
/* At the end of the ids: append U+FFFD for incomplete bytes. */
void detok_flush(struct detok *d, struct buf *out);

#endif
