/* process.h - starts, watches and ends one child process.
 * A child runs in its own process group, so that Ctrl-C on the terminal reaches only the supervisor.  The
 * kernel kills the child when the supervisor dies. */
#ifndef QUERN_CLI_PROCESS_H
#define QUERN_CLI_PROCESS_H

#include "base/buf.h"
#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct process {
	pid_t pid; /* 0: none */
	int pidfd; /* readable when the process has ended; -1 if the kernel has no pidfds */
	int64_t started_us;
	int64_t stopped_us; /* time when it was stopped (SIGSTOP); 0: it runs */
};

/* Start a process; argv[0] is the program's path.  The child's stdin is /dev/null; its stdout and stderr are
 * log_fd (-1: our stderr).  Of our other descriptors it inherits only keep_fd (-1: none), under the same
 * number.  If exec fails, its error is returned with the reason. */
int process_start(struct process *p, char *const argv[], int keep_fd, int log_fd, struct why *why);

/* Return true once, when the process has ended; *status is waitpid's.  Also updates stopped_us. */
bool process_ended(struct process *p, int *status);
void process_signal(const struct process *p, int sig);

/* Format a status: "exit status 1", "killed by SIGKILL".  Returns buf. */
const char *process_status_text(int status, char *buf, size_t n);

/* Run argv until it ends: stdin is /dev/null, stdout is appended to out, stderr is ours.  *status is
 * waitpid's.  -errno with the reason if it cannot be started. */
int process_output(char *const argv[], struct buf *out, int *status, struct why *why);

/* Return the path of another quern program, in the folder of the running one; the caller frees it.  NULL with
 * a reason if it is missing. */
char *process_program(const char *name, struct why *why);

#endif
