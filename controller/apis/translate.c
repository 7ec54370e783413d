#include "controller/apis/translate.h"

#include "proto/params.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

void translate_ignore(struct translation *t, const char *name)
{
	char full[128], *at = t->ignored;
	snprintf(full, sizeof full, "%s%s", t->within, name);
	const size_t n = strlen(full);
	while ((at = strstr(at, full))) {
		const bool whole = (at == t->ignored || at[-1] == ' ') && (!at[n] || at[n] == ',');
		if (whole)
			return;
		at += n;
	}
	field_table_ignore(t->ignored, sizeof t->ignored, full);
}

/* Rename the field of a problem within an object of the request: "stop" becomes "options.stop", at the
 * beginning of the reason or after "unknown field". */
static void name_within(struct translation *t)
{
	static const char unknown[] = "unknown field ";
	char param[sizeof t->p->param], why[sizeof t->p->why];
	const size_t n = strlen(t->p->param), k = sizeof unknown - 1;
	const size_t at = strncmp(t->p->why, unknown, k) == 0 ? k : 0;
	if (!t->within[0] || !n)
		return;
	snprintf(param, sizeof param, "%s%.40s", t->within, t->p->param);
	if (strncmp(t->p->why + at, t->p->param, n) == 0) {
		snprintf(why, sizeof why, "%.*s%s%.460s", (int)at, t->p->why, t->within, t->p->why + at);
		memcpy(t->p->why, why, sizeof why);
	}
	memcpy(t->p->param, param, sizeof param);
}

static int check(struct translation *t, const json_t *client, const struct field_table *fields)
{
	char ignored[sizeof t->ignored] = "";
	if (field_table_check(fields, client, t->strict, ignored, sizeof ignored, t->p)) {
		name_within(t);
		return -EINVAL;
	}
	for (char *name = ignored; *name;) {
		const size_t n = strcspn(name, ",");
		char one[128];
		snprintf(one, sizeof one, "%.*s", (int)n, name);
		translate_ignore(t, one);
		name += n + strspn(name + n, ", ");
	}
	return 0;
}

static int apply(struct translation *t, const struct translate_rule *rule, const json_t *v)
{
	if (!v || json_is_null(v))
		return 0;
	if (rule->read)
		return rule->read(t, v);
	if (rule->to)
		json_object_set(t->out, rule->to, (json_t *)v);
	return 0;
}

static void pass_params(struct translation *t, const json_t *client, size_t name_at)
{
	for (size_t i = 0; i < n_params_rows; i++) {
		const void *at = (const char *)&params_rows[i] + name_at;
		const char *name = *(const char *const *)at;
		json_t *v = name ? json_object_get(client, name) : NULL;
		if (v && !json_is_null(v))
			json_object_set(t->out, params_rows[i].name, v);
	}
}

int translate_object(struct translation *t, const json_t *client, const char *within,
		     const struct translate_table *table)
{
	const json_t *client_before = t->client;
	const char *within_before = t->within;
	t->client = client;
	t->within = within;
	int rc = check(t, client, table->fields);
	for (size_t i = 0; i < table->n_rules && !rc; i++)
		rc = apply(t, &table->rules[i], json_object_get(client, table->rules[i].name));
	if (table->param_name && !rc)
		pass_params(t, client, table->param_name);
	t->client = client_before;
	t->within = within_before;
	return rc;
}

int translate_members(struct translation *t, const json_t *o, const char *within,
		      const struct field_table *fields)
{
	const char *within_before = t->within;
	t->within = within;
	int rc = check(t, o, fields);
	t->within = within_before;
	return rc;
}
