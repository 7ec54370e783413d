#include "cli/supervise.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/json.h"
#include "cli/process.h"
#include "base/restarts.h"
#include "cli/terminal/term.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

static const int64_t serve_margin_us = 500 * 1000;
/* Polling interval, which bounds the detection of a death if there is no pidfd and SIGCHLD is missed. */
static const int64_t poll_max_us = 1000 * 1000;
/* Longer lines are not from our controller, and are cut. */
static const size_t line_bytes_max = 64 << 10;
static const int64_t drain_max_s = 86400; /* maximum of --drain-timeout */

struct worker {
	struct process process;
	struct restarts again;
	char device[32];
	double memory_fraction; /* fraction of the device's memory; 0: its share at the start */
	bool served;            /* the current process has served */
	pid_t last_pid;         /* pid of the previous process; 0: none */
	bool gone;              /* not to be started again: reap() removes it from the table */
	int64_t retired_us;     /* time when it was retired; 0: it was not */
	char died[600];         /* how the previous process ended; logged when the next one starts */
};

/* Workers wanted on a device, for which the table had no room yet. */
struct missing {
	char device[32];
	double memory_fraction;
	size_t n;
};

/* A controller's endpoints: the option, and the key in its ready line. */
static const struct {
	const char *option, *key;
} places[] = {{"--jobs", "jobs"}, {"--http", "http"}, {"--metrics-http", "metrics_http"}, {"--bus", "bus"}};
enum { N_PLACES = sizeof places / sizeof *places };

struct sup {
	const struct supervise_config *cfg;
	struct process controller;
	struct restarts again; /* restarts of the controller */
	bool controller_served;
	bool served;             /* the service has been ready at least once */
	char *listens[N_PLACES]; /* endpoints of the first controller, by places[]; owned, NULL until it is
				  * ready */
	char error[512];         /* reported by a restarted controller that cannot continue */
	struct worker **workers;
	size_t n_workers;
	struct missing missing[DEVICES_MAX]; /* from the last scale line */
	size_t n_missing;
	int signal_fd;
	int ready_fd;           /* -1 once the controller has closed its end */
	struct buf line;        /* incomplete line from the ready pipe */
	int64_t ready_after_us; /* time from the first worker's start until the service was ready; 0: not
				 * yet */
	int64_t alive_us;       /* time of the current controller's last "alive"; 0: none yet */
	int64_t end_signal_us;  /* time of the first signal to end; 0: none yet */
	bool ending;
	bool draining;   /* while ending: the controller waits for running requests and needs its workers */
	int64_t kill_us; /* while ending: time at which processes are killed */
	int rc;
	struct why *why;
};

/* ---- logs of the children ---- */

static int log_open(const struct sup *s, const char *name)
{
	if (!s->cfg->log_dir)
		return -1;
	char *path = xasprintf("%s/%s.log", s->cfg->log_dir, name);
	int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	free(path);
	return fd;
}

/* Return ": " and the last line of a log; "" if the children write to our stderr, where it is visible. */
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
	for (size_t i = 0; i < s->n_workers; i++)
		process_signal(&s->workers[i]->process, sig);
}

static bool keeps_workers(const struct sup *s)
{
	return !s->ending || s->draining;
}

/* Begin the end.  The controller stops the workers; they are signalled only when it is gone. */
static void begin_end(struct sup *s, int64_t now)
{
	if (s->ending)
		return;
	s->ending = true;
	s->kill_us = now + s->cfg->grace_us;
	notify_send(s->cfg->notify, "STOPPING=1\nSTATUS=ends");
	if (s->controller.pid)
		process_signal(&s->controller, SIGTERM);
	else
		signal_workers(s, SIGTERM);
	/* A stopped process handles SIGTERM only after it continues. */
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
		vsnprintf(s->why->text, sizeof s->why->text, fmt, ap);
		va_end(ap);
		s->rc = -ECHILD;
	}
	s->draining = false;
	begin_end(s, now);
}

/* ---- losses ---- */

/* The controller may announce only the first service.  So a worker that lived well beyond the time that the
 * first one needed also counts as having served. */
static bool has_served(const struct sup *s, const struct worker *w, int64_t lived)
{
	return w->served || lived >= RESTARTS_WINDOW_S * 1000000LL ||
	       (s->ready_after_us && lived > 2 * s->ready_after_us + serve_margin_us);
}

static bool same_kind(const struct worker *a, const struct worker *b)
{
	size_t n = strcspn(a->device, ":");
	return n == strcspn(b->device, ":") && strncmp(a->device, b->device, n) == 0;
}

/* Return whether the other workers, serving or not, suffice for a group without this worker. */
static bool others_suffice(const struct sup *s, const struct worker *but)
{
	for (size_t i = 0; i < s->n_workers; i++) {
		size_t n = 0;
		for (size_t k = 0; k < s->n_workers; k++) {
			const struct worker *w = s->workers[k];
			n += w != but && !w->gone && !w->retired_us && same_kind(w, s->workers[i]);
		}
		if (n && n >= s->cfg->group)
			return true;
	}
	return false;
}

/* A worker ended, not on purpose: restart it, or give it up. */
static void worker_lost(struct sup *s, struct worker *w, bool served, const char *how, int64_t now)
{
	char detail[600], all[1400];
	if (restarts_died(&w->again, served, now)) {
		/* Logged at the restart: until then the controller may report that there is no service. */
		snprintf(w->died, sizeof w->died, "%s", how);
		return;
	}
	snprintf(all, sizeof all, "a worker on %s died %d times within %d s without serving (%s)%s",
		 w->device, RESTARTS_CRASHES, RESTARTS_WINDOW_S, how,
		 log_last_line(s, "worker", detail, sizeof detail));
	/* Before the first service, the start has failed. */
	if (!s->served || !others_suffice(s, w)) {
		fail(s, now, "%s", all);
		return;
	}
	term_note("%s; it is given up, the others continue", all);
	w->gone = true;
}

static void controller_lost(struct sup *s, const char *how, const char *detail, int64_t now)
{
	if (!restarts_died(&s->again, s->controller_served, now))
		fail(s, now, "the controller ended %d times within %d s without serving (%s)%s",
		     RESTARTS_CRASHES, RESTARTS_WINDOW_S, how, detail);
	else if (!s->cfg->log_dir)
		term_note("the controller ended (%s)%s; it is started again", how, detail);
	if (!s->ending)
		notify_send(s->cfg->notify, "STATUS=the controller ended (%s), and is started again", how);
}

/* ---- starting ---- */

/* Return argv with the options of a restart appended: the last value of an option counts. */
static char **controller_argv(const struct sup *s, char *ready_fd)
{
	size_t n = 0;
	while (s->cfg->controller[n])
		n++;
	char **argv = xcalloc(n + 2 + 2 * N_PLACES + 1, sizeof *argv);
	memcpy(argv, s->cfg->controller, n * sizeof *argv);
	argv[n++] = (char *)"--ready-fd";
	argv[n++] = ready_fd;
	for (size_t i = 0; i < N_PLACES && s->listens[i]; i++) {
		argv[n++] = (char *)places[i].option;
		argv[n++] = s->listens[i];
	}
	return argv;
}

static int start_controller(struct sup *s, struct why *why)
{
	int fds[2];
	if (pipe2(fds, O_CLOEXEC) < 0)
		return err_why(why, -errno, "cannot make a pipe: %s", strerror(errno));
	char number[16];
	snprintf(number, sizeof number, "%d", fds[1]);
	char **argv = controller_argv(s, number);
	int log_fd = log_open(s, "controller");
	int rc = process_start(&s->controller, argv, fds[1], log_fd, why);
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
	s->controller_served = false;
	s->error[0] = '\0';
	s->n_missing = 0; /* wanted by the previous controller */
	buf_clear(&s->line);
	return 0;
}

static size_t count_on(const struct sup *s, const char *device)
{
	size_t n = 0;
	for (size_t i = 0; i < s->n_workers; i++)
		n += !s->workers[i]->retired_us && !s->workers[i]->gone &&
		     strcmp(s->workers[i]->device, device) == 0;
	return n;
}

/* Handle a failure of the system to start a process.  True: treat it as a death, since it may be temporary.
 * False: the service has not been ready yet, and ends with the reason. */
static bool start_refused(struct sup *s, struct restarts *r, const char *why, int64_t now)
{
	if (!s->served) {
		fail(s, now, "%s", why);
		return false;
	}
	restarts_refused(r);
	return true;
}

static void start_worker(struct sup *s, struct worker *w, int64_t now)
{
	struct why why;
	if (w->died[0] && !s->cfg->log_dir)
		term_note("a worker died (%s); it is started again", w->died);
	w->died[0] = '\0';
	int log_fd = log_open(s, "worker");
	char **argv =
		s->cfg->worker_argv(s->cfg->launch, w->device, count_on(s, w->device), w->memory_fraction);
	int rc = process_start(&w->process, argv, -1, log_fd, &why);
	for (size_t i = 0; argv[i]; i++)
		free(argv[i]);
	free(argv);
	if (log_fd >= 0)
		close(log_fd);
	w->served = false;
	if (rc && start_refused(s, &w->again, why.text, now))
		worker_lost(s, w, false, why.text, now);
}

static void start_controller_again(struct sup *s, int64_t now)
{
	struct why why;
	s->controller_served = false;
	s->alive_us = 0;
	if (start_controller(s, &why) && start_refused(s, &s->again, why.text, now))
		controller_lost(s, why.text, "", now);
}

static void start_due(struct sup *s, int64_t now)
{
	if (!s->ending && !s->controller.pid && s->again.start_us <= now)
		start_controller_again(s, now);
	for (size_t i = 0; i < s->n_workers && keeps_workers(s); i++)
		if (!s->workers[i]->process.pid && s->workers[i]->again.start_us <= now)
			start_worker(s, s->workers[i], now);
}

/* Add a worker to the table; start_due() starts it. */
static void add_worker(struct sup *s, const char *device, double memory_fraction)
{
	struct worker *w = xcalloc(1, sizeof *w);
	snprintf(w->device, sizeof w->device, "%s", device);
	w->memory_fraction = memory_fraction;
	w->process.pidfd = -1;
	restarts_reset(&w->again);
	s->workers = xrealloc(s->workers, s->n_workers + 1, sizeof *s->workers);
	s->workers[s->n_workers++] = w;
}

/* Move missing workers into the table while it has room. */
static void add_missing(struct sup *s)
{
	for (size_t i = 0; i < s->n_missing; i++)
		for (struct missing *m = &s->missing[i]; m->n && s->n_workers < SUPERVISE_WORKERS_MAX; m->n--)
			add_worker(s, m->device, m->memory_fraction);
}

/* A device may be named more than once. */
static bool is_named_before(const struct device_name *devices, size_t d)
{
	for (size_t k = 0; k < d; k++)
		if (strcmp(devices[k].name, devices[d].name) == 0)
			return true;
	return false;
}

/* Want n workers, round robin over the devices, and add the missing workers, now or as others end.  Workers
 * on devices beyond the first n, which remain after others have ended, count too. */
static void want_workers(struct sup *s, const struct device_name *devices, size_t n_devices, size_t n,
			 double memory_fraction)
{
	size_t left = n;
	for (size_t d = 0; d < n_devices; d++) {
		size_t have = is_named_before(devices, d) ? 0 : count_on(s, devices[d].name);
		left -= have < left ? have : left;
	}
	s->n_missing = 0;
	for (size_t d = 0; d < n_devices && left; d++) {
		size_t wanted = 0, have = count_on(s, devices[d].name);
		for (size_t i = 0; i < n && !is_named_before(devices, d); i++)
			wanted += strcmp(devices[i % n_devices].name, devices[d].name) == 0;
		if (wanted <= have)
			continue;
		struct missing *m = &s->missing[s->n_missing++];
		*m = (struct missing){.memory_fraction = memory_fraction,
				      .n = wanted - have < left ? wanted - have : left};
		left -= m->n;
		snprintf(m->device, sizeof m->device, "%s", devices[d].name);
	}
	add_missing(s);
}

/* ---- lines from the controller ---- */

static struct worker *worker_of(const struct sup *s, json_int_t pid)
{
	for (size_t i = 0; i < s->n_workers; i++)
		if (pid > 0 && s->workers[i]->process.pid == pid)
			return s->workers[i];
	return NULL;
}

static void on_ready(struct sup *s, const json_t *line, int64_t now)
{
	for (size_t i = 0; i < N_PLACES && !s->cfg->once; i++) {
		const char *where = json_string_value(json_object_get(line, places[i].key));
		if (!s->listens[i])
			s->listens[i] = xstrdup(where && *where ? where : "none");
	}
	s->controller_served = s->served = true;
	restarts_reset(&s->again);
	for (size_t i = 0; i < s->n_workers; i++) {
		struct worker *w = s->workers[i];
		w->served = w->process.pid != 0;
		if (w->served && !s->ready_after_us)
			s->ready_after_us = now - w->process.started_us + 1;
		restarts_reset(&w->again);
	}
	if (s->cfg->on_ready)
		s->cfg->on_ready(s->cfg->user, line);
}

/* An error of the first controller is final.  A later controller is restarted. */
static void on_error(struct sup *s, const char *error, int64_t now)
{
	if (!s->listens[0]) {
		fail(s, now, "%s", error);
		return;
	}
	snprintf(s->error, sizeof s->error, "%s", error);
	process_signal(&s->controller, SIGKILL);
}

/* A failure before the first service is final.  Later, the worker ends by itself, which counts as a death,
 * and the controller continues for the workers that load.  For a restarted worker, the reason is printed
 * here. */
static void on_failed(struct sup *s, const char *failed, int64_t now)
{
	if (!s->served)
		fail(s, now, "%s", failed);
	else if (!s->cfg->log_dir)
		term_note("%s", failed);
}

static void on_scale(struct sup *s, const json_t *scale)
{
	struct device_name devices[DEVICES_MAX];
	size_t n = 0, i;
	const json_t *d;
	json_int_t workers = json_integer_value(json_object_get(scale, "workers"));
	struct why why;
	json_array_foreach(json_object_get(scale, "devices"), i, d)
	{
		size_t one;
		const char *name = json_string_value(d);
		if (name && n < DEVICES_MAX && !strchr(name, ',') &&
		    devices_parse(name, &devices[n], &one, &why) == 0)
			n++;
	}
	const double fraction = json_number_value(json_object_get(scale, "memory_fraction"));
	/* The number includes workers that are about to end. */
	if (workers < 0 || workers > 2 * SUPERVISE_WORKERS_MAX || s->ending)
		return;
	if (n)
		want_workers(s, devices, n, (size_t)workers, fraction);
	else
		want_workers(s, s->cfg->devices, s->cfg->n_devices, (size_t)workers, fraction);
}

static bool is_among(const json_t *pids, pid_t pid)
{
	size_t i;
	const json_t *p;
	json_array_foreach(pids, i, p) if (pid && json_integer_value(p) == pid) return true;
	return false;
}

/* End every worker that is not kept, including those about to be started.  The controller may know a just
 * restarted worker only by its previous process. */
static void on_keep(struct sup *s, const json_t *pids, int64_t now)
{
	for (size_t i = 0; i < s->n_workers; i++) {
		struct worker *w = s->workers[i];
		if (is_among(pids, w->process.pid) || is_among(pids, w->last_pid))
			continue;
		if (!w->process.pid) {
			w->gone = true;
		} else if (!w->retired_us) {
			w->retired_us = now;
			process_signal(&w->process, SIGTERM);
		}
	}
	s->n_missing = 0;
}

/* While ending, set the deadline: the controller is killed if draining takes longer than it reported. */
static void on_draining(struct sup *s, const json_t *line, int64_t now)
{
	const json_int_t seconds = json_integer_value(json_object_get(line, "seconds"));
	const json_int_t jobs = json_integer_value(json_object_get(line, "jobs"));
	const json_int_t requests = json_integer_value(json_object_get(line, "requests"));
	if (!s->ending || s->kill_us == INT64_MAX || seconds < 0 || seconds > drain_max_s)
		return;
	s->draining = seconds > 0;
	s->kill_us = now + seconds * 1000000 + s->cfg->grace_us;
	if (s->draining)
		notify_send(s->cfg->notify,
			    "EXTEND_TIMEOUT_USEC=%lld\nSTATUS=ends when %lld jobs and %lld HTTP requests "
			    "have, or "
			    "in %lld s",
			    (long long)(s->kill_us - now + s->cfg->grace_us), (long long)jobs,
			    (long long)requests, (long long)seconds);
	if (s->draining && !s->cfg->log_dir)
		term_note("waiting for running requests (%lld jobs, %lld HTTP requests) for up to %lld s; "
			  "Ctrl-C or SIGTERM again cuts them",
			  (long long)jobs, (long long)requests, (long long)seconds);
}

static void on_line(struct sup *s, const char *text, size_t n, int64_t now)
{
	json_t *o;
	struct why why;
	if (json_parse(text, n, &o, &why))
		return; /* not from our controller; see its log */
	const char *error = json_string_value(json_object_get(o, "error"));
	const char *failed = json_string_value(json_object_get(o, "failed"));
	const json_t *scale = json_object_get(o, "scale");
	struct worker *lost = worker_of(s, json_integer_value(json_object_get(o, "lost")));
	struct worker *retire = worker_of(s, json_integer_value(json_object_get(o, "retire")));
	const json_t *keep = json_object_get(o, "keep"), *draining = json_object_get(o, "draining");
	const json_t *loading = json_object_get(o, "loading");
	if (loading && !s->served && s->cfg->on_loading)
		s->cfg->on_loading(s->cfg->user, loading);
	if (draining)
		on_draining(s, draining, now);
	if (json_is_true(json_object_get(o, "alive")))
		s->alive_us = now;
	if (error)
		on_error(s, error, now);
	else if (json_is_true(json_object_get(o, "ready")))
		on_ready(s, o, now);
	if (failed)
		on_failed(s, failed, now);
	if (lost)
		process_signal(&lost->process, SIGKILL);
	if (scale)
		on_scale(s, scale);
	if (retire && !retire->retired_us)
		retire->retired_us = now;
	if (json_is_array(keep))
		on_keep(s, keep, now);
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

static void worker_died(struct sup *s, struct worker *w, int64_t lived, int status, int64_t now)
{
	char how[64];
	process_status_text(status, how, sizeof how);
	if (!keeps_workers(s) || w->retired_us)
		w->gone = true;
	else
		worker_lost(s, w, has_served(s, w, lived), how, now);
}

static void controller_died(struct sup *s, int status, int64_t now)
{
	char how[64], detail[600];
	process_status_text(status, how, sizeof how);
	if (s->ending) {
		s->draining = false;
		signal_workers(s, SIGTERM);
		return;
	}
	if (s->error[0])
		snprintf(detail, sizeof detail, ": %s", s->error);
	else
		log_last_line(s, "controller", detail, sizeof detail);
	if (s->cfg->once || (!s->listens[0] && !WIFSIGNALED(status)))
		fail(s, now, "the controller ended (%s)%s", how, detail);
	else
		controller_lost(s, how, detail, now);
}

/* Signal a process that has been stopped or retired for too long. */
static void signal_overdue(struct process *p, int64_t retired_us, int64_t now)
{
	int sig = restarts_overdue(p->stopped_us, retired_us, now);
	if (sig)
		process_signal(p, sig);
}

static void reap(struct sup *s, int64_t now)
{
	int status;
	if (process_ended(&s->controller, &status)) {
		/* The controller's last line may contain the reason. */
		read_ready(s, now);
		controller_died(s, status, now);
	} else {
		signal_overdue(&s->controller, 0, now);
	}
	size_t kept = 0;
	for (size_t i = 0; i < s->n_workers; i++) {
		struct worker *w = s->workers[i];
		const struct process was = w->process;
		if (process_ended(&w->process, &status)) {
			w->last_pid = was.pid;
			worker_died(s, w, now - was.started_us, status, now);
		} else {
			signal_overdue(&w->process, w->retired_us, now);
		}
		if (!w->process.pid && w->retired_us)
			w->gone = true;
		if (w->gone)
			free(w);
		else
			s->workers[kept++] = w;
	}
	s->n_workers = kept;
	if (!s->ending)
		add_missing(s);
}

static bool all_gone(const struct sup *s)
{
	for (size_t i = 0; i < s->n_workers; i++)
		if (s->workers[i]->process.pid)
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
		if (si.ssi_signo == SIGHUP && s->cfg->reloads) {
			process_signal(&s->controller, SIGHUP);
			continue;
		}
		if (s->end_signal_us && now - s->end_signal_us <= INTERRUPT_ECHO_US)
			continue;
		if (s->draining) {
			term_note("running requests are cut; again to kill");
			s->draining = false;
			s->end_signal_us = now;
			s->kill_us = now + s->cfg->grace_us;
			process_signal(&s->controller, SIGTERM);
			continue;
		}
		if (s->end_signal_us) {
			if (!s->rc)
				s->rc = err_why(s->why, -EINTR, "killed before its orderly end");
			kill_all(s);
			continue;
		}
		s->end_signal_us = now;
		if (!s->ending && !s->cfg->log_dir)
			term_note("ending");
		begin_end(s, now);
	}
}

/* Return whether to send keep-alives to the service manager.  If the controller hangs they stop, and the
 * service manager restarts the whole service. */
static bool is_alive(const struct sup *s, int64_t now)
{
	return !s->controller.pid || !s->alive_us || !s->cfg->alive_us || s->ending ||
	       now - s->alive_us <= s->cfg->alive_us;
}

static int wait_ms(const struct sup *s, int64_t now)
{
	int64_t until = now + poll_max_us;
	const struct notify *n = s->cfg->notify;
	if (n && n->watchdog_us && n->next_us < until && is_alive(s, now))
		until = n->next_us;
	if (s->ending && s->kill_us < until)
		until = s->kill_us;
	if (!s->ending && !s->controller.pid && s->again.start_us < until)
		until = s->again.start_us;
	for (size_t i = 0; i < s->n_workers && keeps_workers(s); i++)
		if (!s->workers[i]->process.pid && s->workers[i]->again.start_us < until)
			until = s->workers[i]->again.start_us;
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
	for (size_t i = 0; i < s->n_workers; i++) {
		const struct process *p = &s->workers[i]->process;
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
	if (is_alive(s, now))
		notify_alive(s->cfg->notify, now);
}

static int open_signals(struct sup *s)
{
	sigset_t mask;
	struct sigaction hup;
	sigemptyset(&mask);
	sigaddset(&mask, SIGINT);
	sigaddset(&mask, SIGTERM);
	sigaddset(&mask, SIGCHLD);
	/* If the log's reader exits (`| head`, `| tee` at Ctrl-C), the service continues. */
	signal(SIGPIPE, SIG_IGN);
	/* Leave SIGHUP ignored if nohup has set it so. */
	if (sigaction(SIGHUP, NULL, &hup) == 0 && hup.sa_handler != SIG_IGN)
		sigaddset(&mask, SIGHUP);
	sigprocmask(SIG_BLOCK, &mask, NULL);
	s->signal_fd = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
	return s->signal_fd < 0 ? err_why(s->why, -errno, "signalfd: %s", strerror(errno)) : 0;
}

int supervise(const struct supervise_config *cfg, struct why *why)
{
	struct sup s = {.cfg = cfg, .why = why, .ready_fd = -1};
	s.controller.pidfd = -1;
	restarts_reset(&s.again);
	s.rc = open_signals(&s);
	if (s.rc)
		return s.rc;
	struct pollfd *fds = xcalloc(4 + SUPERVISE_WORKERS_MAX, sizeof *fds);
	s.rc = start_controller(&s, why);
	if (!s.rc) {
		want_workers(&s, cfg->devices, cfg->n_devices, cfg->n_workers, 0);
		start_due(&s, clock_us());
		do
			step(&s, fds);
		while (!s.ending || !all_gone(&s));
	}
	if (s.ready_fd >= 0)
		close(s.ready_fd);
	buf_fini(&s.line);
	for (size_t i = 0; i < N_PLACES; i++)
		free(s.listens[i]);
	for (size_t i = 0; i < s.n_workers; i++)
		free(s.workers[i]);
	free(s.workers);
	free(fds);
	close(s.signal_fd);
	return s.rc;
}
