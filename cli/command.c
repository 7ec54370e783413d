#include "cli/command.h"

#include "base/err.h"
#include "cli/terminal/environment.h"
#include "cli/launch.h"
#include "cli/terminal/term.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct opt command_to_options[] = {
	OPT("to", OPT_TEXT, "ENDPOINT",
	    "the service's job socket (else $QUERN_TO, one of this user, or " LAUNCH_JOBS ")"),
	OPT("key", OPT_TEXT, "FILE", "the client's secret key, for a service with keys (else $QUERN_KEY)"),
	OPT("server-key", OPT_TEXT, "FILE", "the service's public key (else $QUERN_SERVER_KEY)"),
};
const size_t command_n_to_options = sizeof command_to_options / sizeof *command_to_options;

int command_open(const struct opts *o, struct client **c, char *why, size_t why_n)
{
	struct client_keys keys;
	struct environment env = environment_read();
	bool keyed;
	int rc =
		curve_pair(&(struct curve_sources){opts_text(o, "key", NULL),
						   opts_text(o, "server-key", NULL), env.key, env.server_key},
			   &keys.own, &keys.server, &keyed, why, why_n);
	if (!rc) {
		char local[LAUNCH_JOBS_SIZE];
		const char *to = opts_text(o, "to", env.to);
		if (!to)
			to = keyed ? LAUNCH_JOBS : launch_jobs_endpoint(local);
		rc = client_open(to, keyed ? &keys : NULL, CONNECT_MS, c, why, why_n);
	}
	curve_forget(&keys.own);
	return rc;
}

int command_connect(const struct opts *o, struct client **c)
{
	char why[512];
	return command_open(o, c, why, sizeof why) ? term_error("%s", why) : COMMAND_GO_ON;
}

int command_request(const struct opts *o, const char *op, json_t **reply)
{
	struct client *c;
	char why[1024];
	int status = command_connect(o, &c);
	if (status != COMMAND_GO_ON)
		return status;
	json_t *request = json_pack("{s:s}", "op", op);
	int rc = client_call(c, request, CALL_MS, reply, why, sizeof why);
	json_decref(request);
	client_close(c);
	return rc ? term_error("%s", why) : COMMAND_GO_ON;
}
