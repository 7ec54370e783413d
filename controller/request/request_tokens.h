/* request_tokens.h - the token ids of a request: tokenizes texts, checks given ids.
 * All ids are within the model's vocabulary.  A text that cannot fit the context is not tokenized.  Errors
 * name the field.  Any thread. */
#ifndef QUERN_CONTROLLER_REQUEST_REQUEST_TOKENS_H
#define QUERN_CONTROLLER_REQUEST_REQUEST_TOKENS_H

#include "controller/message/service.h"
#include "controller/request/api_error.h"
#include "controller/tokenizer/tokenizer.h"

#include <jansson.h>

/* Check the length of a text before it is tokenized or rendered: E_TOO_LONG if any n bytes have at least
 * max_context tokens. */
int request_tokens_check_bytes(const struct service *svc, uint32_t max_context, size_t n, const char *field,
			       struct api_problem *p);

/* A text and how to tokenize it. */
struct request_text {
	const char *field; /* named in errors */
	const char *p;
	size_t n;
	unsigned flags;                /* TOKENIZER_... */
	const struct text_span *plain; /* [n_plain]: spans in which special tokens are not recognized */
	size_t n_plain;
};
/* Tokenize text and append the ids to out.  -EINVAL with *p filled. */
int request_tokens_encode(const struct service *svc, const struct request_text *text, struct token_ids *out,
			  struct api_problem *p);

/* Read an array of at most max ids and append them to out.  -EINVAL with *p filled. */
int request_tokens_read(const struct service *svc, const json_t *array, const char *field, size_t max,
			struct token_ids *out, struct api_problem *p);

#endif
