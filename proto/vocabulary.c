#include "proto/vocabulary.h"

#include "base/alloc.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

void vocabulary_add(struct vocabulary *v, const void *bytes, size_t n, enum vocabulary_kind kind)
{
	assert(n <= VOCABULARY_TOKEN_BYTES_MAX && v->n < VOCABULARY_TOKENS_MAX);
	size_t begin = v->n ? v->at[v->n] : 0;
	if (v->n == v->cap) {
		v->cap = (uint32_t)array_capacity(v->cap, (size_t)v->n + 1, VOCABULARY_TOKENS_MAX);
		v->at = xrealloc(v->at, (size_t)v->cap + 1, sizeof *v->at);
		v->kinds = xrealloc(v->kinds, v->cap, sizeof *v->kinds);
	}
	array_grow(v->bytes, v->cap_bytes, begin + n);
	if (n)
		memcpy(v->bytes + begin, bytes, n);
	v->kinds[v->n] = (uint8_t)kind;
	v->at[v->n] = (uint32_t)begin;
	v->at[++v->n] = (uint32_t)(begin + n);
}

void vocabulary_clear(struct vocabulary *v)
{
	v->n = 0;
}

void vocabulary_fini(struct vocabulary *v)
{
	free(v->at);
	free(v->kinds);
	free(v->bytes);
	*v = (struct vocabulary){0};
}

uint64_t vocabulary_checksum(const struct vocabulary *v)
{
	_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "a checksum is of little-endian words");
	uint64_t sum = XXH3_64bits(&v->n, sizeof v->n);
	if (!v->n)
		return sum;
	sum = XXH3_64bits_withSeed(v->at, ((size_t)v->n + 1) * sizeof *v->at, sum);
	sum = XXH3_64bits_withSeed(v->kinds, v->n, sum);
	return XXH3_64bits_withSeed(v->bytes, v->at[v->n], sum);
}
