/* http_error.h - errors in OpenAI's shape, and the HTTP status of each quern code.  Pure. */
#ifndef QUERN_CONTROLLER_HTTP_HTTP_ERROR_H
#define QUERN_CONTROLLER_HTTP_HTTP_ERROR_H

#include "base/buf.h"
#include "proto/codes.h"

/* Append {"error": {"message", "type", "param", "code"}}.  param, code: NULL or "" is written as null. */
void http_error_json(struct buf *b, const char *type, const char *param, const char *code,
		     const char *message);

/* An error of a request.  type, code: OpenAI's; param, code: NULL or "" for none. */
struct http_failure {
	unsigned status;
	const char *type, *param, *code, *message;
	const char *request_id; /* NULL or "": none */
};
/* Append f in OpenAI's shape.  A route's `errors` (http.h) is a function like this. */
void http_error_openai(struct buf *b, const struct http_failure *f);

/* The HTTP status, OpenAI's error type and OpenAI's code (NULL: null) of a quern code. */
struct http_error {
	unsigned status;
	const char *type;
	const char *code;
};
struct http_error http_error_of(enum code code);

#endif
