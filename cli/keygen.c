#include "cli/keygen.h"

#include "base/err.h"
#include "base/options.h"
#include "cli/command.h"
#include "cli/terminal/term.h"
#include "proto/curve.h"

#include <stdlib.h>
#include <string.h>

static const struct opt options[] = {
	OPT("out", OPT_TEXT, "DIR", "where to write them, created if needed (.)"),
	OPT("name", OPT_TEXT, "NAME", "the files are NAME.key and NAME.pub (quern)"),
	OPT("json", OPT_FLAG, NULL, "as JSON"),
};

static const struct usage usage = {
	.name = "keygen",
	.words = "",
	.about =
		"Makes a key pair (CURVE): NAME.key is secret and stays where it is (serve --curve-key, and\n"
		"--key of clients and workers), NAME.pub may be given away (--server-key; its key goes into\n"
		"the service's --allow file).  Never overwrites a file.",
};

static bool name_fits(const char *s)
{
	return *s && *s != '.' && strlen(s) <= 100 && !strpbrk(s, "/\n\r");
}

static int report(const struct curve_key *k, const char *dir, const char *name, bool json)
{
	if (json) {
		json_t *o = json_pack("{s:s, s:s+++, s:s+++}", "public", k->public, "key", dir, "/", name,
				      ".key", "pub", dir, "/", name, ".pub");
		if (o)
			json_dumpf(o, stdout, JSON_COMPACT);
		putchar('\n');
		json_decref(o);
	} else {
		printf("%s/%s.key  secret\n%s/%s.pub  public: %s\n", dir, name, dir, name, k->public);
	}
	return term_finish(EXIT_SUCCESS);
}

int cmd_keygen(int argc, char **argv)
{
	struct opts o = {0};
	struct curve_key k;
	char why[512];
	opts_add(&o, options, sizeof options / sizeof *options);
	int status = command_parse(&o, &usage, argc, argv);
	if (status != COMMAND_GO_ON)
		goto out;
	const char *dir = opts_text(&o, "out", "."), *name = opts_text(&o, "name", "quern");
	if (!name_fits(name)) {
		status = term_usage("keygen", "--name \"%.100s\" is not a file name", name);
		goto out;
	}
	curve_protect();
	int rc = curve_generate(&k, why, sizeof why);
	if (!rc)
		rc = curve_write(&k, dir, name, why, sizeof why);
	explicit_bzero(k.secret, sizeof k.secret);
	status = rc ? term_error("%s", why) : report(&k, dir, name, opts_flag(&o, "json"));
out:
	opts_fini(&o);
	return status;
}
