/* plot.h - a line plot as SVG: axes with round ticks, a legend, colours for light and dark mode. */
#ifndef QUERN_BENCH_PLOT_H
#define QUERN_BENCH_PLOT_H

#include "base/buf.h"
#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

enum { PLOT_SERIES_MAX = 8 };

struct plot_series {
	const char *name;
	const double *x, *y; /* [n] borrowed, sorted by x; values that are not finite are left out */
	size_t n;
	unsigned colour; /* index, less than PLOT_SERIES_MAX */
	bool dashed;
};

struct plot {
	const char *title, *x_label, *y_label; /* borrowed, UTF-8 */
	bool log_y;                            /* values must be above 0; others are left out */
	struct plot_series series[PLOT_SERIES_MAX];
	size_t n_series;
};

/* Append S to out as the text of an SVG element. */
void plot_put_text(struct buf *out, const char *s);
/* Append the whole document to out. */
void plot_svg(const struct plot *p, struct buf *out);
int plot_write(const struct plot *p, const char *path, struct why *why);

#endif
