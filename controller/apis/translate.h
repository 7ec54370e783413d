/* translate.h - a client's request of any API to the internal one: first checked by the API's table of fields
 * (request/field_table.h), then field by field.
 * The internal request is a tree of the chat or completions dialect (request/api.h), where the bounds of a
 * value that passes unchanged are checked; generation.h names problems that are found there by the client's
 * field. Pure: no socket, no service. */
#ifndef QUERN_CONTROLLER_APIS_TRANSLATE_H
#define QUERN_CONTROLLER_APIS_TRANSLATE_H

#include "controller/request/api_error.h"
#include "controller/request/field_table.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

struct translation;

/* What becomes of an honoured field. */
struct translate_rule {
	const char *name; /* the client's */
	const char *to;   /* the internal field that takes the value unchanged; NULL: read() */
	/* Sets internal fields from the value, which is not null and of a type that the table allows.  NULL,
	 * as is `to`: read with another field.  -EINVAL with t->p filled. */
	int (*read)(struct translation *t, const json_t *v);
};

struct translation {
	json_t *out;          /* owned: the internal request */
	const json_t *client; /* the object that is read */
	const char *within;   /* "options." of an object within the request; else "" */
	bool strict;          /* unknown fields are refused */
	char ignored[512];    /* names, "a, b" */
	struct api_problem *p;
	const void *user; /* the reader's own */
};

struct translate_table {
	const struct field_table *fields;
	const struct translate_rule *rules; /* [n_rules] */
	size_t n_rules;
};

/* Checks and reads an object of the request.  -EINVAL with t->p filled, which names the field with `within`.
 */
int translate_object(struct translation *t, const json_t *client, const char *within,
		     const struct translate_table *table);

/* Checks the members of an object within the request, which is read elsewhere: those without effect are
 * named, "tools.cache_control", unknown ones too, or refused where the service is strict. */
int translate_members(struct translation *t, const json_t *o, const char *within,
		      const struct field_table *fields);

/* Names a field, or a part of one, as without effect; once. */
void translate_ignore(struct translation *t, const char *name);

#endif
