#include "controller/chat/chat_template.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/file.h"
#include "base/utf8.h"
#include "formats/gguf.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { CONFIG_BYTES_MAX = 64 << 20, TEMPLATE_BYTES_MAX = 1 << 20, VARS_MAX = 64 };

/* Read a configuration as JSON; *out is NULL if there is no such file. Real tokenizer_config.json files hold
 * integers of 30 digits (model_max_length), which json_read() refuses; here they may be reals. */
static int read_config(const char *dir, const char *name, json_t **out, struct why *why)
{
	char *path = file_join(dir, name), *text;
	size_t n;
	json_error_t e;
	int rc = 0;
	*out = NULL;
	if (file_exists(path) && (rc = file_read(path, CONFIG_BYTES_MAX, &text, &n, why)) == 0) {
		*out = json_loadb(text, n, JSON_DECODE_INT_AS_REAL, &e);
		free(text);
		if (!*out)
			rc = err_why(why, -EINVAL, "%s: not valid JSON: line %d, column %d: %s", path, e.line,
				     e.column, e.text);
	}
	free(path);
	return rc;
}

/* Return a template of chat_template, which is a string or a list of {name, template}; NULL: none. */
static const char *named_template(const json_t *config, const char *wanted)
{
	const json_t *v = json_object_get(config, "chat_template"), *e;
	size_t i;
	if (json_is_string(v))
		return strcmp(wanted, "default") == 0 ? json_string_value(v) : NULL;
	json_array_foreach(v, i, e)
	{
		const json_t *name = json_object_get(e, "name"), *t = json_object_get(e, "template");
		if (json_is_string(name) && json_is_string(t) && strcmp(json_string_value(name), wanted) == 0)
			return json_string_value(t);
	}
	return NULL;
}

/* Return the special tokens that transformers passes to templates: a string, or {"content": string}. */
static json_t *special_tokens(const json_t *config)
{
	static const char *const keys[] = {"bos_token", "eos_token", "unk_token", "sep_token",
					   "pad_token", "cls_token", "mask_token"};
	json_t *tokens = json_object();
	for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
		json_t *v = json_object_get(config, keys[i]);
		if (json_is_object(v))
			v = json_object_get(v, "content");
		if (json_is_string(v))
			json_object_set(tokens, keys[i], v);
	}
	json_t *more = json_object_get(config, "additional_special_tokens"), *e;
	size_t i;
	if (json_is_array(more)) {
		json_t *list = json_array();
		json_array_foreach(more, i, e)
		{
			json_t *text = json_is_object(e) ? json_object_get(e, "content") : e;
			if (json_is_string(text))
				json_array_append(list, text);
		}
		json_object_set_new(tokens, "additional_special_tokens", list);
	}
	return tokens;
}

static int parse(const char *text, struct jinja **out, struct why *why)
{
	return jinja_parse(text, strlen(text), JINJA_CHAT, out, why);
}

/* tool_use: may be NULL. */
static int parse_both(struct chat_template *t, const char *text, const char *tool_use, struct why *why)
{
	if (!text && !tool_use)
		return err_why(why, -ENOTSUP,
			       "the model has no chat template: send a prompt instead of messages");
	if (!text)
		return err_why(why, -EINVAL, "the model's chat templates lack one named default");
	int rc = parse(text, &t->main, why);
	if (rc)
		return rc;
	if (tool_use)
		parse(tool_use, &t->tool_use, &t->tool_use_why);
	t->text = xasprintf("%s%s", text, tool_use ? tool_use : "");
	return 0;
}

/* Load from dir, a directory in Hugging Face's layout. only: a file to use as the default template instead
 * of the directory's; or NULL. */
static int load_dir(const char *dir, const char *only, struct chat_template *t, struct why *why)
{
	char *path = only ? xstrdup(only) : file_join(dir, "chat_template.jinja"), *file = NULL;
	char *tool_path = file_join(dir, "additional_chat_templates/tool_use.jinja"), *tool_file = NULL;
	json_t *config = NULL, *processor = NULL;
	size_t n;
	*t = (struct chat_template){0};
	int rc = read_config(dir, "tokenizer_config.json", &config, why);
	if (!rc)
		rc = read_config(dir, "chat_template.json", &processor, why);
	if (!rc && file_exists(path))
		rc = file_read(path, TEMPLATE_BYTES_MAX, &file, &n, why);
	if (!rc && file && !only && file_exists(tool_path))
		rc = file_read(tool_path, TEMPLATE_BYTES_MAX, &tool_file, &n, why);
	if (!rc) {
		/* Files take precedence over keys, as in transformers. */
		bool own = named_template(config, "default") || named_template(config, "tool_use");
		const json_t *from = own ? config : processor;
		t->tokens = special_tokens(config);
		rc = parse_both(t, file ? file : named_template(from, "default"),
				file ? tool_file : named_template(from, "tool_use"), why);
	}
	json_decref(config);
	json_decref(processor);
	free(file);
	free(tool_file);
	free(path);
	free(tool_path);
	if (rc)
		chat_template_fini(t);
	return rc;
}

/* ---- GGUF ---- */

/* Set *out to the text of a key, which the caller frees; NULL if there is no such key. */
static int gguf_text(const struct gguf *g, const char *key, char **out, struct why *why)
{
	struct gguf_string s;
	*out = NULL;
	int rc = gguf_find_string(g, key, &s, why);
	if (rc)
		return rc == -ENOENT ? 0 : rc;
	if (s.n > TEMPLATE_BYTES_MAX)
		return err_why(why, -EFBIG, "%s has %zu bytes, at most %d are possible", key, s.n,
			       TEMPLATE_BYTES_MAX);
	if (memchr(s.p, 0, s.n) || utf8_valid(s.p, s.n) < s.n)
		return err_why(why, -EINVAL, "%s is not UTF-8, or has a NUL byte", key);
	*out = xmalloc(s.n + 1);
	memcpy(*out, s.p, s.n);
	(*out)[s.n] = 0;
	return 0;
}

/* Return the special tokens by name, from their ids; tokens that are not text are left out. */
static json_t *gguf_tokens(const struct gguf *g)
{
	static const char *const names[][2] = {
		{"tokenizer.ggml.bos_token_id", "bos_token"},
		{"tokenizer.ggml.eos_token_id", "eos_token"},
		{"tokenizer.ggml.unknown_token_id", "unk_token"},
		{"tokenizer.ggml.seperator_token_id", "sep_token"},
		{"tokenizer.ggml.padding_token_id", "pad_token"},
		{"tokenizer.ggml.cls_token_id", "cls_token"},
		{"tokenizer.ggml.mask_token_id", "mask_token"},
	};
	enum { N = sizeof names / sizeof names[0] };
	json_t *tokens = json_object();
	struct gguf_array a = {0};
	int64_t ids[N];
	for (size_t k = 0; k < N; k++)
		if (gguf_find_int(g, names[k][0], &ids[k], NULL))
			ids[k] = -1;
	if (gguf_find_array(g, "tokenizer.ggml.tokens", &a, NULL) || a.type != GGUF_STRING)
		a.n = 0;
	for (int64_t i = 0; a.n > 0; i++) {
		struct gguf_string s = gguf_next_string(&a);
		for (size_t k = 0; k < N; k++)
			if (ids[k] == i && utf8_valid(s.p, s.n) == s.n)
				json_object_set_new(tokens, names[k][1], json_stringn(s.p, s.n));
	}
	return tokens;
}

static int load_gguf(const char *path, struct chat_template *t, struct why *why)
{
	struct gguf *g;
	char *text = NULL, *tool_use = NULL;
	int rc = gguf_open(path, &g, why);
	if (rc)
		return rc;
	rc = gguf_text(g, "tokenizer.chat_template", &text, why);
	if (rc == 0)
		rc = gguf_text(g, "tokenizer.chat_template.tool_use", &tool_use, why);
	if (rc)
		err_prefix(why, rc, "%s", gguf_path(g));
	if (rc == 0) {
		t->tokens = gguf_tokens(g);
		rc = parse_both(t, text, tool_use, why);
	}
	free(text);
	free(tool_use);
	gguf_close(g);
	if (rc)
		chat_template_fini(t);
	return rc;
}

/* ---- by content ---- */

static bool ends_with(const char *s, const char *end)
{
	size_t n = strlen(s), k = strlen(end);
	return n >= k && strcmp(s + n - k, end) == 0;
}

/* Load from the directory that contains a model file or a template. */
static int load_from_parent(const char *path, const char *only, struct chat_template *t, struct why *why)
{
	const char *slash = strrchr(path, '/');
	char *dir = xstrdup(slash ? path : ".");
	if (slash)
		dir[slash == path ? 1 : slash - path] = 0;
	int rc = load_dir(dir, only, t, why);
	free(dir);
	return rc;
}

int chat_template_load(const char *path, struct chat_template *t, struct why *why)
{
	*t = (struct chat_template){0};
	bool is_dir = file_is_dir(path) || !file_exists(path);
	if (!is_dir && ends_with(path, ".jinja"))
		return load_from_parent(path, path, t, why);
	if (!is_dir) {
		int rc = gguf_is(path) ? load_gguf(path, t, why) : -ENOTSUP;
		return rc == -ENOTSUP ? load_from_parent(path, NULL, t, why) : rc;
	}
	int rc = load_dir(path, NULL, t, why);
	return rc == -ENOTSUP && gguf_is(path) ? load_gguf(path, t, why) : rc;
}

void chat_template_fini(struct chat_template *t)
{
	jinja_free(t->main);
	jinja_free(t->tool_use);
	free(t->text);
	json_decref(t->tokens);
	*t = (struct chat_template){0};
}

/* Set *out to the template for a request.  -EINVAL: the chosen tool_use template is invalid. */
static int choose(const struct chat_template *t, bool tools, const struct jinja **out, struct why *why)
{
	if (tools && t->tool_use_why.text[0])
		return err_why(why, -EINVAL, "the model's tool_use template: %s", t->tool_use_why.text);
	*out = tools && t->tool_use ? t->tool_use : t->main;
	return 0;
}

/* ---- rendering ---- */

/* Roles are not marked as plain text, since templates make special tokens of them ('<|' + role + '|>'). */
static const char *const roles[] = {"system",   "developer", "user",        "assistant", "tool",
				    "function", "ipython",   "observation", "model",     NULL};

static int64_t now_us(void)
{
	struct timespec ts;
	clock_gettime(CLOCK_REALTIME, &ts);
	return (int64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

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

/* Write the template's variables to vars[VARS_MAX]; of two with the same name the later one wins. */
static int variables(const struct chat_template *t, const struct chat_input *rq, const json_t *messages,
		     struct jinja_var *vars, size_t *n, struct why *why)
{
	bool tools = json_array_size(rq->tools) > 0, documents = json_is_array(rq->documents);
	const char *name;
	json_t *value;
	*n = 0;
	json_object_foreach(t->tokens, name, value) vars[(*n)++] =
		(struct jinja_var){.name = name, .value = value};
	if (json_object_size(rq->kwargs) > VARS_MAX - 4 - *n)
		return err_why(why, -EINVAL, "chat_template_kwargs has %zu keys, at most %zu are accepted",
			       json_object_size(rq->kwargs), VARS_MAX - 4 - *n);
	json_object_foreach((json_t *)rq->kwargs, name, value)
	{
		if (is_reserved(name))
			return err_why(why, -EINVAL, "chat_template_kwargs must not have the key %s", name);
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

int chat_template_render(const struct chat_template *t, const struct chat_input *rq, const json_t *messages,
			 const struct jinja_limits *limits, struct jinja_result *out, struct why *why)
{
	struct jinja_var vars[VARS_MAX];
	const struct jinja *which = NULL;
	size_t n;
	int rc = choose(t, json_array_size(rq->tools) > 0, &which, why);
	if (!rc)
		rc = variables(t, rq, messages, vars, &n, why);
	return rc ? rc : jinja_render(which, vars, n, limits, now_us(), out, why);
}
