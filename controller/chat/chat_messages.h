/* chat_messages.h - a request's messages in the form that the model's chat template supports. */
#ifndef QUERN_CONTROLLER_CHAT_CHAT_MESSAGES_H
#define QUERN_CONTROLLER_CHAT_CHAT_MESSAGES_H

#include "controller/chat/chat.h"

/* What a template supports, determined by trial renderings (chat.c). */
struct chat_accepts {
	bool text;          /* content as a string */
	bool parts;         /* content as a list of parts */
	bool argument_text; /* a call's arguments as JSON text only */
	bool developer;     /* the role developer; false: replaced by system */
};

/* A copy of rq->messages (the caller's, json_decref), each content in a supported form: parts are joined
 * by newlines for a template that takes text, as vLLM does; null becomes an empty text.  Null keys and
 * empty tool_calls are omitted, since templates test whether they are defined.
 * behind: appended to the last content, or NULL.  -EINVAL: why names the message. */
int chat_messages_for(const struct chat_accepts *a, const struct chat_input *rq, const char *behind,
		      json_t **out, char *why, size_t why_n);

#endif
