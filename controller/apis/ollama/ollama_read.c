#include "controller/apis/ollama/ollama_read.h"

#include "base/json.h"
#include "controller/request/request_fields.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INT_MAX_D 2147483647
#define EMPTY     "[\"\", [], {}, false]"

/* --- options --- */

/* Read num_predict; -1 and -2 mean no limit but the context. */
static int read_num_predict(struct translation *t, const json_t *v)
{
	int64_t n;
	if (json_integral(v, &n) && n > 0)
		json_object_set(t->out, "max_tokens", (json_t *)v);
	else if (!json_integral(v, &n) || n == 0)
		return api_fail(t->p, E_BAD_REQUEST, "options.num_predict",
				"options.num_predict must be an integer from 1, or -1 or -2 for no bound");
	return 0;
}

static int read_stop(struct translation *t, const json_t *v)
{
	if (json_is_string(v) || json_array_size(v))
		json_object_set(t->out, "stop", (json_t *)v);
	return 0;
}

/* Read the seed; -1 counts as absent. */
static int read_seed(struct translation *t, const json_t *v)
{
	int64_t n;
	if (!json_integral(v, &n) || n != -1)
		json_object_set(t->out, "seed", (json_t *)v);
	return 0;
}

#define IGNORED_OPTION(name, type)                                                                           \
	{                                                                                                    \
		name, type, FIELD_IGNORED, 0, 0, NULL, NULL                                                  \
	}
static const char OF_THE_SERVICE[] = "set when the service starts";
static const struct field_row option_rows[] = {
	{"num_predict", FIELD_INTEGER, FIELD_HONOURED, -2, INT_MAX_D, NULL,
	 "-1 and -2: as many as the context takes"},
	{"seed", FIELD_INTEGER, FIELD_HONOURED, 0, 0, NULL, "-1: a random one"},
	{"stop", FIELD_STRING | FIELD_ARRAY, FIELD_HONOURED, 0, 0, NULL, NULL},
	{"num_ctx", FIELD_INTEGER, FIELD_IGNORED, 0, 0, NULL, "the context is the service's (`--context`)"},
	{"repeat_last_n", FIELD_INTEGER, FIELD_IGNORED, 0, 0, NULL, "penalties look at all tokens"},
	IGNORED_OPTION("penalize_newline", FIELD_BOOLEAN),
	IGNORED_OPTION("tfs_z", FIELD_NUMBER),
	{"num_keep", FIELD_INTEGER, FIELD_IGNORED, 0, 0, NULL, "a context is not shifted"},
	{"draft_num_predict", FIELD_INTEGER, FIELD_IGNORED, 0, 0, NULL, OF_THE_SERVICE},
	{"num_batch", FIELD_INTEGER, FIELD_IGNORED, 0, 0, NULL, OF_THE_SERVICE},
	{"num_gpu", FIELD_INTEGER, FIELD_IGNORED, 0, 0, NULL, OF_THE_SERVICE},
	{"main_gpu", FIELD_INTEGER, FIELD_IGNORED, 0, 0, NULL, OF_THE_SERVICE},
	{"num_thread", FIELD_INTEGER, FIELD_IGNORED, 0, 0, NULL, OF_THE_SERVICE},
	{"numa", FIELD_BOOLEAN, FIELD_IGNORED, 0, 0, NULL, OF_THE_SERVICE},
	{"low_vram", FIELD_BOOLEAN, FIELD_IGNORED, 0, 0, NULL, OF_THE_SERVICE},
	{"use_mmap", FIELD_BOOLEAN, FIELD_IGNORED, 0, 0, NULL, OF_THE_SERVICE},
	{"use_mlock", FIELD_BOOLEAN, FIELD_IGNORED, 0, 0, NULL, OF_THE_SERVICE},
	IGNORED_OPTION("logits_all", FIELD_BOOLEAN),
	IGNORED_OPTION("vocab_only", FIELD_BOOLEAN),
	IGNORED_OPTION("embedding_only", FIELD_BOOLEAN),
};
static const struct translate_rule option_rules[] = {
	{"num_predict", NULL, read_num_predict},
	{"seed", NULL, read_seed},
	{"stop", NULL, read_stop},
};
#define COUNT(a) (sizeof(a) / sizeof *(a))
static struct field_row param_rows[PARAMS_ROWS_MAX];
static struct field_table param_fields = {param_rows, 0, NULL};
static const struct field_table option_fields = {option_rows, COUNT(option_rows), &param_fields};
static const struct translate_table options = {&option_fields, option_rules, COUNT(option_rules),
					       offsetof(struct params_row, ollama)};

static int read_options(struct translation *t, const json_t *v)
{
	return translate_object(t, v, "options.", &options);
}

/* --- fields of both APIs --- */

static const struct ollama_reading *reading(const struct translation *t)
{
	return t->user;
}

json_t *ollama_model_name(const json_t *name)
{
	static const char tag[] = ":latest";
	const char *s = json_string_value(name);
	const size_t n = json_string_length(name), k = sizeof tag - 1;
	return n > k && strcmp(s + n - k, tag) == 0 ? json_stringn(s, n - k) : json_incref((json_t *)name);
}

static int read_model(struct translation *t, const json_t *v)
{
	json_object_set_new(t->out, "model", ollama_model_name(v));
	return 0;
}

/* Read `think`.  A level goes to the model's template; templates have only three levels.  If the template has
 * no switch, the reasoning is at least not shown. */
static int read_think(struct translation *t, const json_t *v)
{
	const char *s = json_is_string(v) ? json_string_value(v) : NULL;
	if (s && !strcmp(s, "max"))
		s = "high";
	if (s && strcmp(s, "low") != 0 && strcmp(s, "medium") != 0 && strcmp(s, "high") != 0)
		return api_fail(t->p, E_BAD_REQUEST, "think",
				"think must be true, false, \"low\", \"medium\", \"high\" or \"max\"");
	if (s)
		json_object_set_new(t->out, "reasoning_effort", json_string(s));
	else if (reading(t)->thinks)
		json_object_set(t->out, "enable_thinking", (json_t *)v);
	else if (json_is_true(v))
		translate_ignore(t, "think");
	else
		json_object_set_new(t->out, "include_reasoning", json_false());
	return 0;
}

static int read_logprobs(struct translation *t, const json_t *v)
{
	if (reading(t)->generate && !json_object_get(t->out, "messages"))
		return 0; /* for completions, read_top() sets logprobs */
	json_object_set(t->out, "logprobs", (json_t *)v);
	return 0;
}

/* Set stream; it is true if absent. */
static void set_stream(json_t *out, const json_t *client)
{
	const json_t *v = json_get(client, "stream");
	json_object_set_new(out, "stream", v ? json_incref((json_t *)v) : json_true());
}

/* --- /api/chat --- */

static int read_messages(struct translation *t, const json_t *v)
{
	return ollama_messages_read(t, v);
}

static const char KEPT[] = "the model stays loaded";
static const char NO_PICTURES[] = "this model reads text";
static const char NO_SHIFT[] = "a prompt that does not fit is refused";

#define BOTH                                                                                                 \
	{"model", FIELD_STRING, FIELD_HONOURED, 0, 0, NULL, "the served one, with or without `:latest`"},    \
		{"stream", FIELD_BOOLEAN, FIELD_HONOURED, 0, 0, NULL, "true where it is absent"},            \
		{"format", FIELD_STRING | FIELD_OBJECT, FIELD_HONOURED, 0, 0,                                \
		 NULL,     "`json` or a JSON schema"},                                                       \
		{"options", FIELD_OBJECT, FIELD_HONOURED, 0, 0, NULL, "below"},                              \
		{"think",                                                                                    \
		 FIELD_BOOLEAN | FIELD_STRING,                                                               \
		 FIELD_HONOURED,                                                                             \
		 0,                                                                                          \
		 0,                                                                                          \
		 NULL,                                                                                       \
		 "true; false: no reasoning is shown; a level where the model's template has one"},          \
		{"logprobs", FIELD_BOOLEAN, FIELD_HONOURED, 0, 0, NULL, NULL},                               \
		{"top_logprobs", FIELD_INTEGER, FIELD_HONOURED, 0, 20, NULL, "with `logprobs`"},             \
		{"keep_alive", FIELD_STRING | FIELD_NUMBER, FIELD_IGNORED, 0, 0, NULL, KEPT},                \
		{"truncate", FIELD_BOOLEAN, FIELD_IGNORED, 0, 0, NULL, NO_SHIFT},                            \
	{                                                                                                    \
		"shift", FIELD_BOOLEAN, FIELD_IGNORED, 0, 0, NULL, NO_SHIFT                                  \
	}

static const struct field_row chat_rows[] = {
	BOTH,
	{"messages", FIELD_ARRAY, FIELD_HONOURED, 0, 0, NULL,
	 "`role`, `content`, `thinking`, `tool_calls`, `tool_name`, `tool_call_id`; `images` are refused; "
	 "none: "
	 "nothing is generated"},
	{"tools", FIELD_ARRAY, FIELD_HONOURED, 0, 0, NULL, NULL},
};
static const struct translate_rule chat_rules[] = {
	{"model", NULL, read_model},    {"messages", NULL, read_messages},      {"tools", "tools", NULL},
	{"format", "format", NULL},     {"options", NULL, read_options},        {"think", NULL, read_think},
	{"logprobs", "logprobs", NULL}, {"top_logprobs", "top_logprobs", NULL},
};
const struct field_table ollama_chat_fields = {chat_rows, COUNT(chat_rows), &request_constraint_fields};
static const struct translate_table chat = {&ollama_chat_fields, chat_rules, COUNT(chat_rules), 0};

/* --- /api/generate --- */

/* Read the prompt, with the system message: as a chat, unless it is raw. */
static int read_prompt(struct translation *t, const json_t *v)
{
	const json_t *system = json_get(t->client, "system");
	if (json_is_true(json_get(t->client, "raw")) || !reading(t)->chats) {
		json_object_set(t->out, "prompt", (json_t *)v);
		if (json_string_length(system))
			return api_fail(t->p, E_BAD_REQUEST, "system",
					"system is not taken with raw, or where the model has no chat "
					"template: put it "
					"into the prompt");
		return 0;
	}
	json_t *messages = json_array();
	if (json_string_length(system))
		json_array_append_new(messages, json_pack("{s:s, s:O}", "role", "system", "content", system));
	json_array_append_new(messages, json_pack("{s:s, s:O}", "role", "user", "content", v));
	json_object_set_new(t->out, "messages", messages);
	return 0;
}

/* Read top_logprobs.  In completions, logprobs is the number of alternatives. */
static int read_top(struct translation *t, const json_t *v)
{
	const bool chats = json_object_get(t->out, "messages") != NULL;
	if (chats || json_is_true(json_get(t->client, "logprobs")))
		json_object_set(t->out, chats ? "top_logprobs" : "logprobs", (json_t *)v);
	return 0;
}

static const struct field_row generate_rows[] = {
	BOTH,
	{"prompt", FIELD_STRING, FIELD_HONOURED, 0, 0, NULL, "none, or an empty one: nothing is generated"},
	{"system", FIELD_STRING, FIELD_HONOURED, 0, 0, NULL, "not with `raw`"},
	{"raw", FIELD_BOOLEAN, FIELD_HONOURED, 0, 0, NULL, "the prompt is not put into the model's template"},
	{"template", FIELD_STRING, FIELD_NEUTRAL, 0, 0, EMPTY,
	 "Go's templates are not built: render the prompt and send it with raw"},
	{"suffix", FIELD_STRING, FIELD_NEUTRAL, 0, 0, EMPTY, "use /infill, where the model can"},
	{"context", FIELD_ARRAY, FIELD_NEUTRAL, 0, 0, EMPTY,
	 "use /api/chat, which has the conversation's messages"},
	{"images", FIELD_ARRAY, FIELD_NEUTRAL, 0, 0, EMPTY, NO_PICTURES},
	{"width", FIELD_INTEGER, FIELD_NEUTRAL, 0, 0, "[0]", NO_PICTURES},
	{"height", FIELD_INTEGER, FIELD_NEUTRAL, 0, 0, "[0]", NO_PICTURES},
	{"steps", FIELD_INTEGER, FIELD_NEUTRAL, 0, 0, "[0]", NO_PICTURES},
};
static const struct translate_rule generate_rules[] = {
	{"model", NULL, read_model},      {"prompt", NULL, read_prompt}, {"format", "format", NULL},
	{"options", NULL, read_options},  {"think", NULL, read_think},   {"logprobs", NULL, read_logprobs},
	{"top_logprobs", NULL, read_top},
};
const struct field_table ollama_generate_fields = {generate_rows, COUNT(generate_rows),
						   &request_constraint_fields};
static const struct translate_table generate = {&ollama_generate_fields, generate_rules,
						COUNT(generate_rules), 0};

static const struct generation_name other_names[] = {
	{"max_tokens", "options.num_predict"},
	{"seed", "options.seed"},
	{"stop", "options.stop"},
	{"name", "tool_name"},
	{"reasoning_content", "thinking"},
	{"include_reasoning", "think"},
	{"enable_thinking", "think"},
	{"reasoning_effort", "think"},
};
struct generation_name ollama_names[COUNT(other_names) + PARAMS_ROWS_MAX + 1];

__attribute__((constructor)) static void fill(void)
{
	static char options_of[PARAMS_ROWS_MAX][48];
	size_t n = COUNT(other_names);
	param_fields.n_rows = request_fields_params(offsetof(struct params_row, ollama), param_rows);
	memcpy(ollama_names, other_names, sizeof other_names);
	for (size_t i = 0; i < n_params_rows; i++) {
		if (!params_rows[i].ollama)
			continue;
		snprintf(options_of[i], sizeof options_of[i], "options.%s", params_rows[i].ollama);
		ollama_names[n++] = (struct generation_name){params_rows[i].name, options_of[i]};
	}
}

/* --- the whole request --- */

/* Drop the fields of thinking: a raw prompt, or a model without a template, has no switch for it, and a
 * reasoning is ordinary text. */
static void drop_of_chats(struct translation *t)
{
	static const char *const fields[] = {"enable_thinking", "reasoning_effort", "include_reasoning"};
	for (size_t i = 0; i < COUNT(fields); i++)
		if (json_object_del(t->out, fields[i]) == 0)
			translate_ignore(t, "think");
}

static void set_defaults(struct translation *t, const json_t *client, struct ollama_request *out)
{
	const bool asks = json_is_true(json_get(client, "logprobs"));
	const json_t *keep = json_get(client, "keep_alive");
	set_stream(t->out, client);
	const json_t *prompt = json_get(t->out, "prompt"), *messages = json_get(t->out, "messages");
	const json_t *text = prompt ? prompt : json_get(client, "prompt");
	out->dialect = prompt ? API_COMPLETIONS : API_CHAT;
	out->load = reading(t)->generate ? json_string_length(text) == 0 : json_array_size(messages) == 0;
	out->unload = out->load && keep && json_is_number(keep) && json_number_value(keep) == 0;
	if (prompt && asks && !json_get(t->out, "logprobs"))
		json_object_set_new(t->out, "logprobs", json_integer(0));
	if (prompt)
		drop_of_chats(t);
}

int ollama_read(const json_t *client, const struct ollama_reading *how, struct ollama_request *out,
		struct api_problem *p)
{
	struct translation t = {
		.out = json_object(), .within = "", .strict = how->strict, .p = p, .user = how};
	*out = (struct ollama_request){0};
	int rc = translate_object(&t, client, "", how->generate ? &generate : &chat);
	request_constraint_fields_copy(client, how->generate ? &ollama_generate_fields : &ollama_chat_fields,
				       t.out);
	if (!rc && !json_get(client, "model"))
		rc = api_fail(p, E_BAD_REQUEST, "model", "model must be given");
	if (!rc)
		set_defaults(&t, client, out);
	memcpy(out->ignored, t.ignored, sizeof t.ignored);
	if (rc)
		json_decref(t.out);
	else
		out->request = t.out;
	return rc;
}
