/* graph.h - a drawing of the operations in a model's step: boxes from top to bottom, each with the weights it
 * reads and the data it outputs, and lines that show where data goes.
 *
 *     quern-worker --operations -> graph_read() -> graph_errors() -> graph_fold() -> graph_dot(), graph_svg()
 *
 * Equal layers are drawn once: "layers 3 to 27, as layer 2". */
#ifndef QUERN_CLI_MODELS_GRAPH_H
#define QUERN_CLI_MODELS_GRAPH_H

#include "base/buf.h"
#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum graph_error {
	GRAPH_NO_ERROR,
	GRAPH_ERROR,
	GRAPH_KEPT
}; /* GRAPH_KEPT: the quantizer kept the weight in
							       * floats */

enum { GRAPH_LABEL = 160 }; /* size of graph_row_label()'s output */

struct graph_row {
	bool weight;    /* false: data that the operation outputs */
	char name[128]; /* name in the model's files; for experts, * replaces the expert's number */
	char part[8];   /* part of a tensor that holds several matrices: "gate"; else empty */
	int label;      /* index in name after the layer's number */
	char shape[64], type[48];
	int64_t bytes; /* bytes of a weight as stored (of all experts), or of one row of data */
	int count;     /* number of experts; else 1 */
	enum graph_error error;
	double db; /* with GRAPH_ERROR: signal-to-noise ratio; the worst of the experts */
};

struct graph_node {
	char title[96], about[160];
	int layer;              /* -1: before or after the layers, or a folded node */
	bool folded;            /* stands for layers that are not drawn */
	struct graph_row *rows; /* owned */
	int n_rows;
};

struct graph_edge {
	int from, to; /* indices of nodes; from is above to */
	char what[128];
};

struct graph {
	char title[256], mode[64];
	int n_layers, n_operations;
	bool errors;              /* graph_errors() was called */
	struct graph_node *nodes; /* owned, in the order of execution */
	int n_nodes;
	struct graph_edge *edges; /* owned, ascending by from */
	int n_edges;
};

/* Read list, the output of quern-worker --operations.  title: title of the drawing.  -EINVAL: list is
 * something else. */
int graph_read(struct graph *g, const json_t *list, const char *title, struct why *why);
void graph_fini(struct graph *g);

/* Read the weights' errors from a quantizer's JSON report.  -EINVAL, -ENOENT, ...: it cannot be read, is not
 * a report, or is the report of another model. */
int graph_errors(struct graph *g, const char *report, struct why *why);

/* Fold layers that repeat earlier layers, either one layer or a repeating sequence, into one node. */
void graph_fold(struct graph *g);

/* Append the drawing as Graphviz source, or as an SVG picture. */
void graph_dot(const struct graph *g, struct buf *out);
void graph_svg(const struct graph *g, struct buf *out);

/* Colours of errors: their number, the colour of a row, its code, and its meaning in words. */
enum { GRAPH_COLOURS = 7 };
int graph_colour(const struct graph_row *r); /* -1: none */
const char *graph_colour_code(int colour);   /* "#fdcc8a" */
const char *graph_colour_words(int colour);

/* Format "4.2 GiB"; and "18.3 dB", "kept in floats", or "" without an error.  Both return out. */
const char *graph_row_bytes(const struct graph_row *r, char *out, size_t n);
const char *graph_row_error(const struct graph_row *r, char *out, size_t n);
/* Format "mlp.up_proj", "self_attn.qkv_proj: q", "gives rows".  Returns out. */
const char *graph_row_label(const struct graph_row *r, char *out, size_t n);
/* Append text for XML: reserved characters are escaped, and characters that XML does not allow are
 * replaced. */
void graph_escape(struct buf *out, const char *text);

#endif
