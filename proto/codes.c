#include "proto/codes.h"

#include <stddef.h>

const char *code_name(enum code c)
{
	static const char *const names[] = {
		[CODE_OK] = "OK",
		[E_BAD_REQUEST] = "E_BAD_REQUEST",
		[E_TOO_LONG] = "E_TOO_LONG",
		[E_OVERLOADED] = "E_OVERLOADED",
		[E_NO_SUCH_JOB] = "E_NO_SUCH_JOB",
		[E_NOT_READY] = "E_NOT_READY",
		[E_AUTH] = "E_AUTH",
		[E_DEADLINE] = "E_DEADLINE",
		[E_WORKER_LOST] = "E_WORKER_LOST",
		[E_INTERNAL] = "E_INTERNAL",
	};
	return names[c];
}

const char *finish_name(enum finish f)
{
	static const char *const names[] = {NULL, "stop", "length", "abort", "error"};
	return names[f];
}
