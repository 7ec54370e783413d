/* message_turns.h - reorders a conversation's messages to an order that the model's chat template accepts.
 * Agents send several system messages, system messages in the middle, and consecutive user messages; many
 * templates refuse these, or drop the text. Pure. */
#ifndef QUERN_CONTROLLER_CHAT_MESSAGE_TURNS_H
#define QUERN_CONTROLLER_CHAT_MESSAGE_TURNS_H

#include "controller/chat/template_probe.h"

#include <jansson.h>

/* Change an array of messages, with contents in supported shapes, where the template does not accept the
 * order:
 *
 *   system, system or developer, user  -->  one system message with their texts
 *   system, without a system role      -->  a user message
 *   ..., system or developer           -->  a user message in the same place
 *   user, user                         -->  one message with their texts
 *   assistant, assistant               -->  one message with their texts, unless they have calls
 *   tool, user                         -->  the text at the end of the tool's result
 *   text and calls in a message        -->  the calls
 *   two calls, tool, tool              -->  call, tool, call, tool
 *   tool, without a role for it        -->  a user message; only if `results`
 *
 * An empty line separates joined texts. */
void message_turns_fit(const struct template_facts *f, bool results, json_t *messages);

#endif
