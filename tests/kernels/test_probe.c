/* The probes of memory and arithmetic: that they run, where the CPU has what they measure. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/probe.h"

#include <criterion/criterion.h>

enum { AREA = 4 << 20, PASS_US = 200 };

static struct probe *probe(int n_threads)
{
	struct probe *p;
	char why[256];
	cr_assert_eq(probe_new(&p, n_threads, AREA, why, sizeof why), 0, "%s", why);
	return p;
}

Test(probe, every_kind_that_the_cpu_has_gives_a_rate_and_the_others_none)
{
	struct probe *p = probe(2);
	for (int k = 0; k < PROBE_KINDS; k++)
		for (int n = 0; n <= 2; n++) {
			double rate = probe_rate(p, (enum probe_kind)k, n, PASS_US);
			cr_expect_eq(rate > 0, probe_can((enum probe_kind)k), "%s: %g",
				     probe_name((enum probe_kind)k), rate);
		}
	probe_free(p);
}

Test(probe, has_the_instructions_of_the_kernels)
{
	cr_expect(probe_can(PROBE_READ) && probe_can(PROBE_READ_L2));
	cr_expect_eq(probe_can(PROBE_F32), cpu_isa_avx2() != NULL);
	cr_expect_eq(probe_can(PROBE_INT8_AVX2), cpu_dot_avx2() != NULL);
	cr_expect_eq(probe_can(PROBE_INT8_AVXVNNI), cpu_dot_avxvnni() != NULL);
	cr_expect_eq(probe_can(PROBE_INT8_VNNI), cpu_dot_avx512vnni() != NULL);
	cr_expect_eq(probe_can(PROBE_INT8_AMX), cpu_dot_amx() != NULL);
}

Test(probe, has_as_many_threads_as_asked_for_or_one_per_core)
{
	struct probe *p = probe(3), *q = probe(0);
	cr_expect_eq(probe_threads(p), 3);
	cr_expect_geq(probe_threads(q), 1);
	probe_free(p);
	probe_free(q);
	probe_free(NULL);
}

Test(probe, an_area_that_no_memory_holds_is_refused_with_its_size)
{
	struct probe *p;
	char why[256];
	cr_expect_eq(probe_new(&p, 1, (size_t)1 << 60, why, sizeof why), -12);
	cr_expect(strstr(why, "1152921504606846976"), "%s", why);
	cr_expect_null(p);
}

Test(probe, names_differ)
{
	for (int i = 0; i < PROBE_KINDS; i++)
		for (int j = 0; j < i; j++)
			cr_expect_str_neq(probe_name((enum probe_kind)i), probe_name((enum probe_kind)j));
}
