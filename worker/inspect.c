#include "worker/inspect.h"

#include "base/options.h"
#include "kernels/kern.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Opens a device with the smallest sizes, only to query it. */
static int open_device(const char *name, const char *isa, enum kern_compute compute,
		       const struct kern_ops **ops, struct kern_dev **dev, char *why, size_t why_n)
{
	struct kern_open_args a = {.compute = compute,
				   .isa = isa,
				   .n_threads = 0,
				   .max_rows = 1,
				   .max_seqs = 1,
				   .max_logits = 1,
				   .max_context = 16,
				   .max_blocks_per_seq = 1};
	int rc = kern_find(name, ops, &a.index, why, why_n);
	return rc ? rc : (*ops)->open(dev, &a, why, why_n);
}

static bool opens(const char *name, const char *isa, enum kern_compute compute)
{
	const struct kern_ops *ops;
	struct kern_dev *dev;
	char why[512];
	if (open_device(name, isa, compute, &ops, &dev, why, sizeof why))
		return false;
	ops->close(dev);
	return true;
}

/* The instruction sets, or else the compute modes, that open on the device, in order of preference. */
static json_t *names_that_open(const char *device, bool isas)
{
	static const char *const isa[] = {"avx512", "avx2", "plain"};
	static const char *const compute[] = {"f32", "bf16", "int16", "int8"};
	json_t *list = json_array();
	for (int i = 0; i < (isas ? 3 : 4); i++)
		if (opens(device, isas ? isa[i] : NULL, isas ? KERN_COMPUTE_F32 : (enum kern_compute)i))
			json_array_append_new(list, json_string(isas ? isa[i] : compute[i]));
	return list;
}

/* NULL with the reason when the device does not open. */
static json_t *describe(const char *name, char *why, size_t why_n)
{
	const struct kern_ops *ops;
	struct kern_dev *dev;
	struct kern_info info;
	if (open_device(name, NULL, KERN_COMPUTE_F32, &ops, &dev, why, why_n))
		return NULL;
	ops->info(dev, &info);
	json_t *o = json_pack("{s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:i}", "device", name, "name", info.name,
			      "kernels", ops->name, "isa", info.isa, "numerics", info.numerics, "bytes_total",
			      (json_int_t)info.bytes_total, "bytes_free", (json_int_t)info.bytes_free,
			      "threads", info.n_threads);
	ops->close(dev);
	json_object_set_new(o, "compute", names_that_open(name, false));
	if (strncmp(name, "cpu", 3) == 0)
		json_object_set_new(o, "isa_available", names_that_open(name, true));
	return o;
}

int inspect_devices(const char *kind)
{
	const bool gpu = strcmp(kind, "gpu") == 0;
	char why[512] = "", name[16];
	json_t *out = json_array();
	for (int i = 0; i < (gpu ? DEVICES_MAX : 1); i++) {
		snprintf(name, sizeof name, gpu ? "cuda:%d" : "cpu", i);
		json_t *device = describe(name, why, sizeof why);
		if (!device)
			break;
		json_array_append_new(out, device);
	}
	const bool none = json_array_size(out) == 0;
	if (none) {
		json_decref(out);
		out = json_pack("{s:s}", "error", why);
	}
	int rc = json_dumpf(out, stdout, JSON_INDENT(2));
	putchar('\n');
	json_decref(out);
	return none || rc || fflush(stdout) ? EXIT_FAILURE : EXIT_SUCCESS;
}
