/* conversation.h - the messages of a chat, in OpenAI's form; saved to a file and read from one. */
#ifndef QUERN_CLI_CONVERSATION_H
#define QUERN_CLI_CONVERSATION_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

struct conversation {
	json_t *system;   /* its text; NULL: none */
	json_t *messages; /* user and assistant in turns; owned, as system is */
};

/* system may be NULL.  -EILSEQ: it is not valid UTF-8. */
int conversation_init(struct conversation *v, const char *system, char *why, size_t why_n);
void conversation_fini(struct conversation *v);

/* Replaces the system message; "" removes it.  -EILSEQ. */
int conversation_set_system(struct conversation *v, const char *text, char *why, size_t why_n);
/* Appends a message.  -EILSEQ. */
int conversation_add(struct conversation *v, const char *role, const char *text, size_t n, char *why,
		     size_t why_n);
/* Removes the last message if it has this role. */
bool conversation_drop_last(struct conversation *v, const char *role);
void conversation_clear(struct conversation *v); /* the system message stays */

/* All messages, the system's first; the caller's. */
json_t *conversation_all(const struct conversation *v);

/* Writes a file of mode 0600: a JSON array of {role, content}.  -EEXIST: a file of that name is something
 * else than a saved conversation. */
int conversation_save(const struct conversation *v, const char *path, char *why, size_t why_n);
/* Replaces v by a saved one; v is unchanged where that fails. */
int conversation_load(struct conversation *v, const char *path, char *why, size_t why_n);

#endif
