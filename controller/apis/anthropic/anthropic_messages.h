/* anthropic_messages.h - Anthropic's messages, of content blocks, to the messages of a chat.  Pure.
 *
 *   system                       {role: system}
 *   user:      text              {role: user}, text parts that follow each other in one message
 *              tool_result       {role: tool, tool_call_id}
 *   assistant: text              content            \
 *              thinking          reasoning_content   } of one message
 *              tool_use          tool_calls         /
 *
 * A last message of the assistant is the beginning of the reply (continue_final_message). */
#ifndef QUERN_CONTROLLER_APIS_ANTHROPIC_ANTHROPIC_MESSAGES_H
#define QUERN_CONTROLLER_APIS_ANTHROPIC_ANTHROPIC_MESSAGES_H

#include "controller/apis/translate.h"

/* Sets t->out's messages.  system: NULL or any value.  -EINVAL with t->p filled. */
int anthropic_messages_read(struct translation *t, const json_t *system, const json_t *messages);

#endif
