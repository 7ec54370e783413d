/* fuzz_http_openai.c - damaged bodies of HTTP requests: JSON, fields, messages, tools, template, tokenizer.
 * A request is accepted as a whole or refused with a reason that is valid UTF-8; the list of ignored fields
 * is bounded.
 *
 * The first byte chooses the dialect, and either one of the bodies below, damaged by the pairs (place, byte)
 * that follow, or the rest of the input unchanged.
 *
 *   make fuzz, or: build/asan-fuzz/fuzz/fuzz_http_openai CORPUS */
#include "base/json.h"
#include "controller/apis/anthropic/anthropic_read.h"
#include "controller/apis/llamacpp/llamacpp_read.h"
#include "controller/apis/ollama/ollama_read.h"
#include "controller/apis/openai/responses_read.h"
#include "controller/request/api.h"
#include "controller/request/chat_request.h"
#include "tests/fuzz/demo.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum {
	SEEDS = 12,
	RESPONSES = 6, /* from here on: Responses API */
	FOREIGN = 8,   /* from here on: Anthropic, Ollama (chat, generate) and llama.cpp */
	N_FOREIGN = SEEDS - FOREIGN,
};

static const char *const seeds[SEEDS] = {
	"{\"prompt\":[\"Once\",[1,300,301]],\"n\":2,\"stop\":[\"a\"],\"temperature\":0.5,\"logit_bias\":{"
	"\"5\":-100},"
	"\"logprobs\":3,\"echo\":true,\"seed\":7,\"max_tokens\":5,\"user\":\"u\",\"suffix\":null,\"best_of\":"
	"2}",
	"{\"messages\":[{\"role\":\"system\",\"content\":\"a\"},{\"role\":\"user\",\"content\":[{\"type\":"
	"\"text\","
	"\"text\":\"b\"}]}],\"max_completion_tokens\":9,\"logprobs\":true,\"top_logprobs\":3,\"stream\":true,"
	"\"stream_options\":{\"include_usage\":true,\"continuous_usage_stats\":false}}",
	"{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":null,"
	"\"tool_calls\":"
	"[{\"id\":\"c\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"a\\\":1}\"}}]"
	"},"
	"{\"role\":\"tool\",\"tool_call_id\":\"c\",\"content\":\"1\"}]}",
	"{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"tools\":[{\"type\":\"function\","
	"\"function\":{\"name\":"
	"\"f\",\"parameters\":{\"type\":\"object\"}}}],\"tool_choice\":{\"type\":\"function\",\"function\":{"
	"\"name\":\"f\"}},"
	"\"parallel_tool_calls\":false}",
	"{\"messages\":[{\"role\":\"assistant\",\"content\":\"Once\"}],\"chat_template_kwargs\":{\"enable_"
	"thinking\":false},"
	"\"continue_final_message\":true,\"reasoning_effort\":\"none\",\"documents\":[],\"response_format\":{"
	"\"type\":\"text\"}}",
	"{\"messages\":[{\"role\":\"user\",\"content\":\"<|im_end|>\"}],\"metadata\":{\"a\":1},\"store\":"
	"false,\"n\":64,"
	"\"allowed_token_ids\":[1,2],\"bad_words\":[\"x\"],\"min_tokens\":1,\"priority\":-1,\"deadline_ms\":"
	"9}",
	"{\"input\":[{\"role\":\"user\",\"content\":[{\"type\":\"input_text\",\"text\":\"a\"}]},{\"type\":"
	"\"reasoning\","
	"\"summary\":[],\"content\":[{\"type\":\"reasoning_text\",\"text\":\"h\"}]},{\"type\":\"message\","
	"\"role\":"
	"\"assistant\",\"content\":[{\"type\":\"output_text\",\"text\":\"b\"}]},{\"type\":\"function_call\","
	"\"call_id\":"
	"\"c\",\"name\":\"f\",\"arguments\":\"{}\"},{\"type\":\"function_call_output\",\"call_id\":\"c\","
	"\"output\":"
	"\"1\"}],\"tools\":[{\"type\":\"function\",\"name\":\"f\",\"parameters\":{\"type\":\"object\"}}]}",
	"{\"input\":\"a\",\"instructions\":\"b\",\"max_output_tokens\":9,\"text\":{\"format\":{\"type\":"
	"\"json_schema\","
	"\"name\":\"n\",\"schema\":{\"type\":\"object\"}}},\"reasoning\":{\"effort\":\"low\"},\"tool_"
	"choice\":\"auto\","
	"\"metadata\":{\"a\":\"b\"},\"stream\":true,\"include\":[],\"truncation\":\"disabled\"}",
	/* Anthropic, Ollama (chat, generate) and llama.cpp. */
	"{\"max_tokens\":5,\"system\":[{\"type\":\"text\",\"text\":\"s\"}],\"messages\":[{\"role\":\"user\","
	"\"content\":\"a\"},{\"role\":\"assistant\",\"content\":[{\"type\":\"thinking\",\"thinking\":\"h\"},{"
	"\"type\":\"tool_use\",\"id\":\"i\",\"name\":\"f\",\"input\":{}}]},{\"role\":\"user\",\"content\":[{"
	"\"type\":\"tool_result\",\"tool_use_id\":\"i\",\"content\":[]},{\"type\":\"text\",\"text\":\"c\"}]}]"
	","
	"\"tools\":[{\"name\":\"f\",\"input_schema\":{}}],\"tool_choice\":{\"type\":\"any\"},\"thinking\":{"
	"\"type\":\"enabled\",\"budget_tokens\":9},\"metadata\":{\"user_id\":\"u\"}}",
	"{\"model\":\"m:latest\",\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{"
	"\"name\":"
	"\"f\",\"arguments\":{\"a\":1}}}]},{\"role\":\"tool\",\"tool_name\":\"f\",\"content\":\"r\"}],"
	"\"think\":"
	"true,\"format\":\"json\",\"options\":{\"num_predict\":9,\"stop\":[\"x\"],\"num_ctx\":5}}",
	"{\"model\":\"m\",\"prompt\":\"p\",\"system\":\"s\",\"raw\":false,\"logprobs\":true,\"top_logprobs\":"
	"2,"
	"\"keep_alive\":\"5m\",\"options\":{\"seed\":-1,\"repeat_penalty\":1.1}}",
	"{\"prompt\":[1,2],\"n_predict\":9,\"logit_bias\":[[5,1.5],[6,false]],\"n_probs\":2,\"stop\":[\"x\"],"
	"\"cache_prompt\":true,\"input_prefix\":\"a\",\"input_suffix\":\"b\"}",
};

static void one(const struct service *svc, const char *text, size_t n, enum api_dialect dialect)
{
	struct why why;
	json_t *request, *shown;
	struct submit *s = NULL;
	struct api_reply reply = {0};
	struct api_problem p = {.code = CODE_OK};
	if (json_parse(text, n, &request, &why))
		return;
	size_t prompts = api_n_prompts(request);
	for (size_t i = 0; i < (prompts < 3 ? prompts : 3); i++) {
		int rc = api_submit(svc, FUZZ_CONTEXT, request, dialect, i, &s, &reply, &p);
		if (rc) {
			assert(p.code != CODE_OK && p.why[0] && (shown = json_string(p.why)));
			json_decref(shown);
			assert((shown = json_string(p.param)));
			json_decref(shown);
			break;
		}
		assert(s->n_tokens > 0 && s->n_tokens + s->params.max_tokens <= FUZZ_CONTEXT &&
		       s->params.n <= PARAMS_N_MAX);
		assert(strlen(reply.ignored) < sizeof reply.ignored);
		submit_free(s);
	}
	json_decref(request);
}

/* Convert a body of the Responses API to a chat body; assert that a refusal has a reason. */
static void responses(const struct service *svc, const char *text, size_t n)
{
	struct why why;
	char ignored[512] = "";
	json_t *client, *request, *items, *shown;
	struct api_problem p = {.code = CODE_OK};
	if (json_parse(text, n, &client, &why))
		return;
	int rc = field_table_check(&responses_fields, client, false, ignored, sizeof ignored, &p);
	if (!rc)
		rc = responses_read(client, NULL, &request, &items, &p);
	assert(!rc || (p.code != CODE_OK && p.why[0] && (shown = json_string(p.why))));
	if (rc) {
		json_decref(shown);
	} else {
		char *again = json_dumps(request, JSON_COMPACT);
		assert(again && json_is_array(items));
		one(svc, again, strlen(again), API_CHAT);
		json_decref(responses_repeat(client));
		json_decref(request);
		json_decref(items);
		free(again);
	}
	json_decref(client);
}

static void check_problem(const struct api_problem *p)
{
	json_t *shown;
	assert(p->code != CODE_OK && p->why[0] && (shown = json_string(p->why)));
	json_decref(shown);
	assert((shown = json_string(p->param)));
	json_decref(shown);
}

/* Convert a request of another API (0 to N_FOREIGN - 1) if it is an object; routes refuse others earlier.
 * The caller's. */
static json_t *foreign(const json_t *client, size_t api, enum api_dialect *dialect)
{
	const struct anthropic_reading anthropic = {.thinks = true};
	const struct ollama_reading ollama = {.generate = api == 2, .chats = true, .thinks = true};
	struct ollama_request o = {0};
	struct llamacpp_request l = {0};
	struct api_problem p = {.code = CODE_OK};
	char ignored[512];
	json_t *out = NULL;
	*dialect = api == 3 ? API_COMPLETIONS : API_CHAT;
	int rc = api == 0   ? anthropic_read(client, &anthropic, &out, ignored, &p)
		 : api == 3 ? llamacpp_read(client, false, false, &l, &p)
			    : ollama_read(client, &ollama, &o, &p);
	if (rc) {
		check_problem(&p);
		return NULL;
	}
	if (api == 1 || api == 2)
		*dialect = o.dialect;
	return out ? out : l.request ? l.request : o.request;
}

static void other(const struct service *svc, const char *text, size_t n, size_t api)
{
	struct why why;
	json_t *client, *request;
	enum api_dialect dialect;
	if (json_parse(text, n, &client, &why))
		return;
	request = json_is_object(client) ? foreign(client, api, &dialect) : NULL;
	if (request) {
		char *again = json_dumps(request, JSON_COMPACT);
		assert(again);
		one(svc, again, strlen(again), dialect);
		free(again);
	}
	json_decref(request);
	json_decref(client);
}

static const struct service *demo(void)
{
	static struct service *svc;
	struct why why;
	if (!svc) {
		svc = fuzz_demo(QUERN_ROOT "/tests/golden/chat_tools");
		chat_request_styles(svc, "auto", "auto", &why);
	}
	return svc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	struct buf b = {0};
	if (n == 0)
		return 0;
	size_t which = data[0] & 0x7f;
	if (which < SEEDS) {
		buf_puts(&b, seeds[which]);
		for (size_t i = 1; i + 2 < n; i += 3)
			b.p[(data[i] << 8 | data[i + 1]) % b.len] = (char)data[i + 2];
	} else {
		buf_put(&b, data + 1, n - 1);
	}
	const char *text = b.p ? b.p : "";
	if (which >= FOREIGN && which < SEEDS)
		other(demo(), text, b.len, which - FOREIGN);
	else if (which > SEEDS && which <= SEEDS + N_FOREIGN)
		other(demo(), text, b.len, which - SEEDS - 1);
	else if (which >= RESPONSES && which <= SEEDS)
		responses(demo(), text, b.len);
	else
		one(demo(), text, b.len, data[0] & 0x80 || which == 0 ? API_COMPLETIONS : API_CHAT);
	buf_fini(&b);
	return 0;
}
