/* map.h - 64-bit keys to pointers: open addressing, linear probing, grown at half full.
 * Zeroed is empty.  Keys may be consecutive or random: they are mixed. */
#ifndef QUERN_BASE_MAP_H
#define QUERN_BASE_MAP_H

#include <stddef.h>
#include <stdint.h>

struct map_slot {
	uint64_t key;
	void *value; /* NULL: free */
};
struct map {
	struct map_slot *slots; /* owned, [cap]; cap is a power of two */
	size_t cap, n;
};

void map_fini(struct map *m);
void *map_get(const struct map *m, uint64_t key);       /* NULL: not there */
void map_put(struct map *m, uint64_t key, void *value); /* not NULL; replaces */
void map_remove(struct map *m, uint64_t key);           /* no-op if it is not there */

#endif
