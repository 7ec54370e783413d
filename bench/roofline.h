/* roofline.h - measured kernels under the roofs of a machine, as SVG: operations per byte against operations
 * per second on log axes, in colours for light and for dark. */
#ifndef QUERN_BENCH_ROOFLINE_H
#define QUERN_BENCH_ROOFLINE_H

#include "base/buf.h"

#include <stddef.h>

enum { ROOFLINE_SERIES = 8, ROOFLINE_SHAPES = 4, ROOFLINE_ROOFS_MAX = 8 };

struct roofline_roof {
	const char *name; /* "INT8, AMX" */
	double gops;      /* 1e9 operations per second */
};

struct roofline_point {
	double intensity, gops; /* both above 0; other points are left out */
	unsigned colour;        /* below ROOFLINE_SERIES */
	unsigned shape;         /* below ROOFLINE_SHAPES */
	char label[16];         /* drawn where there is room for it */
};

struct roofline {
	const char *title, *subtitle; /* borrowed, UTF-8 */
	double read_gbs;
	struct roofline_roof roofs[ROOFLINE_ROOFS_MAX];
	size_t n_roofs;
	const char *colours[ROOFLINE_SERIES]; /* of the legend; NULL: not used */
	const char *shapes[ROOFLINE_SHAPES];
	const struct roofline_point *points; /* those of a colour and a shape in a row are joined by a line */
	size_t n_points;
};

void roofline_svg(const struct roofline *r, struct buf *out); /* appended */
/* 0 or -errno with the reason. */
int roofline_write(const struct roofline *r, const char *path, char *why, size_t why_n);

#endif
