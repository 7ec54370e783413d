/* embeddings_apis.h - the embeddings routes (http.h) of other APIs: translates their requests to those of
 * /v1/embeddings. */
#ifndef QUERN_CONTROLLER_ENDPOINTS_EMBEDDINGS_APIS_H
#define QUERN_CONTROLLER_ENDPOINTS_EMBEDDINGS_APIS_H

#include "controller/http/exchange.h"
#include "controller/request/field_table.h"

extern const struct field_table ollama_embed_fields, ollama_embeddings_fields, llamacpp_embedding_fields;

void embeddings_call_ollama(struct exchange *x, const char *rest);     /* /api/embed */
void embeddings_call_ollama_one(struct exchange *x, const char *rest); /* /api/embeddings */
void embeddings_call_llamacpp(struct exchange *x, const char *rest);   /* /embedding */

#endif
