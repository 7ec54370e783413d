#include "quant/quantize.h"

#include "base/options.h"
#include "cli/terminal/term.h"
#include "cli/terminal/usage.h"
#include "quant/awq_command.h"
#include "quant/compare.h"
#include "quant/round_run.h"

#include <stdlib.h>
#include <string.h>

/* Types that are rounded to nearest have no options of their own. */
static int run_round(const struct quantize_options *q, const struct opts *o, char *why, size_t why_n)
{
	(void)o;
	return round_run(q, why, why_n);
}

static const struct quantize_type types[] = {
	{"q8_0", run_round},     {"q4_0", run_round}, {"q4_k", run_round}, {"q6_k", run_round},
	{"int4-rtn", run_round}, {"int8", run_round}, {"fp8", run_round},  {"awq4", awq_command},
};
enum { N_TYPES = sizeof types / sizeof *types };

enum { EVAL_TOKENS_MAX = 1 << 24, THREADS_MAX = 1024, WORST_MAX = 100000 };

static const struct opt quantize_options[] = {
	OPT("type", OPT_TEXT, "TYPE",
	    "of the new weights: q8_0, q4_0, q4_k, q6_k, int4-rtn, int8, fp8, awq4"),
	OPT("keep", OPT_LIST, "PATTERN",
	    "leave parts of such names in floats, as in --keep 'layers.0.*down_proj'"),
	OPT("keep-worst", OPT_INT, "N", "leave the N parts with the worst outputs in floats", .lo = 0,
	    .hi = WORST_MAX),
	OPT("report", OPT_LIST, "FILE", "what it cost, as HTML (.html) or JSON"),
	OPT("eval", OPT_TEXT, "FILE",
	    "text on which both models are compared (awq4: that of --calibrate; other types: no comparison)"),
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
					  .n_tokens = (int)opts_int(o, "eval-tokens", QUANTIZE_EVAL_TOKENS),
					  .n_threads = (int)opts_int(o, "threads", 0),
					  .json = opts_flag(o, "json")};
	if (c.n_tokens < 2)
		return term_usage(usage.name, "--compare needs --eval-tokens of 2 or more");
	return compare_run(&c, why, sizeof why) ? term_error("%s", why) : EXIT_SUCCESS;
}

/* An option that says how a model is written, of those that are given. */
static const char *of_writing(const struct opts *o)
{
	static const char *const names[] = {"keep", "keep-worst", "report", "eval"};
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		if (opts_has(o, names[i]))
			return names[i];
	return NULL;
}

/* An option of awq4. */
static const char *of_awq4(const struct opts *o)
{
	for (size_t i = 0; i < awq_command_n_options; i++)
		if (opts_has(o, awq_command_options[i].name))
			return awq_command_options[i].name;
	return NULL;
}

/* Options that measure, without a text. */
static int check_text(const struct opts *o)
{
	static const char *const names[] = {"report", "keep-worst", "threads", "eval-tokens"};
	if (!opts_has(o, "eval") && opts_int(o, "keep-worst", 0) == 0 && !opts_has(o, "report") &&
	    !opts_has(o, "threads") && !opts_has(o, "eval-tokens"))
		return 0;
	for (size_t i = 0; !opts_has(o, "eval") && i < sizeof names / sizeof *names; i++)
		if (opts_has(o, names[i]))
			return term_usage(usage.name,
					  "--%s needs a text to measure on: name one with --eval FILE",
					  names[i]);
	if (opts_int(o, "eval-tokens", QUANTIZE_EVAL_TOKENS) < 2)
		return term_usage(usage.name, "--eval needs --eval-tokens of 2 or more");
	return 0;
}

static int write_model(const struct quantize_type *type, const struct opts *o)
{
	char why[1024];
	const struct opt_value *keep = opts_value(o, "keep"), *reports = opts_value(o, "report");
	const struct quantize_options q = {.source = o->words[0],
					   .dst = o->words[1],
					   .type = type->name,
					   .eval = opts_text(o, "eval", NULL),
					   .n_eval = (int)opts_int(o, "eval-tokens", QUANTIZE_EVAL_TOKENS),
					   .n_threads = (int)opts_int(o, "threads", 0),
					   .keep = keep->texts,
					   .n_keep = keep->n_texts,
					   .keep_worst = (int)opts_int(o, "keep-worst", 0),
					   .reports = reports->texts,
					   .n_reports = reports->n_texts};
	return type->run(&q, o, why, sizeof why) ? term_error("%s", why) : EXIT_SUCCESS;
}

static int run(const struct opts *o)
{
	const char *name = opts_text(o, "type", NULL), *names[N_TYPES];
	const char *awq4 = of_awq4(o), *writing = of_writing(o), *other = awq4 ? awq4 : writing;
	if (opts_flag(o, "compare") && !name && !other)
		return compare(o);
	if (opts_flag(o, "compare"))
		return term_usage(usage.name, "--%s does not go with --compare", name ? "type" : other);
	if (!name)
		return term_usage(usage.name, "--type is missing");
	if (awq4 && strcmp(name, "awq4") != 0)
		return term_usage(usage.name, "--%s goes with --type awq4", awq4);
	if (strcmp(name, "awq4") != 0 && check_text(o))
		return EXIT_USAGE;
	if (opts_flag(o, "json"))
		return term_usage(usage.name, "--json goes with --compare");
	if (o->n_words != 2)
		return term_usage(usage.name, "two arguments are needed: MODEL DST");
	for (size_t i = 0; i < N_TYPES; i++) {
		names[i] = types[i].name;
		if (strcmp(types[i].name, name) == 0)
			return write_model(&types[i], o);
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
