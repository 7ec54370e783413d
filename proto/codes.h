/* codes.h - the error codes of the job socket, and why an output ended. */
#ifndef QUERN_PROTO_CODES_H
#define QUERN_PROTO_CODES_H

enum code {
	CODE_OK,
	E_BAD_REQUEST,
	E_TOO_LONG,
	E_OVERLOADED,
	E_NO_SUCH_JOB,
	E_NOT_READY,
	E_AUTH,
	E_DEADLINE,
	E_WORKER_LOST,
	E_INTERNAL,
};
enum finish { FINISH_NONE, FINISH_STOP, FINISH_LENGTH, FINISH_ABORT, FINISH_ERROR };

const char *code_name(enum code c);     /* "E_BAD_REQUEST" */
const char *finish_name(enum finish f); /* "stop", "length", "abort", "error"; NULL for none */

#endif
