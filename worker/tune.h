/* tune.h - the numbers of rows above which --fast uses other kernels, as measured on a device and stored in
 * a file.
 *
 * `quern bench kernels --tune` writes the file, workers with --fast read it.  It is valid for one device
 * and one build of the kernels; otherwise the crossovers built into the kernels are used.
 *
 *     {"quern_tune": 1, "device": "NVIDIA H200", "isa": "sm_90", "build": "0123456789ab",
 *      "layers": [{"type": "awq", "k": 4096, "n": 6144, "above": 96}, ...]}
 *
 * type: awq, f16, bf16, of the weights; k inputs, n outputs (without both: every layer of the type that is
 * not listed); above: steps of more rows are faster with the other kernels, null: none are.  Other keys are
 * ignored. */
#ifndef QUERN_WORKER_TUNE_H
#define QUERN_WORKER_TUNE_H

#include "base/err.h"
#include "kernels/kern.h"

#include <stdbool.h>
#include <stddef.h>

enum { TUNE_LAYERS_MAX = 512, TUNE_ABOVE_MAX = 1 << 20, TUNE_FILE_MAX = 1 << 20 };

struct tune {
	char device[64], isa[32], build[24]; /* the fields of kern_info */
	struct kern_crossover layers[TUNE_LAYERS_MAX];
	int n;
};

/* Set out to <cache>/quern/tune-<device>.json, where cache is xdg_cache if that is an absolute path, else
 * home/.cache.  -ENOENT: neither is usable (NULL is fine); -ENAMETOOLONG. */
int tune_path(char *out, size_t n, const char *xdg_cache, const char *home, const char *device);

/* Parse n bytes of text.  -EINVAL with the reason; *t is then empty. */
int tune_parse(struct tune *t, const char *text, size_t n, struct why *why);
/* Read a file.  -EINVAL, or as file_read(); why names the path and the remedy. */
int tune_read(struct tune *t, const char *path, struct why *why);

/* Replace the file atomically; the folder is created if needed. */
int tune_write(const struct tune *t, const char *path, struct why *why);

/* True if t was measured on this device with these kernels; if not, why names the difference. */
bool tune_fits(const struct tune *t, const struct kern_info *info, struct why *why);

/* Places where a worker looks for the file. */
struct tune_source {
	const char *file;             /* --tune FILE; NULL: the file of tune_path() */
	const char *xdg_cache, *home; /* from its environment, or NULL */
};

/* For a device opened with fast, before weights are loaded: set the crossovers that were measured for it,
 * if any, and log which are used.  Only a file given by --tune that cannot be read is an error. */
int tune_use(const struct kern_ops *ops, struct kern_dev *dev, const struct tune_source *from,
	     struct why *why);

#endif
