/* tune.h - from how many rows on --fast goes another way: what was measured on a device, in a file.
 *
 * `quern bench kernels --tune` writes it, workers with --fast read it.  It holds for one device and one
 * build of the kernels; for others the crossovers that the kernels were built with count.
 *
 *     {"quern_tune": 1, "device": "NVIDIA H200", "isa": "sm_90", "build": "0123456789ab",
 *      "layers": [{"type": "awq", "k": 4096, "n": 6144, "above": 96}, ...]}
 *
 * type: awq, f16, bf16, of the weights; k inputs, n outputs (without both: every layer of the type that
 * is not named); above: more rows than that are faster the other way, null: none are.  Other keys are
 * passed over. */
#ifndef QUERN_WORKER_TUNE_H
#define QUERN_WORKER_TUNE_H

#include "kernels/kern.h"

#include <stdbool.h>
#include <stddef.h>

enum { TUNE_LAYERS_MAX = 512, TUNE_ABOVE_MAX = 1 << 20, TUNE_FILE_MAX = 1 << 20 };

struct tune {
	char device[64], isa[32], build[24]; /* as kern_info has them */
	struct kern_crossover layers[TUNE_LAYERS_MAX];
	int n;
};

/* <cache>/quern/tune-<device>.json, cache being xdg_cache where it is an absolute path, else home/.cache.
 * -ENOENT: neither of them is one (NULL is fine); -ENAMETOOLONG. */
int tune_path(char *out, size_t n, const char *xdg_cache, const char *home, const char *device);

/* n bytes of text. -EINVAL with what is wrong: *t is empty then. */
int tune_parse(struct tune *t, const char *text, size_t n, char *why, size_t why_n);
/* A file.  -EINVAL, or as file_read(); why names the path, and what to do. */
int tune_read(struct tune *t, const char *path, char *why, size_t why_n);

/* Makes the folder, where it is not there, and replaces the file as a whole. */
int tune_write(const struct tune *t, const char *path, char *why, size_t why_n);

/* Whether it was measured on such a device with such kernels; if not, why says what is different. */
bool tune_fits(const struct tune *t, const struct kern_info *info, char *why, size_t why_n);

/* Where a worker looks. */
struct tune_source {
	const char *file;             /* --tune FILE, or NULL: the file that tune_path() names */
	const char *xdg_cache, *home; /* of its environment, or NULL */
};

/* For a device that was opened with fast, before weights are loaded: gives it the crossovers that were
 * measured for it, if there are any, and logs which ones count.  A file that is named and cannot be
 * read is an error, all else is not. */
int tune_use(const struct kern_ops *ops, struct kern_dev *dev, const struct tune_source *from, char *why,
	     size_t why_n);

#endif
