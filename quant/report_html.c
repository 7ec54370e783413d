/* report_html.c - the report as one page, without scripts or other files. */
#include "quant/report.h"

#include "base/alloc.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
	WORST = 10,
	WIDTH = 920, /* size of a chart, in its own units */
	HEIGHT = 308,
	LEFT = 48,
	RIGHT = 12,
	TOP = 14,
	BOTTOM = 40,
	CHART_KINDS_MAX = 8, /* most lines of a chart */
	TICKS = 5,
};

static const char style[] =
	":root{color-scheme:light dark;--bg:#fff;--fg:#1c1e21;--dim:#626871;--line:#dfe2e6;--band:#f5f6f8;"
	"--bad:#b3261e;--c0:#2a66c8;--c1:#c8620a;--c2:#168a54;--c3:#8a3fc0;--c4:#b8860b;--c5:#0f8b9a;"
	"--c6:#c23b78;--c7:#5d6674}"
	"@media(prefers-color-scheme:dark){:root{--bg:#15171a;--fg:#e6e8eb;--dim:#9aa1ab;--line:#34383e;"
	"--band:#1d2024;--bad:#ff8a80;--c0:#7aa7f5;--c1:#f0a35e;--c2:#5fd09a;--c3:#c798f0;--c4:#e0c060;"
	"--c5:#62cfdc;--c6:#f090b8;--c7:#aab2be}}"
	"body{background:var(--bg);color:var(--fg);font:15px/1.5 system-ui,sans-serif;margin:0 "
	"auto;max-width:1060px;"
	"padding:24px 20px 60px}h1{font-size:24px;margin:0 0 4px}h2{font-size:18px;margin:34px 0 6px}"
	"p{margin:4px 0 10px}.dim{color:var(--dim)}code{font-size:13px}"
	".cards{display:flex;flex-wrap:wrap;gap:10px;margin:18px 0}"
	".card{border:1px solid var(--line);border-radius:8px;padding:10px 14px;min-width:120px}"
	".card b{display:block;font-size:21px;font-weight:600}"
	"svg{width:100%;height:auto;display:block}svg text{fill:var(--dim);font-size:12px}"
	".legend{display:flex;flex-wrap:wrap;gap:4px 16px;font-size:13px}"
	".legend i{display:inline-block;width:14px;height:3px;margin-right:6px;vertical-align:middle}"
	".scroll{overflow-x:auto}table{border-collapse:collapse;width:100%;font-size:13px}"
	"th,td{padding:4px 8px;text-align:right;white-space:nowrap;border-bottom:1px solid var(--line)}"
	"th:first-child,td:first-child,td.text,th.text{text-align:left}thead "
	"th{color:var(--dim);font-weight:500}"
	"tbody tr:nth-child(even){background:var(--band)}.bad{color:var(--bad);font-weight:600}";

static void text(struct buf *b, const char *s)
{
	for (; *s; s++) {
		if (*s == '<')
			buf_puts(b, "&lt;");
		else if (*s == '>')
			buf_puts(b, "&gt;");
		else if (*s == '&')
			buf_puts(b, "&amp;");
		else if (*s == '"')
			buf_puts(b, "&quot;");
		else if ((unsigned char)*s >= ' ')
			buf_putc(b, *s);
	}
}

/* ---- charts ---- */

/* Display order of the parts; others come last. */
static const char *const kinds[] = {"q_proj", "k_proj",  "v_proj", "qkv_proj",     "o_proj",    "gate_proj",
				    "w1",     "up_proj", "w3",     "gate_up_proj", "down_proj", "w2"};
enum { KINDS = sizeof kinds / sizeof *kinds };

struct series {
	char name[32];
	double *at; /* [n_layers] dB; NAN: no value; owned */
};

struct chart {
	struct series series[CHART_KINDS_MAX];
	int n, n_layers;
	double lo, hi, step;
};

/* Return "up_proj" for "model.layers.3.mlp.up_proj".  Experts share one line per kind, with the worst of a
 * layer. */
static const char *kind_of(const struct report_linear *l)
{
	const char *dot = strrchr(l->name, '.');
	return dot ? dot + 1 : l->name;
}

static int rank_of(const struct report_linear *l)
{
	int i = 0;
	while (i < KINDS && strcmp(kinds[i], kind_of(l)) != 0)
		i++;
	return i;
}

static int by_place(const void *x, const void *y, void *arg)
{
	const struct report_linear *linears = arg;
	const int a = *(const int *)x, b = *(const int *)y;
	const struct report_linear *p = &linears[a], *q = &linears[b];
	if (p->layer != q->layer)
		return p->layer - q->layer;
	/* Experts keep the order of the list. */
	if (strstr(p->name, ".experts.") || strstr(q->name, ".experts."))
		return a - b;
	return rank_of(p) != rank_of(q) ? rank_of(p) - rank_of(q) : a - b;
}

/* Return the parts' indexes, sorted by layer and by order of computation within it; owned. */
static int *places(const struct report *r)
{
	int *order = xcalloc((size_t)r->n_linears + 1, sizeof *order);
	for (int i = 0; i < r->n_linears; i++)
		order[i] = i;
	qsort_r(order, (size_t)r->n_linears, sizeof *order, by_place, r->linears);
	return order;
}

static void chart_add(struct chart *c, const char *name, int layer, double db)
{
	int i = 0;
	while (i < c->n && strcmp(c->series[i].name, name) != 0)
		i++;
	if (i == CHART_KINDS_MAX)
		return;
	struct series *s = &c->series[i];
	if (i == c->n) {
		c->n++;
		strncpy(s->name, name, sizeof s->name - 1);
		s->at = xmalloc((size_t)c->n_layers * sizeof *s->at);
		for (int j = 0; j < c->n_layers; j++)
			s->at[j] = NAN;
	}
	if (!(s->at[layer] <= db)) /* also true for NAN */
		s->at[layer] = db;
}

/* Choose round limits below and above all points. */
static void chart_range(struct chart *c)
{
	double lo = INFINITY, hi = -INFINITY;
	for (int i = 0; i < c->n; i++)
		for (int j = 0; j < c->n_layers; j++)
			if (!isnan(c->series[i].at[j])) {
				lo = fmin(lo, c->series[i].at[j]);
				hi = fmax(hi, c->series[i].at[j]);
			}
	static const double steps[] = {1, 2, 5, 10, 20, 50, 100};
	size_t s = 0;
	while (s + 1 < sizeof steps / sizeof *steps && steps[s] * TICKS < hi - lo)
		s++;
	c->step = steps[s];
	c->lo = floor(lo / c->step) * c->step;
	c->hi = ceil(hi / c->step) * c->step;
	if (!(c->hi > c->lo))
		c->hi = c->lo + c->step;
}

static double x_of(const struct chart *c, int layer)
{
	const double span = WIDTH - LEFT - RIGHT;
	return LEFT + (c->n_layers > 1 ? span * layer / (c->n_layers - 1) : span / 2);
}

static double y_of(const struct chart *c, double db)
{
	return TOP + (HEIGHT - TOP - BOTTOM) * (c->hi - db) / (c->hi - c->lo);
}

static void chart_axes(const struct chart *c, struct buf *b)
{
	for (double v = c->lo; v <= c->hi + c->step / 2; v += c->step) {
		buf_printf(b,
			   "<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"var(--line)\"/>"
			   "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%g</text>",
			   LEFT, WIDTH - RIGHT, y_of(c, v), y_of(c, v), LEFT - 8, y_of(c, v) + 4, v);
	}
	const int every = c->n_layers <= 20 ? 1 : (c->n_layers + 15) / 16;
	for (int i = 0; i < c->n_layers; i += every)
		buf_printf(b, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%d</text>", x_of(c, i),
			   HEIGHT - BOTTOM + 18, i);
	buf_printf(b,
		   "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">layer</text><text x=\"2\" y=\"%d\">dB</text>",
		   WIDTH - RIGHT, HEIGHT - 5, TOP - 2);
}

static void chart_line(const struct chart *c, int i, struct buf *b)
{
	const struct series *s = &c->series[i];
	bool open = false;
	for (int j = 0; j < c->n_layers; j++) {
		if (isnan(s->at[j]))
			continue;
		buf_printf(b,
			   open ? " %.1f,%.1f"
				: "<polyline fill=\"none\" stroke-width=\"2\" points=\"%.1f,%.1f",
			   x_of(c, j), y_of(c, s->at[j]));
		open = true;
	}
	if (!open)
		return;
	buf_printf(b, "\" stroke=\"var(--c%d)\"/>", i);
	for (int j = 0; j < c->n_layers; j++) {
		if (isnan(s->at[j]))
			continue;
		buf_printf(b, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"var(--c%d)\"><title>",
			   x_of(c, j), y_of(c, s->at[j]), i);
		text(b, s->name);
		buf_printf(b, ", layer %d: %.1f dB</title></circle>", j, s->at[j]);
	}
}

static void chart_write(struct chart *c, const char *what, struct buf *b)
{
	if (c->n) {
		chart_range(c);
		buf_printf(b, "<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"", WIDTH, HEIGHT);
		text(b, what);
		buf_puts(b, "\">");
		chart_axes(c, b);
		for (int i = 0; i < c->n; i++)
			chart_line(c, i, b);
		buf_puts(b, "</svg><div class=\"legend\">");
		for (int i = 0; i < c->n; i++) {
			buf_printf(b, "<span><i style=\"background:var(--c%d)\"></i>", i);
			text(b, c->series[i].name);
			buf_puts(b, "</span>");
		}
		buf_puts(b, "</div>\n");
	}
	for (int i = 0; i < c->n; i++)
		free(c->series[i].at);
	*c = (struct chart){0};
}

static int layers_of(const struct report *r)
{
	int n = 0;
	for (int i = 0; i < r->n_linears; i++)
		n = r->linears[i].layer >= n ? r->linears[i].layer + 1 : n;
	return n;
}

static void charts(const struct report *r, struct buf *b)
{
	struct chart c = {.n_layers = layers_of(r)};
	bool some = false;
	int *order = places(r);
	for (int i = 0; i < r->n_linears; i++)
		if (r->linears[order[i]].alone.signal > 0)
			chart_add(&c, kind_of(&r->linears[order[i]]), r->linears[order[i]].layer,
				  layer_error_db(&r->linears[order[i]].alone));
	buf_puts(b, "<h2>Each part alone</h2><p class=\"dim\">Signal to noise of a part's outputs when it "
		    "alone is "
		    "quantized and reads what the original model gives it; of experts the worst. Higher is "
		    "better.</p>\n");
	chart_write(&c, "Signal to noise of each part alone, by layer", b);
	c.n_layers = layers_of(r);
	for (int i = 0; i < r->n_linears; i++)
		if (r->linears[order[i]].accumulated.signal > 0) {
			chart_add(&c, kind_of(&r->linears[order[i]]), r->linears[order[i]].layer,
				  layer_error_db(&r->linears[order[i]].accumulated));
			some = true;
		}
	for (int i = 0; r->network && i < r->network->n_layers && i < c.n_layers; i++) {
		chart_add(&c, "residual stream", i, layer_error_db(&r->network->layers[i]));
		some = true;
	}
	if (some)
		buf_puts(b, "<h2>Accumulated through the network</h2><p class=\"dim\">The same with all "
			    "parts as they "
			    "were written, each reading what those before it give.</p>\n");
	chart_write(&c, "Signal to noise accumulated through the network, by layer", b);
	free(order);
}

/* ---- figures ---- */

static void card(struct buf *b, const char *what, const char *fmt, double x)
{
	char figure[48];
	snprintf(figure, sizeof figure, fmt, x);
	buf_printf(b, "<div class=\"card\"><b>%s</b>%s</div>", figure, what);
}

static void cards(const struct report *r, struct buf *b)
{
	const struct measure *m = r->network;
	if (!m)
		return;
	buf_puts(b, "<div class=\"cards\">");
	card(b, "perplexity of the original", "%.4g", exp(m->nll[0]));
	card(b, "perplexity quantized", "%.4g", exp(m->nll[1]));
	card(b, "change", "%+.2f%%", 100 * (exp(m->nll[1] - m->nll[0]) - 1));
	card(b, "mean KL, nats", "%.3g", m->kl);
	card(b, "same top token", "%.1f%%", 100 * m->agree);
	card(b, "signal to noise of logits", "%.1f dB", layer_error_db(&m->logits));
	buf_printf(b, "</div><p class=\"dim\">On %d tokens of text.</p>\n", m->n_scored);
}

static void cell(struct buf *b, const struct layer_error *e, bool whole)
{
	if (!(e->signal > 0)) {
		buf_puts(b, whole ? "<td>–</td><td>–</td><td>–</td>" : "<td>–</td>");
		return;
	}
	buf_printf(b, "<td>%.1f</td>", layer_error_db(e));
	if (whole)
		buf_printf(b, "<td>%.5f</td><td>%.3g</td>", e->cosine, e->mean_abs);
}

static void row(struct buf *b, const struct report_linear *l, bool bad)
{
	char name[REPORT_NAME];
	buf_puts(b, bad ? "<tr><td class=\"bad\"><code>" : "<tr><td><code>");
	text(b, report_name(l, name));
	buf_puts(b, "</code></td>");
	cell(b, &l->weights, true);
	cell(b, &l->alone, true);
	cell(b, &l->nearest, false);
	cell(b, &l->accumulated, false);
	buf_puts(b, "<td class=\"text\">");
	text(b, l->reason);
	buf_puts(b, "</td></tr>\n");
}

static const char heading[] =
	"<div class=\"scroll\"><table><thead><tr><th></th><th colspan=\"3\">weights</th>"
	"<th colspan=\"3\">outputs, alone</th><th>by nearest</th><th>accumulated</th><th></th></tr>"
	"<tr><th>part</th><th>dB</th><th>cosine</th><th>mean |d|</th><th>dB</th><th>cosine</th><th>mean "
	"|d|</th>"
	"<th>dB</th><th>dB</th><th class=\"text\">note</th></tr></thead><tbody>\n";

static void tables(const struct report *r, struct buf *b)
{
	int *order = xcalloc((size_t)r->n_linears + 1, sizeof *order);
	report_order(r, order);
	buf_puts(b,
		 "<h2>The worst parts</h2><p class=\"dim\">By the signal to noise of their outputs, alone.");
	buf_puts(b, " <code>--keep-worst N</code> leaves the first N in floats.</p>\n");
	buf_puts(b, heading);
	for (int i = 0; i < r->n_linears && i < WORST && r->linears[order[i]].alone.signal > 0; i++)
		row(b, &r->linears[order[i]], i == 0);
	buf_puts(b, "</tbody></table></div>\n<h2>All parts</h2>\n");
	buf_puts(b, heading);
	free(order);
	order = places(r);
	for (int i = 0; i < r->n_linears; i++)
		row(b, &r->linears[order[i]], false);
	buf_puts(b, "</tbody></table></div>\n");
	free(order);
}

void report_html(const struct report *r, struct buf *b)
{
	buf_puts(b, "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
		    "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"><title>");
	text(b, r->result);
	buf_printf(b,
		   ": what quantization cost</title><style>%s</style></head><body>\n<h1>What quantization "
		   "cost</h1>",
		   style);
	buf_puts(b, "<p class=\"dim\"><code>");
	text(b, r->source);
	buf_puts(b, "</code> as <code>");
	text(b, r->result);
	buf_puts(b, "</code>: ");
	text(b, r->type);
	if (r->group)
		buf_printf(b, ", groups of %d", r->group);
	if (r->n_calibration)
		buf_printf(b, ", calibrated on %d tokens", r->n_calibration);
	buf_puts(b, "</p>\n");
	cards(r, b);
	charts(r, b);
	tables(r, b);
	buf_puts(b, "</body></html>\n");
}
