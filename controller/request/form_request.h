/* form_request.h - structured output of a request: OpenAI's response_format, vLLM's guided_... and
 * structured_outputs, llama.cpp's grammar and json_schema.
 *
 *     fields --form_request_part--> form source (grammar/form_source.h) --form_request_compile--> form
 *
 * A form is compiled here once, without a vocabulary.  So the client gets the position of whatever the engine
 * would refuse, and no job is accepted that could not start.  Bounded like grammars.  Any thread. */
#ifndef QUERN_CONTROLLER_REQUEST_FORM_REQUEST_H
#define QUERN_CONTROLLER_REQUEST_FORM_REQUEST_H

#include "controller/request/checked.h"
#include "controller/request/request_fields.h"
#include "grammar/work.h"
#include "proto/form.h"

/* Find the structured output that the request asks for.  *part: a new reference; NULL: outputs are free.
 * *field: the field that asks for it, for errors.  -EINVAL with *p filled: malformed, or several fields
 * ask. */
int form_request_part(const struct request_fields *f, json_t **part, const char **field,
		      struct api_problem *p);

/* Return true if schemas allow everything they permit; otherwise they are bounded
 * (grammar/schema/schema.h). */
bool form_request_exact(const struct request_fields *f);

/* Limit of work for all compilations of one request: about a second of CPU time.  The most expensive
 * MaskBench schema (11,011 compile) takes 42 million. */
enum { FORM_WORK_MAX = 44000000 };

/* Compile a form.  exact: form_request_exact().  *out: the caller's reference.  known: cache of checked
 * forms, which also receives a new one; NULL: none.  account: the request's work account; its balance bounds
 * the check.  -EINVAL with *p filled: why begins with the field and the position in it. */
int form_request_compile(const json_t *part, const char *field, bool exact, struct checked *known,
			 struct grammar_account *account, struct form **out, struct api_problem *p);

/* Fill p because the account is used up.  why: the position, or "".  Returns -EINVAL. */
int form_request_spent(const char *field, const char *why, struct api_problem *p);

#endif
