/* openai_body.h - OpenAI request bodies to `submit` requests of the job socket, its replies to OpenAI bodies.
 * Pure. */
#ifndef QUERN_CLI_OPENAI_BODY_H
#define QUERN_CLI_OPENAI_BODY_H

#include "base/buf.h"

#include <jansson.h>

/* A submit without a key; owned by the caller.  url: /v1/chat/completions or /v1/completions.  NULL with the
 * reason if the job socket has no counterpart; parameters are validated by the service. */
json_t *openai_body_request(const json_t *body, const char *url, char *why, size_t why_n);
/* Appends the body of a `done` or `error` reply and returns its HTTP status.  Log-probabilities name their
 * tokens as "token_id:N", as vLLM's return_tokens_as_token_ids does.  served: the model of a request
 * without one; NULL: unknown. */
unsigned openai_body_reply(struct buf *out, const json_t *reply, const json_t *body, const char *url,
			   const char *served);
/* Appends the body of an invalid_request_error. */
void openai_body_error(struct buf *out, const char *message);

#endif
