/* main.c - `quern-bench`: the program that `quern bench` and `quern plan` start.
 * Its errors are printed as errors of `quern bench`. */
#include "base/file.h"
#include "base/version.h"
#include "bench/commands.h"
#include "cli/command.h"
#include "cli/terminal/term.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct command benches[] = {
	{"autoscale", cmd_bench_autoscale, "", "autoscaling in simulated time, under a trace of arrivals"},
	{"engine", cmd_bench_engine, "[MODEL]", "prefill and decode speed, latencies"},
	{"grammar", cmd_bench_grammar, "DIR", "masks of JSON schemas: correctness and time per token"},
	{"kernels", cmd_bench_kernels, "", "speed of this machine's kernels, and share of the roofline"},
	{"tokenizer", cmd_bench_tokenizer, "MODEL", "encoding speed of a tokenizer"},
	{"scheduler", cmd_bench_scheduler, "", "the scheduler in simulated time, under a trace of arrivals"},
	{"serve", cmd_bench_serve, "", "a running OpenAI-compatible server, under load"},
};
enum { N_BENCHES = sizeof benches / sizeof *benches };

static int help(FILE *f, int status)
{
	fprintf(f, "usage: quern bench WHAT [options]\n\nmeasures:\n");
	command_list(benches, N_BENCHES, f);
	return term_finish(status);
}

int main(int argc, char **argv)
{
	file_guard_stdio();
	if (argc < 2)
		return help(stderr, EXIT_USAGE);
	if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
		return help(stdout, EXIT_SUCCESS);
	if (strcmp(argv[1], "--version") == 0) {
		printf("quern-bench %s\n", QUERN_VERSION);
		return term_finish(EXIT_SUCCESS);
	}
	if (strcmp(argv[1], "plan") == 0) /* `quern plan` */
		return cmd_plan(argc - 1, argv + 1);
	return command_dispatch(benches, N_BENCHES, "bench", "measure", argc - 1, argv + 1);
}
