#include "cli/conversation.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/file.h"
#include "base/json.h"
#include "base/replace.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Size limit of a saved conversation. */
static const size_t bytes_max = 64 << 20;

int conversation_init(struct conversation *v, const char *system, struct why *why)
{
	*v = (struct conversation){.messages = json_array()};
	return system ? conversation_set_system(v, system, why) : 0;
}

void conversation_fini(struct conversation *v)
{
	json_decref(v->system);
	json_decref(v->messages);
	*v = (struct conversation){0};
}

int conversation_set_system(struct conversation *v, const char *text, struct why *why)
{
	json_t *system = *text ? json_string(text) : NULL;
	if (*text && !system)
		return err_why(why, -EILSEQ, "the system message is not valid UTF-8");
	json_decref(v->system);
	v->system = system;
	return 0;
}

int conversation_add(struct conversation *v, const char *role, const char *text, size_t n, struct why *why)
{
	json_t *content = json_stringn(text, n);
	if (!content)
		return err_why(why, -EILSEQ, "the %s's text is not valid UTF-8", role);
	json_array_append_new(v->messages, json_pack("{s:s, s:o}", "role", role, "content", content));
	return 0;
}

static const char *role_of(const json_t *message)
{
	const char *role = json_string_value(json_object_get(message, "role"));
	return role ? role : "";
}

bool conversation_drop_last(struct conversation *v, const char *role)
{
	const size_t n = json_array_size(v->messages);
	return n && strcmp(role_of(json_array_get(v->messages, n - 1)), role) == 0 &&
	       json_array_remove(v->messages, n - 1) == 0;
}

void conversation_clear(struct conversation *v)
{
	json_array_clear(v->messages);
}

json_t *conversation_all(const struct conversation *v)
{
	json_t *all = json_array();
	if (v->system)
		json_array_append_new(all, json_pack("{s:s, s:O}", "role", "system", "content", v->system));
	json_array_extend(all, v->messages);
	return all;
}

/* Read the messages of a saved conversation. */
static int read_saved(const char *path, json_t **out, struct why *why)
{
	size_t i;
	const json_t *m;
	int rc = json_read(path, bytes_max, out, why);
	if (rc)
		return rc;
	bool valid = json_is_array(*out);
	json_array_foreach(*out, i, m)
	{
		const char *role = role_of(m);
		valid = valid && json_is_string(json_object_get(m, "content")) &&
			(strcmp(role, "user") == 0 || strcmp(role, "assistant") == 0 ||
			 (i == 0 && strcmp(role, "system") == 0));
	}
	if (valid)
		return 0;
	json_decref(*out);
	return err_why(why, -EINVAL,
		       "%s is not a saved conversation: a JSON array of {\"role\", \"content\"}", path);
}

int conversation_save(const struct conversation *v, const char *path, struct why *why)
{
	json_t *before;
	if (file_exists(path)) {
		if (read_saved(path, &before, why))
			return err_why(why, -EEXIST,
				       "%s exists, and is not a saved conversation: choose another name",
				       path);
		json_decref(before);
	}
	struct replace file;
	int rc = replace_begin(&file, path, 0600, why);
	if (rc)
		return rc;
	json_t *all = conversation_all(v);
	json_dumpf(all, file.f, JSON_INDENT(2));
	putc('\n', file.f);
	json_decref(all);
	return replace_end(&file, why);
}

int conversation_load(struct conversation *v, const char *path, struct why *why)
{
	json_t *all, *first;
	int rc = read_saved(path, &all, why);
	if (rc)
		return rc;
	conversation_fini(v);
	first = json_array_get(all, 0);
	if (strcmp(role_of(first), "system") == 0) {
		v->system = json_incref(json_object_get(first, "content"));
		json_array_remove(all, 0);
	}
	v->messages = all;
	return 0;
}
