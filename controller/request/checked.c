#include "controller/request/checked.h"

#include "base/alloc.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { CONSTRAINTS_MAX = 256 };

struct known {
	struct constraint *constraint;
	uint64_t asked; /* value of checked.clock at the last use */
};

struct checked {
	pthread_mutex_t lock;
	size_t max_bytes, bytes; /* total bytes of the constraints' texts */
	struct known constraints[CONSTRAINTS_MAX];
	int n_constraints;
	uint64_t clock;
	char *key; /* key of the breakers; NULL: none yet */
	size_t key_n;
	int32_t *ids;
	uint32_t n_ids;
};

struct checked *checked_new(size_t constraint_bytes)
{
	struct checked *c = xcalloc(1, sizeof *c);
	pthread_mutex_init(&c->lock, NULL);
	c->max_bytes = constraint_bytes;
	return c;
}

void checked_free(struct checked *c)
{
	if (!c)
		return;
	for (int i = 0; i < c->n_constraints; i++)
		constraint_free(c->constraints[i].constraint);
	pthread_mutex_destroy(&c->lock);
	free(c->key);
	free(c->ids);
	free(c);
}

static struct known *find_constraint(struct checked *c, const struct constraint *f)
{
	for (int i = 0; i < c->n_constraints; i++)
		if (constraint_same(c->constraints[i].constraint, f))
			return &c->constraints[i];
	return NULL;
}

struct constraint *checked_constraint(struct checked *c, const struct constraint *f)
{
	struct constraint *same = NULL;
	if (!c)
		return NULL;
	pthread_mutex_lock(&c->lock);
	struct known *k = find_constraint(c, f);
	if (k) {
		k->asked = ++c->clock;
		same = constraint_ref(k->constraint);
	}
	pthread_mutex_unlock(&c->lock);
	return same;
}

static void drop_oldest(struct checked *c)
{
	int oldest = 0;
	for (int i = 1; i < c->n_constraints; i++)
		if (c->constraints[i].asked < c->constraints[oldest].asked)
			oldest = i;
	c->bytes -= c->constraints[oldest].constraint->n;
	constraint_free(c->constraints[oldest].constraint);
	c->constraints[oldest] = c->constraints[--c->n_constraints];
}

void checked_keep_constraint(struct checked *c, struct constraint *f)
{
	if (!c || f->n > c->max_bytes)
		return;
	pthread_mutex_lock(&c->lock);
	if (!find_constraint(c, f)) {
		while (c->n_constraints &&
		       (c->n_constraints == CONSTRAINTS_MAX || c->bytes + f->n > c->max_bytes))
			drop_oldest(c);
		c->constraints[c->n_constraints++] = (struct known){constraint_ref(f), ++c->clock};
		c->bytes += f->n;
	}
	pthread_mutex_unlock(&c->lock);
}

bool checked_breakers(struct checked *c, const void *key, size_t key_n, int32_t **ids, uint32_t *n)
{
	if (!c)
		return false;
	pthread_mutex_lock(&c->lock);
	const bool same = c->key && c->key_n == key_n && memcmp(c->key, key, key_n) == 0;
	if (same) {
		*n = c->n_ids;
		*ids = c->n_ids ? xmemdup(c->ids, c->n_ids * sizeof *c->ids) : NULL;
	}
	pthread_mutex_unlock(&c->lock);
	return same;
}

void checked_keep_breakers(struct checked *c, const void *key, size_t key_n, const int32_t *ids, uint32_t n)
{
	if (!c)
		return;
	pthread_mutex_lock(&c->lock);
	free(c->key);
	free(c->ids);
	c->key = xmemdup(key, key_n);
	c->key_n = key_n;
	c->ids = n ? xmemdup(ids, n * sizeof *ids) : NULL;
	c->n_ids = n;
	pthread_mutex_unlock(&c->lock);
}
