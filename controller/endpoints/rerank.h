/* rerank.h - the routes (http.h) that score texts against a query: /v1/rerank, /v2/rerank and /rerank as
 * Cohere and Jina have them, /v1/score and /score as vLLM has them.
 *
 * An embedding model scores a pair by the cosine of its two vectors: a job for each text.  Any other model is
 * asked whether the document meets the query, in the words of Qwen3-Reranker, and the score is the weight
 * of "yes" against "no" in the logits behind the prompt: a job for each pair; their prompts share the
 * query's part in the prefix cache. */
#ifndef QUERN_CONTROLLER_ENDPOINTS_RERANK_H
#define QUERN_CONTROLLER_ENDPOINTS_RERANK_H

#include "controller/http/exchange.h"
#include "controller/request/field_table.h"

/* Of the requests. */
extern const struct field_table rerank_fields, score_fields;

void rerank_call(struct exchange *x, const char *rest);
void rerank_call_score(struct exchange *x, const char *rest);

#endif
