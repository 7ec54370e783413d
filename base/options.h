/* options.h - options of a program: command line and configuration file.
 * A command lists its options in tables; the same table gives parsing, the file's keys, the names of
 * environment variables and --help. */
#ifndef QUERN_BASE_OPTIONS_H
#define QUERN_BASE_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum opt_kind {
	OPT_FLAG, /* no value on the command line; true or false in a file */
	OPT_TEXT,
	OPT_INT,     /* lo..hi */
	OPT_NUMBER,  /* finite */
	OPT_SIZE,    /* bytes: 4096, 512M, 1.5G */
	OPT_LIST,    /* text, may be given several times */
	OPT_UNBUILT, /* in the manual, but not built: refused by name */
};

struct opt {
	const char *name; /* without dashes: "max-tokens" */
	char letter;      /* 'n', or 0 */
	enum opt_kind kind;
	const char *arg;  /* how help names the value: "N" */
	const char *help; /* one line; NULL: not shown */
	int64_t lo, hi;   /* OPT_INT */
	unsigned pass;    /* flags for the command's own use */
};

struct opt_value {
	const struct opt *spec; /* borrowed */
	char **texts;           /* owned; as given, the last one counts unless it is a list */
	size_t n_texts;
	int64_t n; /* OPT_INT, OPT_SIZE; OPT_FLAG: 0 or 1 */
	double x;  /* OPT_NUMBER */
};

/* A row of a table: OPT("seed", OPT_INT, "N", "help", .letter = 's', .lo = 0, .hi = 9). */
#define OPT(name_, kind_, arg_, help_, ...)                                                                  \
	{                                                                                                    \
		.name = (name_), .kind = (kind_), .arg = (arg_), .help = (help_), __VA_ARGS__                \
	}
/* An option that the manual names and that is not built. */
#define OPT_NOT_BUILT(name_) OPT(name_, OPT_UNBUILT, NULL, NULL)

/* An option of another program, for its users: an alias of ours, or answered with ours. */
struct opt_alias {
	const char *other; /* with its dashes: "--max-model-len", "-ngl" */
	const char *name;  /* of the option that means exactly the same; NULL: none */
	const char *hint;  /* where name is NULL: follows "unknown option --port: " */
};

/* Zero-initialised is empty. */
struct opts {
	struct opt_value *values;
	size_t n_values;
	const struct opt_alias *aliases; /* borrowed */
	size_t n_aliases;
	char **words; /* owned: arguments that are not options, in order */
	size_t n_words;
};

enum { OPTS_HELP = 1 }; /* opts_parse: --help was given */

void opts_add(struct opts *o, const struct opt *table, size_t n); /* table is borrowed */
/* Takes options of other programs, too, on the command line.  Own options and letters come first; an alias of
 * an option that is in no table is not taken. */
void opts_alias(struct opts *o, const struct opt_alias *table, size_t n); /* borrowed */
void opts_fini(struct opts *o);

/* argv[0] is skipped.  0, OPTS_HELP, -EINVAL (wrong usage) or -ENOSYS (not built yet). */
int opts_parse(struct opts *o, int argc, char **argv, char *why, size_t why_n);
/* Sets what was not set yet from the environment env, {"NAME=value", ..., NULL}: "QUERN_MAX_SEQS" with the
 * prefix "QUERN_" is the option max-seqs, true or false for a flag.  Other variables and empty values are
 * passed over, but for those named like another program's option (opts_alias()): -EINVAL, with ours.  why
 * names the variable. */
int opts_env(struct opts *o, const char *prefix, char *const *env, char *why, size_t why_n);
/* Sets what was not set yet from INI text: `name = value`, '#' and ';' begin comments, a section
 * [section] is accepted and no other.  why names the line. */
int opts_ini(struct opts *o, const char *text, size_t n, const char *section, char *why, size_t why_n);
int opts_ini_file(struct opts *o, const char *path, const char *section, char *why, size_t why_n);
/* Sets one option by name, as `--name text` does; text may be NULL for a flag.  -EINVAL, -ENOSYS. */
int opts_set(struct opts *o, const char *name, const char *text, char *why, size_t why_n);
/* Back to "not given". */
void opts_unset(struct opts *o, const char *name);
void opts_help(const struct opts *o, FILE *f);

/* By name; the name of an option that is in no table is a bug. */
struct opt_value *opts_value(const struct opts *o, const char *name);
bool opts_has(const struct opts *o, const char *name);
bool opts_flag(const struct opts *o, const char *name);
const char *opts_text(const struct opts *o, const char *name, const char *otherwise);
int64_t opts_int(const struct opts *o, const char *name, int64_t otherwise);
double opts_number(const struct opts *o, const char *name, double otherwise);

/* "512M" to bytes: K, M, G, T are powers of 1024, "iB" or "B" may follow. */
int size_parse(const char *text, int64_t *bytes, char *why, size_t why_n);

/* "cpu,cuda:1" to "cpu", "cuda:1". */
enum { DEVICES_MAX = 64 };
struct device_name {
	char name[32];
};
int devices_parse(const char *text, struct device_name *out, size_t *n, char *why, size_t why_n);

/* "1,2,4" to integers of lo..hi. */
int ints_parse(const char *text, int64_t lo, int64_t hi, int64_t *out, size_t max, size_t *n, char *why,
	       size_t why_n);

/* The name most like what was typed; NULL: none is close. */
const char *nearest_name(const char *typed, const char *const *names, size_t n);

#endif
