/* graph_dot.c - writes a graph as Graphviz source (https://graphviz.org/doc/info/lang.html): a table per
 * operation, a cluster per layer. */
#include "cli/models/graph.h"

#include <inttypes.h>

static void cell(struct buf *b, const char *text, int colour, const char *align)
{
	buf_printf(b, "<TD ALIGN=\"%s\"", align);
	if (colour >= 0)
		buf_printf(b, " BGCOLOR=\"%s\"", graph_colour_code(colour));
	buf_putc(b, '>');
	graph_escape(b, text[0] ? text : " ");
	buf_puts(b, "</TD>");
}

static void row(struct buf *b, const struct graph_row *r)
{
	char text[GRAPH_LABEL], bytes[32], error[48];
	const int colour = graph_colour(r);
	buf_puts(b, "<TR>");
	cell(b, graph_row_label(r, text, sizeof text), colour, "LEFT");
	cell(b, r->shape, colour, "LEFT");
	cell(b, r->type, colour, "LEFT");
	cell(b, graph_row_bytes(r, bytes, sizeof bytes), colour, "RIGHT");
	cell(b, graph_row_error(r, error, sizeof error), colour, "RIGHT");
	buf_puts(b, "</TR>");
}

static void node(struct buf *b, const struct graph *g, int i)
{
	const struct graph_node *n = &g->nodes[i];
	buf_printf(b,
		   "\tn%d [label=<<TABLE BORDER=\"0\" CELLBORDER=\"1\" CELLSPACING=\"0\"><TR>"
		   "<TD COLSPAN=\"5\" ALIGN=\"LEFT\"><B>",
		   i);
	graph_escape(b, n->title);
	buf_puts(b, "</B> ");
	graph_escape(b, n->about);
	buf_puts(b, "</TD></TR>");
	for (int k = 0; k < n->n_rows; k++)
		row(b, &n->rows[k]);
	buf_puts(b, "</TABLE>>];\n");
}

static void legend(struct buf *b)
{
	buf_puts(b,
		 "\tlegend [label=<<TABLE BORDER=\"0\" CELLBORDER=\"1\" CELLSPACING=\"0\"><TR><TD>signal to "
		 "noise</TD></TR>");
	for (int i = 0; i < GRAPH_COLOURS; i++) {
		buf_puts(b, "<TR>");
		cell(b, graph_colour_words(i), i, "LEFT");
		buf_puts(b, "</TR>");
	}
	buf_puts(b, "</TABLE>>];\n");
}

void graph_dot(const struct graph *g, struct buf *b)
{
	int layer = -1;
	buf_puts(b,
		 "digraph step {\n\tnode [shape=plaintext, fontname=\"sans-serif\", fontsize=10];\n"
		 "\tedge [fontname=\"sans-serif\", fontsize=9];\n\tlabelloc=t;\n\tfontname=\"sans-serif\";\n"
		 "\tlabel=<");
	graph_escape(b, g->title);
	buf_puts(b, ", ");
	graph_escape(b, g->mode);
	buf_puts(b,
		 "<BR/>T rows of a step, L of logits; bytes of weights as stored, of data for one row>;\n");
	for (int i = 0; i < g->n_nodes; i++) {
		if (layer >= 0 && g->nodes[i].layer != layer)
			buf_puts(b, "\t}\n");
		if (g->nodes[i].layer >= 0 && g->nodes[i].layer != layer)
			buf_printf(b, "\tsubgraph cluster_%d {\n\tlabel=\"layer %d\";\n", g->nodes[i].layer,
				   g->nodes[i].layer);
		layer = g->nodes[i].layer;
		node(b, g, i);
	}
	if (layer >= 0)
		buf_puts(b, "\t}\n");
	for (int i = 0; i < g->n_edges; i++) {
		buf_printf(b, "\tn%d -> n%d [label=<", g->edges[i].from, g->edges[i].to);
		graph_escape(b, g->edges[i].what);
		buf_puts(b, ">];\n");
	}
	if (g->errors)
		legend(b);
	buf_puts(b, "}\n");
}
