/* GGUF models of every quantized type, compared with the same models dequantized to F32. test_gguf_types.c
 * checks the dequantized weights bit for bit against another program. */
#include "base/alloc.h"
#include "formats/gguf.h"
#include "tests/driver.h"
#include "tests/gguf_make.h"

#include <math.h>

enum {
	HIDDEN = 256,
	INTER = 512,
	HEADS = 4,
	KV_HEADS = 2,
	HEAD = 64,
	LAYERS = 2,
	VOCAB = 320,
	TOKENS = 64,
	CONTEXT = 256,
	EXPERTS = 4,
	CHOSEN = 2,
};

/* Offsets of a block's scales, and scales that give weights of about 0.05. */
static const struct kind {
	enum gguf_type type;
	int values, bytes;
	int d_at, m_at; /* -1: none */
	uint16_t d, m;
} kinds[] = {
	{GGUF_TYPE_Q8_0, 32, 34, 0, -1, 0x1400, 0},       {GGUF_TYPE_Q4_0, 32, 18, 0, -1, 0x2400, 0},
	{GGUF_TYPE_Q4_1, 32, 20, 0, 2, 0x2400, 0xaf80},   {GGUF_TYPE_Q5_0, 32, 22, 0, -1, 0x2000, 0},
	{GGUF_TYPE_Q5_1, 32, 24, 0, 2, 0x2000, 0xafc0},   {GGUF_TYPE_Q2_K, 256, 84, 80, 82, 0x2000, 0x2200},
	{GGUF_TYPE_Q3_K, 256, 110, 108, -1, 0x1400, 0},   {GGUF_TYPE_Q4_K, 256, 144, 0, 2, 0x0800, 0x1380},
	{GGUF_TYPE_Q5_K, 256, 176, 0, 2, 0x0400, 0x13c0}, {GGUF_TYPE_Q6_K, 256, 210, 208, -1, 0x0200, 0},
	{GGUF_TYPE_IQ4_NL, 32, 18, 0, -1, 0x1400, 0},     {GGUF_TYPE_IQ4_XS, 256, 136, 0, -1, 0x0200, 0},
	{GGUF_TYPE_MXFP4, 32, 17, 0, -1, 121, 0},         {GGUF_TYPE_IQ1_S, 256, 50, 0, -1, 0x2000, 0},
	{GGUF_TYPE_IQ1_M, 256, 56, -1, -1, 0x2000, 0},    {GGUF_TYPE_IQ2_XXS, 256, 66, 0, -1, 0x1400, 0},
	{GGUF_TYPE_IQ2_XS, 256, 74, 0, -1, 0x1400, 0},    {GGUF_TYPE_IQ2_S, 256, 82, 0, -1, 0x1400, 0},
	{GGUF_TYPE_IQ3_XXS, 256, 98, 0, -1, 0x1000, 0},   {GGUF_TYPE_IQ3_S, 256, 110, 0, -1, 0x1000, 0},
};
enum { N_KINDS = sizeof kinds / sizeof *kinds };

static const char *const archs[] = {"llama", "qwen2", "qwen3", "qwen3moe"};
enum { ARCHS = sizeof archs / sizeof *archs };

struct tensor {
	char name[64];
	int n, k;    /* n 0: a vector */
	int experts; /* number of such matrices; 0: one */
};

static uint64_t state;

static uint32_t rnd(void)
{
	state = state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(state >> 33);
}

static void random_blocks(const struct kind *t, unsigned char *p, size_t n)
{
	for (size_t i = 0; i < n; i++, p += t->bytes) {
		for (int b = 0; b < t->bytes; b++)
			p[b] = (unsigned char)rnd();
		if (t->d_at >= 0)
			memcpy(p + t->d_at, &t->d, t->type == GGUF_TYPE_MXFP4 ? 1 : 2);
		for (int j = 0; t->d_at < 0 && j < 4; j++) /* IQ1_M: a nibble on top of each word of scales */
			p[49 + 2 * j] = (unsigned char)((p[49 + 2 * j] & 15) | (t->d >> 4 * j & 15) << 4);
		if (t->m_at >= 0)
			memcpy(p + t->m_at, &t->m, 2);
	}
}

static int list_tensors(const char *arch, struct tensor *t)
{
	static const struct {
		const char *name;
		int n, k;
	} layer[] = {
		{"attn_norm.weight", 0, HIDDEN},
		{"ffn_norm.weight", 0, HIDDEN},
		{"attn_q.weight", HEADS * HEAD, HIDDEN},
		{"attn_k.weight", KV_HEADS * HEAD, HIDDEN},
		{"attn_v.weight", KV_HEADS * HEAD, HIDDEN},
		{"attn_output.weight", HIDDEN, HEADS * HEAD},
		{"ffn_gate.weight", INTER, HIDDEN},
		{"ffn_up.weight", INTER, HIDDEN},
		{"ffn_down.weight", HIDDEN, INTER},
		{"ffn_gate_inp.weight", EXPERTS, HIDDEN},
		{"ffn_gate_exps.weight", INTER, HIDDEN},
		{"ffn_up_exps.weight", INTER, HIDDEN},
		{"ffn_down_exps.weight", HIDDEN, INTER},
		{"attn_q.bias", 0, HEADS * HEAD},
		{"attn_k.bias", 0, KV_HEADS * HEAD},
		{"attn_v.bias", 0, KV_HEADS * HEAD},
		{"attn_q_norm.weight", 0, HEAD},
		{"attn_k_norm.weight", 0, HEAD},
	};
	const bool bias = strcmp(arch, "qwen2") == 0, norms = strncmp(arch, "qwen3", 5) == 0,
		   moe = strstr(arch, "moe") != NULL;
	int n = 0;
	t[n++] = (struct tensor){"token_embd.weight", VOCAB, HIDDEN, 0};
	t[n++] = (struct tensor){"output_norm.weight", 0, HIDDEN, 0};
	if (strcmp(arch, "llama") == 0) /* the other architectures have tied embeddings */
		t[n++] = (struct tensor){"output.weight", VOCAB, HIDDEN, 0};
	for (int l = 0; l < LAYERS; l++)
		for (size_t i = 0; i < sizeof layer / sizeof *layer; i++) {
			if ((strstr(layer[i].name, ".bias") && !bias) ||
			    ((strstr(layer[i].name, "q_norm") || strstr(layer[i].name, "k_norm")) && !norms))
				continue;
			const bool stacked = strstr(layer[i].name, "_exps") != NULL,
				   of_moe = stacked || strstr(layer[i].name, "_inp");
			if (of_moe != moe && strncmp(layer[i].name, "ffn_", 4) == 0 &&
			    !strstr(layer[i].name, "norm"))
				continue;
			t[n] = (struct tensor){
				.n = layer[i].n, .k = layer[i].k, .experts = stacked ? EXPERTS : 0};
			snprintf(t[n++].name, sizeof t->name, "blk.%d.%s", l, layer[i].name);
		}
	return n;
}

static void key(struct buf *b, const char *arch, const char *name, uint32_t v)
{
	char text[64];
	snprintf(text, sizeof text, "%s.%s", arch, name);
	gg_key_u32(b, text, v);
}

/* Write the file with quantized matrices, or with the floats that they encode. */
static void write_model(const char *path, const char *arch, const struct kind *t, bool floats)
{
	static struct tensor list[64];
	struct buf b = {0}, data = {0};
	const int n = list_tensors(arch, list);
	const bool moe = strstr(arch, "moe") != NULL;
	state = (uint64_t)t->type + 1;
	gg_head(&b, 3, (uint64_t)n, moe ? 10 : 8);
	gg_key_text(&b, "general.architecture", arch);
	key(&b, arch, "block_count", LAYERS), key(&b, arch, "embedding_length", HIDDEN);
	key(&b, arch, "feed_forward_length", INTER), key(&b, arch, "attention.head_count", HEADS);
	key(&b, arch, "attention.head_count_kv", KV_HEADS), key(&b, arch, "context_length", CONTEXT);
	key(&b, arch, "attention.key_length", HEAD);
	if (moe)
		key(&b, arch, "expert_count", EXPERTS), key(&b, arch, "expert_used_count", CHOSEN);
	for (int i = 0; i < n; i++) {
		const int each = list[i].n ? list[i].n : 1, stack = list[i].experts ? list[i].experts : 1;
		const size_t rows = (size_t)(each * stack), k = (size_t)list[i].k;
		const bool vector = !list[i].n || strstr(list[i].name, "_inp");
		gg_stack(&b, list[i].name, k, (size_t)each, (size_t)list[i].experts,
			 floats || vector ? 0 : t->type, data.len);
		float *f = xmalloc(rows * k * 4);
		unsigned char *p = NULL;
		size_t bytes = rows * k * 4;
		if (vector) {
			for (size_t j = 0; j < rows * k; j++)
				f[j] = (strstr(list[i].name, "norm") ? 1 : 0) + (float)(rnd() % 256) / 2048;
		} else {
			const size_t blocks = rows * k / (size_t)t->values;
			struct codes c;
			p = xmalloc(blocks * (size_t)t->bytes);
			random_blocks(t, p, blocks);
			cr_assert(gguf_codes(t->type, (int)rows, list[i].k, p, &c));
			codes_floats(&c, 0, (int)rows, f);
			if (!floats)
				bytes = blocks * (size_t)t->bytes;
		}
		buf_put(&data, floats || vector ? (const char *)f : (const char *)p, bytes);
		gg_data(&data, 0);
		free(f);
		free(p);
	}
	gg_data(&b, 0);
	buf_put(&b, data.p, data.len);
	gg_write(path, b.p, b.len);
	buf_fini(&b);
	buf_fini(&data);
}

/* Compute the logits after the prompt and 64 tokens: greedy, or those of `follow`. */
static void run(const char *path, const uint32_t *follow, float *logits, uint32_t *tokens)
{
	static const uint32_t prompt[] = {7, 300, 12, 99, 5, 256, 31, 8, 77};
	enum { N = sizeof prompt / sizeof *prompt };
	struct driver d;
	struct params p;
	struct bus_load load = driver_load(path);
	cr_assert_eq(driver_open(&d, &load), 0, "%s: %s", path, d.why.text);
	params_init(&p);
	p.temperature = 0;
	cr_assert_eq(driver_prompt(&d, prompt, N, N + TOKENS, CONTEXT, &p), 0, "%s: %s", path, d.why.text);
	cr_assert_eq(step_logits(d.step, 0, logits), 0);
	for (uint32_t i = 0; i < TOKENS; i++) {
		tokens[i] = d.result.tokens[0];
		if (follow)
			cr_assert_eq(tokens[i], follow[i], "%s: token %u", path, i);
		driver_add_run(&d, 0, N + i, 1, true);
		cr_assert_eq(driver_step(&d), 0, "%s: %s", path, d.why.text);
	}
	driver_close(&d);
}

static float error_of(const float *a, const float *b)
{
	float most = 0, error = 0;
	for (int i = 0; i < VOCAB; i++) {
		most = fabsf(b[i]) > most ? fabsf(b[i]) : most;
		error = !(fabsf(a[i] - b[i]) <= error) ? fabsf(a[i] - b[i]) : error;
	}
	return error / most;
}

static char dir[64];

static void make_dir(void)
{
	strcpy(dir, "/tmp/quern-gguf-model-XXXXXX");
	cr_assert(mkdtemp(dir));
}

static void remove_dir(void)
{
	char cmd[128];
	snprintf(cmd, sizeof cmd, "rm -r '%s'", dir);
	cr_assert_eq(system(cmd), 0);
}

TestSuite(gguf_model, .init = make_dir, .fini = remove_dir, .timeout = 240);

static void check(const char *compute, float tolerance, bool tokens_too, int first, int step)
{
	static float a[1 << 16], b[1 << 16];
	uint32_t want[TOKENS], got[TOKENS];
	char quantized[128], floats[128];
	snprintf(quantized, sizeof quantized, "%s/q.gguf", dir);
	snprintf(floats, sizeof floats, "%s/f.gguf", dir);
	for (int i = first; i < N_KINDS * ARCHS; i += step) {
		const struct kind *t = &kinds[i / ARCHS];
		/* If two experts score almost equally, a different choice is no error of the type. */
		if (tolerance > 0.01f && strstr(archs[i % ARCHS], "moe"))
			continue;
		write_model(quantized, archs[i % ARCHS], t, false);
		write_model(floats, archs[i % ARCHS], t, true);
		driver_compute = "f32";
		run(floats, NULL, b, want);
		driver_compute = compute;
		run(quantized, tokens_too ? want : NULL, a, got);
		const float e = error_of(a, b);
		cr_expect(e <= tolerance, "%s in %s, %s: %g", gguf_type_name(t->type), compute,
			  archs[i % ARCHS], e);
	}
}

Test(gguf_model, every_type_is_its_floats_in_f32)
{
	check("f32", 1e-4f, true, 0, 1);
}

Test(gguf_model, every_type_is_near_its_floats_in_int16)
{
	if (strcmp(driver_device(), "cpu"))
		cr_skip_test("a mode of the CPU");
	check("int16", 2e-3f, false, 0, 1);
}

Test(gguf_model, every_type_is_near_its_floats_in_int8_and_bf16)
{
	if (strcmp(driver_device(), "cpu"))
		cr_skip_test("modes of the CPU");
	check("int8", 0.15f, false, 1, 3);
	check("bf16", 0.05f, false, 2, 3);
}
