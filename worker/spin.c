#include "worker/spin.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

/* The OpenMP runtime reads its environment when it is loaded, before main().  Threads that spin
 * for long starve a controller on the same cores, and each other where cores are shared: a
 * tiny model's step then takes 9 ms instead of 0.1.  Threads that sleep at once pay a system
 * call per kernel.  1000 turns are about 15 us: longer than the gap between two kernels of a
 * step, shorter than the gap between two steps. */
static const struct {
	const char *name, *value;
} settings[] = {
	{"OMP_WAIT_POLICY", "passive"},
	{"GOMP_SPINCOUNT", "1000"},
	{"KMP_BLOCKTIME", "0"},
};

void spin_settle(char **argv)
{
	bool missing = false;
	for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) {
		if (getenv(settings[i].name))
			continue;
		missing = true;
		setenv(settings[i].name, settings[i].value, 1);
	}
	/* Once only: the second time nothing is missing.  Should it fail, the defaults do, slowly. */
	char path[4096];
	ssize_t n = missing ? readlink("/proc/self/exe", path, sizeof path - 1) : 0;
	if (n > 0) {
		/* By its own path, so that `ps` shows its own name. */
		path[n] = '\0';
		execv(path, argv);
	}
}
