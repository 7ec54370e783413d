/* chat_constraint.h - the structured output of a chat: reasoning, if the model thinks, then tool calls, an
 * answer in the requested format (constraint_request.h), or free text.
 *
 *     named tool           the rest of the call that the prompt has begun
 *     required             calls
 *     strict tools         text without calls, then calls
 *     allowed tools        text without calls, then calls of these tools only
 *     an answer's format   the answer; or calls, if tools may be called
 *     a thinking budget    any text
 *
 * Any thread. */
#ifndef QUERN_CONTROLLER_REQUEST_CHAT_CONSTRAINT_H
#define QUERN_CONTROLLER_REQUEST_CHAT_CONSTRAINT_H

#include "controller/chat/reasoning_grammar.h"
#include "controller/message/service.h"
#include "controller/request/api_error.h"
#include "controller/request/tool_request.h"
#include "proto/constraint.h"

struct chat_constraint {
	const struct service *svc;
	const struct tool_request *tools;
	bool parallel_calls;
	enum prompt_reasoning reasoning; /* the prompt ends here */
	int64_t thinking_budget;         /* tokens; -1: no limit */
	const json_t *answer;            /* constraint of the answer, one part of a composite; NULL: any
				     * text */
	const char *answer_field;        /* the request field that set answer, for errors */
	/* schemas (the tools' schemas too) allow everything they permit: constraint_request_exact() */
	bool exact;
};

/* Build the constraint.  *out: the caller's reference; NULL: outputs are free.  -EINVAL with *p filled: a
 * tool's schema is not supported; *p names its place. */
int chat_constraint_make(const struct chat_constraint *c, struct constraint **out, struct api_problem *p);

#endif
