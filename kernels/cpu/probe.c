#include "kernels/cpu/probe.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cpus.h"
#include "base/err.h"
#include "kernels/cpu/cpu.h"

enum {
	READ_CHUNK = 256 << 10, /* bytes read between two reads of the clock */
	TURNS = 2000,           /* turns of an arithmetic loop between two such reads */
	L2_PART = 2,            /* PROBE_READ_L2 reads 1/L2_PART of the cache */
};
#define AREA_LEAST ((size_t)1 << 30)

/* ---- the loops: n turns that touch no memory except the data they read ---- */

typedef void turns_fn(long n);

#if defined(__x86_64__)

#include <cpuid.h>

/* Twelve accumulators hide the latency of any of these instructions; registers 14 and 15 are the operands. */
#define STEP(op, r, i)          op " %%" r "14, %%" r "15, %%" r #i "\n\t"
#define FOUR(op, r, a, b, c, d) STEP(op, r, a) STEP(op, r, b) STEP(op, r, c) STEP(op, r, d)
#define TWELVE(op, r)           FOUR(op, r, 0, 1, 2, 3) FOUR(op, r, 4, 5, 6, 7) FOUR(op, r, 8, 9, 10, 11)
/* vzeroall also clears the accumulators.  1.0 is an ordinary value also as bytes and as BF16. */
#define LOOP(body, r)                                                                                        \
	__asm__ volatile("vzeroall\n\t"                                                                      \
			 "vbroadcastss %1, %%" r "14\n\t"                                                    \
			 "vbroadcastss %1, %%" r "15\n"                                                      \
			 "1:\n\t" body "dec %0\n\t"                                                          \
			 "jnz 1b\n\t"                                                                        \
			 "vzeroupper"                                                                        \
			 : "+r"(n)                                                                           \
			 : "m"(one)                                                                          \
			 : "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8",     \
			   "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15")
static const float one = 1;
enum { STEPS = 12 };

static void fma_256(long n)
{
	LOOP(TWELVE("vfmadd231ps", "ymm"), "ymm");
}

static void fma_512(long n)
{
	LOOP(TWELVE("vfmadd231ps", "zmm"), "zmm");
}

static void bf16_512(long n)
{
	LOOP(TWELVE("vdpbf16ps", "zmm"), "zmm");
}

static void vnni_256(long n)
{
	LOOP(TWELVE("%{vex%} vpdpbusd", "ymm"), "ymm");
}

static void vnni_512(long n)
{
	LOOP(TWELVE("vpdpbusd", "zmm"), "zmm");
}

/* Dot products of 32 bytes without VNNI, six independent ones. */
#define MADD(i, t)                                                                                           \
	"vpmaddubsw %%ymm14, %%ymm15, %%ymm" #t "\n\t"                                                       \
	"vpmaddwd %%ymm14, %%ymm" #t ", %%ymm" #t "\n\t"                                                     \
	"vpaddd %%ymm" #t ", %%ymm" #i ", %%ymm" #i "\n\t"
static void madd_256(long n)
{
	LOOP(MADD(0, 6) MADD(1, 7) MADD(2, 8) MADD(3, 9) MADD(4, 10) MADD(5, 11), "ymm");
}

/* All eight tiles have 16 rows of 64 bytes; six accumulate. */
static const struct {
	uint8_t palette, start_row, reserved[14];
	uint16_t bytes[16];
	uint8_t rows[16];
} tiles = {.palette = 1, .bytes = {64, 64, 64, 64, 64, 64, 64, 64}, .rows = {16, 16, 16, 16, 16, 16, 16, 16}};
#define TILE(op, i) op " %%tmm6, %%tmm7, %%tmm" #i "\n\t"
#define TILE_LOOP(op)                                                                                        \
	__asm__ volatile("ldtilecfg %1\n"                                                                    \
			 "1:\n\t" TILE(op, 0) TILE(op, 1) TILE(op, 2) TILE(op, 3) TILE(op, 4)                \
				 TILE(op, 5) "dec %0\n\t"                                                    \
					     "jnz 1b\n\t"                                                    \
					     "tilerelease"                                                   \
			 : "+r"(n)                                                                           \
			 : "m"(tiles)                                                                        \
			 : "cc", "memory")
enum { TILE_STEPS = 6 };

static void amx_int8(long n)
{
	TILE_LOOP("tdpbusd");
}

static void amx_bf16(long n)
{
	TILE_LOOP("tdpbf16ps");
}

/* Only loads, 256 bytes a turn. */
#define LOAD(load, r, i, at) load " " at "(%0), %%" r #i "\n\t"
#define READ(body, leave)                                                                                    \
	__asm__ volatile("1:\n\t" body "add $256, %0\n\t"                                                    \
			 "cmp %1, %0\n\t"                                                                    \
			 "jb 1b\n\t" leave                                                                   \
			 : "+r"(p)                                                                           \
			 : "r"(end)                                                                          \
			 : "cc", "memory", "xmm0", "xmm1", "xmm2", "xmm3")

static void read_512(const char *p, const char *end)
{
	READ(LOAD("vmovdqa64", "zmm", 0, "") LOAD("vmovdqa64", "zmm", 1, "64")
		     LOAD("vmovdqa64", "zmm", 2, "128") LOAD("vmovdqa64", "zmm", 3, "192"),
	     "vzeroupper");
}

static void read_256(const char *p, const char *end)
{
	READ(LOAD("vmovdqa", "ymm", 0, "") LOAD("vmovdqa", "ymm", 1, "32") LOAD("vmovdqa", "ymm", 2, "64")
		     LOAD("vmovdqa", "ymm", 3, "96") LOAD("vmovdqa", "ymm", 0, "128")
			     LOAD("vmovdqa", "ymm", 1, "160") LOAD("vmovdqa", "ymm", 2, "192")
				     LOAD("vmovdqa", "ymm", 3, "224"),
	     "vzeroupper");
}

static unsigned leaf7(int sub, int reg)
{
	unsigned r[4] = {0};
	return __get_cpuid_count(7, (unsigned)sub, &r[0], &r[1], &r[2], &r[3]) ? r[reg] : 0;
}

static bool has_fma(void)
{
	return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

static bool has_bf16(void)
{
	return __builtin_cpu_supports("avx512f") && (leaf7(1, 0) >> 5 & 1);
}

static bool has_avxvnni(void)
{
	return has_fma() && (leaf7(1, 0) >> 4 & 1);
}

static bool has_vnni(void)
{
	return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vnni");
}

static bool has_amx(void)
{
	return cpu_dot_amx() != NULL; /* true only if the system has granted the tiles */
}

static bool has_amx_bf16(void)
{
	return has_amx() && (leaf7(0, 3) >> 22 & 1);
}

static const struct loop {
	bool (*has)(void);
	turns_fn *run;
	double ops; /* operations of a turn */
} loops[PROBE_KINDS] = {
	[PROBE_BF16] = {has_bf16, bf16_512, STEPS * 16 * 4},
	[PROBE_BF16_AMX] = {has_amx_bf16, amx_bf16, TILE_STEPS * 16 * 16 * 64},
	[PROBE_INT8_AVX2] = {has_fma, madd_256, 6 * 32 * 2},
	[PROBE_INT8_AVXVNNI] = {has_avxvnni, vnni_256, STEPS * 32 * 2},
	[PROBE_INT8_VNNI] = {has_vnni, vnni_512, STEPS * 64 * 2},
	[PROBE_INT8_AMX] = {has_amx, amx_int8, TILE_STEPS * 16 * 16 * 128},
};

static struct loop loop_of(enum probe_kind k)
{
	if (k != PROBE_F32)
		return loops[k];
	if (__builtin_cpu_supports("avx512f"))
		return (struct loop){has_fma, fma_512, STEPS * 16 * 2};
	return (struct loop){has_fma, fma_256, STEPS * 8 * 2};
}

#else

static const struct loop {
	bool (*has)(void);
	turns_fn *run;
	double ops;
} none = {0};

static struct loop loop_of(enum probe_kind k)
{
	(void)k;
	return none;
}

#endif

static void read_plain(const char *p, const char *end)
{
	uint64_t s = 0, v;
	for (; p < end; p += sizeof v) {
		memcpy(&v, p, sizeof v);
		s += v;
	}
	__asm__ volatile("" ::"r"(s)); /* keeps the sum alive */
}

static void read_bytes(const char *p, size_t n)
{
#if defined(__x86_64__)
	if (__builtin_cpu_supports("avx512f")) {
		read_512(p, p + n);
		return;
	}
	if (__builtin_cpu_supports("avx2")) {
		read_256(p, p + n);
		return;
	}
#endif
	read_plain(p, p + n);
}

/* ---- a pass ---- */

/* One thread's share of a pass. */
struct runner {
	struct probe *probe;
	pthread_t thread;
	const char *from; /* its share of the area */
	size_t bytes;
	size_t at; /* offset at which the next pass continues */
	double rate;
};

struct probe {
	char *area;
	size_t bytes;
	size_t l2; /* bytes that PROBE_READ_L2 reads repeatedly */
	int n_threads;
	struct runner *runners; /* [n_threads] */
	enum probe_kind kind;   /* kind of the pass; ns: its length */
	int64_t ns;
	_Atomic int missing; /* threads that have not started yet; all begin together */
};

static int64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void *run_pass(void *arg)
{
	struct runner *r = arg;
	struct probe *p = r->probe;
	const bool reads = p->kind <= PROBE_READ_L2;
	const struct loop loop = loop_of(p->kind);
	const size_t area = p->kind == PROBE_READ_L2 && p->l2 < r->bytes ? p->l2 : r->bytes;
	double done = 0;
	atomic_fetch_sub(&p->missing, 1);
	while (atomic_load(&p->missing) > 0)
		cpu_pause();
	const int64_t begin = now_ns(), end = begin + p->ns;
	int64_t t;
	do {
		if (reads) {
			r->at = r->at + READ_CHUNK <= area ? r->at : 0;
			read_bytes(r->from + r->at, READ_CHUNK);
			r->at += READ_CHUNK;
			done += READ_CHUNK;
		} else {
			loop.run(TURNS);
			done += loop.ops * TURNS;
		}
	} while ((t = now_ns()) < end);
	r->rate = done * 1e9 / (double)(t - begin);
	return NULL;
}

double probe_rate(struct probe *p, enum probe_kind k, int n_threads, int64_t us)
{
	const int n = n_threads > 0 && n_threads < p->n_threads ? n_threads : p->n_threads;
	int started = 1;
	double sum = 0;
	if (!probe_can(k))
		return 0;
	p->kind = k;
	p->ns = us * 1000;
	atomic_store(&p->missing, n);
	while (started < n &&
	       !pthread_create(&p->runners[started].thread, NULL, run_pass, &p->runners[started]))
		started++;
	atomic_fetch_sub(&p->missing, n - started); /* threads that the system could not create */
	run_pass(&p->runners[0]);
	for (int i = 1; i < started; i++)
		pthread_join(p->runners[i].thread, NULL);
	for (int i = 0; i < started; i++)
		sum += p->runners[i].rate;
	return sum;
}

/* ---- the area ---- */

static size_t cache_bytes(int name, size_t otherwise)
{
	long n = sysconf(name);
	return n > 0 ? (size_t)n : otherwise;
}

/* Return a size that no cache holds: 1 GB, or twice the last-level cache if that is more; at most a quarter
 * of free memory. */
static size_t large_area(void)
{
	size_t n = 2 * cache_bytes(_SC_LEVEL3_CACHE_SIZE, 0);
	int64_t total, left;
	cpu_host_memory(-1, &total, &left);
	n = n > AREA_LEAST ? n : AREA_LEAST;
	return left > 0 && n > (size_t)left / 4 ? (size_t)left / 4 : n;
}

int probe_new(struct probe **out, int n_threads, size_t area, struct why *why)
{
	const int n = n_threads > 0 ? n_threads : cpus_cores(-1) > 0 ? cpus_cores(-1) : 1;
	struct probe *p = xcalloc(1, sizeof *p);
	const size_t want = area ? area : large_area(), each = want / (size_t)n / READ_CHUNK * READ_CHUNK;
	*out = NULL;
	p->n_threads = n;
	p->bytes = (each ? each : READ_CHUNK) * (size_t)n;
	p->l2 = cache_bytes(_SC_LEVEL2_CACHE_SIZE, 1 << 20) / L2_PART / READ_CHUNK * READ_CHUNK;
	p->l2 = p->l2 ? p->l2 : READ_CHUNK;
	p->runners = xcalloc((size_t)n, sizeof *p->runners);
	p->area = alloc_big(p->bytes);
	if (!p->area) {
		int e = err_why(why, -ENOMEM, "no memory for a probe of %zu bytes", p->bytes);
		probe_free(p);
		return e;
	}
	memset(p->area, 1, p->bytes); /* pages that were never written all map to one shared page of zeros */
	for (int i = 0; i < n; i++)
		p->runners[i] = (struct runner){.probe = p,
						.from = p->area + p->bytes / (size_t)n * (size_t)i,
						.bytes = p->bytes / (size_t)n};
	*out = p;
	return 0;
}

void probe_free(struct probe *p)
{
	if (!p)
		return;
	alloc_big_free(p->area, p->bytes);
	free(p->runners);
	free(p);
}

int probe_threads(const struct probe *p)
{
	return p->n_threads;
}

const char *probe_name(enum probe_kind k)
{
	static const char *const names[PROBE_KINDS] = {"read",         "read_l2",   "f32",
						       "bf16",         "bf16_amx",  "int8_avx2",
						       "int8_avxvnni", "int8_vnni", "int8_amx"};
	return names[k];
}

bool probe_can(enum probe_kind k)
{
	const struct loop l = loop_of(k);
	return k <= PROBE_READ_L2 || (l.has && l.has());
}
