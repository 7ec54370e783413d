/* test_flat.c - files of llama2.c, KuiperLLama and ak48, compared with numpy
 * (tests/golden/make_flat_golden.py): every tensor bit for bit; truncated, lengthened and damaged files. */
#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "formats/model_file.h"
#include "formats/model_kind.h"
#include "tests/testdata.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <gnutls/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct why why;
static char path[64];

static void tidy(void)
{
	if (path[0])
		unlink(path);
}

TestSuite(flat, .fini = tidy, .timeout = 120);

/* Write these bytes to `path`. */
static const char *put(const void *data, size_t n)
{
	if (!path[0]) {
		snprintf(path, sizeof path, "/tmp/quern-test-flat-XXXXXX");
		close(mkstemp(path));
	}
	FILE *f = fopen(path, "wb");
	cr_assert(f && fwrite(data, 1, n, f) == n && fclose(f) == 0);
	return path;
}

static json_t *golden(void)
{
	json_t *all = NULL;
	cr_assert_eq(json_read(repofile("tests/golden/flat.json"), 1 << 20, &all, &why), 0, "%s", why.text);
	return all;
}

static char *file_of(const char *name)
{
	return xasprintf("%s/%s.bin", repofile("tests/golden/flat"), name);
}

/* ---- compared with numpy ---- */

static void check_floats(const json_t *want, const char *name, const float *x, size_t n)
{
	unsigned char digest[32];
	char hex[65];
	const char *expected = json_string_value(json_object_get(want, name));
	cr_assert_eq(gnutls_hash_fast(GNUTLS_DIG_SHA256, x, n * sizeof *x, digest), 0);
	for (int i = 0; i < 32; i++)
		snprintf(hex + 2 * i, 3, "%02x", digest[i]);
	cr_assert_not_null(expected, "%s", name);
	cr_expect_str_eq(hex, expected, "%s, which begins %g %g %g %g", name, (double)x[0], (double)x[1],
			 (double)x[2], (double)x[3]);
}

static void check_vec(const json_t *want, const char *name, const struct weights_vec *v)
{
	float *x = xcalloc((size_t)v->n, sizeof *x);
	weights_to_f32(v, x);
	check_floats(want, name, x, (size_t)v->n);
	free(x);
}

static void awq_floats(const struct weights_linear *l, float *out)
{
	static const int order[8] = {0, 2, 4, 6, 1, 3, 5, 7};
	float *scales = xcalloc((size_t)((l->k + l->group - 1) / l->group) * (size_t)l->n, sizeof *scales);
	weights_to_f32(&(struct weights_vec){l->scales, CONFIG_F16, (l->k + l->group - 1) / l->group * l->n},
		       scales);
	for (int k = 0; k < l->k; k++)
		for (int n = 0; n < l->n; n++) {
			uint32_t q, z;
			int nibble = 0;
			while (order[nibble] != n % 8)
				nibble++;
			memcpy(&q,
			       (const char *)l->w + 4 * ((size_t)k * (size_t)(l->n / 8) + (size_t)(n / 8)),
			       4);
			memcpy(&z,
			       (const char *)l->qzeros +
				       4 * ((size_t)(k / l->group) * (size_t)(l->n / 8) + (size_t)(n / 8)),
			       4);
			out[(size_t)n * (size_t)l->k + (size_t)k] =
				scales[k / l->group * l->n + n] *
				(float)((int)(q >> 4 * nibble & 15) - (int)(z >> 4 * nibble & 15));
		}
	free(scales);
}

static void check_linear(const json_t *want, const char *name, const struct weights_linear *l)
{
	const size_t n = (size_t)l->n * (size_t)l->k;
	float *x = xcalloc(n, sizeof *x);
	if (l->kind == WEIGHTS_CODES)
		codes_floats(&l->codes, 0, l->n, x);
	else if (l->kind == WEIGHTS_AWQ)
		awq_floats(l, x);
	else
		weights_to_f32(&(struct weights_vec){l->w, l->dtype, (int)n}, x);
	check_floats(want, name, x, n);
	free(x);
}

static void check_layer(const json_t *want, int i, const struct weights_layer *l)
{
	const struct {
		const char *name;
		const struct weights_linear *l;
	} linears[] = {{"self_attn.q_proj", &l->q}, {"self_attn.k_proj", &l->k}, {"self_attn.v_proj", &l->v},
		       {"self_attn.o_proj", &l->o}, {"mlp.gate_proj", &l->gate}, {"mlp.up_proj", &l->up},
		       {"mlp.down_proj", &l->down}};
	const struct {
		const char *name;
		const struct weights_vec *v;
	} norms[] = {{"input_layernorm", &l->attn_norm},
		     {"post_attention_layernorm", &l->ffn_norm},
		     {"self_attn.q_norm", &l->q_norm},
		     {"self_attn.k_norm", &l->k_norm}};
	char name[96];
	for (size_t j = 0; j < sizeof linears / sizeof *linears; j++) {
		snprintf(name, sizeof name, "layers.%d.%s.weight", i, linears[j].name);
		check_linear(want, name, linears[j].l);
	}
	for (size_t j = 0; j < sizeof norms / sizeof *norms; j++) {
		snprintf(name, sizeof name, "layers.%d.%s.weight", i, norms[j].name);
		if (norms[j].v->data)
			check_vec(want, name, norms[j].v);
	}
}

Test(flat, every_tensor_reads_as_numpy_has_it)
{
	json_t *all = golden();
	const char *name;
	json_t *g;
	json_object_foreach(all, name, g)
	{
		char *file = file_of(name);
		const json_t *want = json_object_get(g, "tensors");
		struct model_config c;
		struct weights *w;
		cr_assert_eq(model_kind_check(file, &why), 0, "%s", why.text);
		cr_assert_eq(model_config_load(file, &c, &why), 0, "%s: %s", name, why.text);
		cr_assert_eq(weights_open(file, &c, &w, &why), 0, "%s: %s", name, why.text);
		cr_expect_eq(c.tied, json_is_true(json_object_get(g, "tied")), "%s", name);
		cr_expect_eq(c.rope_pairs, json_is_true(json_object_get(g, "pairs")), "%s", name);
		cr_expect_eq(c.head_dim, json_integer_value(json_object_get(g, "head_dim")), "%s", name);
		cr_expect_eq(c.qk_norm, w->layers[0].q_norm.data != NULL, "%s", name);
		check_vec(want, "embed_tokens.weight", &w->embed);
		check_vec(want, "norm.weight", &w->norm);
		if (w->head.w)
			check_linear(want, c.tied ? "embed_tokens.weight" : "lm_head.weight", &w->head);
		for (int i = 0; i < w->n_layers; i++)
			check_layer(want, i, &w->layers[i]);
		weights_close(w);
		model_config_fini(&c);
		free(file);
	}
	json_decref(all);
}

Test(flat, the_kinds_are_told_apart_by_their_content)
{
	const char *const names[][2] = {{"llama2c0", "llama2.c"},
					{"llama2c1", "llama2.c"},
					{"llama2c2", "llama2.c"},
					{"kuiper", "KuiperLLama INT8"},
					{"kuiper-crossed", "KuiperLLama INT8"},
					{"ak48", "ak48"}};
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		char *file = file_of(names[i][0]);
		const struct model_file *f = model_file_of(file);
		cr_assert_not_null(f);
		cr_expect_str_eq(f->name, names[i][1], "%s", names[i][0]);
		free(file);
	}
	cr_expect_null(
		model_file_of(put("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", 60)));
	cr_expect_null(model_file_of(put("PK\3\4 a file of PyTorch, as a zip, is none of these", 50)));
	cr_expect_null(model_file_of(put("", 0)));
}

Test(flat, groups_within_rows_stay_codes)
{
	char *file = file_of("llama2c2");
	struct model_config c;
	struct weights *w;
	cr_assert_eq(model_config_load(file, &c, &why), 0);
	cr_assert_eq(weights_open(file, &c, &w, &why), 0, "%s", why.text);
	cr_expect_eq(w->layers[1].down.kind, WEIGHTS_CODES);
	cr_expect_eq(w->layers[1].down.codes.group, 8);
	cr_expect_eq(w->head.kind, WEIGHTS_CODES); /* the embedding's codes; lookups use F32 */
	cr_expect_eq(w->n_unused, 0);
	weights_close(w);
	free(file);
	file = file_of("llama2c0");
	cr_assert_eq(model_config_load(file, &c, &why), 0);
	cr_assert_eq(weights_open(file, &c, &w, &why), 0, "%s", why.text);
	cr_expect_eq(w->n_unused, 2); /* the RoPE tables */
	weights_close(w);
	free(file);
}

/* ---- incomplete files ---- */

static int open_bytes(const void *data, size_t n)
{
	struct model_config c;
	struct weights *w;
	const char *file = put(data, n);
	why.text[0] = '\0';
	int rc = model_config_load(file, &c, &why);
	if (rc)
		return rc;
	rc = weights_open(file, &c, &w, &why);
	if (!rc)
		weights_close(w);
	model_config_fini(&c);
	return rc;
}

Test(flat, a_file_that_is_cut_names_the_tensor_and_the_byte)
{
	json_t *all = golden();
	const char *name;
	json_t *g;
	json_object_foreach(all, name, g)
	{
		char *file = file_of(name), *data, at[32];
		size_t n;
		cr_assert_eq(file_read(file, 1 << 20, &data, &n, &why), 0, "%s", why.text);
		for (size_t i = 0; i < 64; i++) {
			const size_t cut = n * i / 64;
			cr_assert_neq(open_bytes(data, cut), 0, "%s cut at %zu", name, cut);
			if (cut < 256)
				continue;
			snprintf(at, sizeof at, "byte %zu", cut);
			cr_expect(strstr(why.text, at) && strstr(why.text, path), "%s cut at %zu: %s", name,
				  cut, why.text);
			cr_expect(strstr(why.text, "layers.") || strstr(why.text, "tok_embeddings") ||
					  strstr(why.text, "norm") || strstr(why.text, "output") ||
					  strstr(why.text, "freqs"),
				  "%s", why.text);
		}
		cr_assert_neq(open_bytes(data, n - 1), 0);
		data = xrealloc(data, n + 4, 1);
		memset(data + n, 0, 4);
		cr_assert_eq(open_bytes(data, n + 4), -EINVAL);
		cr_expect(strstr(why.text, "left over"), "%s", why.text);
		free(data);
		free(file);
	}
	json_decref(all);
}

Test(flat, no_size_in_a_header_is_believed)
{
	static const int32_t values[] = {0, -1, 1, 7, 1 << 15, 1 << 24, INT32_MAX, INT32_MIN};
	json_t *all = golden();
	const char *name;
	json_t *g;
	json_object_foreach(all, name, g)
	{
		char *file = file_of(name), *data;
		size_t n;
		cr_assert_eq(file_read(file, 1 << 20, &data, &n, &why), 0, "%s", why.text);
		const bool magic = strncmp(name, "kuiper", 6) != 0 && strncmp(name, "llama2c0", 8) != 0;
		const int words = strncmp(name, "kuiper", 6) == 0 ? 8 : 7;
		for (int i = 0; i < words; i++)
			for (size_t j = 0; j < sizeof values / sizeof *values; j++) {
				char *field = data + (magic ? 8 : 0) + 4 * i, was[4];
				memcpy(was, field, 4);
				memcpy(field, &values[j], 4);
				/* In a file with a magic the context is only a limit; no size depends on
				 * it. */
				if (memcmp(was, field, 4) != 0 &&
				    !(i == 6 && strncmp(name, "llama2c0", 8) != 0))
					cr_expect_neq(open_bytes(data, n), 0, "%s word %d is %d", name, i,
						      values[j]);
				else
					open_bytes(data, n);
				memcpy(field, was, 4);
			}
		cr_assert_eq(open_bytes(data, n), 0, "%s", why.text);
		free(data);
		free(file);
	}
	json_decref(all);
}

Test(flat, sizes_that_no_memory_has_are_refused_before_they_are_multiplied)
{
	const int32_t words[8] = {1 << 17, 16, 1, 1, 1, 1 << 24, 32, 8};
	struct model_config c;
	cr_expect_neq(model_config_load(put(words, sizeof words), &c, &why), 0);
	cr_expect_null(model_file_of(path));
}

/* An ak48 file with one layer, every size 8, and the embedding as the head. */
Test(flat, a_group_larger_than_any_row_is_the_row)
{
	char data[828] = "84ka";
	const int32_t words[8] = {5, 8, 8, 1, 1, 1, 8, 8}, more[2] = {8, INT32_MAX};
	struct model_config c;
	struct weights *w;
	memcpy(data + 4, words, sizeof words);
	data[36] = 1;
	memcpy(data + 37, more, sizeof more);
	const char *file = put(data, sizeof data);
	cr_assert_eq(model_config_load(file, &c, &why), 0, "%s", why.text);
	cr_assert_eq(weights_open(file, &c, &w, &why), 0, "%s", why.text);
	cr_expect_eq(w->layers[0].down.group, 8);
	for (int i = 0; i < w->files.n_tensors; i++) {
		struct weights_tensor t;
		w->files.tensor(w->files.at, i, &t);
		if (strstr(t.name, "qzeros") || strstr(t.name, "scales"))
			cr_expect(t.n_dims == 2 && t.shape[0] == 1, "%s", t.name);
	}
	weights_close(w);
	memset(data + 256, 0xff, sizeof data - 256); /* a NaN scale */
	file = put(data, sizeof data);
	w = NULL;
	cr_expect_eq(weights_open(file, &c, &w, &why), -EINVAL);
	cr_expect_null(w); /* callers close w whatever the result */
	cr_expect(strstr(why.text, "layers.0.wq.scales: value 0 is not a finite number"), "%s", why.text);
	model_config_fini(&c);
}

Test(flat, tokens_that_end_a_text_are_of_the_vocabulary)
{
	for (int32_t vocab = 1; vocab < 4; vocab++) {
		const int32_t words[7] = {8, 8, 1, 1, 1, vocab, 8};
		struct model_config c;
		cr_assert_eq(model_config_load(put(words, sizeof words), &c, &why), 0, "%s", why.text);
		cr_expect_eq(c.n_eos, vocab < 3 ? vocab - 1 : 2);
		cr_expect_lt(c.bos, vocab);
		for (int i = 0; i < c.n_eos; i++)
			cr_expect_lt(c.eos[i], (uint32_t)vocab);
		model_config_fini(&c);
	}
}

/* The file is replaced after its configuration is read and before its weights are read. */
Test(flat, a_file_that_has_been_replaced_is_refused)
{
	static const char *const names[] = {"ak48", "kuiper", "llama2c0", "llama2c1", "llama2c2"};
	json_t *all = golden();
	const char *name;
	json_t *g;
	int n_kinds = 0;
	json_object_foreach(all, name, g)
	{
		char *file = file_of(name);
		struct model_config c;
		struct weights *w;
		cr_assert_eq(model_config_load(file, &c, &why), 0, "%s", why.text);
		int *const sizes[] = {&c.n_layers,   &c.hidden,   &c.intermediate, &c.n_heads,
				      &c.n_kv_heads, &c.head_dim, &c.n_vocab};
		for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
			++*sizes[i];
			cr_expect_eq(weights_open(file, &c, &w, &why), -EINVAL, "%s: %zu", name, i);
			cr_expect(strstr(why.text, "replaced") && strstr(why.text, file), "%s", why.text);
			--*sizes[i];
		}
		c.tied = !c.tied;
		cr_expect_eq(weights_open(file, &c, &w, &why), -EINVAL, "%s", name);
		c.tied = !c.tied;
		cr_assert_eq(weights_open(file, &c, &w, &why), 0, "%s", why.text);
		weights_close(w);
		model_config_fini(&c);
		for (size_t i = 0; i < sizeof names / sizeof *names; i++)
			n_kinds |= strncmp(name, names[i], strlen(names[i])) == 0 ? 1 << i : 0;
		free(file);
	}
	cr_expect_eq(n_kinds, 31);
	json_decref(all);
}

Test(flat, other_versions_are_named)
{
	char head[256] = {0};
	const int32_t version = 4;
	memcpy(head, "24ka", 4);
	memcpy(head + 4, &version, 4);
	cr_expect_eq(open_bytes(head, sizeof head), -ENOTSUP);
	cr_expect(strstr(why.text, "version 4"), "%s", why.text);
	memcpy(head, "84ka", 4);
	cr_expect_eq(open_bytes(head, sizeof head), -ENOTSUP);
	cr_expect(strstr(why.text, "version 4"), "%s", why.text);
}
