/* rundir.h - the directory that holds a service's ipc sockets and logs.
 * It has mode 0700, is under $XDG_RUNTIME_DIR or /tmp, and is removed with its contents when the service
 * ends.  It is locked while in use.  A directory left behind by a killed service is removed by the next
 * service. */
#ifndef QUERN_CLI_RUNDIR_H
#define QUERN_CLI_RUNDIR_H

#include "base/err.h"

#include <stddef.h>

struct rundir {
	char path[64]; /* short, because a socket's path is limited to 107 bytes */
	int lock_fd;
};

int rundir_open(struct rundir *d, struct why *why);
void rundir_remove(struct rundir *d);

#endif
