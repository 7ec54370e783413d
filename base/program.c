#include "base/program.h"

#include "base/log.h"
#include "base/version.h"

#include <stdio.h>

int program_usage(const struct program *p, const char *why)
{
	fprintf(stderr, "%s: %s; see %s --help\n", p->name, why, p->name);
	return PROGRAM_USAGE;
}

int program_parse(const struct program *p, struct opts *o, int argc, char **argv)
{
	struct why why;
	opts_add_program(o, p->program);
	int rc = opts_parse(o, argc, argv, &why);
	if (rc == OPTS_HELP || (rc == 0 && opts_flag(o, "help"))) {
		printf("usage: %s %s\n\n%s\n", p->name, p->usage, p->about);
		opts_help(o, stdout);
		return 0;
	}
	if (rc)
		return program_usage(p, why.text);
	if (opts_flag(o, "version")) {
		printf("%s %s\n", p->name, QUERN_VERSION);
		return 0;
	}
	return PROGRAM_GOES_ON;
}

int program_start_log(const struct program *p, const struct opts *o, const char *role)
{
	int level = log_level_parse(opts_text(o, "log-level"));
	if (o->n_words)
		return program_usage(p, "arguments that are not options");
	if (level < 0)
		return program_usage(p, "--log-level must be debug, info, warn or error");
	int format = log_format_parse(opts_text(o, "log-format"));
	if (format < 0)
		return program_usage(p, "--log-format must be text or json");
	log_init(role, (enum log_level)level, (enum log_format)format);
	return PROGRAM_GOES_ON;
}
