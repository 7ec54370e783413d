#include "tests/unit/chat/chat_help.h"

#include "base/file.h"
#include "tests/testdata.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char folder_of_more[] = "additional_chat_templates";

void chat_folder_make(struct chat_folder *f)
{
	strcpy(f->path, "/tmp/quern-chat-XXXXXX");
	cr_assert(mkdtemp(f->path));
}

void chat_folder_write(const struct chat_folder *f, const char *name, const char *text)
{
	char *path = file_join(f->path, name), *more = file_join(f->path, folder_of_more);
	if (strncmp(name, folder_of_more, strlen(folder_of_more)) == 0)
		mkdir(more, 0700);
	FILE *to = fopen(path, "w");
	cr_assert(to, "%s", path);
	fputs(text, to);
	fclose(to);
	free(path);
	free(more);
}

void chat_folder_remove(struct chat_folder *f)
{
	static const char *const names[] = {"chat_template.jinja", "tokenizer_config.json",
					    "chat_template.json", "additional_chat_templates/tool_use.jinja"};
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		char *path = file_join(f->path, names[i]);
		unlink(path);
		free(path);
	}
	char *more = file_join(f->path, folder_of_more);
	rmdir(more);
	free(more);
	rmdir(f->path);
}

int chat_help_load(const char *template, const char *bos, const char *eos, struct chat **out, struct why *why)
{
	struct chat_folder f;
	char config[256];
	chat_folder_make(&f);
	snprintf(config, sizeof config, "{\"bos_token\": \"%s\", \"eos_token\": {\"content\": \"%s\"}}", bos,
		 eos);
	chat_folder_write(&f, "chat_template.jinja", template);
	chat_folder_write(&f, "tokenizer_config.json", config);
	int rc = chat_load(f.path, out, why);
	chat_folder_remove(&f);
	return rc;
}

char *chat_help_template(const char *file)
{
	char path[256], piece[4096];
	struct buf text = {0};
	snprintf(path, sizeof path, "chat/llama.cpp-templates/%s", file);
	const char *at = testdata(path);
	FILE *f = at ? fopen(at, "r") : NULL;
	if (!f)
		return NULL;
	for (size_t n; (n = fread(piece, 1, sizeof piece, f));)
		buf_put(&text, piece, n);
	fclose(f);
	return buf_take(&text);
}
