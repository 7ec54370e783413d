/* detok.h - token ids to text, one token at a time, never half a character.
 * Holds back at most the bytes of one unfinished UTF-8 character, or a run of byte-fallback tokens.
 * The text appended by all calls together equals tokenizer_decode() of all the ids. */
#ifndef QUERN_CONTROLLER_TOKENIZER_DETOK_H
#define QUERN_CONTROLLER_TOKENIZER_DETOK_H

#include "controller/tokenizer/tokenizer.h"

struct detok;

/* The tokenizer must outlive it.  continues: the ids follow a prompt, so that the first
 * token keeps its leading space (metaspace decoders strip it at the start of a text). */
struct detok *detok_new(const struct tokenizer *t, bool skip_special, bool continues);
void detok_free(struct detok *d); /* NULL is fine */

/* Appends the text that is complete with this id.  An id out of range gives U+FFFD. */
void detok_push(struct detok *d, uint32_t id, struct buf *out);
/* The end of the ids: appends U+FFFD for what is unfinished. */
void detok_flush(struct detok *d, struct buf *out);

#endif
