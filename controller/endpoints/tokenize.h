/* tokenize.h - text to token ids and back: vLLM's /tokenize and /detokenize.  Routes (http.h). */
#ifndef QUERN_CONTROLLER_ENDPOINTS_TOKENIZE_H
#define QUERN_CONTROLLER_ENDPOINTS_TOKENIZE_H

#include "controller/http/exchange.h"
#include "controller/request/field_table.h"

/* Fields of the requests. */
extern const struct field_table tokenize_fields, detokenize_fields;

void tokenize_call(struct exchange *x, const char *rest);
/* /v1/chat/completions/input_tokens (llama.cpp): count the tokens of a chat's prompt. */
void tokenize_call_count(struct exchange *x, const char *rest);
void tokenize_call_reverse(struct exchange *x, const char *rest);

#endif
