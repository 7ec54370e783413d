/* demo_service.h - a struct service with the demo model's tokenizer, for tests of the front end. Its
 * vocabulary has the ids 0 to 1663, its context 2048 tokens. */
#ifndef QUERN_TESTS_DEMO_SERVICE_H
#define QUERN_TESTS_DEMO_SERVICE_H

#include "base/clock.h"
#include "base/err.h"
#include "base/housekeeper.h"
#include "base/work_pool.h"
#include "controller/chat/chat.h"
#include "controller/message/service.h"
#include "controller/tokenizer/tokenizer.h"
#include "formats/config.h"
#include "tests/testdata.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

struct demo {
	struct service svc;
	struct tokenizer *tokenizer;
	struct chat *chat;
	struct model_config config;
};

static inline void demo_open(struct demo *d)
{
	struct why why = {""};
	const char *dir = repofile("models/demo");
	memset(d, 0, sizeof *d);
	cr_assert_eq(tokenizer_load(dir, &d->tokenizer, &why), 0, "%s", why.text);
	cr_assert_eq(chat_load(dir, &d->chat, &why), 0, "%s", why.text);
	cr_assert_eq(model_config_load(dir, &d->config, &why), 0, "%s", why.text);
	d->svc = (struct service){.tokenizer = d->tokenizer,
				  .config = &d->config,
				  .chat = d->chat,
				  .model_name = "demo",
				  .started_unix = clock_unix(),
				  .model_context = 2048,
				  .max_request_bytes = 16 << 20,
				  .keep_finished_us = 60 * 1000000LL,
				  .max_finished = 1000};
	cr_assert_eq(housekeeper_start(&d->svc.house, &why), 0, "%s", why.text);
	cr_assert_eq(work_pool_start(&work_limits_usual, &d->svc.pool, &why), 0, "%s", why.text);
}

static inline void demo_close(struct demo *d)
{
	work_pool_stop(d->svc.pool);
	housekeeper_stop(d->svc.house);
	tokenizer_free(d->tokenizer);
	chat_free(d->chat);
	model_config_fini(&d->config);
}

#endif
