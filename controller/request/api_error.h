/* api_error.h - why a request was rejected, as both dialects report it.  Any thread. */
#ifndef QUERN_CONTROLLER_REQUEST_API_ERROR_H
#define QUERN_CONTROLLER_REQUEST_API_ERROR_H

#include "proto/codes.h"

#include <jansson.h>

/* The reason why a request is rejected. */
struct api_problem {
	enum code code; /* E_BAD_REQUEST, E_TOO_LONG, E_OVERLOADED, E_INTERNAL */
	char param[64]; /* the field at fault, "" for the request as a whole (OpenAI's error.param) */
	char why[512];
};

/* Fill p and return -EINVAL.  Text quoted from the request may be cut: param and why stay valid UTF-8. */
int api_fail(struct api_problem *p, enum code code, const char *param, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

/* Fill p for field NAME, whose value is a number too large for any field: json_big() of base/json.h.  Returns
 * -EINVAL. */
int api_fail_big(struct api_problem *p, const char *name, const json_t *v);

#endif
