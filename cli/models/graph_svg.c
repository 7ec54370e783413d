/* graph_svg.c - draws a graph as a picture (SVG 1.1): operations in one column, in the order of execution.
 * Data goes straight down to the next operation, or through lanes on the left to an operation further below:
 *
 *     ..... layer 0 ........
 *     : +--[ RMS norm     ]:
 *     : |        |         :
 *     : |  [ linear       ]:
 *     : |        |         :
 *     : +->[ RMS norm     ]: */
#include "cli/models/graph.h"

#include "base/alloc.h"

#include <stdlib.h>
#include <string.h>

/* Pixels, except LANES_MAX. */
enum { WIDTH = 760, ROW = 18, HEAD = 24, GAP = 20, LAYER_GAP = 24, LANE = 12, MARGIN = 20, LANES_MAX = 32 };

struct place {
	int y, height;
};

struct lanes {
	int *of; /* [n_edges] lane of each edge; -1: straight down */
	int n;
};

static bool is_straight(const struct graph_edge *e)
{
	return e->to == e->from + 1;
}

/* Assign lanes.  Overlapping lines get different lanes; a line that ends at a box and one that begins there
 * may share a lane. */
static struct lanes lanes_of(const struct graph *g)
{
	int ends[LANES_MAX] = {0};
	struct lanes l = {.of = xcalloc((size_t)g->n_edges + 1, sizeof *l.of)};
	for (int i = 0; i < g->n_edges; i++) {
		const struct graph_edge *e = &g->edges[i];
		int lane = 0;
		l.of[i] = -1;
		if (is_straight(e))
			continue;
		while (lane < LANES_MAX - 1 && ends[lane] > e->from)
			lane++;
		l.of[i] = lane;
		ends[lane] = e->to;
		l.n = lane + 1 > l.n ? lane + 1 : l.n;
	}
	return l;
}

static struct place *places_of(const struct graph *g, int y, int *end)
{
	struct place *p = xcalloc((size_t)g->n_nodes + 1, sizeof *p);
	int layer = -1;
	for (int i = 0; i < g->n_nodes; i++) {
		if (g->nodes[i].layer != layer)
			y += LAYER_GAP;
		layer = g->nodes[i].layer;
		p[i] = (struct place){y, HEAD + ROW * g->nodes[i].n_rows + (g->nodes[i].n_rows ? 6 : 0)};
		y += p[i].height + GAP;
	}
	*end = y;
	return p;
}

static void text(struct buf *b, int x, int y, const char *class, const char *s)
{
	buf_printf(b, "<text x=\"%d\" y=\"%d\" class=\"%s\">", x, y, class);
	graph_escape(b, s);
	buf_puts(b, "</text>\n");
}

static void draw_row(struct buf *b, const struct graph_row *r, int x, int y)
{
	char s[GRAPH_LABEL], error[48];
	const int colour = graph_colour(r);
	if (colour >= 0)
		buf_printf(b, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"%s\"/>\n", x + 6, y,
			   WIDTH - 12, ROW - 1, graph_colour_code(colour));
	text(b, x + 12, y + 13, r->weight ? "w" : "d", graph_row_label(r, s, sizeof s));
	text(b, x + 300, y + 13, r->weight ? "w" : "d", r->shape);
	text(b, x + 440, y + 13, r->weight ? "w" : "d", r->type);
	text(b, x + 610, y + 13, r->weight ? "w e" : "d e", graph_row_bytes(r, s, sizeof s));
	text(b, x + WIDTH - 12, y + 13, "w e", graph_row_error(r, error, sizeof error));
}

static void draw_node(struct buf *b, const struct graph_node *n, struct place p, int x)
{
	buf_printf(b, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" class=\"%s\"/>\n", x, p.y, WIDTH,
		   p.height, n->folded ? "fold" : "box");
	buf_printf(b, "<text x=\"%d\" y=\"%d\" class=\"d\"><tspan class=\"t\">", x + 12, p.y + 17);
	graph_escape(b, n->title);
	buf_puts(b, "</tspan>");
	if (n->about[0])
		buf_puts(b, n->folded ? ", " : " - ");
	graph_escape(b, n->about);
	buf_puts(b, "</text>\n");
	for (int i = 0; i < n->n_rows; i++)
		draw_row(b, &n->rows[i], x, p.y + HEAD + ROW * i);
}

/* Draw the frame of the layer that begins with node i. */
static void draw_layer(struct buf *b, const struct graph *g, const struct place *p, int i, int left,
		       int right)
{
	const int layer = g->nodes[i].layer;
	int last = i;
	char s[32];
	while (last + 1 < g->n_nodes && g->nodes[last + 1].layer == layer)
		last++;
	const int top = p[i].y - 20, bottom = p[last].y + p[last].height + 8;
	snprintf(s, sizeof s, "layer %d", layer);
	buf_printf(b, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" class=\"layer\"/>\n", MARGIN / 2,
		   top, right - MARGIN / 2, bottom - top);
	text(b, left, top + 14, "t", s);
}

static void draw_edge(struct buf *b, const struct graph *g, const struct place *p, int x, int i, int lane)
{
	const struct graph_edge *e = &g->edges[i];
	const int from = p[e->from].y + p[e->from].height, to = p[e->to].y;
	buf_puts(b, "<path class=\"line\" d=\"");
	if (lane < 0)
		buf_printf(b, "M%d %dV%d", x + WIDTH / 2, from, to - 1);
	else
		buf_printf(b, "M%d %dH%dV%dH%d", x, from - 8, x - LANE * (lane + 1), to + 8, x - 1);
	buf_puts(b, "\"><title>");
	graph_escape(b, e->what);
	buf_puts(b, "</title></path>\n");
}

static void draw_legend(struct buf *b, const struct graph *g)
{
	text(b, MARGIN, 28, "h", g->title);
	buf_printf(b, "<text x=\"%d\" y=\"48\" class=\"d\">", MARGIN);
	graph_escape(b, g->mode);
	buf_printf(
		b,
		"; %d operations. T: rows of a step, L: of logits. Bytes: of weights as stored, of data for "
		"one row.</text>\n",
		g->n_operations);
	if (!g->errors)
		return;
	text(b, MARGIN, 70, "d", "signal to noise");
	for (int i = 0; i < GRAPH_COLOURS; i++) {
		const int x = MARGIN + 96 + 102 * i;
		buf_printf(b, "<rect x=\"%d\" y=\"58\" width=\"98\" height=\"17\" fill=\"%s\"/>\n", x,
			   graph_colour_code(i));
		text(b, x + 6, 70, "w", graph_colour_words(i));
	}
}

void graph_svg(const struct graph *g, struct buf *b)
{
	const struct lanes lanes = lanes_of(g);
	const int left = MARGIN + LANE * (lanes.n + 1), width = left + WIDTH + MARGIN,
		  right = width - MARGIN / 2;
	int height, layer = -1;
	struct place *p = places_of(g, g->errors ? 84 : 62, &height);
	buf_printf(
		b,
		"<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" "
		"font-family=\"Helvetica, Arial, sans-serif\" font-size=\"12\">\n<style>\n"
		".box { fill: #fff; stroke: #556 } .fold { fill: #eef; stroke: #556; stroke-dasharray: 4 3 "
		"}\n"
		".layer { fill: #f4f5f8; stroke: #ccd } .line { fill: none; stroke: #446; marker-end: "
		"url(#a) }\n"
		".h { font-size: 16px; font-weight: bold } .t { font-weight: bold; fill: #112 } .w { fill: "
		"#112 }\n"
		".d { fill: #557 } .e { text-anchor: end }\n</style>\n"
		"<defs><marker id=\"a\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"7\" "
		"markerHeight=\"7\" orient=\"auto\"><path d=\"M0 0L8 4L0 8z\" "
		"fill=\"#446\"/></marker></defs>\n"
		"<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
		width, height, width, height);
	draw_legend(b, g);
	for (int i = 0; i < g->n_nodes; i++) {
		if (g->nodes[i].layer >= 0 && g->nodes[i].layer != layer)
			draw_layer(b, g, p, i, left, right);
		layer = g->nodes[i].layer;
	}
	for (int i = 0; i < g->n_nodes; i++)
		draw_node(b, &g->nodes[i], p[i], left);
	for (int i = 0; i < g->n_edges; i++)
		draw_edge(b, g, p, left, i, lanes.of[i]);
	buf_puts(b, "</svg>\n");
	free(lanes.of);
	free(p);
}
