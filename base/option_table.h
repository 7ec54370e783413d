/* option_table.h - every option of every program, one row each.
 * A row has the option's name, type, range, default, unit and help, the programs that take it, and its names
 * in other servers.  The rows define command lines, --help (the source of manual pages and completion),
 * configuration files, environment variables (QUERN_MAX_SEQS for max-seqs), and the command lines that `quern
 * serve` builds for its controller and workers.  To add an option, add a row and the code that reads it with
 * opts_int() or a similar function. */
#ifndef QUERN_BASE_OPTION_TABLE_H
#define QUERN_BASE_OPTION_TABLE_H

#include "base/options.h"

/* Defaults that other code needs as constants. */
#define OPTION_HTTP           "127.0.0.1:8080"
#define OPTION_JOBS           "tcp://127.0.0.1:7420"
#define OPTION_GPU_FRACTION   0.9 /* fraction of a GPU's memory */
#define OPTION_SCALE_AT       16
#define OPTION_SCALE_PERIOD_S 15
#define OPTION_SCALE_DOWN_S   120

/* Programs and commands of `quern`. */
enum option_program {
	OPTION_SERVE,
	OPTION_RUN,
	OPTION_BENCH_ENGINE,
	OPTION_CONTROLLER,
	OPTION_WORKER,
	OPTION_SUBMIT,
	OPTION_CHAT,
	OPTION_JOBS_LIST,
	OPTION_ATTACH,
	OPTION_CANCEL,
	OPTION_RESULT,
	OPTION_EXPLAIN,
	OPTION_STATUS,
	OPTION_WORKERS,
	OPTION_HEALTH,
	OPTION_SCALE,
	OPTION_DRAIN,
	OPTION_KEYGEN,
	OPTION_LIST,
	OPTION_RM,
	OPTION_PULL,
	OPTION_INSPECT,
	OPTION_TOKENIZE,
	OPTION_GRAMMAR,
	OPTION_CONVERT,
	OPTION_QUANTIZE,
	OPTION_BENCH_SERVE,
	OPTION_BENCH_SCHEDULER,
	OPTION_BENCH_AUTOSCALE,
	OPTION_PLAN,
	OPTION_BENCH_GRAMMAR,
	OPTION_BENCH_TOKENIZER,
	OPTION_BENCH_KERNELS,
	OPTION_N_PROGRAMS,
};
#define OPTION_BIT(program) (UINT64_C(1) << (program))

/* Flags of opt.pass: how a command uses an option. */
enum {
	OPT_REQUEST = 1, /* `quern chat` can set it while it runs */
	OPT_PARAM = 2,   /* sent as the request's parameter of that name */
	OPT_AWQ4 = 4,    /* for `quern quantize --type awq4` only */
	OPT_IMATRIX = 8, /* for types of `quern quantize` that take an importance matrix */
};

extern const struct opt option_rows[];
extern const size_t option_n_rows;

/* Add the rows that a program takes, in the table's order. */
void opts_add_program(struct opts *o, enum option_program program);
/* Return the default of a program's integer or size option.  Its row must have one. */
int64_t option_default(enum option_program program, const char *name);

#endif
