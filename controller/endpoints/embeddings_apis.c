#include "controller/endpoints/routes.h"

#include "base/json.h"
#include "controller/apis/common.h"
#include "controller/apis/generation.h"
#include "controller/apis/ollama/ollama_read.h"
#include "controller/apis/translate.h"
#include "controller/message/service.h"

#include <string.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))

/* An API's request: its table of fields, and arguments for embeddings_start(). */
struct api_adapter {
	struct translate_table table;
	enum embeddings_shape shape;
	const struct generation_name *names;
};

static void start(struct exchange *x, const struct api_adapter *adapter)
{
	json_t *client = common_body_object(x);
	if (!client)
		return;
	struct api_problem p = {.code = E_BAD_REQUEST};
	struct translation t = {.out = json_object(), .within = "", .strict = x->host->svc->strict, .p = &p};
	const int rc = translate_object(&t, client, "", &adapter->table);
	memcpy(x->ignored, t.ignored, sizeof t.ignored);
	if (rc)
		exchange_fail(x, p.code, p.param, p.why);
	else
		embeddings_start(x, t.out, adapter->shape, adapter->names);
	json_decref(t.out);
	json_decref(client);
}

/* --- Ollama --- */

static int read_model(struct translation *t, const json_t *v)
{
	json_object_set_new(t->out, "model", ollama_model_name(v));
	return 0;
}

/* Read the input; it is cut to fit, unless the client sets truncate to false. */
static int read_input(struct translation *t, const json_t *v)
{
	json_object_set(t->out, "input", (json_t *)v);
	if (!json_is_false(json_get(t->client, "truncate")))
		json_object_set_new(t->out, "truncate_prompt_tokens", json_integer(-1));
	return 0;
}

static int read_prompt(struct translation *t, const json_t *v)
{
	json_object_set_new(t->out, "normalize", json_false());
	return read_input(t, v);
}

static const char OPTIONS[] = "none of them concerns an embedding";
static const char KEPT[] = "the model stays loaded";

static const struct field_row embed_rows[] = {
	{"model", FIELD_STRING, FIELD_HONOURED, 0, 0, NULL, "the served one, with or without `:latest`"},
	{"input", FIELD_STRING | FIELD_ARRAY, FIELD_HONOURED, 0, 0, NULL, "a text, or an array of texts"},
	{"truncate", FIELD_BOOLEAN, FIELD_HONOURED, 0, 0, NULL, "false: a text that does not fit is refused"},
	{"dimensions", FIELD_INTEGER, FIELD_HONOURED, 1, INT32_MAX, NULL,
	 "the first so many values, normalized again"},
	{"options", FIELD_OBJECT, FIELD_IGNORED, 0, 0, NULL, OPTIONS},
	{"keep_alive", FIELD_STRING | FIELD_NUMBER, FIELD_IGNORED, 0, 0, NULL, KEPT},
};
static const struct translate_rule embed_rules[] = {
	{"model", NULL, read_model}, {"input", NULL, read_input}, {"dimensions", "dimensions", NULL}};
const struct field_table ollama_embed_fields = {embed_rows, COUNT(embed_rows), NULL};

static const struct field_row one_rows[] = {
	{"model", FIELD_STRING, FIELD_HONOURED, 0, 0, NULL, "the served one, with or without `:latest`"},
	{"prompt", FIELD_STRING, FIELD_HONOURED, 0, 0, NULL, "the vector is not normalized"},
	{"options", FIELD_OBJECT, FIELD_IGNORED, 0, 0, NULL, OPTIONS},
	{"keep_alive", FIELD_STRING | FIELD_NUMBER, FIELD_IGNORED, 0, 0, NULL, KEPT},
};
static const struct translate_rule one_rules[] = {{"model", NULL, read_model}, {"prompt", NULL, read_prompt}};
const struct field_table ollama_embeddings_fields = {one_rows, COUNT(one_rows), NULL};

void embeddings_call_ollama(struct exchange *x, const char *rest)
{
	static const struct api_adapter adapter = {
		{&ollama_embed_fields, embed_rules, COUNT(embed_rules), 0}, EMBEDDINGS_OLLAMA, NULL};
	(void)rest;
	start(x, &adapter);
}

void embeddings_call_ollama_one(struct exchange *x, const char *rest)
{
	static const struct generation_name names[] = {{"input", "prompt"}, {NULL, NULL}};
	static const struct api_adapter adapter = {
		{&ollama_embeddings_fields, one_rules, COUNT(one_rules), 0}, EMBEDDINGS_OLLAMA_ONE, names};
	(void)rest;
	start(x, &adapter);
}

/* --- llama.cpp --- */

/* Read embd_normalize.  -1: unchanged; 2 (the default): scaled to length 1. */
static int read_normalize(struct translation *t, const json_t *v)
{
	json_object_set_new(t->out, "normalize", json_boolean(json_number_value(v) == 2));
	return 0;
}

static const struct field_row llamacpp_rows[] = {
	{"model", FIELD_STRING, FIELD_HONOURED, 0, 0, NULL, "the service's model, or absent"},
	{"content", FIELD_STRING | FIELD_ARRAY, FIELD_HONOURED, 0, 0, NULL,
	 "a text, token ids, or an array of these"},
	{"input", FIELD_STRING | FIELD_ARRAY, FIELD_HONOURED, 0, 0, NULL, "content"},
	{"embd_normalize", FIELD_INTEGER, FIELD_NEUTRAL, 0, 0, "[-1, 2]", "other norms are not built"},
};
static const struct translate_rule llamacpp_rules[] = {{"model", "model", NULL},
						       {"content", "input", NULL},
						       {"input", "input", NULL},
						       {"embd_normalize", NULL, read_normalize}};
const struct field_table llamacpp_embedding_fields = {llamacpp_rows, COUNT(llamacpp_rows), NULL};

void embeddings_call_llamacpp(struct exchange *x, const char *rest)
{
	static const struct generation_name names[] = {{"input", "content"}, {NULL, NULL}};
	static const struct api_adapter adapter = {
		{&llamacpp_embedding_fields, llamacpp_rules, COUNT(llamacpp_rules), 0},
		EMBEDDINGS_LLAMACPP,
		names};
	(void)rest;
	start(x, &adapter);
}
