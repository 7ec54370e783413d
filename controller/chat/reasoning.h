/* reasoning.h - a model's output split into its reasoning, "<think>" ... "</think>", and the answer
 * behind it.  Pure and incremental: the result does not depend on how the text is cut into pieces.
 * Newlines around the reasoning belong to neither, as in the models' own templates; behind it, the last 1024.
 *
 *   BEGIN --"<think>"--> INSIDE --"</think>"--> GAP --> ANSWER
 *     \--anything else------------------------------------^      */
#ifndef QUERN_CONTROLLER_CHAT_REASONING_H
#define QUERN_CONTROLLER_CHAT_REASONING_H

#include "base/buf.h"
#include "controller/chat/channels.h"

#include <stdbool.h>
#include <stddef.h>

enum { REASONING_FRAMES_MAX = 4 };

/* What stands before and behind reasoning, by family of models. */
struct reasoning_marks {
	const char *name; /* as --reasoning-parser has it */
	const char *open, *close;
	/* Texts around an answer, which are no part of it. */
	const char *frames[REASONING_FRAMES_MAX];
	const struct channels *channels; /* the output is messages of channels; NULL: it is not */
};
extern const struct reasoning_marks reasoning_usual; /* <think> */
/* The first that a template mentions; NULL: none. */
const struct reasoning_marks *reasoning_marks_of(bool (*mentions)(const void *user, const char *word),
						 const void *user);
const struct reasoning_marks *reasoning_marks_named(const char *name); /* NULL: unknown */
const char *reasoning_names(void);                                     /* separated by commas */

enum reasoning_state {
	REASONING_BEGIN,
	REASONING_INSIDE,
	REASONING_GAP, /* the newlines behind "</think>" */
	REASONING_ANSWER
};

struct reasoning {
	const struct reasoning_marks *marks; /* the usual ones; others are set behind reasoning_init() */
	enum reasoning_state state;
	bool any;        /* a byte of the reasoning was passed on */
	size_t dropped;  /* newlines before that */
	struct buf held; /* undecided text: part of a tag, and blanks */
	struct channels_split messages;
	struct buf framed; /* of the answer: undecided, part of a frame */
};

/* inside: the prompt ends within the reasoning. */
void reasoning_init(struct reasoning *r, bool inside);
void reasoning_fini(struct reasoning *r);

/* Takes a piece of the output; appends what is decided to reasoning and answer. */
void reasoning_push(struct reasoning *r, const char *p, size_t n, struct buf *reasoning, struct buf *answer);
/* End of the output: decides the rest. */
void reasoning_end(struct reasoning *r, struct buf *reasoning, struct buf *answer);

/* Whether a prompt ends with the mark that opens the reasoning. */
bool reasoning_is_open(const struct reasoning_marks *m, const char *prompt, size_t n);
/* Whether it ends with the one that closes it; among messages of channels: not where a message begins. */
bool reasoning_is_closed(const struct reasoning_marks *m, const char *prompt, size_t n);

#endif
