/* params.h - the sampling parameters of a job, as the front end validated them, the engine
 * keeps them and the worker uses them.  Meaning and defaults are vLLM's
 * (docs/PROTOCOL.md lists them).  Stop strings, best-of choice and detokenization are the
 * front end's and do not travel to the worker. */
#ifndef QUERN_PROTO_PARAMS_H
#define QUERN_PROTO_PARAMS_H

#include "proto/form.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	PARAMS_N_MAX = 64, /* outputs of a job */
	PARAMS_LOGPROBS_MAX = 64,
	PARAMS_BEAM_STOPS_MAX = 64,                            /* stop ids of a beam search */
	PARAMS_TOP_MAX = PARAMS_N_MAX + PARAMS_BEAM_STOPS_MAX, /* most likely tokens that a worker returns */
	PARAMS_STOP_MAX = 16,                                  /* stop strings */
	PARAMS_STOP_BYTES_MAX = 256,                           /* of each */
	PARAMS_LIST_MAX = 1024,        /* stop ids, bias entries, bad words, ids of a bad word */
	PARAMS_BAD_IDS_MAX = 1 << 16,  /* ids of all bad words */
	PARAMS_ALLOWED_MAX = 200000,   /* allowed ids */
	PARAMS_BREAKERS_MAX = 1 << 15, /* ids at which DRY's repetitions end */
	PARAMS_DRY_ALLOWED_MAX = 1024,
	PARAMS_POOL_IDS_MAX = 64,      /* of these, with PARAMS_POOL_LOGITS */
	PARAMS_MIROSTAT_ONE = 1 << 20, /* a bit, in the units of mu */
	PARAMS_TAU_MAX = 100,
	PARAMS_ETA_MAX = 10,
};

/* What of the prompt's rows a job returns instead of sampled tokens: of the last layer's output behind the
 * last norm [hidden] the last row, or the mean of all rows; or the logits of the `allowed` tokens behind the
 * last row.  Of a job of one output without logprobs, with max_tokens 1. */
enum params_pool { PARAMS_POOL_NONE, PARAMS_POOL_LAST, PARAMS_POOL_MEAN, PARAMS_POOL_LOGITS };

enum params_early { PARAMS_EARLY_NO, PARAMS_EARLY_YES, PARAMS_EARLY_NEVER };

struct params {
	uint32_t max_tokens;  /* of each output; 0: the rest of the context */
	uint32_t min_tokens;  /* no stop token before */
	uint32_t n;           /* outputs */
	uint32_t beam_width;  /* hypotheses of a beam search, of which n are returned; 0: sampling.  This and
				 the  next two are the scheduler's: workers ignore them */
	float length_penalty; /* score: sum of logprobs / length ^ length_penalty */
	enum params_early early;   /* early_stopping: false, true, "never" */
	float temperature;         /* 0: greedy */
	float top_p;               /* (0, 1]; 1: off */
	float min_p;               /* [0, 1]; 0: off */
	int32_t top_k;             /* 0: off */
	float presence, frequency; /* [-2, 2]; 0: off */
	float repetition;          /* (0, ..); 1: off */
	/* Of llama.cpp: kernels/kern.h says what they do. */
	float typical_p;                      /* (0, 1]; 1: off */
	float top_n_sigma;                    /* [0, ..); 0: off */
	float xtc_probability, xtc_threshold; /* [0, 1]; probability 0: off */
	float dry_multiplier, dry_base;       /* [0, ..), 0: off; [1, ..) */
	int32_t dry_allowed, dry_last_n;      /* [0, PARAMS_DRY_ALLOWED_MAX]; -1: the whole context */
	uint32_t mirostat;                    /* 0: off; its version, 1 or 2, in the place of all that cuts */
	float mirostat_tau, mirostat_eta;     /* bits, [0, PARAMS_TAU_MAX]; [0, PARAMS_ETA_MAX] */
	uint64_t seed;                        /* always set: a job without one gets a random one */
	bool ignore_eos;
	int32_t logprobs;        /* -1: none; k: of the k most likely and the chosen one.  At most
				    PARAMS_LOGPROBS_MAX of a client, PARAMS_TOP_MAX of the scheduler */
	int32_t prompt_logprobs; /* likewise, of the prompt's tokens */
	enum params_pool pool;

	/* All owned. */
	uint32_t *stop_ids; /* end an output: stop_token_ids, and unless ignore_eos the model's */
	uint32_t n_stop_ids;
	int32_t *bias_ids;
	float *bias;
	uint32_t n_bias;
	int32_t *allowed; /* n_allowed 0: all */
	uint32_t n_allowed;
	int32_t *bad;     /* bad words: ids one after another */
	int32_t *bad_len; /* [n_bad] */
	uint32_t n_bad;
	uint32_t n_bad_ids; /* sum of bad_len */
	int32_t *breakers;  /* of DRY, ascending */
	uint32_t n_breakers;
	struct form *form; /* what the output must look like: a reference; NULL: anything.  Of a decoded plan
			      NULL: plans number their forms (plan.h) */
};

void params_init(struct params *p); /* the defaults, nothing owned */
void params_fini(struct params *p);
/* Deep, but for the form, which both then hold; to is overwritten. */
void params_copy(struct params *to, const struct params *from);
/* Every row of the prompt must be computed for it: none can be found in the prefix cache. */
bool params_needs_rows(const struct params *p);
/* tau, eta and mu in units of 1 / PARAMS_MIROSTAT_ONE. */
int32_t params_mirostat_units(float bits);
/* mu of an output without tokens: 2 tau; 0 without mirostat. */
int32_t params_first_mu(const struct params *p);
bool params_is_stop(const struct params *p, uint32_t token);

#endif
