/* test_option_table.c - the option rows of all programs. */
#include "base/option_table.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

TestSuite(option_table, .timeout = 20);

static struct opts of(enum option_program program)
{
	struct opts o = {0};
	opts_add_program(&o, program);
	return o;
}

Test(option_table, every_default_is_a_value_of_its_option)
{
	int n = 0;
	for (int p = 0; p < OPTION_N_PROGRAMS; p++) {
		struct opts o = of((enum option_program)p);
		for (size_t i = 0; i < o.n_values; i++) {
			const struct opt *s = o.values[i].spec;
			struct why why = {""};
			if (!s->def)
				continue;
			cr_expect_eq(opts_set(&o, s->name, s->def, &why), 0, "%s", why.text);
			n++;
		}
		opts_fini(&o);
	}
	cr_expect_gt(n, 100);
}

Test(option_table, every_row_has_a_program_and_a_range)
{
	for (size_t i = 0; i < option_n_rows; i++) {
		const struct opt *s = &option_rows[i];
		cr_expect(s->in && s->in < OPTION_BIT(OPTION_N_PROGRAMS), "%s", s->name);
		cr_expect_eq(s->wide & ~s->in, 0, "%s", s->name);
		cr_expect(s->kind != OPT_INT || s->lo < s->hi, "%s", s->name);
		cr_expect(!s->wide || s->wide_lo < s->wide_hi, "%s", s->name);
		cr_expect(s->kind != OPT_FLAG || (!s->def && !s->unset && !s->arg), "%s", s->name);
		cr_expect(!s->help || s->kind == OPT_FLAG || s->arg, "%s", s->name);
		cr_expect(!s->note || s->near, "%s", s->name);
	}
}

/* An option that `quern serve` passes on means the same to its controller and its workers. */
Test(option_table, programs_of_a_service_have_one_default_of_an_option)
{
	const uint64_t service =
		OPTION_BIT(OPTION_SERVE) | OPTION_BIT(OPTION_CONTROLLER) | OPTION_BIT(OPTION_WORKER);
	for (size_t i = 0; i < option_n_rows; i++) {
		for (size_t k = 0; k < i; k++) {
			const struct opt *a = &option_rows[i], *b = &option_rows[k];
			if (!(a->in & service) || !(b->in & service) || strcmp(a->name, b->name) != 0)
				continue;
			cr_expect_eq(a->kind, b->kind, "%s", a->name);
			cr_expect(!a->def || !b->def || strcmp(a->def, b->def) == 0, "%s", a->name);
		}
	}
}

Test(option_table, a_range_may_be_wider_in_one_program)
{
	struct opts serve = of(OPTION_SERVE), scheduler = of(OPTION_BENCH_SCHEDULER);
	struct why why;
	cr_expect_eq(opts_set(&serve, "max-seqs", "5000", &why), -EINVAL);
	cr_expect_str_eq(why.text, "max-seqs is \"5000\", must be an integer from 1 to 4096");
	cr_expect_eq(opts_set(&scheduler, "max-seqs", "5000", &why), 0);
	cr_expect_eq(opts_set(&scheduler, "chunk", "0", &why), 0);
	cr_expect_eq(opts_set(&serve, "chunk", "0", &why), -EINVAL);
	opts_fini(&serve);
	opts_fini(&scheduler);
}

Test(option_table, a_default_is_read_by_name)
{
	cr_expect_eq(option_default(OPTION_SERVE, "max-seqs"), 256);
	cr_expect_eq(option_default(OPTION_CONTROLLER, "journal-bytes"), (int64_t)4 << 30);
	cr_expect_eq(option_default(OPTION_WORKER, "rank-timeout"), 5);
	struct opts o = of(OPTION_BENCH_AUTOSCALE);
	cr_expect_eq(opts_number(&o, "scale-at"), OPTION_SCALE_AT);
	cr_expect_str_eq(opts_text(&o, "device"), "h100");
	cr_expect_null(opts_text(&o, "trace"));
	cr_expect_eq(opts_int_or(&o, "first", 3), 3);
	opts_fini(&o);
}
