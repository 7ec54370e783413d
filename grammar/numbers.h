/* numbers.h - a hash table of numbers, which its owner finds again by what they stand for.
 * Open addressing with the hash beside each number, so that other numbers are told apart without looking at
 * what they stand for.  It grows without a pause: the numbers of the smaller table move a few at a time, with
 * each one that is put, and are found in either table meanwhile.  Not thread-safe. */
#ifndef QUERN_GRAMMAR_NUMBERS_H
#define QUERN_GRAMMAR_NUMBERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct number_slot {
	uint32_t number; /* + 1; 0: free */
	uint32_t hash;
};

struct numbers {
	struct number_slot *at, *old;
	uint32_t n_at, n_old; /* powers of two, or 0 */
	uint32_t n, moved;    /* numbers in all; slots of old that have moved */
};

/* Empty, with room for n numbers, whatever it held. */
void numbers_reset(struct numbers *t, uint32_t n);
void numbers_fini(struct numbers *t);
size_t numbers_bytes(const struct numbers *t);

/* The number with this hash of which is(owner, number, what) is true; UINT32_MAX: none. */
uint32_t numbers_find(const struct numbers *t, uint32_t hash,
		      bool (*is)(const void *, uint32_t, const void *), const void *owner, const void *what);
void numbers_put(struct numbers *t, uint32_t hash, uint32_t number); /* one that is not there */

#endif
