/* anthropic_read.h - translate a request of Anthropic's Messages API to the chat dialect (request/api.h).
 *
 *   system, messages: blocks      -->  messages: content, tool_calls, tool results, reasoning_content
 *   tools, tool_choice            -->  tools, tool_choice, parallel_tool_calls
 *   thinking                      -->  enable_thinking, thinking_token_budget
 *   output_config                 -->  reasoning_effort, response_format
 *
 * The protocol: https://docs.anthropic.com/en/api/messages.  Pure. */
#ifndef QUERN_CONTROLLER_APIS_ANTHROPIC_ANTHROPIC_READ_H
#define QUERN_CONTROLLER_APIS_ANTHROPIC_ANTHROPIC_READ_H

#include "controller/apis/generation.h"
#include "controller/apis/translate.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* How to read the client's request. */
struct anthropic_reading {
	bool count;  /* /v1/messages/count_tokens: reads only fields of the prompt; max_tokens may be
		      * absent */
	bool strict; /* unknown fields are refused */
	bool thinks; /* the model's template can switch thinking on and off */
};

/* Translate client, an object.  *out: the internal request, owned by the caller.  ignored: as in struct
 * api_reply.  -EINVAL with *p filled, which names the client's field. */
int anthropic_read(const json_t *client, const struct anthropic_reading *how, json_t **out, char ignored[512],
		   struct api_problem *p);

/* The client's names of the internal request's fields. */
extern const struct generation_name anthropic_names[];

extern const struct field_table anthropic_fields;

/* Translate Anthropic's messages, made of content blocks, to chat messages.
 *
 *   system                       {role: system}
 *   user:      text              {role: user}, consecutive texts in one message
 *              tool_result       {role: tool, tool_call_id}
 *   assistant: text              content            \
 *              thinking          reasoning_content   } in one message
 *              tool_use          tool_calls         /
 *
 * If the assistant has the last message, it is the beginning of the reply (continue_final_message).
 *
 * Sets t->out's messages.  system: NULL or any value.  -EINVAL with t->p filled. */
int anthropic_messages_read(struct translation *t, const json_t *system, const json_t *messages);

/* Tables of the members of the objects within an Anthropic request: messages and their blocks, tools,
 * tool_choice, thinking.  Members without effect are named ("tools.cache_control"), as are unknown ones
 * (refused with --strict).  Their values are read elsewhere.  Constant data. */
extern const struct field_table anthropic_message_members, anthropic_text_members, anthropic_use_members,
	anthropic_result_members, anthropic_thinking_block_members, anthropic_tool_members,
	anthropic_choice_members, anthropic_thinking_members, anthropic_format_members,
	anthropic_metadata_members;

#endif
