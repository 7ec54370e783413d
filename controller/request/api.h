/* api.h - turn a request (a JSON tree) into a validated submit, for the job socket and for HTTP.
 * Checks every type and every bound.  The error names a field that is unknown, wrong or not built yet.  Keeps
 * no state; any thread.
 *
 *   JSON --request_fields--> values --api--> params, lists --chat_request, request_tokens--> struct submit
 *
 *
 * Precedence of a parameter: the request, then generation_config.json, then the table of docs/PROTOCOL.md
 * (vLLM's defaults). */
#ifndef QUERN_CONTROLLER_REQUEST_API_H
#define QUERN_CONTROLLER_REQUEST_API_H

#include "controller/chat/chat_stream.h"
#include "controller/message/service.h"
#include "controller/message/submit.h"
#include "controller/request/api_error.h"
#include "controller/tokenizer/tokenizer.h"

#include <jansson.h>

enum api_dialect {
	API_JOBS,        /* the job socket's submit: parameters are in `params`, unknown fields are refused */
	API_COMPLETIONS, /* /v1/completions */
	API_CHAT,        /* /v1/chat/completions */
};

/* Request fields that shape the reply, not the job.  OpenAI's dialects only. */
struct api_reply {
	const char *model; /* borrowed from the request; NULL: not given.  Not checked here */
	bool stream;
	bool include_usage;             /* stream_options.include_usage */
	bool continuous_usage;          /* stream_options.continuous_usage_stats: usage in every chunk */
	bool echo;                      /* completions: the prompt (submit->tokens) precedes the text;
					 * with logprobs, params.prompt_logprobs asks for the prompt's */
	bool no_output;                 /* generated tokens are not shown and not counted */
	bool tokens_as_ids;             /* return_tokens_as_token_ids: tokens in logprobs as "token_id:123" */
	bool return_token_ids;          /* return_token_ids: choices carry their token ids */
	struct chat_stream_rules rules; /* rules for a chat's outputs; the pointers in it are borrowed from
					 * the request */
	bool return_timing;             /* return_timing: the reply includes the job's times */
	char ignored[512];              /* ignored fields, "a, b", for x-quern-ignored; "" if there are
					 * none */
};

/* Return the number of prompts in a /v1/completions request.  `prompt` is one string or one array of ids (1),
 * or an array of strings or of arrays of ids (its length).  Return 1 for anything else; api_submit() refuses
 * that. */
size_t api_n_prompts(const json_t *request);

/* A request after its fields were read and checked, once for all of its prompts. */
struct api_request;

/* Read and check the fields of request, the whole request (for the job socket, `op` and `id` are skipped),
 * which must outlive *out.  max_context: mailbox_max_context().  Unknown fields are refused in API_JOBS and
 * if svc->strict; otherwise they are named in reply->ignored.  The caller owns *out.  -EINVAL with *p
 * filled. */
int api_request_read(const struct service *svc, uint32_t max_context, const json_t *request,
		     enum api_dialect dialect, struct api_request **out, struct api_problem *p);
/* Let a completion without max_tokens fill the context, instead of OpenAI's 16 tokens. */
void api_request_to_context(struct api_request *r);
/* Render and tokenize one prompt.  prompt: index below api_n_prompts().  reply: NULL for API_JOBS.  The
 * caller owns *out.  -EINVAL with *p filled. */
int api_request_prompt(struct api_request *r, size_t prompt, struct submit **out, struct api_reply *reply,
		       struct api_problem *p);
void api_request_free(struct api_request *r); /* NULL is fine */

/* api_request_read() and api_request_prompt() in one call, for one prompt. */
int api_submit(const struct service *svc, uint32_t max_context, const json_t *request,
	       enum api_dialect dialect, size_t prompt, struct submit **out, struct api_reply *reply,
	       struct api_problem *p);

/* Digest the fields that determine the result: equal digests mean the same request.  Leaves out fields that
 * only affect handling (stream, priority, deadline, user, ...). */
void api_digest(const json_t *request, uint8_t out[16]);

/* Append to out the prompt's ids of a request with `messages` (and tools, chat_template_kwargs, ...), as
 * API_CHAT does; for /tokenize.  Appends to ignored, as in struct api_reply. */
int api_tokenize_messages(const struct service *svc, uint32_t max_context, const json_t *request,
			  struct token_ids *out, char *ignored, size_t ignored_n, struct api_problem *p);

/* Append to out the prompt's text of such a request, rendered by the model's template. */
int api_render_messages(const struct service *svc, uint32_t max_context, const json_t *request,
			struct buf *out, char *ignored, size_t ignored_n, struct api_problem *p);

/* Tokenize a text and append its ids to out.  Special tokens in the text are recognized.  The length is
 * bounded like a prompt's. */
int api_tokenize(const struct service *svc, uint32_t max_context, const char *text, size_t n,
		 bool add_special, struct token_ids *out, struct api_problem *p);

#endif
