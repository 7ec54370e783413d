#include "controller/request/request_tokens.h"

#include "base/json.h"
#include "formats/config.h"

#include <errno.h>

/* Return one id of the model's vocabulary, or -1 with *p filled. */
static int64_t token_id(const struct service *svc, const json_t *v, const char *field, size_t at,
			struct api_problem *p)
{
	int64_t id;
	if (!json_integral(v, &id)) {
		api_fail(p, E_BAD_REQUEST, field, "%s[%zu] must be an integer", field, at);
		return -1;
	}
	if (id < 0 || id >= svc->config->n_vocab) {
		api_fail(p, E_BAD_REQUEST, field, "%s[%zu] is %lld, the vocabulary has ids 0 to %d", field,
			 at, (long long)id, svc->config->n_vocab - 1);
		return -1;
	}
	return id;
}

int request_tokens_read(const struct service *svc, const json_t *array, const char *field, size_t max,
			struct token_ids *out, struct api_problem *p)
{
	if (!json_is_array(array))
		return api_fail(p, E_BAD_REQUEST, field, "%s must be an array of token ids", field);
	size_t n = json_array_size(array);
	if (n > max)
		return api_fail(p, E_TOO_LONG, field, "%s has %zu ids, at most %zu are accepted", field, n,
				max);
	for (size_t i = 0; i < n; i++) {
		int64_t id = token_id(svc, json_array_get(array, i), field, i, p);
		if (id < 0)
			return -EINVAL;
		token_ids_push(out, (uint32_t)id);
	}
	return 0;
}

int request_tokens_check_bytes(const struct service *svc, uint32_t max_context, size_t n, const char *field,
			       struct api_problem *p)
{
	size_t piece = tokenizer_max_piece(svc->tokenizer);
	if (n / piece < max_context)
		return 0;
	return api_fail(p, E_TOO_LONG, field,
			"%s has %zu bytes; a context of %u tokens of at most %zu bytes holds less", field, n,
			max_context, piece);
}

int request_tokens_encode(const struct service *svc, const struct request_text *text, struct token_ids *out,
			  struct api_problem *p)
{
	struct why why = {""};
	size_t from = out->n;
	if (tokenizer_encode(svc->tokenizer, text->p, text->n, text->flags, text->plain, text->n_plain, out,
			     &why))
		return api_fail(p, E_BAD_REQUEST, text->field, "%s: %s", text->field, why.text);
	/* A tokenizer may have more tokens than the model has rows. */
	for (size_t i = from; i < out->n; i++)
		if (out->ids[i] >= (uint32_t)svc->config->n_vocab)
			return api_fail(p, E_BAD_REQUEST, text->field,
					"%s: the tokenizer gives id %u, the model has ids 0 to %d",
					text->field, out->ids[i], svc->config->n_vocab - 1);
	return 0;
}
