/* The probes of memory and arithmetic: they run if the CPU has the instructions that they measure. The
 * system's description of its processors is read from directories made for the test. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/machine.h"
#include "kernels/cpu/probe.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { AREA = 4 << 20, PASS_US = 200 };

static struct probe *probe(int n_threads)
{
	struct probe *p;
	struct why why;
	cr_assert_eq(probe_new(&p, n_threads, AREA, &why), 0, "%s", why.text);
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
	struct why why;
	cr_expect_eq(probe_new(&p, 1, (size_t)1 << 60, &why), -12);
	cr_expect(strstr(why.text, "1152921504606846976"), "%s", why.text);
	cr_expect_null(p);
}

Test(probe, names_differ)
{
	for (int i = 0; i < PROBE_KINDS; i++)
		for (int j = 0; j < i; j++)
			cr_expect_str_neq(probe_name((enum probe_kind)i), probe_name((enum probe_kind)j));
}

/* ---- the system's description ---- */

static char root[64];
static struct cpu_machine got;

static void make_root(void)
{
	snprintf(root, sizeof root, "/tmp/quern-machine-XXXXXX");
	cr_assert(mkdtemp(root));
}

static void remove_root(void)
{
	char cmd[128];
	snprintf(cmd, sizeof cmd, "rm -r '%s'", root);
	cr_assert_eq(system(cmd), 0);
}

TestSuite(machine, .init = make_root, .fini = remove_root);

static void put(const char *path, const char *text)
{
	char full[512], cmd[600];
	snprintf(full, sizeof full, "%s/%s", root, path);
	snprintf(cmd, sizeof cmd, "mkdir -p \"$(dirname '%s')\"", full);
	cr_assert_eq(system(cmd), 0);
	FILE *f = fopen(full, "w");
	cr_assert(f);
	fputs(text, f);
	fclose(f);
}

static void put_cache(int index, const char *level, const char *type, const char *size)
{
	const char *const names[] = {"level", "type", "size", "shared_cpu_list"};
	const char *const texts[] = {level, type, size, "0-1\n"};
	char path[128];
	for (int i = 0; i < 4; i++) {
		snprintf(path, sizeof path, "sys/devices/system/cpu/cpu0/cache/index%d/%s", index, names[i]);
		put(path, texts[i]);
	}
}

Test(machine, a_server_with_amx_and_two_nodes)
{
	put("proc/cpuinfo",
	    "processor\t: 0\nmodel name\t: A Xeon\nphysical id\t: 0\ncore id\t: 0\n"
	    "flags\t\t: fpu avx2 avx512f avx512bw avx512dq avx512vl avx512_vnni avx512_bf16 avx512_fp16 "
	    "amx_tile amx_int8 "
	    "amx_bf16 avx_vnni\n\n"
	    "processor\t: 1\nmodel name\t: A Xeon\nphysical id\t: 0\ncore id\t: 0\nflags\t\t: fpu\n\n"
	    "processor\t: 2\nmodel name\t: A Xeon\nphysical id\t: 1\ncore id\t: 0\nflags\t\t: fpu\n");
	put_cache(0, "1\n", "Data\n", "48K\n");
	put_cache(1, "1\n", "Instruction\n", "64K\n");
	put_cache(2, "2\n", "Unified\n", "2048K\n");
	put_cache(3, "3\n", "Unified\n", "480M\n");
	put("sys/devices/system/node/node0/cpulist", "0-1\n");
	put("sys/devices/system/node/node1/cpulist", "2\n");
	put("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
	put("sys/kernel/mm/transparent_hugepage/hpage_pmd_size", "2097152\n");
	cpu_machine_read(root, &got);
	cr_expect_str_eq(got.name, "A Xeon");
	cr_expect_eq(got.n_cpus, 3);
	cr_expect_eq(got.n_cores, 2);
	for (int i = 0; i < MACHINE_FEATURES; i++)
		cr_expect(got.has[i], "%s", cpu_machine_feature((enum machine_feature)i));
	cr_expect_eq(got.l1d, 48 << 10);
	cr_expect_eq(got.l2, 2 << 20);
	cr_expect_eq(got.l3, 480 << 20);
	cr_expect_str_eq(got.l3_cpus, "0-1");
	cr_expect_eq(got.n_nodes, 2);
	cr_expect_str_eq(got.node_cpus[1], "2");
	cr_expect_str_eq(got.huge_pages, "madvise");
	cr_expect_eq(got.huge_page_bytes, 2 << 20);
}

Test(machine, a_flag_is_a_whole_word_and_avx512_is_four_of_them)
{
	put("proc/cpuinfo",
	    "processor\t: 0\nflags\t\t: avx2x avx512f avx512bw avx512dq avx512_vnnix xavx_vnni\n");
	cpu_machine_read(root, &got);
	for (int i = 0; i < MACHINE_FEATURES; i++)
		cr_expect_not(got.has[i], "%s", cpu_machine_feature((enum machine_feature)i));
	cr_expect_eq(got.n_cores, 1);
}

Test(machine, nothing_is_known_where_the_system_tells_nothing)
{
	cpu_machine_read(root, &got);
	cr_expect_str_empty(got.name);
	cr_expect(got.n_cpus == 0 && got.n_cores == 0 && got.n_nodes == 0 && got.l2 == 0 && !got.has[0]);
	cr_expect_str_empty(got.huge_pages);
}
