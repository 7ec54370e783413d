/* chat_help.h - model folders that hold only a chat template, for tests. */
#ifndef QUERN_TESTS_UNIT_CHAT_CHAT_HELP_H
#define QUERN_TESTS_UNIT_CHAT_CHAT_HELP_H

#include "base/err.h"
#include "controller/chat/chat.h"

struct chat_folder {
	char path[64];
};
void chat_folder_make(struct chat_folder *f);
void chat_folder_write(const struct chat_folder *f, const char *name, const char *text);
void chat_folder_remove(struct chat_folder *f);

/* Call chat_load() on a folder with this chat_template.jinja. */
int chat_help_load(const char *template, const char *bos, const char *eos, struct chat **out,
		   struct why *why);

/* Return the text of a template of the test data, owned; NULL if the test data are not installed. */
char *chat_help_template(const char *file);

#endif
