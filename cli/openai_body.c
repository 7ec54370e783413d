#include "cli/openai_body.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_chat(const char *url)
{
	return strcmp(url, "/v1/chat/completions") == 0;
}

/* --- requests --- */

/* Message contents as strings: OpenAI allows arrays of text parts. */
static json_t *plain_messages(const json_t *messages)
{
	json_t *out = json_array();
	size_t i, k;
	const json_t *m, *part;
	json_array_foreach(messages, i, m)
	{
		const json_t *content = json_object_get(m, "content");
		json_t *one = json_copy((json_t *)m);
		if (json_is_array(content)) {
			struct buf text = {0};
			json_array_foreach(content, k, part)
			{
				const json_t *t = json_object_get(part, "text");
				buf_puts(&text, k ? "\n" : "");
				buf_put(&text, json_is_string(t) ? json_string_value(t) : "",
					json_string_length(t));
			}
			json_object_set_new(one, "content", json_stringn(text.p ? text.p : "", text.len));
			buf_fini(&text);
		}
		const char *role = json_string_value(json_object_get(m, "role"));
		if (role && strcmp(role, "developer") == 0)
			json_object_set_new(one, "role", json_string("system"));
		json_array_append_new(out, one);
	}
	return out;
}

/* Fields that are members of the request rather than of its params.  False: not such a field. */
static bool take_field(json_t *request, const char *key, const json_t *v)
{
	static const char *const same[] = {"user", "priority", "cache_salt", "deadline_ms"};
	/* No effect on the result, as over HTTP. */
	static const char *const ignored[] = {
		"model", "metadata", "store", "service_tier", "parallel_tool_calls", "stream_options"};
	for (size_t i = 0; i < sizeof same / sizeof same[0]; i++)
		if (strcmp(key, same[i]) == 0) {
			json_object_set(request, key, (json_t *)v);
			return true;
		}
	for (size_t i = 0; i < sizeof ignored / sizeof ignored[0]; i++)
		if (strcmp(key, ignored[i]) == 0)
			return true;
	return false;
}

static void chat_logprobs(json_t *params, const json_t *body)
{
	json_object_del(params, "logprobs");
	json_object_del(params, "top_logprobs");
	if (!json_is_true(json_object_get(body, "logprobs")))
		return;
	const json_t *top = json_object_get(body, "top_logprobs");
	json_object_set_new(params, "logprobs", json_integer(json_integer_value(top)));
}

static int set_prompt(json_t *request, const json_t *body, const char *url, char *why, size_t why_n)
{
	const json_t *prompt = json_object_get(body, "prompt"), *messages = json_object_get(body, "messages");
	if (is_chat(url)) {
		if (!json_is_array(messages))
			return err_why(why, why_n, -EINVAL, "messages must be an array");
		json_object_set_new(request, "messages", plain_messages(messages));
		return 0;
	}
	if (json_is_array(prompt) && json_array_size(prompt) == 1 &&
	    !json_is_integer(json_array_get(prompt, 0)))
		prompt = json_array_get(prompt, 0);
	if (json_is_array(prompt) && !json_is_integer(json_array_get(prompt, 0)))
		return err_why(why, why_n, -EINVAL, "prompt: several prompts in one line; give each its own");
	json_object_set(request, json_is_array(prompt) ? "tokens" : "prompt", (json_t *)prompt);
	return 0;
}

json_t *openai_body_request(const json_t *body, const char *url, char *why, size_t why_n)
{
	bool chat = is_chat(url);
	const char *key;
	json_t *v;
	if (!chat && strcmp(url, "/v1/completions") != 0) {
		err_why(why, why_n, -EINVAL, "url must be /v1/chat/completions or /v1/completions");
		return NULL;
	}
	if (json_is_true(json_object_get(body, "stream"))) {
		err_why(why, why_n, -EINVAL, "a batch's lines cannot be streamed");
		return NULL;
	}
	json_t *params = json_object();
	json_t *request = json_pack("{s:s, s:b, s:o}", "op", "submit", "stream", 0, "params", params);
	json_object_foreach((json_t *)body, key, v)
	{
		bool known = strcmp(key, "prompt") == 0 || strcmp(key, "messages") == 0 ||
			     strcmp(key, "stream") == 0;
		if (known || json_is_null(v) || take_field(request, key, v))
			continue;
		json_object_set(params, strcmp(key, "max_completion_tokens") == 0 ? "max_tokens" : key, v);
	}
	if (chat)
		chat_logprobs(params, body);
	else if (!json_object_get(params, "max_tokens"))
		json_object_set_new(params, "max_tokens", json_integer(16));
	if (!set_prompt(request, body, url, why, why_n))
		return request;
	json_decref(request);
	return NULL;
}

/* --- replies --- */

static json_t *error_object(const char *message, const char *type, const char *code)
{
	return json_pack("{s:{s:s, s:s, s:n, s:s?}}", "error", "message", message, "type", type, "param",
			 "code", code);
}

static void put_json(struct buf *out, json_t *v)
{
	char *text = json_dumps(v, JSON_COMPACT);
	buf_puts(out, text ? text : "null");
	free(text);
	json_decref(v);
}

void openai_body_error(struct buf *out, const char *message)
{
	put_json(out, error_object(message, "invalid_request_error", NULL));
}

static unsigned put_error(struct buf *out, const json_t *reply)
{
	static const struct {
		const char *code;
		unsigned status;
		const char *type, *name;
	} known[] = {{"E_BAD_REQUEST", 400, "invalid_request_error", NULL},
		     {"E_TOO_LONG", 400, "invalid_request_error", "context_length_exceeded"},
		     {"E_DEADLINE", 504, "server_error", "deadline"},
		     {"E_WORKER_LOST", 503, "server_error", "worker_lost"}};
	const char *code = json_string_value(json_object_get(reply, "code"));
	const char *message = json_string_value(json_object_get(reply, "message"));
	for (size_t i = 0; code && i < sizeof known / sizeof known[0]; i++)
		if (strcmp(code, known[i].code) == 0) {
			put_json(out, error_object(message ? message : "", known[i].type, known[i].name));
			return known[i].status;
		}
	put_json(out, error_object(message ? message : "", "server_error", "internal_error"));
	return 500;
}

static json_t *token_name(const json_t *id)
{
	char name[40];
	snprintf(name, sizeof name, "token_id:%lld", (long long)json_integer_value(id));
	return json_string(name);
}

static json_t *chat_token(const json_t *t, bool top)
{
	json_t *o = json_pack("{s:o, s:O, s:n}", "token", token_name(json_object_get(t, "token")), "logprob",
			      json_object_get(t, "logprob"), "bytes");
	if (!top)
		return o;
	json_t *list = json_array();
	size_t i;
	const json_t *k;
	json_array_foreach(json_object_get(t, "top"), i, k) json_array_append_new(list, chat_token(k, false));
	json_object_set_new(o, "top_logprobs", list);
	return o;
}

static json_t *logprobs_of(const json_t *output, bool chat)
{
	const json_t *list = json_object_get(output, "logprobs"), *t, *k;
	size_t i, n;
	if (!list)
		return json_null();
	if (chat) {
		json_t *content = json_array();
		json_array_foreach(list, i, t) json_array_append_new(content, chat_token(t, true));
		return json_pack("{s:o, s:n}", "content", content, "refusal");
	}
	json_t *tokens = json_array(), *values = json_array(), *tops = json_array();
	json_array_foreach(list, i, t)
	{
		json_t *top = json_object();
		json_array_append_new(tokens, token_name(json_object_get(t, "token")));
		json_array_append(values, json_object_get(t, "logprob"));
		json_array_foreach(json_object_get(t, "top"), n, k)
		{
			json_t *name = token_name(json_object_get(k, "token"));
			json_object_set(top, json_string_value(name), json_object_get(k, "logprob"));
			json_decref(name);
		}
		json_array_append_new(tops, top);
	}
	return json_pack("{s:o, s:o, s:o}", "tokens", tokens, "token_logprobs", values, "top_logprobs", tops);
}

static json_t *choice_of(const json_t *output, bool chat)
{
	json_t *text = json_object_get(output, "text"), *index = json_object_get(output, "index"),
	       *finish = json_object_get(output, "finish_reason");
	json_t *c = chat ? json_pack("{s:O, s:{s:s, s:O, s:n}}", "index", index, "message", "role",
				     "assistant", "content", text, "refusal")
			 : json_pack("{s:O, s:O}", "index", index, "text", text);
	json_object_set_new(c, "logprobs", logprobs_of(output, chat));
	json_object_set(c, "finish_reason", finish);
	return c;
}

unsigned openai_body_reply(struct buf *out, const json_t *reply, const json_t *body, const char *url,
			   const char *served)
{
	const char *op = json_string_value(json_object_get(reply, "op"));
	const char *named = json_string_value(json_object_get(body, "model")),
		   *model = named ? named : served;
	const char *job = json_string_value(json_object_get(reply, "job"));
	bool chat = is_chat(url);
	char id[96];
	if (!op || strcmp(op, "done") != 0)
		return put_error(out, reply);
	const json_t *usage = json_object_get(reply, "usage"), *o;
	json_int_t prompt = json_integer_value(json_object_get(usage, "prompt_tokens"));
	json_int_t generated = json_integer_value(json_object_get(usage, "completion_tokens"));
	json_int_t cached = json_integer_value(json_object_get(usage, "cached_tokens"));
	json_t *choices = json_array();
	size_t i;
	json_array_foreach(json_object_get(reply, "outputs"), i, o)
		json_array_append_new(choices, choice_of(o, chat));
	snprintf(id, sizeof id, "%s%.64s", chat ? "chatcmpl-" : "cmpl-", job ? job : "");
	put_json(out, json_pack("{s:s, s:s, s:I, s:s?, s:o, s:{s:I, s:I, s:I, s:{s:I}}}", "id", id, "object",
				chat ? "chat.completion" : "text_completion", "created",
				(json_int_t)clock_unix(), "model", model, "choices", choices, "usage",
				"prompt_tokens", prompt, "completion_tokens", generated, "total_tokens",
				prompt + generated, "prompt_tokens_details", "cached_tokens", cached));
	return 200;
}
