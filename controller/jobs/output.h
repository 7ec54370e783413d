/* output.h - one output of a job: its tokens as text, and how much of both may be shown.
 * Owns: tokens, their logprobs, the text, where each token's text begins, the state of the
 * detokenizer and of the stop strings.  Text that was shown is never taken back: text that might
 * become a stop string is held, and so are its tokens.  Knows nothing of listeners.
 *
 *   text     Once upon a time\n\nEN      while the stop string is "\n\nEND"
 *            <---- shown ---><held>      until it is complete, or the next token rules it out
 *   start[]  0   4    9 11   16  18      n_shown = 4 of 6 tokens
 *
 * Tokens are shown with all of their text or not at all: the first n have the text before start[n],
 * and can go on there. */
#ifndef QUERN_CONTROLLER_JOBS_OUTPUT_H
#define QUERN_CONTROLLER_JOBS_OUTPUT_H

#include "controller/tokenizer/detok.h"
#include "controller/message/engine_msg.h"
#include "controller/message/job_event.h"
#include "controller/jobs/stops.h"

/* Tokens with their logprobs, in arrays that grow together. */
struct toklog {
	uint32_t n, cap;
	uint32_t *token;
	bool with; /* the arrays below are there */
	float *logprob;
	uint32_t *rank;
	size_t *top_end; /* [n]: of token i, the entries top[top_end[i - 1] .. top_end[i]) */
	struct logprob_top *top;
	size_t top_cap;
};

void toklog_init(struct toklog *t, bool with_logprobs);
void toklog_fini(struct toklog *t);
void toklog_push(struct toklog *t, const struct engine_token *e, const uint32_t *top_ids,
		 const float *top_logprobs);
size_t toklog_bytes(const struct toklog *t);
/* Tokens [from, to) with their logprobs, into out[to - from]; tops point into t. */
void toklog_view(const struct toklog *t, uint32_t from, uint32_t to, struct token_logprob *out);

/* What the outputs of a job have in common; outlives them. */
struct output_rules {
	const struct tokenizer *tokenizer;
	bool skip_special;
	bool logprobs;
	bool mirostat;
	uint32_t min_tokens;       /* stop strings are not searched for before */
	const struct stops *stops; /* NULL: none */
	char *const *stop;         /* the strings, numbered as in stops */
	bool include_stop;
};

struct output {
	uint32_t index;
	struct toklog log;
	uint32_t *start; /* [log.cap]: bytes of text before the token's own */
	struct buf text;
	size_t shown;        /* bytes of text that may be shown */
	uint32_t n_shown;    /* tokens that may be shown; these bytes are their text */
	size_t tail;         /* once it has ended: bytes before what the end added, of a character that
			      * is not whole; that text is no token's */
	struct detok *detok; /* NULL once it has ended */
	struct stops_at at;
	enum finish finish; /* FINISH_NONE while it runs */
	int64_t stop_token;
	const char *stop_string; /* borrowed from the rules */
	int32_t mu;              /* mirostat's, behind its last token but that stop token */
	bool at_stop;            /* its last token is the stop token that ends it */
	/* Used by the table of jobs: */
	bool dirty;       /* something is new for listeners */
	int64_t first_us; /* when the first and the last token came; 0: none yet */
	int64_t last_us;
};

void output_init(struct output *o, uint32_t index, const struct output_rules *r);
void output_fini(struct output *o);
/* One token more; ignored once the output has ended.  True: a stop string has ended it (finish
 * is set, text and tokens are cut). */
bool output_push(struct output *o, const struct output_rules *r, const struct engine_token *e,
		 const uint32_t *top_ids, const float *top_logprobs);
/* An end that is not a stop string; ignored once it has ended.  Held text is shown (a stop string
 * may still be completed by the detokenizer's last bytes: then finish is stop). */
void output_end(struct output *o, const struct output_rules *r, enum finish finish, int64_t stop_token);
/* Everything shown.  scratch: [n_shown], or NULL without logprobs. */
void output_view(const struct output *o, struct token_logprob *scratch, struct output_view *v);
size_t output_bytes(const struct output *o);

/* best_of: of n outputs (at most PARAMS_N_MAX) that have ended, with logprobs, the n_keep of the highest
 * cumulative logprob stay, the highest first, and are numbered from 0; of equals, the lower index first.  The
 * others are freed (output_fini). */
void output_choose_best(struct output *outputs, uint32_t n, uint32_t n_keep);

#endif
