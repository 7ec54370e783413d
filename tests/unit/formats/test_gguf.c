/* GGUF files: valid ones are read; each kind of invalid header is refused by name. */
#include "formats/family.h"
#include "formats/gguf.h"
#include "tests/gguf_make.h"
#include "tests/testdata.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

static char dir[64];
static struct why why;
static struct gguf *g;
static struct buf b;

static void make_dir(void)
{
	strcpy(dir, "/tmp/quern-gguf-XXXXXX");
	cr_assert(mkdtemp(dir));
}

static void remove_dir(void)
{
	char cmd[128];
	gguf_close(g);
	buf_fini(&b);
	snprintf(cmd, sizeof cmd, "rm -r '%s'", dir);
	cr_assert_eq(system(cmd), 0);
}

TestSuite(gguf, .init = make_dir, .fini = remove_dir, .timeout = 60);

static const char *path_of(const char *name)
{
	static char path[256];
	snprintf(path, sizeof path, "%s/%s", dir, name);
	return path;
}

/* Open b's contents as a file; b is empty then. */
static int opened(const char *name)
{
	gg_write(path_of(name), b.p ? b.p : "", b.len);
	buf_clear(&b);
	gguf_close(g);
	return gguf_open(path_of(name), &g, &why);
}

static void refused(int err, const char *part)
{
	cr_expect_eq(opened("bad.gguf"), err, "%s: %s", part, why.text);
	cr_expect_not_null(strstr(why.text, part), "%s", why.text);
	cr_expect_not_null(strstr(why.text, "bad.gguf"), "%s", why.text);
	why.text[0] = '\0';
}

Test(gguf, every_kind_of_value_is_read)
{
	struct gguf_string s;
	struct gguf_array a;
	int64_t i;
	double d;
	bool yes = false;
	gg_head(&b, 3, 0, 7);
	gg_key_u32(&b, "u32", 4000000000u);
	gg_key_f32(&b, "f32", 0.5f);
	gg_key_text(&b, "text", "a\xff z");
	gg_text(&b, "bool"), gg_u32(&b, 7), buf_put(&b, "\1", 1);
	gg_text(&b, "i8s"), gg_u32(&b, 9), gg_u32(&b, 1), gg_u64(&b, 3), buf_put(&b, "\xff\x02\x80", 3);
	gg_text(&b, "texts"), gg_u32(&b, 9), gg_u32(&b, 8), gg_u64(&b, 2), gg_text(&b, "one"),
		gg_text(&b, "");
	gg_text(&b, "nested"), gg_u32(&b, 9), gg_u32(&b, 9), gg_u64(&b, 1), gg_u32(&b, 0), gg_u64(&b, 1),
		buf_put(&b, "x", 1);
	cr_assert_eq(opened("all.gguf"), 0, "%s", why.text);
	cr_expect(gguf_find_int(g, "u32", &i, &why) == 0 && i == 4000000000ll);
	cr_expect(gguf_find_num(g, "u32", &d, &why) == 0 && d == 4e9);
	cr_expect(gguf_find_num(g, "f32", &d, &why) == 0 && d == 0.5);
	cr_expect(gguf_find_bool(g, "bool", &yes, &why) == 0 && yes);
	cr_expect(gguf_find_string(g, "text", &s, &why) == 0 && s.n == 4 && !memcmp(s.p, "a\xff z", 4));
	cr_assert_eq(gguf_find_array(g, "i8s", &a, &why), 0);
	cr_expect(a.n == 3 && gguf_int_at(&a, 2, &i) && i == -128 && !gguf_int_at(&a, 3, &i));
	cr_assert_eq(gguf_find_array(g, "texts", &a, &why), 0);
	cr_expect(a.n == 2 && (s = gguf_next_string(&a)).n == 3 && !memcmp(s.p, "one", 3));
	cr_expect(a.n == 1 && gguf_next_string(&a).n == 0 && a.n == 0);
	cr_expect(gguf_find_array(g, "nested", &a, &why) == 0 && a.type == GGUF_ARRAY && a.n == 1);
	cr_expect_eq(gguf_find_int(g, "absent", &i, &why), -ENOENT);
	cr_expect_eq(gguf_find_int(g, "f32", &i, &why), -EINVAL);
	cr_expect_str_eq(strstr(why.text, "key"), "key f32 is float32; an integer below 2^63 is needed");
}

Test(gguf, a_real_file_is_read)
{
	static const char file[] = "weights/stories260K-gguf/stories260K-q4_0.gguf";
	const char *path = testdata(file);
	if (!path)
		cr_skip_test("%s is not here", file);
	struct gguf_array tokens;
	cr_expect(gguf_is(path));
	cr_assert_eq(gguf_open(path, &g, &why), 0, "%s", why.text);
	cr_assert_eq(gguf_find_array(g, "tokenizer.ggml.tokens", &tokens, &why), 0, "%s", why.text);
	cr_expect_eq(tokens.n, 512);
	const struct gguf_tensor *t = gguf_find(g, "token_embd.weight");
	cr_assert(t);
	cr_expect(t->size[0] == 64 && t->size[1] == 512);
}

Test(gguf, other_versions_and_byte_orders_are_named)
{
	gg_head(&b, 1, 0, 0);
	refused(-ENOTSUP, "GGUF version 1 is not supported");
	gg_head(&b, 0x03000000, 0, 0);
	refused(-ENOTSUP, "big-endian");
	buf_puts(&b, "GGML....");
	refused(-EINVAL, "not a GGUF file");
}

/* CVE-2025-53630 and similar: counts and sizes overflow, or demand memory beyond the file. */
Test(gguf, huge_counts_are_refused_before_memory_is_taken)
{
	gg_head(&b, 3, 0, UINT64_MAX);
	refused(-EINVAL, "too many keys");
	gg_head(&b, 3, 0, 65537);
	gg_data(&b, 2000000);
	refused(-EINVAL, "too many keys");
	gg_head(&b, 3, UINT64_MAX, 0);
	refused(-EINVAL, "too many tensors");
	gg_head(&b, 3, 1, 0);
	gg_u64(&b, UINT64_MAX), gg_data(&b, 64);
	refused(-EINVAL, "the name of tensor 0 needs 18446744073709551615 bytes");
	for (uint32_t type = 0; type < 13; type++) {
		gg_head(&b, 3, 0, 1);
		gg_text(&b, "k"), gg_u32(&b, 9), gg_u32(&b, type), gg_u64(&b, UINT64_MAX / 2),
			gg_data(&b, 64);
		refused(-EINVAL, "key k needs");
	}
	/* The total size of the values wraps around to 0. */
	for (uint64_t bytes = 2; bytes <= 8; bytes *= 2) {
		static const uint32_t types[] = {[2] = 2, [4] = 4, [8] = 10};
		gg_head(&b, 3, 0, 1);
		gg_text(&b, "k"), gg_u32(&b, 9), gg_u32(&b, types[bytes]), gg_u64(&b, UINT64_MAX / bytes + 1),
			gg_data(&b, 64);
		refused(-EINVAL, "key k needs 18446744073709551615 bytes");
	}
	gg_head(&b, 3, 0, 1);
	gg_text(&b, "k"), gg_u32(&b, 8), gg_u64(&b, UINT64_MAX - 3), gg_data(&b, 64);
	refused(-EINVAL, "key k needs");
}

Test(gguf, sizes_that_overflow_are_refused)
{
	gg_head(&b, 3, 1, 0), gg_tensor(&b, "t", 1ull << 32, 1ull << 32, 0, 0), gg_data(&b, 64);
	refused(-EINVAL, "tensor t, at byte 65: the product of its sizes is too large");
	gg_head(&b, 3, 1, 0), gg_tensor(&b, "t", 1ull << 61, 1, 0, 0), gg_data(&b, 64);
	refused(-EINVAL, "too large");
	gg_head(&b, 3, 1, 0), gg_tensor(&b, "t", UINT64_MAX, 1, 0, 0), gg_data(&b, 64);
	refused(-EINVAL, "beyond 2^63");
	/* CVE-2026-27940: the offset wraps around. */
	gg_head(&b, 3, 1, 0), gg_tensor(&b, "t", 32, 1, 0, UINT64_MAX - 31), gg_data(&b, 128);
	refused(-EINVAL, "tensor t needs 128 bytes");
	gg_head(&b, 3, 1, 0), gg_tensor(&b, "t", 48, 1, GGUF_TYPE_Q4_0, 0), gg_data(&b, 64);
	refused(-EINVAL, "tensor t has rows of 48 values; Q4_0 needs multiples of 32");
}

Test(gguf, tensors_lie_apart_in_the_file)
{
	gg_head(&b, 3, 2, 0), gg_tensor(&b, "x", 16, 1, 0, 0), gg_tensor(&b, "y", 8, 1, 0, 64),
		gg_data(&b, 96);
	cr_expect_eq(opened("good.gguf"), 0, "%s", why.text);
	gg_head(&b, 3, 2, 0), gg_tensor(&b, "x", 16, 1, 0, 0), gg_tensor(&b, "y", 8, 1, 0, 32),
		gg_data(&b, 96);
	refused(-EINVAL, "tensors x and y overlap");
	gg_head(&b, 3, 2, 0), gg_tensor(&b, "x", 8, 1, 0, 0), gg_tensor(&b, "x", 8, 1, 0, 32),
		gg_data(&b, 96);
	refused(-EINVAL, "tensor x is there twice");
	gg_head(&b, 3, 1, 0), gg_tensor(&b, "x", 8, 1, 0, 16), gg_data(&b, 96);
	refused(-EINVAL, "tensor x is at the offset 16, not a multiple of 32");
	gg_head(&b, 3, 1, 0), gg_tensor(&b, "x", 8, 2, 0, 0), gg_data(&b, 63);
	refused(-EINVAL, "tensor x needs 64 bytes from byte 96 on, but the file ends at byte 159");
	gg_head(&b, 3, 1, 0), gg_tensor(&b, "x", 8, 1, 77, 0), gg_data(&b, 64);
	refused(-ENOTSUP, "tensor x has the unknown type 77");
}

Test(gguf, keys_are_checked)
{
	gg_head(&b, 3, 0, 2), gg_key_u32(&b, "k", 1), gg_key_u32(&b, "k", 2);
	refused(-EINVAL, "key k is there twice");
	gg_head(&b, 3, 0, 1), gg_text(&b, "k"), gg_u32(&b, 13), gg_data(&b, 64);
	refused(-EINVAL, "a value of an unknown type");
	gg_head(&b, 3, 0, 1), gg_text(&b, ""), gg_data(&b, 64);
	refused(-EINVAL, "a name of 1 to 65535 bytes");
	gg_head(&b, 3, 0, 1), gg_key_u32(&b, "general.alignment", 48);
	refused(-EINVAL, "no power of two");
	gg_head(&b, 3, 0, 1), gg_key_u32(&b, "general.alignment", 0);
	refused(-EINVAL, "general.alignment must be");
	gg_head(&b, 3, 0, 1), gg_text(&b, "k"), gg_u32(&b, 9);
	for (int i = 0; i < 5; i++)
		gg_u32(&b, 9), gg_u64(&b, 1);
	gg_data(&b, 64);
	refused(-EINVAL, "nested too deeply");
}

/* A file cut at any 1/64 of its length is refused with the missing tensor and byte. */
Test(gguf, a_truncated_file_is_refused_by_its_tensor_and_byte)
{
	gg_head(&b, 3, 3, 2);
	gg_key_text(&b, "general.architecture", "llama");
	gg_key_u32(&b, "llama.block_count", 1);
	for (uint64_t i = 0; i < 3; i++) {
		char name[16];
		snprintf(name, sizeof name, "tensor.%d", (int)i);
		gg_tensor(&b, name, 256, 4, GGUF_TYPE_Q4_K, i * 576);
	}
	gg_data(&b, 3 * 576);
	char *all = memcpy(malloc(b.len), b.p, b.len);
	const size_t n = b.len;
	cr_assert_eq(opened("whole.gguf"), 0, "%s", why.text);
	for (size_t i = 1; i < 64; i++) {
		buf_put(&b, all, n * i / 64);
		const size_t at = b.len;
		char end[64];
		cr_expect_neq(opened("cut.gguf"), 0);
		cr_expect_not_null(strstr(why.text, "cut.gguf"));
		snprintf(end, sizeof end, "the file ends at byte %zu", at);
		cr_expect(strstr(why.text, end) || strstr(why.text, "too many"), "%s", why.text);
		if (at > 400)
			cr_expect_not_null(strstr(why.text, "tensor tensor."), "%s", why.text);
	}
	free(all);
}

static void put_part(const char *name, uint32_t no, uint32_t of, const char *tensor)
{
	gg_head(&b, 3, 1, 2);
	gg_key_u32(&b, "split.no", no), gg_key_u32(&b, "split.count", of);
	gg_tensor(&b, tensor, 8, 1, 0, 0), gg_data(&b, 32);
	gg_write(path_of(name), b.p, b.len);
	buf_clear(&b);
}

Test(gguf, parts_are_read_from_any_of_them_or_their_directory)
{
	put_part("m-00001-of-00002.gguf", 0, 2, "x");
	put_part("m-00002-of-00002.gguf", 1, 2, "y");
	const char *paths[] = {"m-00001-of-00002.gguf", "m-00002-of-00002.gguf", "."};
	for (int i = 0; i < 3; i++) {
		cr_expect(gguf_is(path_of(paths[i])));
		cr_assert_eq(gguf_open(path_of(paths[i]), &g, &why), 0, "%s", why.text);
		cr_expect(gguf_files(g) == 2 && gguf_count(g) == 2 && gguf_find(g, "x") && gguf_find(g, "y"));
		gguf_close(g);
		g = NULL;
	}
	put_part("m-00002-of-00002.gguf", 1, 2, "x");
	cr_expect_eq(gguf_open(path_of("m-00001-of-00002.gguf"), &g, &why), -EINVAL);
	cr_expect_not_null(strstr(why.text, "tensor x is there twice"), "%s", why.text);
	put_part("m-00002-of-00002.gguf", 1, 3, "y");
	cr_expect_eq(gguf_open(path_of("m-00001-of-00002.gguf"), &g, &why), -EINVAL);
	cr_expect_not_null(strstr(why.text, "is part 2 of 3, part 2 of 2 is needed"), "%s", why.text);
	unlink(path_of("m-00002-of-00002.gguf"));
	cr_expect_eq(gguf_open(path_of("m-00001-of-00002.gguf"), &g, &why), -ENOENT);
	cr_expect_not_null(strstr(why.text, "m-00002-of-00002.gguf"), "%s", why.text);
	put_part("other.gguf", 0, 2, "x");
	cr_expect_eq(gguf_open(path_of("other.gguf"), &g, &why), -EINVAL);
	cr_expect_not_null(strstr(why.text, "is not named NAME-00001-of-00002.gguf"), "%s", why.text);
	cr_expect_eq(gguf_open(path_of("."), &g, &why), -EINVAL);
	cr_expect_not_null(strstr(why.text, "holds 2 GGUF files"), "%s", why.text);
}

/* ---- configurations ---- */

static struct model_config config;
static const char *arch = "llama";
static uint32_t n_layers = 1;

/* Load the configuration of a one-layer model with the `n` further keys in b and a vocabulary of 32 tokens.
 * The reader of weights finds other tensors. */
static int configured(uint64_t n, uint64_t n_tensors, const char *const *tensors)
{
	const struct {
		const char *name;
		uint32_t v;
	} keys[] = {{"block_count", n_layers},
		    {"embedding_length", 8},
		    {"feed_forward_length", 8},
		    {"attention.head_count", 1},
		    {"context_length", 64}};
	enum { N = sizeof keys / sizeof *keys };
	struct buf more = b;
	b = (struct buf){0};
	gg_head(&b, 3, 1 + n_tensors, 1 + N + n);
	gg_key_text(&b, "general.architecture", arch);
	for (int i = 0; i < N; i++) {
		char key[64];
		snprintf(key, sizeof key, "%s.%s", arch, keys[i].name);
		gg_key_u32(&b, key, keys[i].v);
	}
	buf_put(&b, more.p ? more.p : "", more.len);
	gg_tensor(&b, "token_embd.weight", 8, 32, 0, 0);
	for (uint64_t i = 0; i < n_tensors; i++)
		gg_tensor(&b, tensors[i], 8, 1, 0, 1024 + 32 * i);
	gg_data(&b, 1024 + 32 * n_tensors);
	gg_write(path_of("config.gguf"), b.p, b.len);
	buf_fini(&more);
	buf_clear(&b);
	model_config_fini(&config);
	return gguf_config_load(path_of("config.gguf"), &config, &why);
}

Test(gguf, a_scaling_of_rope_without_a_type_is_linear)
{
	cr_assert_eq(configured(0, 0, NULL), 0, "%s", why.text);
	cr_expect_eq(config.rope, ROPE_NONE);
	gg_key_f32(&b, "llama.rope.scaling.factor", 4);
	cr_assert_eq(configured(1, 0, NULL), 0, "%s", why.text);
	cr_expect(config.rope == ROPE_LINEAR && config.rope_factor == 4);
	gg_key_f32(&b, "llama.rope.scale_linear", 2);
	cr_assert_eq(configured(1, 0, NULL), 0, "%s", why.text);
	cr_expect(config.rope == ROPE_LINEAR && config.rope_factor == 2);
	gg_key_f32(&b, "llama.rope.scaling.factor", 1);
	cr_assert_eq(configured(1, 0, NULL), 0, "%s", why.text);
	cr_expect_eq(config.rope, ROPE_NONE);
	gg_key_text(&b, "llama.rope.scaling.type", "none"), gg_key_f32(&b, "llama.rope.scaling.factor", 4);
	cr_assert_eq(configured(2, 0, NULL), 0, "%s", why.text);
	cr_expect_eq(config.rope, ROPE_NONE);
	gg_key_text(&b, "llama.rope.scaling.type", "longrope");
	cr_expect_eq(configured(1, 0, NULL), -ENOTSUP);
	cr_expect_not_null(strstr(why.text, "rope.scaling.type longrope"), "%s", why.text);
}

static void put_yarn(const char *key, float v)
{
	gg_key_text(&b, "llama.rope.scaling.type", "yarn"), gg_key_f32(&b, "llama.rope.scaling.factor", 4);
	gg_key_f32(&b, key, v);
}

Test(gguf, the_keys_of_yarn_are_read_or_refused)
{
	put_yarn("llama.rope.scaling.yarn_beta_fast", 16);
	cr_assert_eq(configured(3, 0, NULL), 0, "%s", why.text);
	cr_expect(config.rope == ROPE_YARN && config.yarn_beta_fast == 16 && config.yarn_beta_slow == 1);
	put_yarn("llama.rope.scaling.yarn_beta_slow", 2);
	cr_assert_eq(configured(3, 0, NULL), 0, "%s", why.text);
	cr_expect(config.yarn_beta_fast == 32 && config.yarn_beta_slow == 2);
	put_yarn("llama.rope.scaling.yarn_beta_slow", 0);
	cr_expect_eq(configured(3, 0, NULL), -EINVAL);
	cr_expect_not_null(strstr(why.text, "yarn_beta_slow is 0"), "%s", why.text);
	const char *const factors[] = {"llama.rope.scaling.yarn_attn_factor",
				       "llama.rope.scaling.yarn_ext_factor",
				       "llama.rope.scaling.attn_factor"};
	for (int i = 0; i < 3; i++) {
		put_yarn(factors[i], 1);
		cr_expect_eq(configured(3, 0, NULL), 0, "%s", why.text);
		put_yarn(factors[i], 0.5f);
		cr_expect_eq(configured(3, 0, NULL), -ENOTSUP, "%s", factors[i]);
	}
}

Test(gguf, a_bias_of_any_layer_is_used)
{
	static const char *const names[] = {"blk.0.attn_qkv.bias",    "blk.0.attn_q.bias",
					    "blk.3.attn_k.bias",      "blk.0.attn_v.bias",
					    "blk.9.attn_output.bias", "blk.0.ffn_up.bias",
					    "blk.1.ffn_down.bias",    "blk.0.attn_k_norm.weight"};
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		cr_assert_eq(configured(0, 1, &names[i]), 0, "%s", why.text);
		cr_expect(config.qkv_bias == (i < 4) && config.o_bias == (i == 4) &&
				  config.mlp_bias == (i == 5 || i == 6) &&
				  config.qk_norm == (i == 7 ? QK_NORM_HEADS : QK_NORM_NONE),
			  "%s", names[i]);
	}
	static const char *const other = "attn_q.bias";
	cr_assert_eq(configured(0, 1, &other), 0, "%s", why.text);
	cr_expect(!config.qkv_bias);
}

/* ---- sliding windows ---- */

static void put_pattern(uint32_t type, const char *values, uint64_t n, size_t bytes)
{
	char key[64];
	snprintf(key, sizeof key, "%s.attention.sliding_window", arch);
	gg_key_u32(&b, key, 16);
	strcat(key, "_pattern");
	gg_text(&b, key), gg_u32(&b, 9), gg_u32(&b, type), gg_u64(&b, n), buf_put(&b, values, bytes);
}

static void has_windows(const char *of_layers)
{
	cr_expect_eq(config.window, 16);
	for (uint32_t i = 0; i < n_layers; i++)
		cr_expect_eq(config.layers[i].window, of_layers[i] == '1' ? 16 : 0, "%s layer %u", arch, i);
}

Test(gguf, a_list_says_which_layers_have_a_window)
{
	static const char ints[] = "\1\0\0\0\1\0\0\0\0\0\0\0\1\0\0\0\1\0\0\0\1\0\0\0\1\0\0\0";
	static const char *const archs[] = {"gemma3", "gemma2", "phi3", "llama"};
	n_layers = 7;
	for (int i = 0; i < 4; i++) {
		arch = archs[i];
		put_pattern(7, "\1\1\1\1\1\1\1", 7, 7);
		cr_assert_eq(configured(2, 0, NULL), 0, "%s", why.text);
		has_windows("1111111");
		put_pattern(7, "\0\1\1\0\1\1\1", 7, 7);
		cr_assert_eq(configured(2, 0, NULL), 0, "%s", why.text);
		has_windows("0110111");
		cr_expect_eq(config.layers[1].rope, i ? LAYER_ROPE : LAYER_ROPE_LOCAL);
		cr_expect_eq(config.layers[3].rope, LAYER_ROPE);
		put_pattern(5, ints, 7, 28);
		cr_assert_eq(configured(2, 0, NULL), 0, "%s", why.text);
		has_windows("1101111");
	}
	arch = "gemma3";
	put_pattern(7, "\1\1\1\1\1\1", 6, 6);
	cr_expect_eq(configured(2, 0, NULL), -EINVAL);
	cr_expect_not_null(strstr(why.text, "sliding_window_pattern has 6 values, 7 layers"), "%s", why.text);
	put_pattern(7, "\1\1\1\1\1\1\2", 7, 7);
	cr_expect_eq(configured(2, 0, NULL), -EINVAL);
	cr_expect_not_null(strstr(why.text, "sliding_window_pattern must be an array of true and false"),
			   "%s", why.text);
	gg_key_u32(&b, "gemma3.attention.sliding_window", 16);
	gg_key_u32(&b, "gemma3.attention.sliding_window_pattern", 3);
	cr_assert_eq(configured(2, 0, NULL), 0, "%s", why.text);
	has_windows("1101101");
}

Test(gguf, a_window_that_is_not_computed_is_refused)
{
	arch = "olmo2";
	cr_assert_eq(configured(0, 0, NULL), 0, "%s", why.text);
	gg_key_u32(&b, "olmo2.attention.sliding_window", 16);
	cr_expect_eq(configured(1, 0, NULL), -ENOTSUP);
	cr_expect_not_null(strstr(why.text, "olmo2.attention.sliding_window is not supported"), "%s",
			   why.text);
}

Test(gguf, a_head_that_classifies_is_refused_unless_it_says_yes_or_no)
{
	static const char *const head = "cls.output.weight";
	cr_expect_eq(configured(0, 1, &head), -ENOTSUP);
	cr_expect_not_null(strstr(why.text, "a head that classifies is not supported"), "%s", why.text);
	for (int yes = 0; yes < 2; yes++) {
		gg_text(&b, "llama.classifier.output_labels"), gg_u32(&b, 9), gg_u32(&b, 8), gg_u64(&b, 2);
		gg_text(&b, yes ? "yes" : "good"), gg_text(&b, yes ? "no" : "bad");
		cr_expect_eq(configured(1, 1, &head), yes ? 0 : -ENOTSUP, "%s", why.text);
	}
}

Test(gguf, a_file_of_another_type_is_no_model)
{
	static const char *const types[] = {"adapter", "mmproj", "models", "model"};
	for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
		gg_head(&b, 3, 0, 2);
		gg_key_text(&b, "general.type", types[i]);
		gg_key_text(&b, "general.architecture", "llama");
		gg_write(path_of("typed.gguf"), b.p, b.len);
		buf_clear(&b);
		model_config_fini(&config);
		cr_assert_lt(gguf_config_load(path_of("typed.gguf"), &config, &why), 0);
		cr_expect_eq(strstr(why.text, "is no model: general.type is ") != NULL, i < 3, "%s",
			     why.text);
	}
}

Test(gguf, a_missing_gate_is_named_where_up_is_not_both)
{
	static const char *const parts[] = {"attn_norm", "ffn_norm",    "attn_q", "attn_k",
					    "attn_v",    "attn_output", "ffn_up", "ffn_down"};
	enum { N = sizeof parts / sizeof *parts };
	for (uint32_t rows = 8; rows <= 24; rows += 8) {
		struct weights *w = NULL;
		uint64_t at = 1024;
		gg_head(&b, 3, N + 2, 6);
		gg_key_text(&b, "general.architecture", "llama");
		gg_key_u32(&b, "llama.block_count", 1), gg_key_u32(&b, "llama.embedding_length", 8);
		gg_key_u32(&b, "llama.feed_forward_length", 8),
			gg_key_u32(&b, "llama.attention.head_count", 1);
		gg_key_u32(&b, "llama.context_length", 64);
		gg_tensor(&b, "token_embd.weight", 8, 32, 0, 0);
		for (int i = 0; i < N; i++) {
			char name[64];
			const uint32_t n = i < 2 ? 1 : i == 6 ? rows : 8;
			snprintf(name, sizeof name, "blk.0.%s.weight", parts[i]);
			gg_tensor(&b, name, 8, n, 0, at);
			at += 32 * n;
		}
		gg_tensor(&b, "output_norm.weight", 8, 1, 0, at);
		gg_data(&b, at + 32);
		gg_write(path_of("gate.gguf"), b.p, b.len);
		buf_clear(&b);
		model_config_fini(&config);
		cr_assert_eq(gguf_config_load(path_of("gate.gguf"), &config, &why), 0, "%s", why.text);
		const int rc = gguf_weights_open(path_of("gate.gguf"), &config, &w, &why);
		cr_expect_eq(rc, rows == 8 ? -ENOENT : rows == 16 ? 0 : -EINVAL, "%s", why.text);
		if (rc)
			cr_expect_not_null(
				strstr(why.text, rows == 8 ? "tensor blk.0.ffn_gate.weight is missing"
							   : "blk.0.ffn_up.weight has the sizes [8, 24"),
				"%s", why.text);
		weights_close(w);
	}
}

/* ---- mixtures of experts ---- */

static const char *const routers[] = {"blk.1.ffn_gate_inp.weight", "blk.1.ffn_gate_inp_shexp.weight",
				      "blk.1.exp_probs_b.bias"};

static void put_experts(const char *name, uint32_t n, uint32_t chosen)
{
	char key[96];
	arch = name;
	snprintf(key, sizeof key, "%s.expert_count", name), gg_key_u32(&b, key, n);
	snprintf(key, sizeof key, "%s.expert_used_count", name), gg_key_u32(&b, key, chosen);
}

Test(gguf, layers_with_a_router_have_experts)
{
	const struct config_experts *x = &config.experts;
	n_layers = 3;
	put_experts("qwen3moe", 6, 2), gg_key_u32(&b, "qwen3moe.expert_feed_forward_length", 5);
	cr_assert_eq(configured(3, 1, routers), 0, "%s", why.text);
	cr_expect(x->n == 6 && x->n_chosen == 2 && x->intermediate == 5 && x->shared == 0);
	cr_expect(x->normalize && x->score == SCORE_SOFTMAX && x->scale == 1 && !x->choice_bias);
	cr_expect(!config.layers[0].sparse && config.layers[1].sparse && !config.layers[2].sparse);
	put_experts("qwen2moe", 6, 2), gg_key_u32(&b, "qwen2moe.expert_shared_feed_forward_length", 7);
	cr_assert_eq(configured(3, 2, routers), 0, "%s", why.text);
	cr_expect(!x->normalize && x->shared == 7 && x->shared_gate && x->intermediate == 8);
	put_experts("llama", 4, 2);
	cr_assert_eq(configured(2, 1, routers), 0, "%s", why.text);
	cr_expect(strcmp(config.family->type, "mixtral") == 0 && x->normalize && x->intermediate == 8);
	put_experts("glm4moe", 8, 3), gg_key_u32(&b, "glm4moe.expert_shared_count", 2);
	gg_key_u32(&b, "glm4moe.expert_group_count", 4), gg_key_u32(&b, "glm4moe.expert_group_used_count", 2);
	gg_key_f32(&b, "glm4moe.expert_weights_scale", 2.5f);
	gg_key_u32(&b, "glm4moe.nextn_predict_layers", 1);
	cr_assert_eq(configured(7, 3, routers), 0, "%s", why.text);
	cr_expect(x->score == SCORE_SIGMOID && x->choice_bias && x->normalize && x->scale == 2.5f);
	cr_expect(x->shared == 16 && x->n_groups == 4 && x->groups_chosen == 2 && config.n_layers == 2);
	put_experts("gpt-oss", 4, 2), gg_key_u32(&b, "gpt-oss.attention.sliding_window", 16);
	cr_assert_eq(configured(3, 1, routers), 0, "%s", why.text);
	cr_expect(config.sinks && config.act == ACT_GELU_SIGMOID && config.act_limit == 7 &&
		  config.up_plus == 1);
	has_windows("101");
}

Test(gguf, mixtures_that_cannot_be_are_named)
{
	put_experts("qwen3moe", 6, 7);
	cr_expect_eq(configured(2, 0, NULL), -EINVAL);
	cr_expect_not_null(strstr(why.text, "expert_used_count is larger than expert_count"), "%s", why.text);
	put_experts("qwen3moe", 2000, 2);
	cr_expect_eq(configured(2, 0, NULL), -EINVAL);
	cr_expect_not_null(strstr(why.text, "expert_count is 2000, must be from 0 to 1024"), "%s", why.text);
	put_experts("gemma2", 6, 2);
	cr_expect_eq(configured(2, 0, NULL), -ENOTSUP);
	put_experts("glm4moe", 8, 3), gg_key_u32(&b, "glm4moe.expert_gating_func", 4);
	cr_expect_eq(configured(3, 0, NULL), -ENOTSUP);
	cr_expect_not_null(strstr(why.text, "expert_gating_func is not supported"), "%s", why.text);
	put_experts("glm4moe", 8, 3), gg_key_u32(&b, "glm4moe.expert_group_count", 3);
	cr_expect_eq(configured(3, 0, NULL), -EINVAL);
	arch = "glm4moe", n_layers = 2, gg_key_u32(&b, "glm4moe.nextn_predict_layers", 2);
	cr_expect_eq(configured(1, 0, NULL), -EINVAL);
}

/* In a one-layer file with two stacked experts, each expert gets its own part. */
Test(gguf, stacked_experts_are_cut_apart)
{
	static const char *const parts[] = {"attn_norm",   "ffn_norm",     "attn_q",       "attn_k",
					    "attn_v",      "attn_output",  "ffn_gate_inp", "ffn_gate_exps",
					    "ffn_up_exps", "ffn_down_exps"};
	enum { N = sizeof parts / sizeof *parts, EXPERTS = 2 };
	for (uint64_t n = 1; n <= 3; n++) {
		struct weights *w = NULL;
		uint64_t at = 1024;
		put_experts("qwen3moe", EXPERTS, 1);
		gg_key_u32(&b, "qwen3moe.block_count", 1), gg_key_u32(&b, "qwen3moe.embedding_length", 8);
		gg_key_u32(&b, "qwen3moe.feed_forward_length", 8);
		gg_key_u32(&b, "qwen3moe.attention.head_count", 1);
		gg_key_u32(&b, "qwen3moe.context_length", 64);
		struct buf keys = b;
		b = (struct buf){0};
		gg_head(&b, 3, N + 2, 8);
		gg_key_text(&b, "general.architecture", arch);
		buf_put(&b, keys.p, keys.len);
		buf_fini(&keys);
		gg_tensor(&b, "token_embd.weight", 8, 32, 0, 0);
		for (int i = 0; i < N; i++) {
			char name[64];
			const uint64_t rows = i < 2 ? 1 : i == 6 ? EXPERTS : 8, stack = i > 6 ? n : 0;
			snprintf(name, sizeof name, "blk.0.%s.weight", parts[i]);
			gg_stack(&b, name, 8, rows, stack, 0, at);
			at += 32 * rows * (stack ? stack : 1);
		}
		gg_tensor(&b, "output_norm.weight", 8, 1, 0, at);
		gg_data(&b, at + 32);
		gg_write(path_of("stack.gguf"), b.p, b.len);
		buf_clear(&b);
		model_config_fini(&config);
		cr_assert_eq(gguf_config_load(path_of("stack.gguf"), &config, &why), 0, "%s", why.text);
		const int rc = gguf_weights_open(path_of("stack.gguf"), &config, &w, &why);
		cr_expect_eq(rc, n == EXPERTS ? 0 : -EINVAL, "%s", why.text);
		if (rc) {
			cr_expect_not_null(strstr(why.text, "ffn_gate_exps.weight has the sizes [8, 8"), "%s",
					   why.text);
			continue;
		}
		const struct weights_layer *l = &w->layers[0];
		cr_assert_eq(l->n_experts, EXPERTS);
		cr_expect_eq((const char *)l->experts[1].up.w - (const char *)l->experts[0].up.w, 8 * 8 * 4);
		cr_expect_eq(w->n_used, N + 2);
		weights_close(w);
	}
}
