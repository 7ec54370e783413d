/* jobreq.h - a request to the job socket: bytes to something that can be acted on.
 * Decodes, checks, and does the long work (rendering, tokenizing); touches nothing shared, so
 * that a large request can be parsed beside the front end's thread. */
#ifndef QUERN_CONTROLLER_JOBREQ_H
#define QUERN_CONTROLLER_JOBREQ_H

#include "controller/api.h"

enum jobreq_op {
	OP_NONE,
	OP_SUBMIT,
	OP_CANCEL,
	OP_ATTACH,
	OP_RESULT,
	OP_JOBS,
	OP_STATUS,
	OP_WORKERS,
	OP_SCALE,
	OP_DRAIN,
	OP_TOKENIZE,
	OP_DETOKENIZE,
	OP_PING,
};

enum { JOBREQ_ID_MAX = 64, JOBREQ_JOB_MAX = 128 };

struct jobreq {
	struct buf id;     /* as the client encoded it; empty: it gave none that is valid */
	enum jobreq_op op; /* OP_NONE: problem says why */
	struct api_problem problem;
	struct submit *submit;       /* OP_SUBMIT; owned */
	char job[JOBREQ_JOB_MAX];    /* OP_CANCEL, OP_ATTACH, OP_RESULT */
	uint32_t from[PARAMS_N_MAX]; /* OP_ATTACH */
	uint32_t n_from;             /* 0: one number for all outputs, from[0] */
	struct token_ids tokens;     /* OP_TOKENIZE: the answer */
	struct buf text;             /* OP_DETOKENIZE: the answer */
	struct engine_cmd *order;    /* OP_SCALE, OP_DRAIN; owned */
};

/* *out is filled, whatever the bytes are. */
void jobreq_parse(struct jobreq *out, const struct service *svc, uint32_t max_context, const void *bytes,
		  size_t n);
/* The id alone, for a request that is not looked at. */
void jobreq_id(struct jobreq *out, const void *bytes, size_t n);
void jobreq_fini(struct jobreq *r);

#endif
