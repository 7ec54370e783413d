/* chat_messages.h - a request's messages, as the model's chat template wants them. */
#ifndef QUERN_CONTROLLER_CHAT_MESSAGES_H
#define QUERN_CONTROLLER_CHAT_MESSAGES_H

#include "controller/chat.h"

/* What a template takes (found out by trying). */
struct chat_accepts {
	bool text;          /* content as a string */
	bool parts;         /* content as a list of parts */
	bool argument_text; /* a call's arguments only as JSON text */
	bool developer;     /* knows the role developer; others are given system for it */
};

/* A copy of rq->messages (the caller's, json_decref), each content in a form that is taken: parts are
 * joined by newlines for a template that wants text, as vLLM does; null is an empty text.  Keys that
 * are null and empty tool_calls are left out, since templates ask whether they are there.
 * behind: to be appended to the last content, or NULL.  -EINVAL: why names the message. */
int chat_messages_for(const struct chat_accepts *a, const struct chat_request *rq, const char *behind, json_t **out,
		      char *why, size_t why_n);

#endif
