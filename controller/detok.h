/* detok.h - token ids to text, one token at a time, never half a character.
 * What is held back is at most the bytes of one unfinished UTF-8 character (or a run of
 * byte-fallback tokens).  The concatenation of all that detok_push() and detok_flush() gave
 * equals tokenizer_decode() of all the ids. */
#ifndef QUERN_CONTROLLER_DETOK_H
#define QUERN_CONTROLLER_DETOK_H

#include "controller/tokenizer.h"

struct detok;

/* The tokenizer must outlive it.  continues: the ids go on from a prompt, so that a leading
 * space of the first token is kept (metaspace decoders strip it at the start of a text). */
struct detok *detok_new(const struct tokenizer *t, bool skip_special, bool continues);
void detok_free(struct detok *d);                  /* NULL is fine */

/* Append what has become whole text.  An id out of range gives U+FFFD. */
void detok_push(struct detok *d, uint32_t id, struct buf *out);
/* The end: append what is still held, as U+FFFD. */
void detok_flush(struct detok *d, struct buf *out);

#endif
