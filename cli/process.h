/* process.h - one child process: started, watched, ended.
 * A child lives in a process group of its own, so that Ctrl-C on the terminal reaches only the
 * supervisor, and is killed by the kernel when the supervisor dies. */
#ifndef QUERN_CLI_PROCESS_H
#define QUERN_CLI_PROCESS_H

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct process {
	pid_t pid; /* 0: none */
	int pidfd; /* readable when it has ended; -1 where the kernel has none */
	int64_t started_us;
	int64_t stopped_us; /* when it was stopped (SIGSTOP); 0: it runs */
};

/* argv[0] is the program's path.  The child's stdin is /dev/null, stdout and stderr are log_fd
 * (-1: our stderr); of all other descriptors it gets only keep_fd (-1: none), under the same
 * number.  An error of exec is returned with its reason. */
int process_start(struct process *p, char *const argv[], int keep_fd, int log_fd, char *why, size_t why_n);

/* True once, when the process has ended; *status is waitpid's.  Also updates stopped_us. */
bool process_ended(struct process *p, int *status);
void process_signal(const struct process *p, int sig);

/* "exit status 1", "killed by SIGKILL"; returns buf. */
const char *process_status_text(int status, char *buf, size_t n);

/* Runs argv until it ends: stdin is /dev/null, stdout is appended to out, stderr is ours.  *status is
 * waitpid's; -errno with the reason when it cannot be started. */
int process_output(char *const argv[], struct buf *out, int *status, char *why, size_t why_n);

/* The path of another program of quern, beside the running one; to be freed.  NULL with a reason if
 * it is missing. */
char *process_program(const char *name, char *why, size_t why_n);

#endif
