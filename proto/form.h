/* form.h - what an output must look like: the text of a grammar and its language.
 * Immutable and counted: a job, its sequences, the plans and the workers share one.  Any thread.
 *
 * The language is a byte with the values of enum grammar_language (grammar/source.h), which proto does not
 * know: the compiler of forms checks it. */
#ifndef QUERN_PROTO_FORM_H
#define QUERN_PROTO_FORM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FORM_HASH_BYTES = 16, FORM_TEXT_MAX = 16 << 20 };

struct form {
	atomic_uint refs;
	uint8_t hash[FORM_HASH_BYTES]; /* of language and text; the same on every machine */
	uint8_t language;
	uint32_t n;
	char text[]; /* [n], and a NUL behind it; may hold NULs */
};

/* With one reference, the caller's.  n is at most FORM_TEXT_MAX. */
struct form *form_new(uint8_t language, const char *text, size_t n);
struct form *form_ref(struct form *f); /* one reference more; NULL is fine, and returned */
void form_free(struct form *f);        /* one less, and with the last one the form; NULL is fine */
/* Whether both say the same, byte for byte: the hash alone withstands no intent. */
bool form_same(const struct form *a, const struct form *b);
/* The numerics class of an output on a worker that reports `numerics`, into out[size].  Masks choose no token
 * of an output without a form: the version of the grammar engine (the word grammar=N) is then no part of its
 * class. */
void form_class(bool has_form, const char *numerics, char *out, size_t size);

#endif
