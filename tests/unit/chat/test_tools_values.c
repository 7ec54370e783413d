/* Arguments of tool calls that contain tags of their format, newlines, blanks and literals. The written text
 * is read back unchanged, whole and in chunks. The templates are the models' own, plus small ones for the
 * formats that write values between tags. */
#include "base/alloc.h"
#include "controller/chat/reasoning.h"
#include "controller/chat/tools.h"
#include "tests/unit/chat/chat_help.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(tools_values, .timeout = 120);

enum { N_CALLS_MAX = 2, N_FRAGMENTS_MAX = 48, N_TRIES = 50 };

static const char tools_text[] =
	"[{\"type\": \"function\", \"function\": {\"name\": \"edit\", \"description\": \"Edits.\", "
	"\"parameters\": {\"type\": \"object\", \"required\": [\"old\"], \"properties\": {"
	"\"old\": {\"type\": \"string\", \"description\": \"o\"},"
	"\"new\": {\"type\": \"string\", \"description\": \"n\"},"
	"\"line\": {\"type\": \"integer\", \"description\": \"l\"},"
	"\"share\": {\"type\": \"number\", \"description\": \"s\"},"
	"\"exact\": {\"type\": \"boolean\", \"description\": \"e\"},"
	"\"tags\": {\"type\": \"array\", \"items\": {\"type\": \"string\"}, \"description\": \"t\"},"
	"\"more\": {\"type\": \"object\", \"description\": \"m\"},"
	"\"note\": {\"anyOf\": [{\"type\": \"string\"}, {\"type\": \"null\"}], "
	"\"description\": \"n\"}}}}}]";

/* ---- random values ---- */

struct source {
	const struct tools_format *format;
	uint64_t seed;
	const char *fragments[N_FRAGMENTS_MAX];
	size_t n_fragments;
};

static uint64_t draw(struct source *s, uint64_t n)
{
	s->seed ^= s->seed << 13;
	s->seed ^= s->seed >> 7;
	s->seed ^= s->seed << 17;
	return s->seed % n;
}

static void add_fragment(struct source *s, const char *text)
{
	cr_assert(s->n_fragments < N_FRAGMENTS_MAX);
	if (text && *text)
		s->fragments[s->n_fragments++] = text;
}

static void source_init(struct source *s, enum tools_style style, uint64_t seed)
{
	static const char *const usual[] = {"\n",   "\n",   " ",  "\t",   "a",    "b c", "\xc3\xa9", "12",
					    "null", "True", "\"", "\\",   "\\n",  "'",   "{",        "}",
					    "[",    ",",    "<",  "</x>", "x=\"", ">"};
	const struct tools_format *f = tools_format(style);
	*s = (struct source){.format = f, .seed = seed};
	for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
		add_fragment(s, usual[i]);
	for (int i = 0; i < TOOLS_MARKS_MAX && f->marks[i].text; i++)
		add_fragment(s, f->marks[i].text);
	for (int i = 0; i < TOOLS_THEN_MAX && f->then[i].text; i++)
		add_fragment(s, f->then[i].text);
	const struct tools_tags *t = &f->tags;
	const char *const tags[] = {t->key_open,    t->key_close,   t->value_open,    t->text_open,
				    t->value_close, t->value_close, f->literals.quote};
	for (size_t i = 0; i < sizeof tags / sizeof *tags; i++)
		add_fragment(s, tags[i]);
}

static bool begins_with(const char *text, const char *with)
{
	return with && strncmp(text, with, strlen(with)) == 0;
}

/* Return whether p continues as after the end of a value or of a call; such a text is ambiguous. */
static bool goes_on(const struct tools_format *f, const char *p)
{
	bool on = begins_with(p, f->tags.key_open);
	for (int i = 0; i < TOOLS_THEN_MAX; i++)
		on = on || begins_with(p, f->then[i].text);
	for (int i = 0; i < TOOLS_MARKS_MAX; i++)
		on = on || begins_with(p, f->marks[i].text);
	return on;
}

static bool is_ambiguous(const struct tools_format *f, const char *text)
{
	const char *quote = f->literals.quote;
	if (f->channels) /* the mark ends a message, whatever the text contains */
		return strstr(text, "<|");
	for (const char *p = text; quote && (p = strstr(p, quote));) {
		p += strlen(quote);
		const char next = p[strspn(p, " \n\t")];
		if (next && strchr(",:]}", next))
			return true;
	}
	for (const char *p = text; f->tags.value_close && *p; p++) {
		const char *tag = begins_with(p, f->tags.value_close) ? f->tags.value_close
				  : begins_with(p, f->then[0].text)   ? f->then[0].text
								      : NULL;
		if (tag && goes_on(f, p + strlen(tag) + strspn(p + strlen(tag), " \n\t")))
			return true;
	}
	return false;
}

static json_t *random_text(struct source *s, const char *before)
{
	for (int i = 0; i < N_TRIES; i++) {
		struct buf b = {0};
		buf_puts(&b, before);
		for (uint64_t n = draw(s, 8); n; n--)
			buf_puts(&b, s->fragments[draw(s, s->n_fragments)]);
		const bool fits = !is_ambiguous(s->format, b.p);
		json_t *text = fits ? json_stringn(b.p, b.len) : NULL;
		buf_fini(&b);
		if (fits)
			return text;
	}
	cr_assert_fail("%s: each of %d texts is ambiguous", s->format->name, N_TRIES);
	return NULL;
}

static json_t *random_scalar(struct source *s)
{
	static const char *const all[] = {
		"0", "-7", "9007199254740993", "0.5", "-1.25", "1e+300", "true", "false", "null"};
	return json_loads(all[draw(s, sizeof all / sizeof *all)], JSON_DECODE_ANY, NULL);
}

static json_t *random_list(struct source *s)
{
	json_t *list = json_array();
	for (uint64_t n = draw(s, 3); n; n--) {
		json_array_append_new(list, random_text(s, ""));
		json_array_append_new(list, random_scalar(s));
	}
	return list;
}

static json_t *random_arguments(struct source *s)
{
	json_t *a = json_object();
	json_object_set_new(a, "old", random_text(s, ""));
	if (draw(s, 2))
		json_object_set_new(a, "line", json_integer((json_int_t)draw(s, 100) - 50));
	if (draw(s, 2))
		json_object_set_new(a, "tags", random_list(s));
	if (draw(s, 2))
		json_object_set_new(a, "share", json_real(0.25 * (double)draw(s, 100)));
	/* A text that reads as null becomes null if the schema allows null. */
	if (draw(s, 2))
		json_object_set_new(a, "note", draw(s, 2) ? random_text(s, "a") : json_null());
	if (draw(s, 2))
		json_object_set_new(a, "exact", json_boolean(draw(s, 2)));
	if (draw(s, 2))
		json_object_set_new(a, "more",
				    json_pack("{s:o, s:o}", "k", random_list(s), "b", random_text(s, "")));
	if (draw(s, 2))
		json_object_set_new(a, "new", random_text(s, ""));
	return a;
}

/* ---- parsed calls ---- */

struct out {
	int n;
	struct buf text, name[8], arguments[8];
};

static void on_text(void *user, const char *p, size_t n)
{
	buf_put(&((struct out *)user)->text, p, n);
}

static void on_begin(void *user, uint32_t call, const char *name, size_t n)
{
	struct out *o = user;
	cr_assert(call < 8 && (int)call == o->n);
	buf_put(&o->name[o->n++], name, n);
}

static void on_arguments(void *user, uint32_t call, const char *p, size_t n)
{
	buf_put(&((struct out *)user)->arguments[call], p, n);
}

static void out_fini(struct out *o)
{
	buf_fini(&o->text);
	for (int i = 0; i < 8; i++) {
		buf_fini(&o->name[i]);
		buf_fini(&o->arguments[i]);
	}
}

static const char *text_of(const struct buf *b)
{
	return b->p ? b->p : "";
}

static bool same_out(const struct out *a, const struct out *b)
{
	bool same = a->n == b->n && !strcmp(text_of(&a->text), text_of(&b->text));
	for (int i = 0; same && i < a->n; i++)
		same = !strcmp(text_of(&a->name[i]), text_of(&b->name[i])) &&
		       !strcmp(text_of(&a->arguments[i]), text_of(&b->arguments[i]));
	return same;
}

/* Parses the text in chunks of `most` bytes, or of random sizes from 1 to `most`; 0: whole. */
static struct out read_text(struct source *s, const json_t *tools, const struct buf *text, size_t most,
			    bool random)
{
	struct out o = {0};
	const struct tools_sink to = {on_text, on_begin, on_arguments, &o};
	struct tools t;
	enum tools_style style;
	cr_assert_eq(tools_style_parse(s->format->name, &style), 0);
	tools_init(&t, style, tools);
	for (size_t at = 0, n; at < text->len; at += n) {
		n = !most ? text->len : random ? 1 + draw(s, most) : most;
		n = n < text->len - at ? n : text->len - at;
		tools_push(&t, text->p + at, n, &to);
	}
	tools_end(&t, &to);
	tools_fini(&t);
	return o;
}

/* ---- rendered prompts ---- */

struct written {
	struct chat *chat;
	json_t *tools;
	char *prompt; /* the prompt without the calls */
	const char *name;
};

static char *rendered(const struct written *w, const json_t *calls)
{
	struct why why = {""};
	struct chat_prompt p = {0};
	json_t *messages = json_pack("[{s:s, s:s}]", "role", "user", "content", "Edit it.");
	if (calls) {
		json_array_append_new(messages, json_pack("{s:s, s:s, s:O}", "role", "assistant", "content",
							  "", "tool_calls", calls));
		json_array_append_new(messages, json_pack("{s:s, s:s, s:s, s:s}", "role", "tool", "content",
							  "ok", "name", "edit", "tool_call_id", "call00000"));
	}
	const struct chat_input rq = {
		.messages = messages, .tools = w->tools, .add_generation_prompt = !calls};
	cr_assert_eq(chat_render_json(w->chat, &rq, &p, &why), 0, "%s: %s", w->name, why.text);
	char *text = xstrdup(text_of(&p.text));
	chat_prompt_fini(&p);
	json_decref(messages);
	return text;
}

/* Append the assistant's message as the template writes it: the text after the common start with the
 * generation prompt. */
static void put_answer(const struct written *w, const struct tools_format *f, const json_t *calls,
		       struct buf *answer)
{
	char *all = rendered(w, calls);
	size_t same = 0;
	while (w->prompt[same] && w->prompt[same] == all[same])
		same++;
	/* The prompt may open the reasoning, which a message with a call does not show. */
	while (w->prompt[same] && same && all[same - 1] != '\n' && all[same - 1] != '>')
		same--;
	if (f->channels) {
		struct buf thought = {0};
		struct reasoning r;
		reasoning_init(&r, false);
		r.marks = reasoning_marks_named("harmony");
		reasoning_push(&r, all + same, strlen(all + same), &thought, answer);
		reasoning_end(&r, &thought, answer);
		reasoning_fini(&r);
		buf_fini(&thought);
	} else {
		buf_puts(answer, all + same);
	}
	free(all);
}

static void expect_read_back(struct source *s, const struct written *w, const json_t *calls, const char *rest)
{
	static const struct {
		size_t most;
		bool random;
	} cuts[] = {{0, false}, {1, false}, {9, true}, {60, true}};
	struct buf answer = {0};
	struct out whole = {0};
	put_answer(w, s->format, calls, &answer);
	for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
		struct out got = read_text(s, w->tools, &answer, cuts[i].most, cuts[i].random);
		if (i == 0) {
			whole = got;
			continue;
		}
		cr_expect(same_out(&got, &whole), "%s: pieces of %zu give other calls in\n%s", w->name,
			  cuts[i].most, answer.p);
		out_fini(&got);
	}
	cr_expect(whole.n == (int)json_array_size(calls), "%s: %d calls in\n%s", w->name, whole.n, answer.p);
	cr_expect(!rest || !strcmp(rest, text_of(&whole.text)), "%s: the text \"%s\" beside the calls in\n%s",
		  w->name, text_of(&whole.text), answer.p);
	for (int i = 0; i < whole.n && i < (int)json_array_size(calls); i++) {
		const json_t *f = json_object_get(json_array_get(calls, (size_t)i), "function");
		const char *sent = json_string_value(json_object_get(f, "arguments"));
		json_t *want = json_loads(sent, 0, NULL),
		       *got = json_loads(text_of(&whole.arguments[i]), 0, NULL);
		cr_expect(got && json_equal(got, want), "%s: the arguments\n%s\ninstead of\n%s\nin\n%s",
			  w->name, text_of(&whole.arguments[i]), sent, answer.p);
		json_decref(got);
		json_decref(want);
	}
	out_fini(&whole);
	buf_fini(&answer);
}

static json_t *calls_of(struct source *s, int n, bool random)
{
	json_t *calls = json_array();
	for (int i = 0; i < n; i++) {
		json_t *a = random ? random_arguments(s) : json_pack("{s:s}", "old", "a");
		char *text = json_dumps(a, 0), id[16];
		snprintf(id, sizeof id, "call%05d", i);
		json_array_append_new(calls,
				      json_pack("{s:s, s:s, s:{s:s, s:s}}", "id", id, "type", "function",
						"function", "name", "edit", "arguments", text));
		free(text);
		json_decref(a);
	}
	return calls;
}

/* Tests the calls of one template. Plain values show the text around calls, which must be the same for any
 * values. */
static void try_template(const char *text, const char *name, enum tools_style style, int n_calls,
			 int n_rounds)
{
	struct why why = {""};
	struct source s;
	struct written w = {.tools = json_loads(tools_text, 0, NULL), .name = name};
	source_init(&s, style, 88172645463325252u);
	cr_assert_eq(chat_help_load(text, "<s>", "</s>", &w.chat, &why), 0, "%s: %s", name, why.text);
	w.prompt = rendered(&w, NULL);
	struct buf plain = {0};
	json_t *calls = calls_of(&s, n_calls, false);
	put_answer(&w, s.format, calls, &plain);
	struct out beside = read_text(&s, w.tools, &plain, 0, false);
	json_decref(calls);
	for (int i = 0; i < n_rounds; i++) {
		calls = calls_of(&s, n_calls, true);
		expect_read_back(&s, &w, calls, text_of(&beside.text));
		json_decref(calls);
	}
	out_fini(&beside);
	buf_fini(&plain);
	free(w.prompt);
	json_decref(w.tools);
	chat_free(w.chat);
}

/* ---- templates ---- */

/* begin: before all calls; call, args: around the name; pair: writes the key k and the value v. */
#define TEMPLATE(begin, call, args, pair, close, end)                                                        \
	"{%- for m in messages %}{% if m.tool_calls %}[assistant]\n" begin                                   \
	"{% for c in m.tool_calls %}" call "{{ c.function.name }}" args                                      \
	"{% for k, v in c.function.arguments|items %}{% set t = v if v is string else v|tojson %}" pair      \
	"{% endfor %}" close "{% endfor %}" end                                                              \
	"</s>\n{% else %}[{{ m.role }}]\n{{ m.content }}</s>\n{% endif %}{% endfor %}"                       \
	"{% if add_generation_prompt %}[assistant]\n{% endif %}"
#define DSML                                                                                                 \
	"\xef\xbd\x9c"                                                                                       \
	"DSML\xef\xbd\x9c"

Test(tools_values, tags_and_blanks_in_values_are_read_back)
{
	static const struct {
		enum tools_style style;
		const char *text;
	} all[] = {
		{TOOLS_QWEN3_CODER,
		 TEMPLATE("", "<tool_call>\n<function=", ">\n",
			  "<parameter={{ k }}>\n{{ t }}\n</parameter>\n", "</function>\n</tool_call>\n", "")},
		{TOOLS_SEED_OSS, TEMPLATE("", "<seed:tool_call>\n<function=", ">\n",
					  "<parameter={{ k }}>{{ t }}</parameter>\n",
					  "</function>\n</seed:tool_call>\n", "")},
		{TOOLS_MINIMAX_M2, TEMPLATE("<minimax:tool_call>\n", "<invoke name=\"", "\">\n",
					    "<parameter name=\"{{ k }}\">{{ t }}</parameter>\n",
					    "</invoke>\n", "</minimax:tool_call>")},
		{TOOLS_GLM45, TEMPLATE("", "<tool_call>", "\n",
				       "<arg_key>{{ k }}</arg_key>\n<arg_value>{{ t }}</arg_value>\n",
				       "</tool_call>\n", "")},
		{TOOLS_DEEPSEEK_V32,
		 TEMPLATE("<" DSML "function_calls>\n", "<" DSML "invoke name=\"", "\">\n",
			  "<" DSML
			  "parameter name=\"{{ k }}\" string=\"{{ 'true' if v is string else 'false' }}\">"
			  "{{ t }}</" DSML "parameter>\n",
			  "</" DSML "invoke>\n", "</" DSML "function_calls>")},
	};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		try_template(all[i].text, tools_format(all[i].style)->name, all[i].style, N_CALLS_MAX, 400);
}

Test(tools_values, what_models_templates_write_is_read_back)
{
	static const struct {
		const char *file;
		enum tools_style style;
		int n_calls;
	} all[] = {
		{"ByteDance-Seed-OSS.jinja", TOOLS_SEED_OSS, 2},
		{"GLM-4.6.jinja", TOOLS_GLM45, 2},
		{"GLM-4.7-Flash.jinja", TOOLS_GLM45, 2},
		{"GLM-5.2.jinja", TOOLS_GLM45, 2},
		{"NVIDIA-Nemotron-3-Nano-30B-A3B-BF16.jinja", TOOLS_QWEN3_CODER, 2},
		{"Qwen3-Coder.jinja", TOOLS_QWEN3_CODER, 2},
		{"Qwen3.5-4B.jinja", TOOLS_QWEN3_CODER, 2},
		{"StepFun3.5-Flash.jinja", TOOLS_QWEN3_CODER, 2},
		{"stepfun-ai-Step-3.5-Flash.jinja", TOOLS_QWEN3_CODER, 2},
		{"deepseek-ai-DeepSeek-V3.2.jinja", TOOLS_DEEPSEEK_V32, 2},
		{"deepseek-ai-DeepSeek-V4.jinja", TOOLS_DEEPSEEK_V32, 2},
		{"google-gemma-4-31B-it.jinja", TOOLS_GEMMA4, 2},
		{"Cohere2MoE.jinja", TOOLS_COHERE, 2},
		{"moonshotai-Kimi-K2.jinja", TOOLS_KIMI_K2, 2},
		{"mistralai-Ministral-3-14B-Reasoning-2512.jinja", TOOLS_MISTRAL, 2},
		{"unsloth-mistral-Devstral-Small-2507.jinja", TOOLS_MISTRAL, 2},
		{"NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use.jinja", TOOLS_HERMES, 2},
		{"Qwen-Qwen3-0.6B.jinja", TOOLS_HERMES, 2},
		{"deepseek-ai-DeepSeek-V3.1.jinja", TOOLS_DEEPSEEK_V31, 2},
		{"meta-llama-Llama-3.1-8B-Instruct.jinja", TOOLS_LLAMA3, 1},
		{"openai-gpt-oss-120b.jinja", TOOLS_HARMONY, 1},
	};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
		char *text = chat_help_template(all[i].file);
		if (!text)
			cr_skip_test("the test data are not installed: %s", all[i].file);
		try_template(text, all[i].file, all[i].style, all[i].n_calls, 60);
		free(text);
	}
}
