/* test_writer.c - new models on disk: the readers' view of them, and the files of an unfinished one. */
#include "base/file.h"
#include "formats/gguf.h"
#include "formats/safetensors.h"
#include "quant/writer/writer.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static struct why why;
static char dir[64], dst[96], partial[112];

static void make_dir(void)
{
	strcpy(dir, "/tmp/quern-writer-XXXXXX");
	cr_assert(mkdtemp(dir));
	snprintf(dst, sizeof dst, "%s/out", dir);
	snprintf(partial, sizeof partial, "%s.partial", dst);
}

static void remove_dir(void)
{
	char cmd[128];
	snprintf(cmd, sizeof cmd, "rm -r '%s'", dir);
	cr_assert_eq(system(cmd), 0);
}

TestSuite(writer, .init = make_dir, .fini = remove_dir);

static const uint16_t matrix[3][4] = {{1, 2, 3, 4}, {5, 6, 7, 8}, {9, 10, 11, 12}};
static const float vector[5] = {1, -2, 3, -4, 5};

static struct writer *begin(enum writer_format format)
{
	struct writer *w;
	cr_assert_eq(writer_new(dst, format, &w, &why), 0, "%s", why.text);
	const struct writer_tensor m = {"m", "BF16", 2, {3, 4}}, v = {"v", "F32", 1, {5}};
	cr_assert_eq(writer_declare(w, &m, &why), 0, "%s", why.text);
	cr_assert_eq(writer_declare(w, &v, &why), 1, "%s", why.text);
	return w;
}

static void put_rows(struct writer *w)
{
	cr_assert_eq(writer_begin(w, &why), 0, "%s", why.text);
	cr_assert_eq(writer_rows(w, 0, 0, 1, matrix[0], &why), 0, "%s", why.text);
	cr_assert_eq(writer_rows(w, 1, 0, 1, vector, &why), 0, "%s", why.text);
	cr_assert_eq(writer_rows(w, 0, 1, 2, matrix[1], &why), 0, "%s", why.text);
}

static void check_safetensors(int n_files)
{
	struct safetensors *s;
	cr_assert_eq(safetensors_open_dir(dst, &s, &why), 0, "%s", why.text);
	const struct st_tensor *m = safetensors_find(s, "m"), *v = safetensors_find(s, "v");
	cr_assert(m && v);
	cr_assert_eq(safetensors_files(s), n_files);
	cr_assert(m->dtype == ST_BF16 && m->n_dims == 2 && m->shape[0] == 3 && m->shape[1] == 4);
	cr_assert_eq(memcmp(m->data, matrix, sizeof matrix), 0);
	cr_assert(v->dtype == ST_F32 && v->n_dims == 1 && v->shape[0] == 5);
	cr_assert_eq(memcmp(v->data, vector, sizeof vector), 0);
	safetensors_close(s);
}

Test(writer, a_directory_of_safetensors_is_read_back)
{
	struct writer *w = begin(WRITER_SAFETENSORS);
	json_t *tree = json_pack("{s:f}", "rms_norm_eps", 1e-6);
	cr_assert_eq(writer_json(w, "config.json", tree, &why), 0, "%s", why.text);
	json_decref(tree);
	put_rows(w);
	cr_assert_eq(access(dst, F_OK), -1);
	cr_assert_eq(writer_commit(&w, &why), 0, "%s", why.text);
	check_safetensors(1);
	char *config = file_join(dst, "config.json");
	tree = json_load_file(config, 0, NULL);
	cr_assert_eq(json_real_value(json_object_get(tree, "rms_norm_eps")), 1e-6);
	json_decref(tree);
	free(config);
	cr_assert_eq(access(partial, F_OK), -1);
}

Test(writer, shards_are_found_through_their_index)
{
	struct writer *w = begin(WRITER_SAFETENSORS);
	writer_shards(w, 24);
	put_rows(w);
	cr_assert_eq(writer_commit(&w, &why), 0, "%s", why.text);
	check_safetensors(2);
}

/* This holds for any header length, as readers map tensors directly. */
Test(writer, tensors_begin_at_a_multiple_of_8)
{
	for (int n = 1; n <= 8; n++) {
		char name[16] = "", path[112];
		struct writer *w;
		uint64_t head;
		memset(name, 'x', (size_t)n);
		snprintf(path, sizeof path, "%s-%d", dst, n);
		const struct writer_tensor t = {name, "F32", 1, {5}};
		cr_assert_eq(writer_new(path, WRITER_SAFETENSORS, &w, &why), 0, "%s", why.text);
		cr_assert_eq(writer_declare(w, &t, &why), 0, "%s", why.text);
		cr_assert_eq(writer_begin(w, &why), 0, "%s", why.text);
		cr_assert_eq(writer_rows(w, 0, 0, 1, vector, &why), 0, "%s", why.text);
		cr_assert_eq(writer_commit(&w, &why), 0, "%s", why.text);
		char *weights = file_join(path, "model.safetensors");
		FILE *f = fopen(weights, "rb");
		cr_assert(f && fread(&head, sizeof head, 1, f) == 1);
		cr_expect_eq(head % 8, 0, "%d", n);
		fclose(f);
		free(weights);
	}
}

Test(writer, a_tensor_larger_than_a_shard_has_one_of_its_own)
{
	struct writer *w = begin(WRITER_SAFETENSORS);
	writer_shards(w, 10);
	put_rows(w);
	cr_assert_eq(writer_commit(&w, &why), 0, "%s", why.text);
	check_safetensors(2);
	char *first = file_join(dst, "model-00001-of-00002.safetensors");
	cr_expect_eq(access(first, F_OK), 0, "no shard is empty");
	free(first);
}

Test(writer, a_slash_behind_the_name_is_none_of_it)
{
	const size_t n = strlen(dst);
	strcpy(dst + n, "//");
	struct writer *w = begin(WRITER_SAFETENSORS);
	dst[n] = '\0';
	cr_expect_eq(access(partial, F_OK), 0);
	put_rows(w);
	cr_assert_eq(writer_commit(&w, &why), 0, "%s", why.text);
	check_safetensors(1);
}

Test(writer, a_gguf_file_is_read_back)
{
	struct writer *w = begin(WRITER_GGUF);
	struct gguf *g;
	struct gguf_string s;
	struct gguf_array a;
	int64_t n;
	writer_meta_str(w, "general.architecture", "llama");
	writer_meta_u32(w, "llama.block_count", 7);
	writer_meta_strings(w, "words", 2);
	writer_meta_item(w, "a", 1);
	writer_meta_item(w, "bc", 2);
	put_rows(w);
	cr_assert_eq(writer_commit(&w, &why), 0, "%s", why.text);
	cr_assert_eq(gguf_open(dst, &g, &why), 0, "%s", why.text);
	cr_assert_eq(gguf_find_string(g, "general.architecture", &s, &why), 0, "%s", why.text);
	cr_assert(s.n == 5 && memcmp(s.p, "llama", 5) == 0);
	cr_assert_eq(gguf_find_int(g, "llama.block_count", &n, &why), 0, "%s", why.text);
	cr_assert_eq(n, 7);
	cr_assert_eq(gguf_find_array(g, "words", &a, &why), 0, "%s", why.text);
	gguf_next_string(&a);
	s = gguf_next_string(&a);
	cr_assert(s.n == 2 && memcmp(s.p, "bc", 2) == 0);
	const struct gguf_tensor *m = gguf_find(g, "m"), *v = gguf_find(g, "v");
	cr_assert(m->type == GGUF_TYPE_BF16 && m->size[0] == 4 && m->size[1] == 3);
	cr_assert_eq(memcmp(m->data, matrix, sizeof matrix), 0);
	cr_assert_eq(memcmp(v->data, vector, sizeof vector), 0);
	gguf_close(g);
	cr_assert_eq(access(partial, F_OK), -1);
}

Test(writer, what_the_format_does_not_have_is_refused_by_name)
{
	struct writer *w;
	const struct writer_tensor codes = {"w1", "Q4_K", 2, {2, 256}}, odd = {"w2", "Q4_K", 2, {2, 255}};
	cr_assert_eq(writer_new(dst, WRITER_SAFETENSORS, &w, &why), 0, "%s", why.text);
	cr_assert_eq(writer_declare(w, &codes, &why), -ENOTSUP);
	cr_assert(strstr(why.text, "w1") && strstr(why.text, "Q4_K") && strstr(why.text, "safetensors"), "%s",
		  why.text);
	writer_abort(&w);
	cr_assert_eq(writer_new(dst, WRITER_GGUF, &w, &why), 0, "%s", why.text);
	cr_assert_eq(writer_declare(w, &odd, &why), -EINVAL);
	cr_assert(strstr(why.text, "w2") && strstr(why.text, "256"), "%s", why.text);
	const struct writer_tensor large = {"w3", "F32", 2, {2, INT64_MAX / 16}},
				   wraps = {"w4", "F32", 2, {INT64_MAX / 2, 3}},
				   less = {"w5", "F32", 1, {-1}};
	cr_assert_eq(writer_declare(w, &large, &why), -EINVAL);
	cr_assert_eq(writer_declare(w, &wraps, &why), -EINVAL);
	cr_assert_eq(writer_declare(w, &less, &why), -EINVAL);
	cr_assert(strstr(why.text, "w5 has an impossible shape"), "%s", why.text);
	writer_abort(&w);
}

Test(writer, a_name_may_be_declared_once)
{
	struct writer *w = begin(WRITER_SAFETENSORS);
	const struct writer_tensor m = {"m", "F16", 1, {1}};
	cr_assert_eq(writer_declare(w, &m, &why), 2);
	cr_assert_eq(writer_begin(w, &why), -EINVAL);
	cr_assert(strstr(why.text, "m is declared twice"), "%s", why.text);
	writer_abort(&w);
}

Test(writer, what_is_there_is_never_replaced)
{
	struct writer *w;
	cr_assert_eq(mkdir(dst, 0777), 0);
	cr_assert_eq(writer_new(dst, WRITER_SAFETENSORS, &w, &why), -EEXIST);
	cr_assert(strstr(why.text, dst) && strstr(why.text, "exists already"), "%s", why.text);
	cr_assert_eq(rmdir(dst), 0);
	char other[200];
	snprintf(other, sizeof other, "%s/mine", partial);
	cr_assert_eq(mkdir(partial, 0777), 0); /* not a run's: those have a mark */
	cr_assert_eq(mkdir(other, 0777), 0);
	cr_assert_eq(writer_new(dst, WRITER_SAFETENSORS, &w, &why), -EEXIST);
	cr_assert(strstr(why.text, partial), "%s", why.text);
	cr_assert_eq(access(other, F_OK), 0);
	cr_assert_eq(rmdir(other), 0);
	cr_assert_eq(writer_new(dst, WRITER_SAFETENSORS, &w, &why), 0, "%s",
		     why.text); /* the directory of a run that was killed at once */
	writer_abort(&w);
}

Test(writer, an_aborted_run_leaves_nothing)
{
	struct writer *w = begin(WRITER_SAFETENSORS);
	put_rows(w);
	writer_abort(&w);
	cr_assert(w == NULL);
	cr_assert(access(dst, F_OK) == -1 && access(partial, F_OK) == -1);
}

/* A child process writes all rows and is killed before the end. */
static void killed_run(enum writer_format format)
{
	const pid_t pid = fork();
	if (pid == 0) {
		struct writer *w = begin(format);
		put_rows(w);
		raise(SIGKILL);
	}
	int status;
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	cr_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

Test(writer, what_a_killed_run_leaves_is_no_model_and_is_removed_by_the_next)
{
	struct safetensors *s;
	struct gguf *g;
	char file[160];
	killed_run(WRITER_SAFETENSORS);
	cr_assert(access(dst, F_OK) == -1 && access(partial, F_OK) == 0);
	cr_assert_neq(safetensors_open_dir(partial, &s, &why), 0);
	killed_run(WRITER_GGUF);
	snprintf(file, sizeof file, "%s/model.gguf", partial);
	cr_assert_eq(access(file, F_OK), 0);
	cr_assert_neq(gguf_open(file, &g, &why), 0);
	struct writer *w = begin(WRITER_SAFETENSORS);
	put_rows(w);
	cr_assert_eq(writer_commit(&w, &why), 0, "%s", why.text);
	check_safetensors(1);
	snprintf(file, sizeof file, "%s/model.gguf", dst);
	cr_assert_eq(access(file, F_OK), -1);
}

Test(writer, two_runs_do_not_write_the_same_result)
{
	struct writer *w = begin(WRITER_SAFETENSORS), *other;
	cr_assert_eq(writer_new(dst, WRITER_SAFETENSORS, &other, &why), -EBUSY);
	cr_assert(strstr(why.text, "another run"), "%s", why.text);
	put_rows(w);
	cr_assert_eq(writer_commit(&w, &why), 0, "%s", why.text);
	check_safetensors(1);
}
