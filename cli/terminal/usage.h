/* usage.h - the table from which commands are dispatched, and the parsing of a command's options with
 * --help. */
#ifndef QUERN_CLI_TERMINAL_USAGE_H
#define QUERN_CLI_TERMINAL_USAGE_H

#include "base/option_table.h"
#include "base/options.h"

#include <stddef.h>
#include <stdio.h>

/* Usage of a command, for --help and for errors. */
struct usage {
	const char *name;  /* "submit" */
	const char *words; /* "PROMPT"; "" for none */
	const char *about; /* a paragraph, without a final newline */
	size_t min_words, max_words;
};

/* One row of a program's command table. */
struct command {
	const char *name;
	int (*main)(int argc,
		    char **argv); /* argv[0] is the name; returns the exit status.  NULL: not built yet */
	const char *words;
	const char *about; /* one line */
};

/* Print the table, as in --help. */
void command_list(const struct command *table, size_t n, FILE *f);
/* Run the command that argv[0] names, or report that the table has no such command.  parent: the command that
 * the table belongs to ("bench"), or NULL for quern itself; what: the kind of name in errors ("command"). */
int command_dispatch(const struct command *table, size_t n, const char *parent, const char *what, int argc,
		     char **argv);

enum { COMMAND_GO_ON = -1 };

/* Parse the command line into o, which has the command's option tables.  Returns COMMAND_GO_ON, or the exit
 * status after printing --help or an error. */
int command_parse(struct opts *o, const struct usage *u, int argc, char **argv);
/* Parse the command line with the options of PROGRAM, and call run() with them, unless it is --help or an
 * error.  Returns the exit status. */
int command_run(const struct usage *u, enum option_program program, int (*run)(struct opts *o), int argc,
		char **argv);
/* Print everything that opts_parse() or opts_env() refused with rc, one per line.  Returns the exit
 * status. */
int command_refused(const struct opts *o, const char *name, int rc);

#endif
