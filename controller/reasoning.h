/* reasoning.h - a model's output split into what it thought and what it says: "<think>" ...
 * "</think>", then the answer.  Pure and incremental: the pieces are the same however the text
 * comes in.  Newlines around the thought belong to neither, as in the models' own templates.
 *
 *   BEGIN --"<think>"--> INSIDE --"</think>"--> GAP --> ANSWER
 *     \--anything else------------------------------------^      */
#ifndef QUERN_CONTROLLER_REASONING_H
#define QUERN_CONTROLLER_REASONING_H

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>

enum reasoning_state {
	REASONING_BEGIN,
	REASONING_INSIDE,
	REASONING_GAP, /* the newlines behind a thought */
	REASONING_ANSWER
};

struct reasoning {
	enum reasoning_state state;
	bool any;        /* a byte of the thought was told */
	struct buf held; /* not decided yet: less than a tag, and blanks */
};

/* inside: the prompt has opened the thought already. */
void reasoning_init(struct reasoning *r, bool inside);
void reasoning_fini(struct reasoning *r);

/* Text goes in; what is decided is appended to thought and answer. */
void reasoning_push(struct reasoning *r, const char *p, size_t n, struct buf *thought, struct buf *answer);
/* The output is over: the rest of it. */
void reasoning_end(struct reasoning *r, struct buf *thought, struct buf *answer);

/* Whether a prompt ends within an open "<think>". */
bool reasoning_open(const char *prompt, size_t n);

#endif
