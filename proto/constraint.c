#include "proto/constraint.h"

#include "base/alloc.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

struct constraint *constraint_new(uint8_t language, const char *text, size_t n)
{
	assert(n <= CONSTRAINT_TEXT_MAX);
	struct constraint *f = xmalloc(sizeof *f + n + 1);
	atomic_init(&f->refs, 1);
	f->language = language;
	f->n = (uint32_t)n;
	if (n)
		memcpy(f->text, text, n);
	f->text[n] = '\0';
	XXH128_canonical_t hash;
	_Static_assert(sizeof hash == CONSTRAINT_HASH_BYTES, "a hash fits");
	XXH128_canonicalFromHash(&hash, XXH3_128bits_withSeed(f->text, n, language));
	memcpy(f->hash, &hash, sizeof hash);
	return f;
}

struct constraint *constraint_ref(struct constraint *f)
{
	if (f)
		atomic_fetch_add_explicit(&f->refs, 1, memory_order_relaxed);
	return f;
}

void constraint_free(struct constraint *f)
{
	if (f && atomic_fetch_sub_explicit(&f->refs, 1, memory_order_acq_rel) == 1)
		free(f);
}

bool constraint_same(const struct constraint *a, const struct constraint *b)
{
	return a == b || (memcmp(a->hash, b->hash, sizeof a->hash) == 0 && a->language == b->language &&
			  a->n == b->n && memcmp(a->text, b->text, a->n) == 0);
}
