/* chat_messages.h - converts a request's messages to a shape that the model's chat template supports. */
#ifndef QUERN_CONTROLLER_CHAT_CHAT_MESSAGES_H
#define QUERN_CONTROLLER_CHAT_CHAT_MESSAGES_H

#include "controller/chat/chat.h"
#include "controller/chat/template_probe.h"

/* Set *out to a new copy of rq->messages with each content in a supported shape: parts are joined by
 * newlines for a template that takes text, as in vLLM; null becomes an empty text. Null keys and empty
 * tool_calls are omitted, since templates test whether they are defined. The order is one that the template
 * accepts (message_turns.h). behind: appended to the last content, or NULL. -EINVAL: why
 * names the message. */
int chat_messages_for(const struct template_facts *a, const struct chat_input *rq, const char *behind,
		      json_t **out, char *why, size_t why_n);

#endif
