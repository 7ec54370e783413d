/* channels.h - a model's output that comes in messages, each of a channel (OpenAI's harmony, of gpt-oss):
 * split into thoughts and the answer, in which calls of tools are spelled in one way, for tools.h.  Specified
 * by OpenAI's "harmony response format".  Pure and incremental: the result does not depend on how the text is
 * cut into pieces.
 *
 *   <|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Yes.
 *   ^header                       ^body^end ^header                               ^body
 *
 * A header names a channel and may name a recipient (" to=functions.f", before or behind the channel):
 *
 *     analysis                                   a thought
 *     to=functions.f, commentary to=other        a call
 *     anything else                              the answer; of several, each begins a line
 *
 * Text where a header should be is the answer.  A header that the output's end cuts off is dropped. */
#ifndef QUERN_CONTROLLER_CHAT_CHANNELS_H
#define QUERN_CONTROLLER_CHAT_CHANNELS_H

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>

enum { CHANNELS_ENDS_MAX = 3 };

struct channels {
	const char *start, *channel, *message, *constrain; /* the marks of a header */
	const char *to;                                    /* before a recipient */
	const char *functions;                             /* what a recipient that is a tool begins with */
	const char *thought, *call;                        /* names of channels */
	const char *ends[CHANNELS_ENDS_MAX];               /* of a body; a start ends one, too */
	/* As a form and the prompt of a forced call spell them. */
	const char *next;     /* behind the end of a message that is not the last; prompts end with it */
	const char *answer;   /* the header of the answer */
	const char *preamble; /* of text before calls */
	const char *end;
	/* A call in the answer: call_open RECIPIENT call_args ARGUMENTS call_close. */
	const char *call_open, *call_args, *call_close;
};
extern const struct channels channels_harmony;

enum channels_state { CHANNELS_HEADER, CHANNELS_THOUGHT, CHANNELS_ANSWER, CHANNELS_CALL };

/* All zero: at the header of the first message. */
struct channels_split {
	enum channels_state state;
	bool began;    /* a byte of the body was passed on */
	bool thoughts; /* a thought was */
	bool answers;  /* text of the answer was */
};

/* What a prompt ends within: CHANNELS_HEADER where a message begins, or between two. */
enum channels_state channels_place(const struct channels *c, const char *prompt, size_t n);

/* Takes what it can decide from held, and appends it to thought and answer, which may be the same. */
void channels_take(struct channels_split *s, const struct channels *c, struct buf *held, struct buf *thought,
		   struct buf *answer);
/* The end of the output: decides the rest. */
void channels_end(struct channels_split *s, const struct channels *c, struct buf *held, struct buf *thought,
		  struct buf *answer);

#endif
