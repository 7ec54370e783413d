#include "controller/chat/chat.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/json.h"
#include "base/charclass.h"
#include "controller/chat/chat_messages.h"
#include "controller/chat/chat_template.h"
#include "controller/chat/past_calls.h"
#include "controller/chat/template_probe.h"
#include "controller/jinja/jinja.h"
#include "base/utf8.h"

#include <stdlib.h>
#include <string.h>

static const char continue_tag[] = "CONTINUE_FINAL_MESSAGE_TAG ";

struct chat {
	struct chat_template t;
	struct template_facts facts[2]; /* for requests without and with tools */
};

/* Roles accepted with every template; other roles only if the template mentions them. */
static const char *const roles[] = {"system", "developer", "user", "assistant", "tool", "function"};

/* ---- rendering ---- */

/* Truncate the prompt to n bytes. */
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

/* Return the last occurrence in text, or NULL. */
static const char *last_of(const struct buf *text, const char *what, size_t n)
{
	for (size_t at = text->len + 1; at-- > 0 && text->len >= n;)
		if (at + n <= text->len && memcmp(text->p + at, what, n) == 0)
			return text->p + at;
	return NULL;
}

/* Cut the prompt at the mark after the last message's content. The mark ends in a space: if that is missing,
 * the template trims contents, and white space before the mark is removed too. */
static int cut_at_mark(struct jinja_result *r, struct why *why)
{
	size_t n = strlen(continue_tag);
	const char *hit = last_of(&r->text, continue_tag, n - 1);
	if (!hit)
		return err_why(why, -EINVAL,
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

static int check_role(const struct chat *c, const char *role, size_t at, struct why *why)
{
	for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
		if (strcmp(role, roles[i]) == 0)
			return 0;
	if (*role && chat_mentions(c, role))
		return 0;
	return err_why(
		why, -EINVAL,
		"message %zu: unknown role %.32s; there are system, user and assistant, and what the model's "
		"chat template mentions",
		at, role);
}

static int check(const struct chat *c, const struct chat_input *rq, struct why *why)
{
	size_t i;
	const json_t *m;
	if (!json_is_array(rq->messages) || json_array_size(rq->messages) == 0)
		return err_why(why, -EINVAL, "there is no message");
	if (rq->add_generation_prompt && rq->continue_final_message)
		return err_why(why, -EINVAL,
			       "add_generation_prompt and continue_final_message exclude each other");
	if ((rq->tools && !json_is_array(rq->tools)) || (rq->documents && !json_is_array(rq->documents)))
		return err_why(why, -EINVAL, "tools and documents must be arrays");
	if (rq->kwargs && !json_is_object(rq->kwargs))
		return err_why(why, -EINVAL, "chat_template_kwargs must be an object");
	json_array_foreach(rq->messages, i, m)
	{
		const char *role = json_string_value(json_object_get(m, "role"));
		if (!role)
			return err_why(why, -EINVAL, "message %zu must have a role", i);
		int rc = check_role(c, role, i, why);
		if (rc)
			return rc;
	}
	return 0;
}

static int render_with_tools(const struct chat *c, enum tools_passing way, const struct chat_input *rq,
			     json_t *messages, struct jinja_result *r, struct why *why)
{
	struct chat_input with = *rq;
	json_t *variables = tools_pass(way, rq->tools, rq->kwargs, messages);
	with.kwargs = variables;
	const int rc = chat_template_render(&c->t, &with, messages, NULL, r, why);
	json_decref(variables);
	return rc;
}

static const struct tools_spelling *spelling_of(const struct chat *c, const struct tools_format *f)
{
	int i = 0;
	while (i + 1 < TOOLS_SPELLINGS_MAX && f->spellings[i].needs &&
	       !chat_mentions(c, f->spellings[i].needs))
		i++;
	return &f->spellings[i];
}

int chat_render_json(const struct chat *c, const struct chat_input *rq, struct chat_prompt *out,
		     struct why *why)
{
	struct jinja_result r = {0};
	struct past_calls past = {0};
	json_t *messages = NULL;
	const struct template_facts *facts = chat_facts(c, json_array_size(rq->tools) > 0);
	const struct tools_format *format = tools_format(rq->calls);
	int rc = check(c, rq, why);
	if (!rc)
		rc = chat_messages_for(facts, rq, rq->continue_final_message ? continue_tag : NULL, &messages,
				       why);
	if (!rc && !facts->calls && format && !format->channels)
		past_calls_take(&past, format, spelling_of(c, format), messages);
	if (!rc)
		rc = render_with_tools(c, facts->tools, rq, messages, &r, why);
	if (!rc && past.n_all)
		past_calls_put(&past, &r);
	past_calls_fini(&past);
	if (!rc && rq->continue_final_message)
		rc = cut_at_mark(&r, why);
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

bool chat_mentions(const struct chat *c, const char *word)
{
	return c->t.text && strstr(c->t.text, word) != NULL;
}

const struct template_facts *chat_facts(const struct chat *c, bool tools)
{
	return &c->facts[tools];
}

/* ---- loading ---- */

int chat_load(const char *dir, struct chat **out, struct why *why)
{
	struct chat *c = xcalloc(1, sizeof *c);
	int rc = chat_template_load(dir, &c->t, why);
	if (rc) {
		chat_free(c);
		return rc;
	}
	for (int tools = 0; tools < 2; tools++)
		template_probe(&c->t, tools, &c->facts[tools]);
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
