/* ollama_models.c - information about models for Ollama's clients: /api/tags, /api/ps, /api/show,
 * /api/version. */
#include "controller/apis/ollama/ollama.h"

#include "base/json.h"
#include "base/json_write.h"
#include "base/version.h"
#include "controller/apis/apis.h"
#include "controller/apis/common.h"
#include "controller/apis/ollama/ollama_json.h"
#include "controller/apis/ollama/ollama_read.h"
#include "controller/chat/chat.h"
#include "controller/jobs/mailbox.h"
#include "controller/message/service.h"
#include "formats/config.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

/* Return the number of parameters of the layers and the embedding, by the configuration. */
static int64_t n_parameters(const struct model_config *c)
{
	const int64_t hidden = c->hidden, norms = (int64_t)c->n_layers * 2 * hidden;
	return model_config_layer_weights(c) + norms + (c->tied ? 1 : 2) * (int64_t)c->n_vocab * hidden +
	       hidden;
}

/* Write "Qwen3ForCausalLM" as "qwen3". */
static void family(const struct model_config *c, char out[64])
{
	size_t n = strcspn(c->arch_name, "F");
	n = strncmp(c->arch_name + n, "For", 3) == 0 && n < 63 ? n : strnlen(c->arch_name, 63);
	for (size_t i = 0; i < n; i++)
		out[i] = (char)tolower((unsigned char)c->arch_name[i]);
	out[n] = 0;
}

/* Return Ollama's name of the stored type: "AWQ", otherwise the type of the weights.  A GGUF file has several
 * types. */
static const char *quantization(const struct service *svc)
{
	static const char *const dense[] = {
		[CONFIG_F32] = "F32", [CONFIG_F16] = "F16", [CONFIG_BF16] = "BF16"};
	if (svc->config->quant.name[0])
		return svc->config->quant.name;
	return svc->model_is_gguf ? "mixed" : dense[svc->config->dtype];
}

/* Append "details":{...}. */
static void put_details(struct buf *b, const struct service *svc)
{
	const struct model_config *c = svc->config;
	char name[64], size[32];
	const double n = (double)n_parameters(c);
	family(c, name);
	snprintf(size, sizeof size, n >= 1e9 ? "%.1fB" : "%.1fM", n >= 1e9 ? n / 1e9 : n / 1e6);
	buf_printf(b, "\"details\":{\"parent_model\":\"\",\"format\":\"%s\",\"family\":",
		   svc->model_is_gguf ? "gguf" : "safetensors");
	json_write_str(b, name);
	buf_puts(b, ",\"families\":[");
	json_write_str(b, name);
	buf_printf(b, "],\"parameter_size\":\"%s\",\"quantization_level\":\"%s\"}", size, quantization(svc));
}

/* Append a digest of the name, since no files are read for this.  Clients show its first digits. */
static void put_digest(struct buf *b, const char *name)
{
	const XXH128_hash_t h = XXH3_128bits(name, strlen(name));
	buf_printf(b, "\"digest\":\"%016" PRIx64 "%016" PRIx64 "%016" PRIx64 "%016" PRIx64 "\"", h.high64,
		   h.low64, h.low64, h.high64);
}

/* Append the model under one of its names, without the closing brace. */
static void put_model(struct buf *b, const struct service *svc, const char *name)
{
	buf_puts(b, "{\"name\":");
	json_write_str(b, name);
	buf_puts(b, ",\"model\":");
	json_write_str(b, name);
	buf_puts(b, ",\"size\":0,");
	put_digest(b, name);
	buf_putc(b, ',');
	put_details(b, svc);
}

/* Reply {"models":[...]}.  behind appends the end of each model, including the closing brace. */
static void put_models(struct exchange *x, void (*behind)(struct buf *b, const struct exchange *x))
{
	const struct service *svc = x->host->svc;
	char names[sizeof svc->model_name + sizeof svc->other_names + 1];
	struct buf b = {0};
	snprintf(names, sizeof names, "%s,%s", svc->model_name, svc->other_names);
	buf_puts(&b, "{\"models\":[");
	for (char *name = names; *name;) {
		const size_t k = strcspn(name, ",");
		const bool last = !name[k];
		name[k] = 0;
		if (k) {
			buf_puts(&b, name == names ? "" : ",");
			put_model(&b, svc, name);
			behind(&b, x);
		}
		name += k + !last;
	}
	buf_puts(&b, "]}");
	exchange_reply(x, MHD_HTTP_OK, &b);
}

static void put_modified(struct buf *b, const struct exchange *x)
{
	buf_puts(b, ",\"modified_at\":");
	ollama_put_time(b, x->host->svc->started_unix * 1000000);
	buf_putc(b, '}');
}

/* Append an expiry far in the future: the model stays loaded. */
static void put_expires(struct buf *b, const struct exchange *x)
{
	static const int64_t CENTURY_S = 100LL * 365 * 24 * 3600;
	buf_puts(b, ",\"size_vram\":0,\"expires_at\":");
	ollama_put_time(b, (x->host->svc->started_unix + CENTURY_S) * 1000000);
	buf_printf(b, ",\"context_length\":%" PRIu32 "}", mailbox_max_context(apis_of(x)->mailbox));
}

void ollama_call_tags(struct exchange *x, const char *rest)
{
	(void)rest;
	put_models(x, put_modified);
}

void ollama_call_ps(struct exchange *x, const char *rest)
{
	(void)rest;
	put_models(x, put_expires);
}

void ollama_call_version(struct exchange *x, const char *rest)
{
	(void)rest;
	struct buf b = {0};
	buf_puts(&b, "{\"version\":\"" QUERN_VERSION "\"}");
	exchange_reply(x, MHD_HTTP_OK, &b);
}

/* --- /api/show --- */

static const struct field_row show_rows[] = {
	{"model", FIELD_STRING, FIELD_HONOURED, 0, 0, NULL, "the served one, with or without `:latest`"},
	{"name", FIELD_STRING, FIELD_HONOURED, 0, 0, NULL, "the older name of `model`"},
	{"verbose", FIELD_BOOLEAN, FIELD_IGNORED, 0, 0, NULL, NULL},
	{"system", FIELD_STRING, FIELD_IGNORED, 0, 0, NULL, NULL},
	{"template", FIELD_STRING, FIELD_IGNORED, 0, 0, NULL, NULL},
	{"options", FIELD_OBJECT, FIELD_IGNORED, 0, 0, NULL, NULL},
};
const struct field_table ollama_show_fields = {show_rows, sizeof show_rows / sizeof *show_rows, NULL};

static void put_capabilities(struct buf *b, const struct service *svc)
{
	buf_puts(b, "\"capabilities\":[");
	if (svc->config->embeds && !svc->config->tied)
		buf_puts(b, "\"embedding\"");
	else
		buf_puts(b, "\"completion\"");
	if (svc->chat && svc->tools != TOOLS_NONE && chat_mentions(svc->chat, "tools"))
		buf_puts(b, ",\"tools\"");
	if (svc->reasoning)
		buf_puts(b, ",\"thinking\"");
	buf_puts(b, "]");
}

static void put_show(struct buf *b, const struct exchange *x)
{
	const struct service *svc = x->host->svc;
	const struct model_config *c = svc->config;
	char arch[64];
	family(c, arch);
	buf_putc(b, '{');
	put_details(b, svc);
	buf_puts(b, ",\"model_info\":{\"general.architecture\":");
	json_write_str(b, arch);
	buf_printf(b,
		   ",\"general.parameter_count\":%" PRId64 ",\"%s.context_length\":%" PRIu32
		   ",\"%s.embedding_length\":%d,\"%s.block_count\":%d,\"%s.attention.head_count\":%d,"
		   "\"%s.attention.head_count_kv\":%d,\"%s.vocab_size\":%d},",
		   n_parameters(c), arch, mailbox_max_context(apis_of(x)->mailbox), arch, c->hidden, arch,
		   c->n_layers, arch, c->n_heads, arch, c->n_kv_heads, arch, c->n_vocab);
	put_capabilities(b, svc);
	put_modified(b, x);
}

void ollama_call_show(struct exchange *x, const char *rest)
{
	(void)rest;
	struct api_problem p = {.code = E_BAD_REQUEST};
	json_t *client = common_body_object(x);
	if (!client)
		return;
	const json_t *name = json_get(client, "model") ? json_get(client, "model") : json_get(client, "name");
	if (field_table_check(&ollama_show_fields, client, x->host->svc->strict, x->ignored,
			      sizeof x->ignored, &p) ||
	    (!name && api_fail(&p, E_BAD_REQUEST, "model", "model must be given"))) {
		exchange_fail(x, p.code, p.param, p.why);
		json_decref(client);
		return;
	}
	json_t *request = json_pack("{s:o}", "model", ollama_model_name(name));
	if (common_check_model(x, request)) {
		struct buf b = {0};
		put_show(&b, x);
		exchange_reply(x, MHD_HTTP_OK, &b);
	}
	json_decref(request);
	json_decref(client);
}
