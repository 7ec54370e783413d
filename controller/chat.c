#include "controller/chat.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/file.h"
#include "controller/utf8.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
	CONFIG_BYTES_MAX = 64 << 20,
	TEMPLATE_BYTES_MAX = 1 << 20,
	NESTED_MAX = 32,
	APOSTROPHE = 1, /* ' within a literal of canonical() */
};

enum style { CHATML, LLAMA3, LLAMA2, MISTRAL };
enum date { DATE_NONE, DATE_FIXED, DATE_TODAY }; /* Llama 3.1 and later say it */

struct chat {
	enum style style;
	bool alternate; /* user and assistant must take turns */
	bool trim;      /* contents lose white space around them */
	bool bos;       /* the prompt begins with the BOS token */
	bool thinking;  /* ChatML: Qwen3's rules for <think> */
	enum date date;
	bool trim_system;                         /* Llama 2 */
	bool system;                              /* Mistral: takes a system message */
	char *assistant_before, *assistant_after; /* Mistral: around a reply, EOS apart */
	char *default_system;                     /* ChatML: when there is none; or NULL */
	char *bos_token, *eos_token;              /* "" where there is none */
};

/* --- which style a template is --- */

/* The end of the tag that begins at t ("{{", "{%" or "{#"): behind its closing brackets.
 * NULL: it has none.  Brackets within string literals do not count. */
static const char *tag_end(const char *t)
{
	const char close[3] = {t[1] == '{' ? '}' : t[1], '}', 0};
	if (t[1] == '#')
		return strstr(t, close) ? strstr(t, close) + 2 : NULL;
	char quote = 0;
	for (t += 2; *t; t++) {
		if (quote && *t == '\\' && t[1])
			t++;
		else if (quote)
			quote = *t == quote ? 0 : quote;
		else if (*t == '\'' || *t == '"')
			quote = *t;
		else if (strncmp(t, close, 2) == 0)
			return t + 2;
	}
	return NULL;
}

static const char *next_tag(const char *t)
{
	while ((t = strchr(t, '{')) && t[1] != '{' && t[1] != '%' && t[1] != '#')
		t++;
	return t;
}

/* A tag as canonical() writes it. */
static void put_tag(struct buf *b, const char *t, const char *end)
{
	char quote = 0;
	for (; t < end; t++) {
		if (quote && *t == '\\' && t[1]) {
			t++;
			buf_putc(b, *t == 'n' ? '\n' : *t == '\'' ? APOSTROPHE : *t);
		} else if (quote) {
			quote = *t == quote ? 0 : quote;
			buf_putc(b, !quote ? '\'' : *t == '\'' ? APOSTROPHE : *t);
		} else if (*t == '[' && (t[1] == '\'' || t[1] == '"') && strchr(t + 2, t[1]) &&
			   strchr(t + 2, t[1])[1] == ']') {
			const char *close = strchr(t + 2, t[1]);
			buf_putc(b, '.');
			buf_put(b, t + 2, (size_t)(close - t - 2));
			t = close + 1;
		} else if (*t == '\'' || *t == '"') {
			quote = *t;
			buf_putc(b, '\'');
		} else if (!strchr(" \t\r\n-", *t) ||
			   (*t == '-' && t[-1] != '{' && t[-1] != '%' && t[1] != '%' && t[1] != '}')) {
			buf_putc(b, *t);
		}
	}
}

/* Does template text between tags reach the prompt?  White space is dropped as transformers
 * sets Jinja up: trim_blocks, lstrip_blocks, and what the tags' own - say.  before: the tag that
 * ends at t, after: the one that begins at end; NULL at the template's ends. */
static bool text_is_output(const char *t, const char *end, const char *before, const char *after)
{
	bool strip_left = before && t[-3] == '-', strip_right = after && after[2] == '-';
	if (before && !strip_left && before[1] != '{' && t < end && *t == '\n')
		t++;
	while (strip_left && t < end && strchr(" \t\r\n", *t))
		t++;
	while (strip_right && t < end && strchr(" \t\r\n", end[-1]))
		end--;
	if (after && !strip_right && after[1] != '{') {
		const char *line = end;
		while (line > t && (line[-1] == ' ' || line[-1] == '\t'))
			line--;
		if ((line > t && line[-1] == '\n') || (line == t && (!before || t[-1] == '\n')))
			end = line;
	}
	if (!after && end > t && end[-1] == '\n')
		end--;
	return t < end;
}

/* A template without what does not matter, so that it can be searched: its tags in a row, no
 * white space outside string literals, one kind of quotes, a['b'] as a.b, \n as the character,
 * no - at the brackets, no comments; ' within a literal is APOSTROPHE.  NULL: it has text outside its tags,
 * which none of the built-in styles has. */
static char *canonical(const char *t)
{
	struct buf b = {0};
	const char *before = NULL;
	for (;;) {
		const char *tag = next_tag(t), *end = tag ? tag : t + strlen(t);
		if (text_is_output(t, end, before, tag))
			break;
		if (!tag)
			return buf_take(&b);
		t = tag_end(tag);
		if (!t)
			break;
		if (tag[1] != '#')
			put_tag(&b, tag, t);
		before = tag;
	}
	buf_fini(&b);
	return NULL;
}

static bool has(const char *t, const char *what)
{
	return strstr(t, what) != NULL;
}

/* The end of a tag of a canonical template. */
static const char *canonical_end(const char *t)
{
	const char *close = t[1] == '{' ? "}}" : "%}";
	bool quoted = false;
	for (t += 2; *t; t++) {
		if (*t == '\'')
			quoted = !quoted;
		else if (!quoted && strncmp(t, close, 2) == 0)
			return t + 2;
	}
	return t;
}

static bool tag_is(const char *t, const char *end, const char *begins)
{
	return (size_t)(end - t) >= strlen(begins) && strncmp(t, begins, strlen(begins)) == 0;
}

/* A condition that holds only with tools, which messages here never have. */
static bool is_about_tools(const char *t, const char *end)
{
	size_t n = (size_t)(end - t);
	return memmem(t, n, "tool", 4) && !memmem(t, n, "ifnot(", 6) &&
	       !memmem(t, n, "andnotmessage.tool_calls", 24);
}

static bool is_one_of(const char *t, const char *end, const char *const *known)
{
	size_t len = (size_t)(end - t);
	if (tag_is(t, end, "{{raise_exception("))
		return true;
	for (size_t i = 0; known[i]; i++) {
		size_t n = strlen(known[i]);
		if (known[i][n - 1] == '*' ? strncmp(t, known[i], n - 1) == 0
					   : len == n && strncmp(t, known[i], n) == 0)
			return true;
	}
	return false;
}

/* Every {{ }} that can be reached without tools is one of these, or raises an exception.  An
 * entry that ends in * is a beginning.  So that no template is taken for less than it says. */
static bool outputs_are(const char *t, const char *const *known)
{
	bool alive[NESTED_MAX + 1] = {true};
	int depth = 0;
	for (const char *end; *t; t = end) {
		end = canonical_end(t);
		if (tag_is(t, end, "{%if") || tag_is(t, end, "{%for") || tag_is(t, end, "{%macro")) {
			if (++depth > NESTED_MAX)
				return false;
			alive[depth] = alive[depth - 1] && t[2] != 'm' && !is_about_tools(t, end);
		} else if (tag_is(t, end, "{%el") && depth > 0) {
			alive[depth] = alive[depth - 1] && !is_about_tools(t, end);
		} else if (tag_is(t, end, "{%end") && !tag_is(t, end, "{%endset") && depth > 0) {
			depth--;
		}
		if (t[1] == '{' && alive[depth] && !is_one_of(t, end, known))
			return false;
	}
	return true;
}

static bool is_chatml(struct chat *c, const char *t)
{
	static const char *const outputs[] = {
		"{{bos_token}}",
		"{{'<|im_start|>'+message.role+'\n'+message.content+'<|im_end|>'+'\n'}}",
		"{{'<|im_start|>'+message.role+'\n'+message.content+'<|im_end|>\n'}}",
		"{{'<|im_start|>'+message.role+'\n'+message.content|trim+'<|im_end|>\n'}}",
		"{{'<|im_start|>system\n'+messages[0].content+'<|im_end|>\n'}}",
		"{{'<|im_start|>system\n*", /* a default: looked at below */
		"{{'<|im_start|>assistant\n'}}",
		/* an assistant's message with tool calls, and Qwen3's of every kind */
		"{{'<|im_start|>'+message.role}}",
		"{{'\n'+message.content}}",
		"{{'<|im_end|>\n'}}",
		"{{'<|im_start|>'+message.role+'\n'+content}}",
		"{{'<|im_start|>'+message.role+'\n<think>\n'+reasoning_content.strip('\n')+'\n</think>\n\n'+"
		"content.lstrip('\n')}}",
		"{{'<think>\n\n</think>\n\n'}}",
		NULL,
	};
	static const char system[] = "'<|im_start|>system\n";
	if (!outputs_are(t, outputs) || !has(t, "'<|im_start|>'+message.role+'\n'+") ||
	    !has(t, "'<|im_start|>assistant\n'"))
		return false;
	c->style = CHATML;
	c->trim = has(t, "message.content|trim");
	c->bos = has(t, "{{bos_token}}");
	/* '<|im_start|>system\nYou are ...<|im_end|>\n' as one literal: said when nothing else is. */
	for (const char *s = strstr(t, system); s; s = strstr(s + 1, system)) {
		const char *text = s + strlen(system), *end = strchr(text, '\'');
		const char *stop = strstr(text, "<|im_end|>\n'");
		if (end && stop && stop > text && stop < end && !c->default_system) {
			c->default_system = xstrdup(text);
			c->default_system[stop - text] = 0;
			for (char *p = c->default_system; (p = strchr(p, APOSTROPHE));)
				*p = '\'';
		}
	}
	if (!has(t, "think"))
		return true;
	c->thinking =
		has(t, "ifloop.index0>ns.last_query_index") &&
		has(t, "'\n<think>\n'+reasoning_content.strip('\n')+'\n</think>\n\n'+content.lstrip('\n')") &&
		has(t, "enable_thinkingisdefinedandenable_thinkingisfalse") &&
		has(t, "loop.lastor(notloop.lastandreasoning_content)");
	return c->thinking;
}

static bool is_llama3(struct chat *c, const char *t)
{
	static const char *const outputs[] = {
		"{{bos_token}}",
		"{{content}}", /* set to the next, by the first Llama 3 */
		"{{'<|start_header_id|>'+message.role+'<|end_header_id|>\n\n'+message.content|trim+'<|eot_id|"
		">'}}",
		"{{'<|start_header_id|>system<|end_header_id|>\n\n'}}",
		"{{'Cutting Knowledge Date: December 2023\n'}}",
		"{{'Today Date: '+date_string+'\n\n'}}",
		"{{system_message}}",
		"{{'<|eot_id|>'}}",
		"{{'<|start_header_id|>assistant<|end_header_id|>\n\n'}}",
		"{{'<|start_header_id|>'+'assistant'+'<|end_header_id|>\n\n'}}",
		NULL,
	};
	if (!outputs_are(t, outputs) ||
	    !has(t, "'<|start_header_id|>'+message.role+'<|end_header_id|>\n\n'+message.content|trim+'<|eot_"
		    "id|>'") ||
	    !has(t, "bos_token") ||
	    !(has(t, "'<|start_header_id|>assistant<|end_header_id|>\n\n'") ||
	      has(t, "'<|start_header_id|>'+'assistant'+'<|end_header_id|>\n\n'")))
		return false;
	c->style = LLAMA3;
	c->trim = c->bos = true;
	bool dated = has(t, "Cutting Knowledge Date");
	if (dated)
		c->date = has(t, "date_string=strftime_now('%d %b %Y')") ? DATE_TODAY : DATE_FIXED;
	return !dated || has(t, "date_string='26 Jul 2024'");
}

static bool is_llama2(struct chat *c, const char *t)
{
	static const char *const outputs[] = {
		"{{bos_token+'[INST] '+content|trim+' [/INST]'}}",
		"{{bos_token+'[INST] '+content.strip()+' [/INST]'}}",
		"{{' '+content|trim+' '+eos_token}}",
		"{{' '+content.strip()+' '+eos_token}}",
		NULL,
	};
	if (!outputs_are(t, outputs) || !has(t, "'<<SYS>>\n'+") || !has(t, "'\n<</SYS>>\n\n'"))
		return false;
	c->style = LLAMA2;
	c->trim = true;
	c->trim_system = has(t, "messages[0].content|trim");
	return c->alternate;
}

static bool is_mistral(struct chat *c, const char *t)
{
	static const struct {
		const char *text, *before, *after;
		bool trim;
	} replies[] = {
		{"{{message.content+eos_token}}", "", "", false},
		{"{{message.content+eos_token+' '}}", "", " ", false},
		{"{{' '+message.content+eos_token}}", " ", "", false},
		{"{{' '+message.content|trim+eos_token}}", " ", "", true},
	};
	static const char *const outputs[] = {
		"{{bos_token}}",
		"{{bos_token+system_message}}",
		"{{'[INST] '+message.content+' [/INST]'}}",
		"{{'[INST] '+message.content|trim+' [/INST]'}}",
		"{{message.content+eos_token}}",
		"{{message.content+eos_token+' '}}",
		"{{' '+message.content+eos_token}}",
		"{{' '+message.content|trim+eos_token}}",
		NULL,
	};
	if (!outputs_are(t, outputs) || !has(t, "{{bos_token"))
		return false;
	bool trimmed = has(t, "{{'[INST] '+message.content|trim+' [/INST]'}}");
	if (!trimmed && !has(t, "{{'[INST] '+message.content+' [/INST]'}}"))
		return false;
	c->style = MISTRAL;
	c->bos = true;
	c->trim = trimmed;
	c->system = has(t, "system_message=messages[0].content|trim+'\n\n'");
	if (has(t, "system") && !c->system)
		return false;
	for (size_t i = 0; i < sizeof replies / sizeof replies[0]; i++)
		if (has(t, replies[i].text) && replies[i].trim == trimmed) {
			c->assistant_before = xstrdup(replies[i].before);
			c->assistant_after = xstrdup(replies[i].after);
			return c->alternate;
		}
	return false;
}

static int recognize(struct chat *c, const char *template, char *why, size_t why_n)
{
	char *t = canonical(template);
	c->alternate = t && has(t, "Conversation roles must alternate");
	bool known = !t                              ? false
		     : has(t, "<|im_start|>")        ? is_chatml(c, t)
		     : has(t, "<|start_header_id|>") ? is_llama3(c, t)
		     : has(t, "<<SYS>>")             ? is_llama2(c, t)
		     : has(t, "[INST]")              ? is_mistral(c, t)
						     : false;
	free(t);
	if (known)
		return 0;
	return err_why(why, why_n, -ENOTSUP,
		       "the model's chat template is of no style that is built in (ChatML, Llama 3, Llama 2, "
		       "Mistral); send a prompt instead of messages");
}

/* --- loading --- */

/* "bos_token": a string, or {"content": string}. */
static char *special(const json_t *config, const char *key)
{
	const json_t *v = json_object_get(config, key);
	if (json_is_object(v))
		v = json_object_get(v, "content");
	return xstrdup(json_is_string(v) ? json_string_value(v) : "");
}

/* chat_template: a string, or a list of {name, template} with one named default. */
static const char *config_template(const json_t *config)
{
	const json_t *v = json_object_get(config, "chat_template"), *e;
	size_t i;
	if (json_is_string(v))
		return json_string_value(v);
	json_array_foreach(v, i, e)
	{
		const json_t *name = json_object_get(e, "name"), *t = json_object_get(e, "template");
		if (json_is_string(name) && json_is_string(t) &&
		    strcmp(json_string_value(name), "default") == 0)
			return json_string_value(t);
	}
	return NULL;
}

/* tokenizer_config.json of real models holds integers of 30 digits (model_max_length), which
 * json_read() refuses; here they may be reals. */
static int read_config(const char *path, json_t **out, char *why, size_t why_n)
{
	char *text;
	size_t n;
	json_error_t e;
	int rc = file_read(path, CONFIG_BYTES_MAX, &text, &n, why, why_n);
	if (rc)
		return rc;
	*out = json_loadb(text, n, JSON_DECODE_INT_AS_REAL, &e);
	free(text);
	if (!*out)
		return err_why(why, why_n, -EINVAL, "%s: not valid JSON: line %d, column %d: %s", path,
			       e.line, e.column, e.text);
	return 0;
}

int chat_load(const char *dir, struct chat **out, char *why, size_t why_n)
{
	char *config_path = file_join(dir, "tokenizer_config.json");
	char *jinja_path = file_join(dir, "chat_template.jinja");
	char *jinja = NULL;
	json_t *config = NULL;
	size_t n;
	int rc = 0;
	if (file_exists(config_path))
		rc = read_config(config_path, &config, why, why_n);
	/* The file goes before the key, as transformers has it. */
	if (!rc && file_exists(jinja_path))
		rc = file_read(jinja_path, TEMPLATE_BYTES_MAX, &jinja, &n, why, why_n);
	const char *template = jinja ? jinja : config_template(config);
	if (!rc && !template)
		rc = err_why(why, why_n, -ENOTSUP,
			     "the model has no chat template: send a prompt instead of messages");
	struct chat *c = xcalloc(1, sizeof *c);
	if (!rc) {
		c->bos_token = special(config, "bos_token");
		c->eos_token = special(config, "eos_token");
		rc = recognize(c, template, why, why_n);
	}
	json_decref(config);
	free(jinja);
	free(config_path);
	free(jinja_path);
	if (rc) {
		chat_free(c);
		return rc;
	}
	*out = c;
	return 0;
}

void chat_free(struct chat *c)
{
	if (!c)
		return;
	free(c->assistant_before);
	free(c->assistant_after);
	free(c->default_system);
	free(c->bos_token);
	free(c->eos_token);
	free(c);
}

const char *chat_style(const struct chat *c)
{
	static const char *const names[] = {"chatml", "llama3", "llama2", "mistral"};
	return names[c->style];
}

void chat_prompt_fini(struct chat_prompt *p)
{
	buf_fini(&p->text);
	free(p->plain);
	*p = (struct chat_prompt){0};
}

/* --- pieces of text --- */

struct piece {
	const char *p;
	size_t n;
};

/* White space as Python's str.strip() has it. */
static bool is_space(uint32_t c)
{
	return (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 ||
	       c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f ||
	       c == 0x205f || c == 0x3000;
}

static struct piece trim_right(struct piece t)
{
	int len;
	while (t.n && is_space(utf8_before(t.p, t.n, &len)))
		t.n -= (size_t)len;
	return t;
}

static struct piece trim(struct piece t)
{
	int len;
	while (t.n && is_space(utf8_at(t.p, &len))) {
		t.p += len;
		t.n -= (size_t)len;
	}
	return trim_right(t);
}

static struct piece strip_newlines(struct piece t, bool left, bool right)
{
	while (left && t.n && t.p[0] == '\n') {
		t.p++;
		t.n--;
	}
	while (right && t.n && t.p[t.n - 1] == '\n')
		t.n--;
	return t;
}

static const char *find(struct piece t, const char *what)
{
	return t.n ? memmem(t.p, t.n, what, strlen(what)) : NULL;
}

/* What stands behind the last `what` of t; all of t where there is none. */
static struct piece after_last(struct piece t, const char *what)
{
	const char *at;
	while ((at = find(t, what))) {
		size_t skip = (size_t)(at - t.p) + strlen(what);
		t = (struct piece){t.p + skip, t.n - skip};
	}
	return t;
}

/* Text of a message: nothing in it is a special token. */
static void put_plain(struct chat_prompt *out, struct piece t)
{
	if (!t.n)
		return;
	if ((out->n_plain & (out->n_plain - 1)) == 0)
		out->plain = xrealloc(out->plain, out->n_plain ? out->n_plain * 2 : 1, sizeof *out->plain);
	out->plain[out->n_plain++] = (struct tokenizer_span){out->text.len, out->text.len + t.n};
	buf_put(&out->text, t.p, t.n);
}

static void put(struct chat_prompt *out, const char *s)
{
	buf_puts(&out->text, s);
}

/* --- styles --- */

static bool is_role(const struct chat_message *m, const char *role)
{
	return strcmp(m->role, role) == 0;
}

static struct piece content_of(const struct chat *c, const struct chat_message *m)
{
	struct piece t = {m->content, m->content_n};
	return c->trim ? trim(t) : t;
}

/* The last thing a user asked: replies after it keep their reasoning. */
static size_t last_query(const struct chat_message *m, size_t n)
{
	static const char open[] = "<tool_response>", close[] = "</tool_response>";
	for (size_t i = n; i-- > 0;) {
		bool response =
			m[i].content_n >= strlen(close) && strncmp(m[i].content, open, strlen(open)) == 0 &&
			memcmp(m[i].content + m[i].content_n - strlen(close), close, strlen(close)) == 0;
		if (is_role(&m[i], "user") && !response)
			return i;
	}
	return n - 1;
}

static void put_thinking_reply(const struct chat_message *m, size_t i, size_t n, size_t query,
			       struct chat_prompt *out)
{
	struct piece content = {m[i].content, m[i].content_n}, reasoning = {"", 0};
	const char *close = find(content, "</think>");
	if (close) {
		reasoning =
			strip_newlines((struct piece){content.p, (size_t)(close - content.p)}, false, true);
		reasoning = strip_newlines(after_last(reasoning, "<think>"), true, false);
		content = strip_newlines(after_last(content, "</think>"), true, false);
	}
	if (i > query && (i + 1 == n || reasoning.n)) {
		put(out, "<think>\n");
		put_plain(out, strip_newlines(reasoning, true, true));
		put(out, "\n</think>\n\n");
		content = strip_newlines(content, true, false);
	}
	put_plain(out, content);
}

static void render_chatml(const struct chat *c, const struct chat_message *m, size_t n,
			  struct chat_prompt *out)
{
	size_t query = c->thinking ? last_query(m, n) : 0;
	if (c->bos)
		put(out, c->bos_token);
	if (c->default_system && !is_role(&m[0], "system")) {
		put(out, "<|im_start|>system\n");
		put(out, c->default_system);
		put(out, "<|im_end|>\n");
	}
	for (size_t i = 0; i < n; i++) {
		put(out, "<|im_start|>");
		put(out, m[i].role);
		put(out, "\n");
		if (c->thinking && is_role(&m[i], "assistant"))
			put_thinking_reply(m, i, n, query, out);
		else
			put_plain(out, content_of(c, &m[i]));
		put(out, "<|im_end|>\n");
	}
	put(out, "<|im_start|>assistant\n");
}

static void put_header(struct chat_prompt *out, const char *role)
{
	put(out, "<|start_header_id|>");
	put(out, role);
	put(out, "<|end_header_id|>\n\n");
}

static void put_date(const struct chat *c, struct chat_prompt *out)
{
	char date[32] = "26 Jul 2024";
	time_t now = time(NULL);
	struct tm tm;
	if (c->date == DATE_TODAY && localtime_r(&now, &tm))
		strftime(date, sizeof date, "%d %b %Y", &tm);
	put(out, "Cutting Knowledge Date: December 2023\nToday Date: ");
	put(out, date);
	put(out, "\n\n");
}

static void render_llama3(const struct chat *c, const struct chat_message *m, size_t n,
			  struct chat_prompt *out)
{
	put(out, c->bos_token);
	size_t i = 0;
	if (c->date != DATE_NONE) {
		put_header(out, "system");
		put_date(c, out);
		if (is_role(&m[0], "system"))
			put_plain(out, content_of(c, &m[i++]));
		put(out, "<|eot_id|>");
	}
	for (; i < n; i++) {
		put_header(out, m[i].role);
		put_plain(out, content_of(c, &m[i]));
		put(out, "<|eot_id|>");
	}
	put_header(out, "assistant");
}

static void render_llama2(const struct chat *c, const struct chat_message *m, size_t n,
			  struct chat_prompt *out)
{
	const struct chat_message *system = is_role(&m[0], "system") ? m : NULL;
	for (size_t i = !!system; i < n; i++) {
		struct piece content = {m[i].content, m[i].content_n};
		if (is_role(&m[i], "assistant")) {
			put(out, " ");
			put_plain(out, trim(content));
			put(out, " ");
			put(out, c->eos_token);
			continue;
		}
		put(out, c->bos_token);
		put(out, "[INST] ");
		if (system && i == 1) {
			struct piece said = {system->content, system->content_n};
			put(out, "<<SYS>>\n");
			put_plain(out, c->trim_system ? trim(said) : said);
			put(out, "\n<</SYS>>\n\n");
			/* What is trimmed begins with the system message. */
			content = trim_right(content);
			if (!content.n)
				while (out->text.p[out->text.len - 1] == '\n')
					out->text.p[--out->text.len] = 0;
		} else {
			content = trim(content);
		}
		put_plain(out, content);
		put(out, " [/INST]");
	}
}

static void render_mistral(const struct chat *c, const struct chat_message *m, size_t n,
			   struct chat_prompt *out)
{
	put(out, c->bos_token);
	size_t i = 0;
	if (is_role(&m[0], "system")) {
		put_plain(out, trim((struct piece){m[0].content, m[0].content_n}));
		put(out, "\n\n");
		i = 1;
	}
	for (; i < n; i++) {
		bool user = is_role(&m[i], "user");
		put(out, user ? "[INST] " : c->assistant_before);
		put_plain(out, content_of(c, &m[i]));
		put(out, user ? " [/INST]" : c->eos_token);
		if (!user)
			put(out, c->assistant_after);
	}
}

/* --- rendering --- */

static int check(const struct chat *c, const struct chat_message *m, size_t n, char *why, size_t why_n)
{
	if (n == 0)
		return err_why(why, why_n, -EINVAL, "there is no message");
	size_t first = is_role(&m[0], "system") ? 1 : 0;
	if (first && c->style == MISTRAL && !c->system)
		return err_why(why, why_n, -EINVAL, "this model takes only the roles user and assistant");
	for (size_t i = 0; i < n; i++) {
		if (!is_role(&m[i], "system") && !is_role(&m[i], "user") && !is_role(&m[i], "assistant"))
			return err_why(
				why, why_n, -EINVAL,
				"message %zu: unknown role %.32s; there are system, user and assistant", i,
				m[i].role);
		if (c->alternate && i >= first && is_role(&m[i], "user") != ((i - first) % 2 == 0))
			return err_why(why, why_n, -EINVAL,
				       "message %zu: the roles must alternate user, assistant, user, ...", i);
		if (c->alternate && i > 0 && is_role(&m[i], "system"))
			return err_why(why, why_n, -EINVAL, "message %zu: a system message comes first", i);
		size_t whole = utf8_valid(m[i].content, m[i].content_n);
		if (whole < m[i].content_n)
			return err_why(why, why_n, -EINVAL, "message %zu is not UTF-8 at byte %zu", i, whole);
	}
	if (first == n && c->style != CHATML && c->style != LLAMA3)
		return err_why(why, why_n, -EINVAL, "there is no message of the user");
	return 0;
}

int chat_render(const struct chat *c, const struct chat_message *m, size_t n, struct chat_prompt *out,
		char *why, size_t why_n)
{
	static void (*const render[])(const struct chat *, const struct chat_message *, size_t,
				      struct chat_prompt *) = {render_chatml, render_llama3, render_llama2,
							       render_mistral};
	int rc = check(c, m, n, why, why_n);
	if (rc)
		return rc;
	*out = (struct chat_prompt){0};
	render[c->style](c, m, n, out);
	return 0;
}
