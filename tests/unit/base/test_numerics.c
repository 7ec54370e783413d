/* The text of numerics classes. */
#include "base/numerics.h"

#include <criterion/criterion.h>

TestSuite(numerics, .timeout = 30);

static char line[NUMERICS_MAX];

Test(numerics, the_cpu_names_its_mode_and_types)
{
	numerics_of_cpu(&(struct numerics_cpu){.mode = "f32"}, line, sizeof line);
	cr_expect_str_eq(line, "cpu f32 order1 draw2");
	numerics_of_cpu(&(struct numerics_cpu){.mode = "int8", .head = "stored", .kv = "int16"}, line,
			sizeof line);
	cr_expect_str_eq(line, "cpu int8 order1 draw2 head-stored kv-int16");
	numerics_of_cpu(&(struct numerics_cpu){.mode = "bf16", .kv = "bf16", .bf16 = true, .bf16_dots = true},
			line, sizeof line);
	cr_expect_str_eq(line, "cpu bf16 order2 draw2 kv-bf16-dots");
}

Test(numerics, a_gpu_names_its_generation)
{
	numerics_of_cuda(90, true, false, line, sizeof line);
	cr_expect_str_eq(line, "cuda sm_90 bf16 codes3 draw2");
	numerics_of_cuda(80, false, true, line, sizeof line);
	cr_expect_str_eq(line, "cuda sm_80 f16 codes3 draw2 fast");
}

Test(numerics, a_worker_adds_what_its_model_and_ranks_need)
{
	struct numerics c = {.device = "cuda", .grammar = 2, .n_ranks = 1};
	numerics_of_worker(&c, line, sizeof line);
	cr_expect_str_eq(line, "cuda grammar=2");
	c.by_context = true;
	c.context = 4096;
	c.n_ranks = 2;
	c.ep = true;
	c.layers = "all";
	c.hot = "";
	c.host = "cpu f32";
	numerics_of_worker(&c, line, sizeof line);
	cr_expect_str_eq(line, "cuda ctx=4096 grammar=2 tp=2 ep experts=all on cpu f32");
	c.hot = "hot=4:00ff";
	numerics_of_worker(&c, line, sizeof line);
	cr_expect_str_eq(line, "cuda ctx=4096 grammar=2 tp=2 ep experts=all hot=4:00ff on cpu f32");
	numerics_of_worker(&c, line, 20);
	cr_expect_str_eq(line, "cuda ctx=4096 gramm");
}

Test(numerics, without_a_constraint_the_grammar_engine_does_not_matter)
{
	numerics_of_output(false, "f32 fast grammar=2 tp=2", line, sizeof line);
	cr_expect_str_eq(line, "f32 fast tp=2");
	numerics_of_output(false, "f32 grammar=12", line, sizeof line);
	cr_expect_str_eq(line, "f32");
	numerics_of_output(false, "f32 tp=2", line, sizeof line);
	cr_expect_str_eq(line, "f32 tp=2");
	numerics_of_output(true, "f32 grammar=2", line, sizeof line);
	cr_expect_str_eq(line, "f32 grammar=2");
	numerics_of_output(false, "f32 fast grammar=2 tp=2", line, 8);
	cr_expect_str_eq(line, "f32 fas");
	cr_expect(numerics_same("f32 tp=2", "f32 tp=2") && !numerics_same("f32 tp=2", "f32 tp=4"));
}
