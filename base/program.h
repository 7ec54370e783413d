/* program.h - the head of a program's main(): command line, --help, --version, wrong usage, log.
 * For programs with one table of options; `quern` and its commands have a head of their own (cli/). */
#ifndef QUERN_BASE_PROGRAM_H
#define QUERN_BASE_PROGRAM_H

#include "base/options.h"

struct program {
	const char *name;          /* "quern-worker" */
	const char *usage;         /* the arguments behind the name: "--bus ENDPOINT [options]" */
	const char *about;         /* --help: what the program does, whole lines */
	const struct opt *options; /* with help, version, log-level and log-format */
	size_t n_options;
};

enum { PROGRAM_GOES_ON = -1, PROGRAM_USAGE = 2 };

/* Parses the command line into *o, which is empty.  PROGRAM_GOES_ON, or the status to exit with: 0 after
 * --help or --version, PROGRAM_USAGE after an error. */
int program_parse(const struct program *p, struct opts *o, int argc, char **argv);
/* Prints an error of usage.  Returns PROGRAM_USAGE. */
int program_usage(const struct program *p, const char *why);
/* Refuses arguments that are not options, and starts the log: role is the source of its lines ("worker").
 * PROGRAM_GOES_ON or PROGRAM_USAGE. */
int program_start_log(const struct program *p, const struct opts *o, const char *role);

#endif
