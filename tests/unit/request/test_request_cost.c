/* The requests that may take long to prepare, judged by their bytes. */
#include "controller/request/request_cost.h"

#include <criterion/criterion.h>
#include <string.h>

static bool is_costly(const char *body)
{
	return request_is_costly(body, strlen(body));
}

Test(request_cost, names_of_fields_that_are_compiled)
{
	static const char *const all[] = {
		"{\"response_format\": {}}",
		"{\"text\": {\"format\": {}}}",
		"{\"guided_json\": 1}",
		"{\"guided_choice\": []}",
		"{\"structured_outputs\": {}}",
		"{\"grammar\": \"\"}",
		"{\"json_schema\": {}}",
		"{\"regex\": \"a\"}",
		"{\"ebnf\": \"\"}",
		"{\"tools\": []}",
		"{\"functions\": []}",
		"{\"thinking_token_budget\": 1}",
		"{\"previous_response_id\": 1}",
		"{\"conversation\": \"conv_1\"}",
		"\x81\xa7grammar\xa1x",
	};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		cr_expect(is_costly(all[i]), "%s", all[i]);
}

Test(request_cost, a_name_may_be_spelled_by_codes)
{
	cr_expect(is_costly("{\"\\u0067uided_json\": 1}"));
	cr_expect(is_costly("{\"to\\u006Fls\": 1}"));
	cr_expect(is_costly("{\"to\\\\u006Fls\": 1}"), "doubt counts");
}

Test(request_cost, ordinary_requests_are_not)
{
	cr_expect_not(request_is_costly(NULL, 0));
	cr_expect_not(is_costly("{\"prompt\": \"Once upon a time\", \"max_tokens\": 5, \"stream\": true}"));
	cr_expect_not(is_costly(
		"{\"messages\": [{\"role\": \"user\", \"content\": \"caf\\u00e9 \\u003cb\\u003e\"}]}"));
	cr_expect_not(is_costly("{\"prompt\": \"\\u00"));
	cr_expect_not(request_is_costly("{\"tools\": []}", 5), "what stands behind the body does not count");
}
