#include "bench/plot.h"

#include "base/err.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Size of the document, and the plot area within it:
 *
 *   +--------------------------+
 *   | title                    |
 *   |      +------------+      |
 *   |      | lines      | legend
 *   |      +------------+      |
 *   |         x label          |
 *   +--------------------------+ */
enum { WIDTH = 760, HEIGHT = 420, LEFT = 76, RIGHT = 580, TOP = 48, BOTTOM = 360 };
enum { TICKS_MAX = 16, LEGEND_X = RIGHT + 16, LEGEND_STEP = 20 };

struct axis {
	bool log;
	double lo, hi; /* range of the axis */
	double ticks[TICKS_MAX];
	size_t n_ticks;
};

static const char style[] =
	"<style>"
	"text{font:12px system-ui,sans-serif;fill:#333}.title{font-size:15px;font-weight:600}"
	".bg{fill:#fff}.grid{stroke:#ddd;stroke-width:1}.frame{stroke:#888;fill:none}"
	".line{fill:none;stroke-width:2;stroke-linejoin:round}.dash{stroke-dasharray:6 4}"
	".s0{stroke:#0b62a8}.s1{stroke:#c2410c}.s2{stroke:#15803d}.s3{stroke:#9333ea}"
	".s4{stroke:#b45309}.s5{stroke:#be123c}.s6{stroke:#0f766e}.s7{stroke:#525252}"
	"@media(prefers-color-scheme:dark){"
	"text{fill:#ddd}.bg{fill:#161b22}.grid{stroke:#30363d}.frame{stroke:#8b949e}"
	".s0{stroke:#58a6ff}.s1{stroke:#ff9248}.s2{stroke:#4ade80}.s3{stroke:#c49bff}"
	".s4{stroke:#fbbf24}.s5{stroke:#fb7185}.s6{stroke:#2dd4bf}.s7{stroke:#b0b0b0}}"
	"</style>\n";

void plot_put_text(struct buf *out, const char *s)
{
	for (; *s; s++)
		if (*s == '<')
			buf_puts(out, "&lt;");
		else if (*s == '&')
			buf_puts(out, "&amp;");
		else if ((unsigned char)*s >= 0x20)
			buf_putc(out, *s);
}

static bool usable(const struct plot *p, const struct plot_series *s, size_t i)
{
	return isfinite(s->x[i]) && isfinite(s->y[i]) && (!p->log_y || s->y[i] > 0);
}

/* ---- axes ---- */

static void span(struct axis *a, double v)
{
	a->lo = fmin(a->lo, v);
	a->hi = fmax(a->hi, v);
}

/* Choose ticks at multiples of 1, 2 or 5 times a power of ten, about five of them. */
static void ticks_linear(struct axis *a)
{
	if (a->hi <= a->lo)
		a->hi = a->lo + (a->lo != 0 ? fabs(a->lo) : 1);
	double raw = (a->hi - a->lo) / 5, power = pow(10, floor(log10(raw))), m = raw / power;
	double step = power * (m < 1.5 ? 1 : m < 3.5 ? 2 : m < 7.5 ? 5 : 10);
	double first = floor(a->lo / step + 1e-9);
	a->lo = first * step;
	a->hi = ceil(a->hi / step - 1e-9) * step;
	for (size_t i = 0; i < TICKS_MAX && (first + (double)i) * step <= a->hi + step / 1e3; i++)
		a->ticks[a->n_ticks++] = (first + (double)i) * step;
}

/* Choose ticks at powers of ten, and at 2 and 5 times these if there is room.  For a long range, skip powers
 * so that the labels do not touch. */
static void ticks_log(struct axis *a)
{
	static const double parts[] = {1, 2, 5};
	double lo = floor(log10(a->lo) + 1e-9), hi = ceil(log10(a->hi) - 1e-9);
	if (hi <= lo)
		hi = lo + 1;
	double step = ceil((hi - lo) / (TICKS_MAX - 1));
	size_t n_parts = hi - lo <= 4 ? 3 : 1;
	a->lo = pow(10, lo);
	a->hi = pow(10, hi);
	for (double e = lo; e <= hi; e += step)
		for (size_t i = 0; i < n_parts && a->n_ticks < TICKS_MAX && pow(10, e) * parts[i] <= a->hi;
		     i++)
			a->ticks[a->n_ticks++] = pow(10, e) * parts[i];
}

static void axes_of(const struct plot *p, struct axis *x, struct axis *y)
{
	*x = (struct axis){.lo = 0, .hi = -INFINITY};
	*y = (struct axis){.log = p->log_y, .lo = p->log_y ? INFINITY : 0, .hi = -INFINITY};
	for (size_t k = 0; k < p->n_series; k++)
		for (size_t i = 0; i < p->series[k].n; i++)
			if (usable(p, &p->series[k], i)) {
				span(x, p->series[k].x[i]);
				span(y, p->series[k].y[i]);
			}
	if (!isfinite(x->hi)) { /* nothing to show: draw an empty frame */
		x->hi = y->hi = 1;
		y->lo = p->log_y ? 0.1 : 0;
	}
	ticks_linear(x);
	if (p->log_y)
		ticks_log(y);
	else
		ticks_linear(y);
}

/* Map v to 0 at lo, 1 at hi. */
static double part(const struct axis *a, double v)
{
	if (a->log)
		return (log10(v) - log10(a->lo)) / (log10(a->hi) - log10(a->lo));
	return (v - a->lo) / (a->hi - a->lo);
}

static double at_x(const struct axis *a, double v)
{
	return LEFT + part(a, v) * (RIGHT - LEFT);
}

static double at_y(const struct axis *a, double v)
{
	return BOTTOM - part(a, v) * (BOTTOM - TOP);
}

static void put_axes(const struct plot *p, const struct axis *x, const struct axis *y, struct buf *out)
{
	for (size_t i = 0; i < x->n_ticks; i++) {
		double px = at_x(x, x->ticks[i]);
		buf_printf(out, "<path class=\"grid\" d=\"M%.1f %dV%d\"/>", px, TOP, BOTTOM);
		buf_printf(out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%.6g</text>\n", px,
			   BOTTOM + 18, x->ticks[i]);
	}
	for (size_t i = 0; i < y->n_ticks; i++) {
		double py = at_y(y, y->ticks[i]);
		buf_printf(out, "<path class=\"grid\" d=\"M%d %.1fH%d\"/>", LEFT, py, RIGHT);
		buf_printf(out, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.6g</text>\n", LEFT - 8,
			   py + 4, y->ticks[i]);
	}
	buf_printf(out, "<rect class=\"frame\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/>\n", LEFT, TOP,
		   RIGHT - LEFT, BOTTOM - TOP);
	buf_printf(out, "<text class=\"title\" x=\"%d\" y=\"28\">", LEFT);
	plot_put_text(out, p->title);
	buf_printf(out, "</text>\n<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">", (LEFT + RIGHT) / 2,
		   BOTTOM + 42);
	plot_put_text(out, p->x_label);
	buf_printf(out, "</text>\n<text transform=\"translate(20 %d) rotate(-90)\" text-anchor=\"middle\">",
		   (TOP + BOTTOM) / 2);
	plot_put_text(out, p->y_label);
	buf_puts(out, "</text>\n");
}

static void put_series(const struct plot *p, size_t k, const struct axis *x, const struct axis *y,
		       struct buf *out)
{
	const struct plot_series *s = &p->series[k];
	const char *dash = s->dashed ? " dash" : "";
	unsigned c = s->colour % PLOT_SERIES_MAX;
	bool down = false; /* the pen is down */
	buf_printf(out, "<path class=\"line s%u%s\" d=\"", c, dash);
	for (size_t i = 0; i < s->n; i++) {
		if (usable(p, s, i))
			buf_printf(out, "%c%.1f %.1f", down ? 'L' : 'M', at_x(x, s->x[i]), at_y(y, s->y[i]));
		down = usable(p, s, i);
	}
	buf_puts(out, "\"/>\n");
	/* Mark every point, because a single point has no line. */
	for (size_t i = 0; i < s->n; i++)
		if (usable(p, s, i))
			buf_printf(out, "<circle class=\"line s%u\" cx=\"%.1f\" cy=\"%.1f\" r=\"1.2\"/>", c,
				   at_x(x, s->x[i]), at_y(y, s->y[i]));
	int py = TOP + 12 + LEGEND_STEP * (int)k;
	buf_printf(out, "\n<path class=\"line s%u%s\" d=\"M%d %dh24\"/><text x=\"%d\" y=\"%d\">", c, dash,
		   LEGEND_X, py, LEGEND_X + 32, py + 4);
	plot_put_text(out, s->name);
	buf_puts(out, "</text>\n");
}

void plot_svg(const struct plot *p, struct buf *out)
{
	struct axis x, y;
	axes_of(p, &x, &y);
	buf_printf(
		out,
		"<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" "
		"role=\"img\">\n<title>",
		WIDTH, HEIGHT, WIDTH, HEIGHT);
	plot_put_text(out, p->title);
	buf_printf(out, "</title>\n%s<rect class=\"bg\" width=\"%d\" height=\"%d\"/>\n", style, WIDTH,
		   HEIGHT);
	put_axes(p, &x, &y, out);
	for (size_t k = 0; k < p->n_series; k++)
		put_series(p, k, &x, &y, out);
	buf_puts(out, "</svg>\n");
}

int plot_write(const struct plot *p, const char *path, struct why *why)
{
	struct buf out = {0};
	FILE *f = fopen(path, "w");
	int rc = 0;
	if (!f)
		return err_why(why, -errno, "%s: %s", path, strerror(errno));
	plot_svg(p, &out);
	bool ok = fwrite(out.p, 1, out.len, f) == out.len;
	ok = fclose(f) == 0 && ok;
	if (!ok)
		rc = err_why(why, errno ? -errno : -EIO, "%s: cannot be written: %s", path, strerror(errno));
	buf_fini(&out);
	return rc;
}
