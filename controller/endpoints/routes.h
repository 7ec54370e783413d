/* routes.h - the routes (http.h) of the folder's resources, and the fields of their requests. */
#ifndef QUERN_CONTROLLER_ENDPOINTS_ROUTES_H
#define QUERN_CONTROLLER_ENDPOINTS_ROUTES_H

#include "controller/http/exchange.h"
#include "controller/request/field_table.h"

#include <jansson.h>
#include <stdbool.h>

/* /v1/embeddings: each input becomes a pooled job. */
extern const struct field_table embeddings_fields;
void embeddings_call(struct exchange *x, const char *rest);

/* Shape of the reply. */
enum embeddings_shape {
	EMBEDDINGS_OPENAI,
	EMBEDDINGS_OLLAMA,     /* {"model", "embeddings": [[...]], "total_duration", ...} */
	EMBEDDINGS_OLLAMA_ONE, /* {"embedding": [...]} */
	EMBEDDINGS_LLAMACPP,   /* [{"index", "embedding": [[...]]}] */
};

/* Run a request in the format of /v1/embeddings for a route of another API; x gets the reply.  names: as in
 * struct generation. */
struct generation_name;
void embeddings_start(struct exchange *x, const json_t *request, enum embeddings_shape shape,
		      const struct generation_name *names);

/* The embeddings routes of other APIs translate their requests to those of /v1/embeddings. */
extern const struct field_table ollama_embed_fields, ollama_embeddings_fields, llamacpp_embedding_fields;
void embeddings_call_ollama(struct exchange *x, const char *rest);     /* /api/embed */
void embeddings_call_ollama_one(struct exchange *x, const char *rest); /* /api/embeddings */
void embeddings_call_llamacpp(struct exchange *x, const char *rest);   /* /embedding */

/* Routes that score texts against a query: /v1/rerank, /v2/rerank and /rerank (Cohere, Jina), /v1/score and
 * /score (vLLM).
 *
 * An embedding model scores a pair by the cosine of its two vectors, with one job per text.  Any other model
 * is asked whether the document meets the query, with the prompt of Qwen3-Reranker, and the score is the
 * weight of "yes" against "no" in the logits after the prompt, with one job per pair.  The prompts share the
 * query's prefix in the prefix cache. */
extern const struct field_table rerank_fields, score_fields;
void rerank_call(struct exchange *x, const char *rest);
void rerank_call_score(struct exchange *x, const char *rest);

/* Text to token ids and back: vLLM's /tokenize and /detokenize. */
extern const struct field_table tokenize_fields, detokenize_fields;
void tokenize_call(struct exchange *x, const char *rest);
/* /v1/chat/completions/input_tokens (llama.cpp): count the tokens of a chat's prompt. */
void tokenize_call_count(struct exchange *x, const char *rest);
void tokenize_call_reverse(struct exchange *x, const char *rest);

/* Identity and health of the service: /health, /ready, /livez, /version, /metrics, /v1/models. */
void info_call_health(struct exchange *x, const char *rest);
/* 503 if a thread that every request needs has not run for a minute. */
void info_call_live(struct exchange *x, const char *rest);
void info_call_version(struct exchange *x, const char *rest);
void info_call_explain(struct exchange *x, const char *rest);
void info_call_metrics(struct exchange *x, const char *rest);
void info_call_models(struct exchange *x, const char *rest);
void info_call_model(struct exchange *x, const char *rest);

/* /v1/files, in OpenAI's shapes: uploads (multipart/form-data), which are written to the journal as they
 * arrive, lists and contents.  files_upload() is the route's upload().  -EINVAL: not a form.  Other errors
 * are reported when the whole upload has arrived. */
int files_upload(struct exchange *x);
/* Check for the journal, which stores files and batches.  false: there is none, and x has its reply. */
bool files_have_journal(struct exchange *x);
void files_call(struct exchange *x, const char *rest);
void files_call_one(struct exchange *x, const char *rest);

/* GET /openapi.json: the service's HTTP API as an OpenAPI 3.1 document
 * (https://spec.openapis.org/oas/v3.1.1).  The fields of requests come from the tables that check them
 * (field_table.h); `x-quern` has the effect of each field.  openapi_document() returns the document, which
 * the caller owns. */
json_t *openapi_document(void);
void openapi_call(struct exchange *x, const char *rest);

/* The page at `/` and the paths that only the page uses.  page_html is the document with its style and its
 * script (controller/endpoints/page/), linked into the binary. */
extern const char page_html[];
extern const char page_html_end[];
void page_call_root(struct exchange *x, const char *rest);
/* The live stream (live.h). */
void page_call_live(struct exchange *x, const char *rest);
/* Cancel the job of {"job": id}. */
void page_call_cancel(struct exchange *x, const char *rest);

/* Paths of other services' APIs that quern does not serve: refuse them by name, in the API's error shape,
 * and name an alternative. */
void unserved_call(struct exchange *x, const char *rest);

#endif
