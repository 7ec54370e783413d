/* demo.h - a struct service with the demo model's tokenizer, for fuzz targets; made once, never freed.
 * Requests of up to 1 MiB, contexts of FUZZ_CONTEXT tokens. */
#ifndef QUERN_TESTS_FUZZ_DEMO_H
#define QUERN_TESTS_FUZZ_DEMO_H

#include "base/err.h"
#include "controller/chat/chat.h"
#include "controller/message/service.h"
#include "controller/tokenizer/tokenizer.h"
#include "formats/config.h"

#include <stdio.h>
#include <stdlib.h>

enum { FUZZ_CONTEXT = 512 };

/* Return the service.  chat_dir: directory of the chat template; NULL: the demo model's.  Exits if a file is
 * missing. */
static inline struct service *fuzz_demo(const char *chat_dir)
{
	static struct model_config config;
	static struct service svc;
	struct tokenizer *t;
	struct chat *chat = NULL;
	struct why why = {""};
	if (svc.tokenizer)
		return &svc;
	const char *dir = QUERN_ROOT "/models/demo";
	if (tokenizer_load(dir, &t, &why) || model_config_load(dir, &config, &why) ||
	    chat_load(chat_dir ? chat_dir : dir, &chat, &why)) {
		fprintf(stderr, "the demo model: %s\n", why.text);
		exit(2);
	}
	svc = (struct service){.tokenizer = t,
			       .config = &config,
			       .chat = chat,
			       .model_context = FUZZ_CONTEXT,
			       .max_request_bytes = 1 << 20};
	return &svc;
}

#endif
