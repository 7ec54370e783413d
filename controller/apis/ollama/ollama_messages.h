/* ollama_messages.h - translate the messages of Ollama's /api/chat to chat messages.  Pure.
 *
 *   tool_calls: {function: {name, arguments: {...}}}   -->  ids added, as chat messages have them
 *   {role: tool, tool_name}                            -->  {role: tool, name, tool_call_id}: the id of the
 *                                                           next call of that name, or of the next call */
#ifndef QUERN_CONTROLLER_APIS_OLLAMA_OLLAMA_MESSAGES_H
#define QUERN_CONTROLLER_APIS_OLLAMA_OLLAMA_MESSAGES_H

#include "controller/apis/translate.h"

/* Set t->out's messages.  messages: an array.  -EINVAL with t->p filled. */
int ollama_messages_read(struct translation *t, const json_t *messages);

#endif
