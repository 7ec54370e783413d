/* command.h - what commands share: the table they are dispatched from, option parsing, the connection to a
 * service. */
#ifndef QUERN_CLI_COMMAND_H
#define QUERN_CLI_COMMAND_H

#include "cli/client.h"
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

enum { COMMAND_GO_ON = -1, CONNECT_MS = 5000, CALL_MS = 30000 };

/* The functions below return COMMAND_GO_ON, or the exit status after --help or an error was printed. */

/* Parses the command line into o, to which the option tables were added. */
int command_parse(struct opts *o, const struct usage *u, int argc, char **argv);

/* --to ENDPOINT: for commands that talk to a running service. */
extern const struct opt command_to_options[];
extern const size_t command_n_to_options;
/* Connects as the options and the environment say, with their keys if any; errors as client_open(). */
int command_open(const struct opts *o, struct client **c, char *why, size_t why_n);
/* The same, with errors reported. */
int command_connect(const struct opts *o, struct client **c);

/* Connects, sends {"op": op}, stores the reply, closes. */
int command_request(const struct opts *o, const char *op, json_t **reply);

#endif
