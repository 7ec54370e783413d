/* http_rig.h - the HTTP server with a fake front end (fake_mailbox.h) and the demo model's tokenizer; checks
 * of its replies. */
#ifndef QUERN_TESTS_WIRE_HTTP_RIG_H
#define QUERN_TESTS_WIRE_HTTP_RIG_H

#include "base/err.h"
#include "controller/endpoints/endpoints.h"
#include "controller/http/http.h"

#include "base/clock.h"
#include "base/housekeeper.h"
#include "base/work_pool.h"
#include "controller/chat/chat.h"
#include "controller/request/api.h"
#include "controller/metrics/metrics.h"
#include "controller/tokenizer/tokenizer.h"
#include "formats/config.h"
#include "tests/testdata.h"
#include "tests/wire/fake_mailbox.h"
#include "tests/wire/http_client.h"

#include <criterion/criterion.h>
#include <errno.h>

static struct service svc;
static struct model_config config;
static struct tokenizer *tokenizer;
static struct chat *chat;
static struct mailbox *mailbox;
static struct http *http;
static const char *at; /* the server's address */

/* Start the server with all routes. Each server has its own objects, which stay allocated when it ends. */
static int start_http(struct mailbox *m, const struct http_config *cfg, struct http **out, struct why *why)
{
	static struct endpoints objects[8];
	static size_t n;
	struct http_app app = endpoints_app(&objects[n], m, &svc, 0);
	int rc = http_start(&svc, &app, cfg, out, why);
	n += !rc;
	return rc;
}

static void start_with(const struct http_config *cfg)
{
	struct why why = {""};
	mailbox = fake_start(tokenizer);
	int rc = start_http(mailbox, cfg, &http, &why);
	cr_assert(rc == 0, "%s", why.text);
	at = http_address(http);
}

static void load(void)
{
	struct why why = {""};
	const char *dir = repofile("models/demo");
	cr_assert(tokenizer_load(dir, &tokenizer, &why) == 0, "%s", why.text);
	cr_assert(model_config_load(dir, &config, &why) == 0, "%s", why.text);
	cr_assert(chat_load(dir, &chat, &why) == 0, "%s", why.text);
	cr_assert(housekeeper_start(&svc.house, &why) == 0, "%s", why.text);
	cr_assert(work_pool_start(&work_limits_usual, &svc.pool, &why) == 0, "%s", why.text);
	svc.tokenizer = tokenizer;
	svc.metrics = metrics_new(FAKE_CONTEXT);
	svc.config = &config;
	svc.chat = chat;
	snprintf(svc.model_name, sizeof svc.model_name, "org/stories");
	svc.started_unix = 1700000000;
	svc.model_context = FAKE_CONTEXT;
	if (!svc.max_request_bytes)
		svc.max_request_bytes = 1 << 20;
}

static __attribute__((unused)) void start(void)
{
	struct http_config cfg = {.addr = "127.0.0.1:0"};
	load();
	start_with(&cfg);
}

static void unload(void)
{
	work_pool_stop(svc.pool);
	housekeeper_stop(svc.house);
	chat_free(chat);
	metrics_free(svc.metrics);
	tokenizer_free(tokenizer);
	model_config_fini(&config);
}

/* Stop everything, and check that no listener is left. */
static void stop(void)
{
	if (!http)
		return;
	http_stop(http);
	cr_expect(atomic_load(&mailbox->n_live) == 0, "%u listeners are left", atomic_load(&mailbox->n_live));
	fake_stop(mailbox);
	unload();
}

static __attribute__((unused)) struct answer post(const char *path, const char *body)
{
	return client_ask(at, "POST", path, body);
}

static const char *text_of(const json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));
	return s ? s : "";
}

static __attribute__((unused)) json_t *choice(const json_t *reply, size_t i)
{
	return json_array_get(json_object_get(reply, "choices"), i);
}

/* Expects an error of OpenAI's shape with this status, code and param; frees the answer. */
static __attribute__((unused)) void expect_error(struct answer a, int status, const char *code,
						 const char *param)
{
	const json_t *e = json_object_get(a.json, "error");
	cr_expect(a.status == status, "status %d instead of %d: %s", a.status, status,
		  a.body.p ? a.body.p : "");
	cr_expect(json_object_size(e) == 4 && *text_of(e, "message") && *text_of(e, "type"), "%s", a.raw.p);
	if (code)
		cr_expect_str_eq(text_of(e, "code"), code, "%s", a.raw.p);
	if (param)
		cr_expect_str_eq(text_of(e, "param"), param, "%s", a.raw.p);
	answer_fini(&a);
}

/* Return the events of a stream as an array; the last one must be [DONE]. */
static __attribute__((unused)) json_t *events_of(const struct answer *a)
{
	json_t *all = json_array();
	const char *p = a->body.p ? a->body.p : "";
	bool done = false;
	while (!strncmp(p, "data: ", 6)) {
		const char *end = strstr(p, "\n\n");
		cr_assert_not_null(end);
		cr_expect_not(done, "an event after [DONE]");
		p += 6;
		if (!strncmp(p, "[DONE]", 6))
			done = true;
		else
			json_array_append_new(all, json_loadb(p, (size_t)(end - p), 0, NULL));
		p = end + 2;
	}
	cr_expect(done, "no [DONE] at the end: %s", a->raw.p);
	cr_expect(*p == '\0', "not an event: %s", p);
	return all;
}

/* Wait at most 30 s until x is want; return whether it is. */
static inline bool becomes(atomic_uint *x, unsigned want)
{
	for (int i = 0; i < 3000 && atomic_load(x) != want; i++)
		usleep(10000);
	return atomic_load(x) == want;
}

#define CHAT "\"messages\":[{\"role\":\"user\",\"content\":\"Hello\"}]"

#endif
