#include "controller/endpoints/routes.h"

#include "base/json.h"
#include "base/json_write.h"
#include "base/utf8.h"
#include "controller/apis/apis.h"
#include "controller/apis/common.h"
#include "controller/jobs/mailbox.h"
#include "controller/request/api.h"
#include "controller/request/request_tokens.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const struct field_row tokenize_rows[] = {
	{"model", FIELD_STRING, FIELD_HONOURED, 0, 0, NULL, "the service's model, or absent"},
	{"prompt", FIELD_STRING, FIELD_HONOURED, 0, 0, NULL, "a text; this or messages"},
	{"content", FIELD_STRING, FIELD_HONOURED, 0, 0, NULL,
	 "prompt, as llama.cpp calls it: its shape of reply"},
	{"add_special", FIELD_BOOLEAN, FIELD_HONOURED, 0, 0, NULL,
	 "with content: add_special_tokens (false)"},
	{"parse_special", FIELD_BOOLEAN, FIELD_NEUTRAL, 0, 0, "[true]",
	 "special tokens in a text are recognized"},
	{"with_pieces", FIELD_BOOLEAN, FIELD_HONOURED, 0, 0, NULL, "with content: the tokens' texts, too"},
	{"messages", FIELD_ARRAY, FIELD_HONOURED, 0, 0, NULL, "a chat, by the model's template"},
	{"add_special_tokens", FIELD_BOOLEAN, FIELD_HONOURED, 0, 0, NULL,
	 "the tokenizer adds its own (true for a prompt, false for messages)"},
	{"return_token_strs", FIELD_BOOLEAN, FIELD_HONOURED, 0, 0, NULL, "the tokens' texts, too"},
	{"tools", FIELD_ARRAY, FIELD_HONOURED, 0, 0, NULL, "as for a chat"},
	{"tool_choice", FIELD_STRING | FIELD_OBJECT, FIELD_HONOURED, 0, 0, NULL, "as for a chat"},
	{"documents", FIELD_ARRAY, FIELD_HONOURED, 0, 0, NULL, "for the template"},
	{"chat_template_kwargs", FIELD_OBJECT, FIELD_HONOURED, 0, 0, NULL, "variables of the template"},
	{"add_generation_prompt", FIELD_BOOLEAN, FIELD_HONOURED, 0, 0, NULL,
	 "the beginning of the answer, too (true)"},
	{"continue_final_message", FIELD_BOOLEAN, FIELD_HONOURED, 0, 0, NULL,
	 "the last message has no end: the answer goes on with it"},
};
static const struct field_row detokenize_rows[] = {
	{"model", FIELD_STRING, FIELD_HONOURED, 0, 0, NULL, "the service's model, or absent"},
	{"tokens", FIELD_ARRAY, FIELD_HONOURED, 0, 0, NULL, "ids"},
};
const struct field_table tokenize_fields = {tokenize_rows, sizeof tokenize_rows / sizeof *tokenize_rows,
					    NULL};
const struct field_table detokenize_fields = {detokenize_rows,
					      sizeof detokenize_rows / sizeof *detokenize_rows, NULL};

static int get_bool(const json_t *request, const char *key, bool *out, struct api_problem *p)
{
	struct why why;
	if (json_get_bool(request, key, out, &why))
		return api_fail(p, E_BAD_REQUEST, key, "%s", why.text);
	return 0;
}

static int tokenize(struct exchange *x, const json_t *request, struct token_ids *ids, bool *strs,
		    struct api_problem *p)
{
	const struct service *svc = x->host->svc;
	uint32_t context = mailbox_max_context(apis_of(x)->mailbox);
	const json_t *prompt = json_get(request, "prompt"), *messages = json_get(request, "messages");
	const json_t *content = json_get(request, "content");
	bool add_special = !content;
	int rc = common_check_fields(x, request, &tokenize_fields, p);
	if (!rc)
		rc = get_bool(request, content ? "add_special" : "add_special_tokens", &add_special, p);
	if (!rc)
		rc = get_bool(request, content ? "with_pieces" : "return_token_strs", strs, p);
	if (rc)
		return rc;
	if (!!prompt + !!messages + !!content != 1)
		return api_fail(p, E_BAD_REQUEST, "prompt",
				"exactly one of prompt, messages and content must be given");
	if (content)
		prompt = content;
	if (messages)
		return api_tokenize_messages(svc, context, request, ids, x->ignored, sizeof x->ignored, p);
	if (!json_is_string(prompt))
		return api_fail(p, E_BAD_REQUEST, "prompt", "prompt must be a string");
	return api_tokenize(svc, context, json_string_value(prompt), json_string_length(prompt), add_special,
			    ids, p);
}

/* Append llama.cpp's {"tokens": [ids]}, or [{"id", "piece"}], with an array of bytes for a piece that is not
 * UTF-8. */
static void put_pieces(struct buf *b, const struct tokenizer *t, const struct token_ids *ids)
{
	struct buf piece = {0};
	buf_puts(b, "{\"tokens\":[");
	for (size_t i = 0; i < ids->n; i++) {
		buf_clear(&piece);
		tokenizer_piece(t, ids->ids[i], &piece);
		buf_printf(b, "%s{\"id\":%" PRIu32 ",\"piece\":", i ? "," : "", ids->ids[i]);
		if (utf8_valid(piece.p ? piece.p : "", piece.len) == piece.len) {
			json_write_string(b, piece.p ? piece.p : "", piece.len);
		} else {
			for (size_t k = 0; k < piece.len; k++)
				buf_printf(b, "%s%u", k ? "," : "[", (unsigned)(unsigned char)piece.p[k]);
			buf_putc(b, ']');
		}
		buf_putc(b, '}');
	}
	buf_puts(b, "]}");
	buf_fini(&piece);
}

static void reply_llamacpp(struct exchange *x, const struct token_ids *ids, bool pieces)
{
	struct buf b = {0};
	if (pieces) {
		put_pieces(&b, x->host->svc->tokenizer, ids);
	} else {
		buf_puts(&b, "{\"tokens\":");
		json_write_ids(&b, ids->ids, ids->n);
		buf_putc(&b, '}');
	}
	exchange_reply(x, MHD_HTTP_OK, &b);
}

void tokenize_call(struct exchange *x, const char *rest)
{
	(void)rest;
	json_t *request = common_body_object(x);
	if (!request)
		return;
	struct api_problem p = {.code = E_INTERNAL};
	struct token_ids ids = {0};
	bool strs = false;
	if (!common_check_model(x, request))
		goto done;
	if (tokenize(x, request, &ids, &strs, &p)) {
		exchange_fail(x, p.code, p.param, p.why);
		goto done;
	}
	if (json_get(request, "content")) {
		reply_llamacpp(x, &ids, strs);
		goto done;
	}
	struct buf b = {0}, piece = {0};
	buf_printf(&b, "{\"count\":%zu,\"max_model_len\":%" PRIu32 ",\"tokens\":", ids.n,
		   mailbox_max_context(apis_of(x)->mailbox));
	json_write_ids(&b, ids.ids, ids.n);
	buf_puts(&b, strs ? ",\"token_strs\":[" : ",\"token_strs\":null");
	for (size_t i = 0; strs && i < ids.n; i++) {
		buf_clear(&piece);
		tokenizer_piece(x->host->svc->tokenizer, ids.ids[i], &piece);
		if (i)
			buf_putc(&b, ',');
		json_write_string(&b, piece.p, piece.len);
	}
	buf_puts(&b, strs ? "]}" : "}");
	buf_fini(&piece);
	exchange_reply(x, MHD_HTTP_OK, &b);
done:
	token_ids_fini(&ids);
	json_decref(request);
}

void tokenize_call_count(struct exchange *x, const char *rest)
{
	(void)rest;
	json_t *request = common_body_object(x);
	if (!request)
		return;
	struct api_problem p = {.code = E_INTERNAL};
	struct token_ids ids = {0};
	struct buf b = {0};
	if (!common_check_model(x, request))
		goto done;
	if (api_tokenize_messages(x->host->svc, mailbox_max_context(apis_of(x)->mailbox), request, &ids,
				  x->ignored, sizeof x->ignored, &p)) {
		exchange_fail(x, p.code, p.param, p.why);
		goto done;
	}
	buf_printf(&b, "{\"object\":\"response.input_tokens\",\"input_tokens\":%zu}", ids.n);
	exchange_reply(x, MHD_HTTP_OK, &b);
done:
	token_ids_fini(&ids);
	json_decref(request);
}

void tokenize_call_reverse(struct exchange *x, const char *rest)
{
	(void)rest;
	json_t *request = common_body_object(x);
	if (!request)
		return;
	const struct service *svc = x->host->svc;
	struct api_problem p = {.code = E_INTERNAL};
	struct token_ids ids = {0};
	const json_t *tokens = json_get(request, "tokens");
	if (!common_check_model(x, request))
		goto done;
	int rc = common_check_fields(x, request, &detokenize_fields, &p);
	if (!rc && !json_is_array(tokens))
		rc = api_fail(&p, E_BAD_REQUEST, "tokens", "tokens must be an array of token ids");
	if (!rc)
		rc = request_tokens_read(svc, tokens, "tokens", svc->max_request_bytes, &ids, &p);
	struct buf text = {0}, b = {0};
	if (!rc && tokenizer_decode(svc->tokenizer, ids.ids, ids.n, false, &text))
		rc = api_fail(&p, E_BAD_REQUEST, "tokens", "a token id is out of range");
	if (rc) {
		exchange_fail(x, p.code, p.param, p.why);
	} else {
		buf_puts(&b, "{\"prompt\":");
		json_write_string(&b, text.p, text.len);
		buf_puts(&b, ",\"content\":"); /* llama.cpp's name */
		json_write_string(&b, text.p, text.len);
		buf_putc(&b, '}');
		exchange_reply(x, MHD_HTTP_OK, &b);
	}
	buf_fini(&text);
done:
	token_ids_fini(&ids);
	json_decref(request);
}
