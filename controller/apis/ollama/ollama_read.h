/* ollama_read.h - translate requests of Ollama's API to the chat or completions dialect (request/api.h).
 *
 *   /api/chat                 messages, tools, think, format, options  -->  chat
 *   /api/generate             system and prompt as messages            -->  chat
 *   /api/generate, raw, or a model without a template                  -->  completions
 *
 * The protocol: https://github.com/ollama/ollama/blob/main/docs/api.md.  Pure. */
#ifndef QUERN_CONTROLLER_APIS_OLLAMA_OLLAMA_READ_H
#define QUERN_CONTROLLER_APIS_OLLAMA_OLLAMA_READ_H

#include "controller/apis/generation.h"
#include "controller/apis/translate.h"
#include "controller/request/api.h"

#include <jansson.h>
#include <stdbool.h>

/* How to read the client's request. */
struct ollama_reading {
	bool generate; /* true: /api/generate; false: /api/chat */
	bool strict;   /* unknown fields are refused */
	bool chats;    /* the model has a chat template */
	bool thinks;   /* the template can switch thinking on and off */
	bool call_ids; /* the template shows the ids of tool calls */
};

struct ollama_request {
	json_t *request; /* owned: the internal request */
	enum api_dialect dialect;
	bool load;         /* nothing to generate: the client wants the model loaded */
	bool unload;       /* nothing to generate: the client wants it unloaded (keep_alive 0) */
	char ignored[512]; /* as in struct api_reply */
};

/* Translate client, an object.  -EINVAL with *p filled, which names the client's field; out->request is NULL
 * then. */
int ollama_read(const json_t *client, const struct ollama_reading *how, struct ollama_request *out,
		struct api_problem *p);

/* Return a model's name without the tag ":latest", which every name has in Ollama.  The caller owns it. */
json_t *ollama_model_name(const json_t *name);

extern struct generation_name ollama_names[]; /* filled before main() */

/* The tables of fields, for the documentation. */
extern const struct field_table ollama_chat_fields;
extern const struct field_table ollama_generate_fields;

/* Translate the messages of Ollama's /api/chat to chat messages.  Pure.
 *
 *   tool_calls: {function: {name, arguments: {...}}}   -->  ids added, as chat messages have them
 *   {role: tool, tool_name}                            -->  {role: tool, name, tool_call_id}: the id of the
 *                                                           next call of that name, or of the next call */

/* Set t->out's messages.  messages: an array.  -EINVAL with t->p filled. */
int ollama_messages_read(struct translation *t, const json_t *messages);

#endif
