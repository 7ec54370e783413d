#include "controller/chat/template_probe.h"

#include "controller/chat/marker.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

static const char needle[] = "Xprobe", second_needle[] = "Yprobe", function[] = "Xname", declared[] = "Xtool";

struct probe {
	const struct chat_template *t;
	json_t *tools; /* owned; NULL: none */
	struct template_facts *facts;
	bool without_calls; /* the template is known to show no calls */
};

enum template_role template_role_of(const char *role)
{
	static const struct {
		const char *name;
		enum template_role role;
	} names[] = {
		{"system", ROLE_SYSTEM}, {"developer", ROLE_SYSTEM}, {"assistant", ROLE_ASSISTANT},
		{"tool", ROLE_TOOL},     {"function", ROLE_TOOL},
	};
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		if (strcmp(role, names[i].name) == 0)
			return names[i].role;
	return ROLE_USER;
}

/* ---- renderings ---- */

/* Loading renders about a hundred short conversations; one that exceeds these limits counts as refused. */
static const struct jinja_limits limits = {.steps = 1000000, .memory = (size_t)16 << 20};

/* Render messages, taking ownership.  Return false if the template refuses them. */
static bool rendered(const struct probe *p, json_t *messages, bool generation, struct jinja_result *r)
{
	json_t *variables = tools_pass(p->facts->tools, p->tools, NULL, messages);
	const struct chat_input rq = {
		.tools = p->tools, .kwargs = variables, .add_generation_prompt = generation};
	*r = (struct jinja_result){0};
	const int rc = chat_template_render(p->t, &rq, messages, &limits, r, NULL);
	json_decref(messages);
	json_decref(variables);
	return rc == 0 && r->text.p;
}

/* Return true if the text before a needle ends like a part in JSON or Python: "text": " */
static bool is_in_json(const char *text, const char *at)
{
	while (at > text && strchr("\"'\\: ", at[-1]))
		at--;
	return at - text > 5 && !memcmp(at - 4, "text", 4) && strchr("\"'", at[-5]);
}

static bool shows_word(const char *text, const char *word)
{
	const char *at = strstr(text, word);
	return at && !is_in_json(text, at);
}

/* Return true if the prompt of these messages contains the needles; other: may be NULL. Takes
 * ownership of messages. */
static bool shows(const struct probe *p, json_t *messages, const char *other)
{
	struct jinja_result r;
	const bool is = rendered(p, messages, true, &r) && shows_word(r.text.p, needle) &&
			(!other || shows_word(r.text.p, other));
	jinja_result_fini(&r);
	return is;
}

/* ---- messages ---- */

static json_t *parts_of(const char *a, const char *b)
{
	json_t *parts = json_pack("[{s:s, s:s}]", "type", "text", "text", a);
	if (b)
		json_array_append_new(parts, json_pack("{s:s, s:s}", "type", "text", "text", b));
	return parts;
}

/* Return a content in a shape that the template takes for the role. */
static json_t *content_of(const struct probe *p, enum template_role role, const char *text)
{
	return p->facts->content[role].text ? json_string(text) : parts_of(text, NULL);
}

/* Append a message with this content, taking ownership; NULL: an accepted default. */
static void add(const struct probe *p, json_t *messages, const char *role, json_t *content)
{
	content = content ? content : content_of(p, template_role_of(role), "a");
	json_array_append_new(messages, json_pack("{s:s, s:o}", "role", role, "content", content));
}

/* Return messages that end with a call and its result.  Takes ownership of result (NULL: as in add()). */
static json_t *with_call(const struct probe *p, json_t *arguments, const char *id, json_t *result)
{
	json_t *messages = json_array(), *m;
	add(p, messages, "user", NULL);
	add(p, messages, "assistant", json_string(""));
	m = json_array_get(messages, 1);
	if (p->without_calls) {
		json_object_set_new(m, "content", content_of(p, ROLE_ASSISTANT, "a"));
		json_decref(arguments);
	} else {
		json_object_set_new(m, "tool_calls",
				    json_pack("[{s:s, s:s, s:{s:s, s:o}}]", "id", id, "type", "function",
					      "function", "name", function, "arguments", arguments));
	}
	add(p, messages, "tool", result);
	m = json_array_get(messages, 2);
	json_object_set_new(m, "name", json_string(function));
	json_object_set_new(m, "tool_call_id", json_string(id));
	return messages;
}

static const char short_id[] = "call00001", long_id[] = "call_0123456789";

static json_t *arguments_of(const struct probe *p, const char *key)
{
	if (!p->facts->argument_text)
		return json_pack("{s:s}", key, "v");
	return json_sprintf("{\"%s\": \"v\"}", key);
}

/* ---- facts ---- */

/* Return a conversation in which a message of the role has this content.  Takes ownership of content. */
static json_t *with_content(const struct probe *p, enum template_role role, json_t *content)
{
	if (role == ROLE_TOOL)
		return with_call(p, arguments_of(p, "x"), short_id, content);
	json_t *messages = json_array();
	if (role == ROLE_SYSTEM)
		add(p, messages, "system", content);
	add(p, messages, "user", role == ROLE_USER ? content : NULL);
	if (role == ROLE_ASSISTANT) {
		add(p, messages, "assistant", content);
		add(p, messages, "user", NULL);
	}
	return messages;
}

/* Find the shapes of the role's contents; if none is shown, use the user's.  Return true if one is shown. */
static bool find_content(struct probe *p, enum template_role role)
{
	struct template_facts *f = p->facts;
	f->content[role].text = true;
	const bool text = shows(p, with_content(p, role, json_string(needle)), NULL);
	const bool parts = shows(p, with_content(p, role, parts_of(needle, second_needle)), second_needle);
	f->content[role].text = text || !parts;
	f->content[role].parts = parts;
	if (!text && !parts && role != ROLE_USER)
		f->content[role] = f->content[ROLE_USER];
	return text || parts;
}

static void find_calls(struct probe *p)
{
	static const char as_text[] = "{\"Xprobe\": \"v\"}", as_python[] = "'Xprobe'";
	struct template_facts *f = p->facts;
	struct jinja_result r;
	json_t *messages = with_call(p, json_pack("{s:s}", needle, "v"), short_id, NULL);
	const bool python = rendered(p, json_incref(messages), true, &r) && strstr(r.text.p, as_python);
	const bool object = shows(p, messages, NULL);
	const bool text = shows(p, with_call(p, json_string(as_text), short_id, NULL), NULL);
	jinja_result_fini(&r);
	p->without_calls = !object && !text;
	f->argument_text = text && (!object || python);
	f->calls = shows(p, with_call(p, arguments_of(p, needle), short_id, NULL), function);
	f->short_ids =
		!p->without_calls && !shows(p, with_call(p, arguments_of(p, needle), long_id, NULL), NULL);
}

/* Find out whether calls are shown in a message that also has text. */
static void find_calls_and_text(struct probe *p)
{
	json_t *messages = with_call(p, arguments_of(p, needle), short_id, NULL);
	json_object_set_new(json_array_get(messages, 1), "content", content_of(p, ROLE_ASSISTANT, "a"));
	p->facts->calls_and_text = shows(p, messages, function) || !p->facts->calls;
}

/* Find out whether a second call of a message is shown. */
static void find_parallel(struct probe *p)
{
	static const char id[] = "call00002";
	json_t *messages = with_call(p, arguments_of(p, needle), short_id, NULL);
	json_t *calls = json_object_get(json_array_get(messages, 1), "tool_calls");
	json_t *result = json_copy(json_array_get(messages, 2));
	json_array_append_new(calls,
			      json_pack("{s:s, s:s, s:{s:s, s:o}}", "id", id, "type", "function", "function",
					"name", function, "arguments", arguments_of(p, second_needle)));
	json_object_set_new(result, "tool_call_id", json_string(id));
	json_array_append_new(messages, result);
	p->facts->parallel = shows(p, messages, second_needle) || !p->facts->calls;
}

/* Conversations by role: s, d, u, a are system, developer, user and assistant, c is a call with its result.
 * A fact is false if the plain conversation is shown but `roles` is refused or a message of it
 * is not shown. */
static const struct order {
	const char *roles, *plain;
	bool without_tools; /* also applies to requests without tools */
	size_t fact;        /* offset of a bool in struct template_facts */
} orders[] = {
	{"su", "u", true, offsetof(struct template_facts, system)},
	{"suc", "uc", false, offsetof(struct template_facts, system)},
	{"ssu", "su", true, offsetof(struct template_facts, systems)},
	{"sdu", "su", true, offsetof(struct template_facts, systems)},
	{"uasu", "uau", true, offsetof(struct template_facts, later_system)},
	{"uadu", "uau", true, offsetof(struct template_facts, later_system)},
	{"uaus", "uau", true, offsetof(struct template_facts, later_system)},
	{"suasu", "suau", true, offsetof(struct template_facts, later_system)},
	{"suaus", "suau", true, offsetof(struct template_facts, later_system)},
	{"uu", "u", true, offsetof(struct template_facts, users)},
	{"uaau", "uau", true, offsetof(struct template_facts, assistants)},
	{"ucu", "uc", true, offsetof(struct template_facts, user_after_tool)},
};

/* Return true if all messages of a conversation are shown; its calls are not checked. */
static bool shows_all(const struct probe *p, const char *roles)
{
	json_t *messages = json_array();
	char word[32];
	for (int i = 0; roles[i]; i++) {
		const char *role = roles[i] == 's'                          ? "system"
				   : roles[i] == 'a'                        ? "assistant"
				   : roles[i] == 'd' && p->facts->developer ? "developer"
				   : roles[i] == 'd'                        ? "system"
									    : "user";
		snprintf(word, sizeof word, "%s%d.", needle, i);
		if (roles[i] == 'c') {
			json_t *call = with_call(p, arguments_of(p, "x"), short_id, NULL);
			json_array_remove(call, 0); /* the user message */
			json_array_extend(messages, call);
			json_decref(call);
		} else {
			add(p, messages, role, content_of(p, template_role_of(role), word));
		}
	}
	struct jinja_result r;
	bool all = rendered(p, messages, true, &r);
	for (int i = 0; all && roles[i]; i++) {
		snprintf(word, sizeof word, "%s%d.", needle, i);
		all = roles[i] == 'c' || strstr(r.text.p, word);
	}
	jinja_result_fini(&r);
	return all;
}

static void find_orders(struct probe *p)
{
	struct template_facts *f = p->facts;
	/* Require the word in the template: templates that write any role by name would also show one
	 * unknown to the model. */
	f->developer = p->t->text && strstr(p->t->text, "developer");
	f->developer = f->developer && (shows_all(p, "du") || !shows_all(p, "su"));
	for (size_t i = 0; i < sizeof orders / sizeof *orders; i++)
		*(bool *)((char *)f + orders[i].fact) = true;
	for (size_t i = 0; i < sizeof orders / sizeof *orders; i++) {
		bool *fact = (bool *)((char *)f + orders[i].fact);
		if (!orders[i].without_tools && !p->tools)
			continue;
		*fact = *fact && (shows_all(p, orders[i].roles) || !shows_all(p, orders[i].plain));
	}
}

/* Find the text after an assistant's message that another message follows; if there is none, after
 * the last message. */
static void find_turn_end(const struct probe *p, char out[TURN_END_MAX])
{
	out[0] = 0;
	for (int last = 0; last < 2 && !out[0]; last++) {
		struct jinja_result r;
		json_t *messages = json_array();
		add(p, messages, "user", NULL);
		add(p, messages, "assistant", content_of(p, ROLE_ASSISTANT, needle));
		if (!last)
			add(p, messages, "user", NULL);
		const char *at = rendered(p, messages, false, &r) ? strstr(r.text.p, needle) : NULL;
		if (at) {
			at += strlen(needle);
			at += marker_skip_blanks(at, strlen(at));
			snprintf(out, TURN_END_MAX, "%s", at);
		}
		jinja_result_fini(&r);
	}
}

/* Find the first way of passing tools that shows them.  Return false if none does. */
static bool find_tools(struct probe *p)
{
	struct jinja_result r;
	bool shown = false;
	for (int way = TOOLS_PASS_VARIABLE; way < TOOLS_N_PASSINGS && !shown; way++) {
		json_t *messages = json_array();
		p->facts->tools = way;
		add(p, messages, "user", NULL);
		shown = rendered(p, messages, true, &r) && strstr(r.text.p, declared);
		jinja_result_fini(&r);
	}
	return shown;
}

static json_t *a_tool(void)
{
	return json_pack("[{s:s, s:{s:s, s:s, s:{s:s, s:{s:{s:s, s:s}}, s:[s]}}}]", "type", "function",
			 "function", "name", declared, "description", "d", "parameters", "type", "object",
			 "properties", "x", "type", "string", "description", "d", "required", "x");
}

void template_probe(const struct chat_template *t, bool tools, struct template_facts *out)
{
	struct probe p = {.t = t, .tools = tools ? a_tool() : NULL, .facts = out};
	*out = (struct template_facts){0};
	const bool user = find_content(&p, ROLE_USER);
	if (tools && !find_tools(&p))
		out->tools = TOOLS_PASS_NONE;
	if (!tools && !user)
		out->tools = TOOLS_PASS_FUNCTIONS;
	if (!user && !find_content(&p, ROLE_USER) && !tools)
		out->tools = TOOLS_PASS_NONE;
	out->content[ROLE_ASSISTANT] = out->content[ROLE_TOOL] = out->content[ROLE_USER];
	find_content(&p, ROLE_SYSTEM);
	find_content(&p, ROLE_ASSISTANT);
	find_calls(&p);
	out->results = find_content(&p, ROLE_TOOL);
	find_calls_and_text(&p);
	find_parallel(&p);
	find_orders(&p);
	find_turn_end(&p, out->turn_end);
	json_decref(p.tools);
}
