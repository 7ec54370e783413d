/* api.h - requests as JSON trees to validated work, common to the job socket and to HTTP.
 * Every bound and every type is checked here; a key that is unknown, that is not built yet or
 * that is wrong is named.  Keeps no state; may be called by any thread.
 *
 * Precedence of a parameter: the request, then generation_config.json, then the table of
 * docs/PROTOCOL.md (vLLM's defaults). */
#ifndef QUERN_CONTROLLER_API_H
#define QUERN_CONTROLLER_API_H

#include "controller/said.h"
#include "controller/front.h"

#include <jansson.h>

enum api_dialect {
	API_JOBS,        /* the job socket's submit: parameters in `params`, unknown keys refused */
	API_COMPLETIONS, /* /v1/completions */
	API_CHAT,        /* /v1/chat/completions */
};

/* What was wrong with a request. */
struct api_problem {
	enum code code; /* E_BAD_REQUEST, E_TOO_LONG, E_OVERLOADED, E_INTERNAL */
	char param[64]; /* the key at fault, "" where it is no one key (OpenAI's error.param) */
	char why[512];
};

/* What the reply needs of the request and the job does not: OpenAI's dialects only. */
struct api_reply {
	const char *model; /* borrowed from the request; NULL: none given.  Not checked here */
	bool stream;
	bool include_usage;    /* stream_options.include_usage */
	bool continuous_usage; /* stream_options.continuous_usage_stats: usage in every chunk */
	bool echo;             /* completions: the prompt (submit->tokens) stands before the text;
				* with logprobs, params.prompt_logprobs asks for the prompt's */
	bool no_output;        /* what is generated is not shown and not counted */
	bool tokens_as_ids;    /* return_tokens_as_token_ids: tokens in logprobs as "token_id:123" */
	bool return_token_ids; /* return_token_ids: choices carry their token ids */
	struct said_rules rules; /* of a chat's outputs; rules.forced is borrowed from the request */
	bool return_timing;    /* return_timing: the reply says how long the job took */
	char ignored[512];     /* keys without effect, "a, b": for x-quern-ignored; "" for none */
};

/* How many prompts a /v1/completions request holds: `prompt` is a string or an array of ids (1),
 * or an array of strings or of arrays of ids (its length).  1 where it is none of these:
 * api_submit() then says what is wrong. */
size_t api_n_prompts(const json_t *request);

/* Validates, renders, tokenizes.  request: the whole request (for the job socket, `op` and `id`
 * are passed over).  prompt: which of api_n_prompts(), 0 else.  max_context: front_max_context().
 * reply: NULL for API_JOBS.  *out is the caller's.  Unknown keys: refused in API_JOBS and where
 * svc->strict, else named in reply->ignored.  -EINVAL with *p filled. */
int api_submit(const struct service *svc, uint32_t max_context, const json_t *request,
	       enum api_dialect dialect, size_t prompt, struct submit **out, struct api_reply *reply,
	       struct api_problem *p);

/* A digest of what the request asks for: two with the same one are the same request.  What only says
 * how it is to be handled (stream, priority, deadline, user, ...) does not count. */
void api_digest(const json_t *request, uint8_t out[16]);

/* The prompt's ids of a request with `messages` (and tools, chat_template_kwargs, ...), as API_CHAT
 * makes them (for /tokenize).  Appends to out and to ignored, which is as in struct api_reply. */
int api_tokenize_messages(const struct service *svc, uint32_t max_context, const json_t *request,
			  struct token_ids *out, char *ignored, size_t ignored_n, struct api_problem *p);

/* A text to ids, special tokens in it recognized; bounded like a prompt.  Appends to out. */
int api_tokenize(const struct service *svc, uint32_t max_context, const char *text, size_t n,
		 bool add_special, struct token_ids *out, struct api_problem *p);

/* An array of ids, each checked against the vocabulary; key names it in the error.  Appends to out. */
int api_token_ids(const struct service *svc, const json_t *array, const char *key, size_t max,
		  struct token_ids *out, struct api_problem *p);

/* p->code, param and why; returns -EINVAL. */
int api_fail(struct api_problem *p, enum code code, const char *param, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

#endif
