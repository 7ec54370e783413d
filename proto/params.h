/* params.h - the sampling parameters of a job: validated by the front end, kept by the engine, used by the
 * worker.
 * Meaning and defaults are vLLM's (docs/PROTOCOL.md lists them).  The front end handles stop strings,
 * best-of choice and detokenization; the worker does not receive them. */
#ifndef QUERN_PROTO_PARAMS_H
#define QUERN_PROTO_PARAMS_H

#include "base/err.h"
#include "proto/constraint.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Version of the bus (bus.h), which must be the same in a worker and its controller.  A changed message
 * raises it, and so does a new parameter, since readers reject unknown names. */
enum { BUS_VERSION = 7 };

enum {
	PARAMS_N_MAX = 64, /* outputs per job */
	PARAMS_LOGPROBS_MAX = 64,
	PARAMS_BEAM_STOPS_MAX = 64,                            /* stop ids of a beam search */
	PARAMS_TOP_MAX = PARAMS_N_MAX + PARAMS_BEAM_STOPS_MAX, /* most likely tokens returned by a worker */
	PARAMS_STOP_MAX = 16,                                  /* stop strings */
	PARAMS_STOP_BYTES_MAX = 256,                           /* bytes per stop string */
	PARAMS_LIST_MAX = 1024,        /* stop ids, bias entries, bad words, ids of a bad word */
	PARAMS_BAD_IDS_MAX = 1 << 16,  /* ids of all bad words */
	PARAMS_ALLOWED_MAX = 200000,   /* allowed ids */
	PARAMS_BREAKERS_MAX = 1 << 15, /* ids that end DRY's repetitions */
	PARAMS_DRY_ALLOWED_MAX = 1024,
	PARAMS_POOL_IDS_MAX = 64,      /* `allowed` ids with PARAMS_POOL_LOGITS */
	PARAMS_MIROSTAT_ONE = 1 << 20, /* one bit, in the units of mu */
	PARAMS_TAU_MAX = 100,
	PARAMS_ETA_MAX = 10,
};

/* Values that a job returns instead of sampled tokens.  LAST, MEAN: the last layer's output after the final
 * norm [hidden], of the prompt's last row, or the mean of all its rows.  LOGITS: the logits of the
 * `allowed` tokens after the last row.  Requires one output without logprobs, and max_tokens 1. */
enum params_pool { PARAMS_POOL_NONE, PARAMS_POOL_LAST, PARAMS_POOL_MEAN, PARAMS_POOL_LOGITS };

enum params_early { PARAMS_EARLY_NO, PARAMS_EARLY_YES, PARAMS_EARLY_NEVER };

struct params {
	uint32_t max_tokens; /* per output; 0: the rest of the context */
	uint32_t min_tokens; /* tokens before which no stop token is allowed */
	uint32_t n;          /* outputs */
	/* hypotheses of a beam search, of which n are returned; 0: sampling.  Only the scheduler uses
	 * beam_width, length_penalty and early */
	uint32_t beam_width;
	float length_penalty;      /* score: sum of logprobs / length ^ length_penalty */
	enum params_early early;   /* early_stopping: false, true, "never" */
	float temperature;         /* 0: greedy */
	float top_p;               /* (0, 1]; 1: off */
	float min_p;               /* [0, 1]; 0: off */
	int32_t top_k;             /* 0: off */
	float presence, frequency; /* [-2, 2]; 0: off */
	float repetition;          /* (0, ..); 1: off */
	/* From llama.cpp; kernels/kern.h describes them. */
	float typical_p;                      /* (0, 1]; 1: off */
	float top_n_sigma;                    /* [0, ..); 0: off */
	float xtc_probability, xtc_threshold; /* [0, 1]; probability 0: off */
	float dry_multiplier, dry_base;       /* [0, ..), 0: off; [1, ..) */
	/* [0, PARAMS_DRY_ALLOWED_MAX]; [-1, ..), -1: the whole context */
	int32_t dry_allowed, dry_last_n;
	/* version, 1 or 2, instead of all truncating samplers; 0: off */
	uint32_t mirostat;
	float mirostat_tau, mirostat_eta; /* bits, [0, PARAMS_TAU_MAX]; [0, PARAMS_ETA_MAX] */
	uint64_t seed;                    /* always set: random if the job gives none */
	bool ignore_eos;
	/* -1: none; k: of the k most likely tokens and the chosen one.  At most PARAMS_LOGPROBS_MAX from a
	 * client, PARAMS_TOP_MAX from the scheduler */
	int32_t logprobs;
	int32_t prompt_logprobs; /* like logprobs, for the prompt's tokens */
	enum params_pool pool;

	/* All owned. */
	uint32_t *stop_ids; /* ids that end an output: stop_token_ids, and the model's unless ignore_eos */
	uint32_t n_stop_ids;
	int32_t *bias_ids;
	float *bias;
	uint32_t n_bias;
	int32_t *allowed; /* [n_allowed]; n_allowed 0: all tokens */
	uint32_t n_allowed;
	int32_t *bad;     /* [n_bad_ids] bad words, concatenated */
	int32_t *bad_len; /* [n_bad] ids per word */
	uint32_t n_bad;
	uint32_t n_bad_ids; /* sum of bad_len */
	int32_t *breakers;  /* [n_breakers] DRY's sequence breakers, ascending */
	uint32_t n_breakers;
	/* constraint of the output (a reference); NULL: none.  NULL in a decoded plan, which has
	 * constraints by number (plan.h) */
	struct constraint *constraint;
};

void params_init(struct params *p); /* sets the neutral values; nothing is owned */
void params_fini(struct params *p);
/* Copy all lists; the constraint is shared.  `to` is overwritten without being freed. */
void params_copy(struct params *to, const struct params *from);
/* True if every row of the prompt must be computed, so that the prefix cache cannot be used. */
bool params_needs_rows(const struct params *p);
/* Convert bits (tau, eta, mu) to units of 1 / PARAMS_MIROSTAT_ONE. */
int32_t params_mirostat_units(float bits);
/* Return mu of an output without tokens: 2 tau; 0 without mirostat. */
int32_t params_first_mu(const struct params *p);
bool params_is_stop(const struct params *p, uint32_t token);

/* ---- the table ---- */

/* One row per number in struct params.  Every reader of parameters uses this table: params_init(), the bus,
 * the journal, the worker's check, the request fields of all APIs, /openapi.json and the pages in
 * docs/apis/; a test compares the Python package with it.  A new sampling parameter is a member of struct
 * params, a row, and the code that implements it (CONTRIBUTING.md). */
enum params_type { PARAMS_FLOAT, PARAMS_INT32, PARAMS_UINT32, PARAMS_UINT64, PARAMS_BOOL };
enum {
	PARAMS_ABOVE = 1,        /* lo itself is out of range */
	PARAMS_OFF_BELOW = 2,    /* a client may give any value from -1 up to lo for the neutral value */
	PARAMS_NEUTRAL_BEAM = 4, /* a beam search accepts only the neutral value */
};
struct params_row {
	const char *name; /* key on the bus and in the journal; name in the job socket's and OpenAI's API */
	uint16_t offset;  /* in struct params */
	uint8_t type;     /* enum params_type */
	uint8_t flags;
	uint8_t since;                 /* first BUS_VERSION that has the parameter */
	double lo, hi;                 /* range, inclusive; a PARAMS_UINT64 has none */
	double neutral;                /* value if it is not given */
	const char *llamacpp, *ollama; /* name in these APIs; NULL: they do not have it */
	/* Description for clients, the default in brackets.  NULL: no request field has this name, type and
	 * range; request_fields.c has its own code for it. */
	const char *about;
};
enum { PARAMS_ROWS_MAX = 64, PARAMS_LISTS_MAX = 8 };
extern const struct params_row params_rows[];
extern const size_t n_params_rows;

/* One row for each owned array of 4-byte elements. */
struct params_list {
	const char *name;
	uint16_t offset, n_offset; /* offsets of the pointer and of the count, which two lists may share */
	uint32_t max;              /* elements */
	bool ids;                  /* elements are token ids of the vocabulary */
};
extern const struct params_list params_lists[];
extern const size_t n_params_lists;

/* Return the row of a member: params_row_at(offsetof(struct params, top_p)). */
const struct params_row *params_row_at(size_t offset);
/* Return the value; not for a PARAMS_UINT64. */
double params_get(const struct params_row *row, const struct params *p);
/* Set the member to x, converted to its type, which must be able to hold x. */
void params_set(const struct params_row *row, struct params *p, double x);
/* Return -EINVAL with a reason unless the sampler can use p with a vocabulary of n_vocab tokens.  Stop
 * tokens may be beyond the vocabulary: the model cannot produce them. */
int params_check(const struct params *p, uint32_t n_vocab, struct why *why);

/* ---- encoding ---- */

/* Append parameters to out as a msgpack map of names to values: numbers, and lists as blobs of
 * little-endian 4-byte words.  pack_changed omits neutral values, and the constraint, which a plan has by
 * number (bus.h).  pack_all writes every number, so that a later change of a neutral value does not affect
 * stored data, and the constraint: one byte for the language, then the text. */
struct buf;
struct cursor;
void params_pack_changed(struct buf *out, const struct params *p);
void params_pack_all(struct buf *out, const struct params *p);
/* Read what either function wrote; absent values are neutral.  Fails the cursor for an unknown or duplicate
 * key, for values that params_check() rejects, and for stop tokens beyond the vocabulary.  The caller owns
 * p even after a failure (params_fini()). */
void params_unpack(struct cursor *c, struct params *p, uint32_t n_vocab);

#endif
