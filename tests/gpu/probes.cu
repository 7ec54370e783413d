/* probes.cu - measures the values that the estimate of a step assumes (tests/sass/estimate.py).
 *
 *     gpu_probes [--small] [--json FILE]
 *
 *     launch       consecutive empty kernels in a graph, plain and launched early, with shared memory
 *     graph        a graph of one empty kernel
 *     read         memory reads by bytes in flight, then by number of multiprocessors
 *     ramp         time of a kernel in addition to its launch and its bytes
 *     peak         HMMA and wgmma: TFLOP/s, cycles of a multiprocessor per mma.m16n8k16, the clock
 *     bits         mma.m16n8k16 against wgmma: chains of 8 and 256 steps of 16 k, with operands of similar
 *                  exponents and of all exponents
 *     l2           16 MB read from memory, from L2, and after other multiprocessors fetched them to L2
 *     chase        dependent loads: from memory, from L2, from mapped host memory
 *
 * Prints a line "probe key=value ..." for each result and appends a line of JSON to FILE.  The kernels of
 * wgmma and of early launches are for 9.0 and later.  --small: a few values, for the emulated device. */
#include "kernels/cuda/cuda.cuh"
#include "kernels/cuda/ptx_async.cuh"
#include "kernels/cuda/wgmma.cuh"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <initializer_list>
#include <vector>

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
#define ON_HOPPER 1
#else
#define ON_HOPPER 0
#endif
/* Only sm_90a has the instruction wgmma. */
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define HAS_WGMMA 1
#else
#define HAS_WGMMA 0
#endif

namespace
{

FILE *json;
bool small;
int sms;
bool hopper, wgmma; /* the device is Hopper or later; it is exactly Hopper */
cudaStream_t stream;

void die(const char *what, const char *why)
{
	fprintf(stderr, "gpu_probes: %s: %s\n", what, why);
	exit(1);
}

void check(cudaError_t e, const char *what)
{
	if (e != cudaSuccess)
		die(what, cudaGetErrorString(e));
}

} // namespace

/* KERN_LAUNCH() calls these; no other file of the table is linked with this program. */
int cuda_launched(const char *kernel)
{
	check(cudaGetLastError(), kernel);
	return 0;
}

bool cuda_carve_out(const void *kernel)
{
	check(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
				   cudaSharedmemCarveoutMaxShared),
	      "shared memory of a multiprocessor");
	return true;
}

namespace
{

void allow_smem(const void *kernel, int bytes)
{
	check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
	      "shared memory of a kernel");
}

/* ---- results ---- */

struct field {
	const char *key;
	double value;
	const char *text; /* replaces value */
	field(const char *k, double v) : key(k), value(v), text(nullptr)
	{
	}
	field(const char *k, const char *t) : key(k), value(0), text(t)
	{
	}
};

void result(const char *probe, std::initializer_list<field> fields)
{
	printf("%s", probe);
	fprintf(json, "{\"probe\": \"%s\"", probe);
	for (const field &f : fields) {
		if (f.text) {
			printf(" %s=%s", f.key, f.text);
			fprintf(json, ", \"%s\": \"%s\"", f.key, f.text);
		} else {
			printf(" %s=%.6g", f.key, f.value);
			fprintf(json, ", \"%s\": %.6g", f.key, f.value);
		}
	}
	printf("\n");
	fprintf(json, "}\n");
	fflush(stdout);
	fflush(json);
}

/* ---- memory, time ---- */

void *device_new(size_t bytes)
{
	void *p = nullptr;
	check(cudaMalloc(&p, bytes), "memory of the device");
	check(cudaMemset(p, 0, bytes), "memset");
	check(cudaDeviceSynchronize(), "memset");
	return p;
}

uint64_t random_at(uint64_t seed, uint64_t i)
{
	uint64_t x = (i + 1) * 0x9e3779b97f4a7c15u + seed * 0xd1b54a32d192ed03u;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return x ^ x >> 31;
}

KERN_DEV unsigned long long time_ns(void)
{
#ifdef QUERN_CUDASIM
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (unsigned long long)t.tv_sec * 1000000000u + (unsigned long long)t.tv_nsec;
#else
	unsigned long long ns;
	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns)::"memory");
	return ns;
#endif
}

KERN_DEV unsigned long long time_cycles(void)
{
#ifdef QUERN_CUDASIM
	return time_ns(); /* as on a device at 1 GHz */
#else
	unsigned long long c;
	asm volatile("mov.u64 %0, %%clock64;" : "=l"(c)::"memory");
	return c;
#endif
}

/* Duration of one block's work. */
struct span {
	unsigned long long cycles, ns;
};

double median(std::vector<double> x)
{
	std::sort(x.begin(), x.end());
	return x[x.size() / 2];
}

/* Return the microseconds of each of n calls of launch(i), replayed as a graph. */
template <typename F> double graph_us(int n, F launch)
{
	const int rounds = small ? 1 : 7, replays = small ? 1 : 4;
	cudaGraph_t graph;
	cudaGraphExec_t exec;
	cudaEvent_t from, to;
	std::vector<double> us;
	for (int i = 0; i < n && i < 2; i++) /* loads the kernels */
		launch(i);
	check(cudaStreamSynchronize(stream), "a kernel");
	check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
	for (int i = 0; i < n; i++)
		launch(i);
	check(cudaStreamEndCapture(stream, &graph), "capture");
	check(cudaGraphInstantiateWithFlags(&exec, graph, 0), "graph");
	check(cudaEventCreateWithFlags(&from, cudaEventDefault), "event");
	check(cudaEventCreateWithFlags(&to, cudaEventDefault), "event");
	for (int r = -1; r < rounds; r++) {
		float ms = 0;
		check(cudaEventRecord(from, stream), "event");
		for (int i = 0; i < replays; i++)
			check(cudaGraphLaunch(exec, stream), "graph");
		check(cudaEventRecord(to, stream), "event");
		check(cudaStreamSynchronize(stream), "graph");
		check(cudaEventElapsedTime(&ms, from, to), "event");
		if (r >= 0)
			us.push_back(1e3 * (double)ms / (n * replays));
	}
	check(cudaEventDestroy(from), "event");
	check(cudaEventDestroy(to), "event");
	check(cudaGraphExecDestroy(exec), "graph");
	check(cudaGraphDestroy(graph), "graph");
	return median(us);
}

/* ---- launches ---- */

template <bool EARLY> __global__ void empty_kernel(int *out)
{
#if ON_HOPPER
	if (EARLY) {
		grid_launch_dependents();
		grid_dependency_wait();
	}
#endif
	if (out)
		*out = 1;
}

double launch_us; /* a plain launch, without shared memory */

void probe_launch(void)
{
	const int n = small ? 4 : 200;
	allow_smem((const void *)empty_kernel<false>, 96 << 10);
	allow_smem((const void *)empty_kernel<true>, 96 << 10);
	for (int kb = 0; kb <= 96; kb += 32)
		for (int early = 0; early <= (hopper ? 1 : 0); early++) {
			const double us = graph_us(n, [&](int) {
				if (early)
					KERN_LAUNCH_EARLY((empty_kernel<true>), dim3((unsigned)sms),
							  dim3(256), (size_t)kb << 10, stream,
							  (int *)nullptr);
				else
					KERN_LAUNCH((empty_kernel<false>), dim3((unsigned)sms), dim3(256),
						    (size_t)kb << 10, stream, (int *)nullptr);
			});
			if (!kb && !early)
				launch_us = us;
			result("launch",
			       {{"how", early ? "early" : "plain"}, {"smem_kb", (double)kb}, {"us", us}});
		}
	result("graph", {{"us", graph_us(1, [](int) {
				  KERN_LAUNCH((empty_kernel<false>), dim3((unsigned)sms), dim3(256), 0,
					      stream, (int *)nullptr);
			  })}});
}

/* ---- reading memory ---- */

/* Read n pieces of 16 bytes per block, with U in flight in each thread; n is a multiple of U blockDim. */
template <int U> __global__ void read_kernel(const uint4 *from, size_t n, uint32_t *out, struct span *at)
{
	const uint4 *p = from + blockIdx.x * n;
	const unsigned long long c = time_cycles(), t = time_ns();
	uint32_t sum = 0;
	for (size_t i = threadIdx.x; i < n; i += U * blockDim.x) {
		uint4 v[U];
		for (int u = 0; u < U; u++)
			v[u] = ld_stream_128(p + i + u * blockDim.x);
		for (int u = 0; u < U; u++)
			sum ^= v[u].x ^ v[u].y ^ v[u].z ^ v[u].w;
	}
	if (sum == 0x9e3779b9) /* never: the memory is zero */
		out[0] = sum;
	if (blockIdx.x + threadIdx.x == 0)
		*at = {time_cycles() - c, time_ns() - t};
}

struct area {
	char *p;
	size_t bytes;
	uint32_t *out;
	struct span *span; /* on the device */
} area;

struct span span_get(void)
{
	struct span s;
	check(cudaDeviceSynchronize(), "a kernel");
	check(cudaMemcpy(&s, area.span, sizeof s, cudaMemcpyDeviceToHost), "download");
	return s;
}

int alone; /* shared memory that leaves room for only one block per multiprocessor, in bytes */

template <int U> void launch_read(int blocks, int threads, size_t block_bytes, size_t at)
{
	KERN_LAUNCH((read_kernel<U>), dim3((unsigned)blocks), dim3((unsigned)threads), alone, stream,
		    (const uint4 *)(const void *)(area.p + at), block_bytes / 16, area.out, area.span);
}

/* Return the GB/s of blocks that read block_bytes each, from other memory each time. */
template <int U> double read_gbps(int blocks, int threads, size_t block_bytes)
{
	const size_t all = (size_t)blocks * block_bytes;
	const int n = small ? 2 : (int)std::max<size_t>(4, ((size_t)512 << 20) / all);
	allow_smem((const void *)read_kernel<U>, alone);
	return 1e-3 * (double)all / graph_us(n, [&](int i) {
		       launch_read<U>(blocks, threads, block_bytes,
				      (size_t)i * all % (area.bytes - all + 1) / 4096 * 4096);
	       });
}

double hbm_gbps;

template <int U> void read_in_flight(int threads)
{
	const double gbps = read_gbps<U>(sms, threads, small ? 131072 : (size_t)4 << 20);
	hbm_gbps = std::max(hbm_gbps, gbps);
	const struct span s = span_get();
	result("read", {{"sms", (double)sms},
			{"in_flight_kb", U * threads * 16 / 1024.0},
			{"gb_per_s", gbps},
			{"clock_ghz", (double)s.cycles / (double)std::max<unsigned long long>(s.ns, 1)}});
}

void probe_read(void)
{
	static const int some[] = {1, 8, 16, 33, 66, 99};
	read_in_flight<1>(256);
	read_in_flight<2>(256);
	read_in_flight<4>(256);
	read_in_flight<8>(256);
	read_in_flight<8>(512);
	read_in_flight<16>(512);
	for (int n : some)
		if (n < sms)
			result("read", {{"sms", (double)n},
					{"in_flight_kb", 8 * 512 * 16 / 1024.0},
					{"gb_per_s", read_gbps<8>(n, 512, small ? 65536 : (size_t)4 << 20)}});
	/* The bytes of a layer's o_proj, and half: the rest of the time is the start and the end. */
	for (int half = 0; half < 2; half++) {
		const size_t one = small ? 65536 : half ? 32768 : 65536, all = one * (size_t)sms;
		const int n = small ? 2 : (int)(((size_t)512 << 20) / all);
		const double us = graph_us(n, [&](int i) {
			launch_read<4>(sms, 256, one, (size_t)i * all % (area.bytes - all + 1) / 4096 * 4096);
		});
		result("ramp", {{"mb", (double)all / 1e6},
				{"us", us},
				{"ramp_us", us - launch_us - 1e-3 * (double)all / hbm_gbps}});
	}
}

/* ---- tensor cores ---- */

constexpr int CHAINS = 8, PEAK_WARPS = 16, WGMMA_N = 256, WGMMAS = 8; /* WGMMAS: per commit */
constexpr double MMA_FLOP = 2 * 16 * 8 * 16;

__global__ void mma_peak_kernel(float *out, int rounds, struct span *at)
{
	uint32_t a[4], b[2];
	float d[CHAINS][4] = {};
	for (int i = 0; i < 4; i++)
		a[i] = 0x34003800u ^ (threadIdx.x * 2654435761u & 0x83ff83ffu) * (unsigned)(i + 1);
	b[0] = a[1] ^ 0x02010101u, b[1] = a[3] ^ 0x01010201u;
	block_sync();
	const unsigned long long c = time_cycles(), t = time_ns();
	for (int r = 0; r < rounds; r++)
		for (int i = 0; i < CHAINS; i++)
			mma_m16n8k16_f16(d[i], a, b);
	block_sync();
	if (blockIdx.x + threadIdx.x == 0)
		*at = {time_cycles() - c, time_ns() - t};
	for (int i = 0; i < CHAINS; i++)
		if (d[i][0] == -12345.f)
			out[threadIdx.x] = d[i][1];
}

__global__ void __launch_bounds__(256) wgmma_peak_kernel(float *out, int rounds, struct span *at)
{
#if HAS_WGMMA
	/* Per warpgroup: a [64][16], then b [256][16], in atoms of 8 rows and 16 bytes. */
	unsigned char *mine = kern_smem() + threadIdx.x / 128 * 10240;
	for (unsigned i = threadIdx.x % 128; i < 2560; i += 128)
		((uint32_t *)(void *)mine)[i] = 0x34003800u ^ (i * 2654435761u & 0x83ff83ffu);
	fence_proxy_async_shared();
	block_sync();
	const uint64_t a = wgmma_desc(mine, 1024, 128, WGMMA_PLAIN),
		       b = wgmma_desc(mine + 2048, 4096, 128, WGMMA_PLAIN);
	float d[WGMMA_N / 2] = {};
	const unsigned long long c = time_cycles(), t = time_ns();
	for (int r = 0; r < rounds; r++) {
		wgmma_fence();
		for (int i = 0; i < WGMMAS; i++)
			wgmma_ss<false, WGMMA_N>(d, a, b, true);
		wgmma_commit();
		wgmma_wait<0>();
	}
	block_sync();
	if (blockIdx.x + threadIdx.x == 0)
		*at = {time_cycles() - c, time_ns() - t};
	if (d[0] == -12345.f)
		out[threadIdx.x] = d[1];
#else
	(void)out, (void)rounds, (void)at;
#endif
}

void report_peak(const char *how, double mmas_of_sm, double us)
{
	const struct span s = span_get();
	result("peak", {{"how", how},
			{"tflop_per_s", 1e-6 * MMA_FLOP * mmas_of_sm * sms / us},
			{"mma_cycles", (double)s.cycles / mmas_of_sm},
			{"clock_ghz", (double)s.cycles / (double)std::max<unsigned long long>(s.ns, 1)}});
}

/* A wgmma counts as the number of mma.m16n8k16 with the same work. */
void probe_peak(void)
{
	const int rounds = small ? 2 : 20000, n = small ? 1 : 3, groups = small ? 1 : rounds / 16;
	double us = graph_us(n, [&](int) {
		KERN_LAUNCH(mma_peak_kernel, dim3((unsigned)sms), dim3(PEAK_WARPS * 32), 0, stream,
			    (float *)(void *)area.out, rounds, area.span);
	});
	report_peak("mma", (double)rounds * CHAINS * PEAK_WARPS, us);
	if (!wgmma)
		return;
	allow_smem((const void *)wgmma_peak_kernel, 20480);
	us = graph_us(n, [&](int) {
		KERN_LAUNCH(wgmma_peak_kernel, dim3((unsigned)sms), dim3(256), 20480, stream,
			    (float *)(void *)area.out, groups, area.span);
	});
	report_peak("wgmma", (double)groups * WGMMAS * 2 * (64 / 16) * (WGMMA_N / 8), us);
}

/* ---- bits ---- */

/* Compute out [64][N] = a [64][16 steps] b [N][16 steps]^T step by step, with mma and with wgmma. */
template <bool BF16, int N>
__global__ void __launch_bounds__(128)
	bits_kernel(const uint16_t *a, const uint16_t *b, int steps, float *mma, float *by_wgmma)
{
#if HAS_WGMMA
	const int k = 16 * steps, lane = lane_id(), g = lane / 4, t = lane % 4, row = warp_id() * 16 + g;
	uint16_t *tile = (uint16_t *)(void *)kern_smem(); /* tile of b: [2 halves of k][N][8] */
	float d[N / 2] = {}, e[N / 8][4] = {};
	for (int s = 0; s < steps; s++) {
		const uint16_t *pa = a + row * k + 16 * s + 2 * t;
		uint32_t r[4];
		memcpy(&r[0], pa, 4);
		memcpy(&r[1], pa + 8 * k, 4);
		memcpy(&r[2], pa + 8, 4);
		memcpy(&r[3], pa + 8 * k + 8, 4);
		for (int i = (int)threadIdx.x; i < N * 16; i += 128)
			tile[(i % 16 / 8 * N + i / 16) * 8 + i % 8] = b[i / 16 * k + 16 * s + i % 16];
		fence_proxy_async_shared();
		block_sync();
		for (int j = 0; j < N / 8; j++) {
			uint32_t f[2];
			const uint16_t *pb = tile + (8 * j + g) * 8 + 2 * t;
			memcpy(&f[0], pb, 4);
			memcpy(&f[1], pb + N * 8, 4);
			if (BF16)
				mma_m16n8k16_bf16(e[j], r, f);
			else
				mma_m16n8k16_f16(e[j], r, f);
		}
		const uint64_t desc = wgmma_desc(tile, N * 16, 128, WGMMA_PLAIN);
		wgmma_fence();
		wgmma_rs<BF16, N>(d, r, desc, true);
		wgmma_commit();
		wgmma_wait<0>();
		block_sync();
	}
	for (int j = 0; j < N / 8; j++)
		for (int i = 0; i < 4; i++) {
			const int at = (row + i / 2 * 8) * N + 8 * j + 2 * t + i % 2;
			mma[at] = e[j][i];
			by_wgmma[at] = d[4 * j + i];
		}
#else
	(void)a, (void)b, (void)steps, (void)mma, (void)by_wgmma;
#endif
}

/* Return a value of either sign: with an exponent of 2^-7 to 2^-4, or with any exponent that keeps sums
 * finite, including subnormal values. */
uint16_t operand(bool bf16, bool wide, uint64_t r)
{
	const unsigned sign = r & 0x8000, exponent = (unsigned)(r >> 32 & 0xffff);
	if (bf16)
		return (uint16_t)(sign | (wide ? 90 + exponent % 50 : 120 + exponent % 3) << 7 | (r & 0x7f));
	return (uint16_t)(sign | (wide ? exponent % 20 : 8 + exponent % 3) << 10 | (r & 0x3ff));
}

template <bool BF16, int N> void bits_case(int steps, bool wide)
{
	const int k = 16 * steps, sets = small ? 1 : 32;
	std::vector<uint16_t> a((size_t)64 * k), b((size_t)N * k);
	std::vector<float> x((size_t)64 * N), y((size_t)64 * N);
	void *da = device_new(a.size() * 2), *db = device_new(b.size() * 2), *dx = device_new(x.size() * 4),
	     *dy = device_new(y.size() * 4);
	long n = 0, differing = 0;
	double worst = 0, largest = 0;
	char first[128] = "none";
	for (int set = 0; set < sets; set++) {
		for (size_t i = 0; i < a.size(); i++)
			a[i] = operand(BF16, wide, random_at((uint64_t)(2 * set), i));
		for (size_t i = 0; i < b.size(); i++)
			b[i] = operand(BF16, wide, random_at((uint64_t)(2 * set + 1), i));
		check(cudaMemcpy(da, a.data(), a.size() * 2, cudaMemcpyHostToDevice), "upload");
		check(cudaMemcpy(db, b.data(), b.size() * 2, cudaMemcpyHostToDevice), "upload");
		KERN_LAUNCH((bits_kernel<BF16, N>), dim3(1), dim3(128), N * 32, stream, (const uint16_t *)da,
			    (const uint16_t *)db, steps, (float *)dx, (float *)dy);
		check(cudaStreamSynchronize(stream), "bits");
		check(cudaMemcpy(x.data(), dx, x.size() * 4, cudaMemcpyDeviceToHost), "download");
		check(cudaMemcpy(y.data(), dy, y.size() * 4, cudaMemcpyDeviceToHost), "download");
		for (size_t i = 0; i < x.size(); i++, n++) {
			uint32_t p, q;
			largest = std::max(largest, fabs((double)x[i]));
			memcpy(&p, &x[i], 4);
			memcpy(&q, &y[i], 4);
			if (p == q)
				continue;
			if (!differing++)
				snprintf(first, sizeof first, "set%d[%zu][%zu]:mma=%08x,wgmma=%08x", set,
					 i / N, i % N, p, q);
			worst = std::max(worst, fabs((double)x[i] - (double)y[i]) / fabs((double)x[i]));
		}
	}
	result("bits", {{"type", BF16 ? "bf16" : "f16"},
			{"n", (double)N},
			{"steps", (double)steps},
			{"exponents", wide ? "wide" : "narrow"},
			{"verdict", differing ? "differ" : "equal"},
			{"results", (double)n},
			{"largest", largest},
			{"differing", (double)differing},
			{"worst", worst},
			{"first", first}});
	for (void *p : {da, db, dx, dy})
		check(cudaFree(p), "free");
}

void probe_bits(void)
{
	if (!wgmma)
		return;
	for (int steps : {8, 256})
		for (int wide = 0; wide < 2; wide++) {
			const int most = small && steps > 8 ? 16 : steps;
			bits_case<false, 8>(most, wide);
			bits_case<true, 8>(most, wide);
			if (!small) {
				bits_case<false, 128>(most, wide);
				bits_case<true, 128>(most, wide);
			}
		}
}

/* ---- L2 ---- */

__global__ void prefetch_kernel(const char *p, size_t bytes)
{
#if ON_HOPPER
	enum { PIECE = 16384 };
	if (threadIdx.x == 0)
		for (size_t at = (size_t)blockIdx.x * PIECE; at < bytes; at += (size_t)gridDim.x * PIECE)
			bulk_prefetch_l2(p + at, PIECE);
#else
	(void)p, (void)bytes;
#endif
}

__global__ void spin_kernel(unsigned long long ns)
{
	const unsigned long long from = time_ns();
	while (time_ns() - from < ns) {
	}
}

enum l2_how { COLD, WARM, FETCHED };

/* Return the microseconds until all multiprocessors have read block_bytes each from the start of the area. */
double l2_us(enum l2_how how, size_t block_bytes)
{
	const size_t all = block_bytes * (size_t)sms, other = small ? 65536 : (size_t)2 << 20;
	std::vector<double> us;
	cudaEvent_t from, to;
	check(cudaEventCreateWithFlags(&from, cudaEventDefault), "event");
	check(cudaEventCreateWithFlags(&to, cudaEventDefault), "event");
	for (int r = 0; r < (small ? 1 : 21); r++) {
		float ms = 0;
		launch_read<8>(sms, 256, other, all); /* evicts L2's contents */
		if (how == WARM)
			launch_read<8>(sms, 256, block_bytes, 0);
		if (how == FETCHED)
			KERN_LAUNCH(prefetch_kernel, dim3(16), dim3(32), 0, stream, (const char *)area.p,
				    all);
		KERN_LAUNCH(spin_kernel, dim3(1), dim3(1), 0, stream, small ? 1000ull : 30000ull);
		check(cudaEventRecord(from, stream), "event");
		launch_read<8>(sms, 256, block_bytes, 0);
		check(cudaEventRecord(to, stream), "event");
		check(cudaStreamSynchronize(stream), "l2");
		check(cudaEventElapsedTime(&ms, from, to), "event");
		us.push_back(1e3 * (double)ms);
	}
	check(cudaEventDestroy(from), "event");
	check(cudaEventDestroy(to), "event");
	return median(us);
}

void probe_l2(void)
{
	static const char *const names[] = {"cold", "warm", "fetched"};
	const size_t block = small ? 32768 : (size_t)128 << 10;
	allow_smem((const void *)read_kernel<8>, alone);
	for (int how = COLD; how <= (hopper ? FETCHED : WARM); how++) {
		const double us = l2_us((enum l2_how)how, block);
		result("l2", {{"how", names[how]},
			      {"mb", (double)block * sms / 1e6},
			      {"us", us},
			      {"gb_per_s", 1e-3 * (double)block * sms / us}});
	}
	/* Many passes give the rate without start and end. */
	const double us = graph_us(small ? 2 : 64, [&](int) { launch_read<8>(sms, 256, block, 0); });
	result("l2", {{"how", "again"},
		      {"mb", (double)block * sms / 1e6},
		      {"us", us},
		      {"gb_per_s", 1e-3 * (double)block * sms / std::max(us - launch_us, 0.5 * us)}});
}

/* ---- dependent loads ---- */

__global__ void chase_kernel(const uint32_t *next, int n, uint32_t *out, struct span *at)
{
	uint32_t i = 0;
	const unsigned long long c = time_cycles(), t = time_ns();
	for (int k = 0; k < n; k++)
		i = *(const volatile uint32_t *)(next + i);
	*at = {time_cycles() - c, time_ns() - t};
	*out = i;
}

/* Chase a chain of n places `stride` bytes apart, each of which holds the next place. */
void chase(const char *where, uint32_t *host, const uint32_t *device, bool copy, int n, size_t stride,
	   bool twice)
{
	for (int i = 0; i < n; i++) {
		uint32_t *p = host + (size_t)i * stride / 4;
		const uint32_t next = (uint32_t)((size_t)((i + 1) % n) * stride / 4);
		if (copy)
			check(cudaMemcpy((void *)(device + (size_t)i * stride / 4), &next, 4,
					 cudaMemcpyHostToDevice),
			      "upload");
		else
			*p = next;
	}
	std::vector<double> ns;
	for (int r = 0; r < (small ? 1 : 9); r++) {
		if (!twice && copy) /* evicts L2's contents */
			launch_read<8>(sms, 256, small ? 65536 : (size_t)2 << 20, area.bytes / 2);
		KERN_LAUNCH(chase_kernel, dim3(1), dim3(1), 0, stream, device, n, area.out, area.span);
		const struct span s = span_get();
		ns.push_back((double)s.ns / n);
	}
	result("chase", {{"where", where}, {"ns", median(ns)}});
}

void probe_chase(void)
{
	const int n = small ? 4 : 100;
	const size_t stride = small ? 4096 : ((size_t)2 << 20) + 256;
	uint32_t *host = nullptr, *mapped = nullptr;
	allow_smem((const void *)read_kernel<8>, alone);
	chase("memory", (uint32_t *)nullptr, (const uint32_t *)(void *)area.p, true, n, stride, false);
	chase("l2", (uint32_t *)nullptr, (const uint32_t *)(void *)area.p, true, n, 4096, true);
	const size_t bytes = (size_t)n * 4096;
	check(cudaHostAlloc((void **)&host, bytes, cudaHostAllocMapped), "mapped memory");
	check(cudaHostGetDevicePointer((void **)&mapped, host, 0), "mapped memory");
	memset(host, 0, bytes);
	chase("mapped", host, mapped, false, n, 4096, true);
	check(cudaFreeHost(host), "free");
}

} // namespace

int main(int argc, char **argv)
{
	const char *path = "/dev/null";
	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--small")) {
			small = true;
		} else if (!strcmp(argv[i], "--json") && i + 1 < argc) {
			path = argv[++i];
		} else {
			fprintf(stderr, "usage: gpu_probes [--small] [--json FILE]\n");
			return 2;
		}
	}
	if (!(json = fopen(path, "a")))
		die(path, strerror(errno));
	struct cudaDeviceProp prop;
	check(cudaSetDevice(0), "device 0");
	check(cudaGetDeviceProperties(&prop, 0), "device 0");
	check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
	sms = small ? std::min(prop.multiProcessorCount, 4) : prop.multiProcessorCount;
	alone = (int)std::min<size_t>(prop.sharedMemPerBlockOptin, 120 << 10);
	hopper = prop.major >= 9;
	wgmma = prop.major == 9;
	area.bytes = small ? (size_t)16 << 20 : (size_t)1 << 30;
	area.p = (char *)device_new(area.bytes);
	area.out = (uint32_t *)device_new(4096);
	area.span = (struct span *)device_new(sizeof *area.span);
	result("device",
	       {{"sms", (double)sms}, {"hopper", (double)hopper}, {"l2_mb", prop.l2CacheSize / 1048576.0}});
	probe_bits();
	probe_launch();
	probe_read();
	probe_peak();
	probe_l2();
	probe_chase();
	fclose(json);
	return 0;
}
