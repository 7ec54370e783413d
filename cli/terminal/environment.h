/* environment.h - environment variables that the commands read, in one place. (kernels/kern.c reads
 * QUERN_CUDA_LIBRARY; worker/main.c reads the worker's variables.) */
#ifndef QUERN_CLI_TERMINAL_ENVIRONMENT_H
#define QUERN_CLI_TERMINAL_ENVIRONMENT_H

#include <stdbool.h>

struct environment {
	const char *runtime_dir;      /* XDG_RUNTIME_DIR, or NULL */
	const char *cache_dir;        /* XDG_CACHE_HOME, or NULL */
	const char *home;             /* HOME, or NULL */
	const char *api_key;          /* OPENAI_API_KEY, or NULL */
	const char *to;               /* QUERN_TO, or NULL */
	const char *key, *server_key; /* QUERN_KEY, QUERN_SERVER_KEY (curve_pair()), or NULL */
	const char *state_dir;        /* XDG_STATE_HOME, or NULL */
	const char *models_dir;       /* QUERN_MODELS, or NULL */
	const char *hub;              /* HF_ENDPOINT, or NULL */
	const char *hub_token;        /* HF_TOKEN, for the hub at HF_ENDPOINT, or NULL */
	const char *token;            /* QUERN_TOKEN, for the server named on the command line, or NULL */
	const char *notify_socket;    /* NOTIFY_SOCKET, WATCHDOG_USEC, WATCHDOG_PID: sd_notify(3), or NULL */
	const char *watchdog_usec, *watchdog_pid;
	bool no_color;      /* NO_COLOR is set, or the terminal is dumb */
	bool dumb_terminal; /* TERM is dumb, or not set */
};
struct environment environment_read(void);
/* Return all variables, {"NAME=value", ..., NULL}. */
char *const *environment_all(void);

#endif
