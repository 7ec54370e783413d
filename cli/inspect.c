#include "cli/inspect.h"

#include "base/buf.h"
#include "base/err.h"
#include "base/file.h"
#include "base/json.h"
#include "base/option_table.h"
#include "base/replace.h"
#include "cli/command.h"
#include "cli/models/cache.h"
#include "cli/models/graph.h"
#include "cli/models/report.h"
#include "cli/models/tensor_stats.h"
#include "cli/process.h"
#include "cli/terminal/table.h"
#include "cli/terminal/term.h"
#include "formats/model_file.h"
#include "formats/model_kind.h"
#include "formats/place/proposal.h"
#include "formats/shard.h"
#include "formats/weights.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const struct usage usage = {
	.name = "inspect",
	.words = "MODEL | cpu | gpu",
	.about = "Shows what a model contains, how its weights are stored, the memory that it needs by "
		 "context and\n"
		 "number of sequences, and the speed that this machine's memory bandwidth allows.  For cpu "
		 "and gpu,\n"
		 "shows this machine's devices and the kernels that they use.  MODEL is a directory, a file, "
		 "or the\n"
		 "name of a model that quern pull has fetched.",
	.min_words = 1,
	.max_words = 1,
};

static void print_json(json_t *o)
{
	json_dumpf(o, stdout, JSON_INDENT(2));
	putchar('\n');
	json_decref(o);
}

/* ---- a device ---- */

/* Run quern-worker with `option` WHAT and parse the JSON that it prints.  Only a worker has the kernels. */
static int run_worker(const char *option, const char *what, const char *more, json_t **out, struct why *why)
{
	char *program = process_program("quern-worker", why);
	if (!program)
		return -ENOENT;
	struct buf text = {0};
	char status_text[64];
	char *argv[] = {program, (char *)option, (char *)what, (char *)more, NULL};
	int status, rc = process_output(argv, &text, &status, why);
	if (!rc && json_parse(text.p ? text.p : "", text.len, out, NULL))
		rc = err_why(why, -EIO, "%s %s %s: %s", program, option, what,
			     process_status_text(status, status_text, sizeof status_text));
	buf_fini(&text);
	free(program);
	return rc;
}

static int read_devices(const char *kind, bool probe, json_t **out, struct why *why)
{
	return run_worker("--inspect", kind, probe ? NULL : "--no-probe", out, why);
}

static void print_list(const char *label, const json_t *list)
{
	printf("  %-12s", label);
	for (size_t i = 0; i < json_array_size(list); i++)
		printf("%s%s", i ? ", " : "", json_string_value(json_array_get(list, i)));
	putchar('\n');
}

/* Print the compute modes, the instructions that each uses, and the mode that --compute auto selects. */
static void print_modes(const json_t *o)
{
	const json_t *list = json_get(o, "compute");
	const char *best = json_string_value(json_get(o, "auto"));
	for (size_t i = 0; i < json_array_size(list); i++) {
		const json_t *m = json_array_get(list, i);
		const char *name = json_string_value(json_get(m, "compute")),
			   *note = json_string_value(json_get(m, "note"));
		printf("  %-12s%s", i ? "" : "compute", json_string_value(json_get(m, "mode")));
		if (best && strcmp(best, name) == 0)
			printf(" (the default: %s)",
			       strcmp(best, "f32") ? "this CPU has VNNI or AMX" : "this CPU has no VNNI");
		printf("%s%s\n", note[0] ? ": " : "", note);
	}
}

static const char *bytes_text(const json_t *o, const char *key, char *out, size_t n)
{
	return term_bytes((double)json_integer_value(json_get(o, key)), out, n);
}

static void print_machine(const json_t *m)
{
	const json_t *caches = json_get(m, "caches"), *nodes = json_get(m, "nodes"), *yes;
	const char *name, *pages = json_string_value(json_get(m, "huge_pages"));
	char a[32], b[32], c[32];
	int n = 0;
	printf("  %-12s%lld, %lld threads; ", "cores", (long long)json_integer_value(json_get(m, "cores")),
	       (long long)json_integer_value(json_get(m, "cpus")));
	printf("%zu NUMA node%s", json_array_size(nodes), json_array_size(nodes) == 1 ? "" : "s");
	for (size_t i = 0; i < json_array_size(nodes); i++)
		printf("%s%s", i ? "; " : ": CPUs ", json_string_value(json_array_get(nodes, i)));
	printf("\n  %-12sL1 %s, L2 %s, L3 %s (shared by CPUs %s)\n", "caches",
	       bytes_text(caches, "l1d", a, sizeof a), bytes_text(caches, "l2", b, sizeof b),
	       bytes_text(caches, "l3", c, sizeof c), json_string_value(json_get(caches, "l3_cpus")));
	printf("  %-12s%s\n", "huge pages", pages[0] ? pages : "unknown");
	printf("  %-12s", "has");
	json_object_foreach((json_t *)json_get(m, "has"), name, yes) if (json_is_true(yes))
		printf("%s%s", n++ ? ", " : "", name);
	printf("%s\n", n ? "" : "none of AVX2, AVX-512, VNNI, BF16, FP16, AMX");
	if (json_is_true(json_get(json_get(m, "has"), "AMX INT8")))
		printf("  %-12s%s\n", "AMX",
		       json_is_true(json_get(m, "amx_granted"))
			       ? "granted by the system"
			       : "not granted by the system (arch_prctl): VNNI is used instead");
}

/* Print the probed rates of one thread and of all threads. */
static void print_probes(const json_t *o)
{
	const char *name;
	json_t *p;
	int n = 0;
	json_object_foreach((json_t *)o, name, p)
	{
		if (!json_is_object(p))
			continue;
		const double one = json_number_value(json_get(p, "one")) * 1e-9,
			     all = json_number_value(json_get(p, "all")) * 1e-9;
		const bool reads = strncmp(name, "read", 4) == 0;
		printf("  %-12s%-12s one thread %8.1f %s, all %8.1f\n", n++ ? "" : "probed", name, one,
		       reads ? "GB/s" : "Gop/s", all);
	}
}

static void print_device(const json_t *o)
{
	char total[32], left[32];
	term_bytes((double)json_integer_value(json_get(o, "bytes_total")), total, sizeof total);
	term_bytes((double)json_integer_value(json_get(o, "bytes_free")), left, sizeof left);
	printf("%s%s%s: %s\n", term_style(stdout, TERM_BOLD), json_string_value(json_get(o, "device")),
	       term_style(stdout, TERM_PLAIN), json_string_value(json_get(o, "name")));
	printf("  %-12s%s, %s free\n", "memory", total, left);
	if (json_get(o, "machine"))
		print_machine(json_get(o, "machine"));
	if (json_integer_value(json_get(o, "threads")))
		printf("  %-12s%lld\n", "threads", (long long)json_integer_value(json_get(o, "threads")));
	printf("  %-12s%s, %s\n", "kernels", json_string_value(json_get(o, "kernels")),
	       json_string_value(json_get(o, "isa")));
	if (json_get(o, "isa_available"))
		print_list("can use", json_get(o, "isa_available"));
	print_modes(o);
	printf("  %-12s%s\n", "numerics", json_string_value(json_get(o, "numerics")));
	if (json_get(o, "probes"))
		print_probes(json_get(o, "probes"));
}

static int inspect_devices(const struct opts *o, const char *kind)
{
	struct why why;
	json_t *list;
	if (read_devices(kind, !opts_flag(o, "no-probe"), &list, &why))
		return term_error("%s", why.text);
	int status = 0;
	const char *error = json_string_value(json_get(list, "error"));
	if (error)
		status = term_error("%s", error);
	else if (opts_flag(o, "json"))
		print_json(json_incref(list));
	else
		for (size_t i = 0; i < json_array_size(list); i++)
			print_device(json_array_get(list, i));
	json_decref(list);
	return status;
}

/* ---- a model ---- */

struct counts {
	int64_t values;
	int quantized;
	bool tied;
};

static void count(void *ctx, const struct weights_linear *l, bool head)
{
	struct counts *n = ctx;
	n->quantized += l->kind != WEIGHTS_DENSE;
	if (!head || !n->tied)
		n->values += (int64_t)l->n * l->k + l->bias.n;
}

static struct counts counts_of(const struct model_config *c, const struct weights *w)
{
	struct counts n = {.tied = c->tied && !w->untied};
	weights_each(w, count, &n);
	return n;
}

static int64_t n_parameters(const struct model_config *c, const struct weights *w)
{
	int64_t n = w->embed.n + w->norm.n + counts_of(c, w).values;
	for (int i = 0; i < w->n_layers; i++) {
		const struct weights_layer *l = &w->layers[i];
		n += l->attn_norm.n + l->ffn_norm.n + l->attn_post.n + l->ffn_post.n + l->q_norm.n +
		     l->k_norm.n + l->choice_bias.n;
	}
	return n;
}

/* Return the number of parameters that one row is multiplied by. */
static int64_t n_active(const struct model_config *c, const struct weights *w)
{
	return n_parameters(c, w) - (model_config_layer_weights(c) - model_config_row_macs(c));
}

/* Return {"F16": {"tensors": 12, "bytes": 4096}, ...}. */
static json_t *types_of(const struct weights_files *files)
{
	json_t *o = json_object();
	for (int i = 0; i < files->n_tensors; i++) {
		struct weights_tensor t;
		files->tensor(files->at, i, &t);
		json_t *e = json_object_get(o, t.type);
		if (!e) {
			e = json_pack("{s:i, s:i}", "tensors", 0, "bytes", 0);
			json_object_set_new(o, t.type, e);
		}
		json_t *n = json_object_get(e, "tensors"), *bytes = json_object_get(e, "bytes");
		json_integer_set(n, json_integer_value(n) + 1);
		json_integer_set(bytes, json_integer_value(bytes) + (json_int_t)t.bytes);
	}
	return o;
}

static json_t *tensor_list(const struct weights *w)
{
	const struct weights_files *files = &w->files;
	json_t *list = json_array();
	for (int i = 0; i < files->n_tensors; i++) {
		struct weights_tensor t;
		files->tensor(files->at, i, &t);
		json_t *shape = json_array();
		for (int k = 0; k < t.n_dims; k++)
			json_array_append_new(shape, json_integer(t.shape[k]));
		json_t *o = json_pack("{s:s, s:s, s:o, s:I}", "name", t.name, "dtype", t.type, "shape", shape,
				      "bytes", (json_int_t)t.bytes);
		struct tensor_stats s;
		if (tensor_stats_read(w, &t, &s))
			json_object_set_new(o, "values",
					    json_pack("{s:f, s:f, s:f, s:I, s:I, s:I}", "min", s.min, "max",
						      s.max, "mean", s.mean, "count", (json_int_t)s.n,
						      "zeros", (json_int_t)s.n_zero, "not_finite",
						      (json_int_t)s.n_infinite));
		json_array_append_new(list, o);
	}
	return list;
}

static const char *rope_name(enum config_rope r)
{
	static const char *const names[] = {"default", "linear", "dynamic", "llama3", "yarn", "longrope"};
	return names[r];
}

int64_t inspect_kv_token_bytes(const struct model_config *c, const char *type)
{
	const bool int8 = strcmp(type, "int8") == 0, int16 = strcmp(type, "int16") == 0;
	const int value = int8 ? 1 : int16 || strcmp(type, "bf16") == 0 ? 2 : 4;
	/* K's rows are padded, and in the integer types the scales of K and V follow them. */
	const int together = int8 || int16 ? 4 : 2, scales = int8 || int16 ? 8 : 0;
	int64_t bytes = 0;
	for (int i = 0; i < c->n_layers; i++) {
		const int d = c->layers[i].dim, k = (d + together - 1) / together * together,
			  v = (d + 15) / 16 * 16;
		bytes += (int64_t)c->layers[i].kv_heads * ((k + v) * value + scales);
	}
	return bytes;
}

/* Return the description of this machine's CPU, with its bandwidth if probe is set; NULL if no worker reports
 * it. */
static json_t *read_cpu(bool probe)
{
	struct why why;
	json_t *list, *cpu = NULL;
	if (read_devices("cpu", probe, &list, &why) == 0) {
		cpu = json_incref(json_array_get(list, 0));
		json_decref(list);
	}
	return cpu;
}

/* Store the CPU's default compute mode and its type of K and V; "f32" if no worker reports them. */
static void default_mode(const json_t *cpu, char *mode, char *kv, size_t n)
{
	const json_t *modes = json_get(cpu, "compute");
	const char *best = json_string_value(json_get(cpu, "auto"));
	snprintf(mode, n, "f32");
	snprintf(kv, n, "f32");
	for (size_t i = 0; best && i < json_array_size(modes); i++) {
		const json_t *m = json_array_get(modes, i);
		const char *name = json_string_value(json_get(m, "compute")),
			   *type = json_string_value(json_get(m, "kv"));
		if (name && type && strcmp(name, best) == 0) {
			snprintf(mode, n, "%s", name);
			snprintf(kv, n, "%s", type);
		}
	}
}

/* Return the modes in which a tied embedding is stored twice: {"int8": bytes}. */
static json_t *second_copies(const struct model_config *c, const struct weights *w)
{
	json_t *o = json_object();
	const char *why;
	for (int m = 0; m < PACKED_MODES; m++) {
		const char *mode = packed_mode_name((enum packed_mode)m);
		const int64_t bytes = report_second_copy(w, c, mode, &why);
		if (bytes)
			json_object_set_new(o, mode, json_integer((json_int_t)bytes));
	}
	return o;
}

/* Return the bytes of weights that a CPU worker holds in each mode: {"f32": bytes, ...}. */
static json_t *loaded(const struct model_config *c, const struct weights *w)
{
	json_t *o = json_object();
	for (int m = 0; m < PACKED_MODES; m++)
		json_object_set_new(o, packed_mode_name((enum packed_mode)m),
				    json_integer((json_int_t)packed_weights(w, c, (enum packed_mode)m,
									    PACKED_HEAD_MODE)));
	return o;
}

/* Return the number of layers with experts. */
static int n_sparse(const struct model_config *c)
{
	int n = 0;
	for (int i = 0; i < c->n_layers; i++)
		n += c->layers[i].sparse;
	return n;
}

/* Return the bytes of all routed experts in the files, which --experts cpu keeps off a GPU. */
static int64_t experts_bytes(const struct weights *w)
{
	int64_t n = 0;
	for (int i = 0; i < w->n_layers; i++)
		n += shard_experts_bytes(&w->layers[i], NULL);
	return n;
}

/* Return the memory of the first GPU, or the size given by --gpu-bytes; 0: there is no GPU. */
static int64_t gpu_bytes(const struct opts *o)
{
	struct why why;
	json_t *list;
	const int64_t told = opts_int(o, "gpu-bytes");
	if (told || read_devices("gpu", false, &list, &why))
		return told;
	const int64_t bytes = json_integer_value(json_get(json_array_get(list, 0), "bytes_total"));
	json_decref(list);
	return bytes;
}

/* Describe where the experts should be placed with a GPU of so many bytes.  NULL: there is no GPU, or the
 * model has no experts. */
static json_t *describe_placement(const struct model_config *c, const struct weights *w, const char *mode,
				  int64_t bytes)
{
	struct proposal p;
	if (bytes <= 0 || !c->experts.n)
		return NULL;
	proposal_make(&p, c, w, (int64_t)(OPTION_GPU_FRACTION * (double)bytes), packed_mode(mode));
	return json_pack("{s:I, s:b, s:i, s:i, s:I, s:I, s:I, s:I, s:I, s:I, s:s}", "gpu_bytes",
			 (json_int_t)bytes, "fits", p.fits, "layers_on_gpu", p.n_sparse - p.n_cpu,
			 "layers_on_host", p.n_cpu, "gpu_weights", (json_int_t)p.device_bytes, "gpu_experts",
			 (json_int_t)p.hot_bytes, "gpu_room", (json_int_t)p.room_bytes, "host_weights",
			 (json_int_t)p.host_bytes, "gpu_per_token", (json_int_t)p.device_token_bytes,
			 "host_per_token", (json_int_t)p.host_token_bytes, "options", p.options);
}

/* Describe the quantization: its types, and what of it quern does not imitate. */
static json_t *describe_quantization(const struct model_config *c, const struct weights *w)
{
	const struct quant *q = &c->quant;
	char text[80];
	json_t *types = json_array(), *not_imitated = json_array();
	for (int i = 0; q->mixed && i < q->n_schemes; i++) {
		const struct quant_scheme *s = &q->schemes[i];
		json_array_append_new(types,
				      json_pack("{s:s, s:i, s:i}", "type", quant_layout_name(s->layout),
						"bits", s->bits, "group", s->group));
	}
	if (q->own_activations) {
		snprintf(text, sizeof text, "activations as %s", q->activations);
		json_array_append_new(not_imitated, json_string(text));
	}
	if (q->own_kv_cache)
		json_array_append_new(not_imitated, json_string("the KV cache's own type"));
	return json_pack("{s:s, s:i, s:i, s:i, s:o, s:o}", "method", q->name, "bits", q->schemes[0].bits,
			 "group", q->schemes[0].group, "layers", counts_of(c, w).quantized, "types", types,
			 "not_imitated", not_imitated);
}

static json_t *describe_model(const char *dir, const struct model_config *c, const struct weights *w,
			      const json_t *cpu, int64_t gpu)
{
	char mode[16], type[16];
	default_mode(cpu, mode, type, sizeof mode);
	const int64_t kv = inspect_kv_token_bytes(c, type);
	json_t *o = json_pack("{s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:b, s:s, s:f}", "model",
			      dir, "architecture", c->arch_name, "layers", c->n_layers, "hidden", c->hidden,
			      "intermediate", c->intermediate, "heads", c->n_heads, "kv_heads", c->n_kv_heads,
			      "head_dim", c->head_dim, "vocabulary", c->n_vocab, "context", c->max_position,
			      "tied", c->tied && !w->untied, "rope", rope_name(c->rope), "rope_theta",
			      c->rope_theta);
	json_object_set_new(o, "sliding_window", json_integer(c->window));
	json_object_set_new(o, "parameters", json_integer(n_parameters(c, w)));
	if (c->experts.n) {
		json_object_set_new(o, "active_parameters", json_integer(n_active(c, w)));
		json_object_set_new(o, "experts",
				    json_pack("{s:i, s:i, s:i, s:i, s:i, s:I}", "number", c->experts.n,
					      "chosen", c->experts.n_chosen, "intermediate",
					      c->experts.intermediate, "shared_intermediate",
					      c->experts.shared, "layers", n_sparse(c), "bytes",
					      (json_int_t)experts_bytes(w)));
	}
	json_t *placement = describe_placement(c, w, mode, gpu);
	if (placement)
		json_object_set_new(o, "placement", placement);
	if (c->quant.n_schemes)
		json_object_set_new(o, "quantization", describe_quantization(c, w));
	json_object_set_new(o, "types", types_of(&w->files));
	json_object_set_new(o, "files", json_integer(w->files.n_files));
	json_object_set_new(o, "tensors_used", json_integer(w->n_used));
	json_object_set_new(o, "tensors_unused", json_integer(w->n_unused));
	json_object_set_new(o, "memory",
			    json_pack("{s:I, s:o, s:o, s:I, s:I, s:s, s:s}", "weights", (json_int_t)w->bytes,
				      "loaded", loaded(c, w), "second_copies", second_copies(c, w),
				      "kv_per_token", (json_int_t)kv, "kv_of_a_full_context",
				      (json_int_t)report_sequence_bytes(c, c->max_position, kv), "kv_type",
				      type, "compute", mode));
	json_object_set_new(o, "storage", report_storage(w));
	json_object_set_new(o, "memory_by_context",
			    report_memory(c, packed_weights(w, c, packed_mode(mode), PACKED_HEAD_MODE), kv));
	json_t *speed = report_speed(c, w, cpu, kv);
	if (speed)
		json_object_set_new(o, "speed", speed);
	return o;
}

static void print_types(const json_t *types)
{
	const char *name;
	json_t *e;
	int i = 0;
	printf("  %-14s", "tensors");
	json_object_foreach((json_t *)types, name, e)
	{
		char bytes[32];
		term_bytes((double)json_integer_value(json_get(e, "bytes")), bytes, sizeof bytes);
		printf("%s%lld %s (%s)", i++ ? ", " : "",
		       (long long)json_integer_value(json_get(e, "tensors")), name, bytes);
	}
	putchar('\n');
}

/* Print how layers differ in windows and rotary embeddings. */
static void print_layers(const struct model_config *c)
{
	int windows = 0, local = 0, none = 0;
	for (int i = 0; i < c->n_layers; i++) {
		windows += c->layers[i].window != 0;
		local += c->layers[i].rope == LAYER_ROPE_LOCAL;
		none += c->layers[i].rope == LAYER_ROPE_NONE;
	}
	if (windows)
		printf(", sliding window of %d", c->window);
	if (windows && windows < c->n_layers)
		printf(" in %d of %d layers", windows, c->n_layers);
	if (local)
		printf(" (base %g there)", c->rope_local_theta);
	if (none)
		printf(", none in %d of %d layers", none, c->n_layers);
}

/* Format "1.23 billion". */
static const char *parameters_text(int64_t n, char *out, size_t size)
{
	const bool billion = n >= 1000000000;
	snprintf(out, size, "%.2f %s", (double)n / (billion ? 1e9 : 1e6), billion ? "billion" : "million");
	return out;
}

static void print_experts(const struct model_config *c, const struct weights *w)
{
	char experts[32], rest[32];
	const int64_t bytes = experts_bytes(w);
	const struct config_experts *x = &c->experts;
	if (!x->n)
		return;
	printf("  %-14s%d in %d of %d layers, %d chosen by each row, intermediate %d", "experts", x->n,
	       n_sparse(c), c->n_layers, x->n_chosen, x->intermediate);
	if (x->shared)
		printf("; one of %d for all rows", x->shared);
	printf("\n");
	printf("  %-14s--experts cpu keeps %s of the files in host memory, and %s on a GPU\n", "placement",
	       term_bytes((double)bytes, experts, sizeof experts),
	       term_bytes((double)(w->bytes - bytes), rest, sizeof rest));
}

static void print_placement(const json_t *p)
{
	const char *options = json_string_value(json_get(p, "options"));
	char a[32], b[32], d[32];
	printf("  %-14son a GPU of %s ", "", bytes_text(p, "gpu_bytes", a, sizeof a));
	if (!json_is_true(json_get(p, "fits"))) {
		printf("not even all but the experts (%s) fits: --device cpu, or several with --tp\n",
		       bytes_text(p, "gpu_weights", b, sizeof b));
		return;
	}
	printf("(%.0f%% of it): about %s of weights with the experts of %lld layers, %s for K and V\n",
	       100 * OPTION_GPU_FRACTION, bytes_text(p, "gpu_weights", b, sizeof b),
	       (long long)json_integer_value(json_get(p, "layers_on_gpu")),
	       bytes_text(p, "gpu_room", d, sizeof d));
	if (json_integer_value(json_get(p, "layers_on_host")))
		printf("  %-14sin host memory the experts of %lld layers: %s\n", "",
		       (long long)json_integer_value(json_get(p, "layers_on_host")),
		       bytes_text(p, "host_weights", a, sizeof a));
	printf("  %-14sa token reads %s there and %s on the host; quern serve MODEL --device cuda:0%s%s\n",
	       "", bytes_text(p, "gpu_per_token", a, sizeof a), bytes_text(p, "host_per_token", b, sizeof b),
	       options[0] ? " " : "", options);
	const json_int_t hot = json_integer_value(json_get(p, "gpu_experts")) >> 20;
	if (hot && json_integer_value(json_get(p, "layers_on_host")))
		printf("  %-14sor the most asked experts of all layers there, by the counts of a service: "
		       "--experts "
		       "cpu --hot-experts %lldM --expert-counts FILE\n",
		       "", (long long)hot);
}

static void print_type(const char *name, const json_t *of)
{
	const int group = (int)json_integer_value(json_get(of, "group"));
	printf("%s, %d bits", name, (int)json_integer_value(json_get(of, "bits")));
	if (group > 0)
		printf(", groups of %d", group);
}

/* Print describe_quantization(). */
static void print_quantization(const json_t *q)
{
	const json_t *types = json_get(q, "types"), *not_imitated = json_get(q, "not_imitated");
	if (!q)
		return;
	printf("  %-14s", "quantization");
	if (json_array_size(types))
		printf("%s", json_string_value(json_get(q, "method")));
	else
		print_type(json_string_value(json_get(q, "method")), q);
	printf(", %d linear layers\n", (int)json_integer_value(json_get(q, "layers")));
	for (size_t i = 0; i < json_array_size(types); i++) {
		const json_t *t = json_array_get(types, i);
		printf("  %-14s", "");
		print_type(json_string_value(json_get(t, "type")), t);
		putchar('\n');
	}
	for (size_t i = 0; i < json_array_size(not_imitated); i++)
		printf("  %-14s%s: --compute and --kv-cache-dtype decide\n", i ? "" : "not imitated",
		       json_string_value(json_array_get(not_imitated, i)));
}

static void print_model(const json_t *o, const struct model_config *c, const struct weights *w)
{
	const json_t *memory = json_get(o, "memory");
	char a[32], b[32], d[32], e[32];
	printf("%s%s%s: %s, %s parameters", term_style(stdout, TERM_BOLD),
	       json_string_value(json_get(o, "model")), term_style(stdout, TERM_PLAIN), c->arch_name,
	       parameters_text(n_parameters(c, w), a, sizeof a));
	printf(c->experts.n ? ", %s active\n" : "\n", parameters_text(n_active(c, w), a, sizeof a));
	printf("  %-14s%d layers, hidden %d, intermediate %d, %d heads and %d KV heads of %d\n", "shape",
	       c->n_layers, c->hidden, c->intermediate, c->n_heads, c->n_kv_heads, c->head_dim);
	print_experts(c, w);
	if (json_get(o, "placement"))
		print_placement(json_get(o, "placement"));
	printf("  %-14s%d tokens%s\n", "vocabulary", c->n_vocab,
	       c->tied && !w->untied ? ", embedding and head are one"

	       : w->untied ? "; a head of its own, though tie_word_embeddings is true"
			   : "");
	printf("  %-14s%d tokens, rope %s", "context", c->max_position, rope_name(c->rope));
	print_layers(c);
	putchar('\n');
	if (model_config_long_factors(c, c->max_position))
		printf("  %-14sthe long factors, above a served context of %d; --context %d has the short "
		       "ones\n",
		       "", c->rope_original, c->rope_original);
	if (w->n_beyond)
		printf("  %-14s%d layers that the files have beyond those of config.json\n", "not used",
		       w->n_beyond);
	if (c->text_only)
		printf("  %-14sof the text only; the parts that see are not read\n", "weights");
	print_quantization(json_get(o, "quantization"));
	print_types(json_get(o, "types"));
	if (w->n_unused)
		printf("  %-14s%d tensors\n", "not used", w->n_unused);
	const char *compute = json_string_value(json_get(memory, "compute"));
	printf("  %-14s%s of weights, %s when loaded, %s per token of context (%s for a full one): K and V "
	       "in %s, as "
	       "--compute %s "
	       "has them\n",
	       "memory", term_bytes((double)w->bytes, a, sizeof a),
	       term_bytes((double)packed_weights(w, c, packed_mode(compute), PACKED_HEAD_MODE), e, sizeof e),
	       term_bytes((double)json_integer_value(json_get(memory, "kv_per_token")), b, sizeof b),
	       term_bytes((double)json_integer_value(json_get(memory, "kv_of_a_full_context")), d, sizeof d),
	       json_string_value(json_get(memory, "kv_type")), compute);
	const char *mode, *why;
	const json_t *copy;
	json_object_foreach((json_t *)json_get(memory, "second_copies"), mode, copy)
	{
		report_second_copy(w, c, mode, &why);
		printf("  %-14s--compute %s takes %s more, for a second copy of the embedding: %s\n", "",
		       mode, term_bytes((double)json_integer_value(copy), a, sizeof a), why);
	}
	report_print(json_get(o, "storage"), json_get(o, "memory_by_context"), json_get(o, "speed"));
}

static void print_tensors(const struct weights *w)
{
	const struct weights_files *files = &w->files;
	struct table t = {0};
	table_row(&t, "TENSOR", "TYPE", "SHAPE", "BYTES", "MIN", "MAX", "MEAN", "ZEROS", "", NULL);
	for (int i = 0; i < files->n_tensors; i++) {
		struct weights_tensor x;
		struct tensor_stats s;
		files->tensor(files->at, i, &x);
		char shape[256], bytes[32];
		size_t n = 0;
		shape[0] = '\0';
		for (int k = 0; k < x.n_dims; k++)
			n += (size_t)snprintf(shape + n, sizeof shape - n, "%s%" PRId64, k ? " x " : "",
					      x.shape[k]);
		table_row(&t, x.name, x.type, shape, term_bytes((double)x.bytes, bytes, sizeof bytes), NULL);
		if (!tensor_stats_read(w, &x, &s))
			continue;
		table_format(&t, "%.4g", s.min);
		table_format(&t, "%.4g", s.max);
		table_format(&t, "%.3g", s.mean);
		table_format(&t, "%.1f%%", 100 * (double)s.n_zero / (double)s.n);
		if (s.n_infinite)
			table_format(&t, "%" PRId64 " not finite", s.n_infinite);
	}
	table_print(&t, stdout);
	table_fini(&t);
}

/* ---- a step ---- */

static bool ends_in(const char *path, const char *what)
{
	const size_t n = strlen(path), m = strlen(what);
	return n > m && strcmp(path + n - m, what) == 0;
}

static int write_text(const char *path, const struct buf *text, struct why *why)
{
	struct replace file;
	int rc = replace_begin(&file, path, 0666, why);
	if (rc)
		return rc;
	fwrite(text->p, 1, text->len, file.f);
	return replace_end(&file, why);
}

/* Draw a step of the model in dir; model: its name as given. */
static int draw_step(const struct opts *o, const char *dir, const char *model)
{
	const char *path = opts_text(o, "graph"), *report = opts_text(o, "errors"), *error;
	struct why why;
	json_t *list;
	struct graph g;
	struct buf text = {0};
	if (run_worker("--operations", dir, NULL, &list, &why))
		return term_error("%s", why.text);
	if ((error = json_string_value(json_get(list, "error")))) {
		const int status = term_error("%s", error);
		json_decref(list);
		return status;
	}
	int rc = graph_read(&g, list, model, &why);
	if (!rc && ends_in(path, ".json")) {
		char *json = json_dumps(list, JSON_INDENT(1));
		buf_puts(&text, json);
		buf_puts(&text, "\n");
		free(json);
	}
	json_decref(list);
	if (rc)
		return term_error("%s", why.text);
	if (report)
		rc = graph_errors(&g, report, &why);
	if (!rc) {
		if (!text.len)
			graph_fold(&g);
		if (ends_in(path, ".svg"))
			graph_svg(&g, &text);
		else if (ends_in(path, ".dot"))
			graph_dot(&g, &text);
		rc = write_text(path, &text, &why);
	}
	if (!rc)
		printf("%s: the %d operations of a step, %d layers\n", path, g.n_operations, g.n_layers);
	buf_fini(&text);
	graph_fini(&g);
	return rc ? term_error("%s", why.text) : 0;
}

/* Check the use of --graph and its options.  Returns COMMAND_GO_ON if they are given correctly or not at all,
 * else the exit status. */
static int check_graph(const struct opts *o, bool device)
{
	const char *path = opts_text(o, "graph");
	if (!path && opts_has(o, "errors"))
		return term_usage("inspect", "--errors colours a drawing: give --graph FILE.svg, too");
	if (!path)
		return COMMAND_GO_ON;
	if (device)
		return term_usage("inspect", "--graph draws a step of a model, not a device: name a model");
	if (opts_flag(o, "json") || opts_flag(o, "tensors"))
		return term_usage("inspect", "--graph is not given with --json or --tensors");
	if (!ends_in(path, ".svg") && !ends_in(path, ".dot") && !ends_in(path, ".json"))
		return term_usage("inspect", "--graph %s: the file's name must end in .svg, .dot or .json",
				  path);
	if (opts_has(o, "errors") && ends_in(path, ".json"))
		return term_usage("inspect", "--errors colours a drawing: give --graph FILE.svg");
	return COMMAND_GO_ON;
}

static int inspect_model(const struct opts *o, const char *model)
{
	char dir[PATH_MAX], name[CACHED_NAME];
	cache_find(model, dir, name);
	struct model_config c;
	struct weights *w;
	struct why why;
	if (!file_is_dir(dir) && !model_file_of(dir)) {
		model_kind_check(dir, &why);
		return term_error("%s", why.text);
	}
	if (model_config_load(dir, &c, &why)) {
		model_kind_check(dir, &why);
		return term_error("%s", why.text);
	}
	if (weights_open(dir, &c, &w, &why)) {
		model_config_fini(&c);
		model_kind_check(dir, &why); /* may give a better reason */
		return term_error("%s", why.text);
	}
	if (opts_has(o, "graph")) {
		weights_close(w);
		model_config_fini(&c);
		return draw_step(o, dir, model);
	}
	json_t *cpu = read_cpu(!opts_flag(o, "no-probe")),
	       *d = describe_model(dir, &c, w, cpu, c.experts.n ? gpu_bytes(o) : 0);
	json_decref(cpu);
	if (opts_flag(o, "json")) {
		if (opts_flag(o, "tensors"))
			json_object_set_new(d, "tensors", tensor_list(w));
		print_json(d);
	} else {
		print_model(d, &c, w);
		if (opts_flag(o, "tensors"))
			print_tensors(w);
		json_decref(d);
	}
	weights_close(w);
	model_config_fini(&c);
	return 0;
}

static int run(struct opts *o)
{
	const char *what = o->words[0];
	const bool device = strcmp(what, "cpu") == 0 || strcmp(what, "gpu") == 0;
	const int status = check_graph(o, device);
	if (status != COMMAND_GO_ON)
		return status;
	return device ? inspect_devices(o, what) : inspect_model(o, what);
}

int cmd_inspect(int argc, char **argv)
{
	return command_run(&usage, OPTION_INSPECT, run, argc, argv);
}
