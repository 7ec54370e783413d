/* chat_form.h - what the outputs of a chat must look like: a thought, where the model thinks, and behind it
 * calls of tools, an answer in the form that the request asks for (form_request.h), or any text.
 *
 *     named tool           the rest of the call that the prompt has begun
 *     required             calls
 *     strict tools         text without calls, then calls
 *     allowed tools        the same, calls of these only
 *     an answer's form     the answer; or calls, where tools may be called
 *     a thought's budget   any text
 *
 * Any thread. */
#ifndef QUERN_CONTROLLER_REQUEST_CHAT_FORM_H
#define QUERN_CONTROLLER_REQUEST_CHAT_FORM_H

#include "controller/chat/thought_grammar.h"
#include "controller/message/service.h"
#include "controller/request/api_error.h"
#include "controller/request/tool_request.h"
#include "proto/form.h"

struct chat_form {
	const struct service *svc;
	const struct tool_request *tools;
	bool parallel_calls;
	enum thought_place thought; /* where the prompt ends */
	int64_t thinking_budget;    /* tokens; -1: no bound */
	const json_t *answer;       /* a part of a form; NULL: any text */
	const char *answer_field;   /* of the request, for errors */
};

/* *out: the caller's reference; NULL: outputs are free.  -EINVAL with *p filled: the schema of a tool that is
 * not supported, by its place. */
int chat_form_make(const struct chat_form *c, struct form **out, struct api_problem *p);

#endif
