/* test_imatrix.c - importance matrices are read in both of llama.cpp's formats, and written in one. */
#include "formats/gguf.h"
#include "quant/round/imatrix.h"
#include "tests/gguf_make.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct why why;
static char dir[64], path[96];

static void make_dir(void)
{
	strcpy(dir, "/tmp/quern-imatrix-XXXXXX");
	cr_assert(mkdtemp(dir));
	snprintf(path, sizeof path, "%s/imatrix", dir);
}

static void remove_dir(void)
{
	char cmd[128];
	snprintf(cmd, sizeof cmd, "rm -r '%s'", dir);
	cr_assert_eq(system(cmd), 0);
}

TestSuite(imatrix, .init = make_dir, .fini = remove_dir, .timeout = 60);

static void save(const struct buf *b, size_t n)
{
	FILE *f = fopen(path, "wb");
	cr_assert(f && fwrite(b->p, 1, n, f) == n && fclose(f) == 0);
}

static void put_i32(struct buf *b, int32_t v)
{
	buf_put(b, &v, sizeof v);
}

static void put_entry(struct buf *b, const char *name, int32_t calls, int32_t n, const float *sums)
{
	put_i32(b, (int32_t)strlen(name));
	buf_puts(b, name);
	put_i32(b, calls);
	put_i32(b, n);
	buf_put(b, sums, (size_t)n * sizeof *sums);
}

static const char attn[] = "blk.0.attn_q.weight", exps[] = "blk.0.ffn_up_exps.weight";

/* Two entries: attn has 4 inputs, exps has 2 inputs of each of 2 experts; then chunks and the text. */
static void legacy(struct buf *b, float first)
{
	const float a[] = {first, 4, 0, 10}, x[] = {3, 6, 9, 12};
	put_i32(b, 2);
	put_entry(b, attn, 2, 4, a);
	put_entry(b, exps, 3, 4, x);
	put_i32(b, 7);
	put_i32(b, 8);
	buf_puts(b, "wiki.raw");
}

static void expect(const struct imatrix *m, const char *name, int part, int parts, int k, const float *want)
{
	const float *got;
	cr_assert_eq(imatrix_find(m, name, part, parts, k, &got, &why), 1, "%s", why.text);
	for (int i = 0; i < k; i++)
		cr_expect_eq(got[i], want[i], "%s, part %d, input %d: %g", name, part, i, (double)got[i]);
}

Test(imatrix, a_legacy_file_has_sums_over_calls)
{
	struct buf b = {0};
	struct imatrix *m;
	const float *got;
	legacy(&b, 2);
	save(&b, b.len);
	cr_assert_eq(imatrix_read(path, &m, &why), 0, "%s", why.text);
	expect(m, attn, 0, 1, 4, (const float[]){1, 2, 0, 5});
	expect(m, exps, 0, 2, 2, (const float[]){1, 2});
	expect(m, exps, 1, 2, 2, (const float[]){3, 4});
	cr_expect_eq(imatrix_find(m, "blk.1.attn_q.weight", 0, 1, 4, &got, &why), 0);
	cr_expect_eq(imatrix_find(m, attn, 0, 1, 8, &got, &why), -EINVAL);
	cr_expect(strstr(why.text, "4 values for tensor blk.0.attn_q.weight, which has 8"), "%s", why.text);
	imatrix_free(m);
	buf_fini(&b);
}

Test(imatrix, a_legacy_file_may_end_before_its_text)
{
	struct buf b = {0};
	struct imatrix *m;
	legacy(&b, 2);
	const size_t entries = b.len - 16;
	for (size_t n = 0; n < b.len; n++) {
		save(&b, n);
		if (n == entries) {
			cr_expect_eq(imatrix_read(path, &m, &why), 0, "%s", why.text);
			imatrix_free(m);
			continue;
		}
		cr_expect_eq(imatrix_read(path, &m, &why), -EINVAL, "%zu bytes", n);
		cr_expect(strstr(why.text, path) && !m, "%s", why.text);
	}
	buf_fini(&b);
}

Test(imatrix, values_that_are_no_squares_are_refused)
{
	static const float bad[] = {-1, NAN, INFINITY};
	for (int i = 0; i < 3; i++) {
		struct buf b = {0};
		struct imatrix *m;
		legacy(&b, bad[i]);
		save(&b, b.len);
		cr_expect_eq(imatrix_read(path, &m, &why), -EINVAL);
		cr_expect(strstr(why.text, "the entry blk.0.attn_q.weight has the value"), "%s", why.text);
		buf_fini(&b);
	}
}

Test(imatrix, what_is_written_is_read)
{
	struct imatrix *m = imatrix_new("stories.txt", 5, 512), *back;
	const double a[] = {8, 0, 24, 1}, x[] = {10, 20};
	struct gguf *g;
	struct gguf_array texts;
	int64_t size = 0;
	imatrix_set(m, attn, 0, 1, a, 4, 8);
	imatrix_set(m, exps, 0, 2, x, 2, 5);
	imatrix_set(m, exps, 1, 2, (const double[]){0, 0}, 2, 0); /* no row reached expert 1 */
	cr_assert_eq(imatrix_write(m, path, &why), 0, "%s", why.text);
	cr_expect_eq(imatrix_write(m, path, &why), -EEXIST);
	imatrix_free(m);

	cr_assert_eq(gguf_open(path, &g, &why), 0, "%s", why.text);
	cr_expect_eq(gguf_find_int(g, "imatrix.chunk_size", &size, &why), 0);
	cr_expect_eq(size, 512);
	cr_expect_eq(gguf_find_array(g, "imatrix.datasets", &texts, &why), 0);
	cr_expect_eq(texts.n, 1);
	const struct gguf_tensor *t = gguf_find(g, "blk.0.ffn_up_exps.weight.in_sum2");
	cr_assert(t && t->type == GGUF_TYPE_F32);
	cr_expect(t->size[0] == 2 && t->size[1] == 2 && ((const float *)t->data)[1] == 20);
	t = gguf_find(g, "blk.0.ffn_up_exps.weight.counts");
	cr_assert(t);
	cr_expect(t->size[0] == 1 && t->size[1] == 2 && ((const float *)t->data)[0] == 5);
	gguf_close(g);

	cr_assert_eq(imatrix_read(path, &back, &why), 0, "%s", why.text);
	expect(back, attn, 0, 1, 4, (const float[]){1, 0, 3, 0.125f});
	expect(back, exps, 0, 2, 2, (const float[]){2, 4});
	expect(back, exps, 1, 2, 2, (const float[]){1, 1});
	imatrix_free(back);
}

/* Write a GGUF file with a tensor of sums [2][2], and counts [2] if asked for. */
static void gguf_file(const char *type, bool counts, uint32_t kind)
{
	struct buf b = {0};
	gg_head(&b, 3, counts ? 2 : 1, 1);
	gg_key_text(&b, "general.type", type);
	gg_tensor(&b, "t.in_sum2", 2, 2, kind, 0);
	if (counts)
		gg_tensor(&b, "t.counts", 1, 2, 0, 32);
	while (b.len % 32)
		buf_putc(&b, 0);
	for (int i = 0; i < 16; i++)
		buf_put(&b, &(float){1}, 4);
	save(&b, b.len);
	buf_fini(&b);
}

Test(imatrix, a_gguf_file_without_its_parts_is_refused)
{
	struct imatrix *m;
	gguf_file("imatrix", true, 0);
	cr_assert_eq(imatrix_read(path, &m, &why), 0, "%s", why.text);
	imatrix_free(m);
	gguf_file("model", true, 0);
	cr_expect_eq(imatrix_read(path, &m, &why), -EINVAL);
	cr_expect(strstr(why.text, "no importance matrix"), "%s", why.text);
	gguf_file("imatrix", false, 0);
	cr_expect_eq(imatrix_read(path, &m, &why), -EINVAL);
	cr_expect(strstr(why.text, "t.in_sum2 has no counts"), "%s", why.text);
	gguf_file("imatrix", true, 1);
	cr_expect_eq(imatrix_read(path, &m, &why), -EINVAL);
	cr_expect(strstr(why.text, "in F32"), "%s", why.text);
}
