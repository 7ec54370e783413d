#include "cli/private.h"

#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"
#include "cli/launch.h"
#include "cli/supervise.h"
#include "cli/terminal/term.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static const int64_t grace_us = 2 * 1000000LL;
/* Time to wait for the supervisor's reason after the service went away. */
enum { REASON_MS = 3000 };

static void report(int fd, const json_t *line)
{
	char *text = json_dumps(line, JSON_COMPACT);
	if (!text)
		return;
	struct buf b = {0};
	buf_printf(&b, "%s\n", text);
	free(text);
	if (write(fd, b.p, b.len) < 0)
		exit(EXIT_FAILURE); /* the command has ended: exit too */
	buf_fini(&b);
}

static void on_ready(void *user, const json_t *line)
{
	report(*(int *)user, line);
}

/* Report progress only if the pipe has room: a command that waits for its prompt does not read, and must not
 * block the supervisor. */
static void on_loading(void *user, const json_t *loading)
{
	struct pollfd room = {.fd = *(int *)user, .events = POLLOUT};
	json_t *line = poll(&room, 1, 0) == 1 ? json_pack("{s:O}", "loading", (json_t *)loading) : NULL;
	if (line)
		report(*(int *)user, line);
	json_decref(line);
}

/* Run the supervisor's process, from fork to exit. */
static int supervisor(const struct opts *o, const char *model, bool verbose, int control_fd, int report_fd)
{
	struct launch l;
	struct why why;
	int rc = launch_open(&l, o, model, true, &why);
	if (!rc) {
		struct supervise_config cfg = {
			.log_dir = verbose ? NULL : l.dir.path,
			.end_fd = control_fd,
			.grace_us = grace_us,
			.on_ready = on_ready,
			.on_loading = on_loading,
			.user = &report_fd,
		};
		launch_supervise(&l, &cfg);
		rc = supervise(&cfg, &why);
		launch_close(&l);
	}
	if (rc) {
		json_t *line = json_pack("{s:s}", "error", why.text);
		if (line)
			report(report_fd, line);
		json_decref(line);
	}
	return rc ? EXIT_FAILURE : EXIT_SUCCESS;
}

int private_start(struct private_service *s, const struct opts *o, const char *model, bool verbose,
		  struct why *why)
{
	int control[2], reports[2];
	*s = (struct private_service){.control_fd = -1, .report_fd = -1};
	if (pipe2(control, O_CLOEXEC) < 0)
		return err_why(why, -errno, "cannot make a pipe: %s", strerror(errno));
	if (pipe2(reports, O_CLOEXEC) < 0) {
		close(control[0]);
		close(control[1]);
		return err_why(why, -errno, "cannot make a pipe: %s", strerror(errno));
	}
	fflush(NULL);
	pid_t parent = getpid();
	s->pid = fork();
	if (s->pid == 0) {
		/* The command handles Ctrl-C on the terminal. */
		setpgid(0, 0);
		interrupt_disarm();
		signal(SIGPIPE, SIG_IGN);
		signal(SIGTTOU, SIG_IGN);
		prctl(PR_SET_PDEATHSIG, SIGTERM);
		close(control[1]);
		close(reports[0]);
		if (getppid() != parent)
			_exit(EXIT_FAILURE);
		_exit(supervisor(o, model, verbose, control[0], reports[1]));
	}
	int e = errno;
	close(control[0]);
	close(reports[1]);
	s->control_fd = control[1];
	s->report_fd = reports[0];
	if (s->pid < 0) {
		s->pid = 0;
		private_stop(s);
		return err_why(why, -e, "cannot start a process: %s", strerror(e));
	}
	return 0;
}

/* Read one line from the supervisor.  NULL with *rc: -EINTR, -ETIMEDOUT, or -EPIPE when it has ended. */
static json_t *next_report(struct private_service *s, int timeout_ms, int *rc)
{
	struct buf b = {0};
	json_t *line = NULL;
	*rc = 0;
	while (!*rc && !line) {
		char c;
		struct pollfd fds[] = {{.fd = s->report_fd, .events = POLLIN},
				       {.fd = interrupt_fd(), .events = POLLIN}};
		int n = poll(fds, 2, timeout_ms);
		if (interrupt_pending())
			*rc = -EINTR;
		else if (n == 0)
			*rc = -ETIMEDOUT;
		else if (n > 0 && fds[0].revents && read(s->report_fd, &c, 1) != 1)
			*rc = -EPIPE;
		else if (n > 0 && fds[0].revents && c != '\n')
			buf_putc(&b, c);
		else if (n > 0 && fds[0].revents && json_parse(b.p ? b.p : "", b.len, &line, NULL))
			*rc = -EPIPE;
	}
	buf_fini(&b);
	return line;
}

int private_wait(struct private_service *s, struct why *why)
{
	int rc;
	json_t *line, *loading;
	while ((line = next_report(s, -1, &rc)) && (loading = json_object_get(line, "loading"))) {
		launch_show_loading(loading);
		json_decref(line);
	}
	term_progress_end();
	if (rc == -EINTR)
		return err_why(why, rc, "interrupted");
	const char *error = json_string_value(json_object_get(line, "error"));
	if (!line || error) {
		err_why(why, -EIO, "%s", error ? error : "the service ended before it was ready");
		json_decref(line);
		return -EIO;
	}
	s->ready = line;
	if (!private_jobs(s))
		return err_why(why, -EPROTO, "the controller did not report its job socket");
	return 0;
}

const char *private_jobs(const struct private_service *s)
{
	return json_string_value(json_object_get(s->ready, "jobs"));
}

void private_reason(struct private_service *s, struct why *why)
{
	int rc = 0;
	/* Further ready or loading lines may precede the reason. */
	while (!rc) {
		json_t *line = next_report(s, REASON_MS, &rc);
		const char *error = json_string_value(json_object_get(line, "error"));
		if (error) {
			err_why(why, 0, "%s", error);
			rc = -EPIPE;
		}
		json_decref(line);
	}
}

void private_stop(struct private_service *s)
{
	if (s->control_fd >= 0)
		close(s->control_fd);
	/* Close the pipe, so that the supervisor does not block when it is full. */
	if (s->report_fd >= 0)
		close(s->report_fd);
	while (s->pid && waitpid(s->pid, NULL, 0) < 0 && errno == EINTR)
		continue;
	json_decref(s->ready);
	*s = (struct private_service){.control_fd = -1, .report_fd = -1};
}
