#include "cli/supervise.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/json.h"
#include "cli/process.h"
#include "cli/term.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

enum { CRASHES = 5 };
static const int64_t crash_window_us = 30 * 1000000LL;
static const int64_t serve_margin_us = 500 * 1000;
static const int64_t delay_first_us = 100 * 1000;
static const int64_t delay_max_us = 5 * 1000000LL;
/* A stopped worker answers nobody and would answer late: the controller has given it up by then. */
static const int64_t stop_patience_us = 2000 * 1000;
/* Without pidfd and should a SIGCHLD be missed, deaths are still seen. */
static const int64_t look_around_us = 1000 * 1000;
/* A controller that writes more than this without a newline is not ours. */
static const size_t line_bytes_max = 64 << 10;

struct worker {
	struct process process;
	char **argv;
	int64_t start_us;           /* when to start it (again); valid while it does not run */
	int64_t delay_us;           /* before the next restart */
	int64_t deaths_us[CRASHES]; /* the last ones without serving, as a ring */
	unsigned n_deaths;
	bool served;   /* this process has served */
	char died[64]; /* how the process before it ended, to be told when this one starts */
};

struct sup {
	const struct supervise_config *cfg;
	struct process controller;
	struct worker *workers;
	int signal_fd;
	int ready_fd;           /* -1 once the controller has closed its end */
	struct buf line;        /* of the ready pipe, not complete yet */
	int64_t ready_after_us; /* how long the first worker took until it served; 0: not yet */
	int64_t end_signal_us;  /* when a signal said to end; 0: none yet */
	bool ending;
	int64_t kill_us; /* while ending: when patience is over */
	int rc;
	char *why;
	size_t why_n;
};

/* ---- what children wrote ---- */

static int log_open(const struct sup *s, const char *name)
{
	if (!s->cfg->log_dir)
		return -1;
	char *path = xasprintf("%s/%s.log", s->cfg->log_dir, name);
	int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	free(path);
	return fd;
}

/* The last line of a log, with ": " before it; "" where the children write to our stderr, where
 * everybody has read it. */
static const char *log_last_line(const struct sup *s, const char *name, char *out, size_t n)
{
	char tail[512];
	*out = '\0';
	if (!s->cfg->log_dir)
		return out;
	char *path = xasprintf("%s/%s.log", s->cfg->log_dir, name);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	free(path);
	if (fd < 0)
		return out;
	off_t end = lseek(fd, 0, SEEK_END);
	off_t room = sizeof tail - 1;
	ssize_t got = pread(fd, tail, (size_t)room, end > room ? end - room : 0);
	close(fd);
	while (got > 0 && tail[got - 1] == '\n')
		got--;
	if (got <= 0)
		return out;
	tail[got] = '\0';
	const char *last = strrchr(tail, '\n');
	snprintf(out, n, ": %s", last ? last + 1 : tail);
	return out;
}

/* ---- ending ---- */

static void signal_workers(const struct sup *s, int sig)
{
	for (size_t i = 0; i < s->cfg->n_workers; i++)
		process_signal(&s->workers[i].process, sig);
}

/* The controller tells the workers to stop; they are asked themselves only when it is gone. */
static void begin_end(struct sup *s, int64_t now)
{
	if (s->ending)
		return;
	s->ending = true;
	s->kill_us = now + s->cfg->grace_us;
	if (s->controller.pid)
		process_signal(&s->controller, SIGTERM);
	else
		signal_workers(s, SIGTERM);
	/* A stopped process acts on SIGTERM only when it goes on. */
	process_signal(&s->controller, SIGCONT);
	signal_workers(s, SIGCONT);
}

static void kill_all(struct sup *s)
{
	process_signal(&s->controller, SIGKILL);
	signal_workers(s, SIGKILL);
	s->kill_us = INT64_MAX;
}

__attribute__((format(printf, 3, 4))) static void fail(struct sup *s, int64_t now, const char *fmt, ...)
{
	if (!s->rc && !s->ending) {
		va_list ap;
		va_start(ap, fmt);
		vsnprintf(s->why, s->why_n, fmt, ap);
		va_end(ap);
		s->rc = -ECHILD;
	}
	begin_end(s, now);
}

/* ---- starting ---- */

static int start_controller(struct sup *s)
{
	int fds[2];
	if (pipe2(fds, O_CLOEXEC) < 0)
		return err_why(s->why, s->why_n, -errno, "cannot make a pipe: %s", strerror(errno));
	size_t n = 0;
	while (s->cfg->controller[n])
		n++;
	char **argv = xcalloc(n + 3, sizeof *argv);
	memcpy(argv, s->cfg->controller, n * sizeof *argv);
	char number[16];
	snprintf(number, sizeof number, "%d", fds[1]);
	argv[n] = (char[]){"--ready-fd"};
	argv[n + 1] = number;
	int log_fd = log_open(s, "controller");
	int rc = process_start(&s->controller, argv, fds[1], log_fd, s->why, s->why_n);
	if (log_fd >= 0)
		close(log_fd);
	free(argv);
	close(fds[1]);
	if (rc) {
		close(fds[0]);
		return rc;
	}
	fcntl(fds[0], F_SETFL, O_NONBLOCK);
	s->ready_fd = fds[0];
	return 0;
}

static void start_worker(struct sup *s, struct worker *w, int64_t now)
{
	char why[512];
	if (w->died[0] && !s->cfg->log_dir)
		term_note("a worker died (%s); it is started again", w->died);
	w->died[0] = '\0';
	int log_fd = log_open(s, "worker");
	int rc = process_start(&w->process, w->argv, -1, log_fd, why, sizeof why);
	if (log_fd >= 0)
		close(log_fd);
	w->served = false;
	if (rc)
		fail(s, now, "%s", why);
}

static void start_due(struct sup *s, int64_t now)
{
	for (size_t i = 0; i < s->cfg->n_workers && !s->ending; i++)
		if (!s->workers[i].process.pid && s->workers[i].start_us <= now)
			start_worker(s, &s->workers[i], now);
}

/* ---- what the controller says ---- */

static void on_line(struct sup *s, const char *text, size_t n, int64_t now)
{
	json_t *o;
	char why[256];
	if (json_parse(text, n, &o, why, sizeof why))
		return; /* not from our controller; its own log tells more */
	const char *error = json_string_value(json_object_get(o, "error"));
	json_int_t lost = json_integer_value(json_object_get(o, "lost"));
	if (error) {
		fail(s, now, "%s", error);
	} else if (json_is_true(json_object_get(o, "ready"))) {
		for (size_t i = 0; i < s->cfg->n_workers; i++) {
			struct worker *w = &s->workers[i];
			w->served = w->process.pid != 0;
			if (w->served && !s->ready_after_us)
				s->ready_after_us = now - w->process.started_us + 1;
			w->delay_us = delay_first_us;
			w->n_deaths = 0;
		}
		if (s->cfg->on_ready)
			s->cfg->on_ready(s->cfg->user, o);
	} else if (lost > 0) {
		for (size_t i = 0; i < s->cfg->n_workers; i++)
			if (s->workers[i].process.pid == lost)
				process_signal(&s->workers[i].process, SIGKILL);
	}
	json_decref(o);
}

static void read_ready(struct sup *s, int64_t now)
{
	char part[4096];
	ssize_t n;
	while (s->ready_fd >= 0 && (n = read(s->ready_fd, part, sizeof part)) != 0) {
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return;
		if (n < 0)
			break;
		for (ssize_t i = 0; i < n; i++) {
			if (part[i] != '\n') {
				if (s->line.len < line_bytes_max)
					buf_putc(&s->line, part[i]);
				continue;
			}
			on_line(s, s->line.p ? s->line.p : "", s->line.len, now);
			buf_clear(&s->line);
		}
	}
	if (s->ready_fd >= 0)
		close(s->ready_fd);
	s->ready_fd = -1;
}

/* ---- deaths ---- */

/* A controller announces only the first time that a replica serves: a worker that lived well
 * beyond the time which the first one needed is taken to have served. */
static bool has_served(const struct sup *s, const struct worker *w, int64_t lived)
{
	return w->served || lived >= crash_window_us ||
	       (s->ready_after_us && lived > 2 * s->ready_after_us + serve_margin_us);
}

static void worker_died(struct sup *s, struct worker *w, int64_t lived, int status, int64_t now)
{
	char how[64], said[600];
	process_status_text(status, how, sizeof how);
	if (s->ending)
		return;
	if (!has_served(s, w, lived)) {
		w->deaths_us[w->n_deaths++ % CRASHES] = now;
		/* With the ring full, the next place holds the oldest. */
		if (w->n_deaths >= CRASHES && now - w->deaths_us[w->n_deaths % CRASHES] < crash_window_us) {
			fail(s, now, "a worker died %d times within %d s without serving (%s)%s", CRASHES,
			     (int)(crash_window_us / 1000000), how,
			     log_last_line(s, "worker", said, sizeof said));
			return;
		}
	} else {
		w->delay_us = delay_first_us;
		w->n_deaths = 0;
	}
	w->start_us = now + w->delay_us;
	/* Told when it is: the controller may be about to say that it is no use. */
	snprintf(w->died, sizeof w->died, "%s", how);
	w->delay_us = w->delay_us * 2 < delay_max_us ? w->delay_us * 2 : delay_max_us;
}

static void reap(struct sup *s, int64_t now)
{
	int status;
	char how[64], said[600];
	if (process_ended(&s->controller, &status)) {
		/* Its last line may say why. */
		read_ready(s, now);
		if (s->ending)
			signal_workers(s, SIGTERM);
		else
			fail(s, now, "the controller ended (%s)%s",
			     process_status_text(status, how, sizeof how),
			     log_last_line(s, "controller", said, sizeof said));
	}
	for (size_t i = 0; i < s->cfg->n_workers; i++) {
		struct worker *w = &s->workers[i];
		int64_t started_us = w->process.started_us;
		if (process_ended(&w->process, &status))
			worker_died(s, w, now - started_us, status, now);
		else if (w->process.stopped_us && now - w->process.stopped_us > stop_patience_us)
			process_signal(&w->process, SIGKILL);
	}
}

static bool all_gone(const struct sup *s)
{
	for (size_t i = 0; i < s->cfg->n_workers; i++)
		if (s->workers[i].process.pid)
			return false;
	return !s->controller.pid;
}

/* ---- the loop ---- */

static void on_signals(struct sup *s, int64_t now)
{
	struct signalfd_siginfo si;
	while (read(s->signal_fd, &si, sizeof si) == (ssize_t)sizeof si) {
		if (si.ssi_signo == SIGCHLD)
			continue;
		if (s->end_signal_us && now - s->end_signal_us <= INTERRUPT_ECHO_US)
			continue;
		if (s->end_signal_us) {
			if (!s->rc)
				s->rc = err_why(s->why, s->why_n, -EINTR,
						"killed before it had ended in order");
			kill_all(s);
			continue;
		}
		s->end_signal_us = now;
		if (!s->ending && !s->cfg->log_dir)
			term_note("ending; once more to kill");
		begin_end(s, now);
	}
}

static int wait_ms(const struct sup *s, int64_t now)
{
	int64_t until = now + look_around_us;
	if (s->ending && s->kill_us < until)
		until = s->kill_us;
	for (size_t i = 0; i < s->cfg->n_workers && !s->ending; i++)
		if (!s->workers[i].process.pid && s->workers[i].start_us < until)
			until = s->workers[i].start_us;
	return until <= now ? 0 : (int)((until - now + 999) / 1000);
}

static void step(struct sup *s, struct pollfd *fds)
{
	nfds_t n = 0;
	int end_fd = s->ending ? -1 : s->cfg->end_fd;
	/* poll() ignores negative descriptors. */
	fds[n++] = (struct pollfd){.fd = s->signal_fd, .events = POLLIN};
	fds[n++] = (struct pollfd){.fd = s->ready_fd, .events = POLLIN};
	fds[n++] = (struct pollfd){.fd = end_fd, .events = POLLIN};
	fds[n++] = (struct pollfd){.fd = s->controller.pid ? s->controller.pidfd : -1, .events = POLLIN};
	for (size_t i = 0; i < s->cfg->n_workers; i++) {
		const struct process *p = &s->workers[i].process;
		fds[n++] = (struct pollfd){.fd = p->pid ? p->pidfd : -1, .events = POLLIN};
	}
	if (poll(fds, n, wait_ms(s, clock_us())) < 0 && errno != EINTR)
		fail(s, clock_us(), "poll: %s", strerror(errno));
	int64_t now = clock_us();
	on_signals(s, now);
	read_ready(s, now);
	reap(s, now);
	if (end_fd >= 0 && fds[2].revents)
		begin_end(s, now);
	if (s->ending && now >= s->kill_us)
		kill_all(s);
	start_due(s, now);
}

int supervise(const struct supervise_config *cfg, char *why, size_t why_n)
{
	sigset_t mask;
	struct sigaction hup;
	struct sup s = {.cfg = cfg, .why = why, .why_n = why_n, .ready_fd = -1};
	s.controller.pidfd = -1;
	sigemptyset(&mask);
	sigaddset(&mask, SIGINT);
	sigaddset(&mask, SIGTERM);
	sigaddset(&mask, SIGCHLD);
	/* nohup asked for SIGHUP to be ignored. */
	if (sigaction(SIGHUP, NULL, &hup) == 0 && hup.sa_handler != SIG_IGN)
		sigaddset(&mask, SIGHUP);
	sigprocmask(SIG_BLOCK, &mask, NULL);
	s.signal_fd = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
	if (s.signal_fd < 0)
		return err_why(why, why_n, -errno, "signalfd: %s", strerror(errno));
	s.workers = xcalloc(cfg->n_workers, sizeof *s.workers);
	struct pollfd *fds = xcalloc(4 + cfg->n_workers, sizeof *fds);
	for (size_t i = 0; i < cfg->n_workers; i++) {
		s.workers[i].argv = cfg->workers[i];
		s.workers[i].delay_us = delay_first_us;
		s.workers[i].process.pidfd = -1;
	}
	s.rc = start_controller(&s);
	if (!s.rc) {
		start_due(&s, clock_us());
		do
			step(&s, fds);
		while (!s.ending || !all_gone(&s));
	}
	if (s.ready_fd >= 0)
		close(s.ready_fd);
	buf_fini(&s.line);
	free(fds);
	free(s.workers);
	close(s.signal_fd);
	return s.rc;
}
