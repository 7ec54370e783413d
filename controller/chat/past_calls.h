/* past_calls.h - spells calls of earlier turns in the model's format, for a chat template that shows no
 * calls. Each call becomes a placeholder word in its message's content, which the template shows. The
 * spelled call then replaces the word in the prompt, so that markers of the format become special tokens
 * while names and arguments stay plain text.
 *
 *     {content: "a", tool_calls: [..]} --take--> {content: "a\nXcalls0n1."} --template--> ..a\nXcalls0n1...
 *                                                             ..a\n<tool_call>{...}</tool_call>.. <--put--
 *
 * Pure. */
#ifndef QUERN_CONTROLLER_CHAT_PAST_CALLS_H
#define QUERN_CONTROLLER_CHAT_PAST_CALLS_H

#include "base/buf.h"
#include "base/span.h"
#include "controller/chat/tools_format.h"
#include "controller/jinja/jinja.h"

#include <jansson.h>
#include <stddef.h>

struct spelled_calls {
	struct buf text;
	struct text_span *plain; /* owned; spans of text that come from the request */
	size_t n_plain, cap_plain;
};

struct past_calls {
	const struct tools_format *format;
	const struct tools_spelling *spelling;
	uint32_t nonce;            /* makes the words distinct from all messages */
	struct spelled_calls *all; /* [n_all], one per message with calls */
	size_t n_all, cap_all;
};

/* Replace the calls of each message by a word.  The format must not have channels. */
void past_calls_take(struct past_calls *p, const struct tools_format *format,
		     const struct tools_spelling *spelling, json_t *messages);
/* Replace the words in a prompt by the calls.  A call is dropped if the template does not show its word. */
void past_calls_put(const struct past_calls *p, struct jinja_result *r);
void past_calls_fini(struct past_calls *p);

#endif
