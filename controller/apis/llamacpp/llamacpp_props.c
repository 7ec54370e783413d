/* llamacpp_props.c - information about the service for llama.cpp's clients: /props, /slots. */
#include "controller/apis/llamacpp/llamacpp.h"

#include "base/json_write.h"
#include "base/version.h"
#include "controller/apis/apis.h"
#include "controller/jobs/mailbox.h"
#include "controller/message/engine_msg.h"
#include "controller/message/service.h"
#include "controller/tokenizer/tokenizer.h"
#include "formats/config.h"

#include <inttypes.h>
#include <math.h>

enum { SLOTS_MAX = 4096 /* slots listed at most */ };

static void put_special(struct buf *b, const char *name, const struct tokenizer *t, int64_t id)
{
	struct buf piece = {0};
	if (id >= 0)
		tokenizer_piece(t, (uint32_t)id, &piece);
	buf_printf(b, ",\"%s\":", name);
	json_write_string(b, piece.p ? piece.p : "", piece.len);
	buf_fini(&piece);
}

static void put_default(struct buf *b, const char *name, double value, double otherwise)
{
	buf_printf(b, ",\"%s\":", name);
	json_write_float(b, (float)(isnan(value) ? otherwise : value));
}

/* Append "default_generation_settings":{...}: the values used if a request does not set them. */
static void put_defaults(struct buf *b, const struct exchange *x)
{
	const struct model_config *c = x->host->svc->config;
	const uint32_t context = mailbox_max_context(apis_of(x)->mailbox);
	buf_printf(b,
		   "\"default_generation_settings\":{\"id\":0,\"n_ctx\":%" PRIu32
		   ",\"params\":{\"n_predict\":-1",
		   context);
	put_default(b, "temperature", c->gen_temperature, 1);
	put_default(b, "top_p", c->gen_top_p, 1);
	put_default(b, "min_p", c->gen_min_p, 0);
	put_default(b, "repeat_penalty", c->gen_repetition, 1);
	buf_printf(b, ",\"top_k\":%" PRId64 "}}", c->gen_top_k > 0 ? c->gen_top_k : 0);
}

static uint32_t n_slots(const struct service *svc, const struct engine_status *s)
{
	uint64_t n = 0;
	for (uint32_t i = 0; s && i < s->n_replicas; i++)
		n += svc->max_seqs;
	return n < SLOTS_MAX ? (uint32_t)n : SLOTS_MAX;
}

/* Reply to /props.  On the front end's thread.  user: an exchange, with its own reference. */
static void on_props(void *user, const struct engine_status *s)
{
	struct exchange *x = user;
	const struct service *svc = x->host->svc;
	struct buf b = {0};
	buf_putc(&b, '{');
	put_defaults(&b, x);
	buf_printf(&b, ",\"total_slots\":%" PRIu32 ",\"model_alias\":", n_slots(svc, s));
	json_write_str(&b, svc->model_name);
	buf_puts(&b, ",\"model_path\":");
	json_write_str(&b, svc->model_name);
	buf_puts(&b, ",\"modalities\":{\"vision\":false,\"audio\":false}");
	put_special(&b, "bos_token", svc->tokenizer, tokenizer_bos(svc->tokenizer));
	put_special(&b, "eos_token", svc->tokenizer, tokenizer_eos(svc->tokenizer));
	buf_puts(&b, ",\"build_info\":\"quern-" QUERN_VERSION "\",\"is_sleeping\":false}");
	exchange_reply(x, MHD_HTTP_OK, &b);
	exchange_unref(x);
}

/* Reply to /slots.  A slot is a place for a sequence; the reply does not tell which sequence has it. */
static void on_slots(void *user, const struct engine_status *s)
{
	struct exchange *x = user;
	const uint32_t n = n_slots(x->host->svc, s), context = mailbox_max_context(apis_of(x)->mailbox);
	struct buf b = {0};
	buf_putc(&b, '[');
	for (uint32_t i = 0; i < n; i++)
		buf_printf(&b,
			   "%s{\"id\":%" PRIu32 ",\"n_ctx\":%" PRIu32
			   ",\"speculative\":false,\"is_processing\":%s}",
			   i ? "," : "", i, context, i < s->counts.n_running ? "true" : "false");
	buf_putc(&b, ']');
	exchange_reply(x, MHD_HTTP_OK, &b);
	exchange_unref(x);
}

void llamacpp_call_props(struct exchange *x, const char *rest)
{
	(void)rest;
	exchange_ref(x);
	exchange_park(x);
	mailbox_status(apis_of(x)->mailbox, on_props, x);
}

void llamacpp_call_slots(struct exchange *x, const char *rest)
{
	(void)rest;
	exchange_ref(x);
	exchange_park(x);
	mailbox_status(apis_of(x)->mailbox, on_slots, x);
}
