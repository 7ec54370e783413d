/* Row counts per expert over all workers: reports arrive in parts, repeatedly, and from workers that end. */
#include "controller/fleet/expert_table.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

enum { EXPERTS = 4, ALL = 12 };

static struct expert_table table;

/* Report n cells from cell `from` on. The first has `first` rows, each next cell one more. */
static bool report(uint32_t row, uint64_t epoch, uint32_t from, uint32_t n, uint64_t first)
{
	static struct bus_cells c;
	c = (struct bus_cells){.n_all = ALL, .n_experts = EXPERTS, .from = from, .n = n};
	for (uint32_t i = 0; i < n; i++)
		c.rows[i] = first + i;
	return expert_table_add(&table, row, epoch, &c);
}

static void expect(const uint64_t *rows)
{
	cr_expect_eq(table.n, ALL);
	for (uint32_t i = 0; i < ALL; i++)
		cr_expect_eq(table.rows[i], rows[i], "cell %u: %llu", i, (unsigned long long)table.rows[i]);
	expert_table_fini(&table);
}

Test(expert_table, the_same_report_again_adds_nothing)
{
	cr_expect(report(0, 1, 0, 4, 10));
	cr_expect(report(0, 1, 0, 4, 10));
	cr_expect(report(0, 1, 2, 4, 100));
	expect((uint64_t[ALL]){10, 11, 100, 101, 102, 103});
}

Test(expert_table, workers_count_side_by_side_and_from_0_after_a_load)
{
	report(0, 1, 0, 2, 10);
	report(5, 2, 0, 2, 1000);
	/* A worker that ended and came back, and another worker in its table row. */
	report(0, 3, 0, 2, 7);
	report(5, 4, 1, 2, 1);
	expect((uint64_t[ALL]){10 + 1000 + 7, 11 + 1001 + 8 + 1, 2});
}

Test(expert_table, a_counter_does_not_fall)
{
	report(1, 1, 0, 3, 50);
	report(1, 1, 0, 3, 20);
	report(1, 1, 0, 3, 51);
	expect((uint64_t[ALL]){51, 52, 53});
}

Test(expert_table, reports_that_contradict_themselves_or_others_are_ignored)
{
	static struct bus_cells c;
	cr_expect(report(0, 1, 8, 4, 1));
	cr_expect(!report(0, 1, 9, 4, 1), "beyond the end");
	cr_expect(!report(0, 1, 13, 1, 1));
	cr_expect(!report(0, 1, UINT32_MAX, 4, 1));
	cr_expect(!report(0, 1, 0, 0, 1), "nothing in it");
	c = (struct bus_cells){.n_all = 24, .n_experts = EXPERTS, .n = 1};
	cr_expect(!expert_table_add(&table, 0, 1, &c), "another model");
	c = (struct bus_cells){.n_all = ALL, .n_experts = 6, .n = 1};
	cr_expect(!expert_table_add(&table, 0, 1, &c), "another number of experts");
	expect((uint64_t[ALL]){[8] = 1, 2, 3, 4});
	c = (struct bus_cells){.n_all = ALL, .n_experts = 5, .n = 1};
	cr_expect(!expert_table_add(&table, 0, 1, &c), "no number of layers");
	c.n_experts = 0;
	cr_expect(!expert_table_add(&table, 0, 1, &c));
	cr_expect_eq(table.n, 0);
}

Test(expert_table, the_status_has_a_copy)
{
	struct engine_experts x;
	expert_table_status(&table, &x);
	cr_expect(!x.rows && x.n_layers == 0);
	report(0, 1, 4, 1, 9);
	expert_table_status(&table, &x);
	cr_expect(x.n_layers == 3 && x.n_experts == EXPERTS && x.rows[4] == 9 && x.rows != table.rows);
	free(x.rows);
	expert_table_fini(&table);
}
