#include "proto/manifest.h"

#include "base/alloc.h"
#include "base/err.h"

#include <stdlib.h>
#include <string.h>

static const char model_chars[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";

void manifest_fini(struct manifest *m)
{
	for (uint32_t i = 0; i < m->n; i++)
		free(m->files[i].name);
	free(m->files);
	free(m->first);
	*m = (struct manifest){0};
}

bool manifest_name_is_valid(const char *name)
{
	int depth = 0;
	if (!*name || strlen(name) > MANIFEST_NAME_MAX)
		return false;
	for (const unsigned char *p = (const unsigned char *)name; *p; p++)
		if (*p < 0x20 || *p == 0x7f || *p == '\\')
			return false;
	for (const char *p = name, *next; p; p = next) {
		const size_t n = strcspn(p, "/");
		next = p[n] ? p + n + 1 : NULL;
		if (n == 0 || *p == '.' || ++depth > MANIFEST_DEPTH_MAX)
			return false;
	}
	return true;
}

int manifest_add(struct manifest *m, const char *name, int64_t size, const uint8_t digest[MANIFEST_DIGEST],
		 struct why *why)
{
	if (!manifest_name_is_valid(name))
		return err_why(why, -EBADMSG, "the list of files has a name that is not allowed: %.80s",
			       name);
	if (m->n == MANIFEST_FILES_MAX)
		return err_why(why, -E2BIG, "the list has more than %d files", MANIFEST_FILES_MAX);
	if (m->n && strcmp(m->files[m->n - 1].name, name) >= 0)
		return err_why(why, -EBADMSG, "the list of files is not in order at %.80s", name);
	if (size < 0 || size > MANIFEST_BYTES_MAX - m->bytes)
		return err_why(why, -EBADMSG, "the list of files has an impossible size at %.80s", name);
	array_grow(m->files, m->cap, m->n + 1);
	struct manifest_file *f = &m->files[m->n++];
	*f = (struct manifest_file){.name = xstrdup(name), .size = size};
	memcpy(f->digest, digest, MANIFEST_DIGEST);
	m->bytes += size;
	return 0;
}

static bool has(const struct manifest *m, const char *name)
{
	for (uint32_t i = 0; i < m->n; i++)
		if (strcmp(m->files[i].name, name) == 0)
			return true;
	return false;
}

int manifest_check(const struct manifest *m, struct why *why)
{
	if (!m->n)
		return err_why(why, -EBADMSG, "the list of files is empty");
	if (m->first && (!has(m, m->first) || strchr(m->first, '/')))
		return err_why(why, -EBADMSG, "the list of files lacks its first one");
	if (!m->model[0] || m->model[0] == '.' || m->model[0] == '-' ||
	    m->model[strspn(m->model, model_chars)])
		return err_why(why, -EBADMSG, "the model's name cannot be that of a folder");
	return 0;
}

void manifest_name_model(const char *text, char out[MANIFEST_MODEL])
{
	size_t n = 0;
	for (const char *p = text; *p && n + 1 < MANIFEST_MODEL; p++)
		if (strchr(model_chars, *p) && (n || (*p != '.' && *p != '-')))
			out[n++] = *p;
		else if (n)
			out[n++] = '_';
	out[n] = '\0';
	if (!n)
		memcpy(out, "model", sizeof "model");
}
