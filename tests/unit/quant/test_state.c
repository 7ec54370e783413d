/* test_state.c - the files of an interrupted run, and their use by the next run. */
#include "base/file.h"
#include "quant/state.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LAYERS = 2, ROWS = 10, HIDDEN = 32, GROUP = 32 };

static struct model_config config = {.n_layers = LAYERS,
				     .hidden = HIDDEN,
				     .intermediate = HIDDEN,
				     .n_heads = 1,
				     .n_kv_heads = 1,
				     .head_dim = HIDDEN};
static float values[HIDDEN * HIDDEN];
static struct weights_layer layer;
static struct why why;
static char dir[64], dst[96];

static void linear(struct weights_linear *l, const char *name)
{
	*l = (struct weights_linear){
		.n = HIDDEN, .k = HIDDEN, .kind = WEIGHTS_DENSE, .dtype = CONFIG_F32, .w = values};
	snprintf(l->name, sizeof l->name, "model.layers.0.%s", name);
}

static void begin(void)
{
	strcpy(dir, "/tmp/quern-state-XXXXXX");
	cr_assert(mkdtemp(dir));
	snprintf(dst, sizeof dst, "%s/out", dir);
	model_config_plan(&config);
	layer.attn_norm = layer.ffn_norm = (struct weights_vec){values, CONFIG_F32, HIDDEN};
	linear(&layer.q, "self_attn.q_proj");
	linear(&layer.k, "self_attn.k_proj");
	linear(&layer.v, "self_attn.v_proj");
	linear(&layer.o, "self_attn.o_proj");
	linear(&layer.gate, "mlp.gate_proj");
	linear(&layer.up, "mlp.up_proj");
	linear(&layer.down, "mlp.down_proj");
}

static void end(void)
{
	char cmd[128];
	snprintf(cmd, sizeof cmd, "rm -r '%s'", dir);
	cr_assert_eq(system(cmd), 0);
}

TestSuite(state, .init = begin, .fini = end);

static struct state *open_with(uint64_t fingerprint)
{
	struct state *s = NULL;
	cr_assert_eq(state_open(&s, dst, fingerprint, LAYERS, ROWS, HIDDEN, &why), 0, "%s", why.text);
	return s;
}

/* Make a plan with results in all its parts but down_proj, which is kept unchanged. */
static void plan(struct layer_plan *p, int index, bool results)
{
	char *keep[] = {"down_proj"};
	layer_plan_init(p, &config, &layer, index, GROUP, keep, 1);
	for (int i = 0; results && i < p->n_linears; i++) {
		struct layer_linear *l = &p->linears[i];
		if (l->kept)
			continue;
		l->qweight = calloc(HIDDEN * HIDDEN / 8, 4);
		l->qzeros = calloc(HIDDEN / 8, 4);
		l->scales = calloc(HIDDEN, 2);
		l->qweight[3] = (uint32_t)i + 77;
		l->outputs = (struct layer_error){1, 0.5, 0.25, 0.125};
	}
	if (results) {
		p->blocks[0].in_by = calloc(HIDDEN, sizeof(float));
		p->blocks[0].in_by[1] = 3;
		p->blocks[0].n_rows = 19;
	}
}

static void save(struct state *s, int index)
{
	struct layer_plan p;
	float *x = NULL;
	plan(&p, index, true);
	if (index == 0) {
		cr_assert_eq(state_rows_new(s, 0, &x, &why), 0, "%s", why.text);
		state_rows_unmap(s, x);
	}
	cr_assert_eq(state_rows_new(s, index + 1, &x, &why), 0, "%s", why.text);
	x[ROWS * HIDDEN - 1] = 42;
	cr_assert_eq(state_save(s, &p, x, &why), 0, "%s", why.text);
	state_rows_unmap(s, x);
	layer_plan_fini(&p);
}

Test(state, a_run_goes_on_behind_the_layers_that_are_there)
{
	struct state *s = open_with(5);
	struct layer_plan p;
	const float *x;
	cr_assert_eq(state_n_done(s), 0);
	save(s, 0);
	state_close(s);
	s = open_with(5);
	cr_assert_eq(state_n_done(s), 1);
	cr_assert_eq(state_rows(s, 1, &x, &why), 0, "%s", why.text);
	cr_assert_float_eq(x[ROWS * HIDDEN - 1], 42, 0);
	state_rows_unmap(s, x);
	cr_assert_eq(state_rows(s, 0, &x, &why), -ENOENT); /* the layer is done */
	plan(&p, 0, false);
	cr_assert_eq(state_load(s, &p, &why), 0, "%s", why.text);
	cr_assert_eq(p.linears[1].qweight[3], 78);
	cr_assert_float_eq(p.linears[1].outputs.cosine, 0.25, 0);
	cr_assert_float_eq(p.blocks[0].in_by[1], 3, 0);
	cr_assert_eq(p.blocks[0].n_rows, 19);
	for (int i = 0; i < p.n_linears; i++)
		cr_assert_eq(p.linears[i].kept, p.linears[i].qweight == NULL);
	layer_plan_fini(&p);
	state_remove(&s);
	cr_assert_not(file_is_dir(strcat(dst, ".state")));
}

Test(state, another_fingerprint_begins_anew)
{
	struct state *s = open_with(5);
	save(s, 0);
	state_close(s);
	s = open_with(6);
	cr_assert_eq(state_n_done(s), 0);
	state_close(s);
	s = open_with(5);
	cr_assert_eq(state_n_done(s), 0);
	state_close(s);
}

Test(state, one_run_at_a_time)
{
	struct state *s = open_with(5), *other = NULL;
	cr_assert_eq(state_open(&other, dst, 5, LAYERS, ROWS, HIDDEN, &why), -EBUSY);
	cr_assert_null(other);
	state_close(s);
}

Test(state, a_directory_that_is_not_ours_is_left_alone)
{
	char path[160];
	struct state *s = NULL;
	snprintf(path, sizeof path, "%s.state", dst);
	mkdir(path, 0777);
	strcat(path, "/thesis.txt");
	close(open(path, O_CREAT | O_WRONLY, 0666));
	cr_assert_eq(state_open(&s, dst, 5, LAYERS, ROWS, HIDDEN, &why), -EEXIST);
	cr_assert(file_exists(path));
}

Test(state, damage_is_noticed_wherever_it_is)
{
	char path[160];
	struct state *s = open_with(5);
	save(s, 0);
	snprintf(path, sizeof path, "%s.state/layer-000", dst);
	struct stat st;
	cr_assert_eq(stat(path, &st), 0);
	for (off_t at = 0; at < st.st_size; at += st.st_size / 40) {
		struct layer_plan p;
		unsigned char b = 0;
		const int fd = open(path, O_RDWR);
		cr_assert_geq(pread(fd, &b, 1, at), 0);
		b ^= 16;
		cr_assert_eq(pwrite(fd, &b, 1, at), 1);
		plan(&p, 0, false);
		cr_assert_eq(state_load(s, &p, &why), -EINVAL, "byte %ld", (long)at);
		layer_plan_fini(&p);
		b ^= 16;
		cr_assert_eq(pwrite(fd, &b, 1, at), 1);
		close(fd);
	}
	struct layer_plan p;
	cr_assert_eq(truncate(path, st.st_size - 1), 0);
	plan(&p, 0, false);
	cr_assert_eq(state_load(s, &p, &why), -EINVAL, "one byte short");
	layer_plan_fini(&p);
	state_close(s);
}

Test(state, result_of_another_run_is_told_apart)
{
	struct state *s = open_with(5);
	cr_expect(!state_is_written(s, dst));
	cr_assert_eq(mkdir(dst, 0700), 0);
	cr_expect(!state_is_written(s, dst));
	cr_assert_eq(state_written(s, dst, &why), 0, "%s", why.text);
	cr_expect(state_is_written(s, dst));
	char old[200];
	snprintf(old, sizeof old, "%s.old", dst);
	cr_assert_eq(rename(dst, old), 0);
	cr_assert_eq(mkdir(dst, 0700), 0);
	cr_expect(!state_is_written(s, dst), "another directory of the same name");
	cr_assert_eq(rmdir(dst), 0);
	cr_assert_eq(rmdir(old), 0);
	state_close(s);
}
