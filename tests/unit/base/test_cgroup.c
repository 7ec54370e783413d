/* Memory and processor limits that control groups set for this process. */
#include "base/cgroup.h"
#include "base/cpus.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char root[64];

static void make_root(void)
{
	snprintf(root, sizeof root, "/tmp/quern-cgroup-XXXXXX");
	cr_assert(mkdtemp(root));
}

static void remove_root(void)
{
	char cmd[128];
	snprintf(cmd, sizeof cmd, "rm -r '%s'", root);
	cr_assert_eq(system(cmd), 0);
}

TestSuite(cgroup, .init = make_root, .fini = remove_root);

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

static bool ask(int64_t *limit, int64_t *left)
{
	return cgroup_memory(root, limit, left);
}

Test(cgroup, without_a_limit_there_is_none)
{
	int64_t limit, left;
	cr_expect(!ask(&limit, &left));
	put("proc/self/cgroup", "0::/user.slice\n");
	put("sys/fs/cgroup/user.slice/memory.max", "max\n");
	cr_expect(!ask(&limit, &left));
}

Test(cgroup, the_strictest_group_above_counts)
{
	int64_t limit, left;
	put("proc/self/cgroup", "0::/pod/box\n");
	put("sys/fs/cgroup/pod/box/memory.max", "8000000\n");
	put("sys/fs/cgroup/pod/box/memory.current", "1000000\n");
	put("sys/fs/cgroup/pod/memory.max", "4000000\n");
	put("sys/fs/cgroup/pod/memory.current", "1500000\n");
	cr_assert(ask(&limit, &left));
	cr_expect_eq(limit, 4000000);
	cr_expect_eq(left, 2500000);
}

Test(cgroup, files_unused_lately_can_be_given_back)
{
	int64_t limit, left;
	put("proc/self/cgroup", "0::/\n");
	put("sys/fs/cgroup/memory.max", "4000000\n");
	put("sys/fs/cgroup/memory.current", "3000000\n");
	put("sys/fs/cgroup/memory.stat", "anon 500000\nfile 2500000\ninactive_file 2000000\n");
	cr_assert(ask(&limit, &left));
	cr_expect_eq(left, 3000000);
}

Test(cgroup, a_container_of_version_1_has_its_limit_at_the_top)
{
	int64_t limit, left;
	put("proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/docker/abc\n0::/x\n");
	put("sys/fs/cgroup/memory/memory.limit_in_bytes", "6000000\n");
	put("sys/fs/cgroup/memory/memory.usage_in_bytes", "7000000\n");
	cr_assert(ask(&limit, &left));
	cr_expect_eq(limit, 6000000);
	cr_expect_eq(left, 0);
	put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
	cr_expect(!ask(&limit, &left));
}

Test(cgroup, processors_are_whole_ones_and_the_strictest_group_counts)
{
	cr_expect_eq(cgroup_cpus(root), 0);
	put("proc/self/cgroup", "0::/pod/box\n");
	put("sys/fs/cgroup/pod/box/cpu.max", "max 100000\n");
	cr_expect_eq(cgroup_cpus(root), 0);
	put("sys/fs/cgroup/pod/cpu.max", "390000 100000\n");
	cr_expect_eq(cgroup_cpus(root), 3);
	put("sys/fs/cgroup/pod/box/cpu.max", "50000 100000\n");
	cr_expect_eq(cgroup_cpus(root), 1);
	put("sys/fs/cgroup/pod/box/cpu.max", "50000 0\n");
	cr_expect_eq(cgroup_cpus(root), 3);
}

Test(cgroup, processors_of_version_1)
{
	put("proc/self/cgroup", "5:cpu,cpuacct:/docker/abc\n4:memory:/docker/abc\n3:cpuset:/\n");
	put("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
	put("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
	cr_expect_eq(cgroup_cpus(root), 0);
	put("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "200000\n");
	cr_expect_eq(cgroup_cpus(root), 2);
}

Test(cgroup, threads_are_as_many_as_the_group_allows)
{
	cpu_set_t all;
	CPU_ZERO(&all);
	for (int c = 0; c < 64; c++)
		CPU_SET(c, &all);
	cr_expect_eq(cpus_cores_in(root, &all, -1), 64);
	put("proc/self/cgroup", "0::/pod\n");
	put("sys/fs/cgroup/pod/cpu.max", "800000 100000\n");
	cr_expect_eq(cpus_cores_in(root, &all, -1), 8);
	cr_expect_eq(cpus_share(root, &all, -1, 2), 4);
}
