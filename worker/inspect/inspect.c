#include "worker/inspect/inspect.h"

#include "base/options.h"
#include "kernels/cpu/machine.h"
#include "kernels/cpu/probe.h"
#include "kernels/kern.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Open a device with the smallest sizes, only to query it. */
static int open_device(const char *name, const char *isa, enum kern_compute compute,
		       const struct kern_ops **ops, struct kern_dev **dev, struct why *why)
{
	struct kern_open_args a = {.compute = compute,
				   .isa = isa,
				   .n_threads = 0,
				   .max_rows = 1,
				   .max_seqs = 1,
				   .max_logits = 1,
				   .max_context = 16,
				   .max_blocks_per_seq = 1};
	int rc = kern_find(name, ops, &a.index, why);
	return rc ? rc : (*ops)->open(dev, &a, why);
}

static bool opens(const char *name, const char *isa, enum kern_compute compute, struct why *why)
{
	const struct kern_ops *ops;
	struct kern_dev *dev;
	if (open_device(name, isa, compute, &ops, &dev, why))
		return false;
	ops->close(dev);
	return true;
}

/* Return the instruction sets that open on the device, in order of preference. */
static json_t *isas_that_open(const char *device)
{
	static const char *const isa[] = {"avx512", "avx2", "plain"};
	json_t *list = json_array();
	struct why why;
	for (int i = 0; i < 3; i++)
		if (opens(device, isa[i], KERN_COMPUTE_F32, &why))
			json_array_append_new(list, json_string(isa[i]));
	return list;
}

static const char *kv_name(enum kern_kv_type t)
{
	static const char *const names[] = {"", "f32", "f16", "bf16", "int16", "int8"};
	return names[t];
}

/* Return the compute modes that open, their kernels, and their types of K and V. */
static json_t *modes_that_open(const char *device)
{
	json_t *list = json_array();
	for (int i = KERN_COMPUTE_F32; i <= KERN_COMPUTE_INT8; i++) {
		const struct kern_ops *ops;
		struct kern_dev *dev;
		struct kern_info info;
		struct why why;
		if (open_device(device, NULL, (enum kern_compute)i, &ops, &dev, &why))
			continue;
		ops->info(dev, &info);
		ops->close(dev);
		json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:s, s:s}", "compute",
						      kern_compute_name((enum kern_compute)i), "mode",
						      info.mode, "numerics", info.numerics, "kv",
						      kv_name(info.kv), "note", info.note));
	}
	return list;
}

/* ---- a CPU ---- */

static json_t *describe_machine(void)
{
	struct cpu_machine m;
	cpu_machine_read("", &m);
	json_t *has = json_object(), *nodes = json_array();
	for (int i = 0; i < MACHINE_FEATURES; i++)
		json_object_set_new(has, cpu_machine_feature((enum machine_feature)i),
				    json_boolean(m.has[i]));
	for (int i = 0; i < m.n_nodes; i++)
		json_array_append_new(nodes, json_string(m.node_cpus[i]));
	return json_pack("{s:i, s:i, s:o, s:o, s:b, s:{s:I, s:I, s:s, s:I, s:s}, s:s, s:I}", "cpus", m.n_cpus,
			 "cores", m.n_cores, "nodes", nodes, "has", has, "amx_granted",
			 cpu_machine_amx_granted(), "caches", "l1d", (json_int_t)m.l1d, "l2",
			 (json_int_t)m.l2, "l2_cpus", m.l2_cpus, "l3", (json_int_t)m.l3, "l3_cpus", m.l3_cpus,
			 "huge_pages", m.huge_pages, "huge_page_bytes", (json_int_t)m.huge_page_bytes);
}

static int ascending(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static double median_rate(struct probe *p, enum probe_kind k, int n_threads)
{
	enum { PASSES = 7, PASS_US = 4000 };
	double rates[PASSES];
	for (int i = 0; i < PASSES; i++)
		rates[i] = probe_rate(p, k, n_threads, PASS_US);
	qsort(rates, PASSES, sizeof *rates, ascending);
	return rates[PASSES / 2];
}

/* Return {"read": {"one": BYTES_PER_S, "all": ...}, "f32": ...}: rates of one thread and of all.  NULL: out
 * of memory. */
static json_t *describe_probes(void)
{
	struct probe *p;
	struct why why;
	if (probe_new(&p, 0, 0, &why))
		return NULL;
	json_t *o = json_object();
	for (int k = 0; k < PROBE_KINDS; k++)
		if (probe_can((enum probe_kind)k))
			json_object_set_new(o, probe_name((enum probe_kind)k),
					    json_pack("{s:f, s:f}", "one",
						      median_rate(p, (enum probe_kind)k, 1), "all",
						      median_rate(p, (enum probe_kind)k, 0)));
	json_object_set_new(o, "threads", json_integer(probe_threads(p)));
	probe_free(p);
	return o;
}

static void describe_cpu(json_t *o, const char *name, bool probe)
{
	json_object_set_new(o, "isa_available", isas_that_open(name));
	json_object_set_new(o, "machine", describe_machine());
	json_object_set_new(o, "auto", json_string(kern_compute_name(kern_auto_compute(name, NULL))));
	json_t *probes = probe ? describe_probes() : NULL;
	if (probes)
		json_object_set_new(o, "probes", probes);
}

/* ---- any device ---- */

/* Describe a device; NULL with the reason if it does not open. */
static json_t *describe(const char *name, bool probe, struct why *why)
{
	const struct kern_ops *ops;
	struct kern_dev *dev;
	struct kern_info info;
	if (open_device(name, NULL, kern_auto_compute(name, NULL), &ops, &dev, why))
		return NULL;
	ops->info(dev, &info);
	json_t *o = json_pack("{s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:i}", "device", name, "name", info.name,
			      "kernels", ops->name, "isa", info.isa, "numerics", info.numerics, "bytes_total",
			      (json_int_t)info.bytes_total, "bytes_free", (json_int_t)info.bytes_free,
			      "threads", info.n_threads);
	ops->close(dev);
	json_object_set_new(o, "compute", modes_that_open(name));
	if (strncmp(name, "cpu", 3) == 0)
		describe_cpu(o, name, probe);
	return o;
}

bool inspect_opens(const char *device, struct why *why)
{
	return opens(device, NULL, KERN_COMPUTE_F32, why);
}

int inspect_devices(const char *kind, bool probe)
{
	const bool gpu = strcmp(kind, "gpu") == 0;
	struct why why = {""};
	char name[16];
	json_t *out = json_array();
	for (int i = 0; i < (gpu ? DEVICES_MAX : 1); i++) {
		snprintf(name, sizeof name, gpu ? "cuda:%d" : "cpu", i);
		json_t *device = describe(name, probe, &why);
		if (!device)
			break;
		json_array_append_new(out, device);
	}
	const bool none = json_array_size(out) == 0;
	if (none) {
		json_decref(out);
		out = json_pack("{s:s}", "error", why.text);
	}
	int rc = json_dumpf(out, stdout, JSON_INDENT(2));
	putchar('\n');
	json_decref(out);
	return none || rc || fflush(stdout) ? EXIT_FAILURE : EXIT_SUCCESS;
}
