/* translate.h - translate a client's request of any API to the internal request: check it by the API's table
 * of fields (request/field_table.h), then translate it field by field.
 * The internal request is a tree of the chat or completions dialect (request/api.h), which checks the bounds
 * of values that pass unchanged; generation.h renames the problems found there to the client's fields.  Pure:
 * no socket, no service. */
#ifndef QUERN_CONTROLLER_APIS_TRANSLATE_H
#define QUERN_CONTROLLER_APIS_TRANSLATE_H

#include "controller/request/api_error.h"
#include "controller/request/field_table.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

struct translation;

/* How to translate an honoured field. */
struct translate_rule {
	const char *name; /* the client's name */
	const char *to;   /* the internal field that takes the value unchanged; NULL: use read() */
	/* Sets internal fields from the value, which is not null and has a type that the table allows.  If
	 * `to` is NULL too, the field is read with another field.  -EINVAL with t->p filled. */
	int (*read)(struct translation *t, const json_t *v);
};

struct translation {
	json_t *out;          /* owned: the internal request */
	const json_t *client; /* the object being read */
	const char *within;   /* "options." if that object is within the request; else "" */
	bool strict;          /* unknown fields are refused */
	char ignored[512];    /* names, "a, b" */
	struct api_problem *p;
	const void *user; /* the reader's own */
};

struct translate_table {
	const struct field_table *fields;
	const struct translate_rule *rules; /* [n_rules] */
	size_t n_rules;
	/* Offset in struct params_row of the API's names of parameters (proto/params.h).  Such fields pass
	 * unchanged, under the internal name.  0: none. */
	size_t param_name;
};

/* Check and read an object of the request.  -EINVAL with t->p filled, which names the field, prefixed by
 * `within`. */
int translate_object(struct translation *t, const json_t *client, const char *within,
		     const struct translate_table *table);

/* Check the members of an object within the request that is read elsewhere.  Members without effect are
 * named, "tools.cache_control"; so are unknown ones, or they are refused if the service is strict. */
int translate_members(struct translation *t, const json_t *o, const char *within,
		      const struct field_table *fields);

/* Name a field, or a member of a field, as without effect; once. */
void translate_ignore(struct translation *t, const char *name);

#endif
