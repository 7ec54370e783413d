#include "base/map.h"

#include "base/alloc.h"

#include <assert.h>
#include <stdlib.h>

static size_t home(const struct map *m, uint64_t key)
{
	key ^= key >> 32;
	key *= 0x9e3779b97f4a7c15u;
	return (size_t)(key >> 32) & (m->cap - 1);
}

void map_fini(struct map *m)
{
	free(m->slots);
	*m = (struct map){0};
}

/* Return the slot of key, or the free slot where it would be inserted. */
static size_t find(const struct map *m, uint64_t key)
{
	size_t i = home(m, key);
	while (m->slots[i].value && m->slots[i].key != key)
		i = (i + 1) & (m->cap - 1);
	return i;
}

void *map_get(const struct map *m, uint64_t key)
{
	return m->cap ? m->slots[find(m, key)].value : NULL;
}

static void grow(struct map *m)
{
	struct map old = *m;
	m->cap = old.cap ? old.cap * 2 : 64;
	m->slots = xcalloc(m->cap, sizeof *m->slots);
	for (size_t i = 0; i < old.cap; i++)
		if (old.slots[i].value)
			m->slots[find(m, old.slots[i].key)] = old.slots[i];
	free(old.slots);
}

void map_put(struct map *m, uint64_t key, void *value)
{
	assert(value);
	if (m->n * 2 >= m->cap)
		grow(m);
	size_t i = find(m, key);
	m->n += !m->slots[i].value;
	m->slots[i] = (struct map_slot){key, value};
}

void map_remove(struct map *m, uint64_t key)
{
	if (!m->cap)
		return;
	size_t hole = find(m, key);
	if (!m->slots[hole].value)
		return;
	m->n--;
	/* Close the hole: move up entries that a collision had pushed past it. */
	for (size_t i = (hole + 1) & (m->cap - 1); m->slots[i].value; i = (i + 1) & (m->cap - 1)) {
		size_t from = home(m, m->slots[i].key);
		if (((i - from) & (m->cap - 1)) >= ((i - hole) & (m->cap - 1))) {
			m->slots[hole] = m->slots[i];
			hole = i;
		}
	}
	m->slots[hole].value = NULL;
}
