#include "controller/apis/llamacpp/llamacpp_json.h"

#include "base/json_write.h"

#include <inttypes.h>

const char *llamacpp_stop_type(const struct output_view *v)
{
	return v->finish == FINISH_LENGTH ? "limit"
	       : v->stop_string           ? "word"
	       : v->finish == FINISH_STOP ? "eos"
					  : "none";
}

static void put_float(struct buf *b, const char *name, float x)
{
	buf_printf(b, ",\"%s\":", name);
	json_write_float(b, x);
}

static void put_int(struct buf *b, const char *name, int64_t x)
{
	buf_printf(b, ",\"%s\":%" PRId64, name, x);
}

void llamacpp_put_settings(struct buf *b, const struct submit *s, bool stream)
{
	const struct params *p = &s->params;
	buf_printf(b, "{\"n_predict\":%" PRId64, p->max_tokens ? (int64_t)p->max_tokens : -1);
	put_int(b, "max_tokens", p->max_tokens ? (int64_t)p->max_tokens : -1);
	put_int(b, "seed", (int64_t)p->seed);
	put_int(b, "n_probs", p->logprobs > 0 ? p->logprobs : 0);
	for (size_t i = 0; i < n_params_rows; i++) {
		const struct params_row *row = &params_rows[i];
		if (!row->llamacpp || row->type == PARAMS_BOOL)
			continue;
		if (row->type == PARAMS_FLOAT)
			put_float(b, row->llamacpp, (float)params_get(row, p));
		else
			put_int(b, row->llamacpp, (int64_t)params_get(row, p));
	}
	buf_puts(b, ",\"stop\":[");
	for (uint32_t i = 0; i < s->n_stop; i++) {
		buf_puts(b, i ? "," : "");
		json_write_str(b, s->stop[i]);
	}
	buf_printf(b, "],\"ignore_eos\":%s,\"stream\":%s}", p->ignore_eos ? "true" : "false",
		   stream ? "true" : "false");
}

/* Append "id":..,"token":..,"bytes":[..],"logprob":.. */
static void put_token(struct buf *b, const struct tokenizer *t, uint32_t id, float logprob, struct buf *piece)
{
	buf_clear(piece);
	tokenizer_piece(t, id, piece);
	buf_printf(b, "\"id\":%" PRIu32 ",\"token\":", id);
	json_write_string(b, piece->p ? piece->p : "", piece->len);
	buf_puts(b, ",\"bytes\":[");
	for (size_t i = 0; i < piece->len; i++)
		buf_printf(b, "%s%u", i ? "," : "", (unsigned)(unsigned char)piece->p[i]);
	buf_puts(b, "],\"logprob\":");
	json_write_float(b, logprob >= -9999.0f ? logprob : -9999.0f); /* JSON has no infinity */
}

/* Append ,"completion_probabilities":[...] */
static void put_probabilities(struct buf *b, const struct tokenizer *t, const struct output_view *v)
{
	struct buf piece = {0};
	if (!v->logprobs || !v->n_tokens)
		return;
	buf_puts(b, ",\"completion_probabilities\":[");
	for (uint32_t i = 0; i < v->n_tokens; i++) {
		const struct token_logprob *l = &v->logprobs[i];
		buf_puts(b, i ? ",{" : "{");
		put_token(b, t, l->token, l->logprob, &piece);
		buf_puts(b, ",\"top_logprobs\":[");
		for (uint32_t k = 0; k < l->n_top; k++) {
			buf_puts(b, k ? ",{" : "{");
			put_token(b, t, l->top[k].token, l->top[k].logprob, &piece);
			buf_putc(b, '}');
		}
		buf_puts(b, "]}");
	}
	buf_putc(b, ']');
	buf_fini(&piece);
}

static void put_head(struct buf *b, uint32_t index, const char *text, size_t n)
{
	buf_printf(b, "{\"index\":%" PRIu32 ",\"content\":", index);
	json_write_string(b, text ? text : "", n);
	buf_puts(b, ",\"tokens\":");
}

void llamacpp_put_delta(struct buf *b, const struct tokenizer *t, const struct output_view *v,
			uint64_t n_predicted, uint64_t n_prompt)
{
	put_head(b, 0, v->text, v->text_n);
	json_write_ids(b, v->tokens, v->n_tokens);
	buf_printf(b,
		   ",\"stop\":false,\"id_slot\":-1,\"tokens_predicted\":%" PRIu64
		   ",\"tokens_evaluated\":%" PRIu64,
		   n_predicted, n_prompt);
	put_probabilities(b, t, v);
	buf_putc(b, '}');
}

/* Append the rate of n tokens in us:
 * "prompt_n":..,"prompt_ms":..,"prompt_per_token_ms":..,"prompt_per_second":.. */
static void put_rate(struct buf *b, const char *name, uint64_t n, int64_t us)
{
	const double ms = us > 0 ? (double)us / 1000 : 0;
	buf_printf(b, "\"%s_n\":%" PRIu64 ",\"%s_ms\":%.3f,\"%s_per_token_ms\":%.3f,\"%s_per_second\":%.3f",
		   name, n, name, ms, name, n ? ms / (double)n : 0, name, ms > 0 ? (double)n / ms * 1000 : 0);
}

void llamacpp_put_end(struct buf *b, const struct tokenizer *t, uint32_t index, const struct output_view *v,
		      bool tokens, const struct llamacpp_end *e)
{
	put_head(b, index, v ? v->text : "", v ? v->text_n : 0);
	json_write_ids(b, v ? v->tokens : NULL, v && tokens ? v->n_tokens : 0);
	buf_puts(b, ",\"id_slot\":-1,\"stop\":true,\"model\":");
	json_write_str(b, e->model);
	buf_printf(b,
		   ",\"tokens_predicted\":%" PRIu64 ",\"tokens_evaluated\":%" PRIu64
		   ",\"generation_settings\":",
		   e->n_predicted, e->n_prompt);
	buf_put(b, e->settings->p, e->settings->len);
	buf_puts(b, ",\"prompt\":");
	buf_put(b, e->prompt->p, e->prompt->len);
	buf_printf(b, ",\"has_new_line\":%s,\"truncated\":false,\"stop_type\":\"%s\",\"stopping_word\":",
		   e->has_new_line ? "true" : "false", e->stop_type);
	json_write_str(b, e->word);
	buf_printf(b, ",\"tokens_cached\":%" PRIu64 ",\"timings\":{\"cache_n\":%" PRIu64 ",",
		   e->n_prompt + e->n_predicted, e->n_cached);
	put_rate(b, "prompt", e->n_prompt - e->n_cached, e->timing.first_token_us - e->timing.queued_us);
	buf_putc(b, ',');
	put_rate(b, "predicted", e->n_predicted, e->timing.total_us - e->timing.first_token_us);
	buf_putc(b, '}');
	if (v)
		put_probabilities(b, t, v);
	buf_putc(b, '}');
}
