#include "quant/quantize.h"

#include "base/options.h"
#include "cli/terminal/term.h"
#include "cli/terminal/usage.h"
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
	{"int4-rtn", run_hf}, {"int8", run_hf},   {"fp8", run_hf},    {"awq4", NULL},
};
enum { N_TYPES = sizeof types / sizeof *types };

static const struct opt quantize_options[] = {
	OPT("type", OPT_TEXT, "TYPE",
	    "of the new weights: q8_0, q4_0, q4_k, q6_k, int4-rtn, int8, fp8, awq4"),
};

static const struct usage usage = {
	.name = "quantize",
	.words = "MODEL DST",
	.about =
		"Writes MODEL, a directory of safetensors with floats, as a model with quantized weights to "
		"DST,\nwhich must not exist.\n\n"
		"  q8_0, q4_0, q4_k, q6_k  a GGUF file, rounded to nearest as llama.cpp does without a text\n"
		"  int4-rtn                a directory: AWQ of 4 bits, rounded to nearest\n"
		"  int8, fp8               a directory: compressed-tensors, a scale for each output",
	.min_words = 2,
	.max_words = 2,
};

static int run(const struct opts *o)
{
	char why[1024];
	const char *name = opts_text(o, "type", NULL), *names[N_TYPES];
	if (!name)
		return term_usage(usage.name, "--type is missing");
	for (size_t i = 0; i < N_TYPES; i++) {
		names[i] = types[i].name;
		if (strcmp(types[i].name, name) != 0)
			continue;
		if (!types[i].run)
			return term_error("quantize --type %s is not built yet", name);
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
	int status = command_parse(&o, &usage, argc, argv);
	if (status == COMMAND_GO_ON)
		status = run(&o);
	opts_fini(&o);
	return term_finish(status);
}
