/* The emulator itself: its results, and the faults that it must detect. */
#include <criterion/criterion.h>
#include <signal.h>
#include <atomic>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "kernels/cuda/ptx_async.cuh"
#include "tests/cudasim/cudasim.h"

struct device {
	cudaStream_t s;
	float *p;
};

static struct device device_new(size_t n)
{
	struct device d;
	void *p;
	cr_assert(cudaStreamCreateWithFlags(&d.s, cudaStreamNonBlocking) == cudaSuccess);
	cr_assert(cudaMalloc(&p, n * sizeof(float)) == cudaSuccess);
	cr_assert(cudaMemset(p, 0, n * sizeof(float)) == cudaSuccess);
	d.p = (float *)p;
	return d;
}

static void fetch(struct device *d, float *out, size_t n)
{
	cr_assert(cudaStreamSynchronize(d->s) == cudaSuccess);
	cr_assert(cudaMemcpy(out, d->p, n * sizeof(float), cudaMemcpyDeviceToHost) == cudaSuccess);
}

static void device_del(struct device *d)
{
	cudaStreamDestroy(d->s);
	cudaFree(d->p);
}

/* ---- results ---- */

static void sum_kernel(float *out)
{
	float *shared = (float *)(void *)kern_smem();
	shared[threadIdx.x] = (float)threadIdx.x;
	block_sync();
	float v = shared[blockDim.x - 1 - threadIdx.x];
	for (int m = 16; m; m /= 2)
		v += shfl_xor(v, m);
	const bool all = warp_ballot(v > 0) == ~0u;
	if (lane_id() == 0)
		out[blockIdx.x * (blockDim.x / WARP) + (unsigned)warp_id()] = v + (float)all;
}

Test(emulator, barriers_shuffles_and_ballots_in_any_order)
{
	for (uint64_t seed = 0; seed < 20; seed++) {
		struct device d = device_new(8 * 5);
		float got[8 * 5];
		cudasim_seed(seed);
		cr_assert(KERN_LAUNCH(sum_kernel, 5, 256, 1024, d.s, d.p) == 0);
		fetch(&d, got, 40);
		for (int i = 0; i < 40; i++)
			cr_assert(got[i] == (float)(32 * (255 - 32 * (i % 8)) - 496 + 1), "warp %d: %f", i,
				  (double)got[i]);
		device_del(&d);
	}
}

static void mma_kernel(float *out, const uint16_t *a, const uint16_t *b)
{
	uint4 *shared = (uint4 *)(void *)kern_smem(); /* a [16][16], b [16][8] by rows of n */
	cp_async_16(shared + lane_id(), a + lane_id() * 8);
	cp_async_16(shared + 32 + lane_id() % 16, b + lane_id() % 16 * 8);
	cp_async_commit();
	cp_async_wait<0>();
	warp_sync();
	uint32_t fa[4], fb[4];
	float d[4] = {};
	ldmatrix_x4(fa, shared + (lane_id() & 15) * 2 + (lane_id() >> 4));
	ldmatrix_x4_trans(fb, shared + 32 + (lane_id() & 15));
	mma_m16n8k16_f16(d, fa, fb);
	const int g = lane_id() / 4, t = lane_id() % 4 * 2;
	out[g * 8 + t] = d[0];
	out[g * 8 + t + 1] = d[1];
	out[(g + 8) * 8 + t] = d[2];
	out[(g + 8) * 8 + t + 1] = d[3];
}

Test(emulator, a_matrix_product_by_fragments)
{
	uint16_t a[256], b[128];
	float got[128];
	struct device d = device_new(128);
	void *da, *db;
	for (int i = 0; i < 256; i++)
		a[i] = f16_of_f32((float)(i * 7 % 23 - 11));
	for (int i = 0; i < 128; i++)
		b[i] = f16_of_f32((float)(i * 5 % 17 - 8) * 0.25f);
	cr_assert(cudaMalloc(&da, sizeof a) == cudaSuccess && cudaMalloc(&db, sizeof b) == cudaSuccess);
	cudaMemcpy(da, a, sizeof a, cudaMemcpyHostToDevice);
	cudaMemcpy(db, b, sizeof b, cudaMemcpyHostToDevice);
	cr_assert(KERN_LAUNCH(mma_kernel, 1, 32, 1024, d.s, d.p, (const uint16_t *)da,
			      (const uint16_t *)db) == 0);
	fetch(&d, got, 128);
	for (int m = 0; m < 16; m++)
		for (int n = 0; n < 8; n++) {
			float want = 0;
			for (int k = 0; k < 16; k++)
				want += f32_of_f16(a[m * 16 + k]) * f32_of_f16(b[k * 8 + n]);
			cr_assert(got[m * 8 + n] == want, "%d,%d: %f, expected %f", m, n,
				  (double)got[m * 8 + n], (double)want);
		}
	cudaFree(da);
	cudaFree(db);
	device_del(&d);
}

Test(emulator, halves_are_rounded_once)
{
	for (uint32_t h = 0; h < 0x7c00; h++)
		cr_assert(f16_of_f32(f32_of_f16((uint16_t)h)) == h, "%04x", h);
	cr_assert(f16_of_f32(2049) == 0x6800 && f16_of_f32(2051) == 0x6802); /* ties to even */
	cr_assert(f16_of_f32(65519) == 0x7bff && f16_of_f32(65520) == 0x7c00);
	cr_assert(f16_of_f32(0x1p-25f) == 0 && f16_of_f32(0x1.8p-25f) == 1);
	cr_assert(bf16_of_f32(1 + 0x1p-8f) == 0x3f80 && bf16_of_f32(1 + 0x3p-8f) == 0x3f82);
	/* 1 + 2^-11 is halfway between two halves; a tiny c decides, which rounding twice would lose */
	cr_assert((f16x2_fma(0x3c01, 0x3c00, 0x1000) & 0xffff) == 0x3c02);
	cr_assert((f16x2_fma(0x0001, 0x0001, 0x3c00) & 0xffff) == 0x3c00);
	cr_assert((f16x2_sub(0x6407, 0x6403) & 0xffff) == 0x4400);
	cr_assert(lop3<0xEA>(0xf0f0f0f0, 0xff00ff00, 0x1) == ((0xf0f0f0f0 & 0xff00ff00) | 0x1));
	cr_assert(lop3<0x96>(5, 9, 12) == (5 ^ 9 ^ 12));
}

/* ---- faults that are detected ---- */

static void no_wait_kernel(float *out, const float *in)
{
	float *shared = (float *)(void *)kern_smem();
	cp_async_16(shared + threadIdx.x * 4, in + threadIdx.x * 4);
	cp_async_commit();
	out[threadIdx.x] = shared[threadIdx.x * 4];
	cp_async_wait<0>();
}

/* The seed decides whether the copy arrives at once or at its wait. */
Test(emulator, a_copy_is_not_there_before_its_wait)
{
	struct device d = device_new(32), in = device_new(128);
	float got[32];
	int n_there = 0, n_poison = 0;
	for (uint64_t seed = 0; seed < 20; seed++) {
		cudasim_seed(seed);
		cr_assert(KERN_LAUNCH(no_wait_kernel, 1, 32, 512, d.s, d.p, (const float *)in.p) == 0);
		fetch(&d, got, 32);
		for (int i = 0; i < 32; i++) {
			n_there += got[i] == 0;
			n_poison += got[i] != got[i];
		}
	}
	cr_expect_eq(n_there + n_poison, 20 * 32);
	cr_expect(n_there > 200 && n_poison > 200, "%d there, %d poison", n_there, n_poison);
	device_del(&d);
	device_del(&in);
}

static void no_phase_kernel(float *out, const float *in)
{
	uint64_t *bar = (uint64_t *)(void *)kern_smem();
	float *shared = (float *)(void *)(kern_smem() + 16);
	if (threadIdx.x == 0) {
		mbar_init(bar, 1);
		mbar_arrive_expect_tx(bar, 512);
		bulk_load(shared, in, 512, bar);
		for (int i = 0; i < 128; i++)
			out[i] = shared[i];
		mbar_wait_parity(bar, 0);
	}
}

/* The copy lands in pieces, some at once, in an order that the seed decides. */
Test(emulator, a_bulk_copy_lands_bit_by_bit)
{
	struct device d = device_new(128), in = device_new(128);
	float got[128];
	int n_there = 0, n_poison = 0, n_mixed = 0;
	for (uint64_t seed = 0; seed < 60; seed++) {
		int poison = 0;
		cudasim_seed(seed);
		cr_assert(KERN_LAUNCH(no_phase_kernel, 1, 32, 1024, d.s, d.p, (const float *)in.p) == 0);
		fetch(&d, got, 128);
		for (int i = 0; i < 128; i++)
			poison += got[i] != got[i];
		n_poison += poison;
		n_there += 128 - poison;
		n_mixed += poison && poison < 128;
	}
	cr_expect(n_there > 600 && n_poison > 600 && n_mixed > 10, "%d there, %d poison, %d mixed", n_there,
		  n_poison, n_mixed);
	device_del(&d);
	device_del(&in);
}

static void no_barrier_kernel(float *out)
{
	volatile float *shared = (volatile float *)(void *)kern_smem();
	if (threadIdx.x == 0)
		shared[0] = 0;
	block_sync();
	const float v = shared[0];
	warp_sync(); /* this does not order the other warps */
	shared[0] = v + 1;
	block_sync();
	out[0] = shared[0];
}

static void race_kernel(float *out)
{
	volatile float *shared = (volatile float *)(void *)kern_smem();
	shared[threadIdx.x] = (float)threadIdx.x;
	out[threadIdx.x] = shared[(threadIdx.x + 32) % blockDim.x]; /* a barrier is missing */
}

Test(emulator, a_missing_barrier_shows)
{
	bool wrong = false;
	for (uint64_t seed = 0; seed < 5; seed++) {
		struct device d = device_new(128);
		float got[128];
		cudasim_seed(seed);
		cr_assert(KERN_LAUNCH(race_kernel, 1, 128, 512, d.s, d.p) == 0);
		fetch(&d, got, 128);
		for (int i = 0; i < 128; i++)
			wrong |= got[i] != (float)((i + 32) % 128);
		device_del(&d);
	}
	cr_assert(wrong);
	struct device d = device_new(1);
	cr_assert(KERN_LAUNCH(no_barrier_kernel, 1, 128, 512, d.s, d.p) == 0);
	cudaStreamSynchronize(d.s);
	device_del(&d);
}

static void beyond_kernel(float *out, int n)
{
	out[threadIdx.x + (unsigned)n] = 1;
}

Test(emulator, a_store_beyond_device_memory_faults, .signal = SIGSEGV)
{
	struct device d = device_new(1024);
	KERN_LAUNCH(beyond_kernel, 1, 32, 0, d.s, d.p, 1024);
	cudaStreamSynchronize(d.s);
}

Test(emulator, a_host_that_reads_device_memory_faults, .signal = SIGSEGV)
{
	struct device d = device_new(1024);
	KERN_LAUNCH(sum_kernel, 1, 32, 1024, d.s, d.p);
	cudaStreamSynchronize(d.s);
	volatile float *p = d.p;
	cr_assert(p[0] == 0);
}

static void smem_kernel(float *out)
{
	out[0] = (float)kern_smem()[512];
}

Test(emulator, a_load_beyond_shared_memory_faults, .signal = SIGSEGV)
{
	struct device d = device_new(1);
	KERN_LAUNCH(smem_kernel, 1, 32, 512, d.s, d.p);
	cudaStreamSynchronize(d.s);
}

static void lonely_kernel(float *out)
{
	if (threadIdx.x < 16)
		warp_sync();
	else
		out[0] = 1;
}

Test(emulator, a_warp_operation_without_all_lanes_aborts, .signal = SIGABRT)
{
	struct device d = device_new(1);
	KERN_LAUNCH(lonely_kernel, 1, 32, 0, d.s, d.p);
	cudaStreamSynchronize(d.s);
}

Test(emulator, host_memory_is_no_destination_for_the_device, .signal = SIGABRT)
{
	struct device d = device_new(4);
	float host[4];
	cudaMemcpyAsync(host, d.p, sizeof host, cudaMemcpyDeviceToDevice, d.s);
}

static std::atomic<int> told;

static void tell(void *arg)
{
	told = *(int *)arg;
}

/* Nothing waits for the stream: work before the function is done, work after it is not. */
Test(emulator, a_host_function_is_come_to_unasked)
{
	struct device d = device_new(2);
	void *p;
	int seven = 7;
	cr_assert(cudaHostAlloc(&p, 8, 0) == cudaSuccess);
	volatile float *host = (float *)p;
	for (uint64_t seed = 0; seed < 8; seed++) {
		cudasim_seed(seed);
		host[0] = -1;
		host[1] = -1;
		told = 0;
		cr_assert(cudaMemcpyAsync(p, d.p, 4, cudaMemcpyDeviceToHost, d.s) == cudaSuccess);
		cr_assert(cudaLaunchHostFunc(d.s, tell, &seven) == cudaSuccess);
		cr_assert(cudaMemcpyAsync((float *)p + 1, d.p + 1, 4, cudaMemcpyDeviceToHost, d.s) ==
			  cudaSuccess);
		while (told != 7)
			usleep(100);
		cr_assert(host[0] == 0 && host[1] == -1);
		cudaStreamSynchronize(d.s);
		cr_assert(host[1] == 0);
	}
	/* A function that a wait has called is not called again. */
	told = 0;
	cr_assert(cudaLaunchHostFunc(d.s, tell, &seven) == cudaSuccess);
	cudaStreamSynchronize(d.s);
	cr_assert(told == 7);
	told = 0;
	usleep(5000);
	cr_assert(told == 0);
	cudaFreeHost(p);
	device_del(&d);
}

/* Pinned memory is read when the stream reaches the copy. */
Test(emulator, a_pinned_buffer_that_is_reused_too_early_shows)
{
	struct device d = device_new(1);
	void *p;
	float got;
	cr_assert(cudaHostAlloc(&p, 4, 0) == cudaSuccess);
	*(float *)p = 1;
	cudaMemcpyAsync(d.p, p, 4, cudaMemcpyHostToDevice, d.s);
	*(float *)p = 2;
	fetch(&d, &got, 1);
	cr_assert(got == 2);
	cudaFreeHost(p);
	device_del(&d);
}

/* ---- mapped memory ---- */

static void add_one_kernel(float *p)
{
	p[threadIdx.x] += 1;
}

/* Allocate n mapped floats; *dev gets the device address. */
static float *mapped_new(size_t n, float **dev)
{
	void *host, *p;
	cr_assert(cudaHostAlloc(&host, n * sizeof(float), cudaHostAllocMapped) == cudaSuccess);
	cr_assert(cudaHostGetDevicePointer(&p, host, 0) == cudaSuccess);
	*dev = (float *)p;
	return (float *)host;
}

Test(emulator, kernels_read_and_write_mapped_memory_when_the_stream_comes_to_them)
{
	struct device d = device_new(1);
	float *dev, *host = mapped_new(32, &dev);
	for (int i = 0; i < 32; i++)
		host[i] = 1;
	cr_assert(KERN_LAUNCH(add_one_kernel, 1, 32, 0, d.s, dev) == 0);
	host[5] = 7; /* too early: the kernel reads this value */
	cr_assert(host[31] == 1, "nothing is done before the host waits");
	cudaStreamSynchronize(d.s);
	cr_assert(host[0] == 2 && host[5] == 8 && host[31] == 2);
	void *inside;
	cr_assert(cudaHostGetDevicePointer(&inside, host + 5, 0) == cudaSuccess && inside == dev + 5);
	cr_assert(cudaFreeHost(host) == cudaSuccess);
	device_del(&d);
}

Test(emulator, mapped_memory_is_no_memory_of_the_device)
{
	const uint64_t before = cudasim_stats().live_bytes;
	float *dev, *host = mapped_new(1000, &dev);
	void *plain, *p;
	cr_assert(cudasim_stats().live_bytes == before);
	cr_assert(cudaHostAlloc(&plain, 64, 0) == cudaSuccess);
	cr_assert(cudaHostGetDevicePointer(&p, plain, 0) == cudaErrorInvalidValue, "it is not mapped");
	cr_assert(cudaFreeHost(plain) == cudaSuccess && cudaFreeHost(host) == cudaSuccess);
}

/* A page that two launches touch counts twice; a page that no kernel touches does not count. */
Test(emulator, counts_the_pages_of_mapped_memory_that_kernels_touch)
{
	struct device d = device_new(1);
	const size_t page = 1024; /* floats */
	float *dev, *host = mapped_new(8 * page, &dev);
	cudasim_count_again();
	for (size_t at : {(size_t)0, 2 * page, 3 * page - 16})
		cr_assert(KERN_LAUNCH(add_one_kernel, 1, 32, 0, d.s, dev + at) == 0);
	cr_assert(cudasim_stats().mapped_bytes == 0, "the kernels have not run");
	cudaStreamSynchronize(d.s);
	const struct cudasim_counters c = cudasim_stats();
	cr_assert(c.mapped_bytes == 4 * 4096, "%lu bytes", (unsigned long)c.mapped_bytes);
	cr_assert(c.launched == 3 && c.copies == 0 && c.copy_bytes == 0 && c.syncs == 1);
	cr_assert(cudaMemcpyAsync(d.p, host, 4, cudaMemcpyHostToDevice, d.s) == cudaSuccess);
	cudaStreamSynchronize(d.s);
	cr_assert(cudasim_stats().copies == 1 && cudasim_stats().copy_bytes == 4 &&
		  cudasim_stats().mapped_bytes == c.mapped_bytes);
	cudasim_count_again();
	cr_assert(cudasim_stats().launched == 0 && cudasim_stats().mapped_bytes == 0 &&
		  cudasim_stats().copy_bytes == 0);
	cr_assert(cudaFreeHost(host) == cudaSuccess);
	device_del(&d);
}

Test(emulator, a_store_beyond_mapped_memory_faults, .signal = SIGSEGV)
{
	struct device d = device_new(1);
	float *dev;
	mapped_new(1024, &dev);
	KERN_LAUNCH(beyond_kernel, 1, 32, 0, d.s, dev, 1024);
	cudaStreamSynchronize(d.s);
}

Test(emulator, a_host_that_uses_the_address_of_the_device_faults, .signal = SIGSEGV)
{
	float *dev;
	mapped_new(4, &dev);
	volatile float *p = dev;
	signal(SIGSEGV, SIG_DFL); /* a sanitizer would report the fault and exit */
	cr_assert(p[0] == 0);
}

Test(emulator, what_the_device_would_refuse_is_refused)
{
	struct device d = device_new(64);
	cr_assert(KERN_LAUNCH(smem_kernel, 0, 32, 0, d.s, d.p) != 0);
	cr_assert(KERN_LAUNCH(smem_kernel, 1, 2048, 0, d.s, d.p) != 0);
	cr_assert(KERN_LAUNCH(smem_kernel, 1, 32, 64 << 10, d.s, d.p) != 0);
	cudaFuncSetAttribute(smem_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 64 << 10);
	cr_assert(KERN_LAUNCH(smem_kernel, 1, 32, 64 << 10, d.s, d.p) == 0);
	cudaStreamSynchronize(d.s);
	device_del(&d);
}

/* ---- blocks that are resident together ---- */

enum { TICKETS = 40 };

/* A counter that blocks increment without an atomic: correct only if they run one after another. */
static void take_turns_kernel(float *out)
{
	volatile float *count = out;
	const float mine = *count;
	block_sync();
	if (threadIdx.x == 0)
		*count = mine + 1;
}

static float turns(int resident, uint64_t seed)
{
	struct device d = device_new(1);
	float got;
	cudasim_resident(resident);
	cudasim_seed(seed);
	cr_assert(KERN_LAUNCH(take_turns_kernel, TICKETS, 64, 0, d.s, d.p) == 0);
	fetch(&d, &got, 1);
	device_del(&d);
	return got;
}

Test(emulator, blocks_that_take_turns_without_an_atomic_lose_some)
{
	const uint64_t before = cudasim_stats().interleaved;
	for (uint64_t seed = 0; seed < 5; seed++) {
		cr_expect_eq(turns(1, seed), TICKETS);
		cr_expect_lt(turns(0, seed), TICKETS);
	}
	cr_expect_eq(cudasim_stats().interleaved, before + 5);
}

/* Each block records its order of arrival, before and after other blocks may have run. */
static void order_kernel(float *out)
{
	int *at = (int *)(void *)out;
	if (threadIdx.x == 0) {
		const int first = atomic_add(at, 1);
		out[1 + first] = (float)blockIdx.x;
		fence_device();
		out[1 + TICKETS + (int)blockIdx.x] = (float)atomic_add(at, 1);
	}
}

static std::vector<float> order(int resident, uint64_t seed)
{
	std::vector<float> got(1 + 2 * TICKETS);
	struct device d = device_new(got.size());
	cudasim_resident(resident);
	cudasim_seed(seed);
	cr_assert(KERN_LAUNCH(order_kernel, TICKETS, 96, 2048, d.s, d.p) == 0);
	fetch(&d, got.data(), got.size());
	device_del(&d);
	return got;
}

Test(emulator, the_seed_decides_the_order_of_blocks)
{
	for (int resident = 0; resident < 2; resident++) {
		int differ = 0;
		for (uint64_t seed = 1; seed < 6; seed++) {
			cr_expect(order(resident, seed) == order(resident, seed));
			differ += order(resident, seed) != order(resident, seed + 1);
		}
		cr_expect_geq(differ, 4);
	}
}

/* At most as many blocks as the device holds: with this much shared memory, one per multiprocessor. */
static void most_kernel(float *out)
{
	int *now = (int *)(void *)out;
	if (threadIdx.x == 0)
		atomic_max(now + 1, atomic_add(now, 1) + 1);
	block_sync();
	if (threadIdx.x == 0)
		atomic_add(now, -1);
}

Test(emulator, as_many_blocks_are_resident_as_the_device_holds)
{
	const struct {
		int sms;
		size_t smem;
		int most;
	} cases[] = {{2, 100 << 10, 4}, {2, 200 << 10, 2}, {132, 200 << 10, 16}, {1, 0, 16}};
	cudaFuncSetAttribute(most_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 227 << 10);
	for (auto &c : cases) {
		int most = 0;
		cudasim_sms(c.sms);
		cudasim_resident(0);
		for (uint64_t seed = 0; seed < 8; seed++) {
			struct device d = device_new(2);
			float got[2];
			cudasim_seed(seed);
			cr_assert(KERN_LAUNCH(most_kernel, 64, 64, c.smem, d.s, d.p) == 0);
			fetch(&d, got, 2);
			most = max(most, f32_bits(got[1]));
			device_del(&d);
		}
		cr_expect_eq(most, c.most, "%d multiprocessors, %zu bytes: %d", c.sms, c.smem, most);
	}
}

/* A message that ends the process names the seed that repeats the failure. */
Test(emulator, a_failure_names_its_seed)
{
	int end[2];
	char said[4096] = "";
	cr_assert_eq(pipe(end), 0);
	const pid_t child = fork();
	if (child == 0) {
		dup2(end[1], STDERR_FILENO);
		close(end[1]);
		signal(SIGABRT, SIG_DFL);
		struct device d = device_new(1);
		cudasim_resident(3);
		cudasim_seed(41);
		KERN_LAUNCH(take_turns_kernel, 4, 64, 0, d.s, d.p);
		KERN_LAUNCH(lonely_kernel, 9, 32, 0, d.s, d.p);
		cudaStreamSynchronize(d.s);
		_exit(0);
	}
	close(end[1]);
	size_t n = 0;
	for (ssize_t got = 1; got > 0 && n<sizeof said - 1; n += got> 0 ? (size_t)got : 0)
		got = read(end[0], said + n, sizeof said - 1 - n);
	close(end[0]);
	int status;
	waitpid(child, &status, 0);
	cr_expect(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
	cr_expect(strstr(said, "launch 2 from QUERN_CUDASIM_SEED=41, QUERN_CUDASIM_RESIDENT=3"), "%s", said);
}

/* ---- alignment ---- */

static void raw_load_kernel(float *out, const float *in)
{
	out[threadIdx.x] = ((const float4 *)(const void *)(in + 4 * threadIdx.x))->y;
}

static void raw_store_kernel(float *out, const float *in)
{
	(void)in;
	*(float2 *)(void *)(out + 2 * threadIdx.x) = make_float2(1, 2);
}

static void raw_shared_kernel(float *out, const float *in)
{
	unsigned char *at = kern_smem() + ((uintptr_t)in & 15);
	*(uint4 *)(void *)(at + 16 * threadIdx.x) = make_uint4(1, 2, 3, 4);
	block_sync();
	out[threadIdx.x] = (float)*(const uint32_t *)(const void *)(at + 4 * threadIdx.x);
}

static void raw(void (*kernel)(float *, const float *), int shift)
{
	struct device d = device_new(256), in = device_new(256);
	const float *from = in.p + shift;
	float *to = d.p + shift;
	cr_assert(KERN_LAUNCH(kernel, 1, 32, 1024, d.s, to, from) == 0);
	cudaStreamSynchronize(d.s);
	device_del(&d);
	device_del(&in);
}

/* Accesses through plain pointers, which no function of the emulator checks.  (With sanitizers, their library
 * checks them.) */
#ifndef __SANITIZE_ADDRESS__
#define RAW(name, kernel, shift, fine)                                                                       \
	Test(emulator, name, .signal = SIGABRT)                                                              \
	{                                                                                                    \
		raw(kernel, shift);                                                                          \
	}                                                                                                    \
	Test(emulator, name##_or_not)                                                                        \
	{                                                                                                    \
		raw(kernel, fine);                                                                           \
	}
RAW(a_load_of_16_bytes_that_is_not_aligned, raw_load_kernel, 2, 4)
RAW(a_store_of_8_bytes_that_is_not_aligned, raw_store_kernel, 3, 2)
RAW(a_store_of_16_bytes_that_is_not_aligned_in_shared_memory, raw_shared_kernel, 1, 8)
#endif
