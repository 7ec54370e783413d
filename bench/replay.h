/* replay.h - reads the requests of a load test from a file: an OpenAI batch, or conversations.
 *
 *   a batch's request    {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {..}}
 *   a conversation       {"messages": [{"role": "user", "content": ".."}, ..], "tools": [..]}
 *   one of ShareGPT      {"conversations": [{"from": "human", "value": ".."}, {"from": "gpt", ..}, ..]}
 *
 * Requests are one per line; conversations are a list or one per line.  A conversation becomes one request
 * per assistant reply, with the file's messages before that reply, and a last request if it does not end with
 * a reply.  So the requests do not depend on the server's answers.  Each is sent when the previous request of
 * its conversation has ended. */
#ifndef QUERN_BENCH_REPLAY_H
#define QUERN_BENCH_REPLAY_H

#include "base/buf.h"
#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct replay_request {
	const json_t *body;     /* the batch line's body; NULL: a conversation's request */
	const json_t *messages; /* messages of the conversation */
	size_t n_messages;      /* number of messages to send, from the first */
	const json_t *tools;    /* tools of the conversation; NULL: none */
	bool follows;           /* send when the previous request has ended */
};

struct replay {
	bool batch, chat;         /* batch: lines of a batch; chat: requests are chats, not completions */
	struct replay_request *v; /* [n], owned */
	size_t n, cap;
	json_t **trees; /* [n_trees], owned: the JSON that requests borrow from */
	size_t n_trees, cap_trees;
};

/* Read the first `most` lines or conversations; 0: all.  -EINVAL: why names the line or conversation. */
int replay_read(const char *path, size_t most, struct replay *out, struct why *why);
void replay_fini(struct replay *r);

/* Append a request's JSON.  common: members that replace the request's own.  n_output: max_tokens of a
 * conversation's request.  max_output: upper limit of max_tokens; 0: none. */
void replay_put(const struct replay_request *r, const json_t *common, uint32_t n_output, uint32_t max_output,
		struct buf *out);

#endif
