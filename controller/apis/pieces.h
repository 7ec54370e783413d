/* pieces.h - the text of an output, cut where its tokens end.  The chunks depend on the tokens alone, not on
 * how these arrive, so whatever is built from the chunks can be built again identically.  Pure. */
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
	struct buf scratch; /* scratch of the detokenizer */
	size_t told;        /* bytes of the tokens so far */
	size_t *cuts;       /* [n_cuts] owned, ascending: `told` after each token with text not yet taken */
	size_t n_cuts, cap_cuts;
	struct buf text; /* text received and not taken */
	size_t taken;    /* bytes of the output before `text` */
};

/* Initialise.  The tokenizer outlives p.  skip_special: the setting of the output's job (submit.h). */
void pieces_init(struct pieces *p, const struct tokenizer *t, bool skip_special);
void pieces_fini(struct pieces *p);
/* Take the new text of the output; calls piece for each chunk that is now whole.  Chunks are not empty. */
void pieces_push(struct pieces *p, const struct output_view *v,
		 void (*piece)(void *user, const char *text, size_t n), void *user);

#endif
