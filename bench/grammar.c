/* The files are in the format of MaskBench (github.com/guidance-ai/jsonschemabench): {"schema": ..., "tests":
 * [{"data": ..., "valid": true}, ...]}.  A schema passes if it compiles, every valid text is accepted to its
 * end, and every invalid text is rejected at some token.  In addition to MaskBench's rules, the grammar must
 * be able to end after a valid text.  Times are this thread's CPU time, so that other load on the machine
 * does not count. */
#include "bench/commands.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/file.h"
#include "base/json.h"
#include "base/option_table.h"
#include "bench/pyjson.h"
#include "bench/sim/samples.h"
#include "cli/command.h"
#include "cli/terminal/term.h"
#include "controller/tokenizer/tokenizer.h"
#include "grammar/grammar.h"
#include "grammar/schema/schema.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { FILE_BYTES_MAX = 64 << 20, ANY_ORDER_MEMBERS = 100 };

static const struct usage usage = {
	.name = "bench grammar",
	.words = "DIR",
	.about = "Compiles the JSON schemas in DIR (files in MaskBench's format), computes a mask for every "
		 "token of\n"
		 "their texts, and prints MaskBench's table.",
	.min_words = 1,
	.max_words = 1,
};

struct bench {
	struct tokenizer *tokenizer;
	struct lexicon *vocab;
	struct schema_options options;
	FILE *results;
	struct samples mask_us, compile_us;
	size_t n_schemas, n_passing, n_refused, n_invalid, n_accepted,
		n_tokens; /* n_accepted: schemas that accepted an invalid text */
};

/* Result of one schema. */
struct outcome {
	double compile_us, mask_us, mask_max_us;
	size_t n_tokens;
	uint64_t work; /* units of compilation work (grammar/work.h) */
	bool too_strict, too_loose;
	struct why why;
};

static double now_us(void)
{
	struct timespec t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int make_vocab(struct bench *b, struct why *why)
{
	const uint32_t n = tokenizer_n_vocab(b->tokenizer);
	struct lexicon_token *tokens = xcalloc(n, sizeof *tokens);
	size_t *at = xcalloc(n + 1, sizeof *at);
	struct buf bytes = {0};
	for (uint32_t i = 0; i < n; i++) {
		tokenizer_piece(b->tokenizer, i, &bytes);
		at[i + 1] = bytes.len;
	}
	for (uint32_t i = 0; i < n; i++) {
		const bool end = tokenizer_eos(b->tokenizer) == i;
		tokens[i] =
			(struct lexicon_token){.bytes = bytes.p + at[i], .n = (uint32_t)(at[i + 1] - at[i])};
		tokens[i].kind = end                                     ? LEXICON_END
				 : tokenizer_is_special(b->tokenizer, i) ? LEXICON_CONTROL
									 : LEXICON_TEXT;
	}
	int rc = lexicon_new(tokens, n, &b->vocab, why);
	buf_fini(&bytes);
	free(at);
	free(tokens);
	return rc;
}

static int compile(struct bench *b, const json_t *schema, struct grammar **g, uint64_t *work, struct why *why)
{
	int node, rc;
	struct grammar_account account = {.units = UINT64_MAX};
	const struct grammar_limits limits = {.work = {.account = &account}};
	struct ast *a = ast_new(&(struct ast_limits){.account = &account});
	rc = schema_node(a, schema, &b->options, &node, why);
	if (rc == 0) {
		ast_start(a, node);
		rc = grammar_new(a, b->vocab, &limits, g, why);
	}
	*work = account.used;
	ast_free(a);
	return rc;
}

/* Follow a text token by token, with a mask before each.  Returns false if the grammar rejects a token, or
 * cannot end after a valid text. */
static bool follow(struct bench *b, struct grammar *g, const struct token_ids *ids, bool valid,
		   struct outcome *out)
{
	struct matcher *m = matcher_new(g);
	bool taken = true, end = true;
	for (size_t i = 0; i < ids->n && taken; i++) {
		const uint32_t *mask, id = ids->ids[i];
		double begin = now_us();
		grammar_allow(g, (struct grammar_work){.units = GRAMMAR_MASK_WORK_MAX}); /* a worker's
											  * limit */
		taken = matcher_mask(m, &mask) == 0 && mask[id / 32] >> id % 32 & 1;
		if (taken)
			taken = matcher_accept(m, id) == 0;
		double us = now_us() - begin;
		samples_add(&b->mask_us, us);
		out->mask_us += us;
		out->mask_max_us = us > out->mask_max_us ? us : out->mask_max_us;
		out->n_tokens++;
	}
	if (taken && valid)
		taken = matcher_can_end(m, &end) == 0 && end;
	matcher_free(m);
	return taken;
}

static int run_tests(struct bench *b, struct grammar *g, const json_t *tests, struct outcome *out,
		     struct why *why)
{
	struct token_ids ids = {0};
	struct buf text = {0};
	int rc = 0;
	for (size_t i = 0; i < json_array_size(tests) && rc == 0; i++) {
		const json_t *test = json_array_get(tests, i), *data = json_object_get(test, "data");
		const bool valid = json_is_true(json_object_get(test, "valid"));
		if (!data)
			continue;
		ids.n = 0;
		buf_clear(&text);
		pyjson_put(&text, data);
		rc = tokenizer_encode(b->tokenizer, text.p, text.len, TOKENIZER_NO_SPECIAL, NULL, 0, &ids,
				      why);
		if (rc)
			break;
		bool taken = follow(b, g, &ids, valid, out);
		if (taken == valid)
			continue;
		out->too_loose = out->too_loose || taken;
		out->too_strict = out->too_strict || valid;
		if (!out->why.text[0])
			err_why(&out->why, 0, "test %zu: should %s but did not", i,
				valid ? "accept" : "reject");
	}
	token_ids_fini(&ids);
	buf_fini(&text);
	return rc;
}

static void write_result(struct bench *b, const char *name, const struct outcome *out, bool refused)
{
	if (!b->results)
		return;
	json_t *o = json_pack("{s:s, s:f, s:I, s:f, s:f, s:I}", "id", name, "ttfm_us", out->compile_us,
			      "work", (json_int_t)out->work, "masks_us", out->mask_us, "max_mask_us",
			      out->mask_max_us, "num_tokens", (json_int_t)out->n_tokens);
	if (out->why.text[0])
		json_object_set_new(o, refused ? "compile_error" : "validation_error",
				    json_string(out->why.text));
	json_dumpf(o, b->results, JSON_COMPACT);
	fputc('\n', b->results);
	json_decref(o);
}

static int run_file(struct bench *b, const char *path, const char *name, struct why *why)
{
	struct outcome out = {0};
	struct grammar *g = NULL;
	json_t *file = NULL;
	b->n_schemas++;
	/* A file that base/json.h rejects counts as a refused schema. */
	int rc = json_read(path, FILE_BYTES_MAX, &file, &out.why);
	if (rc == -ENOENT || rc == -EACCES)
		return err_why(why, rc, "%s", out.why.text);
	if (rc == 0) {
		double begin = now_us();
		rc = compile(b, json_object_get(file, "schema"), &g, &out.work, &out.why);
		out.compile_us = now_us() - begin;
	}
	if (rc) {
		b->n_refused++;
		write_result(b, name, &out, true);
		json_decref(file);
		return 0;
	}
	out.why.text[0] = 0;
	samples_add(&b->compile_us, out.compile_us);
	rc = run_tests(b, g, json_object_get(file, "tests"), &out, why);
	b->n_tokens += out.n_tokens;
	if (out.too_loose)
		b->n_accepted++;
	else if (out.too_strict)
		b->n_invalid++;
	else
		b->n_passing++;
	write_result(b, name, &out, false);
	grammar_free(g);
	json_decref(file);
	return rc;
}

/* ---- report ---- */

static const double percentiles[] = {25, 50, 75, 90, 95, 99, 99.9, 100};

static void print_times(const char *name, struct samples *s)
{
	printf("| %s avg %*s | %10.0f |\n", name, (int)(12 - strlen(name)), "", samples_mean(s));
	for (size_t i = 0; i < sizeof percentiles / sizeof *percentiles; i++)
		printf("| %s p%-*g | %10.0f |\n", name, (int)(15 - strlen(name)), percentiles[i],
		       samples_percentile(s, percentiles[i]));
}

static json_t *times(struct samples *s)
{
	json_t *o = json_pack("{s:f}", "avg", samples_mean(s));
	for (size_t i = 0; i < sizeof percentiles / sizeof *percentiles; i++) {
		char key[16];
		snprintf(key, sizeof key, "p%g", percentiles[i]);
		json_object_set_new(o, key, json_real(samples_percentile(s, percentiles[i])));
	}
	return o;
}

static void report(struct bench *b, bool as_json)
{
	const struct {
		const char *name;
		size_t n;
	} rows[] = {{"tokens", b->n_tokens},
		    {"schemas", b->n_schemas},
		    {"passing", b->n_passing},
		    {"compile error", b->n_refused},
		    {"validation error", b->n_invalid},
		    {"invalidation error", b->n_accepted}};
	const size_t n = sizeof rows / sizeof *rows;
	if (as_json) {
		json_t *o = json_pack("{s:o, s:o}", "TBM", times(&b->mask_us), "TTFM", times(&b->compile_us));
		for (size_t i = 0; i < n; i++)
			json_object_set_new(o, rows[i].name, json_integer((json_int_t)rows[i].n));
		json_dumpf(o, stdout, JSON_INDENT(2));
		putchar('\n');
		json_decref(o);
		return;
	}
	printf("| metric (us of CPU) |      quern |\n|:-------------------|-----------:|\n");
	print_times("TBM", &b->mask_us);
	print_times("TTFM", &b->compile_us);
	for (size_t i = 0; i < n; i++)
		printf("| %-18s | %10zu |\n", rows[i].name, rows[i].n);
}

/* ---- input ---- */

static int is_json(const struct dirent *e)
{
	const size_t n = strlen(e->d_name);
	return n > 5 && !strcmp(e->d_name + n - 5, ".json");
}

static int run_dir(struct bench *b, const char *dir, size_t every, struct why *why)
{
	struct dirent **names;
	int n = scandir(dir, &names, is_json, alphasort), rc = 0;
	if (n < 0)
		return err_why(why, -errno, "%s: %s", dir, strerror(errno));
	for (int i = 0; i < n; i++) {
		if (rc == 0 && (size_t)i % every == 0) {
			char *path = file_join(dir, names[i]->d_name);
			rc = run_file(b, path, names[i]->d_name, why);
			free(path);
		}
		free(names[i]);
	}
	free(names);
	if (rc == 0 && n == 0)
		rc = err_why(why, -ENOENT, "%s has no .json files", dir);
	return rc;
}

static int parse_space(const char *text, struct schema_options *out, struct why *why)
{
	char *end;
	out->space = SCHEMA_SPACE_ONE;
	if (!strcmp(text, "one"))
		return 0;
	out->space = SCHEMA_SPACE_COMPACT;
	if (!strcmp(text, "none"))
		return 0;
	out->space = SCHEMA_SPACE_FLEXIBLE;
	out->max_space = (unsigned)strtoul(text, &end, 10);
	if (*end || end == text || !out->max_space || out->max_space > 1000)
		return err_why(why, -EINVAL, "--space must be none, one, or 1 to 1000");
	return 0;
}

static int parse_order(const char *text, struct schema_options *out, struct why *why)
{
	if (strcmp(text, "any") && strcmp(text, "schema"))
		return err_why(why, -EINVAL, "--order must be schema or any");
	out->any_order = strcmp(text, "any") ? 0 : ANY_ORDER_MEMBERS;
	return 0;
}

static int bench_grammar(const struct opts *o)
{
	struct bench b = {0};
	struct why why;
	const char *results = opts_text(o, "results");
	int rc = parse_space(opts_text(o, "space"), &b.options, &why);
	if (rc == 0)
		rc = parse_order(opts_text(o, "order"), &b.options, &why);
	b.options.bounded = !opts_flag(o, "exact");
	if (rc == 0)
		rc = tokenizer_load(opts_text(o, "tokenizer"), &b.tokenizer, &why);
	if (rc == 0)
		rc = make_vocab(&b, &why);
	if (rc == 0 && results && !(b.results = fopen(results, "w")))
		rc = err_why(&why, -errno, "%s: %s", results, strerror(errno));
	if (rc == 0)
		rc = run_dir(&b, o->words[0], (size_t)opts_int(o, "every"), &why);
	if (b.results && fclose(b.results) && rc == 0)
		rc = err_why(&why, -errno, "%s: %s", results, strerror(errno));
	if (rc == 0)
		report(&b, opts_flag(o, "json"));
	samples_fini(&b.mask_us);
	samples_fini(&b.compile_us);
	lexicon_free(b.vocab);
	tokenizer_free(b.tokenizer);
	return rc ? term_error("%s", why.text) : 0;
}

static int run(struct opts *o)
{
	return opts_text(o, "tokenizer") ? bench_grammar(o)
					 : term_usage(usage.name, "--tokenizer is missing");
}

int cmd_bench_grammar(int argc, char **argv)
{
	return command_run(&usage, OPTION_BENCH_GRAMMAR, run, argc, argv);
}
