/* form_request.h - what a request asks its outputs to look like: OpenAI's response_format, vLLM's guided_...
 * and structured_outputs, llama.cpp's grammar and json_schema.
 *
 *     fields --form_request_part--> a part of a form (grammar/form_source.h) --form_request_compile--> form
 *
 * A form is compiled here once, without a vocabulary, so that what the engine refuses is told to the client
 * with its place, and no job is taken that could not begin.  Bounded as grammars are.  Any thread. */
#ifndef QUERN_CONTROLLER_REQUEST_FORM_REQUEST_H
#define QUERN_CONTROLLER_REQUEST_FORM_REQUEST_H

#include "controller/request/checked.h"
#include "controller/request/request_fields.h"
#include "proto/form.h"

/* *part: a new reference; NULL: outputs are free.  *field: the one that asks for it, to name in errors.
 * -EINVAL with *p filled: malformed, or more than one field asks. */
int form_request_part(const struct request_fields *f, json_t **part, const char **field,
		      struct api_problem *p);

/* *out: the caller's reference.  known: forms that need no check, and where a new one is kept; NULL: none.
 * -EINVAL with *p filled: why begins with the field and the place in it. */
int form_request_compile(const json_t *part, const char *field, struct checked *known, struct form **out,
			 struct api_problem *p);

#endif
