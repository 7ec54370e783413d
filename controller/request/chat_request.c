#include "controller/request/chat_request.h"

#include "base/err.h"
#include "base/log.h"
#include "controller/chat/template_probe.h"
#include "controller/chat/tools_probe.h"
#include "controller/request/request_tokens.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum {
	MESSAGES_MAX = 65536,
	VARIABLES_MAX = 64 /* each is looked up in the template; templates use somewhat fewer */
};

const struct reasoning_marks *chat_request_marks(const struct service *svc)
{
	return svc->marks ? svc->marks : &reasoning_usual;
}

/* --- messages --- */

/* Fields of a message.  Fields from the third on are passed only to templates that show them.  Otherwise they
 * are dropped and named as ignored, except fields that are part of the conversation. */
enum { FIRST_OPTIONAL = 2 };
static const char *const message_fields[] = {"role",       "content",      "name",
					     "tool_calls", "tool_call_id", "reasoning_content",
					     "reasoning",  "thinking",     NULL};
static const char *const unbuilt_fields[] = {"function_call", "audio", "images", "videos", "refusal", NULL};

static bool is_one_of(const char *name, const char *const *names)
{
	for (int i = 0; names[i]; i++)
		if (strcmp(name, names[i]) == 0)
			return true;
	return false;
}

/* Return true for an empty field: clients send back an assistant's reply with its empty fields. */
static bool is_empty(const json_t *v)
{
	return json_is_null(v) || (json_is_array(v) && json_array_size(v) == 0);
}

static int check_call(const json_t *call, size_t at, size_t i, struct api_problem *p)
{
	const json_t *f = json_object_get(call, "function"), *a = json_object_get(f, "arguments");
	if (!json_is_string(json_object_get(f, "name")))
		return api_fail(p, E_BAD_REQUEST, "messages",
				"messages[%zu].tool_calls[%zu].function.name must be a string", at, i);
	if (a && !json_is_string(a) && !json_is_object(a) && !json_is_null(a))
		return api_fail(p, E_BAD_REQUEST, "messages",
				"messages[%zu].tool_calls[%zu].function.arguments must be JSON text", at, i);
	return 0;
}

static int check_fields(const json_t *message, size_t at, bool strict, struct api_problem *p)
{
	const char *name;
	json_t *v;
	json_object_foreach((json_t *)message, name, v)
	{
		bool refused = strict ? !is_one_of(name, message_fields) : is_one_of(name, unbuilt_fields);
		if (refused && !is_empty(v))
			return api_fail(p, E_BAD_REQUEST, "messages", "messages[%zu].%.64s is not taken", at,
					name);
	}
	const json_t *calls = json_object_get(message, "tool_calls"), *call;
	size_t i;
	if (calls && !json_is_array(calls) && !json_is_null(calls))
		return api_fail(p, E_BAD_REQUEST, "messages", "messages[%zu].tool_calls must be an array",
				at);
	json_array_foreach(calls, i, call)
	{
		int rc = check_call(call, at, i, p);
		if (rc)
			return rc;
	}
	return 0;
}

/* Return the bytes of a message's texts: a lower bound of its prompt. */
static size_t content_bytes(const json_t *content)
{
	size_t i, n = json_is_string(content) ? json_string_length(content) : 0;
	const json_t *part;
	if (json_is_array(content))
		json_array_foreach(content, i, part) n += json_string_length(json_object_get(part, "text"));
	return n;
}

static int check_message(const json_t *m, size_t at, bool openai, bool strict, size_t *bytes,
			 struct api_problem *p)
{
	if (!json_is_object(m))
		return api_fail(p, E_BAD_REQUEST, "messages", "messages[%zu] must be {role, content}", at);
	const json_t *role = json_object_get(m, "role"), *content = json_object_get(m, "content");
	if (!json_is_string(role) || strlen(json_string_value(role)) != json_string_length(role))
		return api_fail(p, E_BAD_REQUEST, "messages", "messages[%zu].role must be a string", at);
	bool assistant = strcmp(json_string_value(role), "assistant") == 0;
	bool parts = openai && json_is_array(content) && json_array_size(content) > 0;
	bool none = openai && assistant && (!content || json_is_null(content));
	if (!json_is_string(content) && !parts && !none)
		return api_fail(p, E_BAD_REQUEST, "messages", "messages[%zu].content must be a string%s", at,
				openai ? " or an array of text parts" : "");
	*bytes += content_bytes(content);
	if (openai)
		return check_fields(m, at, strict, p);
	const char *name;
	json_t *v;
	json_object_foreach((json_t *)m, name,
			    v) if (strcmp(name, "role") != 0 &&
				   strcmp(name, "content") !=
					   0) return api_fail(p, E_BAD_REQUEST, "messages",
							      "messages[%zu].%.64s is not taken", at, name);
	return 0;
}

static int check_messages(const struct chat_request *r, bool strict, size_t *bytes, struct api_problem *p)
{
	size_t n = json_array_size(r->messages);
	*bytes = 0;
	if (!json_is_array(r->messages) || n == 0 || n > MESSAGES_MAX)
		return api_fail(p, E_BAD_REQUEST, "messages", "messages must be an array of 1 to %d messages",
				MESSAGES_MAX);
	for (size_t i = 0; i < n; i++) {
		int rc = check_message(json_array_get(r->messages, i), i, r->openai, strict, bytes, p);
		if (rc)
			return rc;
	}
	return 0;
}

/* --- variables --- */

static int ignore(const struct service *svc, const char *param, const char *name, char *ignored,
		  size_t ignored_n, struct api_problem *p)
{
	size_t at = strlen(ignored);
	if (svc->strict)
		return api_fail(p, E_BAD_REQUEST, param, "the model's chat template does not use %.64s",
				name);
	snprintf(ignored + at, ignored_n - at, "%s%s%s%.64s", at ? ", " : "", name == param ? "" : param,
		 name == param ? "" : ".", name);
	return 0;
}

/* Make the object of template variables.  reasoning_effort goes to templates that use it; for templates that
 * can only switch thinking, "none" switches it off. */
static int variables(const struct service *svc, const struct chat_request *r, json_t **out, char *ignored,
		     size_t ignored_n, struct api_problem *p)
{
	if (json_object_size(r->kwargs) > VARIABLES_MAX)
		return api_fail(p, E_BAD_REQUEST, "chat_template_kwargs",
				"chat_template_kwargs has %zu keys, at most %d are accepted",
				json_object_size(r->kwargs), VARIABLES_MAX);
	json_t *all = r->kwargs ? json_copy((json_t *)r->kwargs) : json_object(), *v;
	const char *name, *effort = r->reasoning_effort;
	int rc = 0;
	json_object_foreach(all, name, v) if (!rc && !chat_mentions(svc->chat, name)) rc =
		ignore(svc, "chat_template_kwargs", name, ignored, ignored_n, p);
	bool off = effort && strcmp(effort, "none") == 0;
	if (effort && chat_mentions(svc->chat, "reasoning_effort"))
		json_object_set_new(all, "reasoning_effort", json_string(effort));
	else if (off && chat_mentions(svc->chat, "enable_thinking"))
		json_object_set_new(all, "enable_thinking", json_false());
	else if (effort && !rc && !(off && svc->reasoning)) /* the constraint leaves out the reasoning */
		rc = ignore(svc, "reasoning_effort", "reasoning_effort", ignored, ignored_n, p);
	if (r->enable_thinking && chat_mentions(svc->chat, "enable_thinking"))
		json_object_set(all, "enable_thinking", (json_t *)r->enable_thinking);
	else if (r->enable_thinking && !rc)
		rc = ignore(svc, "enable_thinking", "enable_thinking", ignored, ignored_n, p);
	*out = all;
	return rc;
}

/* Return true if the template shows a field.  Thoughts have three names, of which a template uses one or two
 * (chat.h). */
static bool is_shown(const struct chat *c, const char *name)
{
	bool is_reasoning = strcmp(name, "reasoning") == 0 || strcmp(name, "thinking") == 0;
	return chat_mentions(c, is_reasoning ? "reasoning_content" : name) ||
	       (strstr(name, "reasoning") && chat_mentions(c, "thinking"));
}

/* Return true if the prompt shows calls of earlier messages: by the template, or spelled out (chat.h). */
static bool shows_calls(const struct service *svc, const struct chat_request *r)
{
	const struct tools_format *f = tools_format(svc->tools);
	return chat_facts(svc->chat, json_array_size(r->tools.tools) > 0)->calls || (f && !f->channels);
}

/* Check fields of messages that the template does not show: refuse tool_calls, name the rest as ignored. */
static int check_shown(const struct service *svc, const struct chat_request *r, char *ignored,
		       size_t ignored_n, struct api_problem *p)
{
	bool checked[sizeof message_fields / sizeof *message_fields] = {0};
	size_t at;
	const json_t *m;
	json_array_foreach(r->messages, at, m) for (int i = FIRST_OPTIONAL; message_fields[i]; i++)
	{
		const json_t *v = json_object_get(m, message_fields[i]);
		bool empty = !v || json_is_null(v) || (json_is_array(v) && json_array_size(v) == 0);
		if (empty || checked[i])
			continue;
		checked[i] = true;
		const bool calls = strcmp(message_fields[i], "tool_calls") == 0;
		if (calls ? shows_calls(svc, r) : is_shown(svc->chat, message_fields[i]))
			continue;
		if (calls)
			return api_fail(p, E_BAD_REQUEST, "messages",
					"messages[%zu]: the model's chat template takes no tool_calls", at);
		int rc = ignore(svc, "messages", message_fields[i], ignored, ignored_n, p);
		if (rc)
			return rc;
	}
	return 0;
}

/* Return the messages with their known fields; unknown fields are named as ignored, each once. */
static json_t *known_fields(const struct service *svc, const struct chat_request *r, char *ignored,
			    size_t ignored_n, struct api_problem *p)
{
	json_t *all = json_array(), *named = json_object(), *v;
	const json_t *m;
	const char *name;
	size_t at;
	json_array_foreach(r->messages, at, m)
	{
		json_t *known = json_object();
		json_object_foreach((json_t *)m, name, v)
		{
			if (is_one_of(name, message_fields)) {
				json_object_set(known, name, v);
			} else if (!is_empty(v) && !json_object_get(named, name)) {
				json_object_set_new(named, name, json_true());
				ignore(svc, "messages", name, ignored, ignored_n, p);
			}
		}
		json_array_append_new(all, known);
	}
	json_decref(named);
	return all;
}

/* --- the prompt --- */

/* Return the place in which the prompt ends.  Marks in the request's own text do not count. */
static enum channels_state place_of(const struct channels *c, const struct chat_prompt *prompt)
{
	struct buf text = {0};
	if (prompt->text.len)
		buf_put(&text, prompt->text.p, prompt->text.len);
	for (size_t i = 0; i < prompt->n_plain; i++)
		memset(text.p + prompt->plain[i].start, ' ', prompt->plain[i].end - prompt->plain[i].start);
	const enum channels_state place = channels_place(c, text.p ? text.p : "", text.len);
	buf_fini(&text);
	return place;
}

int chat_request_render(const struct service *svc, uint32_t max_context, const struct chat_request *r,
			struct chat_prompt *out, enum prompt_reasoning *reasoning, char *ignored,
			size_t ignored_n, struct api_problem *p)
{
	struct why why = {""};
	size_t bytes;
	json_t *kwargs = NULL, *messages = NULL;
	int rc = check_messages(r, svc->strict, &bytes, p);
	if (rc)
		return rc;
	if (!svc->chat)
		return api_fail(p, E_BAD_REQUEST, "messages", "messages: %s", svc->chat_why.text);
	if (r->tools.tools && !chat_facts(svc->chat, true)->tools)
		return api_fail(p, E_BAD_REQUEST, "tools", "the model's chat template takes no tools");
	rc = request_tokens_check_bytes(svc, max_context, bytes, "messages", p);
	if (!rc)
		rc = check_shown(svc, r, ignored, ignored_n, p);
	if (!rc)
		rc = variables(svc, r, &kwargs, ignored, ignored_n, p);
	if (!rc)
		messages = known_fields(svc, r, ignored, ignored_n, p);
	struct chat_input rq = {.messages = messages,
				.tools = r->tools.tools,
				.documents = r->documents,
				.kwargs = kwargs,
				.calls = svc->tools,
				.add_generation_prompt = r->add_generation && !r->continue_final,
				.continue_final_message = r->continue_final};
	if (!rc && chat_render_json(svc->chat, &rq, out, &why))
		rc = api_fail(p, E_BAD_REQUEST, "messages", "messages: %s", why.text);
	json_decref(kwargs);
	json_decref(messages);
	if (rc)
		return rc;
	const char *text = out->text.p ? out->text.p : "";
	const struct reasoning_marks *marks = chat_request_marks(svc);
	const enum channels_state place = marks->channels ? place_of(marks->channels, out) : CHANNELS_HEADER;
	*reasoning = reasoning_is_open(marks, text, out->text.len)     ? REASONING_OPEN
		     : reasoning_is_closed(marks, text, out->text.len) ? REASONING_NONE
								       : REASONING_OPTIONAL;
	if (place == CHANNELS_CALL)
		return api_fail(p, E_BAD_REQUEST, "continue_final_message",
				"continue_final_message: the final message ends within a call of a tool");
	if (place == CHANNELS_REASONING || place == CHANNELS_ANSWER)
		*reasoning = place == CHANNELS_REASONING ? REASONING_OPEN : REASONING_ENDED;
	if (r->tools.forced && marks->channels) {
		if (place != CHANNELS_HEADER)
			buf_puts(&out->text, marks->channels->end);
		if (place != CHANNELS_HEADER || *reasoning == REASONING_NONE)
			buf_puts(&out->text, marks->channels->next);
		chat_stream_force(&out->text, svc->tools, r->tools.forced);
		*reasoning = REASONING_NONE;
	} else if (r->tools.forced) {
		if (*reasoning == REASONING_OPEN)
			buf_printf(&out->text, "\n%s\n\n", marks->close);
		chat_stream_force(&out->text, svc->tools, r->tools.forced);
		*reasoning = REASONING_NONE;
	}
	return 0;
}

/* --- styles of tool calls and reasoning --- */

static bool template_mentions(const void *chat, const char *word)
{
	return chat_mentions(chat, word);
}

static bool is_special(const struct tokenizer *t, const char *mark)
{
	struct token_ids ids = {0};
	tokenizer_encode(t, mark, strlen(mark), 0, NULL, 0, &ids, NULL);
	bool special = ids.n == 1 && tokenizer_is_special(t, ids.ids[0]);
	token_ids_fini(&ids);
	return special;
}

/* Return true if marks of the style are special tokens, which are stripped from text by default. */
static bool marks_special(const struct service *svc)
{
	const struct tokenizer *t = svc->tokenizer;
	const struct tools_format *f = tools_format(svc->tools);
	bool special = svc->reasoning && is_special(t, chat_request_marks(svc)->close);
	if (f && f->tag)
		special = special || is_special(t, f->tag);
	for (int i = 0; f && i < TOOLS_MARKS_MAX && f->marks[i].text; i++)
		special = special || is_special(t, f->marks[i].text);
	for (int i = 0; f && i < TOOLS_STEPS_MAX; i++)
		if (f->steps[i].text)
			special = special || is_special(t, f->steps[i].text);
	return special;
}

/* Return the first format with a special token as its mark, for a template that shows tools but neither calls
 * nor marks of a format. */
static enum tools_style tools_of_tokens(const struct service *svc)
{
	const struct template_facts *f = chat_facts(svc->chat, true);
	for (int s = TOOLS_NONE + 1; s < TOOLS_N_STYLES && f->tools && !f->calls; s++) {
		const struct tools_format *format = tools_format(s);
		if (!format->at_start && !format->channels &&
		    is_special(svc->tokenizer, format->marks[0].text))
			return s;
	}
	return TOOLS_NONE;
}

static enum tools_style guess_style(const struct service *svc)
{
	const enum tools_style style = svc->chat ? tools_probe(svc->chat) : TOOLS_NONE;
	return style || !svc->chat ? style : tools_of_tokens(svc);
}

/* Return true if the template ends the prompt of an ordinary chat within the reasoning. */
static bool prompt_thinks(const struct chat *c, const struct reasoning_marks *marks)
{
	json_t *messages = json_pack("[{s:s, s:s}]", "role", "user", "content", "x");
	const struct chat_input rq = {.messages = messages, .add_generation_prompt = true};
	struct chat_prompt prompt = {0};
	bool open = c && chat_render_json(c, &rq, &prompt, NULL) == 0 && prompt.text.p &&
		    reasoning_is_open(marks, prompt.text.p, prompt.text.len);
	chat_prompt_fini(&prompt);
	json_decref(messages);
	return open;
}

/* Return true if only one of calls and reasoning uses messages with channels. */
static bool clash(const struct service *svc)
{
	const struct tools_format *f = tools_format(svc->tools);
	return f && svc->marks && (f->channels != NULL) != (svc->marks->channels != NULL);
}

int chat_request_styles(struct service *svc, const char *tools, const char *reasoning, struct why *why)
{
	bool guess_tools = !strcmp(tools, "auto"), guess_reasoning = !strcmp(reasoning, "auto");
	bool r1 = !strcmp(reasoning, "deepseek_r1");
	if (guess_tools)
		svc->tools = guess_style(svc);
	else if (tools_style_parse(tools, &svc->tools))
		return err_why(why, -EINVAL, "--tool-parser \"%s\": must be auto, %s", tools,
			       tools_style_names());
	const bool none = !strcmp(reasoning, "none");
	if (guess_reasoning)
		svc->marks = svc->chat ? reasoning_marks_of(template_mentions, svc->chat) : NULL;
	else
		svc->marks = reasoning_marks_named(reasoning);
	if (!guess_reasoning && !none && !svc->marks)
		return err_why(why, -EINVAL, "--reasoning-parser \"%s\": must be auto, none, %s", reasoning,
			       reasoning_names());
	if (clash(svc) && guess_tools) /* the template has words of both */
		svc->tools = TOOLS_NONE;
	if (clash(svc) && guess_reasoning)
		svc->marks = NULL;
	if (clash(svc))
		return err_why(
			why, -EINVAL,
			"--tool-parser %s does not go with --reasoning-parser %s: harmony is of both, or "
			"one of them is none",
			tools_format(svc->tools)->name, svc->marks->name);
	svc->reasoning = svc->marks;
	/* Messages with channels are parsed even without reasoning. */
	if (svc->tools == TOOLS_HARMONY && !svc->marks)
		svc->marks = reasoning_marks_named(tools_format(svc->tools)->name);
	svc->reasoning_open = r1;
	svc->chat_thinks = svc->reasoning && (r1 || prompt_thinks(svc->chat, chat_request_marks(svc)));
	svc->marks_special = marks_special(svc);
	return 0;
}

void chat_request_log(const struct service *svc)
{
	const struct tools_format *f = tools_format(svc->tools);
	const struct template_facts *facts = svc->chat ? chat_facts(svc->chat, true) : NULL;
	const char *spelled = f && !f->channels ? "spelled" : "refused";
	if (!facts)
		return;
	log_info("main", "chat template tools=%s tool_format=%s past_calls=%s system=%s reasoning=%s",
		 facts->tools && f ? "shown" : "refused", f ? f->name : "none",
		 facts->calls ? "shown" : spelled, facts->system ? "shown" : "user",
		 svc->reasoning ? svc->marks->name : "none");
}
