/* program.h - the beginning of a program's main(): command line, --help, --version, usage errors, log.
 * It is for programs without commands; `quern` and its commands have their own (cli/). */
#ifndef QUERN_BASE_PROGRAM_H
#define QUERN_BASE_PROGRAM_H

#include "base/option_table.h"

struct program {
	const char *name;            /* "quern-worker" */
	const char *usage;           /* arguments after the name: "--bus ENDPOINT [options]" */
	const char *about;           /* --help: what the program does, in whole lines */
	enum option_program program; /* selects its options, which include help, version, log-level and
				      * log-format */
};

enum { PROGRAM_GOES_ON = -1, PROGRAM_USAGE = 2 };

/* Parse the command line into *o, which must be empty.  Returns PROGRAM_GOES_ON, or the exit status: 0 after
 * --help or --version, PROGRAM_USAGE after an error. */
int program_parse(const struct program *p, struct opts *o, int argc, char **argv);
/* Print a usage error.  Returns PROGRAM_USAGE. */
int program_usage(const struct program *p, const char *why);
/* Refuse arguments that are not options, and start the log.  role: the program name in its lines ("worker").
 * Returns PROGRAM_GOES_ON or PROGRAM_USAGE. */
int program_start_log(const struct program *p, const struct opts *o, const char *role);

#endif
