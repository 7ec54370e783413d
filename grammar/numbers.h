/* numbers.h - a hash table of numbers. The owner supplies the comparison of what the numbers stand for. Open
 * addressing; each slot holds the hash next to the number, so most other numbers are rejected without a
 * comparison. Growth is incremental: each put moves a few numbers from the smaller table, and lookups search
 * both tables meanwhile. Not thread-safe. */
#ifndef QUERN_GRAMMAR_NUMBERS_H
#define QUERN_GRAMMAR_NUMBERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct number_slot {
	uint32_t number; /* number + 1; 0: free */
	uint32_t hash;
};

struct numbers {
	struct number_slot *at, *old;
	uint32_t n_at, n_old; /* powers of two, or 0 */
	uint32_t n, moved;    /* n: numbers in both tables; moved: slots of old already moved */
};

/* Empty the table and make room for n numbers. */
void numbers_reset(struct numbers *t, uint32_t n);
void numbers_fini(struct numbers *t);
size_t numbers_bytes(const struct numbers *t);

/* Return the number with this hash for which is(owner, number, what) is true, or UINT32_MAX. */
uint32_t numbers_find(const struct numbers *t, uint32_t hash,
		      bool (*is)(const void *, uint32_t, const void *), const void *owner, const void *what);
void numbers_put(struct numbers *t, uint32_t hash, uint32_t number); /* number must not be in the table */

#endif
