#include "cli/commands.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/file.h"
#include "base/option_table.h"
#include "cli/command.h"
#include "cli/terminal/term.h"
#include "proto/curve.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct usage usage = {
	.name = "keygen",
	.words = "",
	.about = "Makes a key pair (CURVE).  NAME.key is secret: keep it on this machine (serve --curve-key, "
		 "and\n"
		 "--key of clients and workers).  NAME.pub may be shared (--server-key; its key goes into "
		 "the\n"
		 "service's --allow file).  Never overwrites a file.\n"
		 "With --fleet: makes the pairs service, worker and admin, and the file allow, which lists "
		 "the last\n"
		 "two.  Workers of all machines can share worker.key; `quern worker --join` finds it and "
		 "service.pub\n"
		 "in ~/.config/quern or /etc/quern.",
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

/* ---- a fleet ---- */

enum { FLEET = 3 };
static const char *const fleet_names[FLEET] = {"service", "worker", "admin"};

static bool exists_in(const char *dir, const char *name, const char *ending, struct why *why)
{
	char *path = xasprintf("%s/%s%s", dir, name, ending);
	const bool there = file_exists(path);
	if (there)
		err_why(why, -EEXIST, "%s exists: choose another --out, or move it away", path);
	free(path);
	return there;
}

/* Return whether one of the files exists already; then nothing is written. */
static bool fleet_exists(const char *dir, struct why *why)
{
	bool there = exists_in(dir, "allow", "", why);
	for (int i = 0; i < FLEET && !there; i++)
		there = exists_in(dir, fleet_names[i], ".key", why) ||
			exists_in(dir, fleet_names[i], ".pub", why);
	return there;
}

/* Write the list of peers that may connect.  The service's own key has every right without a line. */
static int write_allow(const char *path, const struct curve_key *k, struct why *why)
{
	const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return err_why(why, -errno, "%s: %s", path, strerror(errno));
	const int put = dprintf(fd, "worker %s workers\nadmin %s admin\n", k[1].public, k[2].public);
	int rc = put < 0 || fsync(fd) < 0 ? -errno : 0;
	if (close(fd) < 0 && !rc)
		rc = -errno;
	if (!rc)
		return 0;
	unlink(path);
	return err_why(why, rc, "%s: %s", path, strerror(-rc));
}

static void remove_pair(const char *dir, const char *name)
{
	char *secret = xasprintf("%s/%s.key", dir, name), *public = xasprintf("%s/%s.pub", dir, name);
	unlink(secret);
	unlink(public);
	free(secret);
	free(public);
}

/* Make all pairs and the allow file, or nothing.  k receives the pairs; their secret halves are wiped. */
static int make_fleet(struct curve_key k[FLEET], const char *dir, struct why *why)
{
	int rc = fleet_exists(dir, why) ? -EEXIST : 0, n = 0;
	for (; !rc && n < FLEET; n += !rc) {
		rc = curve_generate(&k[n], why);
		if (!rc)
			rc = curve_write(&k[n], dir, fleet_names[n], why);
		explicit_bzero(k[n].secret, sizeof k[n].secret);
	}
	char *allow = xasprintf("%s/allow", dir);
	if (!rc)
		rc = write_allow(allow, k, why);
	for (int i = 0; rc && i < n; i++)
		remove_pair(dir, fleet_names[i]);
	free(allow);
	return rc;
}

static int report_fleet(const struct curve_key k[FLEET], const char *dir, bool json)
{
	if (json) {
		json_t *o = json_pack("{s:s, s:s, s:s, s:s+}", "service", k[0].public, "worker", k[1].public,
				      "admin", k[2].public, "allow", dir, "/allow");
		if (o)
			json_dumpf(o, stdout, JSON_COMPACT);
		putchar('\n');
		json_decref(o);
	} else {
		printf("%s/service.key, allow       stay here:  quern serve MODEL --bus tcp://0.0.0.0:7430\n"
		       "                            --curve-key %s/service.key --allow %s/allow\n"
		       "%s/worker.key, service.pub  to ~/.config/quern of each worker's machine:\n"
		       "                            quern worker --join HOST\n"
		       "%s/admin.key, service.pub   to the operator:  --key, --server-key\n",
		       dir, dir, dir, dir, dir);
	}
	return term_finish(EXIT_SUCCESS);
}

static int run(struct opts *o)
{
	struct curve_key k;
	struct why why;
	const char *dir = opts_text(o, "out"), *name = opts_text(o, "name");
	if (!name_fits(name))
		return term_usage("keygen", "--name \"%.100s\" is not a file name", name);
	curve_protect();
	if (opts_flag(o, "fleet")) {
		struct curve_key pairs[FLEET] = {0};
		if (opts_has(o, "name"))
			return term_usage("keygen", "--fleet has names of its own: leave out --name");
		if (make_fleet(pairs, dir, &why))
			return term_error("%s", why.text);
		return report_fleet(pairs, dir, opts_flag(o, "json"));
	}
	int rc = curve_generate(&k, &why);
	if (!rc)
		rc = curve_write(&k, dir, name, &why);
	explicit_bzero(k.secret, sizeof k.secret);
	return rc ? term_error("%s", why.text) : report(&k, dir, name, opts_flag(o, "json"));
}

int cmd_keygen(int argc, char **argv)
{
	return command_run(&usage, OPTION_KEYGEN, run, argc, argv);
}
