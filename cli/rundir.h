/* rundir.h - the directory that holds a service's ipc sockets and logs.
 * Mode 0700, under $XDG_RUNTIME_DIR or /tmp, removed with what it holds when the service ends.
 * It is locked while in use; one that a killed service left behind is removed by the next. */
#ifndef QUERN_CLI_RUNDIR_H
#define QUERN_CLI_RUNDIR_H

#include <stddef.h>

struct rundir {
	char path[64]; /* short: a socket's path may have 107 bytes */
	int lock_fd;
};

int rundir_open(struct rundir *d, char *why, size_t why_n);
void rundir_remove(struct rundir *d);

#endif
