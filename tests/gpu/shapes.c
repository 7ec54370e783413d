/* shapes.c - checks every kernel in the shapes of real models.
 *
 *     gpu_shapes [--device cuda:0] [--model qwen3-8b|qwen3-0.6b|small] [--references FILE] [--json FILE]
 *     gpu_shapes --write FILE [--model ...]      write the CPU table's results, for --references
 *
 * Weights and inputs are random; see shapes.h.  Prints a line for each check and appends it to FILE as a line
 * of JSON; exits with 1 if a check failed.  Without --references the CPU's table runs next to the device. */
#include "tests/gpu/shapes.h"

#include "base/alloc.h"
#include "kernels/half.h"
#include "tests/gpu/references.h"
#include "tests/gpu/together.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ROWS = 2048, MAX_SEQS = 256, MAX_CONTEXT = 32768, BLOCK = 16, GROUP = 128 };

static void die(const char *what, const char *why)
{
	fprintf(stderr, "gpu_shapes: %s: %s\n", what, why);
	exit(1);
}

void shapes_must(int rc, const char *what)
{
	if (rc)
		die(what, strerror(-rc));
}

/* ---- values ---- */

uint64_t shapes_random(uint64_t seed, uint64_t i)
{
	uint64_t x = (i + 1) * 0x9e3779b97f4a7c15u + seed * 0xd1b54a32d192ed03u;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return x ^ x >> 31;
}

void shapes_fill(uint16_t *out, enum kern_dtype t, size_t n, uint64_t seed)
{
	for (size_t i = 0; i < n; i += 4) {
		uint64_t r = shapes_random(seed, i);
		for (size_t k = i; k < n && k < i + 4; k++, r >>= 16) {
			const uint16_t sign = r & 0x8000, exp = (uint16_t)(r >> 10 & 31) % 3;
			out[k] = t == KERN_BF16 ? (uint16_t)(sign | (120 + exp) << 7 | (r & 0x7f))
						: (uint16_t)(sign | (8 + exp) << 10 | (r & 0x3ff));
		}
	}
}

size_t side_op_bytes(const struct side *d)
{
	return d->op == KERN_F32 ? 4 : 2;
}

void *side_put(const struct side *d, const void *from, size_t bytes)
{
	void *p = d->ops->mem_new(d->dev, bytes);
	if (!p)
		die("memory of the device", strerror(ENOMEM));
	shapes_must(d->ops->upload(d->s, p, from, bytes), "upload");
	shapes_must(d->ops->stream_sync(d->s), "upload");
	return p;
}

void *side_put_op(const struct side *d, const uint16_t *values, enum kern_dtype t, size_t n)
{
	if (d->op == t)
		return side_put(d, values, n * 2);
	float *wide = xmalloc(n * sizeof *wide);
	for (size_t i = 0; i < n; i++)
		wide[i] = half_load(values, t, i);
	void *p = side_put(d, wide, n * sizeof *wide);
	free(wide);
	return p;
}

void *side_new(const struct side *d, size_t bytes)
{
	void *ones = xmalloc(bytes);
	memset(ones, 0xff, bytes);
	void *p = side_put(d, ones, bytes);
	free(ones);
	return p;
}

void side_get(const struct side *d, void *to, const void *from, size_t bytes)
{
	shapes_must(d->ops->download(d->s, to, from, bytes), "download");
	shapes_must(d->ops->stream_sync(d->s), "an operation");
}

void side_get_floats(const struct side *d, float *to, const void *from, size_t n, bool f32)
{
	const enum kern_dtype t = f32 ? KERN_F32 : d->op;
	void *raw = xmalloc(n * 4);
	side_get(d, raw, from, n * (t == KERN_F32 ? 4 : 2));
	for (size_t i = 0; i < n; i++)
		to[i] = half_load(raw, t, i);
	free(raw);
}

void side_free(const struct side *d, void *p, size_t bytes)
{
	d->ops->mem_free(d->dev, p, bytes);
}

double shapes_error(const float *got, const float *expected, size_t n)
{
	double off = 0, all = 0;
	for (size_t i = 0; i < n; i++) {
		if (isnan(expected[i]))
			continue;
		const double e = (double)got[i] - (double)expected[i];
		off += e * e;
		all += (double)expected[i] * (double)expected[i];
	}
	return isfinite(off) && all > 0 ? sqrt(off / all) : INFINITY;
}

/* Rounding one value to 11 bits has a root mean square error of 2.8e-4, to 8 bits of 2.3e-3; attention and
 * SwiGLU round twice. */
double shapes_limit(const struct shapes *z, bool f32)
{
	return f32 ? 2e-4 : z->type == KERN_BF16 ? 6e-3 : 8e-4;
}

void shapes_result(struct shapes *z, const char *op, const char *type, int rows, double error, double limit,
		   bool same)
{
	const bool ok = error <= limit && same;
	z->n_checked++;
	z->n_bad += !ok;
	printf("%-6s %-22s %-5s %5d rows: error %.2e (at most %.0e), bits %s\n", ok ? "ok" : "FAILED", op,
	       type, rows, error, limit, same ? "the same" : "DIFFER");
	fprintf(z->json,
		"{\"model\": \"%s\", \"op\": \"%s\", \"type\": \"%s\", \"rows\": %d, \"error\": %.3e, "
		"\"limit\": %.1e, \"same_bits\": %s, \"ok\": %s}\n",
		z->m->name, op, type, rows, isfinite(error) ? error : 1e30, limit, same ? "true" : "false",
		ok ? "true" : "false");
	fflush(stdout);
	fflush(z->json);
}

bool shapes_reference(struct shapes *z, const char *op, const char *type, float *values, const bool *kept,
		      size_t n, bool whole)
{
	char name[96];
	float *some = xmalloc((n + 1) * sizeof *some);
	size_t n_some = 0;
	int rc = 0;
	snprintf(name, sizeof name, "%s %s", op, type);
	for (size_t i = 0; i < n; i++) {
		if (z->cpu.ops && !whole && isnan(values[i]))
			die(name, "the CPU's result is no number");
		if (!kept || kept[i])
			some[n_some++] = values[i];
	}
	if (z->references && z->write) {
		rc = references_write(z->references, name, some, n_some, whole);
	} else if (z->references) {
		rc = references_read(z->references, name, some, n_some, whole);
		n_some = 0;
		for (size_t i = 0; i < n; i++)
			values[i] = !kept || kept[i] ? some[n_some++] : NAN;
	}
	shapes_must(rc, name);
	free(some);
	return z->dev.ops != NULL;
}

/* ---- linear layers ---- */

static const char *type_name(enum kern_dtype t)
{
	return t == KERN_AWQ4 ? "awq" : t == KERN_BF16 ? "bf16" : "f16";
}

struct weights {
	void *w;
	uint32_t *zeros;
	uint16_t *scales;
	struct kern_linear_src src;
};

/* AWQ: zero points of 6 to 9, scales of one sign. */
static void weights_make(struct weights *x, const struct layer_shape *l, enum kern_dtype t)
{
	const size_t values = (size_t)l->k * (size_t)l->n, groups = (size_t)l->k / GROUP;
	const size_t n_scales = groups * (size_t)l->n;
	*x = (struct weights){.w = xmalloc(t == KERN_AWQ4 ? values / 2 : values * 2),
			      .zeros = xmalloc(n_scales / 2),
			      .scales = xmalloc(n_scales * 2),
			      .src = {.name = l->name, .k = l->k, .group = GROUP, .n_parts = l->parts}};
	if (t == KERN_AWQ4)
		for (size_t i = 0; i < values / 16; i++)
			((uint64_t *)x->w)[i] = shapes_random(1, i);
	else
		shapes_fill(x->w, t, values, 2);
	for (size_t i = 0; i < n_scales / 8; i++)
		x->zeros[i] = ((uint32_t)shapes_random(3, i) & 0x33333333) + 0x66666666;
	shapes_fill(x->scales, KERN_F16, n_scales, 4);
	for (size_t i = 0; i < n_scales; i++)
		x->scales[i] &= 0x7fff;
	/* Parts share the weights' bytes but not the order of the scales, so gate and up differ. */
	for (int i = 0; i < l->parts; i++) {
		const size_t n = (size_t)l->n / (size_t)l->parts, at = (size_t)i * n;
		x->src.parts[i] = (struct kern_linear_part){
			.dtype = t,
			.n = (int)n,
			.w = (char *)x->w + at * (size_t)l->k * 2 / (t == KERN_AWQ4 ? 4 : 1),
			.qzeros = x->zeros + at * groups / 8,
			.scales = x->scales + at * groups};
	}
}

static void weights_free(struct weights *x)
{
	free(x->w);
	free(x->zeros);
	free(x->scales);
}

/* Return the outputs of rows r % PERIOD of the inputs, in their own type; the caller frees them. */
static void *run_linear(const struct side *d, const struct layer_shape *l, const struct kern_linear *w,
			const uint16_t *inputs, enum kern_dtype t, int rows, size_t row_bytes)
{
	const size_t k = (size_t)l->k, n = (size_t)rows * k, out_bytes = (size_t)rows * row_bytes;
	uint16_t *in = xmalloc(n * 2);
	for (int r = 0; r < rows; r++)
		memcpy(in + (size_t)r * k, inputs + (size_t)(r % PERIOD) * k, k * 2);
	void *from = side_put_op(d, in, t, n), *to = side_new(d, out_bytes), *got = xmalloc(out_bytes);
	shapes_must(l->parts == 2 ? d->ops->gateup_swiglu(d->s, w, to, from, rows)
				  : d->ops->linear(d->s, w, to, from, rows, strcmp(l->name, "qkv") != 0),
		    l->name);
	side_get(d, got, to, out_bytes);
	side_free(d, from, n * side_op_bytes(d));
	side_free(d, to, out_bytes);
	free(in);
	return got;
}

static bool f32_out(const struct layer_shape *l)
{
	return l->parts != 2 && strcmp(l->name, "qkv");
}

static double linear_error(const struct shapes *z, const struct layer_shape *l, const void *got,
			   const float *expected, size_t n)
{
	float *a = xmalloc(n * sizeof *a);
	for (size_t i = 0; i < n; i++)
		a[i] = half_load(got, f32_out(l) ? KERN_F32 : z->dev.op, i);
	const double e = shapes_error(a, expected, n);
	free(a);
	return e;
}

/* Return which of a layer's [PERIOD][n] outputs a file has: above 1,024 outputs one row of each column, 64
 * columns from a row at a time.  NULL for smaller layers: all. */
static bool *outputs_kept(size_t n)
{
	if (n <= 1024)
		return NULL;
	bool *kept = xcalloc((size_t)PERIOD * n, sizeof *kept);
	for (size_t r = 0; r < PERIOD; r++)
		for (size_t i = 0; i < n; i++)
			kept[r * n + i] = i / 64 % PERIOD == r;
	return kept;
}

static void check_linear(struct shapes *z, const struct layer_shape *l, enum kern_dtype type)
{
	static const int all[] = {PERIOD, 1,  2,  8,   9,   13,  16,  17,  24,  32,  33,   48,
				  64,     65, 96, 100, 128, 129, 200, 256, 300, 512, 1000, 2048};
	static const int few[] = {PERIOD, 1, 17, 70};
	const int *rows = z->small ? few : all, n_rows = z->small ? 4 : 24, most = l->head ? 128 : MAX_ROWS;
	const size_t n = (size_t)l->n / (size_t)l->parts,
		     row_bytes = n * (f32_out(l) ? 4 : side_op_bytes(&z->dev));
	struct why why = {""};
	struct weights x;
	struct kern_linear *on_cpu = NULL, *on_dev = NULL;
	uint16_t *inputs = xmalloc((size_t)PERIOD * (size_t)l->k * 2);
	shapes_fill(inputs, z->type, (size_t)PERIOD * (size_t)l->k, 5);
	weights_make(&x, l, type);
	if ((z->cpu.ops && z->cpu.ops->linear_load(z->cpu.dev, &x.src, &on_cpu, &why)) ||
	    (z->dev.ops && z->dev.ops->linear_load(z->dev.dev, &x.src, &on_dev, &why)))
		die(l->name, why.text);
	weights_free(&x);
	float *expected = on_cpu ? run_linear(&z->cpu, l, on_cpu, inputs, z->type, PERIOD, n * 4)
				 : xcalloc((size_t)PERIOD * n, sizeof *expected);
	if (on_cpu)
		z->cpu.ops->linear_free(on_cpu);
	bool *kept = outputs_kept(n);
	char name[32];
	snprintf(name, sizeof name, "%s %s", l->name, type_name(type));
	const bool compare =
		shapes_reference(z, name, type_name(z->type), expected, kept, (size_t)PERIOD * n, false);
	free(kept);
	if (!compare) {
		free(expected);
		free(inputs);
		return;
	}
	char *first = NULL;
	double error = 0;
	for (int i = 0; i < n_rows; i++) {
		if (rows[i] > most)
			continue;
		char *got = run_linear(&z->dev, l, on_dev, inputs, z->type, rows[i], row_bytes);
		if (!first) {
			first = got;
			error = linear_error(z, l, got, expected, (size_t)PERIOD * n);
		}
		bool same = true;
		for (int r = 0; r < rows[i] && same; r++)
			same = !memcmp(got + (size_t)r * row_bytes, first + (size_t)(r % PERIOD) * row_bytes,
				       row_bytes);
		shapes_result(z, l->name, type_name(type), rows[i], error, shapes_limit(z, f32_out(l)), same);
		if (got != first)
			free(got);
	}
	z->dev.ops->linear_free(on_dev);
	free(first);
	free(expected);
	free(inputs);
}

/* ---- the whole ---- */

static void open_side(struct side *d, const char *device, const struct shapes *z)
{
	const bool small = z->small;
	struct why why = {""};
	struct kern_info info;
	struct kern_open_args a = {.compute = KERN_COMPUTE_F32,
				   .model = z->type,
				   .n_vocab = z->m->shapes[LAYERS_SHAPES - 1].n,
				   .max_rows = small ? 128 : MAX_ROWS,
				   .max_seqs = small ? 16 : MAX_SEQS,
				   .max_logits = small ? 16 : MAX_SEQS,
				   .max_context = small ? 1024 : MAX_CONTEXT};
	a.max_blocks_per_seq = a.max_context / BLOCK;
	if (kern_find(device, &d->ops, &a.index, &why) || d->ops->open(&d->dev, &a, &why))
		die(device, why.text);
	d->s = d->ops->stream_new(d->dev);
	d->ops->info(d->dev, &info);
	d->op = info.operand;
}

static void close_side(struct side *d)
{
	d->ops->stream_free(d->s);
	d->ops->close(d->dev);
}

static void check_type(struct shapes *z, enum kern_dtype type)
{
	z->type = type;
	z->cpu = z->dev = (struct side){0};
	if (z->write || !z->references)
		open_side(&z->cpu, "cpu", z);
	if (!z->write)
		open_side(&z->dev, z->device, z);
	if (z->dev.ops && z->dev.op != type && z->dev.op != KERN_F32)
		die(z->device, "another type of operands than was asked for");
	for (int i = 0; i < LAYERS_SHAPES; i++) {
		if (!z->m->shapes[i].head)
			check_linear(z, &z->m->shapes[i], KERN_AWQ4);
		check_linear(z, &z->m->shapes[i], type);
	}
	if (z->dev.ops)
		shapes_check_embed(z);
	shapes_check_norm(z);
	shapes_check_attention(z);
	if (type == KERN_F16) /* logits are F32 */
		shapes_check_sampler(z);
	if (z->dev.ops)
		close_side(&z->dev);
	if (z->cpu.ops)
		close_side(&z->cpu);
}

int shapes_main(int argc, char **argv)
{
	struct shapes z = {.device = "cuda:0", .m = &layers_models[1]};
	const char *path = "/dev/null", *references = NULL;
	bool usage = false;
	for (int i = 1; i < argc && !usage; i++) {
		if (!strcmp(argv[i], "--device") && i + 1 < argc)
			z.device = argv[++i];
		else if (!strcmp(argv[i], "--model") && i + 1 < argc)
			usage = !(z.m = together_find(argv[++i]));
		else if (!strcmp(argv[i], "--json") && i + 1 < argc)
			path = argv[++i];
		else if ((!strcmp(argv[i], "--references") || !strcmp(argv[i], "--write")) && i + 1 < argc)
			z.write = !strcmp(argv[i], "--write"), references = argv[++i];
		else
			usage = true;
	}
	if (usage) {
		fprintf(stderr, "usage: gpu_shapes [--device cuda:0] [--model qwen3-8b|qwen3-0.6b|small] "
				"[--references FILE | --write FILE] [--json FILE]\n");
		return 2;
	}
	if (references && !(z.references = fopen(references, z.write ? "w" : "r")))
		die(references, strerror(errno));
	if (references)
		shapes_must(references_begin(z.references, z.write), references);
	if (!(z.json = fopen(path, "w")))
		die(path, strerror(errno));
	z.small = z.m == &together_small;
	check_type(&z, KERN_F16);
	check_type(&z, KERN_BF16);
	fclose(z.json);
	if (references && fclose(z.references))
		die(references, strerror(errno));
	printf("%s: %d checks, %d failed\n", z.m->name, z.n_checked, z.n_bad);
	return z.n_bad != 0;
}
