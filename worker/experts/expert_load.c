#include "worker/experts/expert_load.h"

#include "base/alloc.h"

#include <stdlib.h>

void expert_load_shape(struct expert_load *l, uint32_t n_layers, uint32_t n_experts)
{
	const uint32_t n = n_layers * n_experts;
	struct expert_cells *c = l->all;
	while (c && (c->n != n || c->n_experts != n_experts))
		c = c->older;
	if (!c && n) {
		c = xcalloc(1, sizeof *c + n * sizeof *c->rows);
		*c = (struct expert_cells){.older = l->all, .n_experts = n_experts, .n = n};
		l->all = c;
	}
	atomic_store_explicit(&l->cells, n ? c : NULL, memory_order_release);
	expert_load_reset(l);
}

void expert_load_reset(struct expert_load *l)
{
	struct expert_cells *c = atomic_load_explicit(&l->cells, memory_order_relaxed);
	for (uint32_t i = 0; c && i < c->n; i++)
		atomic_store_explicit(&c->rows[i], 0, memory_order_relaxed);
}

/* Load and store need not be one operation, since only one thread writes. */
void expert_load_rows(struct expert_cells *c, uint32_t layer, uint32_t expert, uint32_t n)
{
	atomic_ullong *at = &c->rows[layer * c->n_experts + expert];
	atomic_store_explicit(at, atomic_load_explicit(at, memory_order_relaxed) + n, memory_order_relaxed);
}

struct expert_cells *expert_load_next(const struct expert_load *l, struct expert_cursor *t, uint32_t max,
				      uint32_t *from, uint32_t *n)
{
	struct expert_cells *c = atomic_load_explicit(&l->cells, memory_order_acquire);
	const uint64_t rows = atomic_load_explicit(&l->rows, memory_order_relaxed);
	if (!c || (t->at == 0 && rows == t->reached))
		return NULL;
	*from = t->at < c->n ? t->at : 0;
	*n = c->n - *from < max ? c->n - *from : max;
	if (*from == 0)
		t->since = rows;
	t->at = (*from + *n) % c->n;
	if (t->at == 0)
		t->reached = t->since;
	return c;
}

void expert_load_fini(struct expert_load *l)
{
	atomic_store(&l->cells, NULL);
	while (l->all) {
		struct expert_cells *older = l->all->older;
		free(l->all);
		l->all = older;
	}
}
