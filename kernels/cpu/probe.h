/* probe.h - what this machine's memory and cores can do: the roofs that measured kernels stand under.
 * A probe is a loop of loads, or of one arithmetic instruction on registers, and nothing else.  A shared
 * machine changes from second to second, so one pass is short, and a share is the median over pairs of a pass
 * and what is measured (docs/performance/README.md). */
#ifndef QUERN_KERNELS_CPU_PROBE_H
#define QUERN_KERNELS_CPU_PROBE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum probe_kind {
	PROBE_READ,         /* memory: an area that no cache holds */
	PROBE_READ_L2,      /* the second-level cache of a core */
	PROBE_F32,          /* fused multiply-adds, the widest there are */
	PROBE_BF16,         /* vdpbf16ps, 512 bits */
	PROBE_BF16_AMX,     /* tdpbf16ps */
	PROBE_INT8_AVX2,    /* vpmaddubsw, vpmaddwd, vpaddd: dot products of bytes without VNNI */
	PROBE_INT8_AVXVNNI, /* vpdpbusd, 256 bits */
	PROBE_INT8_VNNI,    /* vpdpbusd, 512 bits */
	PROBE_INT8_AMX,     /* tdpbusd */
	PROBE_KINDS,
};

struct probe;

/* An area of `area` bytes (0: probe_area()) for up to n_threads threads (0: one per core of the affinity
 * mask), all of it written once.  0, or -ENOMEM with the reason. */
int probe_new(struct probe **out, int n_threads, size_t area, char *why, size_t why_n);
void probe_free(struct probe *p); /* NULL is fine */
int probe_threads(const struct probe *p);
/* What no cache holds: 1 GB, or twice the last cache where that is more; at most a quarter of free memory. */
size_t probe_area(void);

const char *probe_name(enum probe_kind k); /* "read", "int8_amx": names in JSON */
bool probe_can(enum probe_kind k);         /* this CPU has the instruction, and the process may use it */

/* One pass of about `us` microseconds on n_threads threads (0: all): bytes or operations (a multiply-add is
 * two) per second, of all threads together; 0 where !probe_can().  Passes of PROBE_READ go on through the
 * area, so that no pass reads what the one before has left in a cache.  One thread at a time. */
double probe_rate(struct probe *p, enum probe_kind k, int n_threads, int64_t us);

#endif
