#include "controller/endpoints/routes.h"

#include "base/entropy.h"
#include "base/json.h"
#include "controller/apis/common.h"
#include "controller/endpoints/endpoints.h"
#include "controller/endpoints/viewers.h"
#include "controller/jobs/mailbox.h"
#include "controller/http/api_keys.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Placeholder in the page for the nonce of its script and style. */
static const char mark[] = "@NONCE@";

static void put_page(const char *nonce, struct buf *out)
{
	const char *p = page_html;
	for (;;) {
		const char *at = memmem(p, (size_t)(page_html_end - p), mark, sizeof mark - 1);
		buf_put(out, p, (size_t)((at ? at : page_html_end) - p));
		if (!at)
			return;
		buf_puts(out, nonce);
		p = at + sizeof mark - 1;
	}
}

void page_call_root(struct exchange *x, const char *rest)
{
	char nonce[33];
	struct buf html = {0};
	(void)rest;
	snprintf(nonce, sizeof nonce, "%016" PRIx64 "%016" PRIx64, entropy_u64(), entropy_u64());
	/* The page loads nothing from other hosts, sends nothing to them, cannot be framed, and parses no
	 * text as HTML. */
	snprintf(x->policy, sizeof x->policy,
		 "default-src 'none'; script-src 'nonce-%s'; style-src 'nonce-%s'; connect-src 'self'; "
		 "img-src data:; "
		 "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
		 "require-trusted-types-for 'script'; trusted-types 'none'",
		 nonce, nonce);
	put_page(nonce, &html);
	exchange_reply_as(x, MHD_HTTP_OK, "text/html; charset=utf-8", &html);
}

void page_call_live(struct exchange *x, const char *rest)
{
	(void)rest;
	/* A HEAD must not become a viewer. */
	if (strcmp(x->method, "HEAD") == 0) {
		struct buf none = {0};
		exchange_reply_as(x, MHD_HTTP_OK, "text/event-stream; charset=utf-8", &none);
	} else if (viewers_add(endpoints_of(x)->viewers, x)) {
		exchange_fail(x, E_OVERLOADED, NULL, "too many viewers of the live stream");
	}
}

/* Reply to a cancellation.  On the front end's thread.  Holds a reference to x. */
static void on_cancelled(void *user, enum code code)
{
	struct exchange *x = user;
	struct buf b = {0};
	if (code == CODE_OK) {
		buf_puts(&b, "{\"ok\":true}");
		exchange_reply(x, MHD_HTTP_OK, &b);
	} else {
		exchange_fail(x, code, "job",
			      code == E_NO_SUCH_JOB ? "no such job" : "the service is stopping");
	}
	exchange_unref(x);
}

void page_call_cancel(struct exchange *x, const char *rest)
{
	struct why why = {""};
	char owner[COMMON_JOB_OWNER_SIZE];
	const char *id = NULL;
	json_t *o = NULL;
	(void)rest;
	if (common_body(x, &o))
		return;
	if (json_get_str(o, "job", &id, &why) || !id) {
		exchange_fail(x, E_BAD_REQUEST, "job",
			      why.text[0] ? why.text
					  : "the body must be an object with the job's id: {\"job\": ID}");
	} else {
		common_job_owner(x, owner);
		exchange_ref(x);
		exchange_park(x);
		mailbox_cancel(apis_of(x)->mailbox, id, owner, on_cancelled, x);
	}
	json_decref(o);
}
