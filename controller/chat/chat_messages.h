/* chat_messages.h - converts a request's messages to a shape that the model's chat template supports. */
#ifndef QUERN_CONTROLLER_CHAT_CHAT_MESSAGES_H
#define QUERN_CONTROLLER_CHAT_CHAT_MESSAGES_H

#include "base/err.h"
#include "controller/chat/chat.h"
#include "controller/chat/template_probe.h"

#include <jansson.h>

/* Set *out to a new copy of rq->messages with each content in a supported shape: parts are joined by
 * newlines for a template that takes text, as in vLLM; null becomes an empty text. Null keys and empty
 * tool_calls are omitted, since templates test whether they are defined. The order is one that the template
 * accepts (message_turns_fit()). behind: appended to the last content, or NULL. -EINVAL: why
 * names the message. */
int chat_messages_for(const struct template_facts *a, const struct chat_input *rq, const char *behind,
		      json_t **out, struct why *why);

/* Change an array of messages, with contents in supported shapes, where the template does not accept the
 * order.  Agents send several system messages, system messages in the middle, and consecutive user messages;
 * many templates refuse these, or drop the text.  Pure.
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
