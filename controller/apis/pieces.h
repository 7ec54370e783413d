/* pieces.h - the text of an output, cut where its tokens end.  The pieces depend on the tokens alone, however
 * these come: what is made of them is the same whenever it is made again.  Pure. */
#ifndef QUERN_CONTROLLER_APIS_PIECES_H
#define QUERN_CONTROLLER_APIS_PIECES_H

#include "base/buf.h"
#include "controller/message/job_event.h"
#include "controller/tokenizer/tokenizer.h"

#include <stdbool.h>
#include <stddef.h>

struct detok;

struct pieces {
	struct detok *detok;
	struct buf scratch; /* of the detokenizer */
	size_t told;        /* bytes that the tokens so far have */
	size_t *cuts; /* [n_cuts] owned, ascending: told after each token that has text yet to be taken */
	size_t n_cuts, cap_cuts;
	struct buf text; /* received and not taken */
	size_t taken;    /* bytes of the output before text */
};

/* The tokenizer outlives p.  skip_special: of the output's job (submit.h). */
void pieces_init(struct pieces *p, const struct tokenizer *t, bool skip_special);
void pieces_fini(struct pieces *p);
/* Takes what is new of the output; calls piece for each part that is whole now, none of them empty. */
void pieces_push(struct pieces *p, const struct output_view *v,
		 void (*piece)(void *user, const char *text, size_t n), void *user);

#endif
