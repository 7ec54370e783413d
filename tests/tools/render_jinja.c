/* render_jinja - renders templates for tests/e2e/http/test_jinja.py, which compares the results with jinja2.
 * stdin: one JSON object per line, {template, context, flags?, now?, input?: [names]}. stdout: one object per
 * line, {text, input: [[start, end], ...]} or {error}. */
#include "base/json.h"
#include "controller/jinja/jinja.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VARS_MAX = 64 };

static bool is_input(const json_t *names, const char *name)
{
	size_t i;
	const json_t *n;
	json_array_foreach(names, i, n) if (strcmp(json_string_value(n), name) == 0) return true;
	return false;
}

static json_t *render(const json_t *job)
{
	const json_t *template = json_object_get(job, "template"), *flags = json_object_get(job, "flags");
	struct jinja_var vars[VARS_MAX];
	struct jinja_result out = {0};
	struct jinja *t = NULL;
	size_t n = 0;
	struct why why = {""};
	const char *name;
	json_t *value;
	json_object_foreach(json_object_get(job, "context"), name, value) if (n < VARS_MAX) vars[n++] =
		(struct jinja_var){
			.name = name, .value = value, .input = is_input(json_object_get(job, "input"), name)};
	int rc = jinja_parse(json_string_value(template), json_string_length(template),
			     flags ? (unsigned)json_integer_value(flags) : JINJA_CHAT, &t, &why);
	if (rc == 0)
		rc = jinja_render(t, vars, n, NULL, json_integer_value(json_object_get(job, "now")) * 1000000,
				  &out, &why);
	jinja_free(t);
	if (rc)
		return json_pack("{s:s}", "error", why.text);
	json_t *spans = json_array();
	for (size_t i = 0; i < out.n_input; i++)
		json_array_append_new(spans, json_pack("[I, I]", (json_int_t)out.input[i].start,
						       (json_int_t)out.input[i].end));
	json_t *reply = json_pack("{s:s%, s:o}", "text", out.text.p, out.text.len, "input", spans);
	jinja_result_fini(&out);
	return reply;
}

int main(void)
{
	char *line = NULL;
	size_t cap = 0;
	ssize_t n;
	while ((n = getline(&line, &cap, stdin)) > 0) {
		json_t *job;
		struct why why;
		if (json_parse(line, (size_t)n, &job, &why)) {
			fprintf(stderr, "render_jinja: %s\n", why.text);
			return 1;
		}
		json_t *reply = render(job);
		json_dumpf(reply, stdout, JSON_COMPACT);
		putchar('\n');
		fflush(stdout);
		json_decref(reply);
		json_decref(job);
	}
	free(line);
	return 0;
}
