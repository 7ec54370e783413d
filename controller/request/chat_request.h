/* chat_request.h - render the prompt of a chat request from messages, tools and template variables; and
 * choose the style of tool calls and reasoning in its outputs.  Any thread. */
#ifndef QUERN_CONTROLLER_REQUEST_CHAT_REQUEST_H
#define QUERN_CONTROLLER_REQUEST_CHAT_REQUEST_H

#include "base/err.h"
#include "controller/chat/chat.h"
#include "controller/chat/chat_stream.h"
#include "controller/chat/reasoning_grammar.h"
#include "controller/message/service.h"
#include "controller/request/api_error.h"
#include "controller/request/tool_request.h"

#include <jansson.h>

struct chat_request {
	const json_t *messages, *documents; /* borrowed, like every pointer here */
	const json_t *kwargs;               /* chat_template_kwargs */
	const char *reasoning_effort;
	const json_t *enable_thinking; /* NULL: not given */
	bool openai;                   /* false: the job socket, which takes {role, content} with strings
				        * only */
	bool add_generation, continue_final;
	struct tool_request tools;
};

/* Return the marks that enclose reasoning in the model's outputs. */
const struct reasoning_marks *chat_request_marks(const struct service *svc);

/* Render into *out, which the caller ends with chat_prompt_fini(), also after an error.  Variables that the
 * template does not know are named in ignored ("a, b"), or refused if svc->strict.  reasoning: where the
 * prompt ends.  -EINVAL with *p filled. */
int chat_request_render(const struct service *svc, uint32_t max_context, const struct chat_request *r,
			struct chat_prompt *out, enum prompt_reasoning *reasoning, char *ignored,
			size_t ignored_n, struct api_problem *p);

/* Log what the template and the styles do with tools: this decides whether agents can use the model. */
void chat_request_log(const struct service *svc);

/* Set the style of tool calls and reasoning in svc; its chat and tokenizer must be set.  tools: "auto" (from
 * the model's template), "none", or a name of tools_format.h.  reasoning: "auto", "none", "deepseek_r1" (an
 * output begins within the reasoning), or a name of reasoning.h.  -EINVAL for other values. */
int chat_request_styles(struct service *svc, const char *tools, const char *reasoning, struct why *why);

#endif
