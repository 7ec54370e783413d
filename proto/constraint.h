/* constraint.h - the constraint of a structured output: the text of a grammar and its language.
 * Immutable and reference-counted: a job, its sequences, the plans and the workers share one.  Any thread.
 *
 * The language is a byte with the values of enum grammar_language (grammar/source.h).  proto does not know
 * them; the grammar compiler checks the byte. */
#ifndef QUERN_PROTO_CONSTRAINT_H
#define QUERN_PROTO_CONSTRAINT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CONSTRAINT_HASH_BYTES = 16, CONSTRAINT_TEXT_MAX = 16 << 20 };

struct constraint {
	atomic_uint refs;
	uint8_t hash[CONSTRAINT_HASH_BYTES]; /* hash of language and text, equal on every machine */
	uint8_t language;
	uint32_t n;
	char text[]; /* [n], then a NUL; may contain NULs */
};

/* Return a constraint with one reference, the caller's.  n is at most CONSTRAINT_TEXT_MAX. */
struct constraint *constraint_new(uint8_t language, const char *text, size_t n);
struct constraint *constraint_ref(struct constraint *f); /* adds a reference; returns f, which may be NULL */
void constraint_free(
	struct constraint *f); /* drops a reference, and frees f with the last one; NULL is fine */
/* Compare byte for byte: the hash alone does not withstand an attacker. */
bool constraint_same(const struct constraint *a, const struct constraint *b);

#endif
