#include "formats/place/packed.h"

#include <string.h>

enum {
	LANES = 16,      /* outputs of a tile */
	BLOCK_TILES = 4, /* tiles of a block; the last block of a linear layer has 1, 2 or 4 */
	LINE = 64,
	STEP = 32, /* inputs per step of mode bf16, and of a group up to GROUP_MAX */
	GROUP_MAX = 256,
	SEGMENT = 16,     /* groups of the integer modes are a multiple of this */
	INT8_GROUP = 128, /* group of floats that are converted to INT8 */
};

static const char *const names[PACKED_MODES] = {"f32", "bf16", "int16", "int8"};

enum packed_mode packed_mode(const char *compute)
{
	int m = 0;
	while (m < PACKED_MODES && strcmp(names[m], compute))
		m++;
	return m < PACKED_MODES ? (enum packed_mode)m : PACKED_F32;
}

const char *packed_mode_name(enum packed_mode m)
{
	return names[m];
}

enum packed_head packed_head(const char *name)
{
	return strcmp(name, "int8") == 0     ? PACKED_HEAD_INT8
	       : strcmp(name, "stored") == 0 ? PACKED_HEAD_STORED
					     : PACKED_HEAD_MODE;
}

/* Return whether floats are converted to INT8; head: PACKED_HEAD_MODE for weights that are no head. */
static bool to_int8(enum packed_mode m, enum packed_head head)
{
	return head == PACKED_HEAD_INT8 || (m == PACKED_INT8 && head == PACKED_HEAD_MODE);
}

/* Memory layout of a linear layer: codes, or floats if bits is 0. */
struct layout {
	int bits, group, super; /* super: 0 if there are no headers of super-groups */
	bool minimums, zeros;   /* per group */
	int zero;               /* zero of all groups, if there are no zeros per group */
	bool f16, e4m3;         /* scales are F16; codes are E4M3 */
	bool dots;              /* layout for the kernels of the integer modes */
	bool stored;            /* rows of a codebook stay as stored */
	size_t float_bytes;     /* bytes of a float */
};

static int up(int n, int unit)
{
	return (n + unit - 1) / unit;
}

/* ---- conversions by type ---- */

static bool is_whole(const float *table)
{
	for (int i = 0; i < 16; i++)
		if (!(table[i] >= -128 && table[i] <= 127) || table[i] != (float)(int)table[i])
			return false;
	return true;
}

static bool awq_like(const struct layout *f)
{
	return f->bits <= 4 && !f->minimums && f->super == f->group && f->f16;
}

/* Return the layout of codes that kernels read, if there is one. */
static struct layout layout_of(const struct weights_linear *l)
{
	const struct codes *c = &l->codes;
	if (l->kind == WEIGHTS_AWQ) {
		const int group = l->group < l->k ? l->group : l->k;
		return (struct layout){.bits = 4, .group = group, .super = group, .zeros = true, .f16 = true};
	}
	struct layout f = {.bits = c->bits,
			   .group = c->group,
			   .super = c->super,
			   .minimums = c->minimums,
			   .zeros = !c->minimums && c->zero<0, .zero = c->zero, .f16 = c->d_type == CODES_F16,
							    .stored = c->super_bytes> 0};
	if (c->table && c->bits == 4 && c->zero == 0 && !c->minimums && is_whole(c->table)) {
		f.bits = 8;
		f.zero = 128;
	} else if (c->table) {
		f.e4m3 = c->bits == 8;
	} else if (f.zeros && !awq_like(&f)) {
		f.zeros = false;
		f.minimums = true;
	}
	return f;
}

static bool has_constraint(const struct weights_linear *l, const struct layout *f)
{
	return l->kind == WEIGHTS_AWQ || !l->codes.table || f->bits == 8;
}

static bool takes(const struct weights_linear *l, const struct layout *f, enum packed_mode m)
{
	const bool whole = f->group >= l->k;
	if (f->e4m3)
		return m == PACKED_F32 || m == PACKED_INT16;
	if (!has_constraint(l, f))
		return false;
	if (m == PACKED_BF16)
		return !f->minimums && (f->zeros || f->zero <= (f->bits <= 4 ? 16 : 255)) &&
		       (whole || (f->group % STEP == 0 && f->group <= GROUP_MAX));
	return m == PACKED_F32 || whole || f->group % SEGMENT == 0;
}

/* ---- sizes ---- */

/* Compute the header bytes of a tile, per group and per super-group. */
static void heads(const struct layout *f, int *group, int *super)
{
	*super = 0;
	if (awq_like(f) && (!f->dots || f->zeros)) {
		*group = LINE;
	} else if (!f->f16 || (f->minimums && f->super == f->group)) {
		*group = f->minimums ? 128 : 64;
	} else if (f->super == f->group) {
		*group = 32;
	} else {
		*group = f->minimums ? 32 : 16;
		*super = f->minimums ? 64 : 32;
	}
}

static int lines(const struct layout *f, int inputs)
{
	if (f->bits <= 4)
		return up(inputs, 8);
	return f->bits <= 6 && f->group % 16 == 0 ? up(inputs, 16) * 3 : up(inputs, 4);
}

static int64_t tile_bytes(const struct layout *f, int k, enum packed_mode m)
{
	int64_t bytes = 0;
	int head, super;
	if (!f->bits)
		return m == PACKED_BF16 && f->float_bytes == 0 ? (int64_t)up(k, STEP) * STEP * LANES * 2
							       : (int64_t)k * LANES * (int64_t)f->float_bytes;
	heads(f, &head, &super);
	for (int k0 = 0; k0 < k; k0 += f->group) {
		const int len = k - k0 < f->group ? k - k0 : f->group;
		if (m == PACKED_BF16 && !f->dots) {
			bytes += LINE + (int64_t)up(len, STEP) * (f->bits <= 4 ? 4 : 8) * LINE;
			continue;
		}
		bytes += head + (int64_t)lines(f, len) * LINE + (k0 % f->super ? 0 : super);
	}
	return bytes;
}

static int64_t part_bytes(const struct weights_linear *l, const struct layout *f, enum packed_mode m)
{
	const int blocks = up(l->n, LANES * BLOCK_TILES), last = up(l->n, LANES) - (blocks - 1) * BLOCK_TILES;
	const int tiles = (blocks - 1) * BLOCK_TILES + (last >= 3 ? BLOCK_TILES : last);
	int64_t weights = tile_bytes(f, l->k, m) * tiles;
	if (f->stored)
		weights = (int64_t)codes_row_bytes(&l->codes) * l->n;
	weights = (weights + LINE - 1) / LINE * LINE;
	return weights + (l->bias.data ? (int64_t)up(l->n, 16) * 64 : 0);
}

static size_t dtype_bytes(enum config_dtype t)
{
	return t == CONFIG_F32 ? 4 : 2;
}

static struct layout int8_of_floats(int k)
{
	const int group = k < INT8_GROUP ? k : INT8_GROUP;
	return (struct layout){.bits = 8, .group = group, .super = group, .zero = 128, .dots = true};
}

/* Return the bytes of one linear layer; ordered: permuted inputs may stay permuted. */
static int64_t one_part(const struct weights_linear *l, enum packed_mode m, enum packed_head head,
			bool ordered)
{
	const bool integer = m == PACKED_INT16 || m == PACKED_INT8;
	struct layout f = {.float_bytes = m == PACKED_BF16 ? 0 : dtype_bytes(l->dtype)};
	if (l->kind != WEIGHTS_DENSE) {
		f = layout_of(l);
		f.dots = integer;
		if (!takes(l, &f, m) || (l->kind == WEIGHTS_CODES && l->codes.perm && !ordered))
			f = to_int8(m, head) && l->kind == WEIGHTS_CODES
				    ? int8_of_floats(l->k)
				    : (struct layout){.float_bytes = m == PACKED_BF16 ? 0 : 4,
						      .stored = f.stored && m == PACKED_BF16};
	} else if (to_int8(m, head)) {
		f = int8_of_floats(l->k);
	}
	return part_bytes(l, &f, m);
}

/* Return whether all of them are codes with the same input permutation that the mode can read. */
static bool one_order(const struct weights_linear *const *parts, int n, enum packed_mode m)
{
	for (int i = 0; i < n; i++) {
		const struct weights_linear *l = parts[i];
		const struct layout f = layout_of(l);
		if (l->kind != WEIGHTS_CODES || !l->codes.perm || !takes(l, &f, m) ||
		    memcmp(l->codes.perm, parts[0]->codes.perm, (size_t)l->k * sizeof *l->codes.perm))
			return false;
	}
	return true;
}

static int64_t all_parts(const struct weights_linear *const *parts, int n, enum packed_mode m,
			 enum packed_head head)
{
	const bool ordered = one_order(parts, n, m);
	int64_t bytes = ordered ? (int64_t)parts[0]->k * 4 : 0;
	for (int i = 0; i < n; i++)
		bytes += one_part(parts[i], m, head, ordered);
	return bytes;
}

int64_t packed_parts(const struct weights_linear *const *parts, int n, enum packed_mode m)
{
	return all_parts(parts, n, m, PACKED_HEAD_MODE);
}

int64_t packed_head_part(const struct weights_linear *l, enum packed_mode m, enum packed_head head)
{
	return all_parts(&l, 1, m, head);
}

/* Return the bytes of one linear layer of an expert. */
static int64_t expert_linear(const struct weights_linear *l, enum packed_mode m)
{
	return one_part(l, m, PACKED_HEAD_MODE, false);
}

int64_t packed_experts(const struct weights_layer *l, const bool *but, enum packed_mode m)
{
	int64_t bytes = 0;
	for (int e = 0; e < l->n_experts; e++)
		if (!but || !but[e])
			bytes += expert_linear(&l->experts[e].gate, m) + expert_linear(&l->experts[e].up, m) +
				 expert_linear(&l->experts[e].down, m);
	return bytes;
}

/* ---- a model ---- */

/* Return whether rows of the table can be read from the codes; other tables become F32. */
static bool gives_rows(const struct weights_linear *l, const struct layout *f)
{
	return has_constraint(l, f) && !f->e4m3 && !l->codes.perm && !f->zeros;
}

static struct packed_table codes_table(const struct weights_linear *l, bool is_head, enum packed_mode m,
				       enum packed_head head)
{
	struct layout f = layout_of(l);
	struct weights_linear floats = *l;
	if (!gives_rows(l, &f)) {
		floats.kind = WEIGHTS_DENSE;
		floats.dtype = CONFIG_F32;
		f = (struct layout){.float_bytes = m == PACKED_BF16 ? 0 : 4};
		return (struct packed_table){part_bytes(&floats, &f, m),
					     is_head && to_int8(m, head) ? one_part(&floats, m, head, false)
									 : 0};
	}
	if (is_head && m != PACKED_BF16 && takes(l, &f, m))
		return (struct packed_table){one_part(l, m, head, false), 0};
	f.dots = true;
	return (struct packed_table){part_bytes(l, &f, m), is_head ? one_part(l, m, head, false) : 0};
}

struct packed_table packed_table(const struct weights *w, const struct model_config *c, enum packed_mode m,
				 enum packed_head head)
{
	const bool is_head = !w->head.w || w->head.w == w->embed_codes.w;
	const struct weights_linear floats = {
		.n = w->embed.n / c->hidden, .k = c->hidden, .dtype = w->embed.dtype};
	if (w->embed_codes.w)
		return codes_table(&w->embed_codes, is_head, m, head);
	const struct layout f = {.float_bytes = m == PACKED_BF16 ? 0 : dtype_bytes(floats.dtype)};
	return (struct packed_table){part_bytes(&floats, &f, m),
				     is_head && to_int8(m, head) ? one_part(&floats, m, head, false) : 0};
}

/* Return the bytes of a router, which stays in floats in every mode. */
static int64_t router_bytes(const struct weights_linear *l)
{
	const struct layout f = {.float_bytes = dtype_bytes(l->dtype)};
	return l->w ? part_bytes(l, &f, PACKED_F32) : 0;
}

static int64_t layer_bytes(const struct weights_layer *l, enum packed_mode m)
{
	const struct weights_linear *qkv[] = {&l->q, &l->k, &l->v}, *gateup[] = {&l->gate, &l->up},
				    *o = &l->o, *down = &l->down;
	const struct weights_vec *vecs[] = {
		&l->attn_norm,   &l->ffn_norm,       &l->attn_post,     &l->ffn_post,       &l->q_norm,
		&l->k_norm,      &l->attn_norm_bias, &l->ffn_norm_bias, &l->attn_post_bias, &l->ffn_post_bias,
		&l->q_norm_bias, &l->k_norm_bias,    &l->choice_bias,   &l->sinks};
	const int plain = !l->gate.w; /* up alone */
	int64_t bytes = 0;
	for (size_t i = 0; i < sizeof vecs / sizeof *vecs; i++)
		bytes += 4 * (int64_t)vecs[i]->n;
	bytes += packed_parts(qkv, 3, m) + packed_parts(&o, 1, m);
	if (l->up.w)
		bytes += packed_parts(gateup + plain, 2 - plain, m) + packed_parts(&down, 1, m);
	return bytes + packed_experts(l, NULL, m) + router_bytes(&l->router) + router_bytes(&l->shared_gate);
}

int64_t packed_weights(const struct weights *w, const struct model_config *c, enum packed_mode m,
		       enum packed_head head)
{
	const struct packed_table table = packed_table(w, c, m, head);
	int64_t bytes = table.rows + table.head +
			4 * ((int64_t)w->norm.n + w->norm_bias.n + w->embed_norm.n + w->embed_norm_bias.n +
			     w->positions.n);
	if (w->head.w && w->head.w != w->embed_codes.w)
		bytes += packed_head_part(&w->head, m, head);
	for (int i = 0; i < w->n_layers; i++)
		bytes += layer_bytes(&w->layers[i], m);
	return bytes;
}
