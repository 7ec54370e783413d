#include "quant/quantize.h"

#include "base/block_types.h"
#include "base/option_table.h"
#include "cli/models/cache.h"
#include "cli/terminal/term.h"
#include "cli/terminal/usage.h"
#include "quant/awq_run.h"
#include "quant/compare.h"
#include "quant/round/gguf_quantize.h"
#include "quant/round_run.h"

#include <stdlib.h>
#include <string.h>

static int run_round(const struct quantize_options *q, const struct opts *o, struct why *why)
{
	const struct round_importance i = {.file = opts_text(o, "imatrix"),
					   .text = opts_text(o, "calibrate"),
					   .n_tokens = (int)opts_int(o, "tokens"),
					   .save = opts_text(o, "save-imatrix")};
	return round_run(q, &i, why);
}

static const struct quantize_type types[] = {
#define BLOCKS(number, NAME, name, ...) {#name, run_round},
	{"int4-rtn", run_round},
	{"int8", run_round},
	{"fp8", run_round},
	{"awq4", awq_command},
	BLOCK_TYPES(BLOCK_NONE, BLOCKS)};
enum { N_TYPES = sizeof types / sizeof *types };

static const struct usage usage = {
	.name = "quantize",
	.words = "MODEL DST | --compare A B TEXT",
	.about =
		"Quantizes the weights of MODEL, a directory of safetensors with floats, and writes the "
		"model "
		"to\nDST, which must not exist.  For the types of a GGUF file, MODEL may be a GGUF file with "
		"floats\nor Q8_0.\n\n"
		"  " BLOCK_WORDS_WRITTEN "\n"
		"                          a GGUF file, rounded as llama.cpp does; from q4_k on with an "
		"importance\n"
		"                          matrix (--imatrix, --calibrate) or without\n"
		"  int4-rtn                a directory: AWQ of 4 bits, rounded to nearest\n"
		"  int8, fp8               a directory: compressed-tensors, a scale for each output\n"
		"  awq4                    a directory: AWQ of 4 bits, calibrated on a text\n\n"
		"With --compare: prints how far model B is from model A on the text of a file.",
	.min_words = 2,
	.max_words = 3,
};

static int compare(const struct opts *o)
{
	struct why why;
	char a[PATH_MAX], b[PATH_MAX], name[CACHED_NAME];
	if (o->n_words != 3)
		return term_usage(usage.name, "--compare takes two models and a text: A B TEXT");
	cache_find(o->words[0], a, name);
	cache_find(o->words[1], b, name);
	const struct compare_options c = {.a = a,
					  .b = b,
					  .text = o->words[2],
					  .n_tokens = (int)opts_int(o, "eval-tokens"),
					  .n_threads = (int)opts_int(o, "threads"),
					  .json = opts_flag(o, "json")};
	if (c.n_tokens < 2)
		return term_usage(usage.name, "--compare needs --eval-tokens of 2 or more");
	return compare_run(&c, &why) ? term_error("%s", why.text) : EXIT_SUCCESS;
}

/* Return the first given option that concerns writing a model; NULL: none. */
static const char *of_writing(const struct opts *o)
{
	static const char *const names[] = {"keep", "keep-worst", "report", "eval"};
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		if (opts_has(o, names[i]))
			return names[i];
	return NULL;
}

/* Return the flag of the options that the type has alone, or with others; 0: it has none of those. */
static unsigned own_options(const char *type)
{
	return strcmp(type, "awq4") == 0 ? OPT_AWQ4 : gguf_quantize_weighs(type) ? OPT_IMATRIX : 0;
}

/* Return a given option that some types have, but not all those of the flag `own`; NULL: none. */
static const char *of_others(const struct opts *o, unsigned own)
{
	for (size_t i = 0; i < o->n_values; i++) {
		const unsigned pass = (unsigned)o->values[i].spec->pass & (OPT_AWQ4 | OPT_IMATRIX);
		if (pass && !(pass & own) && o->values[i].n_texts)
			return o->values[i].spec->name;
	}
	return NULL;
}

/* Name the types that have the option. */
static const char *types_of(const struct opts *o, const char *option)
{
	const int pass = opts_value(o, option)->spec->pass;
	return !(pass & OPT_IMATRIX) ? "awq4"
	       : !(pass & OPT_AWQ4)  ? "q4_k, q5_k, q6_k or iq4_xs"
				     : "awq4, q4_k, q5_k, q6_k or iq4_xs";
}

/* Refuse options of calibration that contradict each other. */
static int check_imatrix(const struct opts *o)
{
	const bool text = opts_has(o, "calibrate"), file = opts_has(o, "imatrix");
	if (text && file)
		return term_usage(usage.name, "--imatrix does not go with --calibrate");
	if (opts_has(o, "save-imatrix") && !text)
		return term_usage(usage.name, "--save-imatrix needs a text: name one with --calibrate FILE");
	if (opts_has(o, "tokens") && !text)
		return term_usage(usage.name, "--tokens needs a text: name one with --calibrate FILE");
	return 0;
}

/* Refuse measuring options without a text. */
static int check_text(const struct opts *o)
{
	static const char *const names[] = {"report", "keep-worst", "threads", "eval-tokens"};
	if (!opts_has(o, "eval") && opts_int(o, "keep-worst") == 0 && !opts_has(o, "report") &&
	    !opts_has(o, "threads") && !opts_has(o, "eval-tokens"))
		return 0;
	for (size_t i = 0; !opts_has(o, "eval") && i < sizeof names / sizeof *names; i++)
		if (opts_has(o, names[i]))
			return term_usage(usage.name,
					  "--%s needs a text to measure on: name one with --eval FILE",
					  names[i]);
	if (opts_int(o, "eval-tokens") < 2)
		return term_usage(usage.name, "--eval needs --eval-tokens of 2 or more");
	return 0;
}

static int write_model(const struct quantize_type *type, const struct opts *o)
{
	struct why why;
	char source[PATH_MAX], name[CACHED_NAME];
	cache_find(o->words[0], source, name);
	const struct opt_value *keep = opts_value(o, "keep"), *reports = opts_value(o, "report");
	const struct quantize_options q = {.source = source,
					   .dst = o->words[1],
					   .type = type->name,
					   .eval = opts_text(o, "eval"),
					   .n_eval = (int)opts_int(o, "eval-tokens"),
					   .n_threads = (int)opts_int(o, "threads"),
					   .keep = keep->texts,
					   .n_keep = keep->n_texts,
					   .keep_worst = (int)opts_int(o, "keep-worst"),
					   .reports = reports->texts,
					   .n_reports = reports->n_texts};
	return type->run(&q, o, &why) ? term_error("%s", why.text) : EXIT_SUCCESS;
}

static int run(struct opts *o)
{
	const char *name = opts_text(o, "type"), *names[N_TYPES];
	const char *own = of_others(o, 0), *writing = of_writing(o), *other = own ? own : writing;
	if (opts_flag(o, "compare") && !name && !other)
		return compare(o);
	if (opts_flag(o, "compare"))
		return term_usage(usage.name, "--%s does not go with --compare", name ? "type" : other);
	if (!name)
		return term_usage(usage.name, "--type is missing");
	const char *alien = of_others(o, own_options(name));
	if (alien)
		return term_usage(usage.name, "--%s goes with --type %s", alien, types_of(o, alien));
	if (strcmp(name, "awq4") != 0 && (check_imatrix(o) || check_text(o)))
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
	return command_run(&usage, OPTION_QUANTIZE, run, argc, argv);
}
