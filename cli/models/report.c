#include "cli/models/report.h"

#include "base/json.h"
#include "formats/place/packed.h"
#include "cli/terminal/term.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WAYS_MAX = 64, SPEED_CONTEXT = 1024 };

/* A storage format of linear layers. */
struct way {
	enum weights_kind kind;
	enum config_dtype dtype;
	int bits, group, super, zero, n;
	bool minimums, table, perm, head;
	const char *type; /* name of the codes' type, or NULL; compared by its address */
	int64_t values, bytes;
};

static size_t dtype_bytes(enum config_dtype t)
{
	return t == CONFIG_F32 ? 4 : 2;
}

static int64_t stored_bytes(const struct weights_linear *l)
{
	const int64_t values = (int64_t)l->n * l->k, groups = l->group ? (l->k + l->group - 1) / l->group : 0;
	switch (l->kind) {
	case WEIGHTS_CODES:
		return (int64_t)l->bytes;
	case WEIGHTS_AWQ:
		return values / 2 + groups * l->n / 2 + groups * l->n * 2;
	default:
		return values * (int64_t)dtype_bytes(l->dtype);
	}
}

static struct way way_of(const struct weights_linear *l)
{
	const struct codes *c = &l->codes;
	struct way y = {.kind = l->kind, .dtype = l->dtype};
	if (l->kind == WEIGHTS_AWQ) {
		y.bits = 4;
		y.group = y.super = l->group;
		y.zero = -1;
	} else if (l->kind == WEIGHTS_CODES) {
		y.bits = c->bits;
		y.group = c->group >= c->k ? 0 : c->group;
		y.super = c->super >= c->k ? 0 : c->super;
		y.zero = c->zero;
		y.minimums = c->minimums;
		y.table = c->table != NULL;
		y.perm = c->perm != NULL;
		y.type = c->type;
		y.dtype = CONFIG_F32;
	}
	return y;
}

static bool same(const struct way *a, const struct way *b)
{
	return a->kind == b->kind && a->dtype == b->dtype && a->bits == b->bits && a->group == b->group &&
	       a->super == b->super && a->zero == b->zero && a->minimums == b->minimums &&
	       a->table == b->table && a->perm == b->perm && a->type == b->type && a->head == b->head;
}

/* ---- storage ---- */

struct ways {
	struct way ways[WAYS_MAX];
	int n;
};

static void count_way(void *ctx, const struct weights_linear *l, bool head)
{
	struct ways *all = ctx;
	struct way y = way_of(l);
	int i = 0;
	y.head = head;
	while (i < all->n && !same(&all->ways[i], &y))
		i++;
	if (i == WAYS_MAX)
		return;
	if (i == all->n)
		all->ways[all->n++] = y;
	all->ways[i].n++;
	all->ways[i].values += (int64_t)l->n * l->k;
	all->ways[i].bytes += stored_bytes(l);
}

static void put_words(struct buf *b, const struct way *y)
{
	static const char *const dtypes[] = {"F32", "F16", "BF16"};
	if (y->head)
		buf_puts(b, "the head");
	else
		buf_printf(b, "%d linear layer%s", y->n, y->n == 1 ? "" : "s");
	if (y->kind == WEIGHTS_DENSE) {
		buf_printf(b, " in %s", dtypes[y->dtype]);
		return;
	}
	const char *type = y->kind == WEIGHTS_AWQ ? "AWQ" : y->type;
	buf_printf(b, " in %d bits", y->bits);
	if (type)
		buf_printf(b, " (%s)", type);
	if (y->table)
		buf_puts(b, " that stand for values of a table");
	if (y->group)
		buf_printf(b, ", a scale%s per %d inputs",
			   y->minimums   ? " and a minimum"
			   : y->zero < 0 ? " and a zero"
					 : "",
			   y->group);
	else
		buf_printf(b, ", a scale%s per output",
			   y->minimums   ? " and a minimum"
			   : y->zero < 0 ? " and a zero"
					 : "");
	if (y->super != y->group && y->super)
		buf_printf(b, ", those scaled per %d", y->super);
	else if (y->super != y->group)
		buf_puts(b, ", those scaled per output");
	if (y->perm)
		buf_puts(b, ", inputs in an order of their own");
	buf_printf(b, "; %.2f bits per weight with all", 8 * (double)y->bytes / (double)y->values);
}

json_t *report_storage(const struct weights *w)
{
	struct ways all = {.n = 0};
	json_t *list = json_array();
	weights_each(w, count_way, &all);
	for (int i = 0; i < all.n; i++) {
		const struct way *y = &all.ways[i];
		const char *zeros = y->minimums ? "minimums" : y->zero < 0 ? "stored" : "one";
		struct buf words = {0};
		put_words(&words, y);
		json_t *o = json_pack("{s:i, s:I, s:I, s:b, s:s}", "layers", y->n, "values",
				      (json_int_t)y->values, "bytes", (json_int_t)y->bytes, "head", y->head,
				      "words", words.p);
		if (y->kind != WEIGHTS_DENSE) {
			json_object_set_new(o, "bits", json_integer(y->bits));
			json_object_set_new(o, "group", json_integer(y->group));
			json_object_set_new(o, "zeros", json_string(zeros));
		}
		json_array_append_new(list, o);
		buf_fini(&words);
	}
	return list;
}

/* ---- cost ---- */

struct reading {
	enum packed_mode mode;
	int64_t bytes;
};

static void add_reading(void *ctx, const struct weights_linear *l, bool head)
{
	struct reading *r = ctx;
	(void)head;
	r->bytes += packed_parts(&l, 1, r->mode);
}

/* Return the bytes of all experts. */
static int64_t experts_bytes(const struct weights *w, enum packed_mode mode)
{
	int64_t sum = 0;
	for (int i = 0; i < w->n_layers; i++)
		sum += packed_experts(&w->layers[i], NULL, mode);
	return sum;
}

int64_t report_step_bytes(const struct model_config *c, const struct weights *w, const char *compute, int n)
{
	struct reading r = {.mode = packed_mode(compute)};
	const struct config_experts *x = &c->experts;
	weights_each(w, add_reading, &r);
	if (x->n) /* subtract the experts that no row is expected to choose */
		r.bytes -=
			(int64_t)((double)experts_bytes(w, r.mode) * pow(1 - (double)x->n_chosen / x->n, n));
	if (!w->head.w) {
		const struct packed_table table = packed_table(w, c, r.mode, PACKED_HEAD_MODE);
		r.bytes += table.head ? table.head : table.rows;
	}
	return r.bytes;
}

int64_t report_second_copy(const struct weights *w, const struct model_config *c, const char *compute,
			   const char **why)
{
	const struct packed_table table = packed_table(w, c, packed_mode(compute), PACKED_HEAD_MODE);
	*why = !table.head ? NULL
	       : w->embed_codes.w && strcmp(compute, "bf16") == 0
		       ? "its rows are read from the stored codes, which the head has in the order of BF16 "
			 "products"
		       : "its rows are read as they are stored, and the head is in INT8";
	return table.head;
}

static const int batches[] = {1, 8, 32};

int64_t report_sequence_bytes(const struct model_config *c, int context, int64_t kv_token_bytes)
{
	enum { BLOCK = 16 };
	struct config_kinds kinds;
	model_config_kinds(c, (uint32_t)c->max_position, &kinds);
	const int64_t block_bytes = kv_token_bytes * BLOCK * kinds.n_layers / c->n_layers;
	return block_bytes * kinds_blocks(&kinds.kinds, (uint32_t)context, BLOCK, 0);
}

json_t *report_memory(const struct model_config *c, int64_t weights, int64_t kv_token_bytes)
{
	const int all[] = {1024, 8192, 32768, c->max_position};
	json_t *contexts = json_array(), *sizes = json_array(), *rows = json_array();
	for (size_t j = 0; j < sizeof batches / sizeof *batches; j++)
		json_array_append_new(sizes, json_integer(batches[j]));
	for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
		if (all[i] > c->max_position || (i < 3 && all[i] == c->max_position))
			continue;
		json_t *row = json_array();
		const int64_t each = report_sequence_bytes(c, all[i], kv_token_bytes);
		for (size_t j = 0; j < sizeof batches / sizeof *batches; j++)
			json_array_append_new(row, json_integer((json_int_t)(weights + each * batches[j])));
		json_array_append_new(contexts, json_integer(all[i]));
		json_array_append_new(rows, row);
	}
	return json_pack("{s:o, s:o, s:o}", "contexts", contexts, "batches", sizes, "bytes", rows);
}

json_t *report_speed(const struct model_config *c, const struct weights *w, const json_t *cpu, int64_t kv)
{
	const char *compute = json_string_value(json_get(cpu, "auto"));
	const json_t *modes = json_get(cpu, "compute"), *mode = NULL;
	const double bandwidth =
		json_number_value(json_get(json_get(json_get(cpu, "probes"), "read"), "all"));
	for (size_t i = 0; compute && i < json_array_size(modes); i++) {
		const json_t *m = json_array_get(modes, i);
		const char *name = json_string_value(json_get(m, "compute"));
		if (name && strcmp(name, compute) == 0)
			mode = m;
	}
	if (!mode)
		return NULL;
	const int64_t bytes = report_step_bytes(c, w, compute, 1);
	json_t *o =
		json_pack("{s:s, s:s?, s:I}", "compute", compute, "mode",
			  json_string_value(json_get(mode, "mode")), "bytes_per_token", (json_int_t)bytes);
	const double l3 = json_number_value(json_get(json_get(json_get(cpu, "machine"), "caches"), "l3"));
	json_object_set_new(o, "fits_cache", json_boolean((double)bytes < l3 / 2));
	if (bandwidth > 0) {
		json_t *speeds = json_object();
		for (size_t j = 0; j < sizeof batches / sizeof *batches; j++) {
			char key[16];
			const double n = batches[j],
				     weights = (double)report_step_bytes(c, w, compute, batches[j]),
				     step = weights + n * (double)(kv * SPEED_CONTEXT);
			snprintf(key, sizeof key, "%d", batches[j]);
			json_object_set_new(speeds, key, json_real(n * bandwidth / step));
		}
		json_object_set_new(o, "bandwidth", json_real(bandwidth));
		json_object_set_new(o, "tokens_per_second", speeds);
	}
	return o;
}

/* ---- text output ---- */

static void print_memory(const json_t *memory)
{
	const json_t *contexts = json_get(memory, "contexts"), *sizes = json_get(memory, "batches");
	char text[32];
	for (size_t i = 0; i < json_array_size(contexts); i++) {
		const json_t *row = json_array_get(json_get(memory, "bytes"), i);
		printf("  %-14s%lld tokens:", i ? "" : "with context",
		       (long long)json_integer_value(json_array_get(contexts, i)));
		for (size_t j = 0; j < json_array_size(row); j++)
			printf("%s %s for %lld sequence%s", j ? "," : "",
			       term_bytes((double)json_integer_value(json_array_get(row, j)), text,
					  sizeof text),
			       (long long)json_integer_value(json_array_get(sizes, j)), j ? "s" : "");
		putchar('\n');
	}
}

static void print_speed(const json_t *speed)
{
	const json_t *speeds = json_get(speed, "tokens_per_second");
	const char *batch, *mode = json_string_value(json_get(speed, "mode"));
	json_t *rate;
	char a[32], b[32];
	int n = 0;
	printf("  %-14s%s (the default here), %s of weights per token\n", "kernels", mode ? mode : "",
	       term_bytes((double)json_integer_value(json_get(speed, "bytes_per_token")), a, sizeof a));
	if (!speeds)
		return;
	printf("  %-14sabout", "speed");
	json_object_foreach((json_t *)speeds, batch, rate)
	{
		const double x = json_number_value(rate);
		printf("%s %.*f tokens/s of %s sequence%s", n++ ? "," : "", x < 10 ? 1 : 0, x, batch,
		       strcmp(batch, "1") ? "s" : "");
	}
	printf(" at best, by this memory's %s/s%s\n",
	       term_bytes(json_number_value(json_get(speed, "bandwidth")), b, sizeof b),
	       json_is_true(json_get(speed, "fits_cache")) ? "; more if the weights stay in the cache" : "");
}

void report_print(const json_t *storage, const json_t *memory, const json_t *speed)
{
	for (size_t i = 0; i < json_array_size(storage); i++)
		printf("  %-14s%s\n", i ? "" : "stored",
		       json_string_value(json_get(json_array_get(storage, i), "words")));
	print_memory(memory);
	if (speed)
		print_speed(speed);
}
