/* roofline.h - a roofline plot as SVG: measured kernels under a machine's roofs.
 * The log axes are operations per byte and operations per second; colours are for light and dark mode. */
#ifndef QUERN_BENCH_ROOFLINE_H
#define QUERN_BENCH_ROOFLINE_H

#include "base/buf.h"
#include "base/err.h"

#include <stddef.h>

enum { ROOFLINE_SERIES = 8, ROOFLINE_SHAPES = 4, ROOFLINE_ROOFS_MAX = 8 };

struct roofline_roof {
	const char *name; /* "INT8, AMX" */
	double gops;      /* 1e9 operations per second */
};

struct roofline_point {
	double intensity, gops; /* both above 0; other points are left out */
	unsigned colour;        /* index, less than ROOFLINE_SERIES */
	unsigned shape;         /* index, less than ROOFLINE_SHAPES */
	char label[16];         /* drawn if there is room for it */
};

struct roofline {
	const char *title, *subtitle; /* borrowed, UTF-8 */
	double read_gbs;
	struct roofline_roof roofs[ROOFLINE_ROOFS_MAX];
	size_t n_roofs;
	const char *colours[ROOFLINE_SERIES]; /* legend of each colour; NULL: not used */
	const char *shapes[ROOFLINE_SHAPES];
	const struct roofline_point *points; /* consecutive points of one colour and shape are joined by a
					      * line */
	size_t n_points;
};

void roofline_svg(const struct roofline *r, struct buf *out); /* appends to out */
/* Write the plot to a file.  0 or -errno with the reason. */
int roofline_write(const struct roofline *r, const char *path, struct why *why);

#endif
