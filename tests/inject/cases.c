/* cases.c - the paths without threads: input from disk or from a peer, and a worker's start. */
#include "tests/inject/cases.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "controller/request/api.h"
#include "controller/chat/chat.h"
#include "controller/tokenizer/tokenizer.h"
#include "formats/weights.h"
#include "proto/bus.h"
#include "proto/mp.h"
#include "tests/driver.h"
#include "tests/testdata.h"

static int run_config(struct why *why)
{
	static struct model_config c;
	int rc = model_config_load(repofile("models/demo"), &c, why);
	if (!rc)
		model_config_fini(&c);
	return rc;
}

static int run_weights(struct why *why)
{
	static struct model_config c;
	struct weights *w = NULL;
	int rc = model_config_load(repofile("models/demo"), &c, why);
	if (rc)
		return rc;
	rc = weights_open(repofile("models/demo"), &c, &w, why);
	if (!rc)
		weights_close(w);
	model_config_fini(&c);
	return rc;
}

static int run_tokenizer(struct why *why)
{
	static const char text[] = "Once upon a time <|im_end|> caf\xc3\xa9 12345";
	struct tokenizer *t = NULL;
	struct token_ids ids = {0};
	struct buf out = {0};
	int rc = tokenizer_load(repofile("models/demo"), &t, why);
	if (rc)
		return rc;
	rc = tokenizer_encode(t, text, sizeof text - 1, TOKENIZER_ADD_SPECIAL, NULL, 0, &ids, why);
	if (!rc)
		rc = tokenizer_decode(t, ids.ids, ids.n, false, &out);
	token_ids_fini(&ids);
	buf_fini(&out);
	tokenizer_free(t);
	return rc;
}

static int run_chat(struct why *why)
{
	struct chat *chat = NULL;
	struct chat_prompt prompt = {0};
	json_t *messages = NULL;
	static const char text[] =
		"[{\"role\": \"system\", \"content\": \"Be brief.\"}, {\"role\": \"user\", "
		"\"content\": [{\"type\": \"text\", \"text\": \"Hello\"}]}]";
	int rc = chat_load(repofile("models/demo"), &chat, why);
	if (!rc)
		rc = json_parse(text, sizeof text - 1, &messages, why);
	if (!rc) {
		struct chat_input rq = {.messages = messages, .add_generation_prompt = true};
		rc = chat_render_json(chat, &rq, &prompt, why);
	}
	chat_prompt_fini(&prompt);
	json_decref(messages);
	chat_free(chat);
	return rc;
}

/* ---- messages ---- */

static struct buf request;

static void prepare_mp(void)
{
	static const char text[] =
		"{\"op\": \"submit\", \"id\": 1, \"prompt\": \"Once upon a time\", \"params\": {\"n\": 2, "
		"\"stop\": "
		"[\"a\", \"b\"], \"temperature\": 0.5, \"logit_bias\": {\"5\": -100}}, \"stream\": true, "
		"\"tokens\": [1, 128, 65536, -1, null, 4294967296]}";
	json_t *v = json_loads(text, 0, NULL);
	mp_encode(&request, v);
	json_decref(v);
}

static int run_mp(struct why *why)
{
	struct mp_limits limits = mp_limits_request(1 << 20);
	struct buf again = {0};
	json_t *v = NULL;
	int rc = mp_decode(request.p, request.len, &limits, &v, why);
	if (!rc)
		mp_encode(&again, v);
	json_decref(v);
	buf_fini(&again);
	return rc;
}

static const struct bus_limits limits = {.max_slots = 8,
					 .max_rows = 64,
					 .max_runs = 8,
					 .max_context = 128,
					 .n_blocks = 16,
					 .n_host_blocks = 4,
					 .n_vocab = 100};
static struct buf plan_bytes, result_bytes, hello_bytes;

static void prepare_bus(void)
{
	static const uint32_t tokens[] = {1, 2, 7}, blocks[] = {3};
	struct plan p = {.epoch = 2, .number = 9, .n_rows = 3, .n_samples = 1};
	struct result r = {.epoch = 2, .number = 9};
	struct bus_msg m = {.type = BUS_HELLO};
	struct params params;
	params_init(&params);
	params.stop_ids = xmemdup((uint32_t[]){1, 2}, 8);
	params.n_stop_ids = 2;
	*plan_add_seq(&p) = (struct plan_seq){.slot = 1,
					      .seq = 77,
					      .n_prompt = 2,
					      .n_tokens = 3,
					      .n_blocks = 1,
					      .tokens = tokens,
					      .blocks = blocks,
					      .params = &params};
	*plan_add_run(&p) =
		(struct plan_run){.slot = 1, .pos0 = 0, .n_rows = 3, .flags = PLAN_SAMPLE, .from = 1};
	bus_encode_plan(&p, &plan_bytes);
	for (uint32_t i = 0; i < 8; i++)
		result_add_token(&r, i);
	bus_encode_result(&r, &result_bytes);
	snprintf(m.hello.host, sizeof m.hello.host, "here");
	bus_encode(&m, &hello_bytes);
	plan_fini(&p);
	result_fini(&r);
	params_fini(&params);
}

static int run_bus(struct why *why)
{
	struct plan p = {0};
	struct result r = {0};
	struct bus_msg m;
	struct buf again = {0};
	int rc = bus_decode_plan(plan_bytes.p, plan_bytes.len, &limits, &p, why);
	if (!rc)
		bus_encode_plan(&p, &again);
	if (!rc)
		rc = bus_decode_result(result_bytes.p, result_bytes.len, &limits, &r, why);
	if (!rc)
		rc = bus_decode(hello_bytes.p, hello_bytes.len, &m, why);
	bus_plan_fini(&p);
	result_fini(&r);
	buf_fini(&again);
	return rc;
}

/* ---- a worker that loads the model and runs a prompt ---- */

static int run_step(struct why *why)
{
	static const uint32_t tokens[] = {5, 6, 7, 8, 9};
	struct bus_load load = driver_load(repofile("models/demo"));
	struct driver d;
	struct params params;
	load.kv_bytes = 4 << 20;
	load.swap_bytes = 1 << 20;
	params_init(&params);
	params.temperature = 0;
	int rc = driver_open(&d, &load);
	if (!rc)
		rc = driver_prompt(&d, tokens, 5, 16, 5, &params);
	err_why(why, 0, "%s", d.why.text);
	driver_close(&d);
	params_fini(&params);
	return rc;
}

const struct inject_case inject_cases[] = {
	{.name = "config", .run = run_config},
	{.name = "weights", .run = run_weights},
	{.name = "tokenizer", .run = run_tokenizer},
	{.name = "chat", .run = run_chat},
	{.name = "mp", .prepare = prepare_mp, .run = run_mp},
	{.name = "bus", .prepare = prepare_bus, .run = run_bus},
	{.name = "keys", .run = keys_files},
	{.name = "api_keys", .run = keys_api},
	{.name = "allow", .prepare = keys_prepare, .run = keys_allow},
	{.name = "step", .run = run_step},
	{.name = "serve", .prepare = workers_prepare, .run = workers_serve},
	{.name = "scale", .prepare = workers_prepare, .run = workers_scale},
	{.name = "group", .prepare = workers_prepare, .run = workers_group},
	{.name = "journal", .prepare = serving_prepare, .run = serving_journal},
	{.name = "jobs", .prepare = serving_prepare, .run = serving_jobs},
	{.name = "http", .prepare = serving_prepare, .run = serving_http},
	{.name = "upload", .prepare = serving_prepare, .run = serving_upload},
	{.name = "convert",
	 .prepare = quantize_prepare,
	 .run = quantize_conversions,
	 .left = quantize_conversions_left},
	{.name = "quantize", .prepare = quantize_prepare, .run = quantize_models, .left = quantize_left},
};
const size_t n_inject_cases = sizeof inject_cases / sizeof inject_cases[0];
