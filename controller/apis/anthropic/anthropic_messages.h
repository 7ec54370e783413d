/* anthropic_messages.h - translate Anthropic's messages, made of content blocks, to chat messages.  Pure.
 *
 *   system                       {role: system}
 *   user:      text              {role: user}, consecutive texts in one message
 *              tool_result       {role: tool, tool_call_id}
 *   assistant: text              content            \
 *              thinking          reasoning_content   } in one message
 *              tool_use          tool_calls         /
 *
 * If the assistant has the last message, it is the beginning of the reply (continue_final_message). */
#ifndef QUERN_CONTROLLER_APIS_ANTHROPIC_ANTHROPIC_MESSAGES_H
#define QUERN_CONTROLLER_APIS_ANTHROPIC_ANTHROPIC_MESSAGES_H

#include "controller/apis/translate.h"

/* Set t->out's messages.  system: NULL or any value.  -EINVAL with t->p filled. */
int anthropic_messages_read(struct translation *t, const json_t *system, const json_t *messages);

#endif
