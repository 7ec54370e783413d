/* main.c - `quern`: the table of commands, and their dispatch. */
#include "base/alloc.h"
#include "base/file.h"
#include "base/options.h"
#include "base/version.h"
#include "cli/chat.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/inspect.h"
#include "cli/models/commands.h"
#include "cli/process.h"
#include "cli/terminal/term.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int cmd_bench(int argc, char **argv);
static int cmd_plan(int argc, char **argv);
static int cmd_quantizer(int argc, char **argv);
static int cmd_worker(int argc, char **argv);

static const struct command commands[] = {
	{"serve", cmd_serve, "MODEL", "start a service on this machine, until Ctrl-C"},
	{"run", cmd_run, "MODEL [PROMPT]", "run one prompt, or a chat, with a private service"},
	{"chat", cmd_chat, "", "talk to the model of a running service"},
	{"submit", cmd_submit, "PROMPT", "submit a job to a running service, stream its text"},
	{"jobs", cmd_jobs, "", "list jobs"},
	{"attach", cmd_attach, "JOB", "print a job's text and follow it"},
	{"cancel", cmd_cancel, "JOB", "cancel a job"},
	{"result", cmd_result, "JOB", "print the result of a finished job"},
	{"explain", cmd_explain, "JOB", "show where a job's time went"},
	{"status", cmd_status, "", "show what the service is doing; --watch refreshes"},
	{"health", cmd_health, "", "exit with 0 if a service can serve new work"},
	{"worker", cmd_worker, "", "join a service on another machine: --join HOST"},
	{"workers", cmd_workers, "", "list workers"},
	{"scale", cmd_scale, "N", "change the number of replicas"},
	{"drain", cmd_drain, "WORKER", "take a worker out of service, moving its jobs"},
	{"keygen", cmd_keygen, "", "create a key pair for a service, a client or a worker"},
	{"tokenize", cmd_tokenize, "MODEL", "turn text into tokens and back"},
	{"grammar", cmd_grammar, "", "compile a grammar for structured output, test texts"},
	{"inspect", cmd_inspect, "MODEL | cpu | gpu",
	 "show a model's tensors and memory, or this machine's devices"},
	{"pull", cmd_pull, "NAME | URL", "fetch a model by HTTP(S), from a hub or another server"},
	{"list", cmd_list, "", "list the models that were fetched"},
	{"rm", cmd_rm, "NAME...", "remove models that were fetched"},
	{"plan", cmd_plan, "MODEL", "estimate the memory, speed and rate of devices"},
	{"bench", cmd_bench, "WHAT", "measure a server, the engine, kernels, the scheduler, ..."},
	{"quantize", cmd_quantizer, "MODEL DST", "make a smaller model with quantized weights"},
	{"convert", cmd_quantizer, "SRC DST", "write a model in another format, value for value"},
};
enum { N_COMMANDS = sizeof commands / sizeof *commands };

static void help(FILE *f)
{
	fprintf(f, "quern %s: an LLM inference service\n\nusage: quern COMMAND [options]\n\ncommands:\n",
		QUERN_VERSION);
	command_list(commands, N_COMMANDS, f);
	fprintf(f, "\nquern COMMAND --help shows the options of a command, quern --version the version.\n\n"
		   "  quern run models/demo \"Tell me a story.\"\n"
		   "  quern serve models/demo\n"
		   "  quern submit \"Tell me a story.\"\n"
		   "  quern chat\n");
}

/* Replace this process by a program that links the kernels. */
static int become(const char *program, char **argv)
{
	struct why why;
	char *path = process_program(program, &why);
	if (!path)
		return term_error("%s", why.text);
	argv[0] = path;
	execv(path, argv);
	return term_error("cannot run %s: %s", path, strerror(errno));
}

static int cmd_bench(int argc, char **argv)
{
	(void)argc;
	return become("quern-bench", argv);
}

static int cmd_worker(int argc, char **argv)
{
	(void)argc;
	return become("quern-worker", argv);
}

/* argv[-1] is the name of the program itself. */
static int cmd_quantizer(int argc, char **argv)
{
	(void)argc;
	return become("quern-quantize", argv - 1);
}

/* `quern plan` is part of quern-bench, which runs the scheduler in simulated time. */
static int cmd_plan(int argc, char **argv)
{
	char **words = xcalloc((size_t)argc + 2, sizeof *words);
	memcpy(words + 1, argv, (size_t)argc * sizeof *words);
	return cmd_bench(argc + 1, words);
}

int main(int argc, char **argv)
{
	file_guard_stdio();
	if (argc < 2) {
		help(stderr);
		return EXIT_USAGE;
	}
	if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) {
		help(stdout);
		return term_finish(EXIT_SUCCESS);
	}
	if (strcmp(argv[1], "--version") == 0) {
		printf("quern %s\n", QUERN_VERSION);
		return term_finish(EXIT_SUCCESS);
	}
	return command_dispatch(commands, N_COMMANDS, NULL, "command", argc - 1, argv + 1);
}
