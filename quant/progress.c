#include "quant/progress.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "cli/terminal/term.h"

#include <stdarg.h>
#include <stdio.h>

enum { CELLS = 24, LOG_EVERY_US = 10 * 1000 * 1000, DRAW_EVERY_US = 100 * 1000 };

void progress_begin(struct progress *p, double done)
{
	*p = (struct progress){.begun_us = clock_us(), .from = done, .done = done};
}

/* Format the remaining time, as ", 12 s left" or ", 2 min left"; "" if it is not known yet. */
static double seconds_left(const struct progress *p, int64_t now)
{
	const double spent = (double)(now - p->begun_us) / 1e6, made = p->done - p->from;
	return made <= 0 || spent < 1 ? -1 : spent / made * (1 - p->done);
}

static void time_left(double seconds, char *out, size_t n)
{
	out[0] = '\0';
	if (seconds >= 0)
		snprintf(out, n, seconds < 90 ? ", %.0f s left" : ", %.0f min left",
			 seconds < 90 ? seconds : seconds / 60);
}

void progress_step(struct progress *p, double done, const char *fmt, ...)
{
	char what[128], left[48], bar[CELLS + 1];
	const int64_t now = clock_us();
	va_list ap;
	p->done = done;
	if (p->told_us && now - p->told_us < (term_is_tty(stderr) ? DRAW_EVERY_US : LOG_EVERY_US))
		return;
	p->told_us = now;
	va_start(ap, fmt);
	format_text(what, sizeof what, fmt, ap);
	va_end(ap);
	const double seconds = seconds_left(p, now);
	if (!term_is_tty(stderr)) {
		if (seconds < 0)
			log_info("quantize", "progress step=\"%s\" percent=%.0f", what, 100 * done);
		else
			log_info("quantize", "progress step=\"%s\" percent=%.0f seconds_left=%.0f", what,
				 100 * done, seconds);
		return;
	}
	time_left(seconds, left, sizeof left);
	for (int i = 0; i < CELLS; i++)
		bar[i] = i < (int)(CELLS * done) ? '#' : '.';
	bar[CELLS] = '\0';
	fprintf(stderr, "\r[%s] %3.0f%%%s, %s\033[K\r", bar, 100 * done, left, what);
	fflush(stderr);
}

void progress_end(struct progress *p)
{
	if (p->told_us && term_is_tty(stderr))
		fputs("\r\033[K", stderr);
	p->told_us = 0;
}
