#include "bench/sim/costmodel.h"

#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"
#include "cli/inspect.h"
#include "cli/models/report.h"
#include "cli/process.h"
#include "formats/model_file.h"
#include "formats/weights.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Fraction of the memory for weights and KV.  The rest is for activations and the runtime. */
static const double memory_share = 0.9;

/* Qwen3-8B: 36 layers, 8 KV heads of 128, KV in 16 bits; 8.19e9 parameters.  AWQ: 4 bits, with a scale and a
 * zero point per 128; the head in 16 bits.  The embedding is not read in a step, but stays in memory, which
 * memory_share covers. */
#define QWEN3_8B_AWQ                                                                                         \
	.weights_bytes = 4.9e9, .flop_per_token = 2 * 8.19e9, .kv_token_bytes = 2.0 * 36 * 8 * 128 * 2

/* Bandwidths are about 9/10, and FLOP rates (dense, 16 bits) half of the data sheet's. */
static const struct costmodel devices[] = {
	{"h200", 1300, 4.3e12, 790e12 * 0.5, 55e9, 141e9, QWEN3_8B_AWQ},
	{"h100", 1300, 3.0e12, 790e12 * 0.5, 55e9, 80e9, QWEN3_8B_AWQ},
	{"a100", 1500, 1.8e12, 312e12 * 0.5, 25e9, 80e9, QWEN3_8B_AWQ},
	{"4090", 1300, 0.91e12, 165e12 * 0.5, 25e9, 24e9, QWEN3_8B_AWQ},
	{"cpu", 500, 40e9, 2e12 * 0.5, 40e9, 64e9, QWEN3_8B_AWQ},
};
enum { N_DEVICES = sizeof devices / sizeof *devices };

int costmodel_named(const char *name, struct costmodel *out, struct why *why)
{
	struct buf names = {0};
	for (size_t i = 0; i < N_DEVICES; i++) {
		if (strcmp(devices[i].name, name) == 0) {
			*out = devices[i];
			buf_fini(&names);
			return 0;
		}
		buf_printf(&names, "%s%s", i ? ", " : "", devices[i].name);
	}
	int rc = err_why(why, -EINVAL, "no device \"%.40s\"; there are %s", name, names.p);
	buf_fini(&names);
	return rc;
}

double costmodel_kv_bytes(const struct costmodel *c)
{
	return fmax(0, c->memory_bytes * memory_share - c->weights_bytes);
}

const struct kinds *costmodel_kinds(const struct costmodel *c)
{
	static const struct kinds one = {.n = 1};
	return c->kinds.n ? &c->kinds : &one;
}

double costmodel_block_bytes(const struct costmodel *c, uint32_t block_size)
{
	return c->kv_token_bytes * block_size / costmodel_kinds(c)->n;
}

uint32_t costmodel_blocks(const struct costmodel *c, double kv_bytes, uint32_t block_size)
{
	double n = floor(kv_bytes / costmodel_block_bytes(c, block_size));
	return n < 1 ? 0 : (uint32_t)fmin(n, COSTMODEL_BLOCKS_MAX);
}

double costmodel_step_us(const struct costmodel *c, const struct plan *p, uint32_t block_size)
{
	double block_bytes = costmodel_block_bytes(c, block_size);
	const struct kinds *kinds = costmodel_kinds(c);
	double positions = 0, n_decodes = 0;
	for (uint32_t i = 0; i < p->n_runs; i++)
		if (p->runs[i].n_rows) {
			const uint32_t pos0 = p->runs[i].pos0, end = pos0 + p->runs[i].n_rows;
			for (uint32_t k = 0; k < kinds->n; k++)
				positions += (double)(end - kinds_first(kinds, k, pos0)) / kinds->n;
			n_decodes += c->decode_row_us > 0 && p->runs[i].n_rows == 1;
		}
	double memory_s = (c->weights_bytes + positions * c->kv_token_bytes) / c->bytes_per_s;
	double compute_s = (p->n_rows - n_decodes) * c->flop_per_token / c->flop_per_s;
	double copies_s = 2 * p->n_copies * block_bytes / c->bytes_per_s;
	double swaps_s = ((double)p->n_swap_in + p->n_swap_out) * block_bytes / c->link_bytes_per_s;
	double step_us = c->base_us + n_decodes * c->decode_row_us +
			 (fmax(memory_s, compute_s) + copies_s + swaps_s) * 1e6;
	return fmin(step_us, COSTMODEL_STEP_MAX_US);
}

/* ---- devices with a model (`quern plan`) ---- */

enum { COUNT_MAX = 4096, MEASURED_MAX = 16 << 20, ALL_REDUCES = 2 /* per layer */ };

/* Fraction of the probed rates that a step of the CPU's kernels reaches at best (docs/performance/cpu.md). */
static const double cpu_reads = 0.8, cpu_products = 0.5;
static const double cpu_base_us = 150;
/* Latency of an all-reduce over linked devices, whatever its size. */
static const double all_reduce_us = 12;

/* ---- devices ---- */

/* Only a worker can probe the CPU. */
static int probe_cpu(json_t **out, struct why *why)
{
	char *program = process_program("quern-worker", why);
	if (!program)
		return -ENOENT;
	struct buf text = {0};
	char option[] = "--inspect", kind[] = "cpu", status_text[64];
	char *argv[] = {program, option, kind, NULL};
	json_t *list = NULL;
	int status, rc = process_output(argv, &text, &status, why);
	if (!rc && json_parse(text.p ? text.p : "", text.len, &list, NULL))
		rc = err_why(why, -EIO, "%s --inspect cpu: %s", program,
			     process_status_text(status, status_text, sizeof status_text));
	if (!rc) {
		*out = json_incref(json_array_get(list, 0));
		rc = *out ? 0 : err_why(why, -EIO, "%s --inspect cpu: no device", program);
	}
	json_decref(list);
	buf_fini(&text);
	free(program);
	return rc;
}

static double probed(const json_t *cpu, const char *name)
{
	return json_number_value(
		json_object_get(json_object_get(json_object_get(cpu, "probes"), name), "all"));
}

/* Return the multiplications and additions per second in a mode.  A product of int16 takes two of int8. */
static double products_per_s(const json_t *cpu, const char *mode)
{
	const double vnni = probed(cpu, "int8_vnni"), avx2 = probed(cpu, "int8_avx2");
	const double int8 = vnni > 0 ? vnni : avx2;
	if (strcmp(mode, "int8") == 0)
		return int8;
	if (strcmp(mode, "int16") == 0)
		return int8 / 2;
	return probed(cpu, strcmp(mode, "bf16") == 0 ? "bf16" : "f32");
}

static int read_cpu(struct costmodel_device *d, struct why *why)
{
	json_t *cpu = NULL;
	int rc = probe_cpu(&cpu, why);
	if (rc)
		return rc;
	const char *mode = json_string_value(json_object_get(cpu, "auto"));
	snprintf(d->mode, sizeof d->mode, "%s", mode ? mode : "f32");
	d->cost = (struct costmodel){
		.name = "cpu",
		.base_us = cpu_base_us,
		.bytes_per_s = probed(cpu, "read") * cpu_reads,
		.flop_per_s = products_per_s(cpu, d->mode) * cpu_products,
		.link_bytes_per_s = probed(cpu, "read") / 2,
		.memory_bytes = (double)json_integer_value(json_object_get(cpu, "bytes_free")),
	};
	if (!(d->cost.bytes_per_s > 0 && d->cost.flop_per_s > 0))
		rc = err_why(why, -EIO, "quern-worker --inspect cpu measured nothing");
	d->source = COSTMODEL_PROBED;
	json_decref(cpu);
	return rc;
}

int costmodel_device_read(const char *text, struct costmodel_device *out, struct why *why)
{
	char name[32];
	size_t n = 0;
	*out = (struct costmodel_device){.count = 1};
	snprintf(name, sizeof name, "%s", text);
	for (char *p = name; *p; p++)
		*p = (char)tolower((unsigned char)*p);
	/* "4090x2": the count follows the last x. */
	char *x = strrchr(name, 'x'), *end;
	if (x && x > name && isdigit((unsigned char)x[1])) {
		const unsigned long count = strtoul(x + 1, &end, 10);
		if (*end || count < 1 || count > COUNT_MAX)
			return err_why(why, -EINVAL, "\"%.40s\": must be 1 to %d devices", text, COUNT_MAX);
		out->count = (uint32_t)count;
		*x = '\0';
	}
	n = strlen(name);
	snprintf(out->name, sizeof out->name, "%.*s", (int)n, name);
	out->cpu = strcmp(name, "cpu") == 0;
	return out->cpu ? read_cpu(out, why) : costmodel_named(name, &out->cost, why);
}

/* ---- the model ---- */

static void add_params(void *ctx, const struct weights_linear *l, bool head)
{
	double *params = ctx;
	(void)head;
	*params += (double)l->n * l->k;
}

/* Return the parameters of the experts that a token does not use. */
static double idle_params(const struct weights *w, const struct config_experts *x)
{
	double all = 0;
	for (int i = 0; i < w->n_layers; i++)
		for (int k = 0; k < w->layers[i].n_experts; k++) {
			const struct weights_expert *e = &w->layers[i].experts[k];
			all += (double)e->gate.n * e->gate.k + (double)e->up.n * e->up.k +
			       (double)e->down.n * e->down.k;
		}
	return x->n ? all * (1 - (double)x->n_chosen / x->n) : 0;
}

int costmodel_model_read(const char *path, const struct costmodel_device *d, struct costmodel_model *out,
			 struct why *why)
{
	struct model_config c;
	struct config_kinds kinds;
	struct weights *w;
	int rc = model_config_load(path, &c, why);
	if (rc)
		return rc;
	rc = weights_open(path, &c, &w, why);
	if (rc) {
		model_config_fini(&c);
		return rc;
	}
	*out = (struct costmodel_model){.stored_bytes = (double)w->bytes,
					.n_layers = c.n_layers,
					.n_kv_heads = c.layers[0].kv_heads,
					.max_position = c.max_position};
	weights_each(w, add_params, &out->params);
	out->params -= idle_params(w, &c.experts);
	if (!w->head.w) /* the embedding is also the head */
		out->params += (double)c.n_vocab * c.hidden;
	out->step_bytes = (double)report_step_bytes(&c, w, d->cpu ? d->mode : "bf16", 8);
	out->kv_token_bytes =
		d->cpu ? (double)inspect_kv_token_bytes(&c, strcmp(d->mode, "int8") ? d->mode : "int16")
		       : 2.0 * (double)model_config_kv_values(&c);
	model_config_kinds(&c, (uint32_t)c.max_position, &kinds);
	out->kinds = kinds.kinds;
	out->kv_token_bytes *= (double)kinds.n_layers * kinds.kinds.n / c.n_layers;
	weights_close(w);
	model_config_fini(&c);
	return 0;
}

void costmodel_load(struct costmodel_device *d, const struct costmodel_model *m)
{
	d->cost.weights_bytes = m->step_bytes;
	d->cost.flop_per_token = 2 * m->params;
	d->cost.kv_token_bytes = m->kv_token_bytes;
	d->cost.kinds = m->kinds;
}

/* ---- measured costs ---- */

/* A decode step of b sequences takes base + b * row; a prompt's rows take 1 / prefill each. */
int costmodel_measured(struct costmodel_device *d, const char *path, struct why *why)
{
	json_t *all = NULL;
	double few_us = 0, many_us = 0, few = INFINITY, many = 0, prefill = 0;
	int rc = json_read(path, MEASURED_MAX, &all, why);
	const json_t *rows = json_object_get(all, "results"), *row;
	size_t i;
	json_array_foreach(rows, i, row)
	{
		const double b = json_number_value(json_object_get(row, "batch")),
			     tps = json_number_value(json_object_get(row, "decode_tokens_per_s"));
		if (!(b >= 1 && tps > 0))
			continue;
		if (b < few)
			few = b, few_us = 1e6 * b / tps;
		if (b > many)
			many = b, many_us = 1e6 * b / tps;
		prefill = fmax(prefill, json_number_value(json_object_get(row, "prefill_tokens_per_s")));
	}
	if (!rc && !(many > few && prefill > 0))
		rc = err_why(
			why, -EINVAL,
			"%s: has no two batches; write it by quern bench engine MODEL --batch 1,16 --json",
			path);
	json_decref(all);
	if (rc)
		return rc;
	const double row_us = fmax(0, (many_us - few_us) / (many - few));
	d->cost.base_us = fmax(1, few_us - few * row_us);
	d->cost.decode_row_us = row_us;
	d->cost.weights_bytes = 0; /* reading the weights is part of the measured time */
	d->cost.flop_per_s = d->cost.flop_per_token * prefill;
	d->source = COSTMODEL_MEASURED;
	return 0;
}

struct costmodel costmodel_replica(const struct costmodel_device *d, const struct costmodel_model *m,
				   uint32_t tp)
{
	struct costmodel c = d->cost;
	c.weights_bytes /= tp;
	c.flop_per_token /= tp;
	c.kv_token_bytes /= tp;
	c.decode_row_us /= tp;
	if (tp > 1)
		c.base_us += ALL_REDUCES * m->n_layers * all_reduce_us;
	return c;
}
