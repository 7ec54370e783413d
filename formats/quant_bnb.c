/* quant_bnb.c - finds and checks the tensors of a layer that bitsandbytes has quantized. */
#include "formats/quant_impl.h"

#include "base/json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { STATE_MAX = 4096 }; /* bytes of a quant_state */

/* The 16 values of NF4: quantiles of the normal distribution, scaled to -1 .. 1 (arXiv:2305.14314). */
static const float nf4[16] = {-1,
			      -0.6961928009986877f,
			      -0.5250730514526367f,
			      -0.39491748809814453f,
			      -0.28444138169288635f,
			      -0.18477343022823334f,
			      -0.09105003625154495f,
			      0,
			      0.07958029955625534f,
			      0.16093020141124725f,
			      0.24611230194568634f,
			      0.33791524171829224f,
			      0.44070982933044434f,
			      0.5626170039176941f,
			      0.7229568362236023f,
			      1};

/* The 16 values of bitsandbytes' FP4: a sign, two bits of exponent and one of mantissa; the largest is 1.
 * Both zeros are positive. */
#define FP4_SIZES(sign)                                                                                      \
	sign 0.0625f / 12, sign 8.0f / 12, sign 1.0f, sign 4.0f / 12, sign 0.5f, sign 2.0f / 12, sign 0.25f
static const float fp4[16] = {0, FP4_SIZES(+), 0, FP4_SIZES(-)};

/* The fields of a quant_state. */
struct state {
	int block, nested_block;
	double offset;
};

static int state_error(const struct quant_search *f, const struct st_tensor *t, const char *text)
{
	return err_why(f->why, -EINVAL, "tensor %s: %s", t->name, text);
}

/* Check that the state's shape is the layer's. */
static bool is_shape(const struct quant_search *f, const json_t *shape)
{
	return json_array_size(shape) == 2 && json_integer_value(json_array_get(shape, 0)) == f->s->n &&
	       json_integer_value(json_array_get(shape, 1)) == f->s->k;
}

static int read_state(const struct quant_search *f, const struct st_tensor *t, const json_t *o,
		      struct state *out)
{
	const char *type = NULL, *want = f->s->layout == QUANT_NF4 ? "nf4" : "fp4";
	int64_t block = 0, nested = 256;
	int rc;
	if (!json_is_object(o))
		return state_error(f, t, "no JSON object");
	if ((rc = json_get_str(o, "quant_type", &type, f->why)) ||
	    (rc = json_get_int(o, "blocksize", 8, 1 << 20, &block, f->why)) ||
	    (rc = json_get_int(o, "nested_blocksize", 1, 1 << 20, &nested, f->why)) ||
	    (rc = json_get_num(o, "nested_offset", &out->offset, f->why)))
		return err_prefix(f->why, rc, "tensor %s", t->name);
	if (!type || strcmp(type, want) != 0)
		return err_why(f->why, -EINVAL, "tensor %s: quant_type is %.40s, the configuration needs %s",
			       t->name, type ? type : "missing", want);
	if (!is_shape(f, json_get(o, "shape")))
		return err_why(f->why, -EINVAL, "tensor %s: shape is not [%d, %d]", t->name, f->s->n,
			       f->s->k);
	if (block & (block - 1))
		return state_error(f, t, "blocksize must be a power of 2");
	if (!isfinite((float)out->offset))
		return state_error(f, t, "nested_offset is no scale");
	out->block = (int)block;
	out->nested_block = (int)nested;
	return 0;
}

/* Read weight.quant_state.bitsandbytes__nf4 or __fp4: JSON in bytes. */
static int need_state(const struct quant_search *f, struct state *out)
{
	const struct st_tensor *t =
		quant_look(f->files, f->l->name,
			   f->s->layout == QUANT_NF4 ? "weight.quant_state.bitsandbytes__nf4"
						     : "weight.quant_state.bitsandbytes__fp4");
	json_t *o = NULL;
	if (!t)
		return err_why(f->why, -ENOENT,
			       "tensor %s.weight.quant_state.bitsandbytes__%s is missing: only models that "
			       "bitsandbytes has saved in 4 bits can be read",
			       f->l->name, f->s->layout == QUANT_NF4 ? "nf4" : "fp4");
	if (t->dtype != ST_U8 || t->bytes > STATE_MAX)
		return state_error(f, t, "JSON in bytes (U8) is needed");
	int rc = json_parse(t->data, t->bytes, &o, f->why);
	rc = rc ? err_prefix(f->why, rc, "tensor %s", t->name) : read_state(f, t, o, out);
	json_decref(o);
	quant_use(f, t);
	return rc;
}

/* Find a tensor of n values of F32, all finite. */
static int need_floats(const struct quant_search *f, const char *part, int64_t n, const unsigned char **out)
{
	enum codes_float unused;
	const int rc = quant_need(f, part, ST_F32, 0, n, out);
	return rc ? rc
		  : quant_check_floats(f, quant_look(f->files, f->l->name, part), QUANT_SCALE_F32, &unused);
}

/* Check that the stored table, which the package ignores, is that of the type. */
static int check_map(const struct quant_search *f, const float *table)
{
	const unsigned char *map;
	int rc = need_floats(f, "weight.quant_map", 16, &map);
	for (int i = 0; !rc && i < 16; i++) {
		float v;
		memcpy(&v, map + 4 * i, 4);
		if (fabsf(v - table[i]) > 1e-6f)
			rc = err_why(f->why, -EINVAL, "tensor %s.weight.quant_map: value %d is %g, %s has %g",
				     f->l->name, i, (double)v, f->q->name, (double)table[i]);
	}
	return rc;
}

/* Find the scales of blocks: F32, or bytes with scales of their own. */
static int need_absmax(const struct quant_search *f, const struct state *state, int64_t blocks)
{
	struct quant_stored *s = f->s;
	const int64_t nested = (blocks + state->nested_block - 1) / state->nested_block;
	int rc;
	s->absmax = (struct quant_absmax){.block = state->block, .nested_block = state->nested_block};
	if (!quant_look(f->files, f->l->name, "weight.nested_absmax"))
		return need_floats(f, "weight.absmax", blocks, &s->scales);
	s->absmax.offset = (float)state->offset;
	if ((rc = quant_need(f, "weight.absmax", ST_U8, 0, blocks, &s->scales)) ||
	    (rc = need_floats(f, "weight.nested_quant_map", 256, &s->absmax.map)))
		return rc;
	return need_floats(f, "weight.nested_absmax", nested, &s->absmax.nested);
}

int quant_find_bnb4(struct quant_search *f, struct codes *c)
{
	struct quant_stored *s = f->s;
	const struct st_tensor *t = quant_look(f->files, f->l->name, "weight");
	const int64_t values = (int64_t)s->n * s->k, want[] = {(values + 1) / 2, 1};
	const float *table = s->layout == QUANT_NF4 ? nf4 : fp4;
	struct state state = {0};
	int rc = need_state(f, &state);
	if (rc)
		return rc;
	if (!t)
		return err_why(f->why, -ENOENT, "tensor %s.weight is missing", f->l->name);
	if ((int64_t)t->bytes != want[0]) /* of any type: bnb_4bit_quant_storage */
		return quant_wrong_shape(f, t, want, 2);
	quant_use(f, t);
	s->q = t->data;
	if ((rc = check_map(f, table)) ||
	    (rc = need_absmax(f, &state, (values + state.block - 1) / state.block)))
		return rc;
	/* The largest groups that divide the rows and are within blocks. */
	int group = state.block;
	while (s->k % group)
		group /= 2;
	s->group = c->group = c->super = group;
	f->groups = s->k / group;
	c->zero = 0;
	c->table = table;
	c->d_type = CODES_F32;
	return 0;
}

int quant_find_llm_int8(struct quant_search *f, struct codes *c)
{
	struct quant_stored *s = f->s;
	const struct st_tensor *format = quant_look(f->files, f->l->name, "weight_format");
	int rc = quant_need(f, "weight", ST_I8, s->n, s->k, &s->q);
	if (rc || (rc = need_floats(f, "SCB", s->n, &s->scales)))
		return rc;
	if (format && (format->dtype != ST_U8 || format->bytes != 1 || *(const unsigned char *)format->data))
		return err_why(f->why, -ENOTSUP, "tensor %s: only weights row by row (0) are supported",
			       format->name);
	if (format)
		quant_use(f, format);
	s->scale_type = QUANT_SCALE_F32;
	s->scale_n = 1;
	s->whole = 1.0f / 127;
	c->zero = 128;
	c->d_type = CODES_F32;
	return 0;
}
