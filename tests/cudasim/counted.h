/* counted.h - counts a step's calls to the emulated device, for tests that open the table from its library,
 * as a worker does.  Tests with the emulator linked in call cudasim_stats() themselves.
 *
 *     counted_open();                 before the first model: the table is opened once in a process
 *     counted_again(); a step; struct cudasim_counters c = counted();
 *     counted_print("decode 16", &c)
 *
 * A test need not use all of it. */
#ifndef QUERN_TESTS_CUDASIM_COUNTED_H
#define QUERN_TESTS_CUDASIM_COUNTED_H

#include "tests/cudasim/cudasim.h"
#include "tests/testdata.h"

#include <criterion/criterion.h>
#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define COUNTED_FN static __attribute__((unused))

static struct cudasim_counters (*counted)(void) __attribute__((unused));
static void (*counted_again)(void) __attribute__((unused));

/* Open the library and return it, for other functions of the emulator; skip the test if it is not built. */
COUNTED_FN void *counted_open(void)
{
	const char *library = builtfile("lib/libquern-cudasim.so");
	if (access(library, R_OK))
		cr_skip_test("the emulated CUDA device is not built; make cudasim-tests");
	setenv("QUERN_CUDA_LIBRARY", library, 1);
	void *so = dlopen(library, RTLD_NOW);
	cr_assert(so, "%s", dlerror());
	*(void **)&counted = dlsym(so, "cudasim_stats");
	*(void **)&counted_again = dlsym(so, "cudasim_count_again");
	cr_assert(counted && counted_again);
	return so;
}

/* Print a row of the table in docs/performance/cuda.md. */
COUNTED_FN void counted_print(const char *what, const struct cudasim_counters *c)
{
	printf("| %s | %" PRIu64 " | %" PRIu64 " | %" PRIu64 " | %" PRIu64 " | %" PRIu64 " | %" PRIu64 " |\n",
	       what, c->launched, c->graph_nodes, c->copies, c->copy_bytes, c->syncs, c->mapped_bytes >> 10);
}

#endif
