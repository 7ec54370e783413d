#include "controller/endpoints/routes.h"

#include "base/clock.h"
#include "base/json_write.h"
#include "base/version.h"
#include "controller/apis/anthropic/anthropic.h"
#include "controller/apis/apis.h"
#include "controller/apis/common.h"
#include "controller/jobs/mailbox.h"
#include "controller/message/service.h"
#include "controller/jobs/file_store.h"
#include "controller/jobs/journal.h"
#include "controller/message/engine_msg.h"
#include "controller/metrics/metrics.h"

#include <stdio.h>
#include <stdlib.h>

#include <string.h>

void info_call_health(struct exchange *x, const char *rest)
{
	(void)rest;
	if (mailbox_draining(apis_of(x)->mailbox)) {
		const uint32_t n = mailbox_n_draining(apis_of(x)->mailbox);
		char text[160];
		snprintf(text, sizeof text, "the service is ending: %u job%s finish%s first",
			 n == UINT32_MAX ? 0 : n, n == 1 ? "" : "s", n == 1 ? "es" : "");
		exchange_fail(x, E_NOT_READY, NULL, text);
		return;
	}
	if (!mailbox_ready(apis_of(x)->mailbox)) {
		char waits[256], text[320];
		mailbox_waits(apis_of(x)->mailbox, waits, sizeof waits);
		snprintf(text, sizeof text, "no replica can serve now: %s",
			 waits[0] ? waits : "the service has just started");
		exchange_fail(x, E_NOT_READY, NULL, text);
		return;
	}
	struct buf b = {0};
	struct why why;
	struct journal *journal = x->host->svc->journal;
	buf_puts(&b, "{\"status\":\"ok\"");
	if (journal &&
	    (!journal_health(journal, &why) || journal_room(journal, JOURNAL_FILE, FILE_PART, &why))) {
		/* The service is up, but refuses durable jobs or files. */
		buf_puts(&b, ",\"journal\":");
		json_write_str(&b, why.text);
	}
	buf_putc(&b, '}');
	exchange_reply(x, MHD_HTTP_OK, &b);
}

void info_call_live(struct exchange *x, const char *rest)
{
	(void)rest;
	int64_t us;
	const char *thread =
		engine_load_hangs(x->host->svc->load, mailbox_loop_us(apis_of(x)->mailbox), clock_us(), &us);
	if (thread) {
		exchange_error(x, MHD_HTTP_SERVICE_UNAVAILABLE, "server_error", NULL, "not_alive",
			       "the controller's %s thread has not run for %lld s: restart it", thread,
			       (long long)(us / 1000000));
		return;
	}
	struct buf b = {0};
	buf_puts(&b, "{\"status\":\"ok\"}");
	exchange_reply(x, MHD_HTTP_OK, &b);
}

void info_call_version(struct exchange *x, const char *rest)
{
	(void)rest;
	struct buf b = {0};
	buf_puts(&b, "{\"version\":\"" QUERN_VERSION "\"}");
	exchange_reply(x, MHD_HTTP_OK, &b);
}

/* Reply with the metrics.  On the front end's thread.  Takes its reference to x. */
static void on_metrics_status(void *user, const struct engine_status *s)
{
	struct exchange *x = user;
	struct buf b = {0};
	const enum metrics_format format = x->openmetrics ? METRICS_OPENMETRICS : METRICS_TEXT;
	x->vary = MHD_HTTP_HEADER_ACCEPT;
	metrics_write(x->host->svc->metrics, x->host->svc->model_name, s, format, &b);
	exchange_reply_as(x, MHD_HTTP_OK, metrics_content_type(format), &b);
	exchange_unref(x);
}

void info_call_metrics(struct exchange *x, const char *rest)
{
	(void)rest;
	exchange_ref(x);
	exchange_park(x);
	mailbox_status(apis_of(x)->mailbox, on_metrics_status, x);
}

/* Reply with the explanation.  On the front end's thread.  Takes its reference to x. */
static void on_explained(void *user, json_t *explained, enum code code, const char *why)
{
	struct exchange *x = user;
	if (explained) {
		struct buf b = {0};
		char *text = json_dumps(explained, JSON_COMPACT);
		buf_puts(&b, text ? text : "{}");
		free(text);
		exchange_reply(x, MHD_HTTP_OK, &b);
	} else {
		exchange_fail(x, code, "job", why);
	}
	exchange_unref(x);
}

void info_call_explain(struct exchange *x, const char *rest)
{
	char owner[COMMON_JOB_OWNER_SIZE];
	common_job_owner(x, owner);
	exchange_ref(x);
	exchange_park(x);
	mailbox_explain(apis_of(x)->mailbox, rest, owner, on_explained, x);
}

static void put_model(struct buf *b, const struct exchange *x, const char *name)
{
	const struct service *svc = x->host->svc;
	buf_puts(b, "{\"id\":");
	json_write_str(b, name);
	buf_puts(b, ",\"object\":\"model\",\"created\":");
	json_write_int(b, svc->started_unix);
	buf_puts(b, ",\"owned_by\":\"quern\",\"max_model_len\":");
	json_write_uint(b, mailbox_max_context(apis_of(x)->mailbox));
	buf_putc(b, '}');
}

void info_call_models(struct exchange *x, const char *rest)
{
	(void)rest;
	struct buf b = {0};
	if (anthropic_client(x)) {
		anthropic_put_models(&b, x);
		exchange_reply(x, MHD_HTTP_OK, &b);
		return;
	}
	buf_puts(&b, "{\"object\":\"list\",\"data\":[");
	put_model(&b, x, x->host->svc->model_name);
	for (const char *other = x->host->svc->other_names; *other;) {
		const size_t k = strcspn(other, ",");
		char name[sizeof x->host->svc->other_names];
		snprintf(name, sizeof name, "%.*s", (int)k, other);
		if (k) {
			buf_putc(&b, ',');
			put_model(&b, x, name);
		}
		other += k + (other[k] == ',');
	}
	buf_puts(&b, "]}");
	exchange_reply(x, MHD_HTTP_OK, &b);
}

void info_call_model(struct exchange *x, const char *rest)
{
	if (!common_is_model(x->host->svc, rest)) {
		common_no_model(x, rest);
		return;
	}
	struct buf b = {0};
	if (anthropic_client(x))
		anthropic_put_model(&b, x, rest);
	else
		put_model(&b, x, rest);
	exchange_reply(x, MHD_HTTP_OK, &b);
}
