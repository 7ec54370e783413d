#include "controller/endpoints/routes.h"

#include "base/version.h"
#include "controller/apis/anthropic/anthropic_read.h"
#include "controller/apis/openai/openai.h"
#include "controller/apis/openai/responses_read.h"
#include "controller/apis/llamacpp/llamacpp_read.h"
#include "controller/apis/ollama/ollama.h"
#include "controller/apis/ollama/ollama_read.h"
#include "controller/endpoints/openai_batch.h"
#include "controller/request/request_fields.h"

#include <stdlib.h>
#include <string.h>

enum body { NONE, TABLE, TEXT, CHAT, UPLOAD };

/* A method of a path. */
static const struct operation {
	const char *path, *method, *id, *tag, *summary;
	enum body body;
	const struct field_table *fields; /* TABLE */
	const char *required;             /* required fields: "a,b" */
	const char *query;                /* query parameters: "limit,after" */
	const char *reply;                /* content type of the body; NULL: application/json */
	bool open;                        /* needs no key */
	bool streams;                     /* an event stream if `stream` is true */
} operations[] = {
	{"/v1/chat/completions", "post", "createChatCompletion", "OpenAI", "A chat's next message", CHAT,
	 NULL, "messages", NULL, NULL, false, true},
	{"/chat/completions", "post", "createChatCompletionBare", "OpenAI", "As /v1/chat/completions", CHAT,
	 NULL, "messages", NULL, NULL, false, true},
	{"/v1/completions", "post", "createCompletion", "OpenAI", "How texts go on", TEXT, NULL, "prompt",
	 NULL, NULL, false, true},
	{"/v1/responses", "post", "createResponse", "Responses", "Items that follow items", TABLE,
	 &responses_fields, "input", NULL, NULL, false, true},
	{"/responses", "post", "createResponseBare", "Responses", "As /v1/responses", TABLE,
	 &responses_fields, "input", NULL, NULL, false, true},
	{"/v1/responses/input_tokens", "post", "countResponseInput", "Responses", "Refused: 404", NONE, NULL,
	 NULL, NULL, NULL, false, false},
	{"/v1/responses/compact", "post", "compactResponse", "Responses", "Refused: 404", NONE, NULL, NULL,
	 NULL, NULL, false, false},
	{"/v1/responses/{response_id}", "get", "getResponse", "Responses", "A stored response, or its events",
	 NONE, NULL, NULL, "stream,starting_after", NULL, false, true},
	{"/v1/responses/{response_id}", "delete", "deleteResponse", "Responses", "Deletes a response", NONE,
	 NULL, NULL, NULL, NULL, false, false},
	{"/v1/responses/{response_id}/cancel", "post", "cancelResponse", "Responses",
	 "Ends a response in the background", NONE, NULL, NULL, NULL, NULL, false, false},
	{"/v1/responses/{response_id}/input_items", "get", "listInputItems", "Responses",
	 "The items of a response's input", NONE, NULL, NULL, "limit,after,order", NULL, false, false},
	{"/v1/conversations", "post", "createConversation", "Conversations", "Begins a conversation", TABLE,
	 &conversations_fields, NULL, NULL, NULL, false, false},
	{"/v1/conversations/{conversation_id}", "get", "getConversation", "Conversations", "A conversation",
	 NONE, NULL, NULL, NULL, NULL, false, false},
	{"/v1/conversations/{conversation_id}", "post", "updateConversation", "Conversations",
	 "Changes its metadata", TABLE, &conversations_change_fields, NULL, NULL, NULL, false, false},
	{"/v1/conversations/{conversation_id}", "delete", "deleteConversation", "Conversations",
	 "Deletes a conversation and its items", NONE, NULL, NULL, NULL, NULL, false, false},
	{"/v1/conversations/{conversation_id}/items", "get", "listConversationItems", "Conversations",
	 "Its items", NONE, NULL, NULL, "limit,after,order", NULL, false, false},
	{"/v1/conversations/{conversation_id}/items", "post", "createConversationItems", "Conversations",
	 "Adds items", TABLE, &conversations_items_fields, "items", NULL, NULL, false, false},
	{"/v1/conversations/{conversation_id}/items/{item_id}", "get", "getConversationItem", "Conversations",
	 "An item", NONE, NULL, NULL, NULL, NULL, false, false},
	{"/v1/conversations/{conversation_id}/items/{item_id}", "delete", "deleteConversationItem",
	 "Conversations", "Deletes an item", NONE, NULL, NULL, NULL, NULL, false, false},
	{"/v1/models", "get", "listModels", "OpenAI", "The model", NONE, NULL, NULL, NULL, NULL, false,
	 false},
	{"/v1/models/{model}", "get", "retrieveModel", "OpenAI", "The model, by its name", NONE, NULL, NULL,
	 NULL, NULL, false, false},
	{"/v1/embeddings", "post", "createEmbedding", "Embeddings and scores", "A vector for each input",
	 TABLE, &embeddings_fields, "input", NULL, NULL, false, false},
	{"/v1/rerank", "post", "rerank", "Embeddings and scores", "Documents by how well they meet a query",
	 TABLE, &rerank_fields, "query,documents", NULL, NULL, false, false},
	{"/v2/rerank", "post", "rerankV2", "Embeddings and scores", "As /v1/rerank", TABLE, &rerank_fields,
	 "query,documents", NULL, NULL, false, false},
	{"/rerank", "post", "rerankPlain", "Embeddings and scores", "As /v1/rerank", TABLE, &rerank_fields,
	 "query,documents", NULL, NULL, false, false},
	{"/v1/score", "post", "score", "Embeddings and scores", "How well pairs of texts fit", TABLE,
	 &score_fields, "", NULL, NULL, false, false},
	{"/score", "post", "scorePlain", "Embeddings and scores", "As /v1/score", TABLE, &score_fields, "",
	 NULL, NULL, false, false},
	{"/tokenize", "post", "tokenize", "Tokens", "A text or a chat to token ids", TABLE, &tokenize_fields,
	 "", NULL, NULL, false, false},
	{"/detokenize", "post", "detokenize", "Tokens", "Token ids to text", TABLE, &detokenize_fields,
	 "tokens", NULL, NULL, false, false},
	{"/v1/messages", "post", "createMessage", "Anthropic", "A chat's next message", TABLE,
	 &anthropic_fields, "messages,max_tokens", NULL, NULL, false, true},
	{"/v1/messages/count_tokens", "post", "countTokens", "Anthropic", "The tokens of a message's prompt",
	 TABLE, &anthropic_fields, "messages", NULL, NULL, false, false},
	{"/v1/messages/batches", "get", "listMessageBatches", "Anthropic", "Refused: 404", NONE, NULL, NULL,
	 NULL, NULL, false, false},
	{"/v1/messages/batches", "post", "createMessageBatch", "Anthropic", "Refused: 404", NONE, NULL, NULL,
	 NULL, NULL, false, false},
	{"/v1/messages/batches/{batch_id}", "get", "retrieveMessageBatch", "Anthropic", "Refused: 404", NONE,
	 NULL, NULL, NULL, NULL, false, false},
	{"/v1/messages/batches/{batch_id}", "post", "cancelMessageBatch", "Anthropic", "Refused: 404", NONE,
	 NULL, NULL, NULL, NULL, false, false},
	{"/v1/messages/batches/{batch_id}", "delete", "deleteMessageBatch", "Anthropic", "Refused: 404", NONE,
	 NULL, NULL, NULL, NULL, false, false},
	{"/v1/complete", "post", "completeText", "Anthropic", "Refused: 404", NONE, NULL, NULL, NULL, NULL,
	 false, false},
	{"/api/chat", "post", "ollamaChat", "Ollama", "A chat's next message", TABLE, &ollama_chat_fields,
	 "model", NULL, NULL, false, true},
	{"/api/generate", "post", "ollamaGenerate", "Ollama", "A prompt's answer", TABLE,
	 &ollama_generate_fields, "model", NULL, NULL, false, true},
	{"/api/embed", "post", "ollamaEmbed", "Ollama", "A vector for each input", TABLE,
	 &ollama_embed_fields, "model,input", NULL, NULL, false, false},
	{"/api/embeddings", "post", "ollamaEmbeddings", "Ollama", "A vector", TABLE,
	 &ollama_embeddings_fields, "model,prompt", NULL, NULL, false, false},
	{"/api/tags", "get", "ollamaTags", "Ollama", "The model", NONE, NULL, "", NULL, NULL, false, false},
	{"/api/ps", "get", "ollamaPs", "Ollama", "The model, which is loaded", NONE, NULL, "", NULL, NULL,
	 false, false},
	{"/api/show", "post", "ollamaShow", "Ollama", "What is known of the model", TABLE,
	 &ollama_show_fields, "model", NULL, NULL, false, false},
	{"/api/version", "get", "ollamaVersion", "Ollama", "The version", NONE, NULL, "", NULL, NULL, true,
	 false},
	{"/api/pull", "post", "ollamaPull", "Ollama", "Refused: 501", NONE, NULL, "", NULL, NULL, false,
	 false},
	{"/api/push", "post", "ollamaPush", "Ollama", "Refused: 501", NONE, NULL, "", NULL, NULL, false,
	 false},
	{"/api/create", "post", "ollamaCreate", "Ollama", "Refused: 501", NONE, NULL, "", NULL, NULL, false,
	 false},
	{"/api/copy", "post", "ollamaCopy", "Ollama", "Refused: 501", NONE, NULL, "", NULL, NULL, false,
	 false},
	{"/api/delete", "delete", "ollamaDelete", "Ollama", "Refused: 501", NONE, NULL, "", NULL, NULL, false,
	 false},
	{"/api/blobs/{digest}", "post", "ollamaBlob", "Ollama", "Refused: 501", NONE, NULL, "", NULL, NULL,
	 false, false},
	{"/completion", "post", "llamacppCompletion", "llama.cpp", "How texts go on", TABLE, &llamacpp_fields,
	 "prompt", NULL, NULL, false, true},
	{"/completions", "post", "llamacppCompletions", "llama.cpp", "As /completion", TABLE,
	 &llamacpp_fields, "prompt", NULL, NULL, false, true},
	{"/infill", "post", "llamacppInfill", "llama.cpp", "What fills a gap", TABLE, &llamacpp_infill_fields,
	 "input_prefix,input_suffix", NULL, NULL, false, true},
	{"/embedding", "post", "llamacppEmbedding", "llama.cpp", "A vector for each input", TABLE,
	 &llamacpp_embedding_fields, "content", NULL, NULL, false, false},
	{"/apply-template", "post", "llamacppTemplate", "llama.cpp", "A chat's prompt, as text", CHAT, NULL,
	 "messages", NULL, NULL, false, false},
	{"/props", "get", "llamacppProps", "llama.cpp", "What the service does where a request says nothing",
	 NONE, NULL, "", NULL, NULL, false, false},
	{"/slots", "get", "llamacppSlots", "llama.cpp", "Places for sequences", NONE, NULL, "", NULL, NULL,
	 false, false},
	{"/models", "get", "llamacppModels", "llama.cpp", "As /v1/models", NONE, NULL, NULL, NULL, NULL,
	 false, false},
	{"/models/load", "post", "llamacppLoad", "llama.cpp", "Refused: 501", NONE, NULL, NULL, NULL, NULL,
	 false, false},
	{"/models/unload", "post", "llamacppUnload", "llama.cpp", "Refused: 501", NONE, NULL, NULL, NULL,
	 NULL, false, false},
	{"/models/sse", "get", "llamacppModelEvents", "llama.cpp", "Refused: 501", NONE, NULL, NULL, NULL,
	 NULL, false, false},
	{"/slots/{id}", "post", "llamacppSlot", "llama.cpp", "Refused: 501", NONE, NULL, NULL, NULL, NULL,
	 false, false},
	{"/lora-adapters", "get", "llamacppAdapters", "llama.cpp", "Refused: 501", NONE, NULL, NULL, NULL,
	 NULL, false, false},
	{"/lora-adapters", "post", "llamacppSetAdapters", "llama.cpp", "Refused: 501", NONE, NULL, NULL, NULL,
	 NULL, false, false},
	{"/v1/systemone", "post", "llamacppDecide", "llama.cpp", "Refused: 501", NONE, NULL, NULL, NULL, NULL,
	 false, false},
	{"/v1/chat/completions/control", "post", "llamacppControl", "llama.cpp", "Refused: 501", NONE, NULL,
	 NULL, NULL, NULL, false, false},
	{"/v1/chat/completions/input_tokens", "post", "countChatTokens", "llama.cpp",
	 "The tokens of a chat's prompt", CHAT, NULL, "messages", NULL, NULL, false, false},
	{"/embeddings", "post", "llamacppEmbeddings", "llama.cpp", "As /embedding", TABLE,
	 &llamacpp_embedding_fields, "content", NULL, NULL, false, false},
	{"/reranking", "post", "rerankLlamacpp", "llama.cpp", "As /v1/rerank", TABLE, &rerank_fields,
	 "query,documents", NULL, NULL, false, false},
	{"/v1/reranking", "post", "rerankLlamacppV1", "llama.cpp", "As /v1/rerank", TABLE, &rerank_fields,
	 "query,documents", NULL, NULL, false, false},
	{"/v1/health", "get", "healthV1", "Service", "As /health", NONE, NULL, "", NULL, NULL, true, false},
	{"/v1/files", "get", "listFiles", "Files and batches", "The files of this key", NONE, NULL, NULL,
	 "limit,after,order,purpose", NULL, false, false},
	{"/v1/files", "post", "createFile", "Files and batches", "Stores a file of lines", UPLOAD, NULL, NULL,
	 NULL, NULL, false, false},
	{"/v1/files/{file_id}", "get", "retrieveFile", "Files and batches", "What is known of a file", NONE,
	 NULL, NULL, NULL, NULL, false, false},
	{"/v1/files/{file_id}", "delete", "deleteFile", "Files and batches", "Deletes a file", NONE, NULL,
	 NULL, NULL, NULL, false, false},
	{"/v1/files/{file_id}/content", "get", "downloadFile", "Files and batches", "A file's bytes", NONE,
	 NULL, NULL, NULL, "application/octet-stream", false, false},
	{"/v1/batches", "get", "listBatches", "Files and batches", "The batches of this key", NONE, NULL,
	 NULL, "limit,after", NULL, false, false},
	{"/v1/batches", "post", "createBatch", "Files and batches",
	 "Runs the lines of a file as durable jobs", TABLE, &batches_fields,
	 "input_file_id,endpoint,completion_window", NULL, NULL, false, false},
	{"/v1/batches/{batch_id}", "get", "retrieveBatch", "Files and batches", "A batch and its counts",
	 NONE, NULL, NULL, NULL, NULL, false, false},
	{"/v1/batches/{batch_id}/cancel", "post", "cancelBatch", "Files and batches", "Ends a batch", NONE,
	 NULL, NULL, NULL, NULL, false, false},
	{"/health", "get", "health", "Service", "200 when a replica can serve", NONE, NULL, NULL, NULL, NULL,
	 true, false},
	{"/ready", "get", "ready", "Service", "As /health", NONE, NULL, NULL, NULL, NULL, true, false},
	{"/readyz", "get", "readyz", "Service", "As /health", NONE, NULL, NULL, NULL, NULL, true, false},
	{"/livez", "get", "livez", "Service", "200 while the process works", NONE, NULL, NULL, NULL, NULL,
	 true, false},
	{"/version", "get", "version", "Service", "The version", NONE, NULL, NULL, NULL, NULL, true, false},
	{"/metrics", "get", "metrics", "Service",
	 "Metrics in Prometheus' text format or OpenMetrics, by Accept", NONE, NULL, NULL, NULL,
	 "text/plain,application/openmetrics-text", false, false},
	{"/openapi.json", "get", "openapi", "Service", "This document", NONE, NULL, NULL, NULL, NULL, false,
	 false},
	{"/", "get", "page", "Service", "A page that shows the service and lets one chat", NONE, NULL, NULL,
	 NULL, "text/html", true, false},
	{"/api/live", "get", "live", "Service", "The page's data, as events", NONE, NULL, NULL, NULL,
	 "text/event-stream", false, false},
	{"/api/explain/{job}", "get", "explainJob", "Service", "Where a job's time went", NONE, NULL, NULL,
	 NULL, NULL, false, false},
	{"/api/cancel", "post", "cancelJob", "Service", "Ends a job, for the page", NONE, NULL, NULL, NULL,
	 NULL, false, false},
};

/* ---- requests ---- */

static json_t *names(const char *list)
{
	json_t *all = json_array();
	for (const char *p = list; p && *p;) {
		const size_t n = strcspn(p, ",");
		json_array_append_new(all, json_stringn(p, n));
		p += n + (p[n] == ',');
	}
	return all;
}

static json_t *schema_of(const struct operation *o)
{
	if (o->body == UPLOAD)
		return json_pack("{s:s, s:{s:{s:s, s:s}, s:{s:s, s:[s]}}, s:[s, s]}", "type", "object",
				 "properties", "file", "type", "string", "format", "binary", "purpose",
				 "type", "string", "enum", "batch", "required", "file", "purpose");
	const struct field_table *t = o->body == CHAT   ? request_fields_table(API_CHAT)
				      : o->body == TEXT ? request_fields_table(API_COMPLETIONS)
							: o->fields;
	json_t *schema = json_pack("{s:s, s:o}", "type", "object", "properties", field_table_schema(t));
	json_t *required = names(o->required);
	if (json_array_size(required))
		json_object_set(schema, "required", required);
	json_decref(required);
	return schema;
}

static json_t *body_of(const struct operation *o)
{
	const char *type = o->body == UPLOAD ? "multipart/form-data" : "application/json";
	return json_pack("{s:b, s:{s:{s:o}}}", "required", 1, "content", type, "schema", schema_of(o));
}

static json_t *parameter(const char *name, size_t n, const char *in)
{
	const bool path = strcmp(in, "path") == 0, number = n == 5 && memcmp(name, "limit", 5) == 0;
	return json_pack("{s:s%, s:s, s:b, s:{s:s}}", "name", name, n, "in", in, "required", path, "schema",
			 "type", number ? "integer" : "string");
}

/* Return true if the stream can be resumed (apis/resume.h). */
static bool resumes(const struct operation *o)
{
	return o->streams && strcmp(o->method, "post") == 0 && o->fields != &responses_fields;
}

static json_t *parameters_of(const struct operation *o)
{
	static const char *const headers[] = {"Idempotency-Key", "Last-Event-ID"};
	json_t *all = json_array();
	for (const char *open = o->path; (open = strchr(open, '{')); open++)
		json_array_append_new(all, parameter(open + 1, strcspn(open + 1, "}"), "path"));
	for (const char *p = o->query; p && *p;) {
		const size_t n = strcspn(p, ",");
		json_array_append_new(all, parameter(p, n, "query"));
		p += n + (p[n] == ',');
	}
	for (size_t i = 0; resumes(o) && i < sizeof headers / sizeof headers[0]; i++)
		json_array_append_new(all, parameter(headers[i], strlen(headers[i]), "header"));
	return all;
}

/* ---- replies ---- */

static json_t *replies_of(const struct operation *o)
{
	json_t *content = json_object();
	json_t *types = names(o->reply ? o->reply : "application/json"), *type;
	size_t i;
	json_array_foreach(types, i, type)
		json_object_set_new(content, json_string_value(type), json_object());
	json_decref(types);
	if (o->streams)
		json_object_set_new(content, "text/event-stream", json_object());
	return json_pack("{s:{s:s, s:o}, s:{s:s}}", "200", "description", "the reply", "content", content,
			 "default", "$ref", "#/components/responses/Error");
}

static json_t *operation_of(const struct operation *o)
{
	json_t *all = json_pack("{s:s, s:[s], s:s, s:o}", "operationId", o->id, "tags", o->tag, "summary",
				o->summary, "responses", replies_of(o));
	json_t *parameters = parameters_of(o);
	if (json_array_size(parameters))
		json_object_set(all, "parameters", parameters);
	json_decref(parameters);
	if (o->body != NONE)
		json_object_set_new(all, "requestBody", body_of(o));
	if (o->open)
		json_object_set_new(all, "security", json_array());
	return all;
}

static json_t *components(void)
{
	json_t *error = json_pack(
		"{s:s, s:[s], s:{s:{s:s, s:[s, s], s:{s:{s:s}, s:{s:s}, s:{s:[s, s]}, s:{s:[s, s]}}}}}",
		"type", "object", "required", "error", "properties", "error", "type", "object", "required",
		"message", "type", "properties", "message", "type", "string", "type", "type", "string",
		"param", "type", "string", "null", "code", "type", "string", "null");
	return json_pack("{s:{s:o}, s:{s:{s:s, s:{s:{s:{s:s}}}}}, s:{s:{s:s, s:s}}}", "schemas", "Error",
			 error, "responses", "Error", "description",
			 "why the request was refused or has failed", "content", "application/json", "schema",
			 "$ref", "#/components/schemas/Error", "securitySchemes", "key", "type", "http",
			 "scheme", "bearer");
}

json_t *openapi_document(void)
{
	json_t *paths = json_object();
	for (const struct operation *o = operations; o < operations + sizeof operations / sizeof *operations;
	     o++) {
		json_t *path = json_object_get(paths, o->path);
		if (!path)
			json_object_set_new(paths, o->path, path = json_object());
		json_object_set_new(path, o->method, operation_of(o));
	}
	return json_pack(
		"{s:s, s:{s:s, s:s, s:s}, s:[{s:s}], s:[{s:[]}, {}], s:o, s:o}", "openapi", "3.1.0", "info",
		"title", "quern", "version", QUERN_VERSION, "description",
		"An LLM inference service. x-quern says what becomes of a field: honoured; ignored (named in "
		"the "
		"reply's header x-quern-ignored); only neutral values (others are refused by name); refused.",
		"servers", "url", "/", "security", "key", "paths", paths, "components", components());
}

void openapi_call(struct exchange *x, const char *rest)
{
	(void)rest;
	struct buf b = {0};
	json_t *o = openapi_document();
	char *text = json_dumps(o, JSON_COMPACT);
	buf_puts(&b, text);
	free(text);
	json_decref(o);
	exchange_reply(x, MHD_HTTP_OK, &b);
}
