/* numbers.c - a hash table of numbers that grows incrementally. */
#include "grammar/numbers.h"
#include "base/alloc.h"

#include <stdlib.h>

/* Slots of the smaller table moved with each put. The larger table takes at least 3/4 of the smaller one's
 * slots in new numbers before it is full, so 2 would be enough. */
enum { TABLE_MIN = 1024, MOVED_EACH = 8 };

void numbers_fini(struct numbers *t)
{
	free(t->at);
	free(t->old);
	*t = (struct numbers){0};
}

void numbers_reset(struct numbers *t, uint32_t n)
{
	numbers_fini(t);
	t->n_at = TABLE_MIN;
	while (t->n_at / 2 < n)
		t->n_at *= 2;
	t->at = xcalloc(t->n_at, sizeof *t->at);
}

size_t numbers_bytes(const struct numbers *t)
{
	return ((size_t)t->n_at + t->n_old) * sizeof *t->at;
}

static void put(struct numbers *t, struct number_slot slot)
{
	uint32_t i = slot.hash & (t->n_at - 1);
	while (t->at[i].number)
		i = (i + 1) & (t->n_at - 1);
	t->at[i] = slot;
}

static void move(struct numbers *t)
{
	for (int i = 0; i < MOVED_EACH && t->moved < t->n_old; i++, t->moved++)
		if (t->old[t->moved].number)
			put(t, t->old[t->moved]);
	if (t->moved < t->n_old || !t->old)
		return;
	free(t->old);
	t->old = NULL;
	t->n_old = t->moved = 0;
}

static void grow(struct numbers *t)
{
	while (t->old)
		move(t);
	t->old = t->at;
	t->n_old = t->n_at;
	t->n_at *= 2;
	t->at = xcalloc(t->n_at, sizeof *t->at);
}

void numbers_put(struct numbers *t, uint32_t hash, uint32_t number)
{
	if (t->n >= t->n_at / 4 * 3)
		grow(t);
	put(t, (struct number_slot){number + 1, hash});
	t->n++;
	if (t->old)
		move(t);
}

uint32_t numbers_find(const struct numbers *t, uint32_t hash,
		      bool (*is)(const void *, uint32_t, const void *), const void *owner, const void *what)
{
	for (uint32_t i = hash & (t->n_at - 1); t->at[i].number; i = (i + 1) & (t->n_at - 1))
		if (t->at[i].hash == hash && is(owner, t->at[i].number - 1, what))
			return t->at[i].number - 1;
	if (!t->old)
		return UINT32_MAX;
	for (uint32_t i = hash & (t->n_old - 1); t->old[i].number; i = (i + 1) & (t->n_old - 1))
		if (t->old[i].hash == hash && is(owner, t->old[i].number - 1, what))
			return t->old[i].number - 1;
	return UINT32_MAX;
}
