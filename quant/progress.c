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
static void time_left(const struct progress *p, int64_t now, char *out, size_t n)
{
	const double spent = (double)(now - p->begun_us) / 1e6, made = p->done - p->from;
	const double left = made > 0 ? spent / made * (1 - p->done) : 0;
	out[0] = '\0';
	if (made <= 0 || spent < 1)
		return;
	if (left < 90)
		snprintf(out, n, ", %.0f s left", left);
	else
		snprintf(out, n, ", %.0f min left", left / 60);
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
	time_left(p, now, left, sizeof left);
	if (!term_is_tty(stderr)) {
		log_info("quantize", "%s done=%.0f%%%s", what, 100 * done, left);
		return;
	}
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
