#include "cli/models/commands.h"

#include "base/err.h"
#include "base/option_table.h"
#include "cli/models/cache.h"
#include "cli/terminal/table.h"
#include "cli/terminal/term.h"
#include "cli/terminal/usage.h"

#include <string.h>
#include <time.h>

static const struct usage list_usage = {
	.name = "list",
	.words = "",
	.about = "Lists the models that quern pull has fetched, and unfinished downloads (partial).",
};

static const struct usage rm_usage = {
	.name = "rm",
	.words = "NAME[@REVISION]...",
	.about = "Removes models that quern pull has fetched: all revisions of a name, or one.  A service "
		 "that\n"
		 "uses a model keeps it until the service ends.",
	.max_words = 1000,
};

static void print_json(const struct cache_list *l)
{
	json_t *list = json_array();
	for (size_t i = 0; i < l->n; i++) {
		const struct cached *c = &l->entries[i];
		json_array_append_new(list,
				      json_pack("{s:s, s:s, s:s, s:s, s:I, s:I, s:b, s:s}", "name", c->name,
						"revision", c->revision, "commit", c->commit, "kind", c->kind,
						"bytes", (json_int_t)c->bytes, "date", (json_int_t)c->date,
						"partial", c->partial, "path", c->dir));
	}
	json_dumpf(list, stdout, JSON_INDENT(2));
	putchar('\n');
	json_decref(list);
}

static void print_list(const struct cache_list *l)
{
	struct table t = {0};
	table_row(&t, "NAME", "REVISION", "COMMIT", "SIZE", "KIND", "DATE", NULL);
	for (size_t i = 0; i < l->n; i++) {
		const struct cached *c = &l->entries[i];
		const time_t at = (time_t)c->date;
		char size[32], date[32] = "-";
		struct tm tm;
		if (c->date && localtime_r(&at, &tm))
			strftime(date, sizeof date, "%Y-%m-%d %H:%M", &tm);
		table_begin(&t);
		table_text(&t, c->name);
		table_text(&t, c->revision[0] ? c->revision : NULL);
		table_format(&t, "%.12s", c->commit);
		table_text(&t, term_bytes((double)c->bytes, size, sizeof size));
		table_text(&t, c->kind);
		table_text(&t, date);
	}
	table_print(&t, stdout);
	table_fini(&t);
}

static int run_list(struct opts *o)
{
	struct cache_list l;
	struct why why;
	const int rc = cache_list_read(&l, &why);
	if (!rc && opts_flag(o, "json"))
		print_json(&l);
	else if (!rc && l.n)
		print_list(&l);
	else if (!rc)
		term_note("no models; fetch one with quern pull ORG/NAME");
	cache_list_fini(&l);
	return rc ? term_error("%s", why.text) : EXIT_SUCCESS;
}

int cmd_list(int argc, char **argv)
{
	return command_run(&list_usage, OPTION_LIST, run_list, argc, argv);
}

/* Remove the models that text names; text NULL: all models. */
static int remove_matching(const struct cache_list *l, const char *text, bool partial)
{
	size_t n = 0;
	int status = 0;
	const char *name = NULL;
	for (size_t i = 0; text && i < l->n; i++)
		if (cache_matches(&l->entries[i], text)) {
			if (name && strcmp(name, l->entries[i].name) != 0)
				return term_error("\"%s\" is %s, or %s: say which", text, name,
						  l->entries[i].name);
			name = l->entries[i].name;
		}
	for (size_t i = 0; i < l->n; i++) {
		const struct cached *c = &l->entries[i];
		int64_t bytes;
		struct why why;
		char size[32];
		if ((text && !cache_matches(c, text)) || (partial && !c->partial))
			continue;
		n++;
		if (cache_remove(c, &bytes, &why))
			status = term_error("%s", why.text);
		else
			printf("removed %s@%.12s%s: %s\n", c->name, c->commit, c->partial ? " (partial)" : "",
			       term_bytes((double)bytes, size, sizeof size));
	}
	if (!n && text)
		status = term_error("no model \"%s\"%s; quern list shows those that are there", text,
				    partial ? " is unfinished" : "");
	return status;
}

static int run_rm(struct opts *o)
{
	struct why why;
	const bool partial = opts_flag(o, "partial");
	int status = EXIT_SUCCESS;
	if (o->n_words == 0 && !partial)
		return term_usage("rm", "%s is missing", rm_usage.words);
	for (size_t i = 0; i < o->n_words || (i == 0 && partial); i++) {
		struct cache_list l;
		if (cache_list_read(&l, &why))
			status = term_error("%s", why.text);
		else if (remove_matching(&l, o->n_words ? o->words[i] : NULL, partial))
			status = EXIT_FAILURE;
		cache_list_fini(&l);
	}
	return status;
}

int cmd_rm(int argc, char **argv)
{
	return command_run(&rm_usage, OPTION_RM, run_rm, argc, argv);
}
