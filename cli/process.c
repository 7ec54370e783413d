#include "cli/process.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/err.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void close_on_exec_from(int first)
{
#ifdef SYS_close_range
	enum { CLOEXEC_FLAG = 1 << 2 }; /* CLOSE_RANGE_CLOEXEC, which older headers lack */
	if (syscall(SYS_close_range, (unsigned)first, ~0u, CLOEXEC_FLAG) == 0)
		return;
#endif
	long max = sysconf(_SC_OPEN_MAX);
	for (int fd = first; fd < (max > 0 && max < 65536 ? max : 65536); fd++)
		fcntl(fd, F_SETFD, FD_CLOEXEC);
}

/* Set up the child between fork and exec.  Returns only on failure. */
static void become(char *const argv[], int keep_fd, int log_fd, pid_t parent)
{
	setpgid(0, 0);
	/* The kernel kills the child when the supervisor ends, however it ends.  If the supervisor ended
	 * before this call, getppid() differs. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(127);

	sigset_t none;
	sigemptyset(&none);
	for (int s = 1; s < NSIG; s++)
		signal(s, SIG_DFL);
	/* The child may write to a terminal from the background. */
	signal(SIGTTOU, SIG_IGN);
	/* Ignored at first: the supervisor may pass on SIGHUP before the child has a handler.  Once the child
	 * has set one, it receives the signal. */
	signal(SIGHUP, SIG_IGN);
	sigprocmask(SIG_SETMASK, &none, NULL);

	int null = open("/dev/null", O_RDWR);
	if (null < 0 || dup2(null, STDIN_FILENO) < 0)
		return;
	if (log_fd >= 0 && dup2(log_fd, STDERR_FILENO) < 0)
		return;
	if (dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
		return;
	close_on_exec_from(STDERR_FILENO + 1);
	if (keep_fd >= 0 && fcntl(keep_fd, F_SETFD, 0) < 0)
		return;
	execv(argv[0], argv);
}

int process_start(struct process *p, char *const argv[], int keep_fd, int log_fd, struct why *why)
{
	int report[2], failed = 0;
	if (pipe2(report, O_CLOEXEC) < 0)
		return err_why(why, -errno, "cannot start %s: %s", argv[0], strerror(errno));
	pid_t parent = getpid(), pid = fork();
	if (pid < 0) {
		int e = errno;
		close(report[0]);
		close(report[1]);
		return err_why(why, -e, "cannot start %s: %s", argv[0], strerror(e));
	}
	if (pid == 0) {
		become(argv, keep_fd, log_fd, parent);
		failed = errno;
		if (write(report[1], &failed, sizeof failed) < 0)
			_exit(126);
		_exit(127);
	}
	close(report[1]);
	ssize_t n;
	do
		n = read(report[0], &failed, sizeof failed);
	while (n < 0 && errno == EINTR);
	close(report[0]);
	if (n == (ssize_t)sizeof failed) {
		waitpid(pid, NULL, 0);
		return err_why(why, -failed, "cannot run %s: %s", argv[0], strerror(failed));
	}
	/* Older kernels and some sandboxes have no pidfd; there SIGCHLD reports the end. */
	int fd = -1;
#ifdef SYS_pidfd_open
	fd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (fd >= 0)
		fcntl(fd, F_SETFD, FD_CLOEXEC);
#endif
	*p = (struct process){.pid = pid, .pidfd = fd, .started_us = clock_us()};
	return 0;
}

int process_output(char *const argv[], struct buf *out, int *status, struct why *why)
{
	int ends[2];
	pid_t pid;
	if (pipe2(ends, O_CLOEXEC) < 0)
		return err_why(why, -errno, "cannot start %s: %s", argv[0], strerror(errno));
	posix_spawn_file_actions_t actions;
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
	int e = posix_spawn(&pid, argv[0], &actions, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&actions);
	close(ends[1]);
	char part[4096];
	ssize_t n = 1;
	while (!e && (n > 0 || (n < 0 && errno == EINTR)))
		if ((n = read(ends[0], part, sizeof part)) > 0)
			buf_put(out, part, (size_t)n);
	close(ends[0]);
	if (e)
		return err_why(why, -e, "cannot run %s: %s", argv[0], strerror(e));
	while (waitpid(pid, status, 0) < 0 && errno == EINTR)
		continue;
	return 0;
}

bool process_ended(struct process *p, int *status)
{
	while (p->pid && waitpid(p->pid, status, WNOHANG | WUNTRACED | WCONTINUED) == p->pid) {
		if (WIFSTOPPED(*status)) {
			p->stopped_us = clock_us();
		} else if (WIFCONTINUED(*status)) {
			p->stopped_us = 0;
		} else {
			if (p->pidfd >= 0)
				close(p->pidfd);
			*p = (struct process){.pidfd = -1};
			return true;
		}
	}
	return false;
}

void process_signal(const struct process *p, int sig)
{
	/* The process is not reaped yet, so its pid is valid.  Signal the whole group, so that processes that
	 * it started end too. */
	if (p->pid && kill(-p->pid, sig) < 0)
		kill(p->pid, sig);
}

const char *process_status_text(int status, char *buf, size_t n)
{
	if (WIFSIGNALED(status)) {
		const char *name = sigabbrev_np(WTERMSIG(status));
		snprintf(buf, n, "killed by SIG%s", name ? name : "?");
	} else {
		snprintf(buf, n, "exit status %d", WEXITSTATUS(status));
	}
	return buf;
}

char *process_program(const char *name, struct why *why)
{
	char self[4096];
	ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
	if (n < 0) {
		err_why(why, -errno, "/proc/self/exe: %s", strerror(errno));
		return NULL;
	}
	self[n] = '\0';
	char *slash = strrchr(self, '/');
	if (slash)
		*slash = '\0';
	char *path = xasprintf("%s/%s", self, name);
	if (access(path, X_OK) < 0) {
		err_why(why, -ENOENT, "%s is not next to quern in %s; build it with: make", name, self);
		free(path);
		return NULL;
	}
	return path;
}
