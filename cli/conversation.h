/* conversation.h - the messages of a chat, in OpenAI's format; saves them to a file and loads them. */
#ifndef QUERN_CLI_CONVERSATION_H
#define QUERN_CLI_CONVERSATION_H

#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

struct conversation {
	json_t *system;   /* text of the system message; NULL: none */
	json_t *messages; /* alternating user and assistant messages; owned, as system is */
};

/* system may be NULL.  -EILSEQ: it is not valid UTF-8. */
int conversation_init(struct conversation *v, const char *system, struct why *why);
void conversation_fini(struct conversation *v);

/* Replace the system message; "" removes it.  -EILSEQ. */
int conversation_set_system(struct conversation *v, const char *text, struct why *why);
/* Append a message.  -EILSEQ. */
int conversation_add(struct conversation *v, const char *role, const char *text, size_t n, struct why *why);
/* Remove the last message if it has this role. */
bool conversation_drop_last(struct conversation *v, const char *role);
void conversation_clear(struct conversation *v); /* keeps the system message */

/* Return all messages, the system's first.  The caller owns the result. */
json_t *conversation_all(const struct conversation *v);

/* Write a file of mode 0600: a JSON array of {role, content}.  -EEXIST: a file of that name exists and is not
 * a saved conversation. */
int conversation_save(const struct conversation *v, const char *path, struct why *why);
/* Replace v by a saved conversation.  On error v is unchanged. */
int conversation_load(struct conversation *v, const char *path, struct why *why);

#endif
