/* Chat templates render like jinja2 (golden/make_jinja_golden.py), mark the input in the output, and keep to
 * limits. */
#include "base/alloc.h"
#include "base/buf.h"
#include "base/file.h"
#include "base/json.h"
#include "controller/jinja/jinja.h"
#include "tests/testdata.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

TestSuite(jinja, .timeout = 60);

enum { VARS = 64 };

/* A rendering, or the reason for its failure. */
struct done {
	int rc;
	struct jinja_result r;
	struct why why;
};

static void done_fini(struct done *d)
{
	jinja_result_fini(&d->r);
}

/* Render with all variables of the context marked as input. */
static struct done render(const char *template, size_t n, unsigned flags, const json_t *context, int64_t now,
			  const struct jinja_limits *limits)
{
	struct done d = {0};
	struct jinja_var vars[VARS];
	struct jinja *t = NULL;
	size_t n_vars = 0;
	const char *name;
	json_t *value;
	json_object_foreach((json_t *)context, name, value) vars[n_vars++] =
		(struct jinja_var){.name = name, .value = value, .input = true};
	d.rc = jinja_parse(template, n, flags, &t, &d.why);
	if (d.rc == 0)
		d.rc = jinja_render(t, vars, n_vars, limits, now * 1000000, &d.r, &d.why);
	jinja_free(t);
	return d;
}

static struct done render_text(const char *template, const json_t *context)
{
	return render(template, strlen(template), JINJA_CHAT, context, 0, NULL);
}

static json_t *read_json(const char *path)
{
	json_t *j;
	struct why why;
	cr_assert_eq(json_read(path, 16 << 20, &j, &why), 0, "%s", why.text);
	return j;
}

static void expect_case(const char *name, const json_t *template, unsigned flags, const json_t *context,
			int64_t now, const json_t *text)
{
	struct done d =
		render(json_string_value(template), json_string_length(template), flags, context, now, NULL);
	if (json_is_null(text)) {
		cr_expect_lt(d.rc, 0, "%s: gave\n%s\nwhere jinja2 refuses", name, d.r.text.p);
		cr_expect(strncmp(d.why.text, "line ", 5) == 0, "%s: %s", name, d.why.text);
	} else if (d.rc) {
		cr_expect(false, "%s: %s", name, d.why.text);
	} else {
		cr_expect_str_eq(d.r.text.p, json_string_value(text), "%s:\n--- got\n%s\n--- expected\n%s",
				 name, d.r.text.p, json_string_value(text));
	}
	done_fini(&d);
}

static void use_utc(void)
{
	setenv("TZ", "UTC", 1);
	tzset();
}

Test(jinja, renders_like_jinja2)
{
	json_t *golden = read_json(repofile("tests/golden/jinja.json")), *c;
	const json_t *context = json_object_get(golden, "context");
	int64_t now = json_integer_value(json_object_get(golden, "now"));
	size_t i;
	use_utc();
	json_array_foreach(json_object_get(golden, "cases"), i, c)
		expect_case(json_string_value(json_object_get(c, "name")), json_object_get(c, "template"),
			    JINJA_CHAT, context, now, json_object_get(c, "text"));
	cr_assert_gt(i, 100);
	json_decref(golden);
}

/* ---- templates of models and of other implementations ---- */

Test(jinja, templates_of_models_render_like_transformers)
{
	const char *path = testdata("chat/hfjs-jinja-e2e.json"), *group, *name;
	json_t *groups, *cases, *c;
	if (!path)
		cr_skip_test("the templates are not there");
	use_utc();
	json_t *all = groups = read_json(path);
	json_object_foreach(groups, group, cases)
	{
		json_object_foreach(cases, name, c)
		{
			/* The expected text is from an implementation that prints a list as JSON. Python and
			 * transformers do not for this template ({{ tools }}). */
			if (strcmp(name, "MadeAgents/Hammer2.1") == 0)
				continue;
			expect_case(name, json_object_get(c, "chat_template"), JINJA_CHAT,
				    json_object_get(c, "data"), 1752148800, json_object_get(c, "target"));
		}
	}
	json_decref(all);
}

/* Return why a snippet of another implementation is skipped (no model's template can reach it), or NULL. */
static const char *left_out(const char *name, const json_t *c)
{
	char *text = json_dumps(c, 0);
	bool function = strstr(text, "__function__");
	free(text);
	if (function)
		return "the context holds a function, which no request can";
	if (strcmp(name, "REPLACE") == 0)
		return "str.replace(count=1): Python 3.13 takes the keyword, earlier ones do not";
	if (strncmp(name, "TOJSON_ENSURE_ASCII", 19) == 0)
		return "the context has a key with a NUL in it, which no request can";
	return NULL;
}

Test(jinja, snippets_render_as_written_or_like_python)
{
	const char *path = testdata("chat/hfjs-jinja-syntax.json"), *name;
	size_t i, n = 0;
	json_t *c;
	if (!path)
		cr_skip_test("the templates are not there");
	json_t *golden = read_json(repofile("tests/golden/jinja.json"));
	struct why why;
	char *text;
	size_t bytes;
	json_t *all = NULL;
	cr_assert_eq(file_read(path, 1 << 20, &text, &bytes, &why), 0, "%s", why.text);
	/* jansson refuses keys with a NUL. The cases that have them are skipped, but the file must parse. */
	for (char *at; (at = strstr(text, "\"\\u0000\\t\\n\\\"'\\\\\": \"")) != NULL;)
		memmove(at + 1, at + 7, strlen(at + 7) + 1);
	cr_assert_eq(json_parse(text, strlen(text), &all, &why), 0, "%s", why.text);
	free(text);
	json_object_foreach(json_object_get(all, "syntax"), name, c)
	{
		const json_t *python = json_object_get(json_object_get(golden, "python"), name);
		if (left_out(name, c))
			continue;
		expect_case(name, json_object_get(c, "template"), 0, json_object_get(c, "context"), 0,
			    python ? python : json_object_get(c, "expected"));
		n++;
	}
	json_array_foreach(json_object_get(all, "whitespace"), i, c)
	{
		const json_t *options = json_object_get(c, "options");
		unsigned flags =
			(json_is_true(json_object_get(options, "trim_blocks")) ? JINJA_TRIM_BLOCKS : 0) |
			(json_is_true(json_object_get(options, "lstrip_blocks")) ? JINJA_LSTRIP_BLOCKS : 0);
		expect_case("white space", json_object_get(c, "template"), flags, json_object_get(c, "data"),
			    0, json_object_get(c, "target"));
	}
	cr_assert_gt(n, 140);
	json_decref(all);
	json_decref(golden);
}

/* ---- input spans ---- */

/* Return the result with the input in braces. */
static char *marked(const char *template, const json_t *context)
{
	struct done d = render_text(template, context);
	struct buf b = {0};
	size_t at = 0;
	cr_assert_eq(d.rc, 0, "%s: %s", template, d.why.text);
	for (size_t i = 0; i < d.r.n_input; i++) {
		const struct text_span *s = &d.r.input[i];
		cr_assert(s->start >= at && s->end > s->start && s->end <= d.r.text.len, "%s: span %zu",
			  template, i);
		buf_put(&b, d.r.text.p + at, s->start - at);
		buf_putc(&b, '<');
		buf_put(&b, d.r.text.p + s->start, s->end - s->start);
		buf_putc(&b, '>');
		at = s->end;
	}
	buf_put(&b, d.r.text.p + at, d.r.text.len - at);
	done_fini(&d);
	return buf_take(&b);
}

Test(jinja, input_stays_marked_through_every_operation)
{
	static const struct {
		const char *template, *expect;
	} cases[] = {
		{"{{ a }}", "<Ab c>"},
		{"{{ 'x' + a + 'y' + a }}", "x<Ab c>y<Ab c>"},
		{"{{ a + a }}{{ a }}", "<Ab cAb cAb c>"},
		{"{{ 'x' ~ a ~ 1 }}", "x<Ab c>1"},
		{"{{ ('x' + a + 'y')[1:4] }}", "<Ab >"},
		{"{{ ('x' + a + 'y')[::-1] }}", "y<c bA>x"},
		{"{{ ('x' + a)[0] }}{{ ('x' + a)[1] }}", "x<A>"},
		{"{{ (' ' + sp + ' ').strip() }}", "<two  spaces>"},
		{"{{ sp | trim | upper }}", "<TWO  SPACES>"},
		{"{{ ('x' + a).upper() }}{{ ('x' + a) | title }}", "X<AB C>X<ab C>"},
		{"{{ a.replace('b', '-') }}", "<A>-< c>"},
		{"{{ 'xyz'.replace('y', a) }}", "x<Ab c>z"},
		{"{{ a.split(' ') | join('+') }}", "<Ab>+<c>"},
		{"{{ ['x', a] | join(a) }}", "x<Ab cAb c>"},
		{"{{ a | tojson }}", "\"<Ab c>\""},
		{"{{ quote | tojson }}", "\"<a\\\"\\n\\u0007é>\""},
		{"{{ {'k': a} | tojson }}{{ [a] | string }}", "{\"k\": \"<Ab c>\"}['<Ab c>']"},
		{"{{ d | tojson }}{{ d }}", "{\"<k>\": \"<v>\"}{'<k>': '<v>'}"},
		{"{{ d | tojson(indent=1) }}", "{\n \"<k>\": \"<v>\"\n}"},
		{"{% for k, v in d.items() %}{{ k }}:{{ v }}{% endfor %}", "<k>:<v>"},
		{"{{ '%s|%5s' % (a, 'x') }}{{ '{}-{:>6}'.format('x', a) }}", "<Ab c>|    xx-  <Ab c>"},
		{"{{ a % () }}{{ '-' * 2 }}{{ a * 2 }}", "<Ab c>--<Ab cAb c>"},
		{"{% set x %}[{{ a }}]{% endset %}{{ x }}{{ x | length }}", "[<Ab c>]6"},
		{"{% macro m(x) %}({{ x }}){% endmacro %}{{ m(a) }}{{ m('t') }}", "(<Ab c>)(t)"},
		{"{% filter lower %}T{{ a }}{% endfilter %}", "t<ab c>"},
		{"{{ ('x\\n' + a) | indent(2, true) }}", "  x\n  <Ab c>"},
		{"{{ a if a else 'x' }}{{ a or 'x' }}{{ (none or a) }}", "<Ab cAb cAb c>"},
		{"{{ ns.x }}{% set ns = namespace(x='') %}{% for i in range(3) %}{% set ns.x = ns.x + '-' + "
		 "a %}{% endfor "
		 "%}{{ ns.x }}",
		 "-<Ab c>-<Ab c>-<Ab c>"},
		{"{{ list | first }}{{ list[1] }}{{ list | last | capitalize }}", "<pqR>"},
		{"{{ list | map('upper') | join(',') }}{{ list | sort | reverse | join }}", "<P>,<Q>,<Rrqp>"},
		{"{{ a.partition('b')[2] }}{{ 'q'.join(list) }}{{ 'abc'.center(7, a[0]) }}",
		 "< cp>q<q>q<rAA>abc<AA>"},
		{"{{ ('<b>' ~ a) | e }}{{ ('x' ~ a) | truncate(4, true, '', 0) }}", "&lt;b&gt;<Ab c>x<Ab >"},
		{"{{ n }}{{ true }}{{ 'plain' }}", "5Trueplain"},
	};
	json_t *context = json_pack("{s:s, s:s, s:s, s:{s:s}, s:[s,s,s], s:i, s:{}}", "a", "Ab c", "sp",
				    " two  spaces \n", "quote", "a\"\n\x07é", "d", "k", "v", "list", "p", "q",
				    "r", "n", 5, "ns");
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		char *got = marked(cases[i].template, context);
		cr_expect_str_eq(got, cases[i].expect, "%s:\ngot      %s\nexpected %s", cases[i].template,
				 got, cases[i].expect);
		free(got);
	}
	json_decref(context);
}

Test(jinja, appending_leaves_older_strings_unchanged)
{
	json_t *context = json_pack("{s:s}", "a", "in");
	char *got = marked(
		"{% set p = 'x' + a %}{% set q = p + a %}{% set s = p + 'y' %}{% set t = p + a + 'z' %}"
		"{{ p }}|{{ q }}|{{ s }}|{{ t }}|{{ p[1:] }}|{{ q[2:] }}",
		context);
	cr_expect_str_eq(got, "x<in>|x<inin>|x<in>y|x<inin>z|<in>|<nin>", "%s", got);
	free(got);
	got = marked("{% set l = [1] + [2] %}{% set m = l + [3] %}{% set n = l + [4] %}{{ l }}{{ m }}{{ n }}",
		     context);
	cr_expect_str_eq(got, "[1, 2][1, 2, 3][1, 2, 4]", "%s", got);
	free(got);
	json_decref(context);
}

Test(jinja, known_words_under_their_key_are_not_input)
{
	static const char *const words[] = {"user", NULL};
	json_t *messages = json_pack("[{s:s, s:s}, {s:s, s:s}]", "role", "user", "content", "user", "role",
				     "root", "content", "x");
	struct jinja_var var = {"messages", messages, true, "role", words};
	static const char text[] = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}";
	struct jinja *t;
	struct jinja_result r;
	struct why why;
	cr_assert_eq(jinja_parse(text, sizeof text - 1, JINJA_CHAT, &t, &why), 0, "%s", why.text);
	cr_assert_eq(jinja_render(t, &var, 1, NULL, 0, &r, &why), 0, "%s", why.text);
	cr_expect_str_eq(r.text.p, "<|user|>user<|root|>x");
	cr_assert_eq(r.n_input, 3);
	cr_expect(r.input[0].start == 8 && r.input[1].start == 14 && r.input[2].start == 20);
	jinja_result_fini(&r);
	jinja_free(t);
	json_decref(messages);
}

/* ---- limits ---- */

static void refused(const char *template, int rc, const char *what)
{
	struct jinja_limits small = {.steps = 200000, .memory = 8 << 20, .output = 100000, .depth = 200};
	json_t *context = json_pack("{s:s}", "a", "input");
	struct done d = render(template, strlen(template), JINJA_CHAT, context, 0, &small);
	cr_expect_eq(d.rc, rc, "%s: %d %s", template, d.rc, d.why.text);
	cr_expect(strstr(d.why.text, what) && strncmp(d.why.text, "line ", 5) == 0, "%s: %s", template,
		  d.why.text);
	done_fini(&d);
	json_decref(context);
}

/* The attacks of CVE-2026-55574, CVE-2025-48943, CVE-2026-5760 and CVE-2026-115911: endless loops, texts and
 * numbers. */
Test(jinja, endless_work_is_stopped_with_a_reason)
{
	refused("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", -E2BIG,
		"steps");
	refused("{% for a in range(999) %}{% for b in range(999) %}{{ a * b }}{% endfor %}{% endfor %}",
		-E2BIG, "");
	refused("{% set ns = namespace(s='ab') %}{% for i in range(99) %}{% set ns.s = ns.s ~ ns.s %}{% "
		"endfor %}",
		-E2BIG, "");
	refused("{% set ns = namespace(l=[1]) %}{% for i in range(99) %}{% set ns.l = ns.l + ns.l %}{% "
		"endfor %}",
		-E2BIG, "");
	refused("{{ 'x' * 1000000000000 }}", -E2BIG, "");
	refused("{{ [0] * 1000000000000 }}", -E2BIG, "memory");
	refused("{{ [] * 9 }}{{ 'abc' * 9223372036854775807 }}", -E2BIG, "");
	refused("{{ '%999999999d' % 1 }}", -E2BIG, "width");
	refused("{{ '{:999999999}'.format(1) }}", -E2BIG, "width");
	refused("{{ '%.999f' % 0.5 }}", -E2BIG, "precision");
	refused("{{ 'x'.center(999999999) }}", -E2BIG, "");
	refused("{{ 'a\\tb'.expandtabs(999999999) }}", -E2BIG, "");
	refused("{{ [1] | tojson(indent=999999999) }}", -E2BIG, "indent");
	refused("{{ range(5) | batch(999999999, 'x') | list }}", -E2BIG, "");
	refused("{{ range(5) | slice(999999999) | list }}", -E2BIG, "");
	refused("{% for x in range(9999) %}0123456789012345{% endfor %}", -E2BIG, "100000 bytes");
	refused("{{ 'aaaaaaaaaaaaaaaa'.replace('', 'aaaaaaaaaaaaaaaa' * 9999) }}", -E2BIG, "");
}

Test(jinja, endless_recursion_is_stopped_with_a_reason)
{
	refused("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", -E2BIG, "nested deeper");
	refused("{% macro f(x=f()) %}{% endmacro %}{{ f() }}", -E2BIG, "nested deeper");
	refused("{% macro f(x) %}{{ f(x=f) }}{% endmacro %}{{ f(1) }}", -E2BIG, "nested deeper");
	refused("{% macro f() %}{% call f() %}{{ caller }}{% endcall %}{{ caller() }}{% endmacro %}{{ f() }}",
		-E2BIG, "nested deeper");
	refused("{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}", -E2BIG, "nested deeper");
	refused("{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}", -E2BIG, "nested deeper");
	refused("{% set ns = namespace(l=[]) %}{% for i in range(999) %}{% set ns.l = [ns.l] %}{% endfor "
		"%}{{ ns.l }}",
		-E2BIG, "nested deeper");
	refused("{% set ns = namespace(l=[]) %}{% for i in range(999) %}{% set ns.l = [ns.l] %}{% endfor %}"
		"{{ ns.l | tojson }}",
		-E2BIG, "nested deeper");
	refused("{% set a = namespace(l=[]) %}{% set b = namespace(l=[]) %}{% for i in range(999) %}"
		"{% set a.l = [a.l] %}{% set b.l = [b.l] %}{% endfor %}{{ a.l == b.l }}",
		-E2BIG, "nested deeper");
	refused("{% set a = namespace(l=[1]) %}{% set b = namespace(l=[2]) %}{% for i in range(999) %}"
		"{% set a.l = [a.l] %}{% set b.l = [b.l] %}{% endfor %}{{ a.l < b.l }}",
		-E2BIG, "nested deeper");
}

Test(jinja, recursion_within_the_default_limits_fits_the_stack)
{
	static const char *const templates[] = {
		"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
		"{% macro f() %}{% filter upper %}{% with a = 1 %}{{ [{1: (f() ~ 1) | trim}] }}{% endwith "
		"%}{% endfilter %}"
		"{% endmacro %}{{ f() }}",
		"{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
		"{% set ns = namespace() %}{% set ns.x = [ns] %}{{ ns }}",
	};
	for (size_t i = 0; i < sizeof templates / sizeof templates[0]; i++) {
		struct done d = render_text(templates[i], NULL);
		cr_expect_eq(d.rc, -E2BIG, "%s: %s", templates[i], d.why.text);
		cr_expect(strstr(d.why.text, "nested deeper"), "%s: %s", templates[i], d.why.text);
		done_fini(&d);
	}
}

/* Return before, n times part, middle, n times close, behind. */
static char *repeated(const char *before, const char *part, const char *middle, const char *close,
		      const char *behind, int n)
{
	struct buf b = {0};
	buf_puts(&b, before);
	for (int i = 0; i < n; i++)
		buf_puts(&b, part);
	buf_puts(&b, middle);
	for (int i = 0; i < n; i++)
		buf_puts(&b, close);
	buf_puts(&b, behind);
	return buf_take(&b);
}

Test(jinja, deep_templates_are_refused_by_the_parser)
{
	static const struct {
		const char *before, *part, *middle, *close, *behind;
	} cases[] = {
		{"{{ ", "(", "1", ")", " }}"},
		{"{{ ", "[", "1", "]", " }}"},
		{"{{ ", "{1: ", "1", "} ", " }}"},
		{"{{ ", "not ", "1", "", " }}"},
		{"{{ ", "- ", "1", "", " }}"},
		{"{{ ", "f(", "1", ")", " }}"},
		{"{{ ", "a[", "1", "]", " }}"},
		{"{{ ", "1 if 1 else ", "1", "", " }}"},
		{"{{ 1", "+1", "", "", " }}"},
		{"{{ a", ".b", "", "", " }}"},
		{"{{ a", "|trim", "", "", " }}"},
		{"{{ a", "(1)", "", "", " }}"},
		{"{{ 1", " is odd", "", "", " }}"},
		{"{{ a", " and a", "", "", " }}"},
		{"", "{% if 1 %}", "", "{% endif %}", ""},
		{"", "{% for a in b %}", "", "{% endfor %}", ""},
		{"{% set ", "(", "a", ",)", " = 1 %}"},
	};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		char *text = repeated(cases[i].before, cases[i].part, cases[i].middle, cases[i].close,
				      cases[i].behind, 20000);
		struct jinja *t = NULL;
		struct why why = {""};
		int rc = jinja_parse(text, strlen(text), JINJA_CHAT, &t, &why);
		cr_expect(rc == -E2BIG, "%s: %d %s", cases[i].part, rc, why.text);
		jinja_free(t);
		free(text);
	}
}

Test(jinja, long_flat_templates_are_accepted)
{
	char *text = repeated("", "{{ a }}{% if a %}x{% elif b %}y{% endif %}", "", "", "", 5000);
	json_t *context = json_pack("{s:s}", "a", "i");
	struct done d = render_text(text, context);
	cr_assert_eq(d.rc, 0, "%s", d.why.text);
	cr_assert_eq(d.r.text.len, 10000);
	done_fini(&d);
	free(text);
	json_decref(context);
}

Test(jinja, a_template_that_is_too_long_or_not_utf8_is_refused)
{
	struct why why;
	char *text = repeated("", "0123456789abcdef", "", "", "", 70000);
	struct jinja *t;
	cr_expect_eq(jinja_parse(text, strlen(text), JINJA_CHAT, &t, &why), -E2BIG);
	cr_expect_eq(jinja_parse("a\xff", 2, JINJA_CHAT, &t, &why), -EINVAL);
	cr_expect(strstr(why.text, "byte 1"), "%s", why.text);
	free(text);
}

Test(jinja, empty_arguments_and_sequences_are_handled)
{
	json_t *context = json_pack("{s:[]}", "l");
	char *got = marked(
		"{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m() }}{{ l | select | list }}"
		"{{ l | map('upper') | list }}{{ [] + l }}{{ l * 3 }}{{ '' * 3 }}{{ '' + '' }}{{ l[1:] }}"
		"{{ ''[1:] }}{{ '' | reverse }}{{ l | join }}{{ {} | dictsort }}{{ {} | tojson }}{{ m(*l) }}"
		"{{ ''.join(l) }}{{ ''.replace('a', 'b') }}{{ l | sort }}{{ l | batch(2) | list }}{{ '' | e "
		"}}",
		context);
	cr_expect_str_eq(got, "(){}[][][][][][]{}(){}[][]", "%s", got);
	free(got);
	json_decref(context);
}

Test(jinja, a_template_sees_only_its_variables)
{
	refused("{{ a.__class__.__mro__ }}", -EINVAL, "no attribute");
	refused("{{ open('/etc/passwd') }}", -EINVAL, "'open' is undefined");
	refused("{{ ''.__class__() }}", -EINVAL, "no attribute");
	refused("{{ self.x }}", -EINVAL, "'self' is undefined");
	refused("{% include '/etc/passwd' %}", -EINVAL, "include");
	refused("{% import 'os' as os %}", -EINVAL, "import");
	refused("{{ '{0.__class__.__init__}'.format(a) }}", -EINVAL, "no attribute");
}
