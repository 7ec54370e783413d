#include "quant/convert/tensor_plan.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/file.h"
#include "cli/terminal/term.h"
#include "formats/family.h"
#include "formats/gguf.h"
#include "formats/weights.h"
#include "kernels/half.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE_BYTES = 4 << 20, PROGRESS_US = 200000 };

struct tensor_plan_item *tensor_plan_add(struct tensor_plan *p)
{
	array_grow(p->items, p->cap, p->n + 1);
	p->items[p->n] = (struct tensor_plan_item){.slot = -1};
	return &p->items[p->n++];
}

void tensor_plan_fini(struct tensor_plan *p)
{
	free(p->items);
	*p = (struct tensor_plan){0};
}

int tensor_plan_copy(struct tensor_plan *p, const struct st_tensor *t, struct why *why)
{
	struct tensor_plan_item *item = tensor_plan_add(p);
	if (strlen(t->name) >= sizeof item->name || t->n_dims > WRITER_DIMS_MAX)
		return err_why(
			why, -ENOTSUP,
			"tensor %.200s has %d dimensions, or too long a name; up to %d and %zu bytes can "
			"be written",
			t->name, t->n_dims, WRITER_DIMS_MAX, sizeof item->name - 1);
	snprintf(item->name, sizeof item->name, "%s", t->name);
	item->source = t->name;
	item->type = item->source_type = st_dtype_name(t->dtype);
	item->n_dims = t->n_dims;
	memcpy(item->shape, t->shape, sizeof item->shape);
	item->data = t->data;
	item->mapped = true;
	return 0;
}

int tensor_plan_permute(struct tensor_plan_item *p, const struct model_config *c, enum name_part part,
			bool halves, struct why *why)
{
	if (!family_permutes(c->family) || (part != NAME_Q && part != NAME_K))
		return 0;
	p->heads = part == NAME_Q ? c->n_heads : c->n_kv_heads;
	p->halves = halves;
	return p->shape[0] == (int64_t)p->heads * c->head_dim
		       ? 0
		       : err_why(why, -EINVAL, "tensor %s is not of %d heads of %d values", p->source,
				 p->heads, c->head_dim);
}

int tensor_plan_check(const char *src, const struct model_config *c, struct why *why)
{
	struct weights *w = NULL;
	const int rc = weights_open(src, c, &w, why);
	weights_close(w);
	return rc;
}

void tensor_plan_leave_out(struct tensor_plan *p, const struct model_config *c)
{
	p->n_left_out++;
	p->left_out_from = c->n_layers;
}

int tensor_plan_declare(struct tensor_plan *p, struct writer *w, struct why *why)
{
	if (p->n_left_out)
		term_note(
			"left out, since quern does not read them: layers from %d on, which predict further "
			"tokens (MTP): tensors=%d",
			p->left_out_from, p->n_left_out);
	for (size_t i = 0; i < p->n; i++) {
		struct tensor_plan_item *t = &p->items[i];
		const int outer = t->stack ? 1 : 0;
		struct writer_tensor to = {.name = t->name, .type = t->type, .n_dims = t->n_dims + outer};
		if (t->stack && t->place) {
			t->slot = p->items[i - 1].slot;
			continue;
		}
		to.shape[0] = t->stack;
		memcpy(to.shape + outer, t->shape, sizeof to.shape - (size_t)outer * sizeof *to.shape);
		t->slot = writer_declare(w, &to, why);
		if (t->slot < 0)
			return t->slot;
	}
	return 0;
}

/* ---- values ---- */

enum real { REAL_F32, REAL_F16, REAL_BF16, REAL_NONE };

static enum real real_of(const char *type)
{
	static const char *const names[] = {"F32", "F16", "BF16"};
	for (int i = 0; i < REAL_NONE; i++)
		if (strcmp(type, names[i]) == 0)
			return (enum real)i;
	return REAL_NONE;
}

bool tensor_plan_is_float(const char *type)
{
	return real_of(type) != REAL_NONE;
}

static size_t real_bytes(enum real t)
{
	return t == REAL_F32 ? 4 : 2;
}

/* Return the bytes of a row of the source; 0: its type is not known here, and it is copied. */
static size_t source_row_bytes(const struct tensor_plan_item *t, int64_t columns)
{
	enum gguf_type type;
	int values, bytes;
	const enum real real = real_of(t->source_type);
	if (real != REAL_NONE)
		return (size_t)columns * real_bytes(real);
	if (!t->encode || !gguf_type_of(t->source_type, &type, &values, &bytes))
		return 0;
	return (size_t)(columns / values) * (size_t)bytes;
}

/* Decode rows of blocks of a GGUF type. */
static void decode_blocks(const char *name, const void *in, int64_t rows, int64_t columns, float *out)
{
	enum gguf_type type;
	int values, bytes;
	struct codes c;
	const bool known = gguf_type_of(name, &type, &values, &bytes) &&
			   gguf_codes(type, (int)rows, (int)columns, in, &c);
	assert(known);
	codes_floats(&c, 0, (int)rows, out);
}

static void decode(enum real t, const void *in, size_t n, float *out)
{
	for (size_t i = 0; i < n; i++) {
		uint16_t h = 0;
		if (t == REAL_F32)
			memcpy(&out[i], (const char *)in + i * 4, 4);
		else
			memcpy(&h, (const char *)in + i * 2, 2);
		if (t == REAL_F16)
			out[i] = half_from_f16(h);
		if (t == REAL_BF16)
			out[i] = half_from_bf16(h);
	}
}

/* Store n values; return how many: fewer than n if a value is not exact. */
static size_t store(enum real t, const float *in, size_t n, void *out)
{
	if (t == REAL_F32) {
		memcpy(out, in, n * 4);
		return n;
	}
	for (size_t i = 0; i < n; i++) {
		uint16_t h = 0;
		uint32_t u;
		memcpy(&u, &in[i], 4);
		if (t == REAL_BF16 ? (u & 0xffff) != 0 : !half_to_f16(in[i], &h))
			return i;
		if (t == REAL_BF16)
			h = (uint16_t)(u >> 16);
		memcpy((char *)out + i * 2, &h, 2);
	}
	return n;
}

/* Add `more` to the values, each only if subtracting it again gives the same value and sign.  Return how many
 * were added. */
static size_t add_exactly(float *x, size_t n, float more)
{
	for (size_t i = 0; i < n; i++) {
		const float sum = x[i] + more;
		/* Much smaller values vanish even in a sum of doubles. */
		if ((double)sum != (double)x[i] + (double)more || sum - more != x[i] ||
		    (x[i] == 0 && signbit(x[i])))
			return i;
		x[i] = sum;
	}
	return n;
}

/* ---- one tensor ---- */

struct run {
	struct writer *w;
	const struct tensor_plan_item *t;
	int64_t n_rows, columns; /* rows to permute; for a vector its values, as rows of one column */
	size_t from_row, to_row; /* bytes of a row */
	enum real from, to;
	unsigned char *picked, *out; /* a chunk in the order of the result, and as stored */
	float *values;
	const char *doing;
	int64_t started_us, drawn_us;
	double done, total;
	struct why *why;
};

/* Return the source row that becomes this row. */
static int64_t source_row(const struct run *r, int64_t row)
{
	if (!r->t->heads)
		return row;
	const int64_t size = r->n_rows / r->t->heads, half = size / 2, head = row / size * size,
		      i = row % size;
	return head + (r->t->halves ? i % half * 2 + i / half : i % 2 * half + i / 2);
}

static int inexact(const struct run *r, float value, int64_t at)
{
	const struct tensor_plan_item *t = r->t;
	if (t->add != 0)
		return err_why(r->why, -ERANGE,
			       "tensor %s has the value %.9g (number %" PRId64
			       "), to which %g cannot be added without a loss",
			       t->source, (double)value, at, (double)t->add);
	return err_why(r->why, -ERANGE,
		       "tensor %s has the value %.9g (number %" PRId64 ") in %s, which %s does not hold",
		       t->source, (double)value, at, t->source_type, t->type);
}

/* Count leading values that encoders accept: finite, and within the range of F16. */
static size_t count_encodable(const float *x, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!(fabsf(x[i]) <= 65504))
			return i;
	return n;
}

/* Convert rows row0 .. row0 + n - 1 to the result's type and order. */
static int change(const struct run *r, int64_t row0, int64_t n, const void **out)
{
	const struct tensor_plan_item *t = r->t;
	const unsigned char *from = (const unsigned char *)t->data + (size_t)row0 * r->from_row;
	if (t->heads) {
		for (int64_t i = 0; i < n; i++)
			memcpy(r->picked + (size_t)i * r->from_row,
			       (const unsigned char *)t->data + (size_t)source_row(r, row0 + i) * r->from_row,
			       r->from_row);
		from = r->picked;
	}
	*out = from;
	if (r->from == r->to && !t->encode && t->add == 0)
		return 0;
	const size_t values = (size_t)(n * r->columns);
	if (r->from == REAL_NONE)
		decode_blocks(t->source_type, from, n, r->columns, r->values);
	else
		decode(r->from, from, values, r->values);
	size_t good = t->add != 0 ? add_exactly(r->values, values, t->add) : values;
	if (good == values && t->encode)
		good = count_encodable(r->values, values);
	if (good == values && t->encode)
		t->encode(r->values, (size_t)n, (size_t)r->columns, t->importance, r->out);
	else if (good == values)
		good = store(r->to, r->values, values, r->out);
	*out = r->out;
	return good == values ? 0 : inexact(r, r->values[good], row0 * r->columns + (int64_t)good);
}

static void draw(struct run *r, int64_t bytes)
{
	const int64_t now = clock_us();
	r->done += (double)bytes;
	if (now - r->drawn_us < PROGRESS_US)
		return;
	r->drawn_us = now;
	term_progress(r->doing, r->done, r->total, (double)(now - r->started_us) / 1e6);
}

static int run_item(struct run *r)
{
	const struct tensor_plan_item *t = r->t;
	const int64_t w_rows = t->stack ? t->shape[0] : writer_n_rows(r->w, t->slot);
	const int64_t row0 = t->stack ? t->place * t->shape[0] : 0;
	int rc = 0;
	r->from = real_of(t->source_type);
	r->to = real_of(t->type);
	r->to_row = writer_row_bytes(r->w, t->slot);
	r->columns = t->n_dims ? t->shape[t->n_dims - 1] : 1;
	r->n_rows = w_rows;
	r->from_row = source_row_bytes(t, r->columns);
	if (!r->from_row)
		r->from_row = r->to_row;
	if (t->n_dims == 1 && t->heads) { /* a bias: its values are permuted like rows */
		r->n_rows = r->columns;
		r->columns = 1;
		r->from_row = real_bytes(r->from);
	}
	const size_t widest = (size_t)r->columns * 4 > r->from_row ? (size_t)r->columns * 4 : r->from_row;
	int64_t piece = widest ? PIECE_BYTES / (int64_t)widest : 1;
	if (piece < 1)
		piece = 1;
	if (w_rows == 1)
		piece = r->n_rows;
	r->picked = xmalloc((size_t)piece * r->from_row + 1);
	r->values = xmalloc((size_t)piece * (size_t)r->columns * 4 + 4);
	r->out = xmalloc((size_t)piece *
				 (r->to_row > (size_t)r->columns * 4 ? r->to_row : (size_t)r->columns * 4) +
			 4);
	for (int64_t row = 0; !rc && row < r->n_rows; row += piece) {
		const int64_t n = piece < r->n_rows - row ? piece : r->n_rows - row;
		const void *data;
		if (interrupt_pending())
			rc = err_why(r->why, -EINTR, "interrupted: nothing was written");
		if (!rc)
			rc = change(r, row, n, &data);
		if (!rc)
			rc = writer_rows(r->w, t->slot, w_rows == 1 ? row0 : row0 + row, w_rows == 1 ? 1 : n,
					 data, r->why);
		if (!t->heads && t->mapped)
			file_forget((const char *)t->data + (size_t)row * r->from_row,
				    (size_t)n * r->from_row);
		draw(r, n * (int64_t)r->from_row);
	}
	if (t->mapped)
		file_forget(t->data, (size_t)r->n_rows * r->from_row);
	free(r->picked);
	free(r->values);
	free(r->out);
	return rc;
}

static double source_bytes(const struct tensor_plan *p, const struct writer *w)
{
	double all = 0;
	for (size_t i = 0; i < p->n; i++) {
		const struct tensor_plan_item *t = &p->items[i];
		const double rows = (double)(t->stack ? t->shape[0] : writer_n_rows(w, t->slot));
		const size_t row = source_row_bytes(t, t->n_dims ? t->shape[t->n_dims - 1] : 1);
		all += rows * (double)(row ? row : writer_row_bytes(w, t->slot));
	}
	return all;
}

int tensor_plan_run(const struct tensor_plan *p, struct writer *w, const char *doing, struct why *why)
{
	struct run r = {
		.w = w, .doing = doing, .started_us = clock_us(), .total = source_bytes(p, w), .why = why};
	int rc = 0;
	for (size_t i = 0; !rc && i < p->n; i++) {
		r.t = &p->items[i];
		rc = run_item(&r);
	}
	term_progress_end();
	return rc;
}
