#include "base/options.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/file.h"

#include <assert.h>
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Size limit of a configuration file; a larger file is a mistake. */
static const size_t ini_bytes_max = 1 << 20;
/* Longest word for which a similar name is suggested. */
enum { NAME_MAX_BYTES = 64 };

static void add(struct opts *o, const struct opt *row, int64_t lo, int64_t hi)
{
	/* Names are unique: a second option of the same name would never be found. */
	for (size_t i = 0; i < o->n_values; i++)
		assert(strcmp(o->values[i].spec->name, row->name) != 0);
	o->values = xrealloc(o->values, o->n_values + 1, sizeof *o->values);
	o->values[o->n_values++] = (struct opt_value){.spec = row, .lo = lo, .hi = hi};
}

void opts_add(struct opts *o, const struct opt *table, size_t n)
{
	for (size_t i = 0; i < n; i++)
		add(o, &table[i], table[i].lo, table[i].hi);
}

void opts_add_row(struct opts *o, const struct opt *row, uint64_t program)
{
	const bool wide = row->wide & program;
	add(o, row, wide ? row->wide_lo : row->lo, wide ? row->wide_hi : row->hi);
}

/* Add a copy of `other` for each of the blank-separated names. */
static void add_others(struct opts *o, const char *names, const struct opt_other *other)
{
	for (; *names; names += strspn(names, " ")) {
		const size_t n = strcspn(names, " ");
		o->others = xrealloc(o->others, o->n_others + 1, sizeof *o->others);
		struct opt_other *new = &o->others[o->n_others++];
		*new = *other;
		new->name = xasprintf("%.*s", (int)n, names);
		new->hint = other->hint ? xstrdup(other->hint) : NULL;
		names += n;
	}
}

void opts_alias(struct opts *o, const struct opt_alias *table, size_t n)
{
	for (size_t i = 0; i < o->n_values; i++) {
		const struct opt *s = o->values[i].spec;
		if (s->same)
			add_others(o, s->same, &(struct opt_other){.own = s->name});
		if (!s->near)
			continue;
		char *hint = s->note  ? xasprintf("quern has --%s%s", s->name, s->note)
			     : s->arg ? xasprintf("quern has --%s %s", s->name, s->arg)
				      : xasprintf("quern has --%s", s->name);
		add_others(o, s->near, &(struct opt_other){.hint = hint});
		free(hint);
	}
	for (size_t i = 0; i < n; i++) {
		const struct opt_alias *a = &table[i];
		char *hint = a->hint ? xstrdup(a->hint) : NULL;
		add_others(o, a->others,
			   &(struct opt_other){
				   .own = a->name, .values = a->values, .unless = a->unless, .hint = hint});
		free(hint);
	}
}

static void texts_clear(char ***texts, size_t *n)
{
	for (size_t i = 0; i < *n; i++)
		free((*texts)[i]);
	free(*texts);
	*texts = NULL;
	*n = 0;
}

/* Append text, which the list takes over. */
static void texts_add(char ***texts, size_t *n, char *text)
{
	*texts = xrealloc(*texts, *n + 1, sizeof **texts);
	(*texts)[(*n)++] = text;
}

static void value_clear(struct opt_value *v)
{
	texts_clear(&v->texts, &v->n_texts);
}

void opts_fini(struct opts *o)
{
	for (size_t i = 0; i < o->n_values; i++)
		value_clear(&o->values[i]);
	texts_clear(&o->words, &o->n_words);
	texts_clear(&o->refused, &o->n_refused);
	for (size_t i = 0; i < o->n_taken; i++)
		free(o->taken[i].text);
	free(o->taken);
	for (size_t i = 0; i < o->n_others; i++) {
		free(o->others[i].name);
		free(o->others[i].hint);
	}
	free(o->others);
	free(o->values);
	*o = (struct opts){0};
}

static int parse_int(const char *text, int64_t lo, int64_t hi, int64_t *out)
{
	char *end;
	errno = 0;
	long long x = strtoll(text, &end, 10);
	if (end == text || *end || errno || x < lo || x > hi)
		return -EINVAL;
	*out = x;
	return 0;
}

int size_parse(const char *text, int64_t *bytes, struct why *why)
{
	static const char units[] = "KMGT";
	char *end;
	/* Check for digits first: strtod would also accept "inf", "nan" and "0x10". */
	size_t digits = strspn(text, "0123456789.");
	double x = strtod(text, &end);
	if (digits == 0 || end != text + digits)
		goto bad;
	if (*end && *end != 'B') {
		char c = *end >= 'a' && *end <= 'z' ? (char)(*end - 'a' + 'A') : *end;
		const char *u = strchr(units, c);
		if (!u)
			goto bad;
		x = ldexp(x, 10 * (int)(u - units + 1));
		end++;
		if (*end == 'i')
			end++;
	}
	if (*end == 'B')
		end++;
	if (*end)
		goto bad;
	if (!(x < 0x1p62))
		return err_why(why, -EINVAL, "\"%s\" is more bytes than any machine has", text);
	*bytes = (int64_t)x;
	return 0;
bad:
	return err_why(why, -EINVAL, "\"%s\" is not a size; write bytes, or 512M, 4G", text);
}

static int parse_flag(const char *text, int64_t *out)
{
	static const char *const yes[] = {"true", "yes", "on", "1"};
	static const char *const no[] = {"false", "no", "off", "0"};
	for (int i = 0; i < 4; i++) {
		if (strcmp(text, yes[i]) == 0 || strcmp(text, no[i]) == 0) {
			*out = strcmp(text, yes[i]) == 0;
			return 0;
		}
	}
	return -EINVAL;
}

/* Set a value.  text NULL: a flag without a value.  shown: the option as the user wrote it. */
static int value_set(struct opt_value *v, const char *text, const char *shown, struct why *why)
{
	const struct opt *s = v->spec;
	switch (s->kind) {
	case OPT_UNBUILT:
		return err_why(why, -ENOSYS, "%s is not built yet", shown);
	case OPT_FLAG:
		v->n = 1;
		if (text && parse_flag(text, &v->n))
			return err_why(why, -EINVAL, "%s is \"%.100s\", must be true or false", shown, text);
		text = text ? text : "true";
		break;
	case OPT_INT:
		if (parse_int(text, v->lo, v->hi, &v->n))
			return err_why(why, -EINVAL, "%s is \"%.100s\", must be an integer from %lld to %lld",
				       shown, text, (long long)v->lo, (long long)v->hi);
		break;
	case OPT_NUMBER: {
		char *end;
		const double x = strtod(text, &end);
		if (end == text || *end || !isfinite(x))
			return err_why(why, -EINVAL, "%s is \"%.100s\", must be a number", shown, text);
		v->x = x;
		break;
	}
	case OPT_SIZE:
		if (size_parse(text, &v->n, why))
			return err_prefix(why, -EINVAL, "%s", shown);
		break;
	case OPT_TEXT:
	case OPT_LIST:
		break;
	}
	if (s->kind != OPT_LIST)
		value_clear(v);
	texts_add(&v->texts, &v->n_texts, xstrdup(text));
	return 0;
}

/* Find the option named name[0..n). */
static struct opt_value *find(const struct opts *o, const char *name, size_t n)
{
	for (size_t i = 0; i < o->n_values; i++)
		if (strncmp(o->values[i].spec->name, name, n) == 0 && !o->values[i].spec->name[n])
			return &o->values[i];
	return NULL;
}

/* Find the row of another program's option, typed[0..n) with its dashes; NULL if there is none, or its own
 * option is not in these tables. */
static const struct opt_other *find_other(const struct opts *o, const char *typed, size_t n)
{
	for (size_t i = 0; i < o->n_others; i++) {
		const struct opt_other *a = &o->others[i];
		if (strncmp(a->name, typed, n) == 0 && !a->name[n] &&
		    (!a->own || find(o, a->own, strlen(a->own))))
			return a;
	}
	return NULL;
}

/* Report an unknown option.  typed: its name without dashes; dashes: those that the user wrote. */
static int unknown_name(const struct opts *o, const char *typed, const char *dashes, struct why *why)
{
	const char **names = xmalloc((o->n_values + 1) * sizeof *names);
	for (size_t i = 0; i < o->n_values; i++)
		names[i] = o->values[i].spec->name;
	const char *near = nearest_name(typed, names, o->n_values);
	free(names);
	char *dashed = xasprintf("--%s", typed);
	const struct opt_other *alias = find_other(o, dashed, strlen(dashed));
	free(dashed);
	if (alias && alias->hint)
		return err_why(why, -EINVAL, "unknown option %s%.100s: %s", dashes, typed, alias->hint);
	near = alias ? alias->own : near;
	if (near)
		return err_why(why, -EINVAL, "unknown option %s%.100s; did you mean %s%s?", dashes, typed,
			       dashes, near);
	return err_why(why, -EINVAL, "unknown option %s%.100s", dashes, typed);
}

/* Set v from `text`, or from the next argument if text is NULL and the option needs a value. */
static int take_value(struct opt_value *v, const char *shown, const char *text, int *i, int argc, char **argv,
		      struct why *why)
{
	if (!text && v->spec->kind != OPT_FLAG && v->spec->kind != OPT_UNBUILT) {
		if (*i + 1 >= argc)
			return err_why(why, -EINVAL, "%s needs a value (%s)", shown, v->spec->arg);
		text = argv[++*i];
	}
	return value_set(v, text, shown, why);
}

/* Find the word of values that is "text" or begins with "text="; NULL if none does. */
static const char *find_word(const char *values, const char *text)
{
	const size_t n = strcspn(text, " =") == strlen(text) ? strlen(text) : 0;
	for (const char *p = values; *p; p += strspn(p, " ")) {
		const size_t k = strcspn(p, " ");
		if ((k == 1 && *p == '*') || (n && k >= n && !strncmp(p, text, n) && (k == n || p[n] == '=')))
			return p;
		p += k;
	}
	return NULL;
}

/* Accept another program's option that lists its values.  text: the value given; NULL: it would be the next
 * argument. */
static int take_alias(struct opts *o, const struct opt_other *a, const char *text, int *i, int argc,
		      char **argv, struct why *why)
{
	const bool may_lack = a->values[0] == '?';
	const char *words = a->values + (may_lack ? 1 : 0), *next = *i + 1 < argc ? argv[*i + 1] : NULL;
	if (!*a->values && text)
		return err_why(why, -EINVAL, "%s takes no value", a->name);
	int64_t on = 1;
	if (*a->values && !text && next &&
	    (!may_lack || find_word(words, next) || (!parse_flag(next, &on) && !on))) {
		text = next;
		++*i;
	}
	if (*a->values && !text && !may_lack)
		return err_why(why, -EINVAL, "%s needs a value", a->name);
	const char *word = text ? find_word(words, text) : a->values;
	if (!word)
		return err_why(why, -EINVAL, "%s is \"%.100s\": %s", a->name, text, a->hint);
	const size_t n = text ? strlen(text) : 0;
	if (text && *word != '*' && word[n] == '=') {
		char *ours = xasprintf("%.*s", (int)strcspn(word + n + 1, " "), word + n + 1);
		int rc = value_set(find(o, a->own, strlen(a->own)), ours, a->name, why);
		free(ours);
		return rc;
	}
	o->taken = xrealloc(o->taken, o->n_taken + 1, sizeof *o->taken);
	o->taken[o->n_taken++] = (struct opt_taken){
		(size_t)(a - o->others),
		xasprintf("%s%s%.100s: %s", a->name, text ? " " : "", text ? text : "", a->hint)};
	return 0;
}

/* Accept another program's option.  text: its value, or NULL. */
static int take_other(struct opts *o, const struct opt_other *a, const char *text, int *i, int argc,
		      char **argv, struct why *why)
{
	if (a->values)
		return take_alias(o, a, text, i, argc, argv, why);
	if (!a->own)
		return err_why(why, -EINVAL, "unknown option %s: %s", a->name, a->hint);
	return take_value(find(o, a->own, strlen(a->own)), a->name, text, i, argc, argv, why);
}

static int parse_long(struct opts *o, const char *arg, int *i, int argc, char **argv, struct why *why)
{
	const char *eq = strchr(arg, '='), *text = eq ? eq + 1 : NULL;
	const size_t n = eq ? (size_t)(eq - arg) : strlen(arg);
	struct opt_value *v = find(o, arg + 2, n - 2);
	const struct opt_other *alias = v ? NULL : find_other(o, arg, n);
	if (alias)
		return take_other(o, alias, text, i, argc, argv, why);
	char *typed = xasprintf("%.*s", (int)(n < 200 ? n : 200), arg);
	int rc = v ? take_value(v, typed, text, i, argc, argv, why) : unknown_name(o, typed + 2, "--", why);
	free(typed);
	return rc;
}

static int parse_short(struct opts *o, const char *arg, int *i, int argc, char **argv, struct why *why)
{
	struct opt_value *v = NULL;
	for (size_t k = 0; k < o->n_values && !v; k++)
		if (o->values[k].spec->letter && o->values[k].spec->letter == arg[1])
			v = &o->values[k];
	/* "-ngl" is not the letter n with a value.  A single letter of ours takes precedence over other
	 * programs. */
	const size_t n = strcspn(arg, "=");
	const struct opt_other *alias = v && !arg[2] ? NULL : find_other(o, arg, n);
	if (alias)
		return take_other(o, alias, arg[n] ? arg + n + 1 : NULL, i, argc, argv, why);
	/* "-O3" is the letter O with a value. */
	if (!v && (alias = find_other(o, arg, 2)))
		return take_other(o, alias, arg[2] ? arg + 2 : NULL, i, argc, argv, why);
	if (!v)
		return err_why(why, -EINVAL,
			       "unknown option %.100s (put words that begin with a dash after --)", arg);
	const char *text = arg[2] ? arg + 2 : NULL;
	if (v->spec->kind == OPT_FLAG && text)
		return err_why(why, -EINVAL, "option -%c takes no value", arg[1]);
	char *shown = xasprintf("--%s", v->spec->name);
	int rc = take_value(v, shown, text, i, argc, argv, why);
	free(shown);
	return rc;
}

/* Record an error; *rc becomes the result for all errors so far. */
static void refuse(struct opts *o, int *rc, int one, const char *why)
{
	if (!one)
		return;
	texts_add(&o->refused, &o->n_refused, xstrdup(why));
	*rc = *rc && *rc != one ? -EINVAL : one;
}

static int join_refused(const struct opts *o, int rc, struct why *why)
{
	struct buf all = {0};
	for (size_t i = 0; i < o->n_refused; i++)
		buf_printf(&all, "%s%s", i ? "; " : "", o->refused[i]);
	if (rc)
		err_why(why, rc, "%s", all.p);
	buf_fini(&all);
	return rc;
}

/* Return whether arg is a negative number: after a refused option it is the option's value, though it looks
 * like an option. */
static bool is_negative(const char *arg)
{
	return arg && arg[0] == '-' && (isdigit((unsigned char)arg[1]) || arg[1] == '.');
}

int opts_parse(struct opts *o, int argc, char **argv, struct why *why)
{
	bool only_words = false;
	int all = 0;
	struct why one;
	texts_clear(&o->refused, &o->n_refused);
	for (int i = 1; i < argc; i++) {
		const char *a = argv[i];
		int rc = 0;
		if (only_words || a[0] != '-' || !a[1])
			texts_add(&o->words, &o->n_words, xstrdup(a));
		else if (strcmp(a, "--") == 0)
			only_words = true;
		else if (strcmp(a, "--help") == 0 || strcmp(a, "-h") == 0)
			return OPTS_HELP;
		else if (a[1] == '-')
			rc = parse_long(o, a, &i, argc, argv, &one);
		else
			rc = parse_short(o, a, &i, argc, argv, &one);
		refuse(o, &all, rc, one.text);
		if (rc && i + 1 < argc && is_negative(argv[i + 1]))
			i++;
	}
	return join_refused(o, all, why);
}

int opts_check_taken(const struct opts *o, struct why *why)
{
	for (size_t i = 0; i < o->n_taken; i++) {
		const struct opt_other *a = &o->others[o->taken[i].other];
		if (a->unless && opts_has(o, a->unless))
			return err_why(why, -EINVAL, "%s and --%s: give one of them", a->name, a->unless);
	}
	return 0;
}

int opts_set(struct opts *o, const char *name, const char *text, struct why *why)
{
	struct opt_value *v = find(o, name, strlen(name));
	if (!v)
		return unknown_name(o, name, "", why);
	if (!text && v->spec->kind != OPT_FLAG && v->spec->kind != OPT_UNBUILT)
		return err_why(why, -EINVAL, "%s needs a value (%s)", name, v->spec->arg);
	return value_set(v, text, name, why);
}

void opts_unset(struct opts *o, const char *name)
{
	value_clear(opts_value(o, name));
}

/* Return whether "MAX_SEQS" (up to its '=') is the variable of the name "max-seqs". */
static bool is_variable(const char *variable, const char *name)
{
	for (; *name; name++, variable++)
		if (*variable != (*name == '-'                   ? '_'
				  : *name >= 'a' && *name <= 'z' ? *name - 'a' + 'A'
								 : *name))
			return false;
	return *variable == '=';
}

/* Refuse a variable named like another program's option, with the same error as on the command line.  text:
 * the variable's value.  Kubernetes sets NAME_PORT=tcp://... for a service called NAME, which is ignored. */
static int foreign_variable(const struct opts *o, const char *prefix, const char *variable, const char *shown,
			    const char *text, struct why *why)
{
	for (size_t i = 0; i < o->n_others; i++) {
		const struct opt_other *a = &o->others[i];
		char own[64];
		if (strncmp(a->name, "--", 2) != 0 || !is_variable(variable, a->name + 2) ||
		    (a->own && !find(o, a->own, strlen(a->own))) || strstr(text, "://"))
			continue;
		if (a->hint)
			return err_why(why, -EINVAL, "unknown option %s: %s", shown, a->hint);
		snprintf(own, sizeof own, "%s", a->own);
		for (char *p = own; *p; p++)
			*p = (char)(*p == '-' ? '_' : toupper((unsigned char)*p));
		return err_why(why, -EINVAL, "unknown option %s; did you mean %s%s?", shown, prefix, own);
	}
	return 0;
}

/* Set an option from one variable.  shown: the variable's name. */
static int take_variable(struct opts *o, const char *prefix, const char *variable, const char *shown,
			 const char *text, struct why *why)
{
	for (size_t i = 0; i < o->n_values; i++) {
		struct opt_value *v = &o->values[i];
		if (!is_variable(variable, v->spec->name))
			continue;
		if (v->n_texts || (v->spec->kind == OPT_INT && strstr(text, "://")))
			return 0;
		return value_set(v, text, shown, why);
	}
	return foreign_variable(o, prefix, variable, shown, text, why);
}

int opts_env(struct opts *o, const char *prefix, char *const *env, struct why *why)
{
	const size_t n_prefix = strlen(prefix);
	int all = 0;
	struct why one;
	texts_clear(&o->refused, &o->n_refused);
	for (; *env; env++) {
		const char *text = strchr(*env, '=');
		if (!text || !text[1] || strncmp(*env, prefix, n_prefix) != 0)
			continue;
		char *shown = xasprintf("%.*s", (int)(text - *env), *env);
		refuse(o, &all, take_variable(o, prefix, *env + n_prefix, shown, text + 1, &one), one.text);
		free(shown);
	}
	return join_refused(o, all, why);
}

static char *trim(char *s)
{
	s += strspn(s, " \t\r");
	size_t n = strlen(s);
	while (n && strchr(" \t\r", s[n - 1]))
		s[--n] = '\0';
	return s;
}

/* Parse one line, which is trimmed and modifiable.  fresh[i]: option i is not set on the command line. */
static int ini_line(struct opts *o, char *s, const char *section, const bool *fresh, struct why *why)
{
	size_t n = strlen(s);
	if (!n || *s == '#' || *s == ';')
		return 0;
	if (*s == '[') {
		if (s[n - 1] != ']')
			return err_why(why, -EINVAL, "a section needs a closing bracket");
		s[n - 1] = '\0';
		if (strcmp(trim(s + 1), section) != 0)
			return err_why(why, -EINVAL, "unknown section [%.100s], only [%s] is known",
				       trim(s + 1), section);
		return 0;
	}
	char *eq = strchr(s, '=');
	if (!eq)
		return err_why(why, -EINVAL, "\"%.100s\" is not of the form name = value", s);
	*eq = '\0';
	char *name = trim(s), *text = trim(eq + 1);
	n = strlen(text);
	if (n >= 2 && *text == '"' && text[n - 1] == '"') {
		text[n - 1] = '\0';
		text++;
	}
	struct opt_value *v = find(o, name, strlen(name));
	if (!v || strcmp(name, "config") == 0)
		return unknown_name(o, name, "", why);
	/* The command line overrides the file; an overridden value is not checked. */
	return fresh[v - o->values] ? value_set(v, text, name, why) : 0;
}

int opts_ini(struct opts *o, const char *text, size_t n, const char *section, struct why *why)
{
	if (memchr(text, '\0', n))
		return err_why(why, -EINVAL, "not a text file");
	char *copy = xmalloc(n + 1);
	memcpy(copy, text, n);
	copy[n] = '\0';
	bool *fresh = xmalloc(o->n_values + 1);
	for (size_t i = 0; i < o->n_values; i++)
		fresh[i] = o->values[i].n_texts == 0;
	int all = 0, line = 0;
	struct why one;
	char *rest = copy;
	texts_clear(&o->refused, &o->n_refused);
	while (rest) {
		char *s = strsep(&rest, "\n");
		line++;
		int rc = ini_line(o, trim(s), section, fresh, &one);
		if (rc)
			err_prefix(&one, rc, "line %d", line);
		refuse(o, &all, rc, one.text);
	}
	free(fresh);
	free(copy);
	return join_refused(o, all, why);
}

int opts_ini_file(struct opts *o, const char *path, const char *section, struct why *why)
{
	char *text;
	size_t n;
	int rc = file_read(path, ini_bytes_max, &text, &n, why);
	if (rc)
		return rc;
	rc = opts_ini(o, text, n, section, why);
	free(text);
	return rc ? err_prefix(why, rc, "%s", path) : 0;
}

void opts_help(const struct opts *o, FILE *f)
{
	int width = 0;
	for (int pass = 0; pass < 2; pass++) {
		for (size_t i = 0; i < o->n_values; i++) {
			const struct opt *s = o->values[i].spec;
			if (!s->help || s->kind == OPT_UNBUILT)
				continue;
			char left[80];
			int n = snprintf(left, sizeof left, "%c%c%c --%s%s%s", s->letter ? '-' : ' ',
					 s->letter ? s->letter : ' ', s->letter ? ',' : ' ', s->name,
					 s->arg ? " " : "", s->arg ? s->arg : "");
			if (pass == 0) {
				width = n > width ? n : width;
				continue;
			}
			fprintf(f, "  %-*s  %s", width, left, s->help);
			if (s->def || s->unset)
				fprintf(f, " (default %s%s%s)", s->def ? s->def : "",
					s->def && s->unset ? ", " : "", s->unset ? s->unset : "");
			fputc('\n', f);
		}
	}
}

struct opt_value *opts_value(const struct opts *o, const char *name)
{
	struct opt_value *v = find(o, name, strlen(name));
	assert(v);
	return v;
}

bool opts_has(const struct opts *o, const char *name)
{
	return opts_value(o, name)->n_texts > 0;
}

bool opts_flag(const struct opts *o, const char *name)
{
	return opts_has(o, name) && opts_value(o, name)->n;
}

/* Return the value of the row's default, which is in its range; zeroes if it has none. */
static struct opt_value default_of(const struct opt_value *v)
{
	struct opt_value d = {.spec = v->spec, .lo = v->lo, .hi = v->hi};
	if (v->spec->def) {
		int rc = value_set(&d, v->spec->def, v->spec->name, NULL);
		assert(!rc);
		value_clear(&d);
	}
	return d;
}

const char *opts_text(const struct opts *o, const char *name)
{
	const struct opt_value *v = opts_value(o, name);
	return v->n_texts ? v->texts[v->n_texts - 1] : v->spec->def;
}

int64_t opts_int(const struct opts *o, const char *name)
{
	const struct opt_value *v = opts_value(o, name);
	return v->n_texts ? v->n : default_of(v).n;
}

double opts_number(const struct opts *o, const char *name)
{
	const struct opt_value *v = opts_value(o, name);
	return v->n_texts ? v->x : default_of(v).x;
}

/* Return whether the option was given.  Only for rows without a default. */
static bool given(const struct opts *o, const char *name)
{
	assert(!opts_value(o, name)->spec->def);
	return opts_has(o, name);
}

const char *opts_text_or(const struct opts *o, const char *name, const char *otherwise)
{
	return given(o, name) ? opts_text(o, name) : otherwise;
}

int64_t opts_int_or(const struct opts *o, const char *name, int64_t otherwise)
{
	return given(o, name) ? opts_int(o, name) : otherwise;
}

double opts_number_or(const struct opts *o, const char *name, double otherwise)
{
	return given(o, name) ? opts_number(o, name) : otherwise;
}

/* Copy the next item of a comma-separated list; false at the end of the list. */
static bool next_part(const char **s, char *part, size_t n)
{
	if (!*s)
		return false;
	size_t k = strcspn(*s, ",");
	snprintf(part, n, "%.*s", (int)(k < n ? k : n), *s);
	*s = (*s)[k] ? *s + k + 1 : NULL;
	return true;
}

static bool device_valid(const char *s)
{
	static const char *const kinds[] = {"cpu", "cuda"};
	for (int i = 0; i < 2; i++) {
		size_t n = strlen(kinds[i]);
		int64_t number;
		if (strncmp(s, kinds[i], n) != 0)
			continue;
		if (!s[n])
			return true;
		/* Check for digits first: strtoll would also accept blanks and signs. */
		return s[n] == ':' && strspn(s + n + 1, "0123456789") == strlen(s + n + 1) &&
		       parse_int(s + n + 1, 0, 1023, &number) == 0;
	}
	return false;
}

int devices_parse(const char *text, struct device_name *out, size_t *n, struct why *why)
{
	char part[64];
	*n = 0;
	while (next_part(&text, part, sizeof part)) {
		if (!device_valid(part))
			return err_why(why, -EINVAL,
				       "\"%s\" is not a device; write cpu, cpu:0 (NUMA node) or cuda:0",
				       part);
		if (*n == DEVICES_MAX)
			return err_why(why, -EINVAL, "more than %d devices", DEVICES_MAX);
		snprintf(out[(*n)++].name, sizeof out->name, "%.31s", strcmp(part, "cuda") ? part : "cuda:0");
	}
	return 0;
}

int ints_parse(const char *text, int64_t lo, int64_t hi, int64_t *out, size_t max, size_t *n, struct why *why)
{
	char part[64];
	*n = 0;
	while (next_part(&text, part, sizeof part)) {
		if (*n == max)
			return err_why(why, -EINVAL, "more than %zu numbers", max);
		if (parse_int(part, lo, hi, &out[*n]))
			return err_why(why, -EINVAL, "\"%s\" must be an integer from %lld to %lld", part,
				       (long long)lo, (long long)hi);
		(*n)++;
	}
	return 0;
}

/* Return the number of letters to insert, delete, replace, or swap with a neighbour to turn a into b (optimal
 * string alignment).  Both must be shorter than NAME_MAX_BYTES. */
static int distance(const char *a, const char *b)
{
	int d[3][NAME_MAX_BYTES + 1]; /* rows i - 2, i - 1 and i of the table, indexed by i % 3 */
	int na = (int)strlen(a), nb = (int)strlen(b);
	for (int j = 0; j <= nb; j++)
		d[0][j] = j;
	for (int i = 1; i <= na; i++) {
		int *row = d[i % 3];
		const int *above = d[(i + 2) % 3], *above2 = d[(i + 1) % 3];
		row[0] = i;
		for (int j = 1; j <= nb; j++) {
			int best = above[j - 1] + (a[i - 1] != b[j - 1]);
			best = above[j] + 1 < best ? above[j] + 1 : best;
			best = row[j - 1] + 1 < best ? row[j - 1] + 1 : best;
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
				best = above2[j - 2] + 1 < best ? above2[j - 2] + 1 : best;
			row[j] = best;
		}
	}
	return d[na % 3][nb];
}

const char *nearest_name(const char *typed, const char *const *names, size_t n)
{
	size_t len = strlen(typed);
	/* Up to one wrong letter in three counts as a misspelling. */
	int best = (int)len / 3 + 1;
	const char *near = NULL;
	if (!len || len >= NAME_MAX_BYTES)
		return NULL;
	for (size_t i = 0; i < n; i++) {
		if (strlen(names[i]) >= NAME_MAX_BYTES)
			continue;
		int d = strncmp(names[i], typed, len) == 0 ? 0 : distance(typed, names[i]);
		if (d < best) {
			best = d;
			near = names[i];
		}
	}
	return near;
}
