/* main.c - `quern`: which command is meant. */
#include "base/file.h"
#include "base/options.h"
#include "base/version.h"
#include "cli/bench_engine.h"
#include "cli/bench_kernels.h"
#include "cli/bench_scheduler.h"
#include "cli/bench_serve.h"
#include "cli/inspect.h"
#include "cli/jobs.h"
#include "cli/keygen.h"
#include "cli/run.h"
#include "cli/scale.h"
#include "cli/serve.h"
#include "cli/status.h"
#include "cli/submit.h"
#include "cli/term.h"
#include "cli/tokenize.h"

#include <stdlib.h>
#include <string.h>

struct command {
	const char *name;
	int (*main)(int argc, char **argv); /* NULL: not built yet */
	const char *words;
	const char *about;
};

static int cmd_bench(int argc, char **argv);

static const struct command commands[] = {
	{"serve", cmd_serve, "MODEL", "start a service on this machine, until Ctrl-C"},
	{"run", cmd_run, "MODEL [PROMPT]", "a private service for one prompt, or for a chat"},
	{"submit", cmd_submit, "PROMPT", "submit a job to a running service, stream its text"},
	{"jobs", cmd_jobs, "", "list jobs"},
	{"attach", cmd_attach, "JOB", "print a job's text and go on as it comes"},
	{"cancel", cmd_cancel, "JOB", "end a job"},
	{"result", cmd_result, "JOB", "print the result of a job that has ended"},
	{"status", cmd_status, "", "what the service is doing; --watch refreshes"},
	{"workers", cmd_workers, "", "list workers"},
	{"scale", cmd_scale, "N", "make it N replicas while it runs"},
	{"drain", cmd_drain, "WORKER", "take a worker out of service; its jobs move"},
	{"keygen", cmd_keygen, "", "make a key pair for a service, a client or a worker"},
	{"tokenize", cmd_tokenize, "MODEL", "stdin to tokens and back"},
	{"inspect", cmd_inspect, "MODEL | cpu | gpu", "what a model holds; what this machine offers"},
	{"bench", cmd_bench, "serve | engine | kernels | scheduler | ...", "measure"},
	{"quantize", NULL, NULL, NULL},
	{"convert", NULL, NULL, NULL},
};
enum { N_COMMANDS = sizeof commands / sizeof *commands };

static const struct command benches[] = {
	{"engine", cmd_bench_engine, "[MODEL]", "prefill and decode speed, latencies"},
	{"kernels", cmd_bench_kernels, "", "the kernels of this machine"},
	{"tokenizer", cmd_bench_tokenizer, "MODEL", "encoding and decoding speed"},
	{"scheduler", cmd_bench_scheduler, "", "the scheduler in simulated time, under a trace of arrivals"},
	{"serve", cmd_bench_serve, "", "a running OpenAI-compatible server, under load"},
};
enum { N_BENCHES = sizeof benches / sizeof *benches };

static void list(const struct command *c, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		char left[64];
		if (!c[i].main)
			continue;
		snprintf(left, sizeof left, "%s%s%s", c[i].name, *c[i].words ? " " : "", c[i].words);
		printf("  %-34s  %s\n", left, c[i].about);
	}
}

static int help(void)
{
	printf("quern %s: an LLM inference service\n\nusage: quern COMMAND [options]\n\ncommands:\n",
	       QUERN_VERSION);
	list(commands, N_COMMANDS);
	printf("\nquern COMMAND --help tells more; quern --version shows the version.\n\n"
	       "  quern run models/demo \"Once upon a time\"\n"
	       "  quern serve models/demo\n"
	       "  quern submit \"Once upon a time\"\n");
	return term_finish(EXIT_SUCCESS);
}

/* Runs argv[0] of a table.  what: how errors call it. */
static int dispatch(const char *what, const struct command *c, size_t n, int argc, char **argv)
{
	const char *names[N_COMMANDS];
	for (size_t i = 0; i < n; i++) {
		names[i] = c[i].name;
		if (strcmp(c[i].name, argv[0]) != 0)
			continue;
		if (!c[i].main)
			return term_error("%s%s is not built yet", c == benches ? "bench " : "", argv[0]);
		return c[i].main(argc, argv);
	}
	const char *near = nearest_name(argv[0], names, n), *parent = c == benches ? "bench" : NULL;
	if (near)
		return term_usage(parent, "unknown %s \"%.100s\"; did you mean %s?", what, argv[0], near);
	return term_usage(parent, "unknown %s \"%.100s\"", what, argv[0]);
}

static int cmd_bench(int argc, char **argv)
{
	if (argc < 2)
		return term_usage("bench", "what to measure is missing");
	if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
		printf("usage: quern bench WHAT [options]\n\nmeasures:\n");
		list(benches, N_BENCHES);
		return term_finish(EXIT_SUCCESS);
	}
	return dispatch("measure", benches, N_BENCHES, argc - 1, argv + 1);
}

int main(int argc, char **argv)
{
	file_guard_stdio();
	if (argc < 2)
		return term_usage(NULL, "a command is missing");
	if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0)
		return help();
	if (strcmp(argv[1], "--version") == 0) {
		printf("quern %s\n", QUERN_VERSION);
		return term_finish(EXIT_SUCCESS);
	}
	return dispatch("command", commands, N_COMMANDS, argc - 1, argv + 1);
}
