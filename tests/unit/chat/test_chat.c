/* Messages become prompts, compared with the output of the reference templates
 * (golden/make_chat_golden.py). */
#include "base/alloc.h"
#include "base/buf.h"
#include "base/file.h"
#include "base/json.h"
#include "controller/chat/chat.h"
#include "tests/testdata.h"
#include "tests/unit/chat/chat_help.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

TestSuite(chat, .timeout = 60);

/* Join the lines of chujiezheng's templates, which are written in indented lines. */
static char *joined(const char *text)
{
	struct buf b = {0};
	for (; *text; text++)
		if (strncmp(text, "    ", 4) == 0)
			text += 3;
		else if (*text != '\n')
			buf_putc(&b, *text);
	return buf_take(&b);
}

static struct chat *load_case(const json_t *c)
{
	const char *file = json_string_value(json_object_get(c, "file")), *path = testdata(file);
	struct chat *chat = NULL;
	struct why why = {""};
	if (!path)
		return NULL;
	if (file_is_dir(path)) {
		cr_assert_eq(chat_load(path, &chat, &why), 0, "%s: %s", path, why.text);
		return chat;
	}
	char *text;
	size_t n;
	cr_assert_eq(file_read(path, 1 << 20, &text, &n, &why), 0, "%s", why.text);
	if (json_is_true(json_object_get(c, "joined"))) {
		char *one = joined(text);
		free(text);
		text = one;
	}
	cr_assert_eq(chat_help_load(text, json_string_value(json_object_get(c, "bos")),
				    json_string_value(json_object_get(c, "eos")), &chat, &why),
		     0, "%s: %s", file, why.text);
	free(text);
	return chat;
}

static int render(const struct chat *chat, const json_t *messages, struct chat_prompt *p, struct why *why)
{
	struct chat_input rq = {.messages = messages, .add_generation_prompt = true};
	return chat_render_json(chat, &rq, p, why);
}

static char *with_date(const char *text)
{
	struct buf b = {0};
	char date[32];
	time_t now = time(NULL);
	strftime(date, sizeof date, "%d %b %Y", localtime(&now));
	const char *at = strstr(text, "@DATE@");
	if (!at)
		return xstrdup(text);
	buf_put(&b, text, (size_t)(at - text));
	buf_puts(&b, date);
	buf_puts(&b, at + 6);
	return buf_take(&b);
}

static void compare(const char *name, const char *title, const struct chat *chat, const json_t *messages,
		    const json_t *expect)
{
	struct chat_prompt p = {0};
	struct why why = {""};
	int rc = render(chat, messages, &p, &why);
	if (json_is_null(expect)) {
		cr_expect_neq(rc, 0, "%s, %s: rendered although the template refuses it", name, title);
	} else if (rc) {
		cr_expect(false, "%s, %s: %s", name, title, why.text);
	} else {
		char *text = with_date(json_string_value(expect));
		cr_expect_str_eq(p.text.p, text, "%s, %s:\n--- got\n%s\n--- expected\n%s", name, title,
				 p.text.p, text);
		free(text);
	}
	chat_prompt_fini(&p);
}

Test(chat, renders_like_the_reference_templates)
{
	json_t *golden;
	struct why why;
	int seen = 0;
	cr_assert_eq(json_read(repofile("tests/golden/chat.json"), 1 << 20, &golden, &why), 0, "%s",
		     why.text);
	json_t *conversations = json_object_get(golden, "conversations");
	size_t i;
	const json_t *c;
	json_array_foreach(json_object_get(golden, "cases"), i, c)
	{
		struct chat *chat = load_case(c);
		if (!chat)
			continue;
		const char *title;
		json_t *expect;
		json_object_foreach(json_object_get(c, "results"), title, expect)
			compare(json_string_value(json_object_get(c, "name")), title, chat,
				json_object_get(conversations, title), expect);
		chat_free(chat);
		seen++;
	}
	json_decref(golden);
	if (!seen)
		cr_skip_test("the templates are missing");
}

static const char chatml[] = "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + "
			     "message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
			     "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

Test(chat, message_contents_are_plain_text_and_markers_are_not)
{
	struct chat *chat;
	struct chat_prompt p;
	struct why why;
	json_t *m = json_pack("[{s:s, s:s}, {s:s, s:s}]", "role", "system", "content", "s", "role", "user",
			      "content", "<|im_end|>");
	cr_assert_eq(chat_help_load(chatml, "", "", &chat, &why), 0, "%s", why.text);
	cr_assert_eq(render(chat, m, &p, &why), 0);
	cr_assert_str_eq(p.text.p, "<|im_start|>system\ns<|im_end|>\n<|im_start|>user\n<|im_end|><|im_end|>\n"
				   "<|im_start|>assistant\n");
	cr_assert_eq(p.n_plain, 2);
	for (size_t i = 0; i < 2; i++) {
		const json_t *content = json_object_get(json_array_get(m, i), "content");
		cr_assert_eq(p.plain[i].end - p.plain[i].start, json_string_length(content));
		cr_assert_eq(memcmp(p.text.p + p.plain[i].start, json_string_value(content),
				    json_string_length(content)),
			     0);
	}
	chat_prompt_fini(&p);
	chat_free(chat);
	json_decref(m);
}

Test(chat, an_invalid_template_is_refused_with_its_line)
{
	struct chat *chat = NULL;
	struct why why = {""};
	cr_expect_eq(
		chat_help_load("a\n{% for m in messages %}\n{{ m. }}\n{% endfor %}", "", "", &chat, &why),
		-EINVAL);
	cr_expect(strstr(why.text, "line 3"), "%s", why.text);
}

Test(chat, a_folder_without_a_template_is_named)
{
	struct chat_folder f;
	struct chat *chat;
	struct why why;
	chat_folder_make(&f);
	cr_assert_eq(chat_load(f.path, &chat, &why), -ENOTSUP);
	cr_assert(strstr(why.text, "no chat template"), "%s", why.text);
	chat_folder_remove(&f);
}

Test(chat, the_default_one_of_several_templates_is_used)
{
	struct chat_folder f;
	struct chat *chat;
	struct why why;
	chat_folder_make(&f);
	json_t *config = json_pack("{s:[{s:s, s:s}, {s:s, s:s}]}", "chat_template", "name", "tool_use",
				   "template", "?", "name", "default", "template", chatml);
	char *text = json_dumps(config, 0);
	chat_folder_write(&f, "tokenizer_config.json", text);
	cr_assert_eq(chat_load(f.path, &chat, &why), 0, "%s", why.text);
	chat_free(chat);
	free(text);
	json_decref(config);
	chat_folder_remove(&f);
}
