#include "cli/terminal/term.h"

#include "base/clock.h"
#include "base/log.h"
#include "cli/terminal/environment.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static bool progress_drawn;
static const char *log_part; /* NULL: notices go to a terminal */

void term_to_log(const char *part)
{
	log_part = part;
}

/* Control characters become blanks: text from a service or a file may contain newlines and escape
 * sequences. */
static void put_line(const char *prefix, const char *fmt, va_list ap, const char *suffix)
{
	char line[2048];
	if (log_part && log_is_json()) {
		vsnprintf(line, sizeof line, fmt, ap);
		fflush(stdout);
		log_error(log_part, "%s%s", line, suffix);
		return;
	}
	int n = snprintf(line, sizeof line, "%s", prefix);
	vsnprintf(line + n, sizeof line - (size_t)n, fmt, ap);
	for (char *p = line; *p; p++)
		if ((unsigned char)*p < 0x20 || *p == 0x7f)
			*p = ' ';
	fflush(stdout);
	fprintf(stderr, "%s%s\n", line, suffix);
}

int term_error(const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	put_line("quern: ", fmt, ap, "");
	va_end(ap);
	return EXIT_FAILURE;
}

int term_usage(const char *command, const char *fmt, ...)
{
	char more[128];
	va_list ap;
	snprintf(more, sizeof more, "; see: quern%s%s --help", command ? " " : "", command ? command : "");
	va_start(ap, fmt);
	put_line("quern: ", fmt, ap, more);
	va_end(ap);
	return EXIT_USAGE;
}

void term_note(const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	if (log_part) {
		char line[1024];
		vsnprintf(line, sizeof line, fmt, ap);
		fflush(stdout);
		log_warn(log_part, "%s", line);
	} else {
		put_line("quern: ", fmt, ap, "");
	}
	va_end(ap);
}

unsigned term_width(FILE *f)
{
	struct winsize size;
	return term_is_tty(f) && ioctl(fileno(f), TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

bool term_controls(void)
{
	int fd = open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

bool term_is_tty(FILE *f)
{
	return isatty(fileno(f));
}

const char *term_style(FILE *f, enum term_style s)
{
	static const char *const codes[] = {"\x1b[0m",  "\x1b[1m",  "\x1b[2m",
					    "\x1b[32m", "\x1b[33m", "\x1b[31m"};
	if (!term_is_tty(f) || environment_read().no_color)
		return "";
	return codes[s];
}

void term_clear(FILE *f)
{
	if (term_is_tty(f))
		fputs("\x1b[H\x1b[J", f);
}

/* The cursor stays at the beginning of the line, so that a log line replaces the bar. */
void term_progress(const char *doing, double done, double total, double seconds)
{
	enum { CELLS = 20 };
	char bar[CELLS + 1], a[32], b[32];
	if (!term_is_tty(stderr))
		return;
	const int full = total > 0 ? (int)(CELLS * done / total) : 0;
	for (int i = 0; i < CELLS; i++)
		bar[i] = i < full ? '#' : '.';
	bar[CELLS] = '\0';
	if (total > 0)
		fprintf(stderr, "\r[%s] %s of %s, %.0f s, %s\033[K\r", bar, term_bytes(done, a, sizeof a),
			term_bytes(total, b, sizeof b), seconds, doing);
	else
		fprintf(stderr, "\r[%s] %.0f s, %s\033[K\r", bar, seconds, doing);
	progress_drawn = true;
}

void term_progress_end(void)
{
	if (progress_drawn)
		fputs("\r\033[K", stderr);
	progress_drawn = false;
}

int term_finish(int status)
{
	if (fflush(stdout) == 0 && !ferror(stdout))
		return status;
	/* The reader, such as head, has closed the pipe: not reported. */
	if (errno == EPIPE)
		return status ? status : EXIT_FAILURE;
	return term_error("cannot write the output: %s", strerror(errno));
}

const char *term_bytes(double bytes, char *buf, size_t n)
{
	static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
	int u = 0;
	while (bytes >= 1024 && u < 4) {
		bytes /= 1024;
		u++;
	}
	snprintf(buf, n, bytes < 10 && u ? "%.1f %s" : "%.0f %s", bytes, units[u]);
	return buf;
}

static const int interrupt_signals[] = {SIGINT, SIGTERM, SIGHUP};
static int interrupt_pipe[2] = {-1, -1};
static volatile sig_atomic_t interrupted;
static volatile int64_t interrupted_us;

static void on_interrupt(int sig)
{
	int saved = errno;
	int64_t now = clock_us();
	if (!interrupted) {
		interrupted = sig;
		interrupted_us = now;
		if (write(interrupt_pipe[1], "", 1) < 0)
			interrupted = sig; /* the pipe is full, and therefore readable */
	} else if (now - interrupted_us > INTERRUPT_ECHO_US) {
		/* The signal is pending until this handler returns; then it kills. */
		signal(sig, SIG_DFL);
		raise(sig);
	}
	errno = saved;
}

static void interrupt_forget(void)
{
	char drain[64];
	while (interrupt_pipe[0] >= 0 && read(interrupt_pipe[0], drain, sizeof drain) > 0)
		continue;
	interrupted = 0;
}

void interrupt_arm(void)
{
	if (interrupt_pipe[0] < 0 && pipe2(interrupt_pipe, O_CLOEXEC | O_NONBLOCK) < 0)
		return; /* out of descriptors: Ctrl-C kills at once */
	interrupt_forget();
	for (int i = 0; i < 3; i++) {
		struct sigaction old, act = {.sa_handler = on_interrupt};
		sigemptyset(&act.sa_mask);
		/* Leave SIGHUP ignored if nohup has set it so. */
		if (interrupt_signals[i] == SIGHUP && sigaction(SIGHUP, NULL, &old) == 0 &&
		    old.sa_handler == SIG_IGN)
			continue;
		sigaction(interrupt_signals[i], &act, NULL);
	}
}

void interrupt_disarm(void)
{
	struct sigaction act = {.sa_handler = SIG_DFL};
	for (int i = 0; i < 3; i++)
		sigaction(interrupt_signals[i], &act, NULL);
	interrupt_forget();
}

bool interrupt_pending(void)
{
	return interrupted != 0;
}

int interrupt_signal(void)
{
	return interrupted;
}

int interrupt_fd(void)
{
	return interrupt_pipe[0];
}
