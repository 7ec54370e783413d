/* rerank.h - the routes (http.h) that score texts against a query: /v1/rerank, /v2/rerank and /rerank
 * (Cohere, Jina), /v1/score and /score (vLLM).
 *
 * An embedding model scores a pair by the cosine of its two vectors, with one job per text.  Any other model
 * is asked whether the document meets the query, with the prompt of Qwen3-Reranker, and the score is the
 * weight of "yes" against "no" in the logits after the prompt, with one job per pair.  The prompts share the
 * query's prefix in the prefix cache. */
#ifndef QUERN_CONTROLLER_ENDPOINTS_RERANK_H
#define QUERN_CONTROLLER_ENDPOINTS_RERANK_H

#include "controller/http/exchange.h"
#include "controller/request/field_table.h"

/* Fields of the requests. */
extern const struct field_table rerank_fields, score_fields;

void rerank_call(struct exchange *x, const char *rest);
void rerank_call_score(struct exchange *x, const char *rest);

#endif
