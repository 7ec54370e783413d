#include "base/options.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/file.h"

#include <assert.h>
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A larger configuration file is a mistake. */
static const size_t ini_bytes_max = 1 << 20;
/* A longer word is not a misspelling worth a suggestion. */
enum { NAME_MAX_BYTES = 64 };

void opts_add(struct opts *o, const struct opt *table, size_t n)
{
	o->values = xrealloc(o->values, o->n_values + n, sizeof *o->values);
	for (size_t i = 0; i < n; i++) {
		/* One name, one meaning: the second of the same name would never be found. */
		for (size_t k = 0; k < o->n_values; k++)
			assert(strcmp(o->values[k].spec->name, table[i].name) != 0);
		o->values[o->n_values++] = (struct opt_value){.spec = &table[i]};
	}
}

void opts_alias(struct opts *o, const struct opt_alias *table, size_t n)
{
	o->aliases = table;
	o->n_aliases = n;
}

static void value_clear(struct opt_value *v)
{
	for (size_t i = 0; i < v->n_texts; i++)
		free(v->texts[i]);
	free(v->texts);
	v->texts = NULL;
	v->n_texts = 0;
}

void opts_fini(struct opts *o)
{
	for (size_t i = 0; i < o->n_values; i++)
		value_clear(&o->values[i]);
	for (size_t i = 0; i < o->n_words; i++)
		free(o->words[i]);
	free(o->values);
	free(o->words);
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

int size_parse(const char *text, int64_t *bytes, char *why, size_t why_n)
{
	static const char units[] = "KMGT";
	char *end;
	/* strtod would take "inf", "nan" and "0x10" too. */
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
		return err_why(why, why_n, -EINVAL, "\"%s\" is more bytes than any machine has", text);
	*bytes = (int64_t)x;
	return 0;
bad:
	return err_why(why, why_n, -EINVAL, "\"%s\" is not a size; write bytes, or 512M, 4G", text);
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

/* text NULL: a flag without a value.  shown: how the option was named there. */
static int value_set(struct opt_value *v, const char *text, const char *shown, char *why, size_t why_n)
{
	const struct opt *s = v->spec;
	switch (s->kind) {
	case OPT_UNBUILT:
		return err_why(why, why_n, -ENOSYS, "%s is not built yet", shown);
	case OPT_FLAG:
		v->n = 1;
		if (text && parse_flag(text, &v->n))
			return err_why(why, why_n, -EINVAL, "%s is \"%.100s\", must be true or false", shown,
				       text);
		text = text ? text : "true";
		break;
	case OPT_INT:
		if (parse_int(text, s->lo, s->hi, &v->n))
			return err_why(why, why_n, -EINVAL,
				       "%s is \"%.100s\", must be an integer from %lld to %lld", shown, text,
				       (long long)s->lo, (long long)s->hi);
		break;
	case OPT_NUMBER: {
		char *end;
		const double x = strtod(text, &end);
		if (end == text || *end || !isfinite(x))
			return err_why(why, why_n, -EINVAL, "%s is \"%.100s\", must be a number", shown,
				       text);
		v->x = x;
		break;
	}
	case OPT_SIZE:
		if (size_parse(text, &v->n, why, why_n))
			return err_prefix(why, why_n, -EINVAL, "%s", shown);
		break;
	case OPT_TEXT:
	case OPT_LIST:
		break;
	}
	if (s->kind != OPT_LIST)
		value_clear(v);
	v->texts = xrealloc(v->texts, v->n_texts + 1, sizeof *v->texts);
	v->texts[v->n_texts++] = xstrdup(text);
	return 0;
}

/* name[0..n) */
static struct opt_value *find(const struct opts *o, const char *name, size_t n)
{
	for (size_t i = 0; i < o->n_values; i++)
		if (strncmp(o->values[i].spec->name, name, n) == 0 && !o->values[i].spec->name[n])
			return &o->values[i];
	return NULL;
}

/* The row of another program's option, typed[0..n) with its dashes; NULL: none, or none for these tables. */
static const struct opt_alias *find_alias(const struct opts *o, const char *typed, size_t n)
{
	for (size_t i = 0; i < o->n_aliases; i++) {
		const struct opt_alias *a = &o->aliases[i];
		if (strncmp(a->other, typed, n) == 0 && !a->other[n] &&
		    (!a->name || find(o, a->name, strlen(a->name))))
			return a;
	}
	return NULL;
}

/* typed: without dashes, which are how it was written there. */
static int unknown_name(const struct opts *o, const char *typed, const char *dashes, char *why, size_t why_n)
{
	const char **names = xmalloc((o->n_values + 1) * sizeof *names);
	for (size_t i = 0; i < o->n_values; i++)
		names[i] = o->values[i].spec->name;
	const char *near = nearest_name(typed, names, o->n_values);
	free(names);
	char *dashed = xasprintf("--%s", typed);
	const struct opt_alias *alias = find_alias(o, dashed, strlen(dashed));
	free(dashed);
	if (alias && alias->hint)
		return err_why(why, why_n, -EINVAL, "unknown option %s%.100s: %s", dashes, typed,
			       alias->hint);
	near = alias ? alias->name : near;
	if (near)
		return err_why(why, why_n, -EINVAL, "unknown option %s%.100s; did you mean %s%s?", dashes,
			       typed, dashes, near);
	return err_why(why, why_n, -EINVAL, "unknown option %s%.100s", dashes, typed);
}

/* Sets v from `text`, or from the next argument where that is NULL and the option needs a value. */
static int take_value(struct opt_value *v, const char *shown, const char *text, int *i, int argc, char **argv,
		      char *why, size_t why_n)
{
	if (!text && v->spec->kind != OPT_FLAG && v->spec->kind != OPT_UNBUILT) {
		if (*i + 1 >= argc)
			return err_why(why, why_n, -EINVAL, "%s needs a value (%s)", shown, v->spec->arg);
		text = argv[++*i];
	}
	return value_set(v, text, shown, why, why_n);
}

static int parse_long(struct opts *o, const char *arg, int *i, int argc, char **argv, char *why, size_t why_n)
{
	const char *eq = strchr(arg, '=');
	const size_t n = eq ? (size_t)(eq - arg) : strlen(arg);
	struct opt_value *v = find(o, arg + 2, n - 2);
	const struct opt_alias *alias = v ? NULL : find_alias(o, arg, n);
	char *typed = xasprintf("%.*s", (int)(n < 200 ? n : 200), arg);
	if (alias && alias->name)
		v = find(o, alias->name, strlen(alias->name));
	int rc = v ? take_value(v, typed, eq ? eq + 1 : NULL, i, argc, argv, why, why_n)
		   : unknown_name(o, typed + 2, "--", why, why_n);
	free(typed);
	return rc;
}

static int parse_short(struct opts *o, const char *arg, int *i, int argc, char **argv, char *why,
		       size_t why_n)
{
	struct opt_value *v = NULL;
	for (size_t k = 0; k < o->n_values && !v; k++)
		if (o->values[k].spec->letter && o->values[k].spec->letter == arg[1])
			v = &o->values[k];
	/* "-ngl" is not the letter n with a value; a letter of ours is no other program's. */
	const struct opt_alias *alias = v && !arg[2] ? NULL : find_alias(o, arg, strcspn(arg, "="));
	if (alias && !alias->name)
		return err_why(why, why_n, -EINVAL, "unknown option %s: %s", alias->other, alias->hint);
	if (alias) {
		const char *eq = strchr(arg, '=');
		v = find(o, alias->name, strlen(alias->name));
		return take_value(v, alias->other, eq ? eq + 1 : NULL, i, argc, argv, why, why_n);
	}
	if (!v)
		return err_why(why, why_n, -EINVAL,
			       "unknown option %.100s (a word that begins with a dash goes behind --)", arg);
	const char *text = arg[2] ? arg + 2 : NULL;
	if (v->spec->kind == OPT_FLAG && text)
		return err_why(why, why_n, -EINVAL, "option -%c takes no value", arg[1]);
	char *shown = xasprintf("--%s", v->spec->name);
	int rc = take_value(v, shown, text, i, argc, argv, why, why_n);
	free(shown);
	return rc;
}

int opts_parse(struct opts *o, int argc, char **argv, char *why, size_t why_n)
{
	bool only_words = false;
	for (int i = 1; i < argc; i++) {
		const char *a = argv[i];
		int rc = 0;
		if (only_words || a[0] != '-' || !a[1]) {
			o->words = xrealloc(o->words, o->n_words + 1, sizeof *o->words);
			o->words[o->n_words++] = xstrdup(a);
		} else if (strcmp(a, "--") == 0) {
			only_words = true;
		} else if (strcmp(a, "--help") == 0 || strcmp(a, "-h") == 0) {
			return OPTS_HELP;
		} else if (a[1] == '-') {
			rc = parse_long(o, a, &i, argc, argv, why, why_n);
		} else {
			rc = parse_short(o, a, &i, argc, argv, why, why_n);
		}
		if (rc)
			return rc;
	}
	return 0;
}

int opts_set(struct opts *o, const char *name, const char *text, char *why, size_t why_n)
{
	struct opt_value *v = find(o, name, strlen(name));
	if (!v)
		return unknown_name(o, name, "", why, why_n);
	if (!text && v->spec->kind != OPT_FLAG && v->spec->kind != OPT_UNBUILT)
		return err_why(why, why_n, -EINVAL, "%s needs a value (%s)", name, v->spec->arg);
	return value_set(v, text, name, why, why_n);
}

void opts_unset(struct opts *o, const char *name)
{
	value_clear(opts_value(o, name));
}

/* "MAX_SEQS" (up to its '=') is the name "max-seqs". */
static bool is_variable(const char *variable, const char *name)
{
	for (; *name; name++, variable++)
		if (*variable != (*name == '-'                   ? '_'
				  : *name >= 'a' && *name <= 'z' ? *name - 'a' + 'A'
								 : *name))
			return false;
	return *variable == '=';
}

/* A variable named like another program's option is answered as that is on the command line.  text: its
 * value; Kubernetes sets NAME_PORT=tcp://... for a service called NAME. */
static int foreign_variable(const struct opts *o, const char *prefix, const char *variable, const char *shown,
			    const char *text, char *why, size_t why_n)
{
	for (size_t i = 0; i < o->n_aliases; i++) {
		const struct opt_alias *a = &o->aliases[i];
		char own[64];
		if (strncmp(a->other, "--", 2) != 0 || !is_variable(variable, a->other + 2) ||
		    (a->name && !find(o, a->name, strlen(a->name))) || strstr(text, "://"))
			continue;
		if (!a->name)
			return err_why(why, why_n, -EINVAL, "unknown option %s: %s", shown, a->hint);
		snprintf(own, sizeof own, "%s", a->name);
		for (char *p = own; *p; p++)
			*p = (char)(*p == '-' ? '_' : toupper((unsigned char)*p));
		return err_why(why, why_n, -EINVAL, "unknown option %s; did you mean %s%s?", shown, prefix,
			       own);
	}
	return 0;
}

int opts_env(struct opts *o, const char *prefix, char *const *env, char *why, size_t why_n)
{
	const size_t n_prefix = strlen(prefix);
	for (; *env; env++) {
		const char *text = strchr(*env, '=');
		if (!text || !text[1] || strncmp(*env, prefix, n_prefix) != 0)
			continue;
		char *shown = xasprintf("%.*s", (int)(text - *env), *env);
		struct opt_value *v = NULL;
		for (size_t i = 0; !v && i < o->n_values; i++)
			if (is_variable(*env + n_prefix, o->values[i].spec->name))
				v = &o->values[i];
		int rc = !v ? foreign_variable(o, prefix, *env + n_prefix, shown, text + 1, why, why_n)
			 : v->n_texts ? 0
				      : value_set(v, text + 1, shown, why, why_n);
		free(shown);
		if (rc)
			return rc;
	}
	return 0;
}

static char *trim(char *s)
{
	s += strspn(s, " \t\r");
	size_t n = strlen(s);
	while (n && strchr(" \t\r", s[n - 1]))
		s[--n] = '\0';
	return s;
}

/* One line, trimmed and modifiable.  fresh[i]: the command line does not set option i. */
static int ini_line(struct opts *o, char *s, const char *section, const bool *fresh, char *why, size_t why_n)
{
	size_t n = strlen(s);
	if (!n || *s == '#' || *s == ';')
		return 0;
	if (*s == '[') {
		if (s[n - 1] != ']')
			return err_why(why, why_n, -EINVAL, "a section needs a closing bracket");
		s[n - 1] = '\0';
		if (strcmp(trim(s + 1), section) != 0)
			return err_why(why, why_n, -EINVAL, "unknown section [%.100s], only [%s] is known",
				       trim(s + 1), section);
		return 0;
	}
	char *eq = strchr(s, '=');
	if (!eq)
		return err_why(why, why_n, -EINVAL, "\"%.100s\" is not of the form name = value", s);
	*eq = '\0';
	char *name = trim(s), *text = trim(eq + 1);
	n = strlen(text);
	if (n >= 2 && *text == '"' && text[n - 1] == '"') {
		text[n - 1] = '\0';
		text++;
	}
	struct opt_value *v = find(o, name, strlen(name));
	if (!v || strcmp(name, "config") == 0)
		return unknown_name(o, name, "", why, why_n);
	/* The command line overrides the file; the value there is not checked. */
	return fresh[v - o->values] ? value_set(v, text, name, why, why_n) : 0;
}

int opts_ini(struct opts *o, const char *text, size_t n, const char *section, char *why, size_t why_n)
{
	if (memchr(text, '\0', n))
		return err_why(why, why_n, -EINVAL, "not a text file");
	char *copy = xmalloc(n + 1);
	memcpy(copy, text, n);
	copy[n] = '\0';
	bool *fresh = xmalloc(o->n_values + 1);
	for (size_t i = 0; i < o->n_values; i++)
		fresh[i] = o->values[i].n_texts == 0;
	int rc = 0, line = 0;
	char *rest = copy;
	while (!rc && rest) {
		char *s = strsep(&rest, "\n");
		line++;
		rc = ini_line(o, trim(s), section, fresh, why, why_n);
	}
	if (rc)
		err_prefix(why, why_n, rc, "line %d", line);
	free(fresh);
	free(copy);
	return rc;
}

int opts_ini_file(struct opts *o, const char *path, const char *section, char *why, size_t why_n)
{
	char *text;
	size_t n;
	int rc = file_read(path, ini_bytes_max, &text, &n, why, why_n);
	if (rc)
		return rc;
	rc = opts_ini(o, text, n, section, why, why_n);
	free(text);
	return rc ? err_prefix(why, why_n, rc, "%s", path) : 0;
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
			if (pass == 0)
				width = n > width ? n : width;
			else
				fprintf(f, "  %-*s  %s\n", width, left, s->help);
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

const char *opts_text(const struct opts *o, const char *name, const char *otherwise)
{
	const struct opt_value *v = opts_value(o, name);
	return v->n_texts ? v->texts[v->n_texts - 1] : otherwise;
}

int64_t opts_int(const struct opts *o, const char *name, int64_t otherwise)
{
	return opts_has(o, name) ? opts_value(o, name)->n : otherwise;
}

double opts_number(const struct opts *o, const char *name, double otherwise)
{
	return opts_has(o, name) ? opts_value(o, name)->x : otherwise;
}

/* The next part of a comma-separated list, copied out; false when the list is over. */
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
		/* strtoll would take blanks and signs. */
		return s[n] == ':' && strspn(s + n + 1, "0123456789") == strlen(s + n + 1) &&
		       parse_int(s + n + 1, 0, 1023, &number) == 0;
	}
	return false;
}

int devices_parse(const char *text, struct device_name *out, size_t *n, char *why, size_t why_n)
{
	char part[64];
	*n = 0;
	while (next_part(&text, part, sizeof part)) {
		if (!device_valid(part))
			return err_why(why, why_n, -EINVAL,
				       "\"%s\" is not a device; write cpu, cpu:0 (NUMA node) or cuda:0",
				       part);
		if (*n == DEVICES_MAX)
			return err_why(why, why_n, -EINVAL, "more than %d devices", DEVICES_MAX);
		snprintf(out[(*n)++].name, sizeof out->name, "%.31s", strcmp(part, "cuda") ? part : "cuda:0");
	}
	return 0;
}

int ints_parse(const char *text, int64_t lo, int64_t hi, int64_t *out, size_t max, size_t *n, char *why,
	       size_t why_n)
{
	char part[64];
	*n = 0;
	while (next_part(&text, part, sizeof part)) {
		if (*n == max)
			return err_why(why, why_n, -EINVAL, "more than %zu numbers", max);
		if (parse_int(part, lo, hi, &out[*n]))
			return err_why(why, why_n, -EINVAL, "\"%s\" must be an integer from %lld to %lld",
				       part, (long long)lo, (long long)hi);
		(*n)++;
	}
	return 0;
}

/* How many letters must be inserted, deleted, replaced, or swapped with their neighbour (optimal
 * string alignment); both shorter than NAME_MAX_BYTES. */
static int distance(const char *a, const char *b)
{
	int d[3][NAME_MAX_BYTES + 1]; /* rows i - 2, i - 1 and i of the table, by i % 3 */
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
	/* Up to one wrong letter in three is a misspelling. */
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
