/* Anthropic requests become requests of the chat dialect. */
#include "controller/apis/anthropic/anthropic_read.h"
#include "tests/unit/apis/read_rig.h"

TestSuite(anthropic_read, .timeout = 60);

static const struct anthropic_reading usual = {.thinks = true};

static void becomes_without(const char *client, const char *want, const char *without)
{
	json_t *c = parsed(client), *out = NULL;
	struct api_problem p = {0};
	char ignored[512];
	cr_assert_eq(anthropic_read(c, &usual, &out, ignored, &p), 0, "%s: %s", client, p.why);
	cr_expect_str_eq(ignored, without, "%s: %s", client, ignored);
	expect_json(out, want, client);
	json_decref(out);
	json_decref(c);
}

static void becomes(const char *client, const char *want)
{
	becomes_without(client, want, "");
}

/* Expects that `without` lists the fields of the request that have no effect. */
static void names(const char *client, const char *without)
{
	json_t *c = parsed(client), *out = NULL;
	struct api_problem p = {0};
	char ignored[512];
	cr_assert_eq(anthropic_read(c, &usual, &out, ignored, &p), 0, "%s: %s", client, p.why);
	cr_expect_str_eq(ignored, without, "%s: %s", client, ignored);
	json_decref(out);
	json_decref(c);
}

static void refused(const char *client, const char *param, const char *words)
{
	json_t *c = parsed(client), *out = NULL;
	struct api_problem p = {0};
	char ignored[512];
	cr_assert_neq(anthropic_read(c, &usual, &out, ignored, &p), 0, "taken: %s", client);
	cr_expect_str_eq(p.param, param, "%s: %s", client, p.why);
	cr_expect(strstr(p.why, words), "%s: %s", client, p.why);
	json_decref(c);
}

#define ASK   "\"max_tokens\": 5, \"messages\": [{\"role\": \"user\", \"content\": \"a\"}]"
#define ASKED "\"max_tokens\": 5, \"messages\": [{\"role\": \"user\", \"content\": \"a\"}]"

Test(anthropic_read, plain_fields_pass)
{
	becomes("{\"model\": \"m\", " ASK
		", \"temperature\": 0.5, \"top_p\": 0.9, \"top_k\": 4, \"stream\": true, "
		"\"stop_sequences\": [\"x\"], \"metadata\": {\"user_id\": \"u\"}, \"container\": null}",
		"{\"model\": \"m\", " ASKED
		", \"temperature\": 0.5, \"top_p\": 0.9, \"top_k\": 4, \"stream\": true, "
		"\"stop\": [\"x\"], \"user\": \"u\"}");
}

Test(anthropic_read, the_system_comes_first)
{
	becomes("{" ASK ", \"system\": \"s\"}", "{\"max_tokens\": 5, \"messages\": [{\"role\": \"system\", "
						"\"content\": \"s\"}, {\"role\": \"user\", "
						"\"content\": \"a\"}]}");
	becomes_without("{" ASK
			", \"system\": [{\"type\": \"text\", \"text\": \"s\", \"cache_control\": {\"type\": "
			"\"ephemeral\"}}, {\"type\": \"text\", \"text\": \"t\"}]}",
			"{\"max_tokens\": 5, \"messages\": [{\"role\": \"system\", \"content\": [{\"type\": "
			"\"text\", \"text\": "
			"\"s\"}, {\"type\": \"text\", \"text\": \"t\"}]}, {\"role\": \"user\", \"content\": "
			"\"a\"}]}",
			"system.cache_control");
	becomes("{" ASK ", \"system\": []}", "{" ASKED "}");
}

#define BILLING "x-anthropic-billing-header: cc_version=2.1.37.fbe; cc_entrypoint=cli; cch=a3f19;"
#define SYSTEM  "{\"max_tokens\": 5, \"messages\": [{\"role\": \"system\", \"content\": "
#define USER    "}, {\"role\": \"user\", \"content\": \"a\"}]}"

/* The hash in Claude Code's first line changes with each request, which would defeat the prefix cache. */
Test(anthropic_read, a_billing_line_at_the_start_of_the_system_prompt_is_dropped)
{
	static const char named[] = "system.x-anthropic-billing-header";
	becomes_without("{" ASK ", \"system\": [{\"type\": \"text\", \"text\": \"" BILLING
			"\"}, {\"type\": \"text\", \"text\": \"s\"}]}",
			SYSTEM "\"s\"" USER, named);
	becomes_without("{" ASK ", \"system\": [{\"type\": \"text\", \"text\": \"" BILLING
			"  \\r\\ns\\nt\"}]}",
			SYSTEM "\"s\\nt\"" USER, named);
	becomes_without("{" ASK ", \"system\": \"" BILLING "\\ns\"}", SYSTEM "\"s\"" USER, named);
	becomes_without("{" ASK ", \"system\": \"" BILLING "\"}", "{" ASKED "}", named);
	becomes_without("{" ASK ", \"system\": [{\"type\": \"text\", \"text\": \"" BILLING "\"}]}",
			"{" ASKED "}", named);
}

Test(anthropic_read, other_lines_that_name_billing_are_kept)
{
	static const char *const kept[] = {
		("s\\n" BILLING),
		"x-anthropic-billing-header",
		"x-anthropic-billing-header: none\\ns",
		"x-anthropic-billing-headers: cch=1;",
		"x-anthropic-billing-header: cch=1; You are an agent.",
	};
	for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
		char client[512], want[512];
		snprintf(client, sizeof client, "{" ASK ", \"system\": \"%s\"}", kept[i]);
		snprintf(want, sizeof want, SYSTEM "\"%s\"" USER, kept[i]);
		becomes(client, want);
	}
}

Test(anthropic_read, tool_use_and_results_become_calls_and_tool_messages)
{
	becomes("{\"max_tokens\": 5, \"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": "
		"\"assistant\", "
		"\"content\": [{\"type\": \"thinking\", \"thinking\": \"hm\", \"signature\": \"x\"}, "
		"{\"type\": \"text\", "
		"\"text\": \"b\"}, {\"type\": \"tool_use\", \"id\": \"i\", \"name\": \"f\", \"input\": "
		"{\"k\": 1}}]}, "
		"{\"role\": \"user\", \"content\": [{\"type\": \"tool_result\", \"tool_use_id\": \"i\", "
		"\"content\": "
		"[{\"type\": \"text\", \"text\": \"r\"}]}, {\"type\": \"text\", \"text\": \"c\"}]}]}",
		"{\"max_tokens\": 5, \"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": "
		"\"assistant\", "
		"\"content\": \"b\", \"reasoning_content\": \"hm\", \"tool_calls\": [{\"id\": \"i\", "
		"\"type\": "
		"\"function\", \"function\": {\"name\": \"f\", \"arguments\": \"{\\\"k\\\":1}\"}}]}, "
		"{\"role\": \"tool\", "
		"\"tool_call_id\": \"i\", \"content\": \"r\"}, {\"role\": \"user\", \"content\": \"c\"}]}");
}

#define SAY(role, content) "{\"role\": \"" role "\", \"content\": " content "}"
#define TALK(messages)     "{\"max_tokens\": 5, \"messages\": [" messages "]}"

Test(anthropic_read, blocks_keep_their_order_and_messages_their_number)
{
	becomes(TALK(SAY("user", "[{\"type\": \"text\", \"text\": \"a\"}, {\"type\": \"tool_result\", "
				 "\"tool_use_id\": "
				 "\"i\"}, {\"type\": \"text\", \"text\": \"b\"}]")),
		TALK(SAY("user", "\"a\"") ", {\"role\": \"tool\", \"tool_call_id\": \"i\", \"content\": "
					  "\"\"}, " SAY("user", "\"b\"")));
	becomes(TALK(SAY("user", "[]")), TALK(SAY("user", "\"\"")));
	becomes(TALK(SAY("user",
			 "[{\"type\": \"text\", \"text\": \"a\"}, {\"type\": \"text\", \"text\": \"b\"}]")),
		TALK(SAY("user",
			 "[{\"type\": \"text\", \"text\": \"a\"}, {\"type\": \"text\", \"text\": \"b\"}]")));
}

Test(anthropic_read, a_message_that_has_called_a_tool_is_not_continued)
{
	becomes(TALK(SAY("assistant", "[{\"type\": \"tool_use\", \"id\": \"i\", \"name\": \"f\"}]")),
		TALK("{\"role\": \"assistant\", \"content\": \"\", \"tool_calls\": [{\"id\": \"i\", "
		     "\"type\": "
		     "\"function\", \"function\": {\"name\": \"f\", \"arguments\": \"{}\"}}]}"));
}

Test(anthropic_read, a_last_message_of_the_assistant_is_continued)
{
	becomes("{\"max_tokens\": 5, \"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": "
		"\"assistant\", "
		"\"content\": \"b\"}]}",
		"{\"max_tokens\": 5, \"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": "
		"\"assistant\", "
		"\"content\": \"b\"}], \"continue_final_message\": true, \"add_generation_prompt\": false}");
}

Test(anthropic_read, tools_and_the_choice_of_one)
{
	becomes("{\"max_tokens\": 5, \"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"tools\": "
		"[{\"name\": \"f\", \"description\": \"d\", \"input_schema\": {\"type\": \"object\"}}], "
		"\"tool_choice\": {\"type\": \"tool\", \"name\": \"f\", \"disable_parallel_tool_use\": "
		"true}}",
		"{\"max_tokens\": 5, \"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"tools\": "
		"[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"description\": \"d\", "
		"\"parameters\": {\"type\": \"object\"}}}], \"tool_choice\": {\"type\": \"function\", "
		"\"function\": {\"name\": \"f\"}}, \"parallel_tool_calls\": false}");
	becomes("{" ASK ", \"tool_choice\": {\"type\": \"any\"}}",
		"{" ASKED ", \"tool_choice\": \"required\"}");
	becomes("{" ASK ", \"tool_choice\": {\"type\": \"auto\"}}", "{" ASKED ", \"tool_choice\": \"auto\"}");
	becomes("{" ASK ", \"tool_choice\": {\"type\": \"none\"}}", "{" ASKED ", \"tool_choice\": \"none\"}");
	refused("{" ASK ", \"tools\": [{\"type\": \"bash_20250124\", \"name\": \"bash\"}]}", "tools",
		"bash_20250124");
	refused("{" ASK ", \"tool_choice\": \"auto\"}", "tool_choice", "must be");
}

Test(anthropic_read, thinking_has_a_budget)
{
	becomes("{" ASK ", \"thinking\": {\"type\": \"enabled\", \"budget_tokens\": 1024}}",
		"{" ASKED ", \"thinking_token_budget\": 1024, \"enable_thinking\": true}");
	becomes("{" ASK ", \"thinking\": {\"type\": \"disabled\"}}",
		"{" ASKED ", \"enable_thinking\": false}");
	becomes("{" ASK ", \"thinking\": {\"type\": \"adaptive\", \"display\": \"omitted\"}}",
		"{" ASKED ", \"include_reasoning\": false}");
	becomes("{" ASK ", \"thinking\": {\"type\": \"adaptive\", \"display\": \"summarized\"}}",
		"{" ASKED "}");
	refused("{" ASK ", \"thinking\": {\"type\": \"enabled\"}}", "thinking", "budget_tokens");
	refused("{" ASK ", \"thinking\": {\"type\": \"enabled\", \"budget_tokens\": 0}}", "thinking",
		"from 1 to");
	refused("{" ASK ", \"thinking\": true}", "thinking", "must be");
}

Test(anthropic_read, the_output_may_have_a_form)
{
	becomes("{" ASK ", \"output_config\": {\"effort\": \"max\", \"format\": {\"type\": \"json_schema\", "
		"\"schema\": "
		"{\"type\": \"object\"}}}}",
		"{" ASKED
		", \"reasoning_effort\": \"high\", \"response_format\": {\"type\": \"json_schema\", "
		"\"json_schema\": {\"name\": \"output\", \"schema\": {\"type\": \"object\"}, \"strict\": "
		"true}}}");
	becomes("{" ASK ", \"output_config\": {\"effort\": \"xhigh\"}}",
		"{" ASKED ", \"reasoning_effort\": \"high\"}");
	becomes("{" ASK ", \"output_config\": {\"effort\": \"low\"}}",
		"{" ASKED ", \"reasoning_effort\": \"low\"}");
	refused("{" ASK ", \"stop_sequences\": [\"a\", \"\"]}", "stop_sequences", "stop_sequences[1]");
	refused("{" ASK ", \"output_config\": {\"format\": {\"type\": \"text\"}}}", "output_config",
		"json_schema");
	refused("{" ASK ", \"output_config\": {\"effort\": 5}}", "output_config.effort",
		"output_config.effort must be a string");
}

Test(anthropic_read, what_is_not_taken_is_refused_by_name)
{
	static const char *const blocks[] = {"image", "document", "search_result", "server_tool_use"};
	for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) {
		char text[256];
		snprintf(text, sizeof text,
			 "{\"max_tokens\": 5, \"messages\": [{\"role\": \"user\", \"content\": [{\"type\": "
			 "\"text\", "
			 "\"text\": \"a\"}, {\"type\": \"%s\"}]}]}",
			 blocks[i]);
		refused(text, "messages", blocks[i]);
		refused(text, "messages", "messages[0].content[1]");
	}
	refused("{" ASK ", \"mcp_servers\": [{}]}", "mcp_servers", "mcp_servers is not supported");
	refused("{" ASK ", \"container\": \"c\"}", "container", "container is not supported");
	refused("{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}", "max_tokens", "must be given");
	refused("{\"max_tokens\": 5}", "messages", "must be given");
}

Test(anthropic_read, every_wrong_type_is_an_error)
{
	static const char *const all[] = {
		"{\"max_tokens\": 5, \"messages\": []}",
		"{\"max_tokens\": 5, \"messages\": {}}",
		"{\"max_tokens\": 5, \"messages\": [5]}",
		"{\"max_tokens\": 5, \"messages\": [{}]}",
		"{\"max_tokens\": 5, \"messages\": [{\"role\": \"tool\", \"content\": \"a\"}]}",
		"{\"max_tokens\": 5, \"messages\": [{\"role\": \"user\"}]}",
		"{\"max_tokens\": 5, \"messages\": [{\"role\": \"user\", \"content\": [5]}]}",
		"{\"max_tokens\": 5, \"messages\": [{\"role\": \"user\", \"content\": [{\"type\": "
		"\"text\"}]}]}",
		"{\"max_tokens\": 5, \"messages\": [{\"role\": \"user\", \"content\": [{\"type\": "
		"\"tool_result\"}]}]}",
		"{\"max_tokens\": 5, \"messages\": [{\"role\": \"user\", \"content\": [{\"type\": "
		"\"tool_result\", "
		"\"tool_use_id\": \"i\", \"content\": 5}]}]}",
		"{\"max_tokens\": 5, \"messages\": [{\"role\": \"assistant\", \"content\": [{\"type\": "
		"\"tool_use\", "
		"\"id\": \"i\"}]}]}",
		"{\"max_tokens\": 5, \"messages\": [{\"role\": \"assistant\", \"content\": [{\"type\": "
		"\"tool_use\", "
		"\"id\": \"i\", \"name\": \"f\", \"input\": 5}]}]}",
		"{\"max_tokens\": 5, \"messages\": [{\"role\": \"assistant\", \"content\": [{\"type\": "
		"\"thinking\"}]}]}",
		"{" ASK ", \"system\": 5}",
		"{" ASK ", \"system\": [{\"type\": \"image\"}]}",
		"{" ASK ", \"tools\": {}}",
		"{" ASK ", \"tools\": [5]}",
		"{" ASK ", \"tools\": [{\"name\": \"f\"}]}",
		"{" ASK ", \"tools\": [{\"input_schema\": {}}]}",
		"{" ASK ", \"tool_choice\": {\"type\": \"tool\"}}",
		"{" ASK ", \"tool_choice\": {\"type\": \"any\", \"disable_parallel_tool_use\": 1}}",
		"{" ASK ", \"stop_sequences\": \"x\"}",
		"{" ASK ", \"stop_sequences\": [\"\"]}",
		"{" ASK ", \"metadata\": 5}",
		"{" ASK ", \"output_config\": 5}",
		"{" ASK ", \"output_config\": {\"effort\": 5}}",
		"{" ASK ", \"thinking\": {\"type\": \"enabled\", \"budget_tokens\": 0}}",
		"{" ASK ", \"thinking\": {\"type\": \"adaptive\", \"display\": 5}}",
	};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
		json_t *c = parsed(all[i]), *out = NULL;
		struct api_problem p = {0};
		char ignored[512];
		cr_expect_neq(anthropic_read(c, &usual, &out, ignored, &p), 0, "taken: %s", all[i]);
		cr_expect(p.why[0] && p.param[0], "%s", all[i]);
		json_decref(c);
	}
}

Test(anthropic_read, unknown_fields_are_named_or_refused)
{
	json_t *c = parsed("{" ASK ", \"speed\": \"fast\", \"tempo\\u00e9\": 1}"), *out = NULL;
	struct anthropic_reading strict = {.strict = true};
	struct api_problem p = {0};
	char ignored[512];
	cr_assert_eq(anthropic_read(c, &usual, &out, ignored, &p), 0, "%s", p.why);
	cr_expect_str_eq(ignored, "speed, tempo??");
	json_decref(out);
	cr_assert_neq(anthropic_read(c, &strict, &out, ignored, &p), 0);
	cr_expect(strstr(p.why, "unknown field tempo"), "%s", p.why);
	json_decref(c);
}

Test(anthropic_read, each_name_without_effect_is_listed_once)
{
	names("{" ASK ", \"brand_new\": 1, \"brand\": 2, \"new\": 3}", "brand_new, brand, new");
	names(TALK(SAY("assistant", "[{\"type\": \"redacted_thinking\", \"data\": \"x\"}, {\"type\": "
				    "\"redacted_thinking\", \"data\": \"y\"}]")),
	      "messages.redacted_thinking");
}

/* Checks members of tools, the tool choice, thinking, structured output, messages and content blocks. */
Test(anthropic_read, members_without_effect_are_named)
{
	names("{" ASK ", \"tools\": [{\"name\": \"f\", \"input_schema\": {}, \"cache_control\": {}, "
	      "\"defer_loading\": true, \"brand_new\": 1}]}",
	      "tools.cache_control, tools.defer_loading, tools.brand_new");
	names("{" ASK ", \"tools\": [{\"name\": \"f\", \"input_schema\": {\"title\": \"any\"}}], "
	      "\"tool_choice\": {\"type\": \"auto\", \"name\": \"f\", \"new\": 1}}",
	      "tool_choice.name, tool_choice.new");
	names("{" ASK ", \"thinking\": {\"type\": \"adaptive\", \"budget_tokens\": 5, \"depth\": 1}}",
	      "thinking.budget_tokens, thinking.depth");
	names("{" ASK ", \"metadata\": {\"team\": \"t\"}, \"output_format\": {\"type\": \"json_schema\", "
	      "\"schema\": {}, \"name\": \"n\"}}",
	      "output_format.name, metadata.team");
	names("{\"max_tokens\": 5, \"messages\": [{\"role\": \"assistant\", \"content\": [{\"type\": "
	      "\"text\", "
	      "\"text\": \"a\", \"citations\": []}, {\"type\": \"tool_use\", \"id\": \"i\", \"name\": \"f\", "
	      "\"caller\": {}}]}, {\"role\": \"user\", \"at\": 1, \"content\": [{\"type\": \"tool_result\", "
	      "\"tool_use_id\": \"i\", \"is_error\": true, \"content\": [{\"type\": \"text\", \"text\": "
	      "\"b\", "
	      "\"colour\": 1}]}]}]}",
	      "messages.citations, messages.caller, messages.at, messages.colour, messages.is_error");
	names("{\"max_tokens\": 5, \"messages\": [{\"role\": \"user\", \"content\": [{\"type\": "
	      "\"tool_result\", "
	      "\"tool_use_id\": \"i\", \"is_error\": false}]}]}",
	      "");
}

Test(anthropic_read, unknown_members_are_refused_where_strict)
{
	static const char *const all[][2] = {
		{"{" ASK ", \"tools\": [{\"name\": \"f\", \"input_schema\": {}, \"new\": 1}]}", "tools.new"},
		{"{" ASK ", \"tool_choice\": {\"type\": \"auto\", \"new\": 1}}", "tool_choice.new"},
		{"{" ASK ", \"thinking\": {\"type\": \"adaptive\", \"new\": 1}}", "thinking.new"},
		{"{" ASK ", \"system\": [{\"type\": \"text\", \"text\": \"s\", \"new\": 1}]}", "system.new"},
		{"{\"max_tokens\": 5, \"messages\": [{\"role\": \"user\", \"content\": \"a\", \"new\": 1}]}",
		 "messages.new"},
	};
	const struct anthropic_reading strict = {.strict = true};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
		json_t *c = parsed(all[i][0]), *out = NULL;
		struct api_problem p = {0};
		char ignored[512], words[64];
		cr_assert_neq(anthropic_read(c, &strict, &out, ignored, &p), 0, "taken: %s", all[i][0]);
		snprintf(words, sizeof words, "unknown field %s", all[i][1]);
		cr_expect_str_eq(p.param, all[i][1]);
		cr_expect_str_eq(p.why, words);
		json_decref(c);
	}
}

Test(anthropic_read, counting_needs_the_prompt_only)
{
	json_t *c = parsed("{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"stream\": true, "
			   "\"max_tokens\": 5, \"metadata\": {\"user_id\": \"u\"}}"),
	       *out = NULL;
	const struct anthropic_reading count = {.count = true};
	struct api_problem p = {0};
	char ignored[512];
	cr_assert_eq(anthropic_read(c, &count, &out, ignored, &p), 0, "%s", p.why);
	expect_json(out, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}", "the count");
	json_decref(out);
	json_decref(c);
}
