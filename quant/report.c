#include "quant/report.h"

#include "base/alloc.h"
#include "base/json_write.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORST = 10 };

static double db_of(const struct report_linear *l)
{
	return l->alone.signal > 0 ? layer_error_db(&l->alone) : INFINITY;
}

static int compare(const void *x, const void *y, void *arg)
{
	const struct report_linear *linears = arg;
	const int a = *(const int *)x, b = *(const int *)y;
	const double p = db_of(&linears[a]), q = db_of(&linears[b]);
	return p < q ? -1 : p > q ? 1 : a - b;
}

void report_order(const struct report *r, int *out)
{
	for (int i = 0; i < r->n_linears; i++)
		out[i] = i;
	qsort_r(out, (size_t)r->n_linears, sizeof *out, compare, r->linears);
}

const char *report_name(const struct report_linear *l, char out[REPORT_NAME])
{
	snprintf(out, REPORT_NAME, "%s%s%s", l->name, l->part[0] ? ": " : "", l->part);
	return out;
}

void report_summary(const struct report *r, const char *as)
{
	int *order = xcalloc((size_t)r->n_linears + 1, sizeof *order), kept = 0;
	const struct measure *m = r->network;
	char name[REPORT_NAME];
	for (int i = 0; i < r->n_linears; i++)
		kept += r->linears[i].kept;
	report_order(r, order);
	printf("%s: %d of %d linear parts in %s\n", r->result, r->n_linears - kept, r->n_linears, as);
	if (m)
		printf("perplexity %.4f, of the original %.4f (%+.2f%%); KL %.5f; same top token %.2f%%; %d "
		       "tokens\n",
		       exp(m->nll[1]), exp(m->nll[0]), 100 * (exp(m->nll[1] - m->nll[0]) - 1), m->kl,
		       100 * m->agree, m->n_scored);
	for (int i = 0; i < r->n_linears && i < 3; i++) {
		const struct report_linear *l = &r->linears[order[i]];
		if (l->alone.signal > 0)
			printf("%s %s: %.1f dB%s%s\n", i ? "then" : "worst", report_name(l, name),
			       layer_error_db(&l->alone), l->reason[0] ? ", " : "", l->reason);
	}
	free(order);
}

/* ---- JSON ---- */

static void number(struct buf *b, const char *key, double x)
{
	buf_printf(b, "\"%s\":", key);
	if (isfinite(x))
		buf_printf(b, "%.6g", x);
	else
		buf_puts(b, "null");
}

static void error(struct buf *b, const char *key, const struct layer_error *e, bool whole)
{
	buf_printf(b, ",\"%s\":", key);
	if (!(e->signal > 0)) {
		buf_puts(b, "null");
		return;
	}
	buf_putc(b, '{');
	number(b, "snr_db", layer_error_db(e));
	if (whole) {
		buf_putc(b, ',');
		number(b, "cosine", e->cosine);
		buf_putc(b, ',');
		number(b, "mean_abs", e->mean_abs);
	}
	buf_putc(b, '}');
}

static void network_json(struct buf *b, const struct measure *m)
{
	buf_printf(b, ",\"network\":{\"tokens\":%d,\"scored\":%d,", m->n_tokens, m->n_scored);
	number(b, "perplexity", exp(m->nll[0]));
	buf_putc(b, ',');
	number(b, "perplexity_quantized", exp(m->nll[1]));
	buf_putc(b, ',');
	number(b, "kl", m->kl);
	buf_putc(b, ',');
	number(b, "kl_max", m->kl_max);
	buf_putc(b, ',');
	number(b, "agreement", m->agree);
	error(b, "logits", &m->logits, true);
	buf_puts(b, ",\"layers\":[");
	for (int i = 0; i < m->n_layers; i++) {
		buf_printf(b, "%s{\"layer\":%d", i ? "," : "", i);
		error(b, "residual", &m->layers[i], true);
		buf_putc(b, '}');
	}
	buf_puts(b, "]}");
}

void report_json(const struct report *r, struct buf *b)
{
	int *order = xcalloc((size_t)r->n_linears + 1, sizeof *order);
	char name[REPORT_NAME];
	buf_puts(b, "{\"source\":");
	json_write_str(b, r->source);
	buf_puts(b, ",\"result\":");
	json_write_str(b, r->result);
	buf_puts(b, ",\"type\":");
	json_write_str(b, r->type);
	buf_printf(b, ",\"group\":%d,\"calibration_tokens\":%d", r->group, r->n_calibration);
	if (r->network)
		network_json(b, r->network);
	buf_puts(b, ",\"worst\":[");
	report_order(r, order);
	for (int i = 0; i < r->n_linears && i < WORST; i++) {
		buf_puts(b, i ? "," : "");
		json_write_str(b, report_name(&r->linears[order[i]], name));
	}
	buf_puts(b, "],\"linears\":[");
	for (int i = 0; i < r->n_linears; i++) {
		const struct report_linear *l = &r->linears[i];
		buf_puts(b, i ? ",\n{\"name\":" : "\n{\"name\":");
		json_write_str(b, l->name);
		if (l->part[0])
			buf_printf(b, ",\"part\":\"%s\"", l->part);
		buf_printf(b, ",\"layer\":%d,\"kept\":%s,\"reason\":", l->layer, l->kept ? "true" : "false");
		json_write_str(b, l->reason);
		buf_printf(b, ",\"calibration_rows\":%d", l->n_rows);
		error(b, "weights", &l->weights, true);
		error(b, "outputs", &l->alone, true);
		error(b, "outputs_nearest", &l->nearest, false);
		error(b, "outputs_accumulated", &l->accumulated, true);
		buf_putc(b, '}');
	}
	buf_puts(b, "\n]}\n");
	free(order);
}
