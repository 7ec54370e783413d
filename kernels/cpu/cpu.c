/* cpu.c - the CPU's table: device, memory, and streams that are always done. */
#include "kernels/cpu/attention/attention.h"
#include "kernels/cpu/attention/int.h"
#include "kernels/cpu/attention/kv.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/nodes.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>

#include "base/alloc.h"
#include "base/cpus.h"
#include "base/err.h"
#include "base/numerics.h"

/* ---- the device ---- */

static int choose_isa(const char *want, const struct cpu_isa **out, struct why *why)
{
	const struct cpu_isa *all[] = {cpu_isa_avx512(), cpu_isa_avx2(), cpu_isa_plain()};
	static const char *const names[] = {"avx512", "avx2", "plain"};
	for (int i = 0; i < 3; i++) {
		if (want && strcmp(want, names[i]))
			continue;
		if (all[i]) {
			*out = all[i];
			return 0;
		}
		if (want)
			return err_why(why, -ENODEV, "this CPU has no %s", want);
	}
	return err_why(why, -EINVAL, "'%.32s' is not an instruction set: use avx512, avx2 or plain", want);
}

/* Return the best table that the chosen instruction set allows. */
static const struct cpu_dot *choose_dot(const struct cpu_isa *isa)
{
	const struct cpu_dot *dot = NULL;
	if (isa == cpu_isa_avx512() && !(dot = cpu_dot_amx()))
		dot = cpu_dot_avx512vnni();
	if (!dot && isa != cpu_isa_plain() && !(dot = cpu_dot_avxvnni()))
		dot = cpu_dot_avx2();
	return dot ? dot : cpu_dot_plain();
}

static bool is_vnni(const struct cpu_dot *dot)
{
	return dot && (dot == cpu_dot_amx() || dot == cpu_dot_avx512vnni() || dot == cpu_dot_avxvnni());
}

bool cpu_has_vnni(const char *isa)
{
	const struct cpu_isa *chosen;
	return choose_isa(isa, &chosen, NULL) == 0 && is_vnni(choose_dot(chosen));
}

static int check_args(const struct kern_open_args *a, struct why *why)
{
	if ((unsigned)a->compute > KERN_COMPUTE_INT8)
		return err_why(why, -EINVAL, "compute mode %d is not known", (int)a->compute);
	if (a->max_rows < 1 || a->max_seqs < 1 || a->max_logits < 1 || a->max_context < 1 ||
	    a->max_blocks_per_seq < 1)
		return err_why(why, -EINVAL,
			       "rows, sequences, logits, context and blocks must be at least 1");
	if (a->n_threads < 0 || a->n_threads > 4096)
		return err_why(why, -EINVAL, "%d threads", a->n_threads);
	return 0;
}

/* Hands out parts of the arena; with base NULL it only counts bytes. */
struct carve {
	unsigned char *base;
	size_t at;
};

static void *carve(struct carve *c, size_t n, size_t bytes)
{
	void *p = c->base ? c->base + c->at : NULL;
	c->at += (n * bytes + 63) & ~(size_t)63;
	return p;
}

_Static_assert((int)DOT_SCRATCH >= (int)BF16_SCRATCH, "mode bf16 with a head in INT8 has one scratch");

static void lay_out(struct kern_dev *d, struct carve *c)
{
	const struct kern_open_args *a = &d->args;
	const size_t rows = (size_t)a->max_rows, seqs = (size_t)a->max_seqs, threads = (size_t)d->n_threads;
	struct cpu_batch *b = &d->batch;
	b->token_at = carve(c, rows, sizeof(int32_t));
	b->row_seq = carve(c, rows, sizeof(int32_t));
	b->span_row = carve(c, rows, sizeof(int32_t));
	b->span_rows = carve(c, rows, sizeof(int32_t));
	b->span_task = carve(c, rows + 1, sizeof(int32_t));
	b->span_part = carve(c, rows, sizeof(size_t));
	b->row0 = carve(c, seqs + 1, sizeof(int32_t));
	b->pos0 = carve(c, seqs, sizeof(int32_t));
	b->tables = carve(c, seqs * (size_t)a->n_kinds * (size_t)a->max_blocks_per_seq, sizeof(int32_t));
	b->logits_row = carve(c, (size_t)a->max_logits, sizeof(int32_t));
	d->scratch = carve(c, threads, sizeof *d->scratch);
	d->sample = carve(c, threads, sizeof *d->sample);
	for (size_t t = 0; t < threads; t++) {
		float *out = carve(c, 2 * ROWS_MAX * BLOCK_N, sizeof(float));
		float *head = carve(c, HEAD_MAX, sizeof(float));
		unsigned char *lines = carve(c,
					     d->dot    ? DOT_SCRATCH
					     : d->bf16 ? BF16_SCRATCH
						       : CODES_SCRATCH,
					     1);
		if (c->base)
			d->scratch[t] = (struct cpu_scratch){.c = out, .head = head, .lines = lines};
	}
}

static void cpu_close(struct kern_dev *d)
{
	if (!d)
		return;
	cpu_pool_free(d->pool);
	free(d->nodes);
	for (int t = 0; d->scratch && t < d->n_threads; t++)
		alloc_big_free(d->scratch[t].stored, d->scratch[t].stored_bytes);
	alloc_big_free(d->sample_arena, d->sample_bytes);
	alloc_big_free(d->pack, d->pack_bytes);
	alloc_big_free(d->wide, d->wide_bytes);
	alloc_big_free(d->quant, d->quant_bytes);
	alloc_big_free(d->ordered, d->ordered_bytes);
	alloc_big_free(d->ordered_floats, d->ordered_floats_bytes);
	alloc_big_free(d->arrived, d->arrived_bytes);
	alloc_big_free(d->routes, d->routes_bytes);
	cpu_moe_free(d->moe);
	alloc_big_free(d->arena, d->arena_bytes);
	free(d);
}

/* Return the threads for this process.  Ranks on one NUMA node share the node's cores, not the machine's. */
static int share_of_cores(int node, int n_sharing)
{
	cpu_set_t mask;
	return sched_getaffinity(0, sizeof mask, &mask) ? 1 : cpus_share("", &mask, node, n_sharing);
}

/* Spread a worker that is alone on the machine over all NUMA nodes. */
static void open_nodes(struct kern_dev *d)
{
	struct cpu_nodes nodes;
	cpu_set_t mask;
	if (d->node >= 0 || d->args.n_sharing > 1 || d->n_threads < 2 ||
	    sched_getaffinity(0, sizeof mask, &mask))
		return;
	cpu_nodes_read(&mask, d->n_threads, &nodes);
	if (nodes.n < 2)
		return;
	d->nodes = xmemdup(&nodes, sizeof nodes);
	cpu_pool_place(d->pool, d->nodes);
}

static int cpu_open(struct kern_dev **out, const struct kern_open_args *a, struct why *why)
{
	const struct cpu_isa *isa = NULL;
	const struct cpu_kv_type *kv_type = NULL;
	*out = NULL;
	int e = check_args(a, why);
	if (!e)
		e = choose_isa(a->isa, &isa, why);
	if (!e)
		e = cpu_kv_type(a, isa, &kv_type, why);
	if (!e && a->index >= 0)
		e = cpu_host_bind(a->index, why);
	if (e)
		return e;
	struct kern_dev *d = xcalloc(1, sizeof *d);
	d->args = *a;
	d->args.n_kinds = a->n_kinds ? a->n_kinds : 1;
	d->args.isa = NULL;
	d->isa = isa;
	d->kv_type = kv_type;
	if (cpu_is_integer(d) || a->head == KERN_HEAD_INT8)
		d->dot = choose_dot(isa);
	if (a->compute == KERN_COMPUTE_BF16)
		d->bf16 = cpu_bf16_choose(isa->name);
	d->node = a->index;
	d->n_threads = a->n_threads ? a->n_threads : share_of_cores(a->index, a->n_sharing);
	struct carve c = {0};
	lay_out(d, &c);
	d->arena_bytes = c.at;
	d->arena = alloc_big(c.at);
	if (!d->arena) {
		cpu_close(d);
		return err_why(why, -ENOMEM, "no memory for %zu bytes of scratch", c.at);
	}
	c = (struct carve){.base = d->arena};
	lay_out(d, &c);
	e = cpu_pool_new(&d->pool, d->n_threads, why);
	if (!e && a->n_vocab && cpu_sample_reserve(d, a->n_vocab))
		e = err_why(why, -ENOMEM, "no memory to sample from %d logits", a->n_vocab);
	if (e) {
		cpu_close(d);
		return e;
	}
	open_nodes(d);
	*out = d;
	return 0;
}

static void cpu_info(struct kern_dev *d, struct kern_info *out)
{
	memset(out, 0, sizeof *out);
	cpu_host_name(out->name, sizeof out->name);
	snprintf(out->isa, sizeof out->isa, "%s", d->isa->name);
	out->codes = out->embed_codes = true;
	static const char *const modes[] = {"f32", "bf16", "int16", "int8"};
	const char *mode = modes[d->args.compute], *head = NULL;
	if (d->args.compute == KERN_COMPUTE_INT8)
		head = d->args.head == KERN_HEAD_STORED ? "stored" : NULL;
	else if (d->args.head == KERN_HEAD_INT8)
		head = "int8";
	const char *by = d->bf16 ? d->bf16->name : d->dot ? d->dot->name : NULL;
	snprintf(out->mode, sizeof out->mode, "%s%s%s%s", mode,
		 head && !strcmp(head, "int8") ? ", head int8" : "", by ? " by " : "", by ? by : "");
	if (!d->bf16 && d->dot && !is_vnni(d->dot))
		snprintf(out->note, sizeof out->note,
			 "no VNNI%s: dot products of bytes take several instructions",
			 d->dot == cpu_dot_plain() ? " and no AVX2" : "");
	if (d->bf16 && d->bf16->floats)
		snprintf(out->note, sizeof out->note,
			 "no AMX and no AVX-512 BF16: products of BF16 are FP32 multiply-adds");
	static const char *const kvs[] = {NULL, NULL, "f16", "bf16", "int16", "int8"};
	const enum kern_kv_type kv = cpu_kv_kind(&d->args);
	const struct numerics_cpu c = {.mode = mode,
				       .head = head,
				       .kv = kvs[kv],
				       .bf16 = d->bf16 != NULL,
				       .bf16_dots = d->bf16 && kv == KERN_KV_BF16};
	numerics_of_cpu(&c, out->numerics, sizeof out->numerics);
	out->operand = KERN_F32;
	out->kv = kv;
	out->head_max = kv == KERN_KV_INT16 || kv == KERN_KV_INT8 ? KV_INT_DIM_MAX : HEAD_MAX;
	out->head_step = 1;
	cpu_host_memory(d->node, &out->bytes_total, &out->bytes_free);
	out->bytes_used = (int64_t)alloc_big_bytes();
	out->n_threads = d->n_threads;
}

/* ---- memory ---- */

/* Memory up to this size is touched when allocated, since steps use all of it.  Larger areas are rarely used
 * whole: the rows of logits, the host's pool. */
enum { TOUCH_MAX = 16 << 20 };

static void *cpu_mem_new(struct kern_dev *d, size_t bytes)
{
	void *p = alloc_big(bytes);
	(void)d;
	if (p && bytes <= TOUCH_MAX)
		alloc_touch(p, bytes);
	return p;
}

static void cpu_mem_free(struct kern_dev *d, void *p, size_t bytes)
{
	(void)d;
	alloc_big_free(p, bytes);
}

/* ---- streams and events: all work is done when a call returns ---- */

static struct kern_stream *cpu_stream_new(struct kern_dev *d)
{
	struct kern_stream *s = xcalloc(1, sizeof *s);
	s->dev = d;
	return s;
}

static void cpu_stream_free(struct kern_stream *s)
{
	free(s);
}

static int cpu_stream_sync(struct kern_stream *s)
{
	(void)s;
	return 0;
}

static struct kern_event *cpu_event_new(struct kern_dev *d)
{
	struct kern_event *e = xcalloc(1, sizeof *e);
	e->dev = d;
	return e;
}

static void cpu_event_free(struct kern_event *e)
{
	free(e);
}

static int cpu_event_record(struct kern_event *e, struct kern_stream *s)
{
	(void)e, (void)s;
	return 0;
}

static bool cpu_event_done(struct kern_event *e)
{
	(void)e;
	return true;
}

static int cpu_event_sync(struct kern_event *e)
{
	(void)e;
	return 0;
}

static int cpu_event_notify(struct kern_event *e, int fd)
{
	(void)e;
	return eventfd_write(fd, 1) ? -errno : 0;
}

static int cpu_upload(struct kern_stream *s, void *dst, const void *src, size_t bytes)
{
	(void)s;
	if (bytes)
		memcpy(dst, src, bytes);
	return 0;
}

static int cpu_pick(struct kern_stream *s, float *out, const float *x, const uint32_t (*pairs)[2], int n)
{
	(void)s;
	for (int i = 0; i < n; i++)
		out[pairs[i][1]] = x[pairs[i][0]];
	return 0;
}

static void cpu_crossovers(struct kern_dev *d, const struct kern_crossover *c, int n)
{
	(void)d, (void)c, (void)n; /* there are no alternatives to choose from */
}

const struct kern_ops kern_cpu_ops = {
	.abi = KERN_ABI,
	.name = "cpu",
	.open = cpu_open,
	.close = cpu_close,
	.info = cpu_info,
	.crossovers = cpu_crossovers,
	.mem_new = cpu_mem_new,
	.mem_free = cpu_mem_free,
	.host_new = cpu_mem_new,
	.host_free = cpu_mem_free,
	.stream_new = cpu_stream_new,
	.stream_free = cpu_stream_free,
	.stream_sync = cpu_stream_sync,
	.event_new = cpu_event_new,
	.event_free = cpu_event_free,
	.event_record = cpu_event_record,
	.event_wait = cpu_event_record,
	.event_done = cpu_event_done,
	.event_sync = cpu_event_sync,
	.event_notify = cpu_event_notify,
	.upload = cpu_upload,
	.download = cpu_upload,
	.copy = cpu_upload,
	.pick = cpu_pick,
	.operand_bytes = cpu_operand_bytes,
	.linear_load = cpu_linear_load,
	.linear_free = cpu_linear_free,
	.linear_bytes = cpu_linear_bytes,
	.experts_load = cpu_experts_load,
	.experts_free = cpu_experts_free,
	.experts_bytes = cpu_experts_bytes,
	.embed_load = cpu_embed_load,
	.embed_free = cpu_embed_free,
	.embed_bytes = cpu_embed_bytes,
	.embed_linear = cpu_embed_linear,
	.kv_new = cpu_kv_new,
	.kv_free = cpu_kv_free,
	.kv_block_bytes = cpu_kv_block_bytes,
	.kv_scratch_bytes = cpu_kv_scratch_bytes,
	.kv_copy = cpu_kv_copy,
	.kv_swap_out = cpu_kv_swap_out,
	.kv_swap_in = cpu_kv_swap_in,
	.batch_set = cpu_batch_set,
	.embed = cpu_embed,
	.rmsnorm = cpu_rmsnorm,
	.rmsnorm_f32 = cpu_rmsnorm_f32,
	.layernorm = cpu_layernorm,
	.positions = cpu_positions,
	.activate = cpu_activate,
	.add_rows = cpu_add_rows,
	.map = cpu_map,
	.linear = cpu_linear,
	.qkv_squares = cpu_qkv_squares,
	.qkv = cpu_qkv,
	.attention = cpu_attention,
	.gateup_swiglu = cpu_gateup_swiglu,
	.route = cpu_route,
	.moe = cpu_moe,
	.gather = cpu_gather,
	.sample = cpu_sample,
};
