#include "cli/terminal/usage.h"

#include "cli/terminal/term.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { COMMANDS_MAX = 32 };

void command_list(const struct command *table, size_t n, FILE *f)
{
	for (size_t i = 0; i < n; i++) {
		char left[64];
		if (!table[i].main)
			continue;
		snprintf(left, sizeof left, "%s%s%s", table[i].name, *table[i].words ? " " : "",
			 table[i].words);
		fprintf(f, "  %-34s  %s\n", left, table[i].about);
	}
}

int command_dispatch(const struct command *table, size_t n, const char *parent, const char *what, int argc,
		     char **argv)
{
	const char *names[COMMANDS_MAX];
	assert(n <= COMMANDS_MAX);
	for (size_t i = 0; i < n; i++) {
		names[i] = table[i].name;
		if (strcmp(table[i].name, argv[0]) != 0)
			continue;
		if (!table[i].main)
			return term_error("%s%s%s is not built yet", parent ? parent : "", parent ? " " : "",
					  argv[0]);
		return table[i].main(argc, argv);
	}
	const char *near = nearest_name(argv[0], names, n);
	if (near)
		return term_usage(parent, "unknown %s \"%.100s\"; did you mean %s?", what, argv[0], near);
	return term_usage(parent, "unknown %s \"%.100s\"", what, argv[0]);
}

static void help(const struct opts *o, const struct usage *u)
{
	printf("usage: quern %s%s%s [options]\n\n%s\n", u->name, *u->words ? " " : "", u->words, u->about);
	if (o->n_values) {
		printf("\noptions:\n");
		opts_help(o, stdout);
	}
}

int command_refused(const struct opts *o, const char *name, int rc)
{
	const size_t last = o->n_refused - 1;
	for (size_t i = 0; i < last; i++)
		term_error("%s", o->refused[i]);
	return rc == -ENOSYS ? term_error("%s", o->refused[last]) : term_usage(name, "%s", o->refused[last]);
}

int command_parse(struct opts *o, const struct usage *u, int argc, char **argv)
{
	struct why why;
	int rc = opts_parse(o, argc, argv, &why);
	if (rc == OPTS_HELP) {
		help(o, u);
		return term_finish(EXIT_SUCCESS);
	}
	if (rc)
		return command_refused(o, u->name, rc);
	if (o->n_words < u->min_words)
		return term_usage(u->name, "%s is missing", u->words);
	if (o->n_words > u->max_words)
		return term_usage(u->name, "\"%.100s\" is too much", o->words[u->max_words]);
	return COMMAND_GO_ON;
}

int command_run(const struct usage *u, enum option_program program, int (*run)(struct opts *o), int argc,
		char **argv)
{
	struct opts o = {0};
	opts_add_program(&o, program);
	int status = command_parse(&o, u, argc, argv);
	if (status == COMMAND_GO_ON)
		status = term_finish(run(&o));
	opts_fini(&o);
	return status;
}
