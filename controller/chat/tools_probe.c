#include "controller/chat/tools_probe.h"

#include "controller/chat/template_probe.h"
#include "controller/chat/tools.h"

#include <stdlib.h>
#include <string.h>

enum { MARK_MIN = 8 /* bytes; shorter marks also occur in other texts */ };

/* A call as shown by the template. */
struct shown {
	const struct chat *c;
	json_t *tools;
	char *prompt; /* prompt of a question with the tools; NULL: refused */
	char *turn;   /* text from the assistant message with the call on; NULL: the template shows none */
};

static const char name[] = "probe_name", arguments[] = "{\"x\": \"Yprobe\", \"n\": 1}";

static json_t *a_tool(void)
{
	return json_pack("[{s:s, s:{s:s, s:s, s:{s:s, s:{s:{s:s, s:s}, s:{s:s, s:s}}}}}]", "type", "function",
			 "function", "name", name, "description", "d", "parameters", "type", "object",
			 "properties", "x", "type", "string", "description", "d", "n", "type", "integer",
			 "description", "d");
}

/* Return the prompt of a question, or of a question, a call and its result; NULL: refused. */
static char *render(const struct shown *s, bool with_call)
{
	json_t *messages = json_pack("[{s:s, s:s}]", "role", "user", "content", "a");
	struct chat_prompt p = {0};
	if (with_call) {
		json_array_append_new(messages, json_pack("{s:s, s:s, s:[{s:s, s:s, s:{s:s, s:s}}]}", "role",
							  "assistant", "content", "", "tool_calls", "id",
							  "call00001", "type", "function", "function", "name",
							  name, "arguments", arguments));
		json_array_append_new(messages, json_pack("{s:s, s:s, s:s, s:s}", "role", "tool", "content",
							  "b", "name", name, "tool_call_id", "call00001"));
	}
	const struct chat_input rq = {
		.messages = messages, .tools = s->tools, .add_generation_prompt = !with_call};
	char *text = chat_render_json(s->c, &rq, &p, NULL) ? NULL : buf_take(&p.text);
	chat_prompt_fini(&p);
	json_decref(messages);
	return text;
}

/* Return where the assistant message begins: after the text shared with the prompt of the question. A prompt
 * may open the reasoning, which the message of a call does not show. */
static size_t turn_of(const char *prompt, const char *all)
{
	size_t n = 0;
	while (prompt[n] && prompt[n] == all[n])
		n++;
	while (prompt[n] && n && all[n - 1] != '\n' && all[n - 1] != '>')
		n--;
	return n;
}

/* ---- matching a format with the call shown ---- */

struct found {
	bool name;            /* the first call has the name */
	struct buf arguments; /* arguments of the first call */
};

static void on_text(void *user, const char *p, size_t n)
{
	(void)user;
	(void)p;
	(void)n;
}

static void on_begin(void *user, uint32_t call, const char *p, size_t n)
{
	if (call == 0)
		((struct found *)user)->name = n == strlen(name) && !memcmp(p, name, n);
}

static void on_arguments(void *user, uint32_t call, const char *p, size_t n)
{
	if (call == 0)
		buf_put(&((struct found *)user)->arguments, p, n);
}

/* Return true if the format parses the call. Values are not compared: some templates write
 * text without quotes. */
static bool reads(const struct shown *s, enum tools_style style)
{
	struct found f = {0};
	const struct tools_sink to = {on_text, on_begin, on_arguments, &f};
	struct tools t;
	tools_init(&t, style, s->tools);
	tools_push(&t, s->turn, strlen(s->turn), &to);
	tools_end(&t, &to);
	tools_fini(&t);
	json_t *got = f.arguments.p ? json_loadb(f.arguments.p, f.arguments.len, 0, NULL) : NULL;
	const bool is = f.name && json_object_get(got, "x") && json_object_get(got, "n");
	json_decref(got);
	buf_fini(&f.arguments);
	return is;
}

static bool mentions(const void *user, const char *word)
{
	return chat_mentions(((const struct shown *)user)->c, word);
}

/* Return true if the text has a mark of the format with at least at_least bytes. */
static bool has_mark(const char *text, const struct tools_format *f, size_t at_least)
{
	for (int i = 0; i < TOOLS_MARKS_MAX && f->marks[i].text; i++)
		if (strlen(f->marks[i].text) >= at_least && strstr(text, f->marks[i].text))
			return true;
	return false;
}

/* Messages in channels have their own parser (channels.h). */
static bool reads_or_none_is_shown(const void *user, enum tools_style style)
{
	const struct shown *s = user;
	return !s->turn || tools_format(style)->channels || reads(s, style);
}

/* Return true if the call, which the format does not parse, contains none of the format's marks. */
static bool is_not_contradicted(const void *user, enum tools_style style)
{
	const struct tools_format *f = tools_format(style);
	return f->at_start || !has_mark(((const struct shown *)user)->turn, f, 1);
}

static bool reads_after_mark(const void *user, enum tools_style style)
{
	const struct tools_format *f = tools_format(style);
	return !f->at_start && !f->channels && reads(user, style);
}

/* Return true if the template's instructions have a mark of the format that is missing in the
 * call it shows. */
static bool is_asked_for(const void *user, enum tools_style style)
{
	const struct shown *s = user;
	const struct tools_format *f = tools_format(style);
	return !f->channels && has_mark(s->prompt, f, MARK_MIN) && !has_mark(s->turn, f, MARK_MIN);
}

static bool reads_at_start(const void *user, enum tools_style style)
{
	return tools_format(style)->at_start && reads(user, style);
}

enum tools_style tools_probe(const struct chat *c)
{
	struct shown s = {.c = c, .tools = a_tool()};
	char *all = render(&s, true);
	s.prompt = render(&s, false);
	if (s.prompt && all && chat_facts(c, true)->calls)
		s.turn = all + turn_of(s.prompt, all);
	enum tools_style style = tools_style_of(mentions, reads_or_none_is_shown, &s);
	if (!style && s.turn)
		style = tools_style_first(reads_after_mark, &s);
	if (!style && s.turn)
		style = tools_style_first(reads_at_start, &s);
	if (style && tools_format(style)->at_start && s.turn) {
		const enum tools_style asked = tools_style_first(is_asked_for, &s);
		style = asked ? asked : style;
	}
	if (!style && s.turn)
		style = tools_style_of(mentions, is_not_contradicted, &s);
	json_decref(s.tools);
	free(s.prompt);
	free(all);
	return style;
}
