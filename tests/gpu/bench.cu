/* bench.cu - the CUDA kernels against the bandwidth of the device and against cuBLAS, in one run.
 *
 *     gpu_bench [--quick] [--json FILE]
 *
 * Layers of Qwen3-8B, AWQ INT4 (groups of 128) and F16, in the default mode and with --fast, against
 * cuBLAS with F16 weights; decode attention of an uneven batch of 64.  Every measurement is a CUDA graph of
 * calls that cycle through so many copies of the weights that the L2 cache holds none of them; the figure is
 * the median of the replays, per call.  Fractions of bandwidth refer to a copy, measured in the same run.
 * Values are random: zeros run faster on some devices. */
#include "kernels/cuda/cuda.cuh"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cublas_v2.h>
#include <vector>

extern "C" const struct kern_ops kern_cuda_ops;

namespace
{

constexpr int MAX_ROWS = 8192, REPLAYS = 21, CALLS = 24;
constexpr size_t PAST_L2 = (size_t)400 << 20;

void die(const char *what, const char *why)
{
	fprintf(stderr, "gpu_bench: %s: %s\n", what, why);
	exit(1);
}

void check(cudaError_t e, const char *what)
{
	if (e != cudaSuccess)
		die(what, cudaGetErrorString(e));
}

void check(int rc, const char *what)
{
	if (rc)
		die(what, strerror(-rc));
}

void check(cublasStatus_t s, const char *what)
{
	if (s != CUBLAS_STATUS_SUCCESS)
		die(what, cublasGetStatusString(s));
}

uint64_t state = 0x9E3779B97F4A7C15u;

uint32_t random32()
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (uint32_t)(state >> 32);
}

/* F16 between 2^-7 and 2^-4, of either sign. */
uint16_t random_half()
{
	uint32_t r = random32();
	return (uint16_t)((r & 0x8000) | (8 + (r >> 16) % 3) << 10 | (r & 0x3ff));
}

/* The median time of a call, in microseconds, of CALLS of them in a graph. */
template <typename F> double time_us(cudaStream_t s, F call)
{
	cudaGraph_t graph;
	cudaGraphExec_t exec;
	cudaEvent_t from, to;
	call(0); /* modules are loaded, handles made */
	check(cudaStreamSynchronize(s), "first call");
	check(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal), "capture");
	for (int i = 0; i < CALLS; i++)
		call(i);
	check(cudaStreamEndCapture(s, &graph), "end of the capture");
	check(cudaGraphInstantiate(&exec, graph, 0), "graph");
	check(cudaEventCreate(&from), "event");
	check(cudaEventCreate(&to), "event");
	std::vector<float> ms(REPLAYS);
	for (int i = -2; i < REPLAYS; i++) {
		check(cudaEventRecord(from, s), "event");
		check(cudaGraphLaunch(exec, s), "replay");
		check(cudaEventRecord(to, s), "event");
		check(cudaEventSynchronize(to), "replay");
		if (i >= 0)
			check(cudaEventElapsedTime(&ms[(size_t)i], from, to), "time");
	}
	std::sort(ms.begin(), ms.end());
	cudaEventDestroy(from);
	cudaEventDestroy(to);
	cudaGraphExecDestroy(exec);
	cudaGraphDestroy(graph);
	return 1e3 * (double)ms[REPLAYS / 2] / CALLS;
}

double copy_gbps(cudaStream_t s)
{
	const size_t bytes = (size_t)1 << 30;
	void *a, *b;
	check(cudaMalloc(&a, bytes), "memory");
	check(cudaMalloc(&b, bytes), "memory");
	check(cudaMemsetAsync(a, 0x5a, bytes, s), "memset");
	double us = time_us(s, [&](int i) {
		check(cudaMemcpyAsync(i % 2 ? a : b, i % 2 ? b : a, bytes, cudaMemcpyDeviceToDevice, s),
		      "copy");
	});
	cudaFree(a);
	cudaFree(b);
	return 2e-3 * (double)bytes / us;
}

/* ---- layers ---- */

struct layer {
	const char *name;
	int k, n, parts; /* parts of n outputs each */
	bool swiglu;
};

const layer layers[] = {
	{"qkv", 4096, 6144, 1, false},
	{"o", 4096, 4096, 1, false},
	{"gate_up", 4096, 12288, 2, true},
	{"down", 12288, 4096, 1, false},
};

kern_linear *load(kern_dev *d, const layer &l, enum kern_dtype type)
{
	char why[256] = "";
	kern_linear *w = nullptr;
	kern_linear_src src = {};
	const int groups = l.k / 128;
	std::vector<uint32_t> q((size_t)l.k * (size_t)l.n / (type == KERN_AWQ4 ? 8 : 2));
	std::vector<uint32_t> z((size_t)groups * (size_t)l.n / 8);
	std::vector<uint16_t> s((size_t)groups * (size_t)l.n);
	for (uint32_t &x : q)
		x = type == KERN_AWQ4 ? random32() : (uint32_t)random_half() << 16 | random_half();
	for (uint32_t &x : z)
		x = 0x77777777 ^ (random32() & 0x11111111);
	for (uint16_t &x : s)
		x = random_half() & 0x7fff;
	src.name = l.name;
	src.k = l.k;
	src.group = 128;
	src.n_parts = l.parts;
	for (int i = 0; i < l.parts; i++) {
		src.parts[i].dtype = type;
		src.parts[i].n = l.n;
		src.parts[i].w = q.data();
		src.parts[i].qzeros = z.data();
		src.parts[i].scales = s.data();
	}
	if (kern_cuda_ops.linear_load(d, &src, &w, why, sizeof why))
		die(l.name, why);
	return w;
}

struct copies {
	std::vector<kern_linear *> w;
	size_t bytes; /* of one */
};

copies load_copies(kern_dev *d, const layer &l, enum kern_dtype type)
{
	copies c;
	c.w.push_back(load(d, l, type));
	c.bytes = (size_t)kern_cuda_ops.linear_bytes(c.w[0]);
	while (c.w.size() * c.bytes < PAST_L2)
		c.w.push_back(load(d, l, type));
	return c;
}

void free_copies(copies &c)
{
	for (kern_linear *w : c.w)
		kern_cuda_ops.linear_free(w);
}

double time_ours(kern_stream *s, const layer &l, const copies &c, void *out, const void *in, int m)
{
	return time_us(s->s, [&](int i) {
		kern_linear *w = c.w[(size_t)i % c.w.size()];
		check(l.swiglu ? kern_cuda_ops.gateup_swiglu(s, w, out, in, m)
			       : kern_cuda_ops.linear(s, w, out, in, m, false),
		      l.name);
	});
}

/* out [m][n] = in [m][k] w[n][k]^T, as cuBLAS sees it: column-major out^T = w in^T. */
double time_cublas(cublasHandle_t h, cudaStream_t s, const layer &l, const void *w, size_t n_w, void *out,
		   const void *in, int m)
{
	const float one = 1, zero = 0;
	const int n = l.n * l.parts;
	return time_us(s, [&](int i) {
		const uint16_t *at = (const uint16_t *)w + (size_t)i % n_w * (size_t)n * (size_t)l.k;
		check(cublasGemmEx(h, CUBLAS_OP_T, CUBLAS_OP_N, n, m, l.k, &one, at, CUDA_R_16F, l.k, in,
				   CUDA_R_16F, l.k, &zero, out, CUDA_R_16F, n, CUBLAS_COMPUTE_32F,
				   CUBLAS_GEMM_DEFAULT),
		      "cublasGemmEx");
	});
}

__global__ void fill(uint16_t *p, size_t n, uint32_t seed)
{
	for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
	     i += (size_t)gridDim.x * blockDim.x) {
		uint32_t r = (uint32_t)i * 2654435761u ^ seed;
		r ^= r >> 15;
		r *= 2246822519u;
		r ^= r >> 13;
		p[i] = (uint16_t)((r & 0x8000) | (8 + (r >> 16) % 3) << 10 | (r & 0x3ff));
	}
}

/* A device, in one mode. */
struct mode {
	kern_dev *d;
	kern_stream *s;
	kern_info info;
};

/* From this number of rows on --fast may take another path; its crossovers are the built-in ones. */
constexpr int FAST_ROWS = 64;

struct figures {
	double awq, f16, awq_fast, f16_fast, cublas; /* us; 0: not measured */
};

void print_figures(const char *name, int m, const figures &x)
{
	printf("%-8s %6d | %10.2f %10.2f | %10.2f %10.2f | %10.2f | %7.2fx %7.2fx |", name, m, x.awq, x.f16,
	       x.awq_fast, x.f16_fast, x.cublas, x.cublas / x.awq, x.cublas / x.f16);
	if (x.awq_fast > 0)
		printf(" %7.2fx %7.2fx", x.cublas / x.awq_fast, x.cublas / x.f16_fast);
	printf("\n");
}

void bench_layers(const mode &plain, const mode &fast, double gbps, bool quick, FILE *json)
{
	static const int all[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192};
	static const int few[] = {1, 16, 64, 512, 2048, 8192};
	const int *rows = quick ? few : all;
	const int n_rows = quick ? 6 : 14;
	cudaStream_t s = plain.s->s;
	std::vector<figures> sum((size_t)n_rows, figures());
	cublasHandle_t h;
	void *in, *out, *ws;
	check(cublasCreate(&h), "cuBLAS");
	check(cublasSetStream(h, s), "cuBLAS");
	check(cudaMalloc(&ws, 64 << 20), "memory");
	check(cublasSetWorkspace(h, ws, 64 << 20), "cuBLAS");
	check(cudaMalloc(&in, (size_t)MAX_ROWS * 12288 * 2), "memory");
	check(cudaMalloc(&out, (size_t)MAX_ROWS * 24576 * 2), "memory");
	fill<<<1024, 256, 0, s>>>((uint16_t *)in, (size_t)MAX_ROWS * 12288, 1);
	check(cudaStreamSynchronize(s), "rows");
	printf("\ndefault: %s; fast: %s, built-in crossovers; us of a call, and cuBLAS F16 over it (more "
	       "than 1: faster "
	       "than cuBLAS)\n",
	       plain.info.numerics, fast.info.numerics);
	printf("%-8s %6s | %10s %10s | %10s %10s | %10s | %8s %8s | %8s %8s\n", "layer", "rows", "AWQ", "F16",
	       "AWQ fast", "F16 fast", "cuBLAS F16", "AWQ", "F16", "AWQ fast", "F16 fast");
	for (const layer &l : layers) {
		const size_t n = (size_t)l.n * (size_t)l.parts, one = n * (size_t)l.k;
		copies awq = load_copies(plain.d, l, KERN_AWQ4), f16 = load_copies(plain.d, l, KERN_F16);
		copies awq_fast = load_copies(fast.d, l, KERN_AWQ4),
		       f16_fast = load_copies(fast.d, l, KERN_F16);
		const size_t n_w = f16.w.size();
		uint16_t *w;
		check(cudaMalloc(&w, n_w * one * 2), "memory");
		fill<<<1024, 256, 0, s>>>(w, n_w * one, 2);
		for (int i = 0; i < n_rows; i++) {
			const int m = rows[i];
			figures x = {};
			x.awq = time_ours(plain.s, l, awq, out, in, m);
			x.f16 = time_ours(plain.s, l, f16, out, in, m);
			if (m >= FAST_ROWS) {
				x.awq_fast = time_ours(fast.s, l, awq_fast, out, in, m);
				x.f16_fast = time_ours(fast.s, l, f16_fast, out, in, m);
			}
			x.cublas = time_cublas(h, s, l, w, n_w, out, in, m);
			print_figures(l.name, m, x);
			if (m <= 64)
				printf("%15s | of the copy's bandwidth: AWQ %.0f%%, F16 %.0f%%\n", "",
				       1e-1 * (double)awq.bytes / x.awq / gbps,
				       1e-1 * (double)f16.bytes / x.f16 / gbps);
			fprintf(json,
				"%s{\"layer\": \"%s\", \"rows\": %d, \"awq_us\": %.3f, \"f16_us\": %.3f, "
				"\"awq_fast_us\": %.3f, \"f16_fast_us\": %.3f, \"cublas_f16_us\": %.3f, "
				"\"awq_bytes\": "
				"%zu}",
				&l == layers && i == 0 ? "" : ", ", l.name, m, x.awq, x.f16, x.awq_fast,
				x.f16_fast, x.cublas, awq.bytes);
			figures &all_layers = sum[(size_t)i];
			all_layers.awq += x.awq;
			all_layers.f16 += x.f16;
			all_layers.awq_fast += x.awq_fast;
			all_layers.f16_fast += x.f16_fast;
			all_layers.cublas += x.cublas;
		}
		cudaFree(w);
		free_copies(awq);
		free_copies(f16);
		free_copies(awq_fast);
		free_copies(f16_fast);
	}
	for (int i = 0; i < n_rows; i++)
		print_figures("all four", rows[i], sum[(size_t)i]);
	cudaFree(in);
	cudaFree(out);
	cublasDestroy(h);
	cudaFree(ws);
}

/* ---- attention ---- */

/* Random K and V for the n tokens of one sequence, in every layer. */
void fill_cache(kern_dev *d, kern_stream *s, kern_kv *kv, const int32_t *table, int stride, int n,
		int n_layers)
{
	const size_t width = (32 + 2 * 8) * 128;
	const int32_t row0[2] = {0, n}, zero = 0;
	std::vector<int32_t> token_at((size_t)n, 0);
	std::vector<float> turn((size_t)n * 128, 0.6f);
	void *in = kern_cuda_ops.mem_new(d, (size_t)n * width * 2),
	     *q = kern_cuda_ops.mem_new(d, (size_t)n * 4096 * 2);
	void *rope = kern_cuda_ops.mem_new(d, turn.size() * 4);
	if (!in || !q || !rope)
		die("attention", "out of memory");
	fill<<<1024, 256, 0, s->s>>>((uint16_t *)in, (size_t)n * width, (uint32_t)n);
	check(kern_cuda_ops.upload(s, rope, turn.data(), turn.size() * 4), "upload");
	kern_batch b = {};
	b.n_rows = n;
	b.n_seqs = 1;
	b.token_at = token_at.data();
	b.row0 = row0;
	b.pos0 = &zero;
	b.tables = table;
	b.table_stride = stride;
	check(kern_cuda_ops.batch_set(s, &b), "batch");
	for (int layer = 0; layer < n_layers; layer++) {
		kern_qkv_args a = {};
		a.q = q;
		a.qkv = in;
		a.rope = rope;
		a.rope_dim = 128;
		a.n_q_heads = 32;
		a.n_kv_heads = 8;
		a.head_dim = 128;
		a.kv = kv;
		a.layer = layer;
		check(kern_cuda_ops.qkv(s, &a), "qkv");
	}
	check(cudaStreamSynchronize(s->s), "qkv");
	kern_cuda_ops.mem_free(d, in, 0);
	kern_cuda_ops.mem_free(d, q, 0);
	kern_cuda_ops.mem_free(d, rope, 0);
}

/* 64 sequences of 128 to 8,192 tokens, one row each; 32 query heads, 8 of K and V, of 128. */
void bench_attention(kern_dev *d, kern_stream *s, double gbps, FILE *json)
{
	enum { N = 64, BLOCK = 16, HQ = 32, HKV = 8, D = 128, LAYERS = 4 };
	std::vector<int32_t> pos0(N), row0(N + 1), token_at(N, 0), tables;
	int context = 0, blocks = 0, stride = 0;
	for (int i = 0; i < N; i++) {
		pos0[(size_t)i] = 127 + (int)(random32() % 8065);
		row0[(size_t)i + 1] = i + 1;
		stride = std::max(stride, (pos0[(size_t)i] + BLOCK) / BLOCK);
		context += pos0[(size_t)i] + 1;
	}
	tables.assign((size_t)N * (size_t)stride, 0);
	for (int i = 0; i < N; i++)
		for (int b = 0; b <= pos0[(size_t)i] / BLOCK; b++)
			tables[(size_t)i * (size_t)stride + (size_t)b] = blocks++;
	/* Blocks lie apart, as in a pool that was in use for a while. */
	std::vector<int32_t> order((size_t)blocks);
	for (int i = 0; i < blocks; i++)
		order[(size_t)i] = i;
	for (int i = blocks - 1; i > 0; i--)
		std::swap(order[(size_t)i], order[random32() % (uint32_t)(i + 1)]);
	for (int32_t &t : tables)
		t = order[(size_t)t];
	kern_kv *kv = kern_cuda_ops.kv_new(d, LAYERS, HKV, D, BLOCK, blocks, 0);
	void *q = kern_cuda_ops.mem_new(d, (size_t)N * HQ * D * 2),
	     *out = kern_cuda_ops.mem_new(d, (size_t)N * HQ * D * 2);
	if (!kv || !q || !out)
		die("attention", "out of memory");
	fill<<<64, 256, 0, s->s>>>((uint16_t *)q, (size_t)N * HQ * D, 3);
	for (int i = 0; i < N; i++)
		fill_cache(d, s, kv, &tables[(size_t)i * (size_t)stride], stride, pos0[(size_t)i] + 1,
			   LAYERS);
	kern_batch b = {};
	b.n_rows = b.n_seqs = N;
	b.token_at = token_at.data();
	b.row0 = row0.data();
	b.pos0 = pos0.data();
	b.tables = tables.data();
	b.table_stride = stride;
	check(kern_cuda_ops.batch_set(s, &b), "batch");
	check(cudaStreamSynchronize(s->s), "batch");
	kern_attn_args a = {};
	a.out = out;
	a.q = q;
	a.kv = kv;
	a.n_q_heads = HQ;
	a.n_kv_heads = HKV;
	a.head_dim = D;
	a.scale = 0.088388f;
	double us = time_us(s->s, [&](int i) {
		a.layer = i % LAYERS;
		check(kern_cuda_ops.attention(s, &a), "attention");
	});
	double bytes = 2.0 * sizeof(uint16_t) * (size_t)HKV * (size_t)D * (double)context;
	printf("\ndecode attention, 64 sequences of 128 to 8,192 tokens (%d in all): %.1f us, %.0f GB/s, "
	       "%.0f%% of the "
	       "copy\n",
	       context, us, 1e-3 * bytes / us, 1e-1 * bytes / us / gbps);
	fprintf(json, "{\"sequences\": %d, \"tokens\": %d, \"us\": %.3f, \"bytes\": %.0f}", N, context, us,
		bytes);
	kern_cuda_ops.kv_free(kv);
	kern_cuda_ops.mem_free(d, q, 0);
	kern_cuda_ops.mem_free(d, out, 0);
}

mode open_mode(bool fast)
{
	char why[512] = "";
	mode m = {};
	kern_open_args args = {};
	args.compute = KERN_COMPUTE_F32;
	args.max_rows = MAX_ROWS;
	args.max_seqs = args.max_logits = 64;
	args.max_context = 8192;
	args.max_blocks_per_seq = 512;
	args.fast = fast;
	if (kern_cuda_ops.open(&m.d, &args, why, sizeof why))
		die("cuda:0", why);
	m.s = kern_cuda_ops.stream_new(m.d);
	kern_cuda_ops.info(m.d, &m.info);
	return m;
}

void close_mode(mode &m)
{
	kern_cuda_ops.stream_free(m.s);
	kern_cuda_ops.close(m.d);
}

} // namespace

int main(int argc, char **argv)
{
	const char *path = "/dev/null";
	bool quick = false;
	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--quick")) {
			quick = true;
		} else if (!strcmp(argv[i], "--json") && i + 1 < argc) {
			path = argv[++i];
		} else {
			fprintf(stderr, "usage: gpu_bench [--quick] [--json FILE]\n");
			return strcmp(argv[i], "--help") ? 2 : 0;
		}
	}
	FILE *json = fopen(path, "w");
	if (!json)
		die(path, strerror(errno));
	mode plain = open_mode(false), fast = open_mode(true);
	double gbps = copy_gbps(plain.s->s);
	printf("%s, %s; a copy of 1 GiB reads and writes %.0f GB/s\n", plain.info.name, plain.info.isa, gbps);
	fprintf(json,
		"{\"device\": \"%s\", \"isa\": \"%s\", \"default\": \"%s\", \"fast\": \"%s\", "
		"\"copy_gb_per_s\": %.1f, "
		"\"layers\": [",
		plain.info.name, plain.info.isa, plain.info.numerics, fast.info.numerics, gbps);
	bench_layers(plain, fast, gbps, quick, json);
	close_mode(fast);
	fprintf(json, "], \"attention\": ");
	bench_attention(plain.d, plain.s, gbps, json);
	fprintf(json, "}\n");
	fclose(json);
	close_mode(plain);
	return 0;
}
