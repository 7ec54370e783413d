#include "bench/sim/samples.h"

#include "base/alloc.h"

#include <math.h>
#include <stdlib.h>

void samples_reserve(struct samples *s, size_t n)
{
	if (n <= s->cap)
		return;
	s->cap = n;
	s->x = xrealloc(s->x, s->cap, sizeof *s->x);
}

void samples_add(struct samples *s, double x)
{
	array_grow(s->x, s->cap, s->n + 1);
	s->x[s->n++] = x;
	s->sorted = false;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

double samples_percentile(struct samples *s, double p)
{
	if (!s->n)
		return 0;
	if (!s->sorted)
		qsort(s->x, s->n, sizeof *s->x, compare);
	s->sorted = true;
	double at = p / 100 * (double)(s->n - 1);
	size_t i = (size_t)at;
	return i + 1 < s->n ? s->x[i] + (at - (double)i) * (s->x[i + 1] - s->x[i]) : s->x[s->n - 1];
}

double samples_mean(const struct samples *s)
{
	double sum = 0;
	for (size_t i = 0; i < s->n; i++)
		sum += s->x[i];
	return s->n ? sum / (double)s->n : 0;
}

double samples_std(const struct samples *s)
{
	double mean = samples_mean(s), sum = 0;
	for (size_t i = 0; i < s->n; i++)
		sum += (s->x[i] - mean) * (s->x[i] - mean);
	return s->n ? sqrt(sum / (double)s->n) : 0;
}

double samples_max(struct samples *s)
{
	return samples_percentile(s, 100);
}

void samples_fini(struct samples *s)
{
	free(s->x);
	*s = (struct samples){0};
}
