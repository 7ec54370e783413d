/* reasoning.h - splits a model's output into its reasoning, "<think>" ... "</think>", and the answer after
 * it. Pure and incremental: the result does not depend on how the text is cut into chunks.
 * Newlines around the reasoning belong to neither, as in the models' own templates; after it, at most 1024
 * newlines.
 *
 *   BEGIN --"<think>"--> INSIDE --"</think>"--> GAP --> ANSWER
 *     \--anything else------------------------------------^ */
#ifndef QUERN_CONTROLLER_CHAT_REASONING_H
#define QUERN_CONTROLLER_CHAT_REASONING_H

#include "base/buf.h"
#include "controller/chat/channels.h"

#include <stdbool.h>
#include <stddef.h>

enum { REASONING_FRAMES_MAX = 4 };

/* The markers around reasoning, by family of models. */
struct reasoning_marks {
	const char *name; /* the name for --reasoning-parser */
	const char *open, *close;
	/* Texts around an answer that are not part of it. */
	const char *frames[REASONING_FRAMES_MAX];
	const struct channels *channels; /* the output consists of messages in channels; NULL: it does not */
};
extern const struct reasoning_marks reasoning_usual; /* <think> */
/* Return the first entry with markers that the template mentions, or NULL. */
const struct reasoning_marks *reasoning_marks_of(bool (*mentions)(const void *user, const char *word),
						 const void *user);
const struct reasoning_marks *reasoning_marks_named(const char *name); /* NULL: unknown */
const char *reasoning_names(void);                                     /* separated by commas */

enum reasoning_state {
	REASONING_BEGIN,
	REASONING_INSIDE,
	REASONING_GAP, /* the newlines after "</think>" */
	REASONING_ANSWER
};

struct reasoning {
	const struct reasoning_marks *marks; /* reasoning_usual, unless the caller has set others */
	enum reasoning_state state;
	bool any;        /* a byte of the reasoning was passed on */
	size_t dropped;  /* newlines dropped before the reasoning */
	struct buf held; /* undecided text: part of a tag, and blanks */
	struct channels_split messages;
	struct buf framed; /* undecided text of the answer: part of a frame */
};

/* inside: the prompt ends within the reasoning. */
void reasoning_init(struct reasoning *r, bool inside);
void reasoning_fini(struct reasoning *r);

/* Parse a chunk of the output; append the decided text to reasoning and answer. */
void reasoning_push(struct reasoning *r, const char *p, size_t n, struct buf *reasoning, struct buf *answer);
/* At the end of the output: decide the rest. */
void reasoning_end(struct reasoning *r, struct buf *reasoning, struct buf *answer);

/* Return true if the prompt ends with the marker that opens the reasoning. */
bool reasoning_is_open(const struct reasoning_marks *m, const char *prompt, size_t n);
/* Return true if the prompt ends with the marker that closes the reasoning; with channels, if it does not
 * end where a message begins. */
bool reasoning_is_closed(const struct reasoning_marks *m, const char *prompt, size_t n);

#endif
