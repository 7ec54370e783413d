/* options.h - options of a program: command line and configuration file.
 * A row describes an option; parsing, the file's keys, the names of environment variables and --help follow
 * from the row.  The rows of all programs are in option_table.h. */
#ifndef QUERN_BASE_OPTIONS_H
#define QUERN_BASE_OPTIONS_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum opt_kind {
	OPT_FLAG, /* no value on the command line; true or false in a file */
	OPT_TEXT,
	OPT_INT,     /* in lo..hi */
	OPT_NUMBER,  /* finite */
	OPT_SIZE,    /* bytes: 4096, 512M, 1.5G */
	OPT_LIST,    /* text, may be given more than once */
	OPT_UNBUILT, /* listed in the manual, but not built: refused by name */
};

struct opt {
	const char *name; /* without dashes: "max-tokens" */
	char letter;      /* 'n', or 0 */
	enum opt_kind kind;
	const char *arg;  /* the value's name in --help: "N" */
	const char *help; /* one line; NULL: not shown */
	uint64_t in;      /* programs that take it (option_table.h) */
	int64_t lo, hi;   /* range of an OPT_INT */
	/* Range in the programs of `wide`, if it differs there. */
	uint64_t wide;
	int64_t wide_lo, wide_hi;
	const char *def; /* default, as a user would write it; NULL: none */
	const char
		*unset; /* for --help: the effect of omitting the option, if no value has that effect or def
			 * does not always apply */
	/* Names in other servers, with dashes, separated by blanks.  same: names with the same meaning.
	 * near: names that are refused with "quern has --NAME ARG"; note, if set, replaces ARG. */
	const char *same, *near, *note;
	unsigned pass; /* flags for the command's own use */
};

struct opt_value {
	const struct opt *spec; /* borrowed */
	int64_t lo, hi;         /* OPT_INT: range in this program */
	char **texts;           /* owned; as given; the last one counts unless the option is a list */
	size_t n_texts;
	int64_t n; /* OPT_INT, OPT_SIZE; OPT_FLAG: 0 or 1 */
	double x;  /* OPT_NUMBER */
};

/* A row of a table: OPT("seed", OPT_INT, "N", "help", .letter = 's', .lo = 0, .hi = 9). */
#define OPT(name_, kind_, arg_, help_, ...)                                                                  \
	{                                                                                                    \
		.name = (name_), .kind = (kind_), .arg = (arg_), .help = (help_), __VA_ARGS__                \
	}
/* An option that the manual names but that is not built. */
#define OPT_NOT_BUILT(name_) OPT(name_, OPT_UNBUILT, NULL, NULL)

/* Options of other programs, accepted for their users:
 *
 *   name    values   on the command line
 *   "tp"    NULL     is the option --tp
 *   NULL    NULL     is refused, with the hint
 *   NULL    ""       is a flag, accepted without effect: quern does this anyway
 *   NULL    "a b"    is accepted without effect with the value a or b, and refused with any other value
 *   "tp"    "a=b c"  a means b of the option --tp, c is accepted without effect, other values are refused
 *
 * As an environment variable, or in a file, such an option is refused; the error names our option. */
struct opt_alias {
	const char *others; /* names in other programs, with dashes, separated by blanks: "--max-model-len
			     * -c" */
	const char *name;   /* the corresponding option here; NULL: none */
	const char *values; /* words; "*" is any value; a leading "?" means the value may be omitted */
	const char *unless; /* an option here that contradicts the alias: giving both is an error; NULL:
			     * none */
	const char *hint;   /* the alternative here, or why the option has no effect */
};

/* One name of another program's option. */
struct opt_other {
	char *name;      /* owned */
	const char *own; /* this and the other members are as in struct opt_alias; all are borrowed except
			  * hint */
	const char *values, *unless;
	char *hint; /* owned; NULL: none */
};

/* An option of another program that was given and accepted without effect. */
struct opt_taken {
	size_t other; /* index into opts.others */
	char *text;   /* owned: "--dtype half: REASON" */
};

/* Zero-initialised is empty. */
struct opts {
	struct opt_value *values;
	size_t n_values;
	struct opt_other *others; /* owned */
	size_t n_others;
	char **words; /* owned: arguments that are not options, in order */
	size_t n_words;
	char **refused; /* owned: the errors of the last opts_parse(), opts_env() or opts_ini() */
	size_t n_refused;
	struct opt_taken *taken; /* owned */
	size_t n_taken;
};

enum { OPTS_HELP = 1 }; /* returned by opts_parse() if --help was given */

void opts_add(struct opts *o, const struct opt *table, size_t n); /* table is borrowed */
/* Add one row, with its range in a program (one bit of opt.in). */
void opts_add_row(struct opts *o, const struct opt *row, uint64_t program);
/* Also accept options of other programs on the command line: the names in the rows added so far, then those
 * in the table.  Our own options and letters take precedence.  An alias is ignored if its option is in no
 * row. */
void opts_alias(struct opts *o, const struct opt_alias *table, size_t n); /* borrowed */
void opts_fini(struct opts *o);

/* Parse the command line; argv[0] is skipped.  0; OPTS_HELP (even if something else is wrong); -EINVAL (wrong
 * usage) or -ENOSYS (not built yet).  All errors are in o->refused, and joined in why. */
int opts_parse(struct opts *o, int argc, char **argv, struct why *why);
/* Set the options that are not set yet from the environment env, {"NAME=value", ..., NULL}: with the prefix
 * "QUERN_", "QUERN_MAX_SEQS" is the option max-seqs; a flag is true or false.  Other variables and empty
 * values are ignored.  A variable named like another program's option (opts_alias()) is -EINVAL; the error
 * names our option.  An address ("tcp://10.0.0.1:80") for an integer is ignored too: Kubernetes sets
 * NAME_PORT to one for a service called NAME.  All errors are in o->refused, and joined in why. */
int opts_env(struct opts *o, const char *prefix, char *const *env, struct why *why);
/* Set the options that are not set yet from INI text: `name = value`; '#' and ';' begin comments.  The only
 * section accepted is [section].  All errors are in o->refused, with their lines, and joined in why. */
int opts_ini(struct opts *o, const char *text, size_t n, const char *section, struct why *why);
int opts_ini_file(struct opts *o, const char *path, const char *section, struct why *why);
/* Set one option by name, as `--name text` does; text may be NULL for a flag.  -EINVAL, -ENOSYS. */
int opts_set(struct opts *o, const char *name, const char *text, struct why *why);
/* Reset an option to "not given". */
void opts_unset(struct opts *o, const char *name);
/* Call after the command line, the environment and the file were read.  -EINVAL for the first alias that
 * contradicts an option that was given (opt_alias.unless); else 0. */
int opts_check_taken(const struct opts *o, struct why *why);
void opts_help(const struct opts *o, FILE *f);

/* Look up an option by name.  A name that no row has is a bug. */
struct opt_value *opts_value(const struct opts *o, const char *name);
bool opts_has(const struct opts *o, const char *name);
bool opts_flag(const struct opts *o, const char *name);
/* Return the value given, else the row's default, else NULL or 0. */
const char *opts_text(const struct opts *o, const char *name);
int64_t opts_int(const struct opts *o, const char *name);
double opts_number(const struct opts *o, const char *name);
/* Return the value given, else `otherwise`.  For rows without a default, where the caller computes the
 * default or must know that no value was given. */
const char *opts_text_or(const struct opts *o, const char *name, const char *otherwise);
int64_t opts_int_or(const struct opts *o, const char *name, int64_t otherwise);
double opts_number_or(const struct opts *o, const char *name, double otherwise);

/* Parse "512M" as bytes: K, M, G, T are powers of 1024; "iB" or "B" may follow. */
int size_parse(const char *text, int64_t *bytes, struct why *why);

/* Split "cpu,cuda:1" into "cpu", "cuda:1". */
enum { DEVICES_MAX = 64 };
struct device_name {
	char name[32];
};
int devices_parse(const char *text, struct device_name *out, size_t *n, struct why *why);

/* Parse "1,2,4" as integers in lo..hi. */
int ints_parse(const char *text, int64_t lo, int64_t hi, int64_t *out, size_t max, size_t *n,
	       struct why *why);

/* Return the name closest to what was typed; NULL if none is close. */
const char *nearest_name(const char *typed, const char *const *names, size_t n);

#endif
