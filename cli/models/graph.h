/* graph.h - the operations of a model's step as a drawing: boxes from top to bottom, with the weights that
 * each reads and the data that it leaves, and lines where data goes.
 *
 *     quern-worker --operations -> graph_read() -> graph_errors() -> graph_fold() -> graph_dot(), graph_svg()
 *
 * Layers that are equal are one: "layers 3 to 27, as layer 2". */
#ifndef QUERN_CLI_MODELS_GRAPH_H
#define QUERN_CLI_MODELS_GRAPH_H

#include "base/buf.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum graph_error { GRAPH_NO_ERROR, GRAPH_ERROR, GRAPH_KEPT }; /* kept: in floats by the quantizer */

enum { GRAPH_LABEL = 160 }; /* bytes of graph_row_label() */

struct graph_row {
	bool weight;    /* else: data that the operation leaves */
	char name[128]; /* as in the model's files; experts: with a * for their number */
	char part[8];   /* of a tensor that holds several: "gate"; else empty */
	int label;      /* where in name the part behind the layer's number begins */
	char shape[64], type[48];
	int64_t bytes; /* of a weight as stored (of experts: all), or of one row of data */
	int count;     /* experts; else 1 */
	enum graph_error error;
	double db; /* with GRAPH_ERROR: signal to noise; of experts the worst */
};

struct graph_node {
	char title[96], about[160];
	int layer;              /* -1: before or behind the layers; of folded ones -1 */
	bool folded;            /* stands for layers that are not drawn */
	struct graph_row *rows; /* owned */
	int n_rows;
};

struct graph_edge {
	int from, to; /* nodes; from is above */
	char what[128];
};

struct graph {
	char title[256], mode[64];
	int n_layers, n_operations;
	bool errors;              /* graph_errors() was called */
	struct graph_node *nodes; /* owned, in the order of the step */
	int n_nodes;
	struct graph_edge *edges; /* owned, ascending by from */
	int n_edges;
};

/* list: what quern-worker --operations prints; title: of the drawing.  -EINVAL: it is something else. */
int graph_read(struct graph *g, const json_t *list, const char *title, char *why, size_t why_n);
void graph_fini(struct graph *g);

/* Errors of the weights from a quantizer's report in JSON.  -EINVAL, -ENOENT, ... : it cannot be read, is not
 * a report, or of another model. */
int graph_errors(struct graph *g, const char *report, char *why, size_t why_n);

/* Layers that repeat those before them, one by one or in turns, become one node. */
void graph_fold(struct graph *g);

/* For Graphviz; and as a picture of its own. */
void graph_dot(const struct graph *g, struct buf *out);
void graph_svg(const struct graph *g, struct buf *out);

/* The colours of errors: their number, the colour of a row, and what each means. */
enum { GRAPH_COLOURS = 7 };
int graph_colour(const struct graph_row *r); /* -1: none */
const char *graph_colour_code(int colour);   /* "#fdcc8a" */
const char *graph_colour_words(int colour);

/* "4.2 GiB"; "18.3 dB", "kept in floats", or "" without an error.  They return out. */
const char *graph_row_bytes(const struct graph_row *r, char *out, size_t n);
const char *graph_row_error(const struct graph_row *r, char *out, size_t n);
/* "mlp.up_proj", "self_attn.qkv_proj: q", "gives rows".  Likewise. */
const char *graph_row_label(const struct graph_row *r, char *out, size_t n);
/* For XML: what it reserves is escaped, and what is no text replaced. */
void graph_escape(struct buf *out, const char *text);

#endif
