/* api.h - a request as a JSON tree to a validated submit, common to the job socket and to HTTP.
 * Every type and every bound is checked here; a field that is unknown, wrong or not built yet is named.
 * Keeps no state; any thread.
 *
 *   JSON --request_fields--> values --api--> params, lists --chat_request, request_tokens--> struct submit
 *
 * Precedence of a parameter: the request, then generation_config.json, then the table of
 * docs/PROTOCOL.md (vLLM's defaults). */
#ifndef QUERN_CONTROLLER_REQUEST_API_H
#define QUERN_CONTROLLER_REQUEST_API_H

#include "controller/chat/chat_stream.h"
#include "controller/message/service.h"
#include "controller/message/submit.h"
#include "controller/request/api_error.h"
#include "controller/tokenizer/tokenizer.h"

#include <jansson.h>

enum api_dialect {
	API_JOBS,        /* the job socket's submit: parameters in `params`, unknown fields refused */
	API_COMPLETIONS, /* /v1/completions */
	API_CHAT,        /* /v1/chat/completions */
};

/* What the reply needs to know of the request beside the job: OpenAI's dialects only. */
struct api_reply {
	const char *model; /* borrowed from the request; NULL: none given.  Not checked here */
	bool stream;
	bool include_usage;             /* stream_options.include_usage */
	bool continuous_usage;          /* stream_options.continuous_usage_stats: usage in every chunk */
	bool echo;                      /* completions: the prompt (submit->tokens) precedes the text;
					 * with logprobs, params.prompt_logprobs asks for the prompt's */
	bool no_output;                 /* generated tokens are neither shown nor counted */
	bool tokens_as_ids;             /* return_tokens_as_token_ids: tokens in logprobs as "token_id:123" */
	bool return_token_ids;          /* return_token_ids: choices carry their token ids */
	struct chat_stream_rules rules; /* of a chat's outputs; its pointers are borrowed from the
					 * request */
	bool return_timing;             /* return_timing: the reply has the job's times */
	char ignored[512];              /* fields without effect, "a, b": for x-quern-ignored; "" for none */
};

/* How many prompts a /v1/completions request holds: `prompt` is a string or an array of ids (1),
 * or an array of strings or of arrays of ids (its length).  1 for anything else, which api_submit()
 * refuses. */
size_t api_n_prompts(const json_t *request);

/* A request whose fields were read and checked, once for all of its prompts. */
struct api_request;

/* request: the whole request (for the job socket, `op` and `id` are skipped); it outlives *out.
 * max_context: mailbox_max_context().  Unknown fields: refused in API_JOBS and where svc->strict, else named
 * in reply->ignored.  *out is the caller's.  -EINVAL with *p filled. */
int api_request_read(const struct service *svc, uint32_t max_context, const json_t *request,
		     enum api_dialect dialect, struct api_request **out, struct api_problem *p);
/* Without max_tokens, a completion may have as many tokens as the context holds, not OpenAI's 16. */
void api_request_to_context(struct api_request *r);
/* Renders and tokenizes one prompt: index below api_n_prompts().  reply: NULL for API_JOBS.  *out is the
 * caller's.  -EINVAL with *p filled. */
int api_request_prompt(struct api_request *r, size_t prompt, struct submit **out, struct api_reply *reply,
		       struct api_problem *p);
void api_request_free(struct api_request *r); /* NULL is fine */

/* All of these, for one prompt. */
int api_submit(const struct service *svc, uint32_t max_context, const json_t *request,
	       enum api_dialect dialect, size_t prompt, struct submit **out, struct api_reply *reply,
	       struct api_problem *p);

/* A digest of the fields that determine the result: equal digests are the same request.  Fields of how it
 * is handled (stream, priority, deadline, user, ...) are left out. */
void api_digest(const json_t *request, uint8_t out[16]);

/* The prompt's ids of a request with `messages` (and tools, chat_template_kwargs, ...), as for API_CHAT
 * (for /tokenize).  Appends to out and to ignored, which is as in struct api_reply. */
int api_tokenize_messages(const struct service *svc, uint32_t max_context, const json_t *request,
			  struct token_ids *out, char *ignored, size_t ignored_n, struct api_problem *p);

/* The prompt's text of such a request, as the model's template renders it.  Appends to out. */
int api_render_messages(const struct service *svc, uint32_t max_context, const json_t *request,
			struct buf *out, char *ignored, size_t ignored_n, struct api_problem *p);

/* A text to ids, special tokens in it recognized; bounded like a prompt.  Appends to out. */
int api_tokenize(const struct service *svc, uint32_t max_context, const char *text, size_t n,
		 bool add_special, struct token_ids *out, struct api_problem *p);

#endif
