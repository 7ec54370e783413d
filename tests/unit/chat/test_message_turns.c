/* Message orders that a template refuses or does not show are rewritten into orders that it accepts. */
#include "base/json.h"
#include "controller/chat/chat.h"
#include "tests/unit/chat/chat_help.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

TestSuite(message_turns, .timeout = 60);

#define S(text) "{\"role\": \"system\", \"content\": \"" text "\"}"
#define D(text) "{\"role\": \"developer\", \"content\": \"" text "\"}"
#define U(text) "{\"role\": \"user\", \"content\": \"" text "\"}"
#define A(text) "{\"role\": \"assistant\", \"content\": \"" text "\"}"
#define CALL                                                                                                 \
	"{\"role\": \"assistant\", \"tool_calls\": [{\"id\": \"i\", \"type\": \"function\", \"function\": "  \
	"{\"name\": \"f\", \"arguments\": \"{}\"}}]}"
#define T(text) "{\"role\": \"tool\", \"tool_call_id\": \"i\", \"content\": \"" text "\"}"

/* Accepts any order: each message as [ROLE:CONTENT], a call as (NAME). */
#define EACH                                                                                                 \
	"{% for m in messages %}[{{ m.role }}:{{ m.content + '' }}]{% for c in m.tool_calls or [] %}"        \
	"({{ c.function.name }}{{ c.function.arguments }}){% endfor %}{% endfor %}"
static const char any[] = EACH;
/* Accepts only one system message, at the beginning. */
static const char once[] = "{% for m in messages %}{% if m.role == 'system' and not loop.first %}"
			   "{{ raise_exception('late') }}{% endif %}{% endfor %}" EACH;
/* Does not show further system messages. */
static const char drops[] = "{% for m in messages %}{% if m.role != 'system' or loop.first %}"
			    "[{{ m.role }}:{{ m.content + '' }}]{% endif %}{% endfor %}";
/* Refuses system messages. */
static const char none[] = "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no') }}"
			   "{% endif %}{% endfor %}" EACH;
/* Requires that user and assistant alternate. Calls and results may come between; after them the assistant is
 * next. */
static const char turns[] =
	"{% set ns = namespace(user=true) %}{% for m in messages %}{% if m.role == 'system' %}"
	"{% if not loop.first %}{{ raise_exception('late') }}{% endif %}"
	"{% elif m.role != 'tool' and not m.tool_calls %}{% if (m.role == 'user') != ns.user %}"
	"{{ raise_exception('turns') }}{% endif %}{% set ns.user = not ns.user %}{% endif %}{% endfor "
	"%}" EACH;

static void becomes(const char *template, const char *messages, const char *text)
{
	struct chat *c;
	struct chat_prompt p = {0};
	struct why why = {""};
	json_t *j = json_loads(messages, 0, NULL);
	cr_assert(j, "%s", messages);
	cr_assert_eq(chat_help_load(template, "", "", &c, &why), 0, "%s", why.text);
	const struct chat_input rq = {.messages = j};
	cr_expect_eq(chat_render_json(c, &rq, &p, &why), 0, "%s: %s", messages, why.text);
	cr_expect_str_eq(p.text.p ? p.text.p : "", text, "%s became %s", messages, p.text.p);
	chat_prompt_fini(&p);
	json_decref(j);
	chat_free(c);
}

Test(message_turns, an_order_that_the_template_shows_is_kept)
{
	becomes(any, "[" S("a") ", " D("b") ", " U("c") ", " U("d") ", " A("e") ", " S("f") "]",
		"[system:a][system:b][user:c][user:d][assistant:e][system:f]");
	becomes(any, "[" U("a") ", " CALL ", " T("b") ", " U("c") "]",
		"[user:a][assistant:](f{})[tool:b][user:c]");
}

Test(message_turns, leading_system_and_developer_messages_are_joined_where_two_are_refused)
{
	becomes(once, "[" S("a") ", " D("b") ", " S("c") ", " U("d") "]", "[system:a\n\nb\n\nc][user:d]");
	becomes(once, "[" D("a") ", " U("b") "]", "[system:a][user:b]");
	becomes(drops, "[" S("a") ", " S("b") ", " U("c") "]", "[system:a\n\nb][user:c]");
	becomes(once, "[" S("") ", " S("b") ", " U("c") "]", "[system:b][user:c]");
}

Test(message_turns, later_system_messages_become_the_user_s_where_they_stand)
{
	becomes(once, "[" U("a") ", " A("b") ", " S("c") ", " D("d") ", " A("e") ", " U("f") ", " S("g") "]",
		"[user:a][assistant:b][user:c][user:d][assistant:e][user:f][user:g]");
	becomes(drops, "[" S("a") ", " U("b") ", " S("c") "]", "[system:a][user:b][user:c]");
	becomes(turns, "[" S("a") ", " U("b") ", " A("c") ", " S("d") ", " U("e") ", " S("f") "]",
		"[system:a][user:b][assistant:c][user:d\n\ne\n\nf]");
}

/* This template shows only the last of several system messages. */
Test(message_turns, a_later_system_message_must_leave_the_first_one_shown)
{
	static const char last[] =
		"{% set ns = namespace(s='') %}{% for m in messages %}"
		"{% if m.role == 'system' %}{% set ns.s = m.content %}{% endif %}{% endfor %}"
		"[{{ ns.s }}]{% for m in messages %}{% if m.role != 'system' %}"
		"[{{ m.role }}:{{ m.content + '' }}]{% endif %}{% endfor %}";
	becomes(last, "[" S("a") ", " U("b") ", " S("c") "]", "[a][user:b][user:c]");
	becomes(last, "[" S("a") ", " D("b") ", " U("c") "]", "[a\n\nb][user:c]");
}

Test(message_turns, a_template_without_a_system_role_shows_it_to_the_user)
{
	becomes(none, "[" S("a") ", " D("b") ", " U("c") "]", "[user:a][user:b][user:c]");
	becomes(none, "[" S("a") "]", "[user:a]");
}

Test(message_turns, messages_in_a_row_are_joined_where_turns_are_demanded)
{
	becomes(turns, "[" U("a") ", " A("b") ", " A("c") ", " U("d") "]",
		"[user:a][assistant:b\n\nc][user:d]");
	becomes(any, "[" U("a") ", " A("b") ", " A("c") "]", "[user:a][assistant:b][assistant:c]");
	becomes(turns, "[" U("a") ", " U("b") ", " A("c") ", " U("d") "]",
		"[user:a\n\nb][assistant:c][user:d]");
	becomes(turns, "[" U("a") ", " CALL ", " T("b") ", " U("c") ", " S("d") "]",
		"[user:a][assistant:](f{})[tool:b\n\nc\n\nd]");
}

/* If no rewrite helps, the request is refused with the template's reason. */
Test(message_turns, an_order_that_nothing_helps_is_refused_by_the_template)
{
	struct chat *c;
	struct chat_prompt p;
	struct why why = {""};
	json_t *j = json_loads("[" A("a") ", " U("b") "]", 0, NULL);
	cr_assert_eq(chat_help_load(turns, "", "", &c, &why), 0, "%s", why.text);
	const struct chat_input rq = {.messages = j};
	cr_expect_neq(chat_render_json(c, &rq, &p, &why), 0);
	cr_expect(strstr(why.text, "turns"), "%s", why.text);
	json_decref(j);
	chat_free(c);
}

/* Content parts stay parts, with an empty line between the joined messages. */
Test(message_turns, parts_are_joined_too)
{
	static const char parts[] =
		"{% for m in messages %}{% if m.role == 'system' and not loop.first %}"
		"{{ raise_exception('late') }}{% endif %}[{{ m.role }}:{% if m.content is string %}"
		"{{ m.content }}{% else %}{% for p in m.content %}<{{ p.text }}>{% endfor %}{% endif %}]"
		"{% endfor %}";
	becomes(parts,
		"[" S("a") ", {\"role\": \"system\", \"content\": [{\"type\": \"text\", \"text\": \"b\"}, "
			   "{\"type\": \"text\", \"text\": \"c\"}]}, " U("d") "]",
		"[system:<a><\n\nb><c>][user:d]");
}

/* Each role is probed for parts by itself: this template would show a system message's parts as JSON text. */
Test(message_turns, each_role_has_contents_in_a_form_that_shows)
{
	static const char template[] =
		"{% for m in messages %}[{{ m.role }}:{% if m.content is string %}{{ m.content }}"
		"{% elif m.role == 'user' %}{% for p in m.content %}<{{ p.text }}>{% endfor %}"
		"{% else %}{{ m.content | tojson }}{% endif %}]{% endfor %}";
#define P(role) "{\"role\": \"" role "\", \"content\": [{\"type\": \"text\", \"text\": \"a\"}]}"
	becomes(template, "[" P("system") ", " P("user") ", " P("assistant") ", " P("tool") "]",
		"[system:a][user:<a>][assistant:a][tool:a]");
}

/* If the template refuses an id, it is replaced by a short id, equal for the call and its result. */
Test(message_turns, ids_are_short_where_the_template_demands_it)
{
	static const char template[] =
		"{% for m in messages %}{{ m.content + '' }}{% for c in m.tool_calls or [] %}"
		"{% if c.id | length != 9 %}{{ raise_exception('9') }}{% endif %}{{ c.function.name }}"
		"{{ c.function.arguments }}"
		"{% endfor %}{% if m.role == 'tool' and m.tool_call_id | length != 9 %}"
		"{{ raise_exception('9') }}{% endif %}{% endfor %}";
	becomes(template, "[" U("a") ", " CALL ", " T("b") "]", "af{}b");
}

#define CALLS                                                                                                \
	"{\"role\": \"assistant\", \"content\": \"x\", \"tool_calls\": [{\"id\": \"i\", \"type\": "          \
	"\"function\", \"function\": {\"name\": \"f\", \"arguments\": \"{}\"}}, {\"id\": \"j\", \"type\": "  \
	"\"function\", \"function\": {\"name\": \"g\", \"arguments\": \"{}\"}}]}"
#define R(id, text) "{\"role\": \"tool\", \"tool_call_id\": \"" id "\", \"content\": \"" text "\"}"

/* Llama 3's templates refuse two calls in a message, and gpt-oss's shows only the first. */
Test(message_turns, calls_of_a_message_are_split_where_one_is_shown)
{
	static const char one[] = "{% for m in messages %}{% if m.tool_calls and m.tool_calls | length > 1 %}"
				  "{{ raise_exception('single') }}{% endif %}{% endfor %}" EACH,
			  first[] = "{% for m in messages %}[{{ m.role }}:{{ m.content + '' }}]"
				    "{% if m.tool_calls %}({{ m.tool_calls[0].function.name }}"
				    "{{ m.tool_calls[0].function.arguments }}){% endif %}{% endfor %}";
	static const char rq[] =
		"[" U("a") ", " CALLS ", " R("j", "c") ", " R("i", "b") ", " R("k", "d") ", " U("e") "]";
	static const char split[] =
		"[user:a][assistant:x](f{})[tool:b][assistant:](g{})[tool:c][tool:d][user:e]";
	becomes(one, rq, split);
	becomes(first, rq, split);
	becomes(any, rq, "[user:a][assistant:x](f{})(g{})[tool:c][tool:b][tool:d][user:e]");
}

/* vLLM's template of Phi-4-mini shows either the text or the calls. */
Test(message_turns, text_does_not_hide_calls)
{
	static const char either[] =
		"{% for m in messages %}[{{ m.role }}:{% if m.content %}{{ m.content }}"
		"{% elif m.tool_calls %}{% for c in m.tool_calls %}({{ c.function.name }}"
		"{{ c.function.arguments }}){% endfor %}{% endif %}]{% endfor %}";
	becomes(either, "[" U("a") ", " CALLS ", " R("i", "b") ", " R("j", "c") ", " A("d") ", " U("e") "]",
		"[user:a][assistant:(f{})(g{})][tool:b][tool:c][assistant:d][user:e]");
}
