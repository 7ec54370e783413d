#include "controller/fleet/expert_table.h"

#include "base/alloc.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

void expert_table_fini(struct expert_table *t)
{
	for (uint32_t i = 0; i < ENGINE_WORKERS_MAX; i++)
		free(t->workers[i].rows);
	free(t->rows);
	*t = (struct expert_table){0};
}

static bool fits(const struct expert_table *t, const struct bus_cells *c)
{
	return c->n && c->n_experts && c->n_all % c->n_experts == 0 && c->from <= c->n_all &&
	       c->n <= c->n_all - c->from && (!t->n || (c->n_all == t->n && c->n_experts == t->n_experts));
}

bool expert_table_add(struct expert_table *t, uint32_t row, uint64_t epoch, const struct bus_cells *c)
{
	assert(row < ENGINE_WORKERS_MAX);
	struct expert_reports *w = &t->workers[row];
	if (!fits(t, c))
		return false;
	if (!t->n) {
		t->n = c->n_all;
		t->n_experts = c->n_experts;
		t->rows = xcalloc(t->n, sizeof *t->rows);
	}
	if (!w->rows)
		w->rows = xcalloc(t->n, sizeof *w->rows);
	else if (w->epoch != epoch)
		memset(w->rows, 0, t->n * sizeof *w->rows);
	w->epoch = epoch;
	for (uint32_t i = 0; i < c->n; i++) {
		uint64_t *seen = &w->rows[c->from + i];
		if (c->rows[i] <= *seen) /* a counter does not fall */
			continue;
		t->rows[c->from + i] += c->rows[i] - *seen;
		*seen = c->rows[i];
	}
	return true;
}

void expert_table_status(const struct expert_table *t, struct engine_experts *out)
{
	*out = (struct engine_experts){0};
	if (!t->n)
		return;
	out->n_layers = t->n / t->n_experts;
	out->n_experts = t->n_experts;
	out->rows = xmemdup(t->rows, t->n * sizeof *t->rows);
}
