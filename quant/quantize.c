#include "quant/quantize.h"

#include "base/options.h"
#include "cli/terminal/term.h"
#include "cli/terminal/usage.h"
#include "quant/awq_command.h"
#include "quant/awq_run.h"
#include "quant/compare.h"
#include "quant/int4.h"
#include "quant/round/gguf_quantize.h"
#include "quant/round/hf_quantize.h"

#include <stdlib.h>
#include <string.h>

/* By the word of --type. */
static int run_gguf(const char *src, const char *dst, const struct opts *o, char *why, size_t why_n)
{
	interrupt_arm();
	const int rc = gguf_quantize(src, dst, opts_text(o, "type", NULL), why, why_n);
	interrupt_disarm();
	return rc;
}

static int run_hf(const char *src, const char *dst, const struct opts *o, char *why, size_t why_n)
{
	interrupt_arm();
	const int rc = hf_quantize(src, dst, opts_text(o, "type", NULL), int4_pack, why, why_n);
	interrupt_disarm();
	return rc;
}

static const struct quantize_type types[] = {
	{"q8_0", run_gguf},   {"q4_0", run_gguf}, {"q4_k", run_gguf}, {"q6_k", run_gguf},
	{"int4-rtn", run_hf}, {"int8", run_hf},   {"fp8", run_hf},    {"awq4", awq_command},
};
enum { N_TYPES = sizeof types / sizeof *types };

enum { EVAL_TOKENS_MAX = 1 << 24, THREADS_MAX = 1024 };

static const struct opt quantize_options[] = {
	OPT("type", OPT_TEXT, "TYPE",
	    "of the new weights: q8_0, q4_0, q4_k, q6_k, int4-rtn, int8, fp8, awq4"),
	OPT("compare", OPT_FLAG, NULL, "instead: perplexity of two models on a text, and KL between them"),
	OPT("json", OPT_FLAG, NULL, "--compare: figures as JSON"),
	OPT("eval-tokens", OPT_INT, "N", "compare models on at most so many tokens (8192); 0: do not",
	    .lo = 0, .hi = EVAL_TOKENS_MAX),
	OPT("threads", OPT_INT, "N", "threads of a calibration or comparison (one per core)", .lo = 1,
	    .hi = THREADS_MAX),
};

static const struct usage usage = {
	.name = "quantize",
	.words = "MODEL DST | --compare A B TEXT",
	.about =
		"Writes MODEL, a directory of safetensors with floats, as a model with quantized weights to "
		"DST,\nwhich must not exist.\n\n"
		"  q8_0, q4_0, q4_k, q6_k  a GGUF file, rounded to nearest as llama.cpp does without a text\n"
		"  int4-rtn                a directory: AWQ of 4 bits, rounded to nearest\n"
		"  int8, fp8               a directory: compressed-tensors, a scale for each output\n"
		"  awq4                    a directory: AWQ of 4 bits, calibrated on a text\n\n"
		"With --compare: tells how far model B is from model A on the text of a file.",
	.min_words = 2,
	.max_words = 3,
};

static int compare(const struct opts *o)
{
	char why[1024];
	if (o->n_words != 3)
		return term_usage(usage.name, "--compare takes two models and a text: A B TEXT");
	const struct compare_options c = {.a = o->words[0],
					  .b = o->words[1],
					  .text = o->words[2],
					  .n_tokens = (int)opts_int(o, "eval-tokens", AWQ_EVAL_TOKENS),
					  .n_threads = (int)opts_int(o, "threads", 0),
					  .json = opts_flag(o, "json")};
	if (c.n_tokens < 2)
		return term_usage(usage.name, "--compare needs --eval-tokens of 2 or more");
	return compare_run(&c, why, sizeof why) ? term_error("%s", why) : EXIT_SUCCESS;
}

/* An option of awq4 with another type, or with --compare. */
static const char *misplaced(const struct opts *o, const char *type)
{
	for (size_t i = 0; i < awq_command_n_options; i++)
		if (opts_has(o, awq_command_options[i].name) && (!type || strcmp(type, "awq4") != 0))
			return awq_command_options[i].name;
	return NULL;
}

static int run(const struct opts *o)
{
	char why[1024];
	const char *name = opts_text(o, "type", NULL), *names[N_TYPES];
	const char *other = misplaced(o, name);
	if (opts_flag(o, "compare") && !name && !other)
		return compare(o);
	if (opts_flag(o, "compare"))
		return term_usage(usage.name, "--%s does not go with --compare", name ? "type" : other);
	if (!name)
		return term_usage(usage.name, "--type is missing");
	if (other)
		return term_usage(usage.name, "--%s goes with --type awq4", other);
	if (strcmp(name, "awq4") != 0 && (opts_has(o, "threads") || opts_has(o, "eval-tokens")))
		return term_usage(usage.name, "--%s goes with --type awq4 or --compare",
				  opts_has(o, "threads") ? "threads" : "eval-tokens");
	if (opts_flag(o, "json"))
		return term_usage(usage.name, "--json goes with --compare");
	if (o->n_words != 2)
		return term_usage(usage.name, "two arguments are needed: MODEL DST");
	for (size_t i = 0; i < N_TYPES; i++) {
		names[i] = types[i].name;
		if (strcmp(types[i].name, name) != 0)
			continue;
		return types[i].run(o->words[0], o->words[1], o, why, sizeof why) ? term_error("%s", why)
										  : EXIT_SUCCESS;
	}
	const char *near = nearest_name(name, names, N_TYPES);
	return term_usage(usage.name, "unknown --type %.40s%s%s%s", name, near ? "; did you mean " : "",
			  near ? near : "", near ? "?" : "");
}

int cmd_quantize(int argc, char **argv)
{
	struct opts o = {0};
	opts_add(&o, quantize_options, sizeof quantize_options / sizeof *quantize_options);
	opts_add(&o, awq_command_options, awq_command_n_options);
	int status = command_parse(&o, &usage, argc, argv);
	if (status == COMMAND_GO_ON)
		status = run(&o);
	opts_fini(&o);
	return term_finish(status);
}
