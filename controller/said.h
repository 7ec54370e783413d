/* said.h - one output of a chat as its client gets it: what was thought, what is said, which
 * tools are called.  Takes text as it is generated and keeps what is new until it was told.
 * Pure but for the ids of calls, which are random. */
#ifndef QUERN_CONTROLLER_SAID_H
#define QUERN_CONTROLLER_SAID_H

#include "base/buf.h"
#include "controller/reasoning.h"
#include "controller/tools.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What is looked for; the same for all outputs of a request. */
struct said_rules {
	bool thoughts;      /* "<think>" is looked for */
	bool thought_open;  /* the prompt has begun one */
	bool show_thoughts; /* else they are left out */
	enum tools_style tools;
	bool one_call;      /* parallel_tool_calls false: further ones are left out */
	const char *forced; /* the prompt has begun a call of this tool; NULL: none.  Borrowed */
};

/* Whether the text is to be looked at, at all. */
bool said_parses(const struct said_rules *r);

/* News of one call. */
struct said_call {
	uint32_t index;
	char id[32]; /* "" but in the first news of a call, as is the name */
	struct buf name;
	struct buf arguments; /* what is new of them */
};

struct said {
	const struct said_rules *rules;
	struct reasoning reasoning;
	struct tools tools;
	bool called; /* a tool, ever */
	/* News since said_told(). */
	struct buf thought, text;
	struct said_call *calls;
	uint32_t n_calls, cap_calls;
	/* Scratch between the two. */
	struct buf spoken;
};

/* rules outlive it. */
void said_init(struct said *a, const struct said_rules *rules);
void said_fini(struct said *a);
void said_push(struct said *a, const char *p, size_t n);
void said_end(struct said *a);
bool said_has_news(const struct said *a);
void said_told(struct said *a);

/* What stands in the prompt so that the output is the arguments of a call of that tool. */
void said_force(struct buf *prompt, enum tools_style style, const char *name);

#endif
