/* First requests of coding agents, and loops of three rounds of tool calls, run on every real template of the
 * test data. The prompt shows the whole request, or the template itself refuses chats or tools. */
#include "base/buf.h"
#include "base/file.h"
#include "controller/apis/anthropic/anthropic_read.h"
#include "controller/apis/openai/responses_read.h"
#include "controller/chat/chat.h"
#include "controller/chat/template_probe.h"
#include "controller/chat/tools_probe.h"
#include "tests/testdata.h"
#include "tests/unit/apis/read_rig.h"

#include <dirent.h>
#include <stdio.h>
#include <unistd.h>

TestSuite(agents, .timeout = 120);

static void write_file(const char *dir, const char *name, const char *text)
{
	char *path = file_join(dir, name);
	FILE *f = fopen(path, "w");
	cr_assert(f && fputs(text, f) >= 0 && fclose(f) == 0, "%s", path);
	free(path);
}

/* Load a template for a model with the usual special tokens. */
static struct chat *load(const char *name, const char *template)
{
	static const char *const files[] = {"chat_template.jinja", "tokenizer_config.json"};
	struct why why = {""};
	char dir[] = "/tmp/quern-agents-XXXXXX";
	struct chat *c = NULL;
	cr_assert_not_null(mkdtemp(dir));
	write_file(dir, files[0], template);
	write_file(dir, files[1], "{\"bos_token\": \"<s>\", \"eos_token\": \"</s>\"}");
	cr_assert_eq(chat_load(dir, &c, &why), 0, "%s: %s", name, why.text);
	for (int i = 0; i < 2; i++) {
		char *path = file_join(dir, files[i]);
		unlink(path);
		free(path);
	}
	rmdir(dir);
	return c;
}

/* Return the agent's request in the chat dialect. */
static json_t *chat_of(const char *name, const json_t *agent)
{
	static const struct anthropic_reading how = {.strict = false};
	const char *api = json_string_value(json_object_get(agent, "api"));
	const json_t *body = json_object_get(agent, "body");
	json_t *out = NULL, *items = NULL;
	struct api_problem p = {0};
	char ignored[512];
	int rc = 0;
	if (!strcmp(api, "messages"))
		rc = anthropic_read(body, &how, &out, ignored, &p);
	else if (!strcmp(api, "responses"))
		rc = responses_read(body, NULL, &out, &items, &p);
	else
		out = json_deep_copy(body);
	cr_assert_eq(rc, 0, "%s: %s", name, p.why);
	json_decref(items);
	return out;
}

/* Adds three rounds of calls with their results (two calls in the last round) and a user message. */
static void add_rounds(json_t *messages)
{
	for (int i = 0; i < 3; i++) {
		char id[40], arguments[64], result[32];
		snprintf(id, sizeof id, "call_%024d", i);
		snprintf(arguments, sizeof arguments, "{\"command\": \"NEEDLE-%d\"}", i);
		snprintf(result, sizeof result, "NEEDLE-%d", i + 3);
		json_array_append_new(messages, json_pack("{s:s, s:n, s:[{s:s, s:s, s:{s:s, s:s}}]}", "role",
							  "assistant", "content", "tool_calls", "id", id,
							  "type", "function", "function", "name", "bash",
							  "arguments", arguments));
		json_array_append_new(messages, json_pack("{s:s, s:s, s:s}", "role", "tool", "tool_call_id",
							  id, "content", result));
	}
	const size_t n = json_array_size(messages);
	json_t *calls = json_object_get(json_array_get(messages, n - 2), "tool_calls");
	json_array_append_new(calls, json_pack("{s:s, s:s, s:{s:s, s:s}}", "id", "call_second", "type",
					       "function", "function", "name", "bash", "arguments",
					       "{\"command\": \"NEEDLE-7\"}"));
	json_array_append_new(messages, json_pack("{s:s, s:s, s:s}", "role", "tool", "tool_call_id",
						  "call_second", "content", "NEEDLE-8"));
	json_array_append_new(messages, json_pack("{s:s, s:s}", "role", "user", "content", "NEEDLE-6"));
}

/* Expects a prompt that shows each needle of the messages at least once. */
static void expect_shown(const struct chat *c, enum tools_style style, const json_t *request,
			 const char *what)
{
	const json_t *messages = json_object_get(request, "messages");
	const struct chat_input rq = {.messages = messages,
				      .tools = json_object_get(request, "tools"),
				      .calls = style,
				      .add_generation_prompt = true};
	struct chat_prompt p = {0};
	struct why why = {""};
	char needle[16];
	cr_expect_eq(chat_render_json(c, &rq, &p, &why), 0, "%s: %s", what, why.text);
	char *text = json_dumps(messages, 0);
	for (const char *at = text; p.text.p && (at = strstr(at, "NEEDLE-")); at++) {
		snprintf(needle, sizeof needle, "%.8s", at);
		cr_expect(strstr(p.text.p, needle), "%s: %s is not in %s", what, needle, p.text.p);
	}
	cr_expect(!p.text.p || !strstr(p.text.p, "billing"), "%s", what);
	free(text);
	chat_prompt_fini(&p);
}

static bool answers(const struct chat *c, const json_t *tools)
{
	json_t *messages = json_pack("[{s:s, s:s}, {s:s, s:s}, {s:s, s:s}]", "role", "user", "content", "a",
				     "role", "assistant", "content", "b", "role", "user", "content", "c");
	const struct chat_input rq = {.messages = messages, .tools = tools, .add_generation_prompt = true};
	struct chat_prompt p = {0};
	const bool does = chat_render_json(c, &rq, &p, NULL) == 0;
	chat_prompt_fini(&p);
	json_decref(messages);
	return does;
}

/* Return 1 if the request was taken, 0 if the template takes no chats or no tools. */
static int take(const struct chat *c, const char *file, const char *name, const json_t *agent)
{
	json_t *request = chat_of(name, agent), *tools = json_object_get(request, "tools");
	const enum tools_style style = tools_probe(c);
	const bool tooled = json_array_size(tools) > 0, shown = chat_facts(c, true)->tools;
	char what[320];
	snprintf(what, sizeof what, "%s, %s", file, name);
	const bool taken = answers(c, tools) && (!tooled || (shown && style));
	if (taken)
		expect_shown(c, style, request, what);
	if (taken && tooled) {
		add_rounds(json_object_get(request, "messages"));
		expect_shown(c, style, request, what);
	}
	json_decref(request);
	return taken;
}

/* Join the lines of a template that is written in indented lines. */
static char *joined(const char *text)
{
	struct buf b = {0};
	for (; *text; text++)
		if (strncmp(text, "    ", 4) == 0)
			text += 3;
		else if (*text != '\n')
			buf_putc(&b, *text);
	return buf_take(&b);
}

/* Runs all agents on the templates of a folder. Returns how many requests were taken; adds the number of
 * requests to *all. */
static int run_folder(const char *folder, bool lines, const json_t *agents, int *all)
{
	const json_t *agent;
	const char *name;
	struct why why;
	char *text;
	int taken = 0;
	DIR *d = opendir(folder);
	cr_assert_not_null(d);
	for (struct dirent *e; (e = readdir(d));) {
		size_t n;
		if (!strstr(e->d_name, ".jinja"))
			continue;
		char *path = file_join(folder, e->d_name);
		cr_assert_eq(file_read(path, 1 << 20, &text, &n, &why), 0, "%s", why.text);
		char *one = lines ? joined(text) : strdup(text);
		struct chat *c = load(e->d_name, one);
		json_object_foreach((json_t *)agents, name, agent)
		{
			taken += take(c, e->d_name, name, agent);
			(*all)++;
		}
		chat_free(c);
		free(one);
		free(text);
		free(path);
	}
	closedir(d);
	return taken;
}

Test(agents, every_template_shows_their_first_requests_and_rounds_of_tools)
{
	static const struct {
		const char *folder;
		bool lines;
		int all, taken; /* with the full data; the templates that refuse have no tools or no chats */
	} sets[] = {
		{"chat/llama.cpp-templates", false, 275, 208},
		{"chat/chujiezheng-templates", true, 90, 42},
	};
	json_t *agents;
	struct why why;
	cr_assert_eq(json_read(repofile("tests/golden/agents.json"), 1 << 20, &agents, &why), 0, "%s",
		     why.text);
	for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
		int all = 0;
		const char *at = testdata(sets[i].folder);
		if (!at)
			cr_skip_test("the test data are not installed: %s", sets[i].folder);
		char *folder = strdup(at);
		const int taken = run_folder(folder, sets[i].lines, agents, &all);
		cr_expect(all < sets[i].all || taken >= sets[i].taken, "%s: %d of %d", folder, taken, all);
		free(folder);
	}
	json_decref(agents);
}
