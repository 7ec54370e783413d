/* map.h - 64-bit keys to pointers: open addressing, linear probing, grown at half full.
 * Zeroed is empty.  Keys may be numbers in a row or random: they are mixed. */
#ifndef QUERN_CONTROLLER_MAP_H
#define QUERN_CONTROLLER_MAP_H

#include <stddef.h>
#include <stdint.h>

struct map_slot {
	uint64_t key;
	void *value; /* NULL: free */
};
struct map {
	struct map_slot *slots; /* owned; a power of two of them */
	size_t cap, n;
};

void map_fini(struct map *m);
void *map_get(const struct map *m, uint64_t key);       /* NULL: not there */
void map_put(struct map *m, uint64_t key, void *value); /* not NULL; replaces */
void map_remove(struct map *m, uint64_t key);           /* not there: nothing */

#endif
