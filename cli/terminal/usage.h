/* usage.h - what every command line of a command needs: the table that commands are dispatched from, and the
 * parsing of its options with --help. */
#ifndef QUERN_CLI_TERMINAL_USAGE_H
#define QUERN_CLI_TERMINAL_USAGE_H

#include "base/options.h"

#include <stddef.h>
#include <stdio.h>

/* How a command is used: for --help and for errors. */
struct usage {
	const char *name;  /* "submit" */
	const char *words; /* "PROMPT"; "" for none */
	const char *about; /* a paragraph, without a newline at its end */
	size_t min_words, max_words;
};

/* One row of a program's table of commands. */
struct command {
	const char *name;
	int (*main)(int argc,
		    char **argv); /* argv[0] is the name; returns the exit status.  NULL: not built yet */
	const char *words;
	const char *about; /* one line */
};

/* The table, as --help shows it. */
void command_list(const struct command *table, size_t n, FILE *f);
/* Runs the command that argv[0] names, or reports that the table has no such.  parent: the command that the
 * table belongs to ("bench"), or NULL for quern itself; what: the kind of name in errors ("command"). */
int command_dispatch(const struct command *table, size_t n, const char *parent, const char *what, int argc,
		     char **argv);

enum { COMMAND_GO_ON = -1 };

/* Parses the command line into o, to which the option tables were added.  COMMAND_GO_ON, or the exit status
 * after --help or an error was printed. */
int command_parse(struct opts *o, const struct usage *u, int argc, char **argv);

#endif
