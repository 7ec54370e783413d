/* probe.h - measures the limits of this machine's memory and cores, the roofs that kernels are compared with.
 * A probe is a loop of loads, or of one arithmetic instruction on registers, and nothing else.  A shared
 * machine's speed changes from second to second, so one pass is short, and a kernel's share is the median
 * over pairs of a pass and a measurement (docs/performance/README.md). */
#ifndef QUERN_KERNELS_CPU_PROBE_H
#define QUERN_KERNELS_CPU_PROBE_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum probe_kind {
	PROBE_READ,         /* memory: an area too large for any cache */
	PROBE_READ_L2,      /* the second-level cache of each core */
	PROBE_F32,          /* fused multiply-adds, the widest available */
	PROBE_BF16,         /* vdpbf16ps, 512 bits */
	PROBE_BF16_AMX,     /* tdpbf16ps */
	PROBE_INT8_AVX2,    /* vpmaddubsw, vpmaddwd, vpaddd: dot products of bytes without VNNI */
	PROBE_INT8_AVXVNNI, /* vpdpbusd, 256 bits */
	PROBE_INT8_VNNI,    /* vpdpbusd, 512 bits */
	PROBE_INT8_AMX,     /* tdpbusd */
	PROBE_KINDS,
};

struct probe;

/* Make an area of `area` bytes (0: one that no cache holds) for up to n_threads threads (0: one per core of
 * the affinity mask), and write all of it once.  0, or -ENOMEM with the reason. */
int probe_new(struct probe **out, int n_threads, size_t area, struct why *why);
void probe_free(struct probe *p); /* NULL is fine */
int probe_threads(const struct probe *p);

const char *probe_name(enum probe_kind k); /* name in JSON: "read", "int8_amx" */
bool probe_can(enum probe_kind k);         /* this CPU has the instruction, and the process may use it */

/* Run one pass of about `us` microseconds on n_threads threads (0: all).  Returns bytes or operations (a
 * multiply-add is two) per second, of all threads together; 0 if !probe_can().  Successive passes of
 * PROBE_READ continue through the area, so that no pass reads what the previous pass left in a cache.  Not
 * thread-safe. */
double probe_rate(struct probe *p, enum probe_kind k, int n_threads, int64_t us);

#endif
