/* batch_openai.h - OpenAI's request bodies to submits of the job socket, its replies back.  Pure. */
#ifndef QUERN_CLI_BATCH_OPENAI_H
#define QUERN_CLI_BATCH_OPENAI_H

#include "base/buf.h"

#include <jansson.h>

/* A submit without a key; the caller's.  url: /v1/chat/completions or /v1/completions.  NULL with the
 * reason where the job socket cannot say it; what it refuses, it names itself. */
json_t *batch_openai_request(const json_t *body, const char *url, char *why, size_t why_n);
/* The reply's body of a `done` or an `error`; the HTTP status.  Log-probabilities name their tokens
 * as "token_id:N", as vLLM's return_tokens_as_token_ids does.  served: the model where
 * the request names none; NULL: not known. */
unsigned batch_openai_reply(struct buf *out, const json_t *reply, const json_t *body, const char *url,
			    const char *served);
void batch_openai_error(struct buf *out, const char *message);

#endif
