/* OpenAI requests become prompts, and prompts become the tokens that transformers gives
 * (golden/make_chat_tokens_golden.py). No request can forge a special token. */
#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "controller/chat/chat.h"
#include "controller/chat/chat_template.h"
#include "tests/testdata.h"
#include "tests/unit/chat/chat_help.h"
#include "tests/tokenizer_help.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

TestSuite(chat_requests, .timeout = 120);

/* ---- one template, one request ---- */

static struct chat *load(const char *template)
{
	struct chat *c;
	struct why why;
	cr_assert_eq(chat_help_load(template, "<s>", "</s>", &c, &why), 0, "%s: %s", template, why.text);
	return c;
}

/* request has: messages, tools, documents, chat_template_kwargs, add_generation_prompt,
 * continue_final_message. */
static int render(const struct chat *c, const json_t *request, struct chat_prompt *out, struct why *why)
{
	const json_t *prompt = json_object_get(request, "add_generation_prompt");
	bool continues = json_is_true(json_object_get(request, "continue_final_message"));
	struct chat_input rq = {.messages = json_object_get(request, "messages"),
				.tools = json_object_get(request, "tools"),
				.documents = json_object_get(request, "documents"),
				.kwargs = json_object_get(request, "chat_template_kwargs"),
				.add_generation_prompt = prompt ? json_is_true(prompt) : !continues,
				.continue_final_message = continues};
	return chat_render_json(c, &rq, out, why);
}

static json_t *parsed(const char *text)
{
	json_t *j;
	struct why why;
	cr_assert_eq(json_parse(text, strlen(text), &j, &why), 0, "%s: %s", text, why.text);
	return j;
}

static void expect(const char *template, const char *request, const char *text)
{
	struct chat *c = load(template);
	struct chat_prompt p = {0};
	struct why why = {""};
	json_t *j = parsed(request);
	cr_expect_eq(render(c, j, &p, &why), 0, "%s", why.text);
	cr_expect_str_eq(p.text.p ? p.text.p : "", text, "got %s", p.text.p);
	chat_prompt_fini(&p);
	json_decref(j);
	chat_free(c);
}

static void refused(const char *template, const char *request, const char *what)
{
	struct chat *c = load(template);
	struct chat_prompt p;
	struct why why = {""};
	json_t *j = parsed(request);
	cr_expect_eq(render(c, j, &p, &why), -EINVAL, "%s", request);
	cr_expect(strstr(why.text, what), "%s: %s", request, why.text);
	json_decref(j);
	chat_free(c);
}

static const char plain[] = "{% for m in messages %}[{{ m.role }}:{{ m.content + '' }}]{% endfor %}"
			    "{% if add_generation_prompt %}>{% endif %}";
static const char parts[] = "{% for m in messages %}[{% if m.content is string %}{{ m.content }}{% else %}"
			    "{% for p in m.content %}<{{ p.text }}>{% endfor %}{% endif %}]{% endfor %}";
static const char only_parts[] =
	"{% for m in messages %}{% for p in m.content %}<{{ p.text }}>{% endfor %}{% endfor %}";

Test(chat_requests, contents_come_in_the_form_that_the_template_takes)
{
	static const char two[] =
		"{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": "
		"\"a\"}, {\"type\": \"text\", \"text\": \"b\"}]}]}",
			  text[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}";
	expect(plain, two, "[user:a\nb]>");
	expect(plain, text, "[user:a]>");
	expect(parts, two, "[<a><b>]");
	expect(parts, text, "[a]");
	expect(only_parts, two, "<a><b>");
	expect(only_parts, text, "<a>");
}

Test(chat_requests, a_null_content_is_an_empty_text)
{
	expect(plain, "{\"messages\": [{\"role\": \"assistant\", \"content\": null}, {\"role\": \"user\"}]}",
	       "[assistant:][user:]>");
}

Test(chat_requests, null_keys_and_empty_lists_are_omitted)
{
	expect("{% for m in messages %}{{ m | list | sort | join(',') }};{% endfor %}",
	       "{\"messages\": [{\"role\": \"assistant\", \"content\": \"a\", \"tool_calls\": [], "
	       "\"refusal\": null, "
	       "\"name\": \"n\"}]}",
	       "content,name,role;");
}

Test(chat_requests, the_generation_prompt_can_be_omitted)
{
	expect(plain,
	       "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"add_generation_prompt\": false}",
	       "[user:a]");
}

static const char calls[] =
	"{% for m in messages %}{% for c in m.tool_calls or [] %}{{ c.id }}:{{ c.function.name }}"
	"{{ c.function.arguments | tojson }};{% endfor %}{{ m.tool_call_id or '' }}{% endfor %}";

Test(chat_requests, tool_calls_reach_the_template_with_parsed_arguments)
{
	expect(calls,
	       "{\"messages\": [{\"role\": \"assistant\", \"tool_calls\": [{\"id\": \"i\", \"type\": "
	       "\"function\", "
	       "\"function\": {\"name\": \"f\", \"arguments\": \"{\\\"b\\\": 1, \\\"a\\\": [null]}\"}}, "
	       "{\"id\": \"j\", "
	       "\"function\": {\"name\": \"g\", \"arguments\": {\"x\": 2}}}, {\"id\": \"k\", \"function\": "
	       "{\"name\": "
	       "\"h\", \"arguments\": \"\"}}]}, {\"role\": \"tool\", \"tool_call_id\": \"i\", \"content\": "
	       "\"c\"}]}",
	       "i:f{\"b\": 1, \"a\": [null]};j:g{\"x\": 2};k:h{};i");
	/* arguments that are not JSON stay unchanged */
	expect(calls,
	       "{\"messages\": [{\"role\": \"assistant\", \"tool_calls\": [{\"id\": \"i\", \"function\": "
	       "{\"name\": "
	       "\"f\", \"arguments\": \"{oops\"}}]}]}",
	       "i:f\"{oops\";");
}

Test(chat_requests, arguments_are_text_for_a_template_that_needs_text)
{
	static const char text[] = "{% for m in messages %}{% for c in m.tool_calls or [] %}"
				   "{{ '(' + c.function.arguments + ')' }}{% endfor %}{% endfor %}";
	expect(text,
	       "{\"messages\": [{\"role\": \"assistant\", \"tool_calls\": [{\"function\": {\"name\": \"f\", "
	       "\"arguments\": \"{\\\"b\\\":1}\"}}, {\"function\": {\"name\": \"f\", \"arguments\": {\"b\": "
	       "1}}}]}]}",
	       "({\"b\":1})({\"b\": 1})");
}

Test(chat_requests, tools_and_documents_default_to_none)
{
	static const char t[] =
		"{{ tools is none }}{{ documents is none }}{% if tools %}{{ tools[0].function.name }}"
		"{% endif %}{% for d in documents or [] %}{{ d.text }}{% endfor %}";
	expect(t, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"tools\": []}", "TrueTrue");
	expect(t,
	       "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"tools\": [{\"type\": "
	       "\"function\", "
	       "\"function\": {\"name\": \"f\"}}], \"documents\": [{\"text\": \"d\"}]}",
	       "FalseFalsefd");
}

Test(chat_requests, template_variables_come_from_the_request)
{
	static const char t[] =
		"{{ enable_thinking is defined and not enable_thinking }}{{ x or '' }}{{ bos_token }}";
	expect(t,
	       "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"chat_template_kwargs\": "
	       "{\"enable_thinking\": false, \"x\": \"y\"}}",
	       "Truey<s>");
	refused(t,
		"{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"chat_template_kwargs\": "
		"{\"messages\": []}}",
		"messages");
}

Test(chat_requests, reasoning_has_three_names)
{
	static const char t[] =
		"{% for m in messages %}{{ m.reasoning_content }}{{ m.thinking }}{% endfor %}";
	expect(t, "{\"messages\": [{\"role\": \"assistant\", \"reasoning\": \"r\"}]}", "rr");
	expect(t,
	       "{\"messages\": [{\"role\": \"assistant\", \"reasoning_content\": \"r\", \"thinking\": "
	       "\"t\"}]}",
	       "rt");
	expect(t, "{\"messages\": [{\"role\": \"assistant\", \"reasoning_content\": null}]}", "");
}

Test(chat_requests, roles_are_the_standard_ones_and_those_in_the_template)
{
	expect(plain, "{\"messages\": [{\"role\": \"developer\", \"content\": \"a\"}]}", "[system:a]>");
	expect("{# developer #}{{ messages[0].role }}",
	       "{\"messages\": [{\"role\": \"developer\", \"content\": \"a\"}]}", "developer");
	expect("{# wizard #}{{ messages[0].role }}",
	       "{\"messages\": [{\"role\": \"wizard\", \"content\": \"a\"}]}", "wizard");
	refused(plain, "{\"messages\": [{\"role\": \"wizard\", \"content\": \"a\"}]}", "wizard");
	refused(plain, "{\"messages\": [{\"content\": \"a\"}]}", "role");
}

Test(chat_requests, the_final_message_is_continued)
{
	static const char
		t[] = "{% for m in messages %}<{{ m.role }}>{{ m.content }}<end>{% endfor %}",
		trims[] = "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}<end>{% endfor %}",
		drops[] = "{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}{% endif %}{% "
			  "endfor %}";
	static const char rq[] =
		"{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", "
		"\"content\": \"so far \"}], \"continue_final_message\": true}";
	expect(t, rq, "<user>a<end><assistant>so far ");
	expect(trims, rq, "<user>a<end><assistant>so far");
	expect(only_parts, rq, "<a><so far ");
	refused(drops, rq, "does not show");
	refused(t,
		"{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"continue_final_message\": "
		"true, "
		"\"add_generation_prompt\": true}",
		"exclude each other");
}

Test(chat_requests, invalid_requests_are_refused_with_the_field)
{
	refused(plain, "{\"messages\": []}", "no message");
	refused(plain, "{\"messages\": 5}", "no message");
	refused(plain, "{\"messages\": [{\"role\": \"user\", \"content\": 5}]}", "messages[0].content");
	refused(plain, "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"image_url\"}]}]}",
		"content[0]");
	refused(plain, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"tools\": {}}", "arrays");
	refused(plain,
		"{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"chat_template_kwargs\": []}",
		"chat_template_kwargs");
	refused("{{ raise_exception('not so') }}",
		"{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}", "not so");
}

/* ---- sources of the template ---- */

static void expect_folder(const char *const *files, bool tools, const char *text)
{
	struct chat_folder f;
	struct chat *c;
	struct chat_prompt p = {0};
	struct why why = {""};
	chat_folder_make(&f);
	for (size_t i = 0; files[i]; i += 2)
		chat_folder_write(&f, files[i], files[i + 1]);
	cr_assert_eq(chat_load(f.path, &c, &why), 0, "%s", why.text);
	chat_folder_remove(&f);
	json_t *rq =
		parsed(tools ? "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"tools\": [{}]}"
			     : "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}");
	int rc = render(c, rq, &p, &why);
	cr_expect_str_eq(rc ? why.text : p.text.p, text);
	chat_prompt_fini(&p);
	json_decref(rq);
	chat_free(c);
}

Test(chat_requests, the_template_is_found_where_transformers_finds_it)
{
	static const char named[] =
		"{\"chat_template\": [{\"name\": \"default\", \"template\": \"D\"}, {\"name\": "
		"\"tool_use\", \"template\": \"T\"}]}";
	const char *const files[][7] = {
		{"tokenizer_config.json", "{\"chat_template\": \"A\"}", NULL},
		{"tokenizer_config.json", "{\"chat_template\": \"A\"}", "chat_template.jinja", "B", NULL},
		{"chat_template.json", "{\"chat_template\": \"C\"}", NULL},
		{"tokenizer_config.json", "{}", "chat_template.json", "{\"chat_template\": \"C\"}", NULL},
		{"tokenizer_config.json", named, NULL},
		{"chat_template.jinja", "B", "additional_chat_templates/tool_use.jinja", "U", NULL},
	};
	static const char *const without[] = {"A", "B", "C", "C", "D", "B"}, *const with[] = {"A", "B", "C",
											      "C", "T", "U"};
	for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
		expect_folder(files[i], false, without[i]);
		expect_folder(files[i], true, with[i]);
	}
}

Test(chat_requests, an_invalid_tool_template_refuses_only_tools)
{
	const char *const files[] = {"chat_template.jinja", "B", "additional_chat_templates/tool_use.jinja",
				     "\n{{", NULL};
	expect_folder(files, false, "B");
	expect_folder(files, true,
		      "the model's tool_use template: line 2 of the chat template: a tag is not closed");
}

/* ---- tokens ---- */

struct model {
	struct tokenizer *t;
	struct chat *c;
};

/* name: "demo", or a folder of the test data. Returns false if the folder is missing. */
static bool model_open(const char *name, struct model *m)
{
	struct why why = {""};
	bool demo = strcmp(name, "demo") == 0;
	const char *dir = demo ? repofile("models/demo") : testdata(name);
	m->t = !dir ? NULL : demo ? help_golden(name) : help_shared(name + strlen("tokenizers/"));
	if (!m->t)
		return false;
	cr_assert_eq(chat_load(dir, &m->c, &why), 0, "%s: %s", name, why.text);
	return true;
}

static void model_close(struct model *m)
{
	chat_free(m->c);
	tokenizer_free(m->t);
}

/* Tokenize the rendered prompt. Returns false if the template refuses. */
static bool tokens_of(const struct model *m, const json_t *request, struct token_ids *ids)
{
	struct chat_prompt p;
	struct why why = {""};
	if (render(m->c, request, &p, &why))
		return false;
	cr_assert_eq(tokenizer_encode(m->t, p.text.p, p.text.len, 0, p.plain, p.n_plain, ids, &why), 0, "%s",
		     why.text);
	chat_prompt_fini(&p);
	return true;
}

/* Turn arguments into JSON text, as clients send them. */
static void arguments_to_text(json_t *request)
{
	size_t i, k;
	json_t *message, *call;
	json_array_foreach(json_object_get(request, "messages"), i, message)
	{
		json_array_foreach(json_object_get(message, "tool_calls"), k, call)
		{
			json_t *function = json_object_get(call, "function");
			char *text = json_dumps(json_object_get(function, "arguments"), 0);
			json_object_set_new(function, "arguments", json_string(text));
			free(text);
		}
	}
}

static void expect_tokens(const char *name, const char *title, const struct model *m, const json_t *request,
			  const json_t *expected)
{
	struct token_ids ids = {0};
	json_t *rq = json_deep_copy(request);
	json_t *kwargs = json_object_get(rq, "chat_template_kwargs");
	kwargs = kwargs ? json_incref(kwargs) : json_object();
	json_object_set_new(kwargs, "date_string", json_string("26 Jul 2024"));
	json_object_set_new(rq, "chat_template_kwargs", kwargs);
	arguments_to_text(rq);
	bool is = tokens_of(m, rq, &ids);
	cr_expect_eq(is, json_is_array(expected), "%s, %s: %s", name, title, is ? "rendered" : "refused");
	if (is && json_is_array(expected))
		cr_expect(help_same(&ids, expected), "%s, %s: other tokens", name, title);
	token_ids_fini(&ids);
	json_decref(rq);
}

Test(chat_requests, tokens_equal_those_of_transformers)
{
	json_t *golden, *models, *results, *expected;
	const char *name, *title;
	struct why why;
	cr_assert_eq(json_read(repofile("tests/golden/chat_tokens.json"), 4 << 20, &golden, &why), 0, "%s",
		     why.text);
	models = json_object_get(golden, "models");
	json_object_foreach(models, name, results)
	{
		struct model m;
		if (!model_open(name, &m))
			continue;
		json_object_foreach(results, title, expected)
			expect_tokens(name, title, &m,
				      json_object_get(json_object_get(golden, "requests"), title), expected);
		model_close(&m);
	}
	json_decref(golden);
}

/* Count each special token of the prompt. */
static uint32_t *specials(const struct model *m, const json_t *request)
{
	struct token_ids ids = {0};
	uint32_t *n = xcalloc(tokenizer_n_vocab(m->t), sizeof *n);
	if (tokens_of(m, request, &ids))
		for (size_t i = 0; i < ids.n; i++)
			n[ids.ids[i]] += tokenizer_is_special(m->t, ids.ids[i]);
	token_ids_fini(&ids);
	return n;
}

/* Return the texts of all special tokens, concatenated and nested. */
static char *all_specials(const struct model *m)
{
	struct buf b = {0};
	uint32_t seen = 0;
	for (uint32_t id = 0; id < tokenizer_n_vocab(m->t) && seen < 40; id++) {
		if (!tokenizer_is_special(m->t, id))
			continue;
		struct buf piece = {0};
		tokenizer_piece(m->t, id, &piece);
		buf_put(&b, piece.p, piece.len);
		buf_puts(&b, seen++ % 2 ? " " : "");
		buf_fini(&piece);
	}
	return buf_take(&b);
}

static json_t *request_with(const char *text, bool tools)
{
	json_t *rq = json_pack("{s:[{s:s, s:s}, {s:s, s:s}, {s:s, s:s}], s:{s:s}}", "messages", "role",
			       "user", "content", text, "role", "assistant", "content", text, "role", "user",
			       "content", text, "chat_template_kwargs", "date_string", text);
	if (tools)
		json_object_set_new(rq, "tools",
				    json_pack("[{s:s, s:{s:s, s:s, s:{s:s, s:{s:{s:s}}}}}]", "type",
					      "function", "function", "name", text, "description", text,
					      "parameters", "type", "object", "properties", text, "type",
					      text));
	return rq;
}

Test(chat_requests, no_request_forges_a_special_token)
{
	static const char *const names[] = {"demo",
					    "tokenizers/llama3",
					    "tokenizers/minimind-6400",
					    "tokenizers/mistral",
					    "tokenizers/phi-3-mini",
					    "tokenizers/qwen3"};
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		struct model m;
		if (!model_open(names[i], &m))
			continue;
		char *evil = all_specials(&m);
		for (int tools = 0; tools < 2; tools++) {
			json_t *good = request_with("word", tools), *bad = request_with(evil, tools);
			uint32_t *a = specials(&m, good), *b = specials(&m, bad);
			for (uint32_t id = 0; id < tokenizer_n_vocab(m.t); id++)
				cr_expect_eq(a[id], b[id], "%s: token %u is there %u times, not %u", names[i],
					     id, b[id], a[id]);
			free(a);
			free(b);
			json_decref(good);
			json_decref(bad);
		}
		free(evil);
		model_close(&m);
	}
}

/* ---- templates of GGUF files ---- */

static void expect_gguf(const char *path, const char *bos, const char *text)
{
	struct chat_template t;
	struct why why = {""};
	cr_assert_eq(chat_template_load(path, &t, &why), 0, "%s", why.text);
	cr_expect_str_eq(t.text, text);
	cr_expect_str_eq(json_string_value(json_object_get(t.tokens, "bos_token")), bos);
	chat_template_fini(&t);
}

static const char gguf_file[] = "tests/golden/tokenizer/gguf_llama3.gguf";

Test(chat_requests, a_gguf_file_has_its_template_and_its_tokens)
{
	struct chat *c;
	struct chat_prompt p;
	struct why why = {""};
	cr_assert_eq(chat_load(repofile(gguf_file), &c, &why), 0, "%s", why.text);
	json_t *rq = parsed("{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}");
	cr_assert_eq(render(c, rq, &p, &why), 0, "%s", why.text);
	cr_expect_str_eq(p.text.p, "<|begin|>user: a<|end|>");
	chat_prompt_fini(&p);
	json_decref(rq);
	chat_free(c);
}

static void copy_gguf(const struct chat_folder *f, const char *rel, const char *name)
{
	struct why why;
	char *path = file_join(f->path, name), *data;
	size_t n;
	cr_assert_eq(file_read(repofile(rel), 1 << 20, &data, &n, &why), 0, "%s", why.text);
	FILE *to = fopen(path, "w");
	cr_assert_eq(fwrite(data, 1, n, to), n);
	fclose(to);
	free(data);
	free(path);
}

/* A directory with only a GGUF file stands for that file. A GGUF file without a template takes the template
 * next to it. A path may also name a template file. */
Test(chat_requests, a_template_beside_a_gguf_file_serves_where_it_has_none)
{
	static const char config[] = "{\"bos_token\": \"B\"}";
	struct chat_folder f;
	struct chat_template t;
	struct why why = {""};
	chat_folder_make(&f);
	char *path = file_join(f.path, "model.gguf"), *jinja = file_join(f.path, "chat_template.jinja");
	copy_gguf(&f, gguf_file, "model.gguf");
	cr_assert_eq(chat_template_load(f.path, &t, &why), 0, "%s", why.text);
	cr_expect_str_eq(json_string_value(json_object_get(t.tokens, "eos_token")), "<|end|>");
	chat_template_fini(&t);
	copy_gguf(&f, "tests/golden/tokenizer/gguf_spm.gguf", "model.gguf");
	cr_expect_eq(chat_template_load(path, &t, &why), -ENOTSUP);
	cr_expect_eq(chat_template_load(f.path, &t, &why), -ENOTSUP);
	chat_folder_write(&f, "chat_template.jinja", "T");
	chat_folder_write(&f, "tokenizer_config.json", config);
	expect_gguf(path, "B", "T");
	expect_gguf(jinja, "B", "T");
	copy_gguf(&f, gguf_file, "model.gguf");
	cr_assert_eq(chat_template_load(path, &t, &why), 0, "%s", why.text);
	cr_expect(strstr(t.text, "messages"));
	chat_template_fini(&t);
	unlink(path);
	chat_folder_remove(&f);
	free(path);
	free(jinja);
}
