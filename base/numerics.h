/* numerics.h - the numerics class: a line of text that names everything on which the bits of a result depend.
 *
 * Workers with equal classes compute the same bits, so a job may move between them.  Classes are compared as
 * whole lines.  The journal stores them, so a job continues after a restart only if its line is unchanged:
 * raise a version here exactly when bits change.
 *
 *     class   = device [" ctx=" N] " grammar=" N [" tp=" N [" ep"]]
 *               [" experts=" layers [" " hot] " on " device]
 *     device  = cpu | cuda
 *     cpu     = "cpu " mode " order" N " draw" N [" head-" ("stored" | "int8")] [" kv-" kv ["-dots"]]
 *     cuda    = "cuda sm_" N " " ("f16" | "bf16") " codes" N " draw" N [" fast"]
 *     mode    = "f32" | "bf16" | "int16" | "int8"
 *     kv      = "f16" | "bf16" | "int16" | "int8"
 *     layers, hot: placement_text() and hot_text() of formats/place
 *
 * The CPU's instruction sets agree bit for bit, so no class names them.  The tensor cores of each generation
 * of GPUs add in another order, so the class names the generation. */
#ifndef QUERN_BASE_NUMERICS_H
#define QUERN_BASE_NUMERICS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { NUMERICS_MAX = 256, NUMERICS_DEVICE_MAX = 128 }; /* bytes with the NUL */

struct numerics_cpu {
	const char *mode;
	const char *head; /* weights of the head; NULL: the mode's own type */
	const char *kv;   /* type of K and V; NULL: F32 */
	bool bf16;        /* linear layers in BF16 (kernels/cpu/bf16) */
	bool bf16_dots;   /* attention in BF16 (kernels/cpu/attention/bf16.h) */
};
void numerics_of_cpu(const struct numerics_cpu *c, char *out, size_t n);

/* sm: compute capability; fast: --fast. */
void numerics_of_cuda(int sm, bool bf16, bool fast, char *out, size_t n);

struct numerics {
	const char *device; /* class of the worker's device */
	bool by_context;    /* RoPE depends on the context length */
	uint32_t context;   /* tokens */
	int grammar;        /* version of the grammar engine, which makes the masks */
	int n_ranks;        /* partial sums of rows are added over the ranks */
	bool ep;            /* ranks have whole experts */
	/* Host experts: their layers; the resident ones, or ""; the class of the device that computes them.
	 * layers NULL: the worker has none. */
	const char *layers, *hot, *host;
};
void numerics_of_worker(const struct numerics *c, char *out, size_t n);

/* Write the class of an output on a worker of class `worker`.  Masks do not affect an output without a
 * constraint, so its class omits the version of the grammar engine. */
void numerics_of_output(bool constrained, const char *worker, char *out, size_t n);

bool numerics_same(const char *a, const char *b);

#endif
