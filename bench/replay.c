#include "bench/replay.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/file.h"
#include "base/json.h"
#include "formats/batch_lines.h"

#include <stdlib.h>
#include <string.h>

enum { FILE_BYTES_MAX = 1 << 30 };

static const char url_chat[] = "/v1/chat/completions", url_completions[] = "/v1/completions";

static void add_request(struct replay *r, const struct replay_request *q)
{
	array_grow(r->v, r->cap, r->n + 1);
	r->v[r->n++] = *q;
}

/* Keep a tree until replay_fini(). */
static void keep(struct replay *r, json_t *tree)
{
	array_grow(r->trees, r->cap_trees, r->n_trees + 1);
	r->trees[r->n_trees++] = tree;
}

/* ---- batches ---- */

static int add_line(struct replay *r, const char *p, size_t n, struct why *why)
{
	struct batch_line_request line;
	struct batch_line_problem problem;
	const int rc = batch_line_parse(p, n, NULL, &line, &problem);
	if (line.tree)
		keep(r, line.tree);
	if (rc)
		return err_why(why, rc, "%s", problem.why.text);
	const char *url = json_string_value(json_object_get(line.tree, "url"));
	const bool chat = strcmp(url, url_chat) == 0;
	if (!chat && strcmp(url, url_completions) != 0)
		return err_why(why, -EINVAL, "url \"%.80s\" is neither %s nor %s", url, url_chat,
			       url_completions);
	if (r->n && chat != r->chat)
		return err_why(why, -EINVAL, "url \"%s\" is not that of the lines before", url);
	r->chat = chat;
	add_request(r, &(struct replay_request){.body = line.body});
	return 0;
}

/* ---- conversations ---- */

/* Return the role for a name in ShareGPT's files. */
static const char *role_of(const char *from)
{
	static const char *const names[][2] = {{"human", "user"},      {"user", "user"},
					       {"gpt", "assistant"},   {"chatgpt", "assistant"},
					       {"bing", "assistant"},  {"bard", "assistant"},
					       {"model", "assistant"}, {"assistant", "assistant"},
					       {"system", "system"},   {"tool", "tool"}};
	for (size_t i = 0; from && i < sizeof names / sizeof *names; i++)
		if (strcmp(from, names[i][0]) == 0)
			return names[i][1];
	return NULL;
}

static const char *text_of(const json_t *o, const char *key)
{
	const char *text = json_string_value(json_object_get(o, key));
	return text ? text : "";
}

static bool is_reply(const json_t *message)
{
	return strcmp(text_of(message, "role"), "assistant") == 0;
}

/* Return whether a reply may follow a message of this role. */
static bool is_asked(const json_t *message)
{
	const char *role = text_of(message, "role");
	return *role && strcmp(role, "system") != 0 && strcmp(role, "developer") != 0 && !is_reply(message);
}

/* Convert ShareGPT turns, {"from": .., "value": ..}, to messages, without replies before the first question.
 * The caller owns *out. */
static int read_sharegpt(const json_t *turns, json_t **out, struct why *why)
{
	const json_t *turn;
	bool asked = false;
	size_t i;
	*out = json_array();
	json_array_foreach(turns, i, turn)
	{
		const char *role = role_of(text_of(turn, "from"));
		json_t *value = json_object_get(turn, "value");
		if (!role || !json_is_string(value)) {
			json_decref(*out);
			return err_why(why, -EINVAL,
				       "turn %zu: from \"%.40s\" is not known, or its value is not a text",
				       i + 1, text_of(turn, "from"));
		}
		json_t *message = json_pack("{s:s, s:O}", "role", role, "content", value);
		asked = asked || is_asked(message);
		if (asked || !is_reply(message))
			json_array_append(*out, message);
		json_decref(message);
	}
	return 0;
}

/* Add the requests of a conversation.  A conversation without a question has none. */
static int add_conversation(struct replay *r, const json_t *c, struct why *why)
{
	const json_t *turns = json_object_get(c, "conversations"), *messages = json_object_get(c, "messages");
	if (!json_is_array(turns) && !json_is_array(messages))
		return err_why(why, -EINVAL, "it has neither \"messages\" nor \"conversations\"");
	if (!json_is_array(messages)) {
		json_t *read;
		const int rc = read_sharegpt(turns, &read, why);
		if (rc)
			return rc;
		keep(r, read);
		messages = read;
	}
	const size_t n = json_array_size(messages), first = r->n;
	bool asked = false;
	for (size_t i = 0; i <= n; i++) {
		const json_t *m = json_array_get(messages, i);
		const bool reply = i == n || is_reply(m);
		if (asked && reply)
			add_request(r, &(struct replay_request){.messages = messages,
								.n_messages = i,
								.tools = json_object_get(c, "tools"),
								.follows = r->n > first});
		asked = !reply && (asked || is_asked(m));
	}
	return 0;
}

/* ---- files ---- */

static int read_list(struct replay *r, const char *p, size_t n, size_t most, struct why *why)
{
	json_t *list, *c;
	size_t i;
	int rc = json_parse(p, n, &list, why);
	if (rc)
		return rc;
	keep(r, list);
	r->chat = true;
	json_array_foreach(list, i, c)
	{
		if (most && i == most)
			break;
		rc = add_conversation(r, c, why);
		if (rc)
			return err_prefix(why, rc, "conversation %zu", i + 1);
	}
	return 0;
}

/* Read a line.  The first line determines the kind of all lines. */
static int read_line(struct replay *r, bool first, const char *p, size_t n, struct why *why)
{
	json_t *tree;
	const int rc = json_parse(p, n, &tree, why);
	if (rc)
		return rc;
	if (first)
		r->batch = json_object_get(tree, "body") != NULL;
	if (r->batch) {
		json_decref(tree);
		return add_line(r, p, n, why);
	}
	keep(r, tree);
	r->chat = true;
	return add_conversation(r, tree, why);
}

static int read_lines(struct replay *r, const char *p, size_t n, size_t most, struct why *why)
{
	size_t number = 0, taken = 0;
	for (const char *end = p + n; p < end && !(most && taken == most);) {
		const char *newline = memchr(p, '\n', (size_t)(end - p)), *stop = newline ? newline : end;
		number++;
		if (strspn(p, " \t\r") < (size_t)(stop - p)) {
			const int rc = read_line(r, taken++ == 0, p, (size_t)(stop - p), why);
			if (rc)
				return err_prefix(why, rc, "line %zu", number);
		}
		p = stop + 1;
	}
	return 0;
}

int replay_read(const char *path, size_t most, struct replay *out, struct why *why)
{
	char *text;
	size_t n;
	*out = (struct replay){0};
	int rc = file_read(path, FILE_BYTES_MAX, &text, &n, why);
	if (rc)
		return rc;
	const char *p = text;
	if (n >= 3 && memcmp(p, "\xef\xbb\xbf", 3) == 0)
		p += 3, n -= 3;
	if (p[strspn(p, " \t\r\n")] == '[')
		rc = read_list(out, p, n, most, why);
	else
		rc = read_lines(out, p, n, most, why);
	free(text);
	if (!rc && !out->n)
		rc = err_why(why, -EINVAL, "there is no request in it");
	return rc ? err_prefix(why, rc, "%s", path) : 0;
}

void replay_fini(struct replay *r)
{
	for (size_t i = 0; i < r->n_trees; i++)
		json_decref(r->trees[i]);
	free(r->trees);
	free(r->v);
	*r = (struct replay){0};
}

/* ---- requests ---- */

/* Limit the members that bound the output to `most`; add max_tokens if there is none. */
static void cut_output(json_t *body, uint32_t most)
{
	static const char *const keys[] = {"max_completion_tokens", "max_tokens"};
	bool any = false;
	for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
		const json_t *v = json_get(body, keys[i]);
		any = any || v;
		if (v && json_integer_value(v) > (json_int_t)most)
			json_object_set_new(body, keys[i], json_integer((json_int_t)most));
	}
	if (!any)
		json_object_set_new(body, "max_tokens", json_integer((json_int_t)most));
}

static json_t *conversation_body(const struct replay_request *r, uint32_t n_output)
{
	json_t *body = json_object(), *messages = json_array();
	for (size_t i = 0; i < r->n_messages; i++)
		json_array_append(messages, json_array_get(r->messages, i));
	json_object_set_new(body, "messages", messages);
	if (r->tools)
		json_object_set(body, "tools", (json_t *)r->tools);
	json_object_set_new(body, "max_tokens", json_integer((json_int_t)n_output));
	return body;
}

void replay_put(const struct replay_request *r, const json_t *common, uint32_t n_output, uint32_t max_output,
		struct buf *out)
{
	json_t *body = r->body ? json_copy((json_t *)r->body) : conversation_body(r, n_output);
	if (max_output)
		cut_output(body, max_output);
	json_object_update(body, (json_t *)common);
	char *text = json_text(body, JSON_COMPACT);
	buf_puts(out, text ? text : "{}");
	free(text);
	json_decref(body);
}
