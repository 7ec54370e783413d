#include "controller/chat/chat.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/json.h"
#include "base/charclass.h"
#include "controller/chat/chat_messages.h"
#include "controller/chat/chat_template.h"
#include "controller/jinja/jinja.h"
#include "base/utf8.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { VARS_MAX = 64 };

static const char needle[] = "Xprobe";
static const char continue_tag[] = "CONTINUE_FINAL_MESSAGE_TAG ";

struct chat {
	struct chat_template t;
	struct chat_accepts accepts; /* of the default template */
};

/* Roles, of which templates make special tokens ('<|' + role + '|>'): not plain text. */
static const char *const roles[] = {"system",   "developer", "user",        "assistant", "tool",
				    "function", "ipython",   "observation", "model",     NULL};

/* The first N_ROLES_ALWAYS are accepted for every template, the others if it mentions them. */
enum { N_ROLES_ALWAYS = 6 };

static int64_t now_us(void)
{
	struct timespec ts;
	clock_gettime(CLOCK_REALTIME, &ts);
	return (int64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

/* ---- rendering ---- */

/* Variable names that transformers reserves. */
static bool is_reserved(const char *name)
{
	static const char *const names[] = {"messages", "tools", "documents", "add_generation_prompt",
					    "continue_final_message"};
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
		if (strcmp(name, names[i]) == 0)
			return true;
	return false;
}

/* The template's variables, into vars[VARS_MAX]; of two with the same name the later one counts. */
static int variables(const struct chat *c, const struct chat_input *rq, const json_t *messages,
		     struct jinja_var *vars, size_t *n, char *why, size_t why_n)
{
	bool tools = json_array_size(rq->tools) > 0, documents = json_is_array(rq->documents);
	const char *name;
	json_t *value;
	*n = 0;
	json_object_foreach(c->t.tokens, name, value) vars[(*n)++] =
		(struct jinja_var){.name = name, .value = value};
	if (json_object_size(rq->kwargs) > VARS_MAX - 4 - *n)
		return err_why(why, why_n, -EINVAL,
			       "chat_template_kwargs has %zu keys, at most %zu are accepted",
			       json_object_size(rq->kwargs), VARS_MAX - 4 - *n);
	json_object_foreach((json_t *)rq->kwargs, name, value)
	{
		if (is_reserved(name))
			return err_why(why, why_n, -EINVAL, "chat_template_kwargs must not have the key %s",
				       name);
		vars[(*n)++] = (struct jinja_var){.name = name, .value = value, .input = true};
	}
	vars[(*n)++] = (struct jinja_var){
		.name = "messages", .value = messages, .input = true, .word_key = "role", .words = roles};
	vars[(*n)++] =
		(struct jinja_var){.name = "tools", .value = tools ? rq->tools : json_null(), .input = true};
	vars[(*n)++] = (struct jinja_var){
		.name = "documents", .value = documents ? rq->documents : json_null(), .input = true};
	vars[(*n)++] = (struct jinja_var){.name = "add_generation_prompt",
					  .value = rq->add_generation_prompt ? json_true() : json_false()};
	return 0;
}

static int render(const struct chat *c, const struct jinja *t, const struct chat_input *rq,
		  const json_t *messages, struct jinja_result *out, char *why, size_t why_n)
{
	struct jinja_var vars[VARS_MAX];
	size_t n;
	int rc = variables(c, rq, messages, vars, &n, why, why_n);
	return rc ? rc : jinja_render(t, vars, n, NULL, now_us(), out, why, why_n);
}

/* Cuts the prompt at byte n. */
static void truncate_prompt(struct jinja_result *r, size_t n)
{
	r->text.len = n;
	if (r->text.p)
		r->text.p[n] = 0;
	while (r->n_input && r->input[r->n_input - 1].start >= n)
		r->n_input--;
	if (r->n_input && r->input[r->n_input - 1].end > n)
		r->input[r->n_input - 1].end = n;
}

/* The last occurrence in text, or NULL. */
static const char *last_of(const struct buf *text, const char *what, size_t n)
{
	for (size_t at = text->len + 1; at-- > 0 && text->len >= n;)
		if (at + n <= text->len && memcmp(text->p + at, what, n) == 0)
			return text->p + at;
	return NULL;
}

/* Cuts at the mark behind the last message's content.  The mark ends in a space: if the template has
 * trimmed it, it trims contents, and space before the mark goes too. */
static int cut_at_mark(struct jinja_result *r, char *why, size_t why_n)
{
	size_t n = strlen(continue_tag);
	const char *hit = last_of(&r->text, continue_tag, n - 1);
	if (!hit)
		return err_why(why, why_n, -EINVAL,
			       "continue_final_message: the chat template does not show the final message");
	size_t at = (size_t)(hit - r->text.p);
	bool kept = at + n <= r->text.len && hit[n - 1] == ' ';
	int len;
	while (!kept && at > 0) {
		uint32_t cp = utf8_before(r->text.p, at, &len);
		if (!charclass_is_space(cp))
			break;
		at -= (size_t)len;
	}
	truncate_prompt(r, at);
	return 0;
}

static int check_role(const struct chat *c, const char *role, size_t at, char *why, size_t why_n)
{
	for (size_t i = 0; i < N_ROLES_ALWAYS; i++)
		if (strcmp(role, roles[i]) == 0)
			return 0;
	if (*role && chat_mentions(c, role))
		return 0;
	return err_why(
		why, why_n, -EINVAL,
		"message %zu: unknown role %.32s; there are system, user and assistant, and what the model's "
		"chat template mentions",
		at, role);
}

static int check(const struct chat *c, const struct chat_input *rq, char *why, size_t why_n)
{
	size_t i;
	const json_t *m;
	if (!json_is_array(rq->messages) || json_array_size(rq->messages) == 0)
		return err_why(why, why_n, -EINVAL, "there is no message");
	if (rq->add_generation_prompt && rq->continue_final_message)
		return err_why(why, why_n, -EINVAL,
			       "add_generation_prompt and continue_final_message exclude each other");
	if ((rq->tools && !json_is_array(rq->tools)) || (rq->documents && !json_is_array(rq->documents)))
		return err_why(why, why_n, -EINVAL, "tools and documents must be arrays");
	if (rq->kwargs && !json_is_object(rq->kwargs))
		return err_why(why, why_n, -EINVAL, "chat_template_kwargs must be an object");
	json_array_foreach(rq->messages, i, m)
	{
		const char *role = json_string_value(json_object_get(m, "role"));
		if (!role)
			return err_why(why, why_n, -EINVAL, "message %zu must have a role", i);
		int rc = check_role(c, role, i, why, why_n);
		if (rc)
			return rc;
	}
	return 0;
}

int chat_render_json(const struct chat *c, const struct chat_input *rq, struct chat_prompt *out, char *why,
		     size_t why_n)
{
	struct jinja_result r = {0};
	const struct jinja *t;
	json_t *messages = NULL;
	int rc = check(c, rq, why, why_n);
	if (!rc)
		rc = chat_template_choose(&c->t, json_array_size(rq->tools) > 0, &t, why, why_n);
	if (!rc)
		rc = chat_messages_for(&c->accepts, rq, rq->continue_final_message ? continue_tag : NULL,
				       &messages, why, why_n);
	if (!rc)
		rc = render(c, t, rq, messages, &r, why, why_n);
	if (!rc && rq->continue_final_message)
		rc = cut_at_mark(&r, why, why_n);
	json_decref(messages);
	if (rc) {
		jinja_result_fini(&r);
		return rc;
	}
	*out = (struct chat_prompt){.text = r.text, .plain = r.input, .n_plain = r.n_input};
	return 0;
}

void chat_prompt_fini(struct chat_prompt *p)
{
	buf_fini(&p->text);
	free(p->plain);
	*p = (struct chat_prompt){0};
}

/* ---- what the template supports ---- */

/* Whether the prompt of these messages contains the needle, and not absent, which a dump of a list would. */
static bool shows(const struct chat *c, json_t *messages, const char *absent)
{
	struct chat_input rq = {.add_generation_prompt = true};
	struct jinja_result r = {0};
	bool is = render(c, c->t.main, &rq, messages, &r, NULL, 0) == 0 && r.text.p &&
		  strstr(r.text.p, needle) && !(absent && strstr(r.text.p, absent));
	jinja_result_fini(&r);
	json_decref(messages);
	return is;
}

static json_t *probe_call(json_t *arguments)
{
	return json_pack("[{s:s, s:s}, {s:s, s:s, s:[{s:s, s:s, s:{s:s, s:o}}]}, {s:s, s:s, s:s, s:s}]",
			 "role", "user", "content", "a", "role", "assistant", "content", "", "tool_calls",
			 "id", "call00001", "type", "function", "function", "name", "f", "arguments",
			 arguments, "role", "tool", "content", "b", "name", "f", "tool_call_id", "call00001");
}

/* Templates differ in the forms of content and arguments that they support.  Users of transformers know
 * their model, clients of an API do not: so each form is tried once. */
static void probe(struct chat *c)
{
	struct chat_accepts *a = &c->accepts;
	bool text = shows(c, json_pack("[{s:s, s:s}]", "role", "user", "content", needle), NULL);
	bool parts = shows(c,
			   json_pack("[{s:s, s:[{s:s, s:s}]}]", "role", "user", "content", "type", "text",
				     "text", needle),
			   "'text'");
	bool object = shows(c, probe_call(json_pack("{s:s}", needle, "v")), NULL);
	bool string = shows(c, probe_call(json_string("{\"Xprobe\": \"v\"}")), NULL);
	a->parts = parts;
	a->text = text || !parts;
	a->argument_text = string && !object;
	a->developer = chat_mentions(c, "developer");
}

bool chat_mentions(const struct chat *c, const char *word)
{
	return c->t.text && strstr(c->t.text, word) != NULL;
}

/* ---- loading ---- */

int chat_load(const char *dir, struct chat **out, char *why, size_t why_n)
{
	struct chat *c = xcalloc(1, sizeof *c);
	int rc = chat_template_load(dir, &c->t, why, why_n);
	if (rc) {
		chat_free(c);
		return rc;
	}
	probe(c);
	*out = c;
	return 0;
}

void chat_free(struct chat *c)
{
	if (!c)
		return;
	chat_template_fini(&c->t);
	free(c);
}
