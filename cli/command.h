/* command.h - what all commands begin with: their options read, their service found. */
#ifndef QUERN_CLI_COMMAND_H
#define QUERN_CLI_COMMAND_H

#include "cli/client.h"
#include "base/options.h"

#include <stddef.h>

/* How a command is used: for --help and for errors. */
struct usage {
	const char *name;  /* "submit" */
	const char *words; /* "PROMPT"; "" for none */
	const char *about; /* a paragraph, without a newline at its end */
	size_t min_words, max_words;
};

enum { COMMAND_GO_ON = -1, CONNECT_MS = 5000, CALL_MS = 30000 };

/* Reads the command line into o, to which the tables were added.  COMMAND_GO_ON, or the exit
 * status with everything said (help was asked for, wrong usage). */
int command_parse(struct opts *o, const struct usage *u, int argc, char **argv);

/* --to ENDPOINT: for commands that talk to a running service. */
extern const struct opt command_to_options[];
extern const size_t command_n_to_options;
/* Connects as the options and the environment say, with keys where they name some: client_open(). */
int command_open(const struct opts *o, struct client **c, char *why, size_t why_n);
/* COMMAND_GO_ON, or the exit status with everything said. */
int command_connect(const struct opts *o, struct client **c);

/* Connects, asks {"op": op, "job": job (NULL: none)}, closes.  COMMAND_GO_ON with *reply, or the
 * exit status with everything said. */
int command_ask(const struct opts *o, const char *op, const char *job, json_t **reply);

#endif
