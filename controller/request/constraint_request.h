/* constraint_request.h - structured output of a request: OpenAI's response_format, vLLM's guided_... and
 * structured_outputs, llama.cpp's grammar and json_schema.
 *
 *     fields --constraint_request_part--> composite document (grammar/composite.h)
 *     --constraint_request_compile--> constraint
 *
 * A constraint is compiled here once, without a vocabulary.  So the client gets the position of whatever
 * the engine would refuse, and no job is accepted that could not start.  Bounded like grammars.  Any
 * thread. */
#ifndef QUERN_CONTROLLER_REQUEST_CONSTRAINT_REQUEST_H
#define QUERN_CONTROLLER_REQUEST_CONSTRAINT_REQUEST_H

#include "controller/request/checked.h"
#include "controller/request/request_fields.h"
#include "grammar/work.h"
#include "proto/constraint.h"

/* Find the structured output that the request asks for.  *part: a new reference; NULL: outputs are free.
 * *field: the field that asks for it, for errors.  -EINVAL with *p filled: malformed, or several fields
 * ask. */
int constraint_request_part(const struct request_fields *f, json_t **part, const char **field,
			    struct api_problem *p);

/* Return true if schemas allow everything they permit; otherwise they are bounded
 * (grammar/schema/schema.h). */
bool constraint_request_exact(const struct request_fields *f);

/* Limit of work for all compilations of one request: about a second of CPU time.  The most expensive
 * MaskBench schema (11,011 compile) takes 42 million. */
enum { CONSTRAINT_WORK_MAX = 44000000 };

/* Compile a constraint.  exact: constraint_request_exact().  *out: the caller's reference.  known: cache of
 * checked constraints, which also receives a new one; NULL: none.  account: the request's work account; its
 * balance bounds the check.  -EINVAL with *p filled: why begins with the field and the position in it. */
int constraint_request_compile(const json_t *part, const char *field, bool exact, struct checked *known,
			       struct grammar_account *account, struct constraint **out,
			       struct api_problem *p);

/* Fill p because the account is used up.  why: the position, or "".  Returns -EINVAL. */
int constraint_request_spent(const char *field, const char *why, struct api_problem *p);

#endif
