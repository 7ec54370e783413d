#include "formats/place/expert_counts.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/file.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char series[] = "quern:expert_layer_rows_total{";
/* Larger than any real count of rows; a sum of two still fits 64 bits. */
static const double rows_max = 9007199254740992.0; /* 2^53 */

struct parser {
	struct expert_counts *out;
	const struct model_config *c;
	const char *from;
	int *listed; /* [n_layers * n_experts] lines per expert */
	int line, n_lines;
	struct why *why;
};

struct sample {
	int64_t layer, expert; /* -1: the line has no such label */
	double rows;
};

static int unreadable(const struct parser *p)
{
	return err_why(p->why, -EINVAL, "%s, line %d: no count of an expert's rows can be read", p->from,
		       p->line);
}

static int of_another(const struct parser *p, const char *what)
{
	return err_why(p->why, -EINVAL,
		       "%s, line %d: %s; these are counts of another model. " EXPERT_COUNTS_REMEDY, p->from,
		       p->line, what);
}

/* ---- a line ---- */

/* Return the position after the quote that ends a label's value; NULL: there is none. */
static const char *value_end(const char *s)
{
	while (*s && *s != '\n' && *s != '"')
		s += *s == '\\' && s[1] && s[1] != '\n' ? 2 : 1;
	return *s == '"' ? s + 1 : NULL;
}

static int64_t label_number(const char *s)
{
	int64_t n = 0;
	const char *at = s;
	for (; *at >= '0' && *at <= '9'; at++)
		n = n < INT32_MAX ? 10 * n + (*at - '0') : n;
	return at > s && *at == '"' ? n : -1;
}

/* Parse name="value",...} ROWS */
static bool read_sample(const char *s, struct sample *out)
{
	static const char layer[] = "layer=\"", expert[] = "expert=\"";
	*out = (struct sample){-1, -1, -1};
	while (*s != '}') {
		const char *quote = strpbrk(s, "\"\n}");
		if (!quote || *quote != '"')
			return false;
		if (strncmp(s, layer, sizeof layer - 1) == 0)
			out->layer = label_number(quote + 1);
		else if (strncmp(s, expert, sizeof expert - 1) == 0)
			out->expert = label_number(quote + 1);
		if (!(s = value_end(quote + 1)))
			return false;
		s += *s == ',';
	}
	const char *number = s + 1 + strspn(s + 1, " ");
	char *end;
	if (number == s + 1 || *number < '0' || *number > '9')
		return false;
	out->rows = strtod(number, &end);
	return out->layer >= 0 && out->expert >= 0 && out->rows >= 0 && out->rows <= rows_max &&
	       out->rows == floor(out->rows) && (!*end || *end == ' ' || *end == '\r' || *end == '\n');
}

static int add_line(struct parser *p, const char *line)
{
	struct sample x;
	char what[128];
	if (!read_sample(line, &x))
		return unreadable(p);
	if (x.layer >= p->c->n_layers || x.expert >= p->c->experts.n) {
		snprintf(what, sizeof what,
			 "layer %lld, expert %lld, where the model has %d layers of %d experts",
			 (long long)x.layer, (long long)x.expert, p->c->n_layers, p->c->experts.n);
		return of_another(p, what);
	}
	if (!p->c->layers[x.layer].sparse) {
		snprintf(what, sizeof what, "layer %lld has no experts", (long long)x.layer);
		return of_another(p, what);
	}
	uint64_t *rows = &p->out->rows[x.layer * p->c->experts.n + x.expert];
	*rows += (uint64_t)x.rows;
	p->listed[x.layer * p->c->experts.n + x.expert]++;
	p->n_lines++;
	return *rows <= (uint64_t)rows_max ? 0 : unreadable(p);
}

/* ---- all lines ---- */

/* Check that all experts of a layer are listed, as a service lists them. */
static int check_lists(const struct parser *p)
{
	const int n = p->c->experts.n;
	for (int i = 0; i < p->c->n_layers * n; i++)
		if (p->listed[i] != p->listed[i / n * n])
			return err_why(p->why, -EINVAL,
				       "%s has %d counts of expert %d of layer %d, and %d of expert 0: a "
				       "part of the "
				       "text is missing, or it is of another model. " EXPERT_COUNTS_REMEDY,
				       p->from, p->listed[i], i % n, i / n, p->listed[i / n * n]);
	return p->n_lines ? 0
			  : err_why(p->why, -EINVAL, "%s has no rows of experts. " EXPERT_COUNTS_REMEDY,
				    p->from);
}

int expert_counts_parse(struct expert_counts *out, const char *text, const char *from,
			const struct model_config *c, struct why *why)
{
	struct parser p = {.out = out, .c = c, .from = from, .why = why};
	const size_t n = (size_t)c->n_layers * (size_t)c->experts.n;
	*out = (struct expert_counts){.n_layers = c->n_layers, .n_experts = c->experts.n};
	if (!n)
		return err_why(why, -EINVAL, "%s: the model is no mixture of experts", from);
	out->rows = xcalloc(n, sizeof *out->rows);
	p.listed = xcalloc(n, sizeof *p.listed);
	int rc = 0;
	for (const char *at = text, *end; !rc && at; at = end ? end + 1 : NULL) {
		end = strchr(at, '\n');
		p.line++;
		if (strncmp(at, series, sizeof series - 1) == 0)
			rc = add_line(&p, at + sizeof series - 1);
	}
	if (!rc)
		rc = check_lists(&p);
	free(p.listed);
	if (rc)
		expert_counts_fini(out);
	return rc;
}

int expert_counts_read(struct expert_counts *out, const char *path, const struct model_config *c,
		       struct why *why)
{
	char *text;
	size_t bytes;
	*out = (struct expert_counts){0};
	int rc = file_read(path, EXPERT_COUNTS_MAX, &text, &bytes, why);
	if (rc)
		return err_prefix(why, rc, "--expert-counts");
	if (strlen(text) != bytes)
		rc = err_why(why, -EINVAL, "--expert-counts: %s is no text: byte %zu is 0", path,
			     strlen(text));
	else
		rc = expert_counts_parse(out, text, path, c, why);
	free(text);
	return rc;
}

void expert_counts_fini(struct expert_counts *x)
{
	free(x->rows);
	*x = (struct expert_counts){0};
}
