/* map.h - a hash map from 64-bit keys to pointers: open addressing, linear probing, grown at half full.
 * A zeroed map is empty.  Keys may be consecutive or random, because they are mixed. */
#ifndef QUERN_BASE_MAP_H
#define QUERN_BASE_MAP_H

#include <stddef.h>
#include <stdint.h>

struct map_slot {
	uint64_t key;
	void *value; /* NULL: the slot is free */
};
struct map {
	struct map_slot *slots; /* owned, [cap]; cap is a power of two */
	size_t cap, n;
};

void map_fini(struct map *m);
void *map_get(const struct map *m, uint64_t key);       /* NULL if absent */
void map_put(struct map *m, uint64_t key, void *value); /* value must not be NULL; replaces */
void map_remove(struct map *m, uint64_t key);           /* no-op if absent */

#endif
