/* weights_experts.c - finds the experts and the router of a layer: one tensor for each matrix of an expert,
 * or stacks of all experts, in floats or in MXFP4. */
#include "formats/weights_impl.h"

#include "base/alloc.h"
#include "base/err.h"
#include "formats/family.h"

#include <stdio.h>
#include <string.h>

/* Find a router: always in plain floats. */
static int find_router(const struct finder *f, const char *module, int n, struct weights_linear *l)
{
	if (quant_has(f->files, module))
		return err_why(f->why, -ENOTSUP,
			       "%s is a router, and quantized: F32, F16 or BF16 is "
			       "needed",
			       module);
	return finder_linear(f, module, n, f->c->hidden, f->c->experts.router_bias, l);
}

/* Find a stack of experts, with n_dims sizes; the first size is the number of experts. */
static int find_of_experts(const struct finder *f, const char *prefix, const char *name, enum st_dtype dtype,
			   const int64_t *sizes, int n_dims, const unsigned char **out)
{
	char whole[192], have[128];
	snprintf(whole, sizeof whole, "%s%s", prefix, name);
	const struct st_tensor *t = safetensors_find(f->files, whole);
	bool ok = t && t->n_dims == n_dims;
	if (!t)
		return err_why(f->why, -ENOENT, "tensor %s is missing", whole);
	for (int i = 0; ok && i < n_dims; i++)
		ok = t->shape[i] == sizes[i];
	finder_shape(t, have, sizeof have);
	if (!ok)
		return err_why(f->why, -EINVAL,
			       "tensor %s has the shape [%s], the configuration needs another: %lld experts, "
			       "%lld outputs, %lld values or blocks of 32",
			       whole, have, (long long)sizes[0], (long long)sizes[1],
			       n_dims > 2 ? (long long)sizes[2] : 1LL);
	if (t->dtype != dtype)
		return err_why(f->why, -ENOTSUP, "tensor %s is %s; %s is needed", whole,
			       st_dtype_name(t->dtype), st_dtype_name(dtype));
	finder_use(f, t);
	*out = t->data;
	return 0;
}

/* One of the two matrices of all experts in MXFP4.  bias: n values per expert. */
struct fused {
	char name[160];
	int n, k;    /* outputs and inputs of an expert's layer */
	size_t step; /* layers whose rows alternate */
	const unsigned char *blocks, *exponents;
	struct weights_vec bias;
};

/* out: n, k and step are set. */
static int find_fused_experts(const struct finder *f, const char *prefix, const char *name, struct fused *out)
{
	const int n = out->n * (int)out->step, k = out->k;
	const int64_t e = f->c->experts.n, blocks[] = {e, n, k / 32, 16};
	char part[96], whole[192];
	int rc;
	if (k % 32)
		return err_why(f->why, -EINVAL, "%s%s has %d inputs; MXFP4 has them in blocks of 32", prefix,
			       name, k);
	snprintf(out->name, sizeof out->name, "%s%s", prefix, name);
	snprintf(part, sizeof part, "%s_blocks", name);
	if ((rc = find_of_experts(f, prefix, part, ST_U8, blocks, 4, &out->blocks)))
		return rc;
	snprintf(part, sizeof part, "%s_scales", name);
	if ((rc = find_of_experts(f, prefix, part, ST_U8, blocks, 3, &out->exponents)))
		return rc;
	snprintf(whole, sizeof whole, "%s%s_bias", prefix, name);
	return finder_vec(f, whole, (int)e, n, &out->bias);
}

/* Return every step-th value from `first` on, n in all; in place if step is 1, else copied. */
static struct weights_vec every(const struct finder *f, const struct weights_vec *v, size_t first, int n,
				size_t step)
{
	const size_t each = v->dtype == CONFIG_F32 ? 4 : 2;
	const unsigned char *from = (const unsigned char *)v->data + first * each;
	if (step == 1)
		return (struct weights_vec){from, v->dtype, n};
	unsigned char *copy = weights_own(f->w, xmalloc((size_t)n * each));
	for (size_t i = 0; i < (size_t)n; i++)
		memcpy(copy + i * each, from + i * step * each, each);
	return (struct weights_vec){copy, v->dtype, n};
}

/* Fill in an expert's outputs from a fused matrix: every step-th row, starting at `first`. */
static void take_fused(const struct finder *f, const struct fused *from, int e, size_t first,
		       struct weights_linear *l)
{
	const size_t n = (size_t)from->n, row = (size_t)e * n * from->step + first,
		     each = (size_t)from->k / 32;
	snprintf(l->name, sizeof l->name, "%.80s.%d", from->name, e);
	l->n = from->n;
	l->k = from->k;
	l->kind = WEIGHTS_CODES;
	l->w = from->blocks + row * each * 16;
	l->bytes = n * each * 17;
	l->bias = every(f, &from->bias, row, from->n, from->step);
	quant_mxfp4(&l->codes, from->n, from->k, l->w, from->exponents + row * each, (int)from->step);
}

/* Find experts in MXFP4: the rows of gate_up alternate between gate and up. */
static int find_mxfp4_experts(const struct finder *f, const char *prefix, struct weights_layer *l)
{
	const int h = f->c->hidden, inter = f->c->experts.intermediate;
	const struct family_stack *stack = &f->family->experts->stack;
	struct fused gateup = {.n = inter, .k = h, .step = 2}, down = {.n = h, .k = inter, .step = 1};
	int rc = find_fused_experts(f, prefix, stack->gate_up, &gateup);
	if (rc || (rc = find_fused_experts(f, prefix, stack->down, &down)))
		return rc;
	for (int e = 0; e < l->n_experts; e++) {
		struct weights_expert *x = &l->experts[e];
		take_fused(f, &gateup, e, 0, &x->gate);
		take_fused(f, &gateup, e, 1, &x->up);
		take_fused(f, &down, e, 0, &x->down);
	}
	return 0;
}

/* Float experts, with each matrix of all experts in one tensor. */
struct float_stack {
	const unsigned char *data;
	enum config_dtype dtype;
	int n, k; /* per expert */
	bool by_input;
	struct weights_vec bias; /* [experts * n], or none */
};

static int find_float_stack(const struct finder *f, const char *prefix, const char *name, bool by_input,
			    int n, int k, struct float_stack *out)
{
	const int64_t e = f->c->experts.n;
	char whole[192];
	*out = (struct float_stack){.n = n, .k = k, .by_input = by_input};
	const int64_t sizes[] = {e, by_input ? k : n, by_input ? n : k};
	snprintf(whole, sizeof whole, "%s%s", prefix, name);
	const struct st_tensor *t = safetensors_find(f->files, whole);
	int rc =
		t ? finder_dtype(f, t, &out->dtype) : err_why(f->why, -ENOENT, "tensor %s is missing", whole);
	if (!rc)
		rc = find_of_experts(f, prefix, name, t->dtype, sizes, 3, &out->data);
	if (rc || !f->c->experts.bias)
		return rc;
	snprintf(whole, sizeof whole, "%s%s_bias", prefix, name);
	return finder_vec(f, whole, (int)e, n, &out->bias);
}

/* Fill in n outputs of expert e: first, first + step, ...; in place if they are stored row by row, else
 * copied. */
static void take_floats(const struct finder *f, const struct float_stack *s, const char *name, int e,
			size_t first, size_t step, int n, struct weights_linear *l)
{
	const size_t each = s->dtype == CONFIG_F32 ? 4 : 2, k = (size_t)s->k, all = (size_t)s->n;
	const unsigned char *from = s->data + (size_t)e * all * k * each;
	snprintf(l->name, sizeof l->name, "%.80s.%d", name, e);
	l->n = n;
	l->k = s->k;
	l->dtype = s->dtype;
	l->w = from + first * k * each;
	if (s->bias.data)
		l->bias = every(f, &s->bias, (size_t)e * all + first, n, step);
	if (!s->by_input && step == 1)
		return;
	unsigned char *copy = weights_own(f->w, xmalloc((size_t)n * k * each));
	for (size_t i = 0; i < (size_t)n; i++)
		for (size_t j = 0; j < k; j++) {
			const size_t row = first + i * step;
			memcpy(copy + (i * k + j) * each,
			       from + (s->by_input ? j * all + row : row * k + j) * each, each);
		}
	l->w = copy;
}

/* Find experts whose gate, up and down are three tables [experts * intermediate, hidden]. */
static int find_flat_experts(const struct finder *f, const char *prefix, const struct family_stack *stack,
			     struct weights_layer *l)
{
	const int h = f->c->hidden, inter = f->c->experts.intermediate, n = f->c->experts.n;
	const char *const names[] = {stack->gate_up, stack->flat_up, stack->down};
	for (int i = 0; i < 3; i++) {
		const bool down = i == 2;
		const int64_t sizes[] = {(int64_t)n * inter, h};
		struct float_stack s = {.n = down ? h : inter, .k = down ? inter : h, .by_input = down};
		char name[160];
		snprintf(name, sizeof name, "%s%s", prefix, names[i]);
		const struct st_tensor *t = safetensors_find(f->files, name);
		int rc = t ? finder_dtype(f, t, &s.dtype)
			   : err_why(f->why, -ENOENT, "tensor %s is missing", name);
		if (rc || (rc = find_of_experts(f, prefix, names[i], t->dtype, sizes, 2, &s.data)))
			return rc;
		for (int e = 0; e < n; e++) {
			struct weights_expert *x = &l->experts[e];
			take_floats(f, &s, name, e, 0, 1, s.n, i == 0 ? &x->gate : down ? &x->down : &x->up);
		}
	}
	return 0;
}

static int find_float_experts(const struct finder *f, const char *prefix, const struct family_stack *stack,
			      struct weights_layer *l)
{
	const int h = f->c->hidden, inter = f->c->experts.intermediate;
	struct float_stack gateup, down;
	char name[160];
	int rc = find_float_stack(f, prefix, stack->gate_up, stack->by_input, 2 * inter, h, &gateup);
	if (rc || (rc = find_float_stack(f, prefix, stack->down, stack->by_input, h, inter, &down)))
		return rc;
	const size_t step = stack->turns ? 2 : 1, up = stack->turns ? 1 : (size_t)inter;
	for (int e = 0; e < l->n_experts; e++) {
		snprintf(name, sizeof name, "%s%s", prefix, stack->gate_up);
		take_floats(f, &gateup, name, e, 0, step, inter, &l->experts[e].gate);
		take_floats(f, &gateup, name, e, up, step, inter, &l->experts[e].up);
		snprintf(name, sizeof name, "%s%s", prefix, stack->down);
		take_floats(f, &down, name, e, 0, 1, h, &l->experts[e].down);
	}
	return 0;
}

static int find_expert(const struct finder *f, const char *prefix, int e, struct weights_expert *x)
{
	const struct model_config *c = f->c;
	const struct family_experts *names = f->family->experts;
	struct weights_linear *to[] = {&x->gate, &x->up, &x->down};
	char name[128];
	int rc = 0;
	for (int i = 0; !rc && i < 3; i++) {
		const int inter = c->experts.intermediate;
		snprintf(name, sizeof name, "%s%s.experts.%d.%s", prefix, names->module, e, names->names[i]);
		rc = finder_linear(f, name, i < 2 ? inter : c->hidden, i < 2 ? c->hidden : inter, false,
				   to[i]);
	}
	return rc;
}

static const struct st_tensor *in_layer(const struct finder *f, const char *prefix, const char *name)
{
	char whole[160];
	snprintf(whole, sizeof whole, "%s%s", prefix, name);
	return safetensors_find(f->files, whole);
}

const struct family_own *finder_own(const struct finder *f, const char *prefix, struct family_stack *stack)
{
	const struct family_experts *x = f->family->experts;
	const bool named = x->own.stack.gate_up != NULL;
	const char *const gate_up = named ? x->own.stack.gate_up : "mlp.experts.gate_up_proj";
	*stack = x->stack;
	if (!in_layer(f, prefix, gate_up))
		return NULL;
	stack->gate_up = gate_up;
	stack->down = named ? x->own.stack.down : "mlp.experts.down_proj";
	stack->flat_up = NULL;
	return &x->own;
}

/* Find all tensors of a mixture except the shared expert. */
int finder_experts(const struct finder *f, const char *prefix, struct weights_layer *l)
{
	const struct config_experts *x = &f->c->experts;
	const struct family_experts *names = f->family->experts;
	struct family_stack stack;
	const struct family_own *own = finder_own(f, prefix, &stack);
	const char *const module = own ? "mlp" : names->module;
	const struct st_tensor *const stored = stack.gate_up ? in_layer(f, prefix, stack.gate_up) : NULL;
	char name[160];
	/* Some vision models have these stacks by input; the shape tells. */
	stack.by_input |= own && stored->n_dims == 3 && stored->shape[1] == f->c->hidden &&
			  f->c->hidden != 2 * x->intermediate;
	if (own && own->router)
		snprintf(name, sizeof name, "%s%s", prefix, own->router);
	else
		snprintf(name, sizeof name, "%s%s.%s", prefix, module,
			 names->router ? names->router : "gate");
	int rc = find_router(f, name, x->n, &l->router);
	if (!rc && x->choice_bias) {
		if (own && own->choice)
			snprintf(name, sizeof name, "%s%s", prefix, own->choice);
		else
			snprintf(name, sizeof name, "%s%s.%s", prefix, module, names->choice);
		const struct st_tensor *t = safetensors_find(f->files, name);
		rc = finder_vec(f, name, t && t->n_dims == 2, x->n, &l->choice_bias);
	}
	if (!rc && x->shared_gate) {
		snprintf(name, sizeof name, "%s%s_gate", prefix, names->shared);
		rc = find_router(f, name, 1, &l->shared_gate);
	}
	l->experts = weights_own(f->w, xcalloc((size_t)x->n, sizeof *l->experts));
	l->n_experts = x->n;
	if (!rc && stored && stack.flat_up)
		return find_flat_experts(f, prefix, &stack, l);
	if (!rc && (stored || !names->names[0])) /* without names of single experts, stacks are needed */
		return find_float_experts(f, prefix, &stack, l);
	if (!rc && names->mxfp4)
		return find_mxfp4_experts(f, prefix, l);
	for (int e = 0; !rc && e < x->n; e++)
		rc = find_expert(f, prefix, e, &l->experts[e]);
	return rc;
}
