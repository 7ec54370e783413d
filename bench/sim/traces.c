#include "bench/sim/traces.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/file.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double pi = 3.14159265358979323846;

/* ShareGPT, as the vLLM paper measured it, has 161.31 tokens per prompt and 337.99 per output on average.
 * The lognormals have these means: short prompts with a long tail (sigma 1.5), outputs spread over about an
 * order of magnitude (sigma 1).  mu = log(mean) - sigma^2 / 2. */
static const struct lengths sharegpt = {
	.prompt_mu = 3.9584,
	.prompt_sigma = 1.5,
	.output_mu = 5.3230,
	.output_sigma = 1.0,
	.prompt_max = 8192,
	.output_max = 4096,
};

/* ---- files ---- */

enum { FIELDS_MAX = 64 };

struct field {
	const char *p;
	size_t n;
};

/* State of reading a file; line is for errors. */
struct reader {
	const char *p, *end;
	size_t line;
	int column_time, column_prompt, column_output;
	struct why *why;
};

static void add(struct trace *t, struct arrival a)
{
	array_grow(t->v, t->cap, t->n + 1);
	t->v[t->n++] = a;
}

static int bad(const struct reader *r, const char *what, const struct field *f)
{
	int n = f->n < 40 ? (int)f->n : 40;
	return err_why(r->why, -EINVAL, "line %zu: %s: \"%.*s\"", r->line, what, n, f->p);
}

/* Split the next line at its commas; false at the end.  n also counts fields beyond FIELDS_MAX. */
static bool next_line(struct reader *r, struct field *fields, size_t *n)
{
	if (r->p == r->end)
		return false;
	const char *eol = memchr(r->p, '\n', (size_t)(r->end - r->p));
	const char *next = eol ? eol + 1 : r->end;
	const char *end = eol ? eol : r->end;
	if (end > r->p && end[-1] == '\r')
		end--;
	*n = 0;
	for (const char *p = r->p;; p++) {
		const char *comma = memchr(p, ',', (size_t)(end - p));
		const char *to = comma ? comma : end;
		if (*n < FIELDS_MAX)
			fields[*n] = (struct field){p, (size_t)(to - p)};
		++*n;
		if (!comma)
			break;
		p = comma;
	}
	r->p = next;
	r->line++;
	return true;
}

static bool field_is(const struct field *f, const char *name)
{
	return f->n == strlen(name) && memcmp(f->p, name, f->n) == 0;
}

static int read_heading(struct reader *r)
{
	struct field f[FIELDS_MAX];
	size_t n;
	r->column_time = r->column_prompt = r->column_output = -1;
	if (!next_line(r, f, &n))
		return err_why(r->why, -EINVAL, "it is empty");
	for (int i = 0; i < FIELDS_MAX && (size_t)i < n; i++) {
		if (field_is(&f[i], "TIMESTAMP"))
			r->column_time = i;
		else if (field_is(&f[i], "ContextTokens"))
			r->column_prompt = i;
		else if (field_is(&f[i], "GeneratedTokens"))
			r->column_output = i;
	}
	if (r->column_time < 0 || r->column_prompt < 0 || r->column_output < 0)
		return err_why(r->why, -EINVAL,
			       "line 1: the heading lacks TIMESTAMP, ContextTokens or GeneratedTokens");
	return 0;
}

/* Read n digits and advance; false if there are fewer, or other characters. */
static bool digits(const char **p, const char *end, int n, int64_t *out)
{
	*out = 0;
	for (int i = 0; i < n; i++, (*p)++) {
		if (*p == end || **p < '0' || **p > '9')
			return false;
		*out = *out * 10 + (**p - '0');
	}
	return true;
}

static bool mark(const char **p, const char *end, const char *any)
{
	if (*p == end || !strchr(any, **p) || !**p)
		return false;
	++*p;
	return true;
}

/* Read a fraction such as ".5" in microseconds; 0 without a point. */
static bool fraction(const char **p, const char *end, int64_t *us)
{
	int64_t unit = 100000;
	*us = 0;
	if (!mark(p, end, "."))
		return true;
	const char *from = *p;
	for (; *p < end && **p >= '0' && **p <= '9'; ++*p, unit /= 10)
		*us += (**p - '0') * unit;
	return *p > from;
}

/* Return the days since 1970 of a Gregorian date. */
static int64_t days_of(int64_t year, int64_t month, int64_t day)
{
	int64_t y = month <= 2 ? year - 1 : year, era = y / 400, of_era = y - era * 400;
	int64_t of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
	return era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468;
}

/* Read "Z", "+01:00" or nothing, in minutes. */
static bool zone(const char **p, const char *end, int64_t *minutes)
{
	int64_t h, m;
	*minutes = 0;
	if (*p == end || mark(p, end, "Z"))
		return true;
	bool minus = **p == '-';
	if (!mark(p, end, "+-") || !digits(p, end, 2, &h) || !mark(p, end, ":") || !digits(p, end, 2, &m))
		return false;
	*minutes = (h * 60 + m) * (minus ? -1 : 1);
	return h < 24 && m < 60;
}

static bool date_time(const char *p, const char *end, int64_t *us)
{
	int64_t year, month, day, h, m, s, part, minutes;
	if (!digits(&p, end, 4, &year) || !mark(&p, end, "-") || !digits(&p, end, 2, &month) ||
	    !mark(&p, end, "-") || !digits(&p, end, 2, &day) || !mark(&p, end, " T") ||
	    !digits(&p, end, 2, &h) || !mark(&p, end, ":") || !digits(&p, end, 2, &m) ||
	    !mark(&p, end, ":") || !digits(&p, end, 2, &s) || !fraction(&p, end, &part) ||
	    !zone(&p, end, &minutes) || p != end)
		return false;
	if (month < 1 || month > 12 || day < 1 || day > 31 || h > 23 || m > 59 || s > 60)
		return false;
	*us = ((days_of(year, month, day) * 24 + h) * 60 + m - minutes) * 60000000 + s * 1000000 + part;
	return true;
}

/* Read seconds: up to 12 digits and a fraction. */
static bool seconds(const char *p, const char *end, int64_t *us)
{
	int64_t whole, part;
	const char *q = p;
	while (q < end && *q >= '0' && *q <= '9')
		q++;
	if (q == p || q - p > 12 || !digits(&p, end, (int)(q - p), &whole) || !fraction(&p, end, &part) ||
	    p != end)
		return false;
	*us = whole * 1000000 + part;
	return true;
}

static bool count(const struct field *f, uint32_t *out)
{
	int64_t n;
	const char *p = f->p;
	if (f->n == 0 || f->n > 9 || !digits(&p, f->p + f->n, (int)f->n, &n) || n > TRACE_TOKENS_MAX)
		return false;
	*out = (uint32_t)n;
	return true;
}

static int read_row(const struct reader *r, const struct field *f, size_t n, struct arrival *a)
{
	int last = r->column_time > r->column_prompt ? r->column_time : r->column_prompt;
	last = last > r->column_output ? last : r->column_output;
	if (n <= (size_t)last)
		return err_why(r->why, -EINVAL, "line %zu: %zu fields where %d are due", r->line, n,
			       last + 1);
	const struct field *when = &f[r->column_time];
	*a = (struct arrival){0};
	if (!date_time(when->p, when->p + when->n, &a->at_us) &&
	    !seconds(when->p, when->p + when->n, &a->at_us))
		return bad(r, "TIMESTAMP is neither a date and time nor seconds", when);
	if (!count(&f[r->column_prompt], &a->n_prompt) || a->n_prompt == 0)
		return bad(r, "ContextTokens is not a number of tokens", &f[r->column_prompt]);
	if (!count(&f[r->column_output], &a->n_output))
		return bad(r, "GeneratedTokens is not a number of tokens", &f[r->column_output]);
	/* Some traces have empty outputs, but a computed prompt always yields a token. */
	a->n_output = a->n_output ? a->n_output : 1;
	return 0;
}

static int by_time(const void *a, const void *b)
{
	const struct arrival *x = a, *y = b;
	return (x->at_us > y->at_us) - (x->at_us < y->at_us);
}

/* Sort by time, and shift times to begin at 0.  Sorted files are left alone, because qsort is not stable. */
static void settle(struct trace *t)
{
	bool sorted = true;
	for (size_t i = 1; i < t->n; i++)
		sorted = sorted && t->v[i - 1].at_us <= t->v[i].at_us;
	if (!sorted)
		qsort(t->v, t->n, sizeof *t->v, by_time);
	int64_t first = t->n ? t->v[0].at_us : 0;
	for (size_t i = 0; i < t->n; i++)
		t->v[i].at_us -= first;
}

int trace_parse(const char *text, size_t n, struct trace *out, struct why *why)
{
	struct reader r = {.p = text, .end = text + n, .why = why};
	struct field f[FIELDS_MAX];
	size_t n_fields;
	*out = (struct trace){0};
	int rc = n ? read_heading(&r) : err_why(why, -EINVAL, "it is empty");
	while (!rc && next_line(&r, f, &n_fields)) {
		struct arrival a;
		if (n_fields == 1 && f[0].n == 0)
			continue;
		rc = read_row(&r, f, n_fields, &a);
		if (!rc)
			add(out, a);
	}
	if (!rc && out->n == 0)
		rc = err_why(why, -EINVAL, "no arrivals after the heading");
	if (rc)
		trace_fini(out);
	else
		settle(out);
	return rc;
}

int trace_read(const char *path, struct trace *out, struct why *why)
{
	const void *data;
	size_t n;
	int rc = file_map(path, &data, &n, why);
	if (rc)
		return rc;
	rc = trace_parse(data, n, out, why);
	file_unmap(data, n);
	return rc ? err_prefix(why, rc, "%s", path) : 0;
}

void trace_fini(struct trace *t)
{
	free(t->v);
	*t = (struct trace){0};
}

void trace_scale(struct trace *t, double factor)
{
	for (size_t i = 0; i < t->n; i++)
		t->v[i].at_us = (int64_t)((double)t->v[i].at_us / factor);
}

void trace_cut(struct trace *t, int64_t end_us)
{
	while (t->n && t->v[t->n - 1].at_us > end_us)
		t->n--;
}

/* ---- random numbers ---- */

uint64_t rng_next(struct rng *r)
{
	uint64_t x = r->state += 0x9e3779b97f4a7c15u;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return x ^ x >> 31;
}

double rng_unit(struct rng *r)
{
	return ((double)(rng_next(r) >> 11) + 0.5) * 0x1p-53;
}

double rng_exponential(struct rng *r)
{
	return -log(rng_unit(r));
}

/* Draw by Box-Muller, using one of its two values. */
static double rng_normal(struct rng *r)
{
	double radius = sqrt(2 * rng_exponential(r));
	return radius * cos(2 * pi * rng_unit(r));
}

/* Marsaglia and Tsang, "A simple method for generating gamma variables" (2000). */
double rng_gamma(struct rng *r, double shape)
{
	if (shape < 1)
		return rng_gamma(r, shape + 1) * pow(rng_unit(r), 1 / shape);
	double d = shape - 1.0 / 3, c = 1 / sqrt(9 * d);
	for (;;) {
		double x = rng_normal(r), v = 1 + c * x;
		if (v <= 0)
			continue;
		v = v * v * v;
		if (log(rng_unit(r)) < 0.5 * x * x + d - d * v + d * log(v))
			return d * v;
	}
}

/* ---- synthetic arrivals ---- */

int lengths_parse(const char *text, struct lengths *out, struct why *why)
{
	if (strcmp(text, "sharegpt") == 0) {
		*out = sharegpt;
		return 0;
	}
	const char *comma = strchr(text, ',');
	*out = (struct lengths){0};
	if (strncmp(text, "fixed:", 6) == 0 && comma) {
		struct field in = {text + 6, (size_t)(comma - text) - 6},
			     gen = {comma + 1, strlen(comma + 1)};
		if (count(&in, &out->fixed_prompt) && count(&gen, &out->fixed_output) && out->fixed_prompt &&
		    out->fixed_output)
			return 0;
	}
	return err_why(why, -EINVAL, "\"%.40s\" is neither sharegpt nor fixed:IN,OUT", text);
}

static uint32_t lognormal(struct rng *r, double mu, double sigma, uint32_t max)
{
	double x = exp(mu + sigma * rng_normal(r));
	return x < 1 ? 1 : x > max ? max : (uint32_t)x;
}

void lengths_draw(const struct lengths *l, struct rng *r, uint32_t *n_prompt, uint32_t *n_output)
{
	*n_prompt = l->fixed_prompt;
	*n_output = l->fixed_output;
	if (l->fixed_prompt)
		return;
	*n_prompt = lognormal(r, l->prompt_mu, l->prompt_sigma, l->prompt_max);
	*n_output = lognormal(r, l->output_mu, l->output_sigma, l->output_max);
}

/* Parse a finite number above 0 that ends with the text. */
static bool positive(const char *text, double *out)
{
	char *end;
	*out = strtod(text, &end);
	return end != text && !*end && isfinite(*out) && *out > 0;
}

int arrivals_parse(const char *text, double *shape, struct why *why)
{
	*shape = 1;
	if (strcmp(text, "poisson") == 0)
		return 0;
	/* With smaller shapes, the power in rng_gamma() underflows. */
	if (strncmp(text, "gamma:", 6) == 0 && positive(text + 6, shape) && *shape >= 0.01 && *shape <= 1e6)
		return 0;
	return err_why(why, -EINVAL, "\"%.40s\" is neither poisson nor gamma:SHAPE (0.01 to 1e6)", text);
}

void trace_synthetic(const struct synthetic *s, struct trace *out)
{
	struct rng gaps = {s->seed}, sizes = {~s->seed};
	double at = 0;
	*out = (struct trace){0};
	for (;;) {
		if (at > (double)s->duration_us)
			break;
		struct arrival a = {.at_us = (int64_t)at};
		lengths_draw(&s->lengths, &sizes, &a.n_prompt, &a.n_output);
		add(out, a);
		at += rng_gamma(&gaps, s->shape) / s->shape / s->rate * 1e6;
	}
}

int users_parse(const char *text, struct users *out, struct why *why)
{
	char *end;
	unsigned long n = strtoul(text, &end, 10);
	*out = (struct users){.n = (uint32_t)n, .skew = 1};
	bool ok = *text >= '0' && *text <= '9' && n >= 1 && n <= TRACE_USERS_MAX;
	if (ok && *end == ':')
		ok = positive(end + 1, &out->skew) && out->skew >= 1 && out->skew <= 1e9;
	else
		ok = ok && !*end;
	if (!ok)
		return err_why(why, -EINVAL, "\"%.40s\" is not N or N:SKEW (up to %d users, SKEW >= 1)", text,
			       TRACE_USERS_MAX);
	return 0;
}

void trace_users(struct trace *t, const struct users *u, uint64_t seed)
{
	struct rng r = {seed ^ 0x75736572u};
	double *upto = xmalloc(u->n * sizeof *upto), sum = 0; /* cumulative shares */
	for (uint32_t i = 0; i < u->n; i++) {
		double share = u->n > 1 ? pow(u->skew, -(double)i / (u->n - 1)) : 1;
		upto[i] = sum += share;
	}
	for (size_t i = 0; i < t->n; i++) {
		double x = rng_unit(&r) * sum;
		uint32_t lo = 0, hi = u->n - 1; /* binary search for the first user with upto > x */
		while (lo < hi) {
			uint32_t mid = lo + (hi - lo) / 2;
			if (upto[mid] > x)
				hi = mid;
			else
				lo = mid + 1;
		}
		t->v[i].user = lo;
	}
	free(upto);
}

void trace_keep_user(struct trace *t, uint32_t user)
{
	size_t n = 0;
	for (size_t i = 0; i < t->n; i++)
		if (t->v[i].user == user)
			t->v[n++] = t->v[i];
	t->n = n;
}
