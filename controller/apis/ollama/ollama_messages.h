/* ollama_messages.h - the messages of Ollama's /api/chat to those of a chat.  Pure.
 *
 *   tool_calls: {function: {name, arguments: {...}}}   -->  with ids, as calls of a message have
 *   {role: tool, tool_name}                            -->  {role: tool, name, tool_call_id}: the id of the
 * next call of that name, or of the next call */
#ifndef QUERN_CONTROLLER_APIS_OLLAMA_OLLAMA_MESSAGES_H
#define QUERN_CONTROLLER_APIS_OLLAMA_OLLAMA_MESSAGES_H

#include "controller/apis/translate.h"

/* Sets t->out's messages.  messages: an array.  -EINVAL with t->p filled. */
int ollama_messages_read(struct translation *t, const json_t *messages);

#endif
