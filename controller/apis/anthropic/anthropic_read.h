/* anthropic_read.h - a request of Anthropic's Messages API to the chat dialect (request/api.h).
 *
 *   system, messages: blocks      -->  messages: content, tool_calls, tool results, reasoning_content
 *   tools, tool_choice            -->  tools, tool_choice, parallel_tool_calls
 *   thinking, output_config       -->  enable_thinking, thinking_token_budget, reasoning_effort,
 * response_format
 *
 * The protocol: https://docs.anthropic.com/en/api/messages.  Pure. */
#ifndef QUERN_CONTROLLER_APIS_ANTHROPIC_ANTHROPIC_READ_H
#define QUERN_CONTROLLER_APIS_ANTHROPIC_ANTHROPIC_READ_H

#include "controller/apis/generation.h"
#include "controller/apis/translate.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* How the client's request is to be read. */
struct anthropic_reading {
	bool count;  /* /v1/messages/count_tokens: only what makes the prompt; max_tokens may be absent */
	bool strict; /* unknown fields are refused */
	bool thinks; /* the model's template can switch thinking on and off */
};

/* client: an object.  *out: the internal request, the caller's.  ignored: as in struct api_reply.
 * -EINVAL with *p filled, which names the client's field. */
int anthropic_read(const json_t *client, const struct anthropic_reading *how, json_t **out, char ignored[512],
		   struct api_problem *p);

/* What the client's fields are called in the internal request. */
extern const struct generation_name anthropic_names[];

extern const struct field_table anthropic_fields;

#endif
