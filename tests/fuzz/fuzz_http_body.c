/* fuzz_http_body.c - bodies of HTTP requests: JSON, completions and chats, tokenize.  A request is accepted
 * as a whole or refused with a reason that is valid UTF-8.
 *
 * The first byte chooses the dialect, the rest is the body.
 *
 *   make fuzz, or: build/asan-fuzz/fuzz/fuzz_http_body CORPUS tests/fuzz/seeds/fuzz_http_body */
#include "base/json.h"
#include "controller/request/api.h"
#include "tests/fuzz/demo.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum { PROMPTS_MAX = 64 };

static void check_problem(const struct api_problem *p)
{
	json_t *why = json_string(p->why), *param = json_string(p->param);
	assert(why && param && p->why[0] && p->code != CODE_OK);
	json_decref(why);
	json_decref(param);
}

static void submit(const json_t *request, enum api_dialect dialect, size_t prompt)
{
	struct submit *s = NULL;
	struct api_reply reply = {0};
	struct api_problem problem = {0};
	if (api_submit(fuzz_demo(NULL), FUZZ_CONTEXT, request, dialect, prompt, &s, &reply, &problem)) {
		check_problem(&problem);
		return;
	}
	assert(s && s->n_tokens > 0 && s->n_tokens + s->params.max_tokens <= FUZZ_CONTEXT);
	assert(s->params.n >= 1 && s->params.n <= PARAMS_N_MAX);
	assert(!strpbrk(reply.ignored, "\r\n"));
	submit_free(s);
}

static void tokenize(const json_t *request)
{
	struct token_ids ids = {0};
	struct api_problem problem = {0};
	char ignored[64] = "";
	if (api_tokenize_messages(fuzz_demo(NULL), FUZZ_CONTEXT, request, &ids, ignored, sizeof ignored,
				  &problem))
		check_problem(&problem);
	else
		assert(strlen(ignored) < sizeof ignored && !strpbrk(ignored, "\r\n"));
	token_ids_fini(&ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	json_t *request;
	struct why why;
	if (n == 0 || json_parse((const char *)data + 1, n - 1, &request, &why))
		return 0;
	size_t prompts = data[0] == 'c' ? 1 : api_n_prompts(request);
	if (data[0] == 't')
		tokenize(request);
	else
		for (size_t i = 0; i < prompts && i < PROMPTS_MAX; i++)
			submit(request, data[0] == 'c' ? API_CHAT : API_COMPLETIONS, i);
	json_decref(request);
	return 0;
}
