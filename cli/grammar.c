#include "cli/commands.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/option_table.h"
#include "cli/command.h"
#include "cli/terminal/term.h"
#include "grammar/grammar.h"
#include "grammar/source.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct usage usage = {
	.name = "grammar",
	.words = "",
	.about = "Compiles a grammar for structured output: prints its states, bytes and time, or what is "
		 "not\n"
		 "supported and where.  Give one of --schema, --regex, --gbnf, --lark, --choice and "
		 "--composite.",
};

static const struct {
	const char *option;
	enum grammar_language language;
} languages[] = {
	{"schema", GRAMMAR_SCHEMA}, {"regex", GRAMMAR_REGEX},   {"gbnf", GRAMMAR_GBNF},
	{"lark", GRAMMAR_LARK},     {"choice", GRAMMAR_CHOICE}, {"composite", GRAMMAR_COMPOSITE},
};
enum { N_LANGUAGES = sizeof languages / sizeof *languages, PRINT_MAX = 1 << 20 };

/* Print "yes", or "no" and the byte at which the line is refused or ends too early. */
static int check_line(struct grammar *g, const char *line, size_t n)
{
	struct matcher *m = matcher_new(g);
	size_t used = 0;
	bool end = false;
	int rc = matcher_accept_bytes(m, line, n, &used), status = EXIT_SUCCESS;
	if (rc == 0)
		rc = matcher_can_end(m, &end);
	if (rc == -E2BIG)
		status = term_error("byte %zu: %s", used, matcher_error(m));
	else if (rc)
		printf("no, byte %zu\n", used);
	else
		printf(end ? "yes\n" : "no, it ends too early\n");
	matcher_free(m);
	return status;
}

static int check_lines(struct grammar *g)
{
	char *line = NULL;
	size_t cap = 0;
	ssize_t n;
	int status = EXIT_SUCCESS;
	while (status == EXIT_SUCCESS && (n = getline(&line, &cap, stdin)) >= 0) {
		if (n && line[n - 1] == '\n')
			n--;
		status = check_line(g, line, (size_t)n);
		fflush(stdout);
	}
	free(line);
	return status;
}

static void print_grammar(const struct ast *a)
{
	struct buf out = {0};
	ast_print(a, &out, PRINT_MAX);
	fwrite(out.p, 1, out.len, stdout);
	buf_fini(&out);
}

static int compile(const struct opts *o, enum grammar_language language, const char *text, size_t n)
{
	struct ast *a;
	struct grammar *g;
	struct grammar_counts c;
	struct why why;
	int status = EXIT_SUCCESS;
	int64_t before = clock_thread_cpu_us();
	if (grammar_parse(language, text, n, NULL, &a, &why))
		return term_error("%s", why.text);
	if (grammar_new(a, NULL, NULL, &g, &why)) {
		ast_free(a);
		return term_error("%s", why.text);
	}
	int64_t us = clock_thread_cpu_us() - before;
	grammar_counts(g, &c);
	if (opts_flag(o, "print"))
		print_grammar(a);
	if (opts_flag(o, "accepts"))
		status = check_lines(g);
	else
		printf("%d nodes, %d rules, %zu expressions, %zu bytes, %.3f ms\n", ast_n_nodes(a),
		       ast_n_rules(a), c.n_exprs, c.bytes, (double)us / 1000);
	grammar_free(g);
	ast_free(a);
	return status;
}

static int run(const struct opts *o)
{
	struct why why;
	char *file;
	size_t n;
	int which = -1;
	for (int i = 0; i < N_LANGUAGES; i++) {
		if (!opts_has(o, languages[i].option))
			continue;
		if (which >= 0)
			return term_usage(usage.name, "--%s and --%s exclude each other",
					  languages[which].option, languages[i].option);
		which = i;
	}
	if (which < 0)
		return term_usage(
			usage.name,
			"one of --schema, --regex, --gbnf, --lark, --choice and --composite is needed");
	const char *text = opts_text(o, languages[which].option);
	if (languages[which].language == GRAMMAR_REGEX)
		return compile(o, GRAMMAR_REGEX, text, strlen(text));
	if (file_read(text, GRAMMAR_SOURCE_MAX, &file, &n, &why))
		return term_error("%s", why.text);
	enum grammar_language language = languages[which].language;
	if (language == GRAMMAR_SCHEMA && !opts_flag(o, "exact"))
		language = GRAMMAR_SCHEMA_BOUNDED;
	int status = compile(o, language, file, n);
	free(file);
	return status;
}

int cmd_grammar(int argc, char **argv)
{
	struct opts o = {0};
	opts_add_program(&o, OPTION_GRAMMAR);
	opts_alias(&o, NULL, 0);
	int status = command_parse(&o, &usage, argc, argv);
	if (status == COMMAND_GO_ON)
		status = term_finish(run(&o));
	opts_fini(&o);
	return status;
}
