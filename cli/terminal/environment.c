#include "cli/terminal/environment.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Return a variable; NULL if it is not set or empty. */
static const char *get(const char *name)
{
	const char *value = getenv(name);
	return value && *value ? value : NULL;
}

struct environment environment_read(void)
{
	const char *term = getenv("TERM"), *no = getenv("NO_COLOR"), *dir = getenv("XDG_RUNTIME_DIR"),
		   *state = getenv("XDG_STATE_HOME");
	const char *key = getenv("OPENAI_API_KEY"), *to = getenv("QUERN_TO");
	return (struct environment){
		.runtime_dir = dir && *dir == '/' ? dir : NULL,
		.cache_dir = getenv("XDG_CACHE_HOME"),
		.home = getenv("HOME"),
		.api_key = key && *key ? key : NULL,
		.to = to && *to ? to : NULL,
		.key = getenv("QUERN_KEY"),
		.server_key = getenv("QUERN_SERVER_KEY"),
		.state_dir = state && *state == '/' ? state : NULL,
		.models_dir = get("QUERN_MODELS"),
		.hub = get("HF_ENDPOINT"),
		.hub_token = get("HF_TOKEN"),
		.token = get("QUERN_TOKEN"),
		.notify_socket = get("NOTIFY_SOCKET"),
		.watchdog_usec = get("WATCHDOG_USEC"),
		.watchdog_pid = get("WATCHDOG_PID"),
		.dumb_terminal = !term || !*term || strcmp(term, "dumb") == 0,
		.no_color = (no && *no) || (term && strcmp(term, "dumb") == 0),
	};
}

char *const *environment_all(void)
{
	return environ;
}
