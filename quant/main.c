/* main.c - `quern-quantize`, the program behind `quern convert` and `quern quantize`. */
#include "base/file.h"
#include "base/version.h"
#include "cli/terminal/term.h"
#include "cli/terminal/usage.h"
#include "quant/convert/convert.h"
#include "quant/quantize.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct command commands[] = {
	{"convert", cmd_convert, "SRC DST", "write a model in another format, value for value"},
	{"quantize", cmd_quantize, "MODEL DST", "make a smaller model with quantized weights"},
};
enum { N_COMMANDS = sizeof commands / sizeof *commands };

static int help(FILE *f, int status)
{
	fprintf(f, "usage: quern-quantize COMMAND [options]\n\nStarted by quern convert and quern "
		   "quantize.\n\ncommands:\n");
	command_list(commands, N_COMMANDS, f);
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
		printf("quern-quantize %s\n", QUERN_VERSION);
		return term_finish(EXIT_SUCCESS);
	}
	return command_dispatch(commands, N_COMMANDS, NULL, "command", argc - 1, argv + 1);
}
