/* Cores by NUMA node on a simulated machine: two nodes of 64 cores with two threads each. */
#include "base/cpus.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char root[] = "/tmp/quern-cpus-XXXXXX";

static void put(const char *path, const char *text)
{
	char whole[256], command[300];
	snprintf(whole, sizeof whole, "%s/sys/devices/system/%s", root, path);
	snprintf(command, sizeof command, "mkdir -p $(dirname %s)", whole);
	cr_assert_eq(system(command), 0);
	FILE *f = fopen(whole, "w");
	cr_assert_not_null(f);
	fputs(text, f);
	fclose(f);
}

/* Processor c + 128 is the second thread of core c. */
static void machine_new(void)
{
	char path[64], text[32];
	cr_assert_not_null(mkdtemp(root));
	put("node/node0/cpulist", "0-63,128-191\n");
	put("node/node1/cpulist", "64-127,192-255\n");
	for (int c = 0; c < 256; c++) {
		snprintf(path, sizeof path, "cpu/cpu%d/topology/thread_siblings_list", c);
		snprintf(text, sizeof text, "%d,%d\n", c % 128, c % 128 + 128);
		put(path, text);
	}
}

static void machine_free(void)
{
	char command[64];
	snprintf(command, sizeof command, "rm -r %s", root);
	cr_assert_eq(system(command), 0);
}

static cpu_set_t mask_of(int from, int to)
{
	cpu_set_t m;
	CPU_ZERO(&m);
	for (int c = from; c < to; c++)
		CPU_SET(c, &m);
	return m;
}

Test(cpus, cores_of_nodes_and_of_the_machine, .init = machine_new, .fini = machine_free)
{
	const cpu_set_t all = mask_of(0, 256), low = mask_of(60, 70), second = mask_of(128, 140);
	cpu_set_t node;
	cr_expect(cpus_of_node(root, 1, &node) && CPU_COUNT(&node) == 128 && CPU_ISSET(64, &node));
	cr_expect(!cpus_of_node(root, 2, &node));
	cr_expect_eq(cpus_cores_in(root, &all, -1), 128);
	cr_expect_eq(cpus_cores_in(root, &all, 0), 64);
	cr_expect_eq(cpus_cores_in(root, &all, 1), 64);
	cr_expect_eq(cpus_cores_in(root, &low, 0), 4);
	cr_expect_eq(cpus_cores_in(root, &low, 1), 6);
	cr_expect_eq(cpus_cores_in(root, &second, -1), 12, "second threads alone are cores");
	cr_expect_eq(cpus_cores_in(root, &second, 1), 1, "none, but one thread there must be");
}

/* With --device cpu:0,cpu:1 --tp 2 each rank has a whole node. */
Test(cpus, a_rank_shares_only_the_cores_of_its_node, .init = machine_new, .fini = machine_free)
{
	const cpu_set_t all = mask_of(0, 256), node = mask_of(64, 128);
	cr_expect_eq(cpus_share(root, &all, 1, 1), 64);
	cr_expect_eq(cpus_share(root, &node, 1, 1), 64, "bound to the node already");
	cr_expect_eq(cpus_share(root, &node, 1, 2), 32, "two ranks on one node");
	cr_expect_eq(cpus_share(root, &all, -1, 2), 64, "two ranks on the machine");
	cr_expect_eq(cpus_share(root, &all, 0, 0), 64);
	cr_expect_eq(cpus_share(root, &all, 0, 100), 1);
}
