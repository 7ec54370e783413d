/* The decoder's tensors are found with and without the prefix, and checked against the configuration. */
#include "base/file.h"
#include "base/json.h"
#include "formats/safetensors.h"
#include "formats/weights.h"
#include "tests/driver.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <math.h>

static struct why why;
static struct model_config c;
static struct weights *w;

static int load(const char *dir)
{
	cr_assert_eq(model_config_load(dir, &c, &why), 0, "%s", why.text);
	return weights_open(dir, &c, &w, &why);
}

static void done(void)
{
	weights_close(w);
	model_config_fini(&c);
}

TestSuite(weights, .fini = done);

static const char *tiny(const char *name)
{
	const char *dir = tiny_model(name);
	if (!dir)
		cr_skip_test("tiny models need Python with numpy");
	return dir;
}

Test(weights, every_tensor_of_a_model_is_used)
{
	const char *names[] = {"qwen3-tied", "llama2", "qwen2", "llama-awq-g128"};
	for (int i = 0; i < 4; i++) {
		cr_assert_eq(load(tiny(names[i])), 0, "%s", why.text);
		cr_expect_eq(w->n_unused, 0, "%s", names[i]);
		cr_expect_eq(w->bytes, safetensors_bytes(w->files.at), "%s", names[i]);
		weights_close(w);
		model_config_fini(&c);
		w = NULL;
	}
}

Test(weights, a_tied_head_is_the_embedding)
{
	cr_assert_eq(load(tiny("qwen3-tied")), 0, "%s", why.text);
	cr_expect_null(w->head.w);
	cr_expect_eq(w->embed.n, 331 * 96);
	cr_expect_eq(w->layers[1].q.n, 6 * 32);
	cr_expect_eq(w->layers[1].q.k, 96);
	cr_expect_str_eq(w->layers[1].q.name, "model.layers.1.self_attn.q_proj");
	cr_expect(w->layers[0].q_norm.data && !w->layers[0].q.bias.data);
}

Test(weights, awq_and_plain_layers_can_be_mixed)
{
	cr_assert_eq(load(tiny("qwen3-awq-g32")), 0, "%s", why.text);
	cr_expect(w->layers[0].v.kind == WEIGHTS_AWQ && w->layers[0].v.group == 32);
	cr_expect(w->layers[1].v.kind == WEIGHTS_DENSE && w->layers[1].v.dtype == CONFIG_F16);
	cr_expect(w->layers[0].down.kind == WEIGHTS_DENSE && w->layers[1].down.kind == WEIGHTS_AWQ);
	cr_expect(w->head.kind == WEIGHTS_DENSE && w->head.w);
}

Test(weights, whole_rows_are_one_group)
{
	cr_assert_eq(load(tiny("llama-awq-rows")), 0, "%s", why.text);
	cr_expect_eq(w->layers[0].down.group, 176);
	cr_expect_eq(w->layers[0].q.group, 96);
}

/* Return a copy of a tiny model in which one text of the header is replaced by another of equal length. */
static const char *altered(const char *name, const char *from, const char *to)
{
	static char dir[2048];
	char cmd[8192];
	snprintf(dir, sizeof dir, "%s/altered-%d", builtfile("tiny"), getpid());
	snprintf(cmd, sizeof cmd,
		 "rm -rf '%s' && cp -r '%s' '%s' && LC_ALL=C sed -i 's/%s/%s/' '%s/model.safetensors'", dir,
		 tiny(name), dir, from, to, dir);
	cr_assert_eq(system(cmd), 0);
	return dir;
}

static void remove_altered(const char *dir)
{
	char cmd[4096];
	snprintf(cmd, sizeof cmd, "rm -rf '%s'", dir);
	cr_assert_eq(system(cmd), 0);
}

static void refused(const char *name, const char *from, const char *to, int err, const char *reason)
{
	const char *dir = altered(name, from, to);
	int rc = load(dir);
	remove_altered(dir);
	cr_assert_eq(rc, err, "rc %d: %s", rc, why.text);
	cr_assert(strstr(why.text, reason), "\"%s\" does not contain \"%s\"", why.text, reason);
	model_config_fini(&c);
}

/* The scale of quantized activations is not used; that of ModelOpt's AWQ multiplies the activations. */
Test(weights, a_scale_that_multiplies_the_activations_is_refused)
{
	refused("qwen3-fp8-modelopt", "layers.0.self_attn.q_proj.input_scale",
		"layers.0.self_attn.qp.pre_quant_scale", -ENOTSUP,
		"model.layers.0.self_attn.qp.pre_quant_scale has no place in Qwen3ForCausalLM");
}

Test(weights, a_missing_tensor_is_named)
{
	refused("llama2", "model.layers.1.mlp.up_proj.weight", "model.layers.1.mlp.xx_proj.weight", -ENOENT,
		"tensor model.layers.1.mlp.up_proj.weight is missing");
	refused("llama2", "model.layers.0.self_attn.k_proj.bias", "model.layers.0.self_attn.k_proj.biax",
		-ENOENT, "k_proj.bias is missing");
	refused("llama2", "model.embed_tokens.weight", "model.embed_tokenx.weight", -ENOENT,
		"model.embed_tokens.weight");
	refused("llama2", "lm_head.weight", "lm_heax.weight", -ENOENT, "lm_head.weight is missing");
	refused("qwen3-awq-g32", "layers.0.mlp.up_proj.qzeros", "layers.0.mlp.up_proj.qzerox", -ENOENT,
		"up_proj.qzeros is missing");
}

Test(weights, a_tensor_of_another_shape_is_named)
{
	refused("llama2", "\\(up_proj.weight\":{\"dtype\":\"F16\",\"shape\":\\)\\[104,72\\]", "\\1[72,104]",
		-EINVAL, "has the shape [72, 104], the configuration needs [104, 72]");
	refused("qwen3-awq-g32", "\\(v_proj.scales\":{\"dtype\":\"F16\",\"shape\":\\)\\[4,64\\]", "\\1[8,32]",
		-EINVAL, "has the shape [8, 32], the configuration needs [4, 64]");
}

Test(weights, a_tensor_of_another_type_is_named)
{
	refused("llama2", "\\(model.norm.weight\":{\"dtype\":\\)\"F16\"", "\\1\"I16\"", -ENOTSUP,
		"tensor model.norm.weight is I16");
	refused("qwen3-awq-g32", "\\(v_proj.scales\":{\"dtype\":\\)\"F16\"", "\\1\"I16\"", -EINVAL,
		"v_proj.scales is I16; F32, F16 or BF16 is needed");
}

/* Removes "model." from every name and pads the header to its old length with spaces. */
static void strip_prefix(const char *dir)
{
	char path[4096];
	char *data;
	size_t n, to = 0;
	uint64_t header;
	snprintf(path, sizeof path, "%s/model.safetensors", dir);
	cr_assert_eq(file_read(path, 1 << 24, &data, &n, &why), 0, "%s", why.text);
	memcpy(&header, data, 8);
	char *h = data + 8;
	for (size_t i = 0; i < header; i++) {
		if (i + 7 < header && memcmp(h + i, "\"model.", 7) == 0) {
			h[to++] = '"';
			i += 6;
		} else {
			h[to++] = h[i];
		}
	}
	memset(h + to, ' ', header - to);
	FILE *f = fopen(path, "wb");
	cr_assert_eq(fwrite(data, 1, n, f), n);
	fclose(f);
	free(data);
}

Test(weights, the_prefix_may_be_missing)
{
	const char *dir = altered("llama3", "x", "x");
	strip_prefix(dir);
	int rc = load(dir);
	remove_altered(dir);
	cr_assert_eq(rc, 0, "%s", why.text);
	cr_expect_str_eq(w->layers[0].q.name, "layers.0.self_attn.q_proj");
}

Test(weights, half_to_single_is_exact)
{
	const uint16_t halves[] = {0x3c00, 0xc000, 0x0001, 0x8400, 0x7bff, 0x7c00, 0x0000, 0x8000, 0x03ff};
	const float want[] = {1, -2,    5.9604644775390625e-8f, -6.103515625e-5f, 65504, INFINITY,
			      0, -0.0f, 6.097555160522461e-5f};
	const uint16_t bf[] = {0x3f80, 0xc040};
	float got[9];
	weights_to_f32(&(struct weights_vec){halves, CONFIG_F16, 9}, got);
	cr_expect_arr_eq(got, want, sizeof want);
	weights_to_f32(&(struct weights_vec){bf, CONFIG_BF16, 2}, got);
	cr_expect(got[0] == 1 && got[1] == -3);
	const uint16_t nans[] = {0x7c01, 0xfe00};
	const uint32_t as_floats[] = {0x7f802000, 0xffc00000};
	weights_to_f32(&(struct weights_vec){nans, CONFIG_F16, 2}, got);
	cr_expect_arr_eq(got, as_floats, sizeof as_floats);
}

/* Copy a tiny model to a new folder (dir ends in XXXXXX) with one more file of one F16 tensor: rows x cols,
 * or cols if rows is 0. */
static void copy_with(const char *from, char *dir, const char *name, int rows, int cols)
{
	char cmd[8192], shape[32];
	cr_assert(mkdtemp(dir));
	json_t *map = json_object();
	for (int i = 0; i < w->files.n_tensors; i++)
		json_object_set_new(map, safetensors_at(w->files.at, i)->name,
				    json_string("most.safetensors"));
	json_object_set_new(map, name, json_string("more.safetensors"));
	snprintf(cmd, sizeof cmd, "cp '%s'/* '%s' && mv '%s'/model.safetensors '%s'/most.safetensors", from,
		 dir, dir, dir);
	cr_assert_eq(system(cmd), 0);
	char *head, *path = file_join(dir, "more.safetensors");
	const uint64_t bytes = (uint64_t)(rows ? rows : 1) * (uint64_t)cols * 2;
	if (rows)
		snprintf(shape, sizeof shape, "%d, %d", rows, cols);
	else
		snprintf(shape, sizeof shape, "%d", cols);
	cr_assert_geq(asprintf(&head,
			       "{\"%s\": {\"dtype\": \"F16\", \"shape\": [%s], \"data_offsets\": [0, %llu]}}",
			       name, shape, (unsigned long long)bytes),
		      0);
	const uint64_t head_n = strlen(head);
	FILE *f = fopen(path, "wb");
	fwrite(&head_n, 8, 1, f);
	fputs(head, f);
	fclose(f);
	cr_assert_eq(truncate(path, (off_t)(8 + head_n + bytes)), 0);
	free(path);
	path = file_join(dir, "model.safetensors.index.json");
	json_t *index = json_pack("{s:o}", "weight_map", map);
	cr_assert_eq(json_dump_file(index, path, 0), 0);
	json_decref(index);
	free(path);
	free(head);
	done();
	w = NULL;
}

static void remove_copy(const char *dir)
{
	char cmd[128];
	snprintf(cmd, sizeof cmd, "rm -r '%s'", dir);
	cr_assert_eq(system(cmd), 0);
}

Test(weights, a_layer_both_packed_and_plain_is_refused)
{
	char dir[] = "/tmp/quern-weights-XXXXXX";
	const char *from = tiny("llama-awq-g128");
	cr_assert_eq(load(from), 0, "%s", why.text);
	copy_with(from, dir, "model.layers.0.self_attn.q_proj.weight", w->layers[0].q.n, w->layers[0].q.k);
	cr_expect_eq(load(dir), -EINVAL);
	cr_expect(strstr(why.text, "q_proj has both a weight and a qweight"), "%s", why.text);
	remove_copy(dir);
}

/* A layer without a shared expert must have no fused gate and up, not even with 0 outputs. */
Test(weights, a_layer_of_experts_takes_no_fused_gate_and_up)
{
	char dir[] = "/tmp/quern-weights-XXXXXX";
	const char *from = tiny("qwen3-moe");
	cr_assert_eq(load(from), 0, "%s", why.text);
	cr_assert(c.layers[0].sparse && !c.experts.shared);
	copy_with(from, dir, "model.layers.0.mlp.gate_up_proj.weight", 0, c.hidden);
	cr_expect_eq(load(dir), -ENOTSUP);
	cr_expect(strstr(why.text,
			 "tensor model.layers.0.mlp.gate_up_proj.weight has no place in Qwen3MoeForCausalLM"),
		  "%s", why.text);
	remove_copy(dir);
}
