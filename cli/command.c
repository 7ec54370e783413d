#include "cli/command.h"

#include "base/err.h"
#include "base/option_table.h"
#include "cli/terminal/environment.h"
#include "cli/launch.h"
#include "cli/terminal/term.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int command_open(const struct opts *o, struct client **c, struct why *why)
{
	struct client_keys keys;
	struct environment env = environment_read();
	bool keyed;
	int rc = curve_pair(&(struct curve_sources){opts_text(o, "key"), opts_text(o, "server-key"), env.key,
						    env.server_key},
			    &keys.own, &keys.server, &keyed, why);
	if (!rc) {
		char local[LAUNCH_JOBS_SIZE];
		const char *to = opts_text_or(o, "to", env.to);
		if (!to)
			to = keyed ? OPTION_JOBS : launch_jobs_endpoint(local);
		rc = client_open(to, keyed ? &keys : NULL, CONNECT_MS, c, why);
	}
	curve_forget(&keys.own);
	return rc;
}

int command_connect(const struct opts *o, struct client **c)
{
	struct why why;
	return command_open(o, c, &why) ? term_error("%s", why.text) : COMMAND_GO_ON;
}

int command_request(const struct opts *o, const char *op, json_t **reply)
{
	struct client *c;
	struct why why;
	int status = command_connect(o, &c);
	if (status != COMMAND_GO_ON)
		return status;
	json_t *request = json_pack("{s:s}", "op", op);
	int rc = client_call(c, request, CALL_MS, reply, &why);
	json_decref(request);
	client_close(c);
	return rc ? term_error("%s", why.text) : COMMAND_GO_ON;
}
