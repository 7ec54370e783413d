/* device.cu - opens and closes a GPU, its streams and events, and the table of operations.  CUDA call checks
 * and memory are in memory.cu. */
#include "kernels/cuda/blas.cuh"
#include "kernels/cuda/cuda.cuh"

#include <cuda_build.h> /* CUDA_BUILD; made by rules.mk */

#include <assert.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>

/* ---- streams and events ---- */

static struct kern_stream *stream_new(struct kern_dev *d)
{
	struct kern_stream *s = (struct kern_stream *)xcalloc(1, sizeof *s);
	s->dev = d;
	if (cuda_check(cudaStreamCreateWithFlags(&s->s, cudaStreamNonBlocking), "stream")) {
		free(s);
		return NULL;
	}
	return s;
}

static void stream_free(struct kern_stream *s)
{
	if (!s)
		return;
	cuda_check(cudaStreamDestroy(s->s), "end of a stream");
	free(s);
}

static int stream_sync(struct kern_stream *s)
{
	return cuda_check(cudaStreamSynchronize(s->s), "stream") ? -EIO : 0;
}

static struct kern_event *event_new(struct kern_dev *d)
{
	struct kern_event *e = (struct kern_event *)xcalloc(1, sizeof *e);
	e->dev = d;
	if (cuda_check(cudaEventCreateWithFlags(&e->e, cudaEventDisableTiming), "event")) {
		free(e);
		return NULL;
	}
	return e;
}

static void event_free(struct kern_event *e)
{
	if (!e)
		return;
	cuda_check(cudaEventDestroy(e->e), "end of an event");
	free(e);
}

static int event_record(struct kern_event *e, struct kern_stream *s)
{
	return cuda_check(cudaEventRecord(e->e, s->s), "event record");
}

static int event_wait(struct kern_event *e, struct kern_stream *s)
{
	return cuda_check(cudaStreamWaitEvent(s->s, e->e, 0), "event wait");
}

static bool event_done(struct kern_event *e)
{
	cudaError_t r = cudaEventQuery(e->e);
	if (r == cudaErrorNotReady) {
		cudaGetLastError();
		return false;
	}
	cuda_check(r, "event");
	return true; /* true after an error too: the next sync returns the error */
}

static int event_sync(struct kern_event *e)
{
	return cuda_check(cudaEventSynchronize(e->e), "wait for an event") ? -EIO : 0;
}

/* Runs in a thread of the driver, which must not call CUDA. */
static void CUDART_CB notify(void *arg)
{
	if (eventfd_write((int)(intptr_t)arg, 1))
		log_error("cuda", "notify failed reason=\"%s\"", strerror(errno));
}

/* Notify on a separate stream: work queued after a host function waits until that function has returned. */
static int event_notify(struct kern_event *e, int fd)
{
	int rc = cuda_check(cudaStreamWaitEvent(e->dev->notes, e->e, 0), "event wait");
	return rc ? rc
		  : cuda_check(cudaLaunchHostFunc(e->dev->notes, notify, (void *)(intptr_t)fd),
			       "notice of an event");
}

/* Small transfers of a step, such as the tokens of a new sequence, bypass the copy engine's queue. */
enum { MOVE_MAX = 256 << 10 };

static bool is_small(const void *to, const void *from, size_t bytes)
{
	return bytes <= MOVE_MAX && ((uintptr_t)to | (uintptr_t)from | bytes) % 4 == 0;
}

static int upload(struct kern_stream *s, void *dst_dev, const void *src_host, size_t bytes)
{
	const void *from = is_small(dst_dev, src_host, bytes) ? cuda_mapped(s->dev, src_host, bytes) : NULL;
	if (from)
		return cuda_move(s, dst_dev, from, bytes);
	return cuda_check(cudaMemcpyAsync(dst_dev, src_host, bytes, cudaMemcpyHostToDevice, s->s), "upload");
}

static int download(struct kern_stream *s, void *dst_host, const void *src_dev, size_t bytes)
{
	return cuda_check(cudaMemcpyAsync(dst_host, src_dev, bytes, cudaMemcpyDeviceToHost, s->s),
			  "download");
}

static int copy(struct kern_stream *s, void *dst_dev, const void *src_dev, size_t bytes)
{
	if (is_small(dst_dev, src_dev, bytes))
		return cuda_move(s, dst_dev, src_dev, bytes);
	return cuda_check(cudaMemcpyAsync(dst_dev, src_dev, bytes, cudaMemcpyDeviceToDevice, s->s), "copy");
}

/* ---- opening ---- */

static int check_args(const struct kern_open_args *a, struct why *why)
{
	if (a->max_rows < 1 || a->max_seqs < 1 || a->max_logits < 1 || a->max_context < 1 ||
	    a->max_blocks_per_seq < 1)
		return err_why(why, -EINVAL,
			       "a device needs max_rows, max_seqs, max_logits, max_context and "
			       "max_blocks_per_seq of at least 1");
	if (a->compute == KERN_COMPUTE_INT8 || a->compute == KERN_COMPUTE_INT16)
		return err_why(why, -ENOTSUP,
			       "compute mode %s is not built for CUDA: its operands are f16 or bf16",
			       a->compute == KERN_COMPUTE_INT8 ? "int8" : "int16");
	if (a->head == KERN_HEAD_INT8)
		return err_why(why, -ENOTSUP, "a head in int8 is not built for CUDA");
	if (a->kv != KERN_KV_MODE)
		return err_why(why, -ENOTSUP, "CUDA keeps K and V in the type of its operands (auto)");
	return 0;
}

/* Get the driver's version from the library that comes with it: "550.54.15", or "of an unknown version". */
static void driver_name(char *out, size_t n)
{
	typedef int (*plain_fn)(void);
	typedef int (*version_fn)(char *, unsigned);
	void *lib = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
	plain_fn init = lib ? (plain_fn)dlsym(lib, "nvmlInit_v2") : NULL;
	version_fn version = lib ? (version_fn)dlsym(lib, "nvmlSystemGetDriverVersion") : NULL;
	if (!init || !version || init() != 0 || version(out, (unsigned)n) != 0)
		snprintf(out, n, "of an unknown version");
	plain_fn shutdown = lib ? (plain_fn)dlsym(lib, "nvmlShutdown") : NULL;
	if (shutdown)
		shutdown();
}

/* The first driver that runs kernels of this CUDA release: the same for all of 13.x, and for all of 12.x. */
enum { CUDA_NEEDS_DRIVER = CUDART_VERSION >= 13000 ? 580 : 525 };
/* The first toolkit that compiles the kernels, which are C++20. */
enum { CUDA_FIRST = 12000 };

static int no_devices(cudaError_t e, struct why *why)
{
	char name[96], other[128] = "";
	int has = 0;
	if (e != cudaErrorInsufficientDriver)
		return err_why(why, -ENODEV, "no CUDA device: %s", cudaGetErrorString(e));
	if (cudaDriverGetVersion(&has) != cudaSuccess || !has) {
		cudaGetLastError();
		return err_why(
			why, -ENODEV,
			"no CUDA device: no NVIDIA driver is installed on this machine, or this container "
			"has no access to it; the kernels need %d or later",
			(int)CUDA_NEEDS_DRIVER);
	}
	driver_name(name, sizeof name);
	if (has >= CUDA_FIRST)
		snprintf(other, sizeof other,
			 ", or install kernels that were built with a CUDA %d toolkit (make cuda "
			 "CUDA_HOME=...)",
			 has / 1000);
	return err_why(
		why, -ENODEV,
		"the NVIDIA driver %s (CUDA %d.%d) is too old for these kernels (CUDA %d.%d): they need %d "
		"or later; update the driver%s",
		name, has / 1000, has % 1000 / 10, CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10,
		(int)CUDA_NEEDS_DRIVER, other);
}

static int find_device(struct kern_dev *d, struct why *why)
{
	int n = 0;
	cudaError_t e = cudaGetDeviceCount(&n);
	if (e != cudaSuccess) {
		cudaGetLastError();
		return no_devices(e, why);
	}
	d->id = d->args.index < 0 ? 0 : d->args.index;
	if (d->id >= n)
		return err_why(why, -ENODEV, "cuda:%d is not there: this machine has %d CUDA device%s", d->id,
			       n, n == 1 ? "" : "s");
	struct cudaDeviceProp p;
	if ((e = cudaSetDevice(d->id)) != cudaSuccess ||
	    (e = cudaGetDeviceProperties(&p, d->id)) != cudaSuccess) {
		cudaGetLastError();
		return err_why(why, -ENODEV, "cuda:%d cannot be used: %s", d->id, cudaGetErrorString(e));
	}
	d->cc = p.major * 10 + p.minor;
	if (d->cc < 80)
		return err_why(why, -ENOTSUP,
			       "cuda:%d (%s) has compute capability %d.%d; 8.0 or later is needed", d->id,
			       p.name, p.major, p.minor);
	snprintf(d->name, sizeof d->name, "%.63s", p.name);
	d->sms = p.multiProcessorCount;
	d->smem_max = (int)p.sharedMemPerBlockOptin;
	d->l2_bytes = (size_t)p.l2CacheSize;
	return 0;
}

static void cuda_close(struct kern_dev *d)
{
	if (!d)
		return;
	if (d->notes) {
		/* notices use eventfds, which stay open until close() */
		cuda_check(cudaStreamSynchronize(d->notes), "notices of events");
		cuda_check(cudaStreamDestroy(d->notes), "end of a stream");
	}
	cuda_sampler_fini(d);
	cuda_batch_fini(d);
	cuda_blas_close(d);
	free(d->crossovers);
	for (int i = 0; i < CUDA_WS_N; i++)
		cuda_mem_free(d, d->ws[i].p, d->ws[i].bytes);
	free(d->hosts);
	free(d);
}

static void cuda_crossovers(struct kern_dev *d, const struct kern_crossover *c, int n)
{
	free(d->crossovers);
	d->crossovers = (struct kern_crossover *)xcalloc((size_t)n + 1, sizeof *c);
	if (n)
		memcpy(d->crossovers, c, (size_t)n * sizeof *c);
	d->n_crossovers = n;
}

static int cuda_open(struct kern_dev **out, const struct kern_open_args *a, struct why *why)
{
	*out = NULL;
	int e = check_args(a, why);
	if (e)
		return e;
	struct kern_dev *d = (struct kern_dev *)xcalloc(1, sizeof *d);
	d->args = *a;
	d->args.n_kinds = a->n_kinds ? a->n_kinds : 1;
	d->fast_bytes = CUDA_FAST_BYTES;
	d->operand = a->compute == KERN_COMPUTE_BF16 || a->model == KERN_BF16 ? KERN_BF16 : KERN_F16;
	if ((e = find_device(d, why)) || (a->fast && (e = cuda_blas_open(d, why))))
		goto fail;
	e = cuda_check(cudaStreamCreateWithFlags(&d->notes, cudaStreamNonBlocking), "stream");
	if (!e)
		e = cuda_batch_init(d);
	if (!e)
		e = cuda_sampler_init(d);
	if (!e && a->n_vocab)
		e = cuda_sample_reserve(d, a->n_vocab);
	if (e) {
		err_why(why, e, "cuda:%d is out of memory for %d rows of %d sequences", d->id, a->max_rows,
			a->max_seqs);
		goto fail;
	}
	*out = d;
	return 0;
fail:
	cuda_close(d);
	return e;
}

static void cuda_info(struct kern_dev *d, struct kern_info *out)
{
	size_t free_now = 0, total = 0;
	memset(out, 0, sizeof *out);
	cuda_check(cudaMemGetInfo(&free_now, &total), "memory of the device");
	snprintf(out->name, sizeof out->name, "%s", d->name);
	snprintf(out->isa, sizeof out->isa, "sm_%d", d->cc);
	snprintf(out->mode, sizeof out->mode, "%s", d->operand == KERN_BF16 ? "bf16" : "f16");
	numerics_of_cuda(d->cc, d->operand == KERN_BF16, d->args.fast, out->numerics, sizeof out->numerics);
	snprintf(out->build, sizeof out->build, "%s", CUDA_BUILD);
	out->operand = d->operand;
	out->kv = d->operand == KERN_BF16 ? KERN_KV_BF16 : KERN_KV_F16;
	out->bytes_total = (int64_t)total;
	out->bytes_free = (int64_t)free_now;
	out->bytes_used = (int64_t)d->used;
	out->steps_take_memory = true;
	out->n_threads = 1;
	out->codes = true;
	out->head_max = CUDA_HEAD_MAX;
	out->head_step = 8;
}

/* Return the bytes of operands, which are dense rows of F16 or BF16. */
static size_t operand_bytes(struct kern_dev *d, int n_rows, int width)
{
	(void)d;
	return (size_t)n_rows * (size_t)width * 2;
}

/* ---- the table ---- */

extern "C" __attribute__((visibility("default"))) const struct kern_ops kern_cuda_ops = {
	.abi = KERN_ABI,
	.name = "cuda",
	.open = cuda_open,
	.close = cuda_close,
	.info = cuda_info,
	.crossovers = cuda_crossovers,
	.mem_new = cuda_mem_new,
	.mem_free = cuda_mem_free,
	.host_new = cuda_host_new,
	.host_free = cuda_host_free,
	.stream_new = stream_new,
	.stream_free = stream_free,
	.stream_sync = stream_sync,
	.event_new = event_new,
	.event_free = event_free,
	.event_record = event_record,
	.event_wait = event_wait,
	.event_done = event_done,
	.event_sync = event_sync,
	.event_notify = event_notify,
	.upload = upload,
	.download = download,
	.copy = copy,
	.pick = cuda_pick,
	.operand_bytes = operand_bytes,
	.linear_load = cuda_linear_load,
	.linear_free = cuda_linear_free,
	.linear_bytes = cuda_linear_bytes,
	.experts_load = cuda_experts_load,
	.experts_free = cuda_experts_free,
	.experts_bytes = cuda_experts_bytes,
	.experts_packed_bytes = cuda_experts_packed_bytes,
	.experts_save = cuda_experts_save,
	.experts_place = cuda_experts_place,
	.embed_load = cuda_embed_load,
	.embed_free = cuda_embed_free,
	.embed_bytes = cuda_embed_bytes,
	.embed_linear = cuda_embed_linear,
	.kv_new = cuda_kv_new,
	.kv_free = cuda_kv_free,
	.kv_block_bytes = cuda_kv_block_bytes,
	.kv_scratch_bytes = cuda_kv_scratch_bytes,
	.kv_copy = cuda_kv_copy,
	.kv_swap_out = cuda_kv_swap_out,
	.kv_swap_in = cuda_kv_swap_in,
	.batch_set = cuda_batch_set,
	.embed = cuda_embed,
	.rmsnorm = cuda_rmsnorm,
	.layernorm = cuda_layernorm,
	.rmsnorm_f32 = cuda_rmsnorm_f32,
	.positions = cuda_positions,
	.activate = cuda_activate,
	.add_rows = cuda_add_rows,
	.map = cuda_map,
	.linear = cuda_linear,
	.qkv_squares = cuda_qkv_squares,
	.qkv = cuda_qkv,
	.attention = cuda_attention,
	.gateup_swiglu = cuda_gateup_swiglu,
	.route = cuda_route,
	.moe = cuda_moe,
	.gather = cuda_gather,
	.sample = cuda_sample,
	.graph_begin = cuda_graph_begin,
	.graph_end = cuda_graph_end,
	.graph_launch = cuda_graph_launch,
	.graph_free = cuda_graph_free,
};
