/* Finding and opening devices, and the CPU's memory. */
#include "kernels/cpu/cpu.h"
#include "tests/kernels/kern_test.h"

#include <sys/eventfd.h>
#include <unistd.h>

static int open_with(struct kern_open_args a, struct why *why)
{
	struct kern_dev *d = NULL;
	a.max_rows = a.max_seqs = a.max_logits = a.max_context = a.max_blocks_per_seq = 1;
	int e = kern_cpu_ops.open(&d, &a, why);
	kern_cpu_ops.close(d);
	return e;
}

Test(kern, a_device_name_leads_to_its_table)
{
	const struct kern_ops *ops;
	int index;
	struct why why;
	cr_assert_eq(kern_find("cpu", &ops, &index, &why), 0);
	cr_assert(ops == &kern_cpu_ops && index == -1 && ops->abi == KERN_ABI);
	cr_assert_eq(kern_find("cpu:3", &ops, &index, &why), 0);
	cr_assert_eq(index, 3);
}

Test(kern, what_is_no_device_is_refused)
{
	static const char *const names[] = {"",       "gpu",       "cpu0",   "cpu:", "cpu:-1",
					    "cpu:1x", "cpu:99999", "cuda:x", "CPU",  "cpus"};
	const struct kern_ops *ops;
	int index;
	struct why why;
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		cr_assert_eq(kern_find(names[i], &ops, &index, &why), -EINVAL, "%s", names[i]);
		cr_assert(strstr(why.text, "is not a device"), "%s", why.text);
	}
}

/* The test runs in a folder without ../lib and its CUDA kernels. */
Test(kern, missing_cuda_kernels_name_the_remedy)
{
	const struct kern_ops *ops = NULL;
	int index;
	struct why why = {""};
	int e = kern_find("cuda:1", &ops, &index, &why);
	if (!e)
		cr_skip_test("the CUDA kernels are built here");
	cr_assert_eq(e, -ENODEV);
	cr_assert(strstr(why.text, "CUDA") &&
			  (strstr(why.text, "make cuda") || strstr(why.text, "--device cpu")),
		  "%s", why.text);
}

Test(kern, unbuilt_modes_and_types_are_refused_by_name)
{
	static const struct {
		struct kern_open_args a;
		const char *word;
	} cases[] = {
		{{.index = -1, .kv = KERN_KV_F16}, "f16"},
	};
	struct why why;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		cr_assert_eq(open_with(cases[i].a, &why), -ENOTSUP);
		cr_assert(strstr(why.text, cases[i].word), "%s", why.text);
	}
}

Test(kern, wrong_arguments_are_refused)
{
	struct why why;
	struct kern_dev *d;
	cr_assert_eq(open_with((struct kern_open_args){.index = -1, .isa = "sse9"}, &why), -EINVAL);
	cr_assert(strstr(why.text, "sse9"), "%s", why.text);
	cr_assert_eq(open_with((struct kern_open_args){.index = 4000}, &why), -ENODEV);
	cr_assert(strstr(why.text, "4000"), "%s", why.text);
	cr_assert_eq(open_with((struct kern_open_args){.index = -1, .n_threads = -1}, &why), -EINVAL);
	cr_assert_eq(kern_cpu_ops.open(&d, &(struct kern_open_args){.index = -1}, &why), -EINVAL);
	cr_assert_eq(open_with((struct kern_open_args){.index = 0}, &why), 0, "%s", why.text);
}

Test(kern, info_tells_the_device_and_one_numerics_class_for_all_instruction_sets)
{
	char first[128] = "";
	for (int i = 0; i < KT_WAYS; i++) {
		struct kern_info in;
		struct kt t;
		if (!kt_open(&t, 0, i, (struct kt_size){.rows = 1}))
			continue;
		t.ops->info(t.dev, &in);
		cr_assert_str_eq(in.isa, t.isa);
		cr_assert(in.name[0] && in.n_threads >= 1 && in.bytes_total > 0 && in.bytes_free > 0);
		cr_assert(in.operand == KERN_F32 && in.kv == KERN_KV_F32);
		if (!first[0])
			memcpy(first, in.numerics, sizeof first);
		cr_assert_str_eq(in.numerics, first);
		kt_close(&t);
	}
}

Test(kern, auto_is_int16_on_a_cpu_with_vnni_and_f32_elsewhere)
{
	const bool wide = cpu_dot_avx512vnni() || cpu_dot_amx();
	const enum kern_compute best = wide || cpu_dot_avxvnni() ? KERN_COMPUTE_INT16 : KERN_COMPUTE_F32;
	cr_expect_eq(kern_auto_compute("cpu", NULL), best);
	cr_expect_eq(kern_auto_compute("cpu:0", NULL), best);
	cr_expect_eq(kern_auto_compute("cpu", "avx2"),
		     cpu_dot_avxvnni() ? KERN_COMPUTE_INT16 : KERN_COMPUTE_F32);
	cr_expect_eq(kern_auto_compute("cpu", "plain"), KERN_COMPUTE_F32);
	cr_expect_eq(kern_auto_compute("cuda:0", NULL), KERN_COMPUTE_F32);
	cr_expect_eq(kern_auto_compute("no-such", NULL), KERN_COMPUTE_F32);
}

Test(kern, a_mode_that_the_cpu_lacks_instructions_for_has_a_note)
{
	static const struct {
		enum kern_compute compute;
		const char *isa;
		bool noted;
	} cases[] = {{KERN_COMPUTE_F32, "plain", false},
		     {KERN_COMPUTE_INT8, "plain", true},
		     {KERN_COMPUTE_BF16, "plain", true},
		     {KERN_COMPUTE_INT16, "plain", true}};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct kern_open_args a = {.index = -1, .compute = cases[i].compute, .isa = cases[i].isa};
		struct kern_dev *d;
		struct kern_info in;
		struct why why;
		a.max_rows = a.max_seqs = a.max_logits = a.max_context = a.max_blocks_per_seq = 1;
		cr_assert_eq(kern_cpu_ops.open(&d, &a, &why), 0, "%s", why.text);
		kern_cpu_ops.info(d, &in);
		cr_expect_eq(in.note[0] != 0, cases[i].noted, "%s: '%s'", in.mode, in.note);
		kern_cpu_ops.close(d);
	}
}

Test(kern, a_mode_and_the_types_of_head_and_cache_are_classes_of_their_own)
{
	static const struct {
		struct kern_open_args a;
		const char *numerics;
	} cases[] = {
		{{.head = KERN_HEAD_MODE}, "cpu f32 order1 draw2"},
		{{.head = KERN_HEAD_STORED}, "cpu f32 order1 draw2"},
		{{.head = KERN_HEAD_INT8}, "cpu f32 order1 draw2 head-int8"},
		{{.compute = KERN_COMPUTE_BF16}, "cpu bf16 order2 draw2 kv-bf16-dots"},
		{{.compute = KERN_COMPUTE_INT16}, "cpu int16 order1 draw2 kv-int16"},
		{{.compute = KERN_COMPUTE_INT16, .head = KERN_HEAD_INT8},
		 "cpu int16 order1 draw2 head-int8 kv-int16"},
		{{.compute = KERN_COMPUTE_INT8}, "cpu int8 order1 draw2 kv-int16"},
		{{.compute = KERN_COMPUTE_INT8, .head = KERN_HEAD_INT8}, "cpu int8 order1 draw2 kv-int16"},
		{{.compute = KERN_COMPUTE_INT8, .head = KERN_HEAD_STORED},
		 "cpu int8 order1 draw2 head-stored kv-int16"},
		{{.kv = KERN_KV_F32}, "cpu f32 order1 draw2"},
		{{.kv = KERN_KV_BF16}, "cpu f32 order1 draw2 kv-bf16"},
		{{.kv = KERN_KV_BF16, .head = KERN_HEAD_INT8}, "cpu f32 order1 draw2 head-int8 kv-bf16"},
		{{.kv = KERN_KV_INT16}, "cpu f32 order1 draw2 kv-int16"},
		{{.kv = KERN_KV_INT8}, "cpu f32 order1 draw2 kv-int8"},
		{{.compute = KERN_COMPUTE_INT8, .kv = KERN_KV_F32}, "cpu int8 order1 draw2"}};
	static const char *const isas[] = {NULL, "plain", "avx2"};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
		for (int isa = 0; isa < 3; isa++) {
			struct kern_open_args a = cases[i].a;
			struct kern_dev *d;
			struct kern_info in;
			struct why why;
			a.index = -1;
			a.isa = isas[isa];
			a.max_rows = a.max_seqs = a.max_logits = a.max_context = a.max_blocks_per_seq = 1;
			if (kern_cpu_ops.open(&d, &a, &why) && isa)
				continue;
			kern_cpu_ops.info(d, &in);
			cr_assert_str_eq(in.numerics, cases[i].numerics);
			cr_assert(!strncmp(in.mode, in.numerics + 4, 3), "%s", in.mode);
			const char *kv = strstr(in.numerics, " kv-");
			cr_assert_eq(in.kv, !kv                           ? KERN_KV_F32
					    : !strncmp(kv, " kv-bf16", 8) ? KERN_KV_BF16
					    : !strcmp(kv, " kv-int16")    ? KERN_KV_INT16
									  : KERN_KV_INT8);
			cr_assert_eq(in.head_max, in.kv >= KERN_KV_INT16 ? 512 : 4096);
			cr_assert_eq(in.head_step, 1);
			kern_cpu_ops.close(d);
		}
}

Test(kern, memory_is_zeroed_and_copies_arrive)
{
	struct kt t;
	kt_open_any(&t, 0, (struct kt_size){.rows = 1});
	static const size_t sizes[] = {1, 1000, 5 << 20};
	for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
		unsigned char *d = t.ops->mem_new(t.dev, sizes[i]), *h = t.ops->host_new(t.dev, sizes[i]);
		cr_assert(d && h && (uintptr_t)d % 64 == 0);
		for (size_t b = 0; b < sizes[i]; b++)
			cr_assert_eq(d[b], 0);
		memset(h, 7, sizes[i]);
		cr_assert_eq(t.ops->upload(t.s, d, h, sizes[i]), 0);
		memset(h, 0, sizes[i]);
		cr_assert_eq(t.ops->download(t.s, h, d, sizes[i]), 0);
		cr_assert_eq(t.ops->stream_sync(t.s), 0);
		cr_assert_eq(h[sizes[i] - 1], 7);
		t.ops->mem_free(t.dev, d, sizes[i]);
		t.ops->host_free(t.dev, h, sizes[i]);
	}
	struct kern_event *e = t.ops->event_new(t.dev);
	cr_assert(t.ops->event_record(e, t.s) == 0 && t.ops->event_wait(e, t.s) == 0 && t.ops->event_done(e));
	cr_assert_eq(t.ops->event_sync(e), 0);
	const int fd = eventfd(0, EFD_NONBLOCK);
	uint64_t told = 0;
	cr_assert_eq(t.ops->event_notify(e, fd), 0);
	cr_assert(read(fd, &told, sizeof told) == sizeof told && told == 1);
	close(fd);
	t.ops->event_free(e);
	kt_close(&t);
}

/* A step must not allocate memory. */
Test(kern, a_step_makes_no_allocation)
{
	enum { H = 32, V = 128 };
	struct kt t;
	struct kern_embed *e;
	struct kt_part emb = kt_part(KERN_F16, H, V, 0, false), lin = kt_part(KERN_AWQ4, H, 64, 32, false);
	kt_open_any(&t, 0, (struct kt_size){.rows = 4, .context = 16});
	cr_assert_eq(
		t.ops->embed_load(t.dev, &(struct kern_embed_src){emb.w, KERN_F16, V, H, true}, &e, NULL), 0);
	struct kern_linear *w = kt_load(&t, H, 32, &(struct kt_part *){&lin}, 1);
	struct kern_kv *kv = t.ops->kv_new(t.dev, 1, 1, 16, 16, 1, 0);
	int32_t row0[] = {0, 4}, pos0[] = {0}, table[] = {0}, token_at[] = {0, 1, 2, 3}, want[] = {3};
	int32_t tokens[8] = {1, 2, 3, 4}, token, rank;
	float x[4 * H], y[4 * 64], q[4 * 32], rope[16 * 16] = {0}, logits[V], logprob;
	unsigned long before = alloc_count();
	alloc_guard(true);
	t.ops->batch_set(t.s, &(struct kern_batch){.n_rows = 4,
						   .n_seqs = 1,
						   .token_at = token_at,
						   .row0 = row0,
						   .pos0 = pos0,
						   .tables = table,
						   .table_stride = 1,
						   .n_logits = 1,
						   .logits_row = want});
	t.ops->embed(t.s, e, tokens, 0, x);
	t.ops->linear(t.s, w, y, x, 4, false);
	t.ops->qkv(t.s, &(struct kern_qkv_args){.q = q,
						.qkv = y,
						.rope = rope,
						.rope_dim = 16,
						.n_q_heads = 2,
						.n_kv_heads = 1,
						.head_dim = 16,
						.kv = kv});
	t.ops->attention(t.s, &(struct kern_attn_args){.out = x,
						       .q = q,
						       .kv = kv,
						       .n_q_heads = 2,
						       .n_kv_heads = 1,
						       .head_dim = 16,
						       .scale = 1});
	t.ops->linear(t.s, t.ops->embed_linear(e), logits, x, 1, true);
	t.ops->sample(t.s, logits, V, tokens,
		      &(struct kern_sample_row){.n_hist = 4,
						.n_prompt = 4,
						.forced = -1,
						.temperature = 1,
						.top_p = 0.9f,
						.repetition = 1,
						.n_logprobs = -1},
		      1, &(struct kern_sample_out){.token = &token, .logprob = &logprob, .rank = &rank});
	alloc_guard(false);
	cr_assert_eq(alloc_count(), before);
	t.ops->kv_free(kv);
	t.ops->linear_free(w);
	t.ops->embed_free(e);
	kt_part_fini(&emb);
	kt_part_fini(&lin);
	kt_close(&t);
}
