#include "cli/models/tensor_stats.h"

#include "base/alloc.h"
#include "base/codes.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 1 << 16 };

static void add(struct tensor_stats *s, const float *x, int64_t n)
{
	double sum = 0;
	for (int64_t i = 0; i < n; i++) {
		const double v = (double)x[i];
		if (!isfinite(v)) {
			s->n_infinite++;
			continue;
		}
		s->min = v < s->min ? v : s->min;
		s->max = v > s->max ? v : s->max;
		s->n_zero += v == 0;
		sum += v;
	}
	s->n += n;
	s->mean += sum; /* holds the sum until the end */
}

static void read_floats(struct tensor_stats *s, const void *data, enum config_dtype type, int64_t n)
{
	float *x = xmalloc(CHUNK * sizeof *x);
	const size_t each = type == CONFIG_F32 ? 4 : 2;
	for (int64_t i = 0; i < n; i += CHUNK) {
		const int some = n - i < CHUNK ? (int)(n - i) : CHUNK;
		weights_to_f32(&(struct weights_vec){.data = (const char *)data + (size_t)i * each,
						     .dtype = type,
						     .n = some},
			       x);
		add(s, x, some);
	}
	free(x);
}

static void read_codes(struct tensor_stats *s, const struct codes *c)
{
	const int rows = c->k < CHUNK ? CHUNK / c->k : 1;
	float *x = xmalloc((size_t)rows * (size_t)c->k * sizeof *x);
	for (int n0 = 0; n0 < c->n; n0 += rows) {
		const int n1 = c->n - n0 < rows ? c->n : n0 + rows;
		codes_floats(c, n0, n1, x);
		add(s, x, (int64_t)(n1 - n0) * c->k);
	}
	free(x);
}

static uint32_t word_at(const void *p, size_t i)
{
	uint32_t x;
	memcpy(&x, (const char *)p + 4 * i, 4);
	return x;
}

/* The layout is described in weights.h. */
static void read_awq(struct tensor_stats *s, const struct weights_linear *l)
{
	const size_t words = (size_t)l->n / 8;
	float *scales = xmalloc((size_t)l->n * sizeof *scales), *x = xmalloc((size_t)l->n * sizeof *x);
	for (int k = 0; k < l->k; k++) {
		const size_t g = (size_t)(k / l->group);
		if (k % l->group == 0)
			weights_to_f32(
				&(struct weights_vec){.data = (const char *)l->scales + g * (size_t)l->n * 2,
						      .dtype = CONFIG_F16,
						      .n = l->n},
				scales);
		for (size_t j = 0; j < words; j++) {
			const uint32_t q = word_at(l->w, (size_t)k * words + j),
				       z = word_at(l->qzeros, g * words + j);
			for (int c = 0; c < 8; c++) {
				const size_t n = 8 * j + (size_t)c;
				const int at = 4 * codes_awq_nibble(c);
				x[n] = scales[n] * (float)((int)(q >> at & 15) - (int)(z >> at & 15));
			}
		}
		add(s, x, l->n);
	}
	free(scales);
	free(x);
}

struct search {
	const void *data;
	const struct weights_linear *found;
};

static void look(void *ctx, const struct weights_linear *l, bool head)
{
	struct search *s = ctx;
	(void)head;
	if (l->w == s->data && l->kind != WEIGHTS_DENSE)
		s->found = l;
}

/* Return the quantized layer that has its codes at data; NULL: none. */
static const struct weights_linear *layer_at(const struct weights *w, const void *data)
{
	struct search s = {.data = data};
	if (!data)
		return NULL;
	if (w->embed_codes.w == data)
		return &w->embed_codes;
	weights_each(w, look, &s);
	return s.found;
}

bool tensor_stats_read(const struct weights *w, const struct weights_tensor *t, struct tensor_stats *out)
{
	const struct weights_linear *l = layer_at(w, t->data);
	*out = (struct tensor_stats){.min = INFINITY, .max = -INFINITY};
	if (l && l->kind == WEIGHTS_CODES)
		read_codes(out, &l->codes);
	else if (l)
		read_awq(out, l);
	else if (strcmp(t->type, "F32") == 0)
		read_floats(out, t->data, CONFIG_F32, (int64_t)(t->bytes / 4));
	else if (strcmp(t->type, "F16") == 0)
		read_floats(out, t->data, CONFIG_F16, (int64_t)(t->bytes / 2));
	else if (strcmp(t->type, "BF16") == 0)
		read_floats(out, t->data, CONFIG_BF16, (int64_t)(t->bytes / 2));
	const int64_t finite = out->n - out->n_infinite;
	out->mean = finite ? out->mean / (double)finite : 0;
	if (!finite)
		out->min = out->max = 0;
	return out->n > 0;
}
