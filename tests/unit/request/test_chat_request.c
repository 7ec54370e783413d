/* The handling of tools in a chat depends on the template's output and on the tokenizer. */
#include "base/file.h"
#include "controller/request/chat_request.h"
#include "tests/unit/request/api_rig.h"

#include <stdlib.h>
#include <unistd.h>

TestSuite(chat_styles, .init = open_demo, .fini = close_demo, .timeout = 60);

static void write_file(const char *dir, const char *name, const char *text)
{
	char *path = file_join(dir, name);
	FILE *f = fopen(path, "w");
	cr_assert(f && fputs(text, f) >= 0 && fclose(f) == 0, "%s", path);
	free(path);
}

static void remove_file(const char *dir, const char *name)
{
	char *path = file_join(dir, name);
	unlink(path);
	free(path);
}

/* Serve the demo with another template, and detect its tool style alone. */
static struct chat *serve(const char *template)
{
	struct why why = {""};
	char dir[] = "/tmp/quern-styles-XXXXXX";
	struct chat *c = NULL;
	cr_assert_not_null(mkdtemp(dir));
	write_file(dir, "chat_template.jinja", template);
	cr_assert_eq(chat_load(dir, &c, &why), 0, "%s", why.text);
	remove_file(dir, "chat_template.jinja");
	rmdir(dir);
	demo.svc.chat = c;
	cr_assert_eq(chat_request_styles(&demo.svc, "auto", "auto", &why), 0, "%s", why.text);
	return c;
}

static void end(struct chat *c)
{
	chat_free(c);
	demo.svc.chat = demo.chat;
}

/* Return the reason of the refusal, or "" if the request is taken. */
static const char *reason(const char *request)
{
	static struct api_problem p;
	struct submit *s;
	p = (struct api_problem){0};
	if (submit(API_CHAT, request, &s, NULL, &p) == 0)
		submit_free(s);
	return p.why;
}

#define TOOLS   "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}"
#define CONTENT "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"

static const char with_tools[] =
	"{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"tools\": [{\"type\": \"function\", "
	"\"function\": {\"name\": \"f\"}}]}";
static const char loop[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": "
			   "\"assistant\", \"content\": null, "
			   "\"tool_calls\": [{\"id\": \"c\", \"type\": \"function\", \"function\": "
			   "{\"name\": \"f\", \"arguments\": "
			   "\"{}\"}}]}, {\"role\": \"tool\", \"tool_call_id\": \"c\", \"content\": \"r\"}], "
			   "\"tools\": [{\"type\": "
			   "\"function\", \"function\": {\"name\": \"f\"}}]}";

Test(chat_styles, tools_that_a_template_does_not_show_are_refused)
{
	struct chat *c = serve("{% if tools %}You have tools. {% endif %}{# <tool_call> #}" CONTENT);
	cr_expect(strstr(reason(with_tools), "takes no tools"), "%s", reason(with_tools));
	end(c);
}

Test(chat_styles, a_loop_of_tools_goes_on_where_the_template_shows_no_calls)
{
	struct chat *c = serve(TOOLS "Answer <tool_call>{..}</tool_call>. " CONTENT);
	cr_expect_eq(demo.svc.tools, TOOLS_HERMES);
	cr_expect_str_empty(reason(with_tools));
	cr_expect_str_empty(reason(loop));
	demo.svc.tools = TOOLS_NONE; /* --tool-parser none: a call cannot be written */
	cr_expect(strstr(reason(loop), "tool"), "%s", reason(loop));
	end(c);
}

/* LFM2.5's template has no keyword of a format. */
Test(chat_styles, a_mark_among_the_special_tokens_names_the_format)
{
	struct why why = {""};
	char dir[] = "/tmp/quern-tokens-XXXXXX", *text;
	size_t n;
	struct buf b = {0};
	struct tokenizer *t;
	cr_assert_eq(file_read(repofile("models/demo/tokenizer.json"), 64 << 20, &text, &n, &why), 0, "%s",
		     why.text);
	for (const char *at = text, *next; *at; at = next) {
		static const char old[] = "<|im_end|>";
		next = strstr(at, old);
		buf_put(&b, at, next ? (size_t)(next - at) : strlen(at));
		if (next)
			buf_puts(&b, "<|tool_call_start|>");
		next = next ? next + strlen(old) : at + strlen(at);
	}
	cr_assert_not_null(mkdtemp(dir));
	write_file(dir, "tokenizer.json", b.p);
	cr_assert_eq(tokenizer_load(dir, &t, &why), 0, "%s", why.text);
	remove_file(dir, "tokenizer.json");
	rmdir(dir);
	demo.svc.tokenizer = t;
	struct chat *c = serve(TOOLS CONTENT);
	cr_expect_eq(demo.svc.tools, TOOLS_LFM2);
	end(c);
	c = serve(CONTENT); /* shows no tools, so the mark has no meaning */
	cr_expect_eq(demo.svc.tools, TOOLS_NONE);
	end(c);
	demo.svc.tokenizer = demo.tokenizer;
	tokenizer_free(t);
	buf_fini(&b);
	free(text);
}
