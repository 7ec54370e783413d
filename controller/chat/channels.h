/* channels.h - splits the output of a model that writes messages in channels (OpenAI's harmony, of gpt-oss)
 * into reasoning and the answer. Tool calls in the answer get one spelling, for tools.h. Specified by
 * OpenAI's "harmony response format". Pure and incremental: the result does not depend on how the text is
 * cut into chunks.
 *
 *   <|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Yes.
 *   ^header                       ^body^end ^header                               ^body
 *
 * A header names a channel and may name a recipient (" to=functions.f", before or after the channel):
 *
 *     analysis                                   reasoning
 *     to=functions.f, commentary to=other        a call
 *     anything else                              the answer; each such message begins a line
 *
 * Text in place of a header belongs to the answer. A header cut off by the output's end is dropped. */
#ifndef QUERN_CONTROLLER_CHAT_CHANNELS_H
#define QUERN_CONTROLLER_CHAT_CHANNELS_H

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>

enum { CHANNELS_ENDS_MAX = 3 };

struct channels {
	const char *start, *channel, *message, *constrain; /* the markers of a header */
	const char *to;                                    /* precedes a recipient */
	const char *functions;                             /* prefix of a recipient that is a tool */
	const char *reasoning, *call;                      /* names of channels */
	/* markers that end a body; start ends a body too */
	const char *ends[CHANNELS_ENDS_MAX];
	/* Spellings in structured output and in the prompt of a forced call. */
	const char *next;     /* follows the end of every message but the last; prompts end with it */
	const char *answer;   /* the header of the answer */
	const char *preamble; /* the header of text before calls */
	const char *end;
	/* A call in the answer: call_open RECIPIENT call_args ARGUMENTS call_close. */
	const char *call_open, *call_args, *call_close;
};
extern const struct channels channels_harmony;

enum channels_state { CHANNELS_HEADER, CHANNELS_REASONING, CHANNELS_ANSWER, CHANNELS_CALL };

/* All zero: at the header of the first message. */
struct channels_split {
	enum channels_state state;
	bool began;     /* a byte of the body was passed on */
	bool reasoning; /* reasoning was passed on */
	bool answers;   /* text of the answer was passed on */
};

/* Return the state in which a prompt ends: CHANNELS_HEADER if it ends where a message begins
 * or between two. */
enum channels_state channels_place(const struct channels *c, const char *prompt, size_t n);

/* Consume the decidable part of held and append it to reasoning and answer, which may be the same buffer. */
void channels_take(struct channels_split *s, const struct channels *c, struct buf *held,
		   struct buf *reasoning, struct buf *answer);
/* At the end of the output: consume the rest. */
void channels_end(struct channels_split *s, const struct channels *c, struct buf *held, struct buf *reasoning,
		  struct buf *answer);

#endif
