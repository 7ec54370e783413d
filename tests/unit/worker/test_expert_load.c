/* Counters of experts' rows belong to the loaded model and restart at 0 with each epoch. */
#include "worker/experts/expert_load.h"

#include <criterion/criterion.h>

static struct expert_load load;

Test(expert_load, rows_are_counted_by_layer_and_expert)
{
	expert_load_shape(&load, 3, 5);
	struct expert_cells *c = atomic_load(&load.cells);
	cr_assert(c && c->n == 15 && c->n_experts == 5);
	expert_load_rows(c, 2, 4, 1);
	expert_load_rows(c, 2, 4, 1);
	expert_load_rows(c, 0, 1, 1);
	cr_expect(c->rows[14] == 2 && c->rows[1] == 1 && c->rows[0] == 0);
	expert_load_reset(&load);
	cr_expect(c->rows[14] == 0 && c->rows[1] == 0);
	expert_load_fini(&load);
	cr_expect_null(atomic_load(&load.cells));
}

/* The other thread may still read the cells of the previous model. */
Test(expert_load, cells_of_a_model_before_stay_and_serve_again)
{
	expert_load_shape(&load, 2, 4);
	struct expert_cells *first = atomic_load(&load.cells);
	expert_load_rows(first, 1, 3, 1);
	expert_load_shape(&load, 2, 8);
	struct expert_cells *second = atomic_load(&load.cells);
	cr_expect(second != first && second->n == 16 && first->rows[7] == 1);
	expert_load_shape(&load, 1, 8);
	struct expert_cells *third = atomic_load(&load.cells);
	cr_expect(third != first && third->n == 8 && third->n_experts == 8);
	expert_load_shape(&load, 0, 0);
	cr_expect_null(atomic_load(&load.cells));
	expert_load_shape(&load, 2, 4);
	cr_expect_eq(atomic_load(&load.cells), first);
	cr_expect_eq(first->rows[7], 0);
	expert_load_fini(&load);
}

/* Number of cells in the next report, which must start at the expected cell; 0 if there is no report. */
static uint32_t next(struct expert_cursor *t, uint32_t expected_from)
{
	uint32_t from, n;
	if (!expert_load_next(&load, t, 4, &from, &n))
		return 0;
	cr_expect_eq(from, expected_from);
	return n;
}

Test(expert_load, cells_are_reported_in_turns_until_all_rows_are_known)
{
	struct expert_cursor t = {0};
	cr_expect_eq(next(&t, 0), 0, "no model");
	expert_load_shape(&load, 2, 5);
	cr_expect_eq(next(&t, 0), 0, "no row");
	load.rows = 7;
	cr_expect(next(&t, 0) == 4 && next(&t, 4) == 4);
	load.rows = 9; /* perhaps in cells that this round has already reported */
	cr_expect(next(&t, 8) == 2 && next(&t, 0) == 4 && next(&t, 4) == 4 && next(&t, 8) == 2);
	cr_expect_eq(next(&t, 0), 0, "all is known");
	/* Another model is loaded in the middle of a round. */
	load.rows = 10;
	cr_expect(next(&t, 0) == 4 && next(&t, 4) == 4);
	expert_load_shape(&load, 1, 6);
	cr_expect(next(&t, 0) == 4 && next(&t, 4) == 2);
	t = (struct expert_cursor){0};
	cr_expect(next(&t, 0) == 4, "a controller that knows nothing");
	expert_load_fini(&load);
}
