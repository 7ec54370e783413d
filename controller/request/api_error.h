/* api_error.h - why a request was rejected, as both dialects report it.  Any thread. */
#ifndef QUERN_CONTROLLER_REQUEST_API_ERROR_H
#define QUERN_CONTROLLER_REQUEST_API_ERROR_H

#include "proto/codes.h"

/* What was wrong with a request. */
struct api_problem {
	enum code code; /* E_BAD_REQUEST, E_TOO_LONG, E_OVERLOADED, E_INTERNAL */
	char param[64]; /* the field at fault, "" for the request as a whole (OpenAI's error.param) */
	char why[512];
};

/* Fills p; returns -EINVAL.  Text quoted from the request may be cut: param and why stay valid UTF-8. */
int api_fail(struct api_problem *p, enum code code, const char *param, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

#endif
