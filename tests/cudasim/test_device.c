/* The CUDA table as a device: memory, streams, swaps, what info() says and open() refuses. */
#include "tests/cudasim/cuda_test.h"
#include "tests/cudasim/kv_peek.h"

Test(device, memory_is_zeroed_and_copies_arrive_in_order_of_events)
{
	struct kt t;
	ct_open(&t, false, (struct kt_size){0});
	static const size_t sizes[] = {1, 1000, 5 << 20};
	for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
		unsigned char *d = kt_new(&t, sizes[i]), *h = t.ops->host_new(t.dev, sizes[i]);
		unsigned char *back = t.ops->host_new(t.dev, sizes[i]);
		cr_assert(h && back && (uintptr_t)d % 64 == 0);
		memset(back, 1, sizes[i]);
		kt_get(&t, back, d, sizes[i]);
		for (size_t b = 0; b < sizes[i]; b++)
			cr_assert_eq(back[b], 0);
		memset(h, 7, sizes[i]);
		struct kern_stream *other = t.ops->stream_new(t.dev);
		struct kern_event *e = t.ops->event_new(t.dev);
		cr_assert_eq(t.ops->upload(other, d, h, sizes[i]), 0);
		cr_assert(t.ops->event_record(e, other) == 0 && t.ops->event_wait(e, t.s) == 0);
		kt_get(&t, back, d, sizes[i]);
		cr_assert_eq(back[sizes[i] - 1], 7);
		cr_assert(t.ops->event_done(e));
		t.ops->event_free(e);
		t.ops->stream_free(other);
		kt_del(&t, d);
		t.ops->host_free(t.dev, h, sizes[i]);
		t.ops->host_free(t.dev, back, sizes[i]);
	}
	kt_close(&t);
}

/* Up to 256 KB, in whole words, from memory of host_new(); the rest goes by the copy engine. */
Test(device, what_is_small_is_moved_by_a_kernel)
{
	static const struct {
		size_t bytes;
		uint64_t copies;
	} cases[] = {{4, 0}, {6, 2}, {256 << 10, 0}, {(256 << 10) + 4, 2}};
	const size_t most = (256 << 10) + 8;
	struct kt t;
	ct_open(&t, false, (struct kt_size){0});
	unsigned char *host = t.ops->host_new(t.dev, most), *got = xmalloc(most);
	unsigned char *a = kt_new(&t, most), *b = kt_new(&t, most);
	cr_assert(host);
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		const size_t n = cases[i].bytes;
		for (size_t k = 0; k < most; k++)
			host[k] = (unsigned char)(k * 7 + i + 1);
#ifdef QUERN_CUDASIM
		cudasim_count_again();
#endif
		cr_assert_eq(t.ops->upload(t.s, a, host + 4, n), 0);
		cr_assert_eq(t.ops->copy(t.s, b, a, n), 0);
#ifdef QUERN_CUDASIM
		const struct cudasim_counters c = cudasim_stats();
		cr_expect_eq(c.copies, cases[i].copies, "%zu bytes: %lu copies", n, (unsigned long)c.copies);
		cr_expect_eq(c.syncs, 0);
#endif
		kt_get(&t, got, b, most);
		cr_expect(!memcmp(got, host + 4, n), "%zu bytes", n);
		cr_expect_eq(got[n], 0, "%zu bytes: one more was written", n);
	}
	t.ops->host_free(t.dev, host, most);
	free(got);
	kt_close(&t);
}

/* Out to another order of blocks, and back; neighbours on both sides join, blocks are larger than a piece or
 * smaller. */
static void swap_blocks(int n_layers, int n_blocks)
{
	struct kt t;
	ct_open(&t, false, (struct kt_size){.context = 256, .block_size = 256});
	struct kern_kv *kv = t.ops->kv_new(t.dev, n_layers, 8, 128, 256, n_blocks, n_blocks);
	cr_assert(kv);
	const struct kv_peek peek = kv_peek_at(kv);
	const size_t bytes = peek.block_bytes * (size_t)n_blocks;
	unsigned char *was = xmalloc(bytes), *is = xmalloc(bytes);
	int32_t(*pairs)[2] = xcalloc((size_t)n_blocks, sizeof *pairs);
	for (size_t i = 0; i < bytes; i++)
		was[i] = (unsigned char)(i * 2654435761u >> 13);
	kt_set(&t, peek.pool, was, bytes);
	for (int i = 0; i < n_blocks; i++) { /* the last block first, the others behind it */
		pairs[i][0] = i;
		pairs[i][1] = (i + 1) % n_blocks;
	}
#ifdef QUERN_CUDASIM
	cudasim_count_again();
#endif
	cr_assert_eq(t.ops->kv_swap_out(t.s, kv, (const int32_t(*)[2])pairs, n_blocks), 0);
	for (int i = 0; i < n_blocks; i++)
		pairs[i][0] = pairs[i][1] = i;
	cr_assert_eq(t.ops->kv_swap_in(t.s, kv, (const int32_t(*)[2])pairs, n_blocks), 0);
#ifdef QUERN_CUDASIM
	const struct cudasim_counters c = cudasim_stats();
	const uint64_t piece = 4 << 20, least = bytes / piece;
	cr_expect_leq(c.copy_bytes_most, piece);
	/* Each way whole pieces, but for the ends of two runs. */
	cr_expect(c.copies >= 2 * least && c.copies <= 2 * least + 4, "%lu copies of %zu bytes",
		  (unsigned long)c.copies, bytes);
	cr_expect_eq(c.syncs, 0);
#endif
	kt_get(&t, is, peek.pool, bytes);
	const size_t one = peek.block_bytes, others = bytes - one;
	cr_expect(!memcmp(is + one, was, others) && !memcmp(is, was + others, one), "other bytes");
	free(was);
	free(is);
	free(pairs);
	t.ops->kv_free(kv);
	kt_close(&t);
}

Test(device, a_swap_of_many_small_blocks_goes_in_pieces)
{
	swap_blocks(1, 17);
}

Test(device, a_swap_of_blocks_larger_than_a_piece_goes_in_pieces)
{
	swap_blocks(5, 3);
}

Test(device, info_names_the_operand_type_and_what_decides_bits)
{
	for (int bf16 = 0; bf16 < 2; bf16++) {
		struct kt t;
		struct kern_info in;
		ct_open(&t, bf16, (struct kt_size){0});
		t.ops->info(t.dev, &in);
		cr_assert_eq(in.operand, bf16 ? KERN_BF16 : KERN_F16);
		cr_assert(in.kv == (bf16 ? KERN_KV_BF16 : KERN_KV_F16) && in.name[0] && in.bytes_free > 0 &&
			  in.bytes_total >= in.bytes_free);
		cr_assert(strstr(in.numerics, bf16 ? " bf16" : " f16") && strstr(in.numerics, in.isa));
		kt_close(&t);
	}
}

Test(device, a_model_trained_in_bf16_gets_operands_of_its_range)
{
	char why[256];
	const struct kern_open_args a = {.index = -1,
					 .compute = KERN_COMPUTE_F32,
					 .model = KERN_BF16,
					 .max_rows = 1,
					 .max_seqs = 1,
					 .max_logits = 1,
					 .max_context = 1,
					 .max_blocks_per_seq = 1};
	struct kern_dev *d;
	struct kern_info in;
	cr_assert_eq(kern_cuda_ops.open(&d, &a, why, sizeof why), 0, "%s", why);
	kern_cuda_ops.info(d, &in);
	cr_assert_eq(in.operand, KERN_BF16);
	kern_cuda_ops.close(d);
}

Test(device, what_cannot_be_opened_is_refused_with_the_reason)
{
	char why[256];
	struct kern_dev *d;
	struct kern_open_args a = {.index = -1};
	cr_assert_eq(kern_cuda_ops.open(&d, &a, why, sizeof why), -EINVAL);
	a.max_rows = a.max_seqs = a.max_logits = a.max_context = a.max_blocks_per_seq = 1;
	a.index = 900;
	cr_assert_eq(kern_cuda_ops.open(&d, &a, why, sizeof why), -ENODEV);
	cr_assert(strstr(why, "cuda:900"), "%s", why);
	a.index = 0;
	a.compute = KERN_COMPUTE_INT8;
	cr_assert_eq(kern_cuda_ops.open(&d, &a, why, sizeof why), -ENOTSUP);
	cr_assert(strstr(why, "int8") && d == NULL, "%s", why);
	a.compute = KERN_COMPUTE_INT16;
	cr_assert_eq(kern_cuda_ops.open(&d, &a, why, sizeof why), -ENOTSUP);
	cr_assert(strstr(why, "int16") && d == NULL, "%s", why);
	a.compute = KERN_COMPUTE_F32;
	a.head = KERN_HEAD_INT8;
	cr_assert_eq(kern_cuda_ops.open(&d, &a, why, sizeof why), -ENOTSUP);
	cr_assert(strstr(why, "head") && d == NULL, "%s", why);
	a.head = KERN_HEAD_MODE;
	a.kv = KERN_KV_INT8;
	cr_assert_eq(kern_cuda_ops.open(&d, &a, why, sizeof why), -ENOTSUP);
	cr_assert(strstr(why, "K and V") && d == NULL, "%s", why);
}

#ifdef QUERN_CUDASIM
static const char *refusal(int cuda)
{
	static char why[256];
	struct kern_dev *d;
	struct kern_open_args a = {.index = -1};
	a.max_rows = a.max_seqs = a.max_logits = a.max_context = a.max_blocks_per_seq = 1;
	cudasim_driver(cuda);
	cr_assert_eq(kern_cuda_ops.open(&d, &a, why, sizeof why), -ENODEV);
	return why;
}

Test(device, a_driver_that_is_too_old_is_named_with_the_one_needed_and_the_remedy)
{
	const char *why = refusal(12040);
	cr_expect(strstr(why, "driver " CUDASIM_DRIVER " (CUDA 12.4) is too old"), "%s", why);
	cr_expect(strstr(why, "(CUDA 13.0): they need 580 or later"), "%s", why);
	cr_expect(strstr(why, "built with a CUDA 12 toolkit"), "%s", why);
}

/* No toolkit of its release compiles the kernels. */
Test(device, for_the_oldest_drivers_the_only_remedy_is_another_driver)
{
	const char *why = refusal(11080);
	cr_expect(strstr(why, "(CUDA 11.8) is too old") && strstr(why, "update the driver"), "%s", why);
	cr_expect_not(strstr(why, "toolkit"), "%s", why);
}

Test(device, a_machine_without_a_driver_is_told_so)
{
	const char *why = refusal(0);
	cr_expect(strstr(why, "no NVIDIA driver is installed") && strstr(why, "580 or later"), "%s", why);
	cr_expect_not(strstr(why, "too old"), "%s", why);
}
#endif
