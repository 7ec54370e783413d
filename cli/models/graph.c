#include "cli/models/graph.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/json.h"
#include "base/utf8.h"
#include "cli/terminal/term.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REPORT_MAX = 256 << 20, TURNS_MAX = 8 };

/* ---- reading the list ---- */

static const char *text_of(const json_t *o, const char *key)
{
	const char *s = json_string_value(json_get(o, key));
	return s ? s : "";
}

static const char *title_of(const char *op)
{
	static const char *const titles[][2] = {
		{"embed", "embedding"},
		{"rmsnorm", "RMS norm"},
		{"rmsnorm_f32", "RMS norm"},
		{"layernorm", "layer norm"},
		{"positions", "positions"},
		{"activate", "activation"},
		{"linear", "linear"},
		{"qkv_squares", "sums of squares"},
		{"qkv", "q, k and v"},
		{"attention", "attention"},
		{"gateup_swiglu", "gate and up"},
		{"route", "router"},
		{"moe", "experts"},
		{"gather", "gather"},
		{"map", "map"},
		{"add_rows", "sum"},
	};
	for (size_t i = 0; i < sizeof titles / sizeof *titles; i++)
		if (strcmp(titles[i][0], op) == 0)
			return titles[i][1];
	return op;
}

static void shape_text(const json_t *shape, char *out, size_t n)
{
	size_t at = 0;
	out[0] = '\0';
	for (size_t i = 0; i < json_array_size(shape) && at < n; i++) {
		const json_t *v = json_array_get(shape, i);
		const char *times = i ? " x " : "";
		if (json_is_string(v))
			at += (size_t)snprintf(out + at, n - at, "%s%s", times, json_string_value(v));
		else
			at += (size_t)snprintf(out + at, n - at, "%s%" PRId64, times,
					       (int64_t)json_integer_value(v));
	}
}

/* Return the index in name after the layer's number: "model.layers.3.mlp.up_proj". */
static int label_of(const char *name)
{
	for (const char *p = strchr(name, '.'); p; p = strchr(p + 1, '.')) {
		const size_t digits = strspn(p + 1, "0123456789");
		if (digits && p[1 + digits] == '.' && p[2 + digits])
			return (int)(p + 2 + digits - name);
	}
	return 0;
}

static void add_rows(struct graph_node *node, const json_t *list, bool weight)
{
	const size_t n = json_array_size(list);
	node->rows = xrealloc(node->rows, (size_t)node->n_rows + n + 1, sizeof *node->rows);
	for (size_t i = 0; i < n; i++) {
		const json_t *o = json_array_get(list, i), *count = json_get(o, "count");
		struct graph_row *r = &node->rows[node->n_rows++];
		*r = (struct graph_row){.weight = weight,
					.bytes = json_integer_value(json_get(o, "bytes")),
					.count = count ? (int)json_integer_value(count) : 1};
		snprintf(r->name, sizeof r->name, "%s", text_of(o, "name"));
		snprintf(r->part, sizeof r->part, "%s", text_of(o, "part"));
		snprintf(r->type, sizeof r->type, "%s", text_of(o, "type"));
		shape_text(json_get(o, "shape"), r->shape, sizeof r->shape);
		r->label = weight ? label_of(r->name) : 0;
	}
}

static void add_edge(struct graph *g, int from, int to, const char *what)
{
	for (int i = 0; i < g->n_edges; i++)
		if (g->edges[i].from == from && g->edges[i].to == to && strcmp(g->edges[i].what, what) == 0)
			return;
	g->edges = xrealloc(g->edges, (size_t)g->n_edges + 1, sizeof *g->edges);
	g->edges[g->n_edges] = (struct graph_edge){from, to, ""};
	snprintf(g->edges[g->n_edges++].what, sizeof g->edges->what, "%s", what);
}

static int read_operation(struct graph *g, const json_t *o, int i)
{
	struct graph_node *node = &g->nodes[i];
	const json_t *layer = json_get(o, "layer"), *in = json_get(o, "in");
	char shape[64], what[128];
	snprintf(node->title, sizeof node->title, "%s", title_of(text_of(o, "op")));
	snprintf(node->about, sizeof node->about, "%s", text_of(o, "about"));
	node->layer = layer ? (int)json_integer_value(layer) : -1;
	add_rows(node, json_get(o, "weights"), true);
	add_rows(node, json_get(o, "out"), false);
	for (size_t k = 0; k < json_array_size(in); k++) {
		const json_t *data = json_array_get(in, k);
		const json_int_t from = json_integer_value(json_get(data, "from"));
		if (from < 0 || from >= i)
			return -EINVAL;
		shape_text(json_get(data, "shape"), shape, sizeof shape);
		snprintf(what, sizeof what, "%.30s: %.50s %.40s", text_of(data, "name"), shape,
			 text_of(data, "type"));
		add_edge(g, (int)from, i, what);
	}
	return node->title[0] && node->layer < g->n_layers ? 0 : -EINVAL;
}

static int edge_ascends(const void *a, const void *b)
{
	const struct graph_edge *x = a, *y = b;
	return x->from != y->from ? x->from - y->from : x->to - y->to;
}

int graph_read(struct graph *g, const json_t *list, const char *title, struct why *why)
{
	const json_t *all = json_get(list, "operations");
	int rc = json_array_size(all) ? 0 : -EINVAL;
	*g = (struct graph){.n_layers = (int)json_integer_value(json_get(list, "layers")),
			    .n_operations = (int)json_array_size(all)};
	snprintf(g->title, sizeof g->title, "%s: %s", title, text_of(list, "architecture"));
	snprintf(g->mode, sizeof g->mode, "%s", text_of(list, "mode"));
	g->nodes = xcalloc(json_array_size(all) + 1, sizeof *g->nodes);
	for (int i = 0; !rc && i < g->n_operations; i++, g->n_nodes++)
		rc = read_operation(g, json_array_get(all, (size_t)i), i);
	if (g->n_edges)
		qsort(g->edges, (size_t)g->n_edges, sizeof *g->edges, edge_ascends);
	if (rc)
		graph_fini(g);
	return rc ? err_why(why, rc,
			    "quern-worker --operations printed something else than operations: quern and "
			    "quern-worker must be of one version")
		  : 0;
}

void graph_fini(struct graph *g)
{
	for (int i = 0; g->nodes && i < g->n_operations; i++)
		free(g->nodes[i].rows);
	free(g->nodes);
	free(g->edges);
	*g = (struct graph){0};
}

/* ---- errors ---- */

/* Get the signal-to-noise ratio of the outputs, or of the weights if the type was quantized without a
 * text. */
static bool db_of(const json_t *linear, double *out)
{
	const json_t *db = json_get(json_get(linear, "outputs"), "snr_db");
	if (!db)
		db = json_get(json_get(linear, "weights"), "snr_db");
	*out = json_number_value(db);
	return json_is_number(db);
}

/* Take the error of a linear layer; return whether the report has it. */
static bool take_error(struct graph_row *r, const json_t *linear)
{
	double db;
	if (!linear)
		return false;
	if (json_is_true(json_get(linear, "kept"))) {
		if (r->error == GRAPH_NO_ERROR)
			r->error = GRAPH_KEPT;
	} else if (db_of(linear, &db) && (r->error != GRAPH_ERROR || db < r->db)) {
		r->error = GRAPH_ERROR;
		r->db = db;
	}
	return true;
}

/* Size of a key.  The key includes the part's name, because the parts of one tensor have separate errors. */
enum { KEY = 208 };

static const char *key_of(const char *name, const char *part, char out[KEY])
{
	snprintf(out, KEY, "%s%s%s", name, part[0] ? ": " : "", part);
	return out;
}

static int row_errors(struct graph_row *r, const json_t *by_name)
{
	const char *star = strchr(r->name, '*');
	int n = 0;
	if (!r->weight)
		return 0;
	for (int e = 0; e < (star ? r->count : 1); e++) {
		char name[192], key[KEY];
		if (star)
			snprintf(name, sizeof name, "%.*s%d%s", (int)(star - r->name), r->name, e, star + 1);
		else
			snprintf(name, sizeof name, "%s", r->name);
		n += take_error(r, json_object_get(by_name, key_of(name, r->part, key)));
	}
	return n;
}

int graph_errors(struct graph *g, const char *report, struct why *why)
{
	json_t *o;
	int rc = json_read(report, REPORT_MAX, &o, why), found = 0;
	if (rc == -EINVAL)
		return err_why(why, rc,
			       "%s is not JSON: --errors takes the report that quern quantize --report "
			       "REPORT.json wrote",
			       report);
	if (rc)
		return rc;
	const json_t *linears = json_get(o, "linears");
	json_t *by_name = json_object();
	int n_layers = 0;
	for (size_t i = 0; i < json_array_size(linears); i++) {
		json_t *l = json_array_get(linears, i);
		const char *name = json_string_value(json_get(l, "name"));
		char key[KEY];
		const json_int_t layer = json_integer_value(json_get(l, "layer"));
		if (name)
			json_object_set(by_name, key_of(name, text_of(l, "part"), key), l);
		if (layer >= n_layers && layer < g->n_layers)
			n_layers = (int)layer + 1;
	}
	for (int i = 0; i < g->n_nodes; i++)
		for (int k = 0; k < g->nodes[i].n_rows; k++)
			found += row_errors(&g->nodes[i].rows[k], by_name);
	if (!json_object_size(by_name))
		rc = err_why(why, -EINVAL,
			     "%s is not a report of the quantizer: --errors takes what quern quantize "
			     "--report REPORT.json wrote",
			     report);
	else if (found < (int)json_object_size(by_name) || n_layers < g->n_layers)
		rc = err_why(why, -EINVAL,
			     "%s is the report of another model (%s): %d of its %zu linear parts are in this "
			     "one, which has %d layers",
			     report, text_of(o, "source"), found, json_object_size(by_name), g->n_layers);
	g->errors = !rc;
	json_decref(by_name);
	json_decref(o);
	return rc;
}

int graph_colour(const struct graph_row *r)
{
	static const double below[] = {10, 15, 20, 25, 30};
	if (r->error == GRAPH_NO_ERROR)
		return -1;
	if (r->error == GRAPH_KEPT)
		return 6;
	int i = 0;
	while (i < 5 && r->db >= below[i])
		i++;
	return i;
}

const char *graph_colour_code(int colour)
{
	static const char *const codes[GRAPH_COLOURS] = {"#f2705a", "#fc9272", "#fdbb84", "#fdd9a5",
							 "#fef0d9", "#e5f5e0", "#d6e4f5"};
	return codes[colour];
}

const char *graph_colour_words(int colour)
{
	static const char *const words[GRAPH_COLOURS] = {"below 10 dB",   "10 to 15 dB", "15 to 20 dB",
							 "20 to 25 dB",   "25 to 30 dB", "from 30 dB",
							 "kept in floats"};
	return words[colour];
}

/* ---- equal layers ---- */

/* Write everything that is drawn of a layer as text. */
static void layer_text(const struct graph *g, int layer, struct buf *out)
{
	char error[48], label[GRAPH_LABEL];
	buf_clear(out);
	for (int i = 0; i < g->n_nodes; i++) {
		const struct graph_node *node = &g->nodes[i];
		if (node->layer != layer)
			continue;
		buf_printf(out, "%s\t%s\n", node->title, node->about);
		for (int k = 0; k < node->n_rows; k++) {
			const struct graph_row *r = &node->rows[k];
			buf_printf(out, "%s\t%s\t%s\t%" PRId64 "\t%d\t%s\n",
				   graph_row_label(r, label, sizeof label), r->shape, r->type, r->bytes,
				   r->count, graph_row_error(r, error, sizeof error));
		}
	}
}

/* Return how many layers from i + *turns on repeat the sequence of *turns layers from i on.  *turns is chosen
 * to maximize that number. */
static int repeats(char *const *texts, int n, int i, int *turns)
{
	int best = 0;
	for (int p = 1; p <= TURNS_MAX && i + p < n; p++) {
		int r = 0;
		while (i + p + r < n && strcmp(texts[i + p + r], texts[i + r]) == 0)
			r++;
		if (r >= p && r > best) {
			best = r;
			*turns = p;
		}
	}
	return best;
}

static void fold_name(struct graph_node *node, int first, int last, int turns)
{
	if (first == last)
		snprintf(node->title, sizeof node->title, "layer %d", first);
	else
		snprintf(node->title, sizeof node->title, "layers %d to %d", first, last);
	if (turns == 1)
		snprintf(node->about, sizeof node->about, "as layer %d", first - 1);
	else
		snprintf(node->about, sizeof node->about, "as layers %d to %d, in turn", first - turns,
			 first - 1);
	node->folded = true;
	node->layer = -1;
}

/* Replace the nodes of each fold by one node.  fold: as graph_fold() makes it. */
static void remove_folded(struct graph *g, const int *fold)
{
	int *now = xcalloc((size_t)g->n_nodes + 1, sizeof *now);
	int n = 0, last = -1;
	for (int i = 0; i < g->n_nodes; i++) {
		struct graph_node node = g->nodes[i];
		const int first = node.layer >= 0 ? fold[node.layer] : -1;
		if (first < 0) {
			g->nodes[i].rows = NULL;
			g->nodes[n] = node;
		} else {
			free(node.rows);
			g->nodes[i].rows = NULL;
			if (first == last) {
				now[i] = n - 1;
				continue;
			}
			int end = first;
			while (end + 1 < g->n_layers && fold[end + 1] == first)
				end++;
			g->nodes[n] = (struct graph_node){0};
			fold_name(&g->nodes[n], first, end, fold[g->n_layers + first]);
		}
		last = first;
		now[i] = n++;
	}
	for (int i = n; i < g->n_nodes; i++)
		g->nodes[i] = (struct graph_node){0};
	g->n_nodes = n;
	struct graph_edge *edges = g->edges;
	const int n_edges = g->n_edges;
	g->edges = NULL;
	g->n_edges = 0;
	for (int i = 0; i < n_edges; i++)
		if (now[edges[i].from] != now[edges[i].to])
			add_edge(g, now[edges[i].from], now[edges[i].to], edges[i].what);
	free(edges);
	free(now);
}

void graph_fold(struct graph *g)
{
	const int n = g->n_layers;
	char **texts = xcalloc((size_t)n + 1, sizeof *texts);
	/* fold[i] is the first layer folded together with layer i, or -1.  fold[n + first] is the length of
	 * the repeated sequence. */
	int *fold = xcalloc(2 * (size_t)n + 1, sizeof *fold), turns = 1;
	struct buf text = {0};
	for (int i = 0; i < n; i++) {
		layer_text(g, i, &text);
		texts[i] = xstrdup(text.p ? text.p : "");
		fold[i] = -1;
	}
	for (int i = 0; i < n;) {
		const int r = repeats(texts, n, i, &turns);
		for (int k = 0; k < r; k++)
			fold[i + turns + k] = i + turns;
		if (r)
			fold[n + i + turns] = turns;
		i += r ? turns + r : 1;
	}
	remove_folded(g, fold);
	for (int i = 0; i < n; i++)
		free(texts[i]);
	free(texts);
	free(fold);
	buf_fini(&text);
}

/* ---- shared by both drawings ---- */

const char *graph_row_bytes(const struct graph_row *r, char *out, size_t n)
{
	return term_bytes((double)r->bytes, out, n);
}

const char *graph_row_error(const struct graph_row *r, char *out, size_t n)
{
	out[0] = '\0';
	if (r->error == GRAPH_ERROR)
		snprintf(out, n, "%.1f dB%s", r->db, r->count > 1 ? " (worst)" : "");
	else if (r->error == GRAPH_KEPT)
		snprintf(out, n, "kept in floats");
	return out;
}

const char *graph_row_label(const struct graph_row *r, char *out, size_t n)
{
	snprintf(out, n, "%s%s%s%s", r->weight ? "" : "gives ", r->name + r->label, r->part[0] ? ": " : "",
		 r->part);
	return out;
}

void graph_escape(struct buf *out, const char *text)
{
	struct buf valid = {0};
	utf8_put_lossy(&valid, text, strlen(text));
	for (const char *p = valid.p ? valid.p : ""; *p; p++)
		switch (*p) {
		case '&':
			buf_puts(out, "&amp;");
			break;
		case '<':
			buf_puts(out, "&lt;");
			break;
		case '>':
			buf_puts(out, "&gt;");
			break;
		case '"':
			buf_puts(out, "&quot;");
			break;
		default:
			buf_putc(out, iscntrl((unsigned char)*p) ? ' ' : *p);
		}
	buf_fini(&valid);
}
