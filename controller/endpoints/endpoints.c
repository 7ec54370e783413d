#include "controller/endpoints/endpoints.h"

#include "controller/apis/anthropic/anthropic.h"
#include "controller/apis/llamacpp/llamacpp.h"
#include "controller/apis/ollama/ollama.h"
#include "controller/apis/openai/openai.h"
#include "controller/apis/openai/responses_runs.h"
#include "controller/endpoints/routes.h"
#include "controller/endpoints/job_lines.h"
#include "controller/endpoints/openai_batch.h"
#include "controller/endpoints/viewers.h"
#include "controller/jobs/mailbox.h"
#include "controller/request/request_cost.h"
#include "controller/message/service.h"
#include "controller/jobs/file_store.h"
#include "controller/http/http.h"

#include <string.h>

enum { MAX_FILE = 200 << 20 /* limit of an upload, bytes, as in OpenAI's API */ };

static const struct http_route routes[] = {
	{"/health", "GET, HEAD", info_call_health, ROUTE_OPEN | ROUTE_MONITOR, NULL, NULL},
	{"/ready", "GET, HEAD", info_call_health, ROUTE_OPEN | ROUTE_MONITOR, NULL, NULL},
	{"/readyz", "GET, HEAD", info_call_health, ROUTE_OPEN | ROUTE_MONITOR, NULL, NULL},
	{"/livez", "GET, HEAD", info_call_live, ROUTE_OPEN | ROUTE_MONITOR, NULL, NULL},
	{"/version", "GET, HEAD", info_call_version, ROUTE_OPEN, NULL, NULL},
	{"/openapi.json", "GET, HEAD", openapi_call, 0, NULL, NULL},
	{"/metrics", "GET, HEAD", info_call_metrics, ROUTE_MONITOR, NULL, NULL},
	{"/v1/models", "GET, HEAD", info_call_models, ROUTE_REQUEST_ID, NULL, NULL},
	{"/v1/models/", "GET, HEAD", info_call_model, ROUTE_PREFIX | ROUTE_REQUEST_ID, NULL, NULL},
	{"/models", "GET, HEAD", info_call_models, 0, NULL, NULL},
	{"/models/load", "POST", unserved_call, 0, NULL, llamacpp_error},
	{"/models/unload", "POST", unserved_call, 0, NULL, llamacpp_error},
	{"/models/sse", "GET", unserved_call, 0, NULL, llamacpp_error},
	{"/v1/completions", "POST", completions_call_text,
	 ROUTE_JSON | ROUTE_COUNTED | ROUTE_QUEUED | ROUTE_LINE, NULL, NULL},
	{"/v1/chat/completions", "POST", completions_call_chat,
	 ROUTE_JSON | ROUTE_COUNTED | ROUTE_QUEUED | ROUTE_LINE, NULL, NULL},
	{"/chat/completions", "POST", completions_call_chat, ROUTE_JSON | ROUTE_COUNTED | ROUTE_QUEUED, NULL,
	 NULL},
	{"/v1/chat/completions/input_tokens", "POST", tokenize_call_count, ROUTE_JSON | ROUTE_COUNTED, NULL,
	 NULL},
	{"/v1/chat/completions/control", "POST", unserved_call, 0, NULL, llamacpp_error},
	{"/v1/messages", "POST", anthropic_call_messages,
	 ROUTE_JSON | ROUTE_COUNTED | ROUTE_QUEUED | ROUTE_REQUEST_ID, NULL, anthropic_error},
	{"/v1/messages/count_tokens", "POST", anthropic_call_count,
	 ROUTE_JSON | ROUTE_COUNTED | ROUTE_REQUEST_ID, NULL, anthropic_error},
	{"/v1/messages/batches", "GET, POST", unserved_call, ROUTE_REQUEST_ID, NULL, anthropic_error},
	{"/v1/messages/batches/", "GET, POST, DELETE", unserved_call, ROUTE_PREFIX | ROUTE_REQUEST_ID, NULL,
	 anthropic_error},
	{"/v1/complete", "POST", unserved_call, ROUTE_REQUEST_ID, NULL, anthropic_error},
	{"/v1/responses", "POST", responses_call, ROUTE_JSON | ROUTE_COUNTED | ROUTE_QUEUED | ROUTE_LINE,
	 NULL, NULL},
	{"/responses", "POST", responses_call, ROUTE_JSON | ROUTE_COUNTED | ROUTE_QUEUED, NULL, NULL},
	{"/v1/responses/input_tokens", "POST", unserved_call, 0, NULL, NULL},
	{"/v1/responses/compact", "POST", unserved_call, 0, NULL, NULL},
	{"/v1/responses/", "GET, HEAD, POST, DELETE", responses_call_one, ROUTE_PREFIX, NULL, NULL},
	{"/v1/conversations", "POST", conversations_call, ROUTE_JSON | ROUTE_COUNTED, NULL, NULL},
	{"/v1/conversations/", "GET, HEAD, POST, DELETE", conversations_call_one,
	 ROUTE_PREFIX | ROUTE_JSON_POST | ROUTE_COUNTED, NULL, NULL},
	{"/tokenize", "POST", tokenize_call, ROUTE_JSON | ROUTE_COUNTED, NULL, NULL},
	{"/detokenize", "POST", tokenize_call_reverse, ROUTE_JSON | ROUTE_COUNTED, NULL, NULL},
	{"/", "GET, HEAD", page_call_root, ROUTE_OPEN, NULL, NULL},
	{"/api/live", "GET, HEAD", page_call_live, ROUTE_ENDLESS, NULL, NULL},
	{"/api/cancel", "POST", page_call_cancel, ROUTE_JSON, NULL, NULL},
	{"/api/explain/", "GET, HEAD", info_call_explain, ROUTE_PREFIX, NULL, NULL},
	{"/api/chat", "POST", ollama_call_chat, ROUTE_COUNTED | ROUTE_QUEUED, NULL, ollama_error},
	{"/api/generate", "POST", ollama_call_generate, ROUTE_COUNTED | ROUTE_QUEUED, NULL, ollama_error},
	{"/api/embed", "POST", embeddings_call_ollama, ROUTE_COUNTED | ROUTE_QUEUED, NULL, ollama_error},
	{"/api/embeddings", "POST", embeddings_call_ollama_one, ROUTE_COUNTED | ROUTE_QUEUED, NULL,
	 ollama_error},
	{"/api/tags", "GET, HEAD", ollama_call_tags, 0, NULL, ollama_error},
	{"/api/ps", "GET, HEAD", ollama_call_ps, 0, NULL, ollama_error},
	{"/api/show", "POST", ollama_call_show, 0, NULL, ollama_error},
	{"/api/version", "GET, HEAD", ollama_call_version, ROUTE_OPEN, NULL, ollama_error},
	{"/api/pull", "POST", ollama_call_refused, 0, NULL, ollama_error},
	{"/api/push", "POST", ollama_call_refused, 0, NULL, ollama_error},
	{"/api/create", "POST", ollama_call_refused, 0, NULL, ollama_error},
	{"/api/copy", "POST", ollama_call_refused, 0, NULL, ollama_error},
	{"/api/delete", "DELETE", ollama_call_refused, 0, NULL, ollama_error},
	{"/api/blobs/", "HEAD, POST", ollama_call_refused, ROUTE_PREFIX, NULL, ollama_error},
	{"/completion", "POST", llamacpp_call_completion, ROUTE_COUNTED | ROUTE_QUEUED, NULL, llamacpp_error},
	{"/completions", "POST", llamacpp_call_completion, ROUTE_COUNTED | ROUTE_QUEUED, NULL,
	 llamacpp_error},
	{"/infill", "POST", llamacpp_call_infill, ROUTE_COUNTED | ROUTE_QUEUED, NULL, llamacpp_error},
	{"/embedding", "POST", embeddings_call_llamacpp, ROUTE_COUNTED | ROUTE_QUEUED, NULL, llamacpp_error},
	{"/embeddings", "POST", embeddings_call_llamacpp, ROUTE_COUNTED | ROUTE_QUEUED, NULL, llamacpp_error},
	{"/apply-template", "POST", llamacpp_call_template, ROUTE_COUNTED, NULL, llamacpp_error},
	{"/props", "GET, HEAD", llamacpp_call_props, 0, NULL, llamacpp_error},
	{"/slots", "GET, HEAD", llamacpp_call_slots, 0, NULL, llamacpp_error},
	{"/slots/", "POST", unserved_call, ROUTE_PREFIX, NULL, llamacpp_error},
	{"/lora-adapters", "GET, POST", unserved_call, 0, NULL, llamacpp_error},
	{"/v1/systemone", "POST", unserved_call, 0, NULL, llamacpp_error},
	{"/v1/health", "GET, HEAD", info_call_health, ROUTE_OPEN | ROUTE_MONITOR, NULL, NULL},
	{"/v1/embeddings", "POST", embeddings_call, ROUTE_JSON | ROUTE_COUNTED | ROUTE_QUEUED | ROUTE_LINE,
	 NULL, NULL},
	{"/v1/rerank", "POST", rerank_call, ROUTE_JSON | ROUTE_COUNTED | ROUTE_QUEUED | ROUTE_LINE, NULL,
	 NULL},
	{"/v2/rerank", "POST", rerank_call, ROUTE_JSON | ROUTE_COUNTED | ROUTE_QUEUED | ROUTE_LINE, NULL,
	 NULL},
	{"/rerank", "POST", rerank_call, ROUTE_JSON | ROUTE_COUNTED | ROUTE_QUEUED | ROUTE_LINE, NULL, NULL},
	{"/v1/reranking", "POST", rerank_call, ROUTE_JSON | ROUTE_COUNTED | ROUTE_QUEUED, NULL, NULL},
	{"/reranking", "POST", rerank_call, ROUTE_JSON | ROUTE_COUNTED | ROUTE_QUEUED, NULL, NULL},
	{"/v1/score", "POST", rerank_call_score, ROUTE_JSON | ROUTE_COUNTED | ROUTE_QUEUED | ROUTE_LINE, NULL,
	 NULL},
	{"/score", "POST", rerank_call_score, ROUTE_JSON | ROUTE_COUNTED | ROUTE_QUEUED | ROUTE_LINE, NULL,
	 NULL},
	{"/v1/files", "GET, HEAD, POST", files_call, ROUTE_COUNTED, files_upload, NULL},
	{"/v1/files/", "GET, HEAD, DELETE", files_call_one, ROUTE_PREFIX, NULL, NULL},
	{"/v1/batches", "GET, HEAD, POST", batches_call, ROUTE_JSON_POST | ROUTE_COUNTED, NULL, NULL},
	{"/v1/batches/", "GET, HEAD, POST", batches_call_one, ROUTE_PREFIX, NULL, NULL},
};

const struct http_route *endpoints_routes(size_t *n)
{
	*n = sizeof routes / sizeof *routes;
	return routes;
}

static int start(void *user, struct exchange_host *host, struct why *why)
{
	struct endpoints *e = user;
	struct journal *journal = e->svc->journal;
	int rc = journal ? file_store_open(journal, batches_with_input, &e->files, why) : 0;
	if (rc)
		return rc;
	e->viewers = viewers_start(e->apis.mailbox, e->svc);
	rc = journal ? batches_start(host, e->apis.mailbox, e->files, &e->batches, why) : 0;
	if (rc)
		goto fail_batches;
	e->apis.responses = journal ? responses_start(host, journal, &e->stored) : NULL;
	e->lines = e->svc->lines ? job_lines_start(host, e->apis.mailbox) : NULL;
	return 0;

fail_batches:
	viewers_stop(e->viewers);
	file_store_close(e->files);
	return rc;
}

static void quiesce(void *user)
{
	struct endpoints *e = user;
	job_lines_quiesce(e->lines);
	if (e->batches)
		batches_quiesce(e->batches);
	responses_quiesce(e->apis.responses);
}

static void drain(void *user)
{
	struct endpoints *e = user;
	viewers_stop(e->viewers);
	/* Answer the requests that wait for the journal now, even if its disk fails. */
	if (e->files)
		journal_end(file_store_journal(e->files));
}

static void stop(void *user)
{
	struct endpoints *e = user;
	/* Store the results of lines that ended meanwhile before their batches are freed. */
	if (e->files)
		journal_end(file_store_journal(e->files));
	batches_stop(e->batches);
	responses_stop(e->apis.responses);
	file_store_close(e->files);
	job_lines_free(e->lines);
}

/* Return Anthropic's error shape for its clients: /v1/models serves them too. */
static http_errors *errors_for(const struct exchange *x)
{
	return x->route && x->route->flags & ROUTE_REQUEST_ID && anthropic_client(x) ? anthropic_error : NULL;
}

struct http_app endpoints_app(struct endpoints *e, struct mailbox *mailbox, const struct service *svc,
			      size_t max_file_bytes)
{
	*e = (struct endpoints){.apis = {.mailbox = mailbox},
				.stored = responses_limits_of(svc, false),
				.svc = svc,
				.max_file_bytes = max_file_bytes ? max_file_bytes : MAX_FILE};
	return (struct http_app){.routes = routes,
				 .n_routes = sizeof routes / sizeof routes[0],
				 .errors_for = errors_for,
				 .is_costly = request_is_costly,
				 .user = e,
				 .start = start,
				 .quiesce = quiesce,
				 .drain = drain,
				 .stop = stop};
}

struct http_app endpoints_monitor_app(struct endpoints *e)
{
	return (struct http_app){.routes = routes,
				 .n_routes = sizeof routes / sizeof routes[0],
				 .only = ROUTE_MONITOR,
				 .user = e};
}

/* The status is 501, llama.cpp's status for unsupported requests; but not for Anthropic's clients, which
 * would retry after a 501. */
static const struct {
	const char *path; /* path of the route */
	unsigned status;
	const char *instead;
} all[] = {
	{"/v1/messages/batches", MHD_HTTP_NOT_FOUND, "/v1/batches takes batches of chats"},
	{"/v1/messages/batches/", MHD_HTTP_NOT_FOUND, "/v1/batches takes batches of chats"},
	{"/v1/complete", MHD_HTTP_NOT_FOUND, "use /v1/messages"},
	{"/v1/responses/input_tokens", MHD_HTTP_NOT_FOUND,
	 "/v1/chat/completions/input_tokens counts a chat's"},
	{"/v1/responses/compact", MHD_HTTP_NOT_FOUND, "send a shorter input"},
	{"/lora-adapters", MHD_HTTP_NOT_IMPLEMENTED, "merge the adapter into its base model"},
	{"/slots/", MHD_HTTP_NOT_IMPLEMENTED, "prefixes are cached and kept without it"},
	{"/models/load", MHD_HTTP_NOT_IMPLEMENTED, "the service has one model, which it is started with"},
	{"/models/unload", MHD_HTTP_NOT_IMPLEMENTED, "the service has one model, which it is started with"},
	{"/models/sse", MHD_HTTP_NOT_IMPLEMENTED, "the service has one model, which it is started with"},
	{"/v1/chat/completions/control", MHD_HTTP_NOT_IMPLEMENTED,
	 "limit reasoning with thinking_token_budget"},
	{"/v1/systemone", MHD_HTTP_NOT_IMPLEMENTED, "this service has no decision models"},
};

void unserved_call(struct exchange *x, const char *rest)
{
	(void)rest;
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		if (strcmp(all[i].path, x->route->path) == 0)
			exchange_error(x, all[i].status, "invalid_request_error", NULL, "not_served",
				       "%s is not served: %s", x->path, all[i].instead);
}
