#include "bench/roofline.h"

#include "base/alloc.h"
#include "base/err.h"
#include "bench/plot.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Size of the document, and the plot area within it.  The legend is to its right. */
enum { WIDTH = 980, HEIGHT = 620, LEFT = 76, RIGHT = 800, TOP = 66, BOTTOM = 560 };
enum { LEGEND_X = RIGHT + 22, LEGEND_STEP = 22, LABEL_W = 7, LABEL_H = 11, RADIUS = 5 };

static const char style[] =
	"<style>"
	"text{font:12px system-ui,sans-serif;fill:#333}.title{font-size:15px;font-weight:600}"
	".rows{font-size:11px;stroke:none!important}.small{font-size:11px;fill:#666}"
	".bg{fill:#fff}.grid{stroke:#e4e4e4;stroke-width:1}.frame{stroke:#888;fill:none}"
	".roof{stroke:#777;stroke-width:1.5;fill:none}.chain{fill:none;stroke-width:1;stroke-opacity:.45}"
	".p{stroke:#fff;stroke-width:.8}"
	".c0{fill:#0b62a8;stroke:#0b62a8}.c1{fill:#c2410c;stroke:#c2410c}"
	".c2{fill:#15803d;stroke:#15803d}.c3{fill:#9333ea;stroke:#9333ea}"
	".c4{fill:#b45309;stroke:#b45309}.c5{fill:#be123c;stroke:#be123c}"
	".c6{fill:#0f766e;stroke:#0f766e}.c7{fill:#525252;stroke:#525252}"
	"@media(prefers-color-scheme:dark){"
	"text{fill:#ddd}.small{fill:#aaa}.bg{fill:#161b22}.grid{stroke:#262c34}.frame{stroke:#8b949e}"
	".roof{stroke:#9aa4af}.p{stroke:#161b22}"
	".c0{fill:#58a6ff;stroke:#58a6ff}.c1{fill:#ff9248;stroke:#ff9248}"
	".c2{fill:#4ade80;stroke:#4ade80}.c3{fill:#c49bff;stroke:#c49bff}"
	".c4{fill:#fbbf24;stroke:#fbbf24}.c5{fill:#fb7185;stroke:#fb7185}"
	".c6{fill:#2dd4bf;stroke:#2dd4bf}.c7{fill:#b0b0b0;stroke:#b0b0b0}}"
	".chain{fill:none}.p{stroke:none}"
	"</style>\n";

/* ---- occupied space ---- */

struct box {
	double x0, y0, x1, y1;
};

struct drawing {
	const struct roofline *r;
	struct buf *out;
	double x0, x1, y0, y1; /* log10 of the values at the frame's edges */
	struct box *boxes;     /* space of labels and points */
	size_t n, cap;
};

static bool is_free(const struct drawing *d, const struct box *b)
{
	if (b->x0 < LEFT || b->x1 > RIGHT || b->y0 < TOP || b->y1 > BOTTOM)
		return false;
	for (size_t i = 0; i < d->n; i++) {
		const struct box *o = &d->boxes[i];
		if (b->x0 < o->x1 && o->x0 < b->x1 && b->y0 < o->y1 && o->y0 < b->y1)
			return false;
	}
	return true;
}

static void take(struct drawing *d, struct box b)
{
	array_grow(d->boxes, d->cap, d->n + 1);
	d->boxes[d->n++] = b;
}

/* ---- axes ---- */

static bool usable(const struct roofline_point *p)
{
	return isfinite(p->intensity) && isfinite(p->gops) && p->intensity > 0 && p->gops > 0;
}

static double at_x(const struct drawing *d, double v)
{
	return LEFT + (log10(v) - d->x0) / (d->x1 - d->x0) * (RIGHT - LEFT);
}

static double at_y(const struct drawing *d, double v)
{
	return BOTTOM - (log10(v) - d->y0) / (d->y1 - d->y0) * (BOTTOM - TOP);
}

/* Choose half decades around the points and the highest roof. */
static void set_axes(struct drawing *d)
{
	const struct roofline *r = d->r;
	double lo_x = 1, hi_x = 10, lo_y = INFINITY, hi_y = 1;
	for (size_t i = 0; i < r->n_points; i++) {
		const struct roofline_point *p = &r->points[i];
		if (!usable(p))
			continue;
		lo_x = fmin(lo_x, p->intensity);
		hi_x = fmax(hi_x, p->intensity);
		lo_y = fmin(lo_y, p->gops);
		hi_y = fmax(hi_y, p->gops);
	}
	for (size_t i = 0; i < r->n_roofs; i++) {
		hi_y = fmax(hi_y, r->roofs[i].gops);
		lo_y = fmin(lo_y, r->roofs[i].gops);
		if (r->read_gbs > 0) /* so that each flat roof has some length */
			hi_x = fmax(hi_x, 2 * r->roofs[i].gops / r->read_gbs);
	}
	lo_y = isfinite(lo_y) ? fmin(lo_y, hi_y / 10) : 0.1;
	d->x0 = floor(2 * log10(lo_x / 1.3)) / 2;
	d->x1 = ceil(2 * log10(hi_x * 1.3)) / 2;
	d->y0 = floor(2 * log10(lo_y / 1.3)) / 2;
	d->y1 = ceil(2 * log10(hi_y * 1.6)) / 2;
}

/* Write a tick's label; rates from 1000 G on are in T. */
static void put_tick(struct buf *out, double v, bool rate)
{
	if (rate && v >= 1000)
		buf_printf(out, "%g T</text>\n", v / 1000);
	else
		buf_printf(out, rate ? "%g G</text>\n" : "%g</text>\n", v);
}

static void put_axes(struct drawing *d)
{
	static const double parts[] = {1, 2, 5};
	for (int e = (int)floor(fmin(d->x0, d->y0)); e <= (int)ceil(fmax(d->x1, d->y1)); e++)
		for (int i = 0; i < 3; i++) {
			double v = pow(10, e) * parts[i], l = log10(v);
			if (l >= d->x0 - 1e-9 && l <= d->x1 + 1e-9) {
				buf_printf(d->out, "<path class=\"grid\" d=\"M%.1f %dV%d\"/>", at_x(d, v),
					   TOP, BOTTOM);
				buf_printf(d->out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">",
					   at_x(d, v), BOTTOM + 18);
				put_tick(d->out, v, false);
			}
			if (l >= d->y0 - 1e-9 && l <= d->y1 + 1e-9) {
				buf_printf(d->out, "<path class=\"grid\" d=\"M%d %.1fH%d\"/>", LEFT,
					   at_y(d, v), RIGHT);
				buf_printf(d->out, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">", LEFT - 8,
					   at_y(d, v) + 4);
				put_tick(d->out, v, true);
			}
		}
	buf_printf(d->out, "<rect class=\"frame\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/>\n", LEFT,
		   TOP, RIGHT - LEFT, BOTTOM - TOP);
	buf_printf(d->out, "<text class=\"title\" x=\"%d\" y=\"26\">", LEFT);
	plot_put_text(d->out, d->r->title);
	buf_printf(d->out, "</text>\n<text class=\"small\" x=\"%d\" y=\"46\">", LEFT);
	plot_put_text(d->out, d->r->subtitle);
	buf_printf(
		d->out,
		"</text>\n<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">operations per byte read</text>\n",
		(LEFT + RIGHT) / 2, BOTTOM + 42);
	buf_printf(d->out,
		   "<text transform=\"translate(18 %d) rotate(-90)\" text-anchor=\"middle\">operations per "
		   "second</text>\n",
		   (TOP + BOTTOM) / 2);
}

/* ---- roofs ---- */

/* Write a roof's label above or below its line, as far to the right as the points leave room. */
static void put_roof_label(struct drawing *d, double x, double y, const char *name, double gops)
{
	char text[96];
	snprintf(text, sizeof text, gops >= 1000 ? "%s: %.3g T/s" : "%s: %.3g G/s", name,
		 gops >= 1000 ? gops / 1000 : gops);
	const double w = 6 * (double)strlen(text);
	for (double right = RIGHT - 6; right - w > x; right -= 5)
		for (int below = 0; below < 2; below++) {
			const double base = below ? y + 13 : y - 5;
			struct box b = {right - w, base - LABEL_H, right, base + 2};
			if (!is_free(d, &b))
				continue;
			buf_printf(d->out, "<text class=\"small\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">",
				   right, base);
			plot_put_text(d->out, text);
			buf_puts(d->out, "</text>\n");
			take(d, b);
			return;
		}
}

/* Write the label above the line from (x0, y0) to (x1, y1), as low as the points leave room. */
static void put_memory_label(struct drawing *d, double x0, double y0, double x1, double y1)
{
	enum { PIECES_MAX = 32, PIECE = 9 };
	char text[64];
	const double length = hypot(x1 - x0, y1 - y0), ux = (x1 - x0) / length, uy = (y1 - y0) / length;
	const int n = snprintf(text, sizeof text, "memory: %.3g GB/s", d->r->read_gbs) * LABEL_W / PIECE + 1;
	for (double at = 12; at + n * PIECE < length; at += PIECE) {
		struct box b[PIECES_MAX];
		bool ok = n <= PIECES_MAX;
		for (int i = 0; i < n && ok; i++) {
			const double x = x0 + (at + i * PIECE) * ux + 9 * uy,
				     y = y0 + (at + i * PIECE) * uy - 9 * ux;
			b[i] = (struct box){x - 6, y - 6, x + 6, y + 6};
			ok = is_free(d, &b[i]);
		}
		if (!ok)
			continue;
		for (int i = 0; i < n; i++)
			take(d, b[i]);
		buf_printf(
			d->out,
			"<text class=\"small\" transform=\"translate(%.1f %.1f) rotate(%.1f)\">%s</text>\n",
			x0 + at * ux + 5 * uy, y0 + at * uy - 5 * ux, atan2(uy, ux) * 180 / 3.14159265, text);
		return;
	}
}

static void put_roofs(struct drawing *d)
{
	const struct roofline *r = d->r;
	double top = 0, left = pow(10, d->x0), right = pow(10, d->x1), low = pow(10, d->y0);
	for (size_t i = 0; i < r->n_roofs; i++)
		top = fmax(top, r->roofs[i].gops);
	top = top > 0 ? fmin(top, right * r->read_gbs) : right * r->read_gbs;
	if (r->read_gbs > 0 && top > low) {
		const double from = fmax(left, low / r->read_gbs), to = top / r->read_gbs;
		const double x0 = at_x(d, from), y0 = at_y(d, from * r->read_gbs), x1 = at_x(d, to),
			     y1 = at_y(d, top);
		buf_printf(d->out, "<path class=\"roof\" d=\"M%.1f %.1fL%.1f %.1f\"/>\n", x0, y0, x1, y1);
		put_memory_label(d, x0, y0, x1, y1);
	}
	for (size_t i = 0; i < r->n_roofs; i++) {
		const double y = at_y(d, r->roofs[i].gops),
			     x = r->read_gbs > 0 ? at_x(d, r->roofs[i].gops / r->read_gbs) : LEFT,
			     from = fmin(fmax(x, LEFT), RIGHT);
		buf_printf(d->out, "<path class=\"roof\" d=\"M%.1f %.1fH%d\"/>\n", from, y, RIGHT);
		put_roof_label(d, from, y, r->roofs[i].name, r->roofs[i].gops);
	}
}

/* ---- points ---- */

static void put_shape(struct buf *out, unsigned colour, unsigned shape, double x, double y)
{
	const double s = RADIUS;
	buf_printf(out, "<path class=\"p c%u\" d=\"", colour);
	switch (shape) {
	case 0:
		buf_printf(out, "M%.1f %.1fa%g %g 0 1 0 %g 0a%g %g 0 1 0 %g 0z", x - s + .5, y, s - .5,
			   s - .5, 2 * s - 1, s - .5, s - .5, 1 - 2 * s);
		break;
	case 1:
		buf_printf(out, "M%.1f %.1fh%gv%gh%gz", x - s + 1, y - s + 1, 2 * s - 2, 2 * s - 2,
			   2 - 2 * s);
		break;
	case 2:
		buf_printf(out, "M%.1f %.1fl%g %gh%gz", x, y - s, s, 2 * s - 1, -2 * s);
		break;
	default:
		buf_printf(out, "M%.1f %.1fl%g %gl%g %gl%g %gz", x, y - s, s, s, -s, s, -s, -s);
	}
	buf_puts(out, "\"/>\n");
}

/* Write a point's label at the first free of eight positions around it.  If none is free, omit it. */
static void put_label(struct drawing *d, const struct roofline_point *p)
{
	static const double places[8][2] = {{0, -1}, {0, 1},  {1, 0}, {-1, 0},
					    {1, -1}, {-1, 1}, {1, 1}, {-1, -1}};
	const double w = LABEL_W * (double)strlen(p->label);
	for (int i = 0; i < 8; i++) {
		const double cx = at_x(d, p->intensity) + places[i][0] * (RADIUS + 2 + w / 2),
			     cy = at_y(d, p->gops) + places[i][1] * (RADIUS + 2 + LABEL_H / 2.0);
		struct box b = {cx - w / 2, cy - LABEL_H / 2.0, cx + w / 2, cy + LABEL_H / 2.0};
		if (!is_free(d, &b))
			continue;
		buf_printf(d->out, "<text class=\"rows c%u\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">",
			   p->colour, cx, cy + 4);
		plot_put_text(d->out, p->label);
		buf_puts(d->out, "</text>\n");
		take(d, b);
		return;
	}
}

static bool same_chain(const struct roofline_point *a, const struct roofline_point *b)
{
	return a->colour == b->colour && a->shape == b->shape;
}

static void put_points(struct drawing *d)
{
	const struct roofline *r = d->r;
	bool down = false; /* the pen is down */
	for (size_t i = 0; i < r->n_points; i++) {
		const struct roofline_point *p = &r->points[i];
		if (!usable(p))
			continue;
		down = down && i && same_chain(p, p - 1);
		if (!down)
			buf_printf(d->out, "<path class=\"chain c%u\" d=\"M", p->colour);
		buf_printf(d->out, "%s%.1f %.1f", down ? "L" : "", at_x(d, p->intensity), at_y(d, p->gops));
		down = i + 1 < r->n_points && usable(p + 1) && same_chain(p, p + 1);
		if (!down)
			buf_puts(d->out, "\"/>\n");
	}
	for (size_t i = 0; i < r->n_points; i++) {
		const struct roofline_point *p = &r->points[i];
		if (!usable(p))
			continue;
		put_shape(d->out, p->colour, p->shape, at_x(d, p->intensity), at_y(d, p->gops));
	}
	for (size_t i = 0; i < r->n_points; i++)
		if (usable(&r->points[i]))
			put_label(d, &r->points[i]);
}

static void put_legend(struct drawing *d)
{
	const struct roofline *r = d->r;
	int y = TOP + 12;
	for (unsigned i = 0; i < ROOFLINE_SERIES; i++)
		if (r->colours[i]) {
			buf_printf(d->out,
				   "<path class=\"c%u\" d=\"M%d %dh16v10h-16z\"/><text x=\"%d\" y=\"%d\">", i,
				   LEGEND_X, y - 5, LEGEND_X + 24, y + 4);
			plot_put_text(d->out, r->colours[i]);
			buf_puts(d->out, "</text>\n");
			y += LEGEND_STEP;
		}
	y += LEGEND_STEP / 2;
	for (unsigned i = 0; i < ROOFLINE_SHAPES; i++)
		if (r->shapes[i]) {
			put_shape(d->out, 7, i, LEGEND_X + 8, y);
			buf_printf(d->out, "<text x=\"%d\" y=\"%d\">", LEGEND_X + 24, y + 4);
			plot_put_text(d->out, r->shapes[i]);
			buf_puts(d->out, "</text>\n");
			y += LEGEND_STEP;
		}
	buf_printf(d->out, "<text class=\"small\" x=\"%d\" y=\"%d\">numbers: rows</text>\n", LEGEND_X,
		   y + LEGEND_STEP / 2);
}

void roofline_svg(const struct roofline *r, struct buf *out)
{
	struct drawing d = {.r = r, .out = out};
	set_axes(&d);
	buf_printf(
		out,
		"<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" "
		"role=\"img\">\n<title>",
		WIDTH, HEIGHT, WIDTH, HEIGHT);
	plot_put_text(out, r->title);
	buf_printf(out, "</title>\n%s<rect class=\"bg\" width=\"%d\" height=\"%d\"/>\n", style, WIDTH,
		   HEIGHT);
	put_axes(&d);
	for (size_t i = 0; i < r->n_points; i++) {
		const struct roofline_point *p = &r->points[i];
		if (!usable(p))
			continue;
		const double x = at_x(&d, p->intensity), y = at_y(&d, p->gops);
		take(&d, (struct box){x - RADIUS, y - RADIUS, x + RADIUS, y + RADIUS});
	}
	put_roofs(&d);
	put_points(&d);
	put_legend(&d);
	buf_puts(out, "</svg>\n");
	free(d.boxes);
}

int roofline_write(const struct roofline *r, const char *path, struct why *why)
{
	struct buf out = {0};
	FILE *f = fopen(path, "w");
	if (!f)
		return err_why(why, -errno, "%s: %s", path, strerror(errno));
	roofline_svg(r, &out);
	bool ok = fwrite(out.p, 1, out.len, f) == out.len;
	ok = fclose(f) == 0 && ok;
	buf_fini(&out);
	return ok ? 0
		  : err_why(why, errno ? -errno : -EIO, "%s: cannot be written: %s", path, strerror(errno));
}
