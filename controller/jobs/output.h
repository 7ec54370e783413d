/* output.h - one output of a job: its tokens as text, and how much of both may be shown.
 * Owns: tokens, their logprobs, the text, where each token's text begins, and the state of the detokenizer
 * and of the stop strings.  Shown text is never taken back: text that might become a stop string is held
 * back, with its tokens.  Knows nothing of listeners.
 *
 *   text     Once upon a time\n\nEN      while the stop string is "\n\nEND"
 *            <---- shown ---><held>      until it is complete, or the next token rules it out
 *   start[]  0   4    9 11   16  18      n_shown = 4 of 6 tokens
 *
 * Within reasoning, the request's stop strings and stop tokens do not count.
 *
 * Tokens are shown with all of their text or not at all: the text of the first n tokens ends at start[n], and
 * output can continue from there. */
#ifndef QUERN_CONTROLLER_JOBS_OUTPUT_H
#define QUERN_CONTROLLER_JOBS_OUTPUT_H

#include "controller/chat/reasoning.h"
#include "controller/tokenizer/detok.h"
#include "controller/message/engine_msg.h"
#include "controller/message/job_event.h"
#include "controller/jobs/stops.h"

/* Tokens with their logprobs, in arrays that grow together. */
struct toklog {
	uint32_t n, cap;
	uint32_t *token;
	bool with; /* the arrays below exist */
	float *logprob;
	uint32_t *rank;
	size_t *top_end; /* [n]: token i has the entries top[top_end[i - 1] .. top_end[i]) */
	struct logprob_top *top;
	size_t top_cap;
};

void toklog_init(struct toklog *t, bool with_logprobs);
void toklog_fini(struct toklog *t);
void toklog_push(struct toklog *t, const struct engine_token *e, const uint32_t *top_ids,
		 const float *top_logprobs);
size_t toklog_bytes(const struct toklog *t);
/* Write tokens [from, to) with their logprobs to out[to - from]; the tops point into t. */
void toklog_view(const struct toklog *t, uint32_t from, uint32_t to, struct token_logprob *out);

/* Rules shared by the outputs of a job; they outlive the outputs. */
struct output_rules {
	const struct tokenizer *tokenizer;
	bool skip_special;
	bool logprobs;
	bool mirostat;
	uint32_t min_tokens;       /* stop strings are ignored in the first min_tokens tokens */
	const struct stops *stops; /* NULL: none */
	char *const *stop;         /* the strings, numbered as in stops */
	bool include_stop;
	/* Not NULL: outputs may begin with reasoning between these marks, or within it (reasoning_open).
	 * Stop strings and late_stop_ids count from the end of the reasoning. */
	const struct reasoning_marks *reasoning;
	bool reasoning_open;
	const uint32_t *late_stop_ids; /* [n_late_stop_ids], borrowed */
	uint32_t n_late_stop_ids;
};

struct output {
	uint32_t index;
	struct toklog log;
	uint32_t *start; /* [log.cap]: bytes of text before each token's own */
	struct buf text;
	size_t shown;        /* bytes of text that may be shown */
	uint32_t n_shown;    /* tokens that may be shown; the shown bytes are their text */
	size_t tail;         /* once ended: bytes before the text that the end added, which is an incomplete
			      * character and belongs to no token */
	struct detok *detok; /* NULL once it has ended */
	struct stops_at at;
	struct reasoning *reasoning; /* owned; NULL: stop strings and stop tokens count */
	enum finish finish;          /* FINISH_NONE while the output runs */
	int64_t stop_token;
	const char *stop_string; /* borrowed from the rules */
	int32_t mu;              /* mirostat's mu after its last token, not counting that stop token */
	bool at_stop;            /* its last token is the stop token that ended it */
	/* Used by the table of jobs: */
	bool dirty;       /* has news for listeners */
	int64_t first_us; /* clock_us() of the first and the last token; 0: none yet */
	int64_t last_us;
};

void output_init(struct output *o, uint32_t index, const struct output_rules *r);
void output_fini(struct output *o);
/* Add one token; ignored once the output has ended.  true: a stop string, or a stop token that the engine
 * does not know, has ended it (finish is set, text and tokens are cut). */
bool output_push(struct output *o, const struct output_rules *r, const struct engine_token *e,
		 const uint32_t *top_ids, const float *top_logprobs);
/* End the output for a reason other than a stop string; ignored once it has ended.  Held text is shown.  The
 * detokenizer's last bytes may still complete a stop string: then finish is stop. */
void output_end(struct output *o, const struct output_rules *r, enum finish finish, int64_t stop_token);
/* Describe everything shown.  scratch: [n_shown], or NULL without logprobs. */
void output_view(const struct output *o, struct token_logprob *scratch, struct output_view *v);
size_t output_bytes(const struct output *o);

/* best_of: of n ended outputs with logprobs (n at most PARAMS_N_MAX), keep the n_keep with the highest
 * cumulative logprob, highest first; of equals, the lower index first.  They are renumbered from 0.  The rest
 * are freed (output_fini). */
void output_choose_best(struct output *outputs, uint32_t n, uint32_t n_keep);

#endif
