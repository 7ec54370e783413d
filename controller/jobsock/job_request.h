/* job_request.h - parses a request to the job socket: msgpack to a validated struct.
 * Includes the expensive work, chat templates and tokenizing.  Uses no shared state, so that a large request
 * can be parsed on another thread (parser.h). */
#ifndef QUERN_CONTROLLER_JOBSOCK_JOB_REQUEST_H
#define QUERN_CONTROLLER_JOBSOCK_JOB_REQUEST_H

#include "controller/jobs/lines.h"
#include "controller/message/engine_msg.h"
#include "controller/request/api.h"

enum job_request_op {
	OP_NONE,
	OP_SUBMIT,
	OP_REQUEST,
	OP_CANCEL,
	OP_ATTACH,
	OP_RESULT,
	OP_EXPLAIN,
	OP_JOBS,
	OP_STATUS,
	OP_WORKERS,
	OP_SCALE,
	OP_DRAIN,
	OP_RESET_PREFIX_CACHE,
	OP_TOKENIZE,
	OP_DETOKENIZE,
	OP_PING,
};

enum { JOBREQ_ID_MAX = 64, JOBREQ_JOB_MAX = 128 };

struct job_request {
	struct buf id;          /* as the client encoded it; empty: missing or invalid */
	enum job_request_op op; /* OP_NONE: refused, for the reason in problem */
	struct api_problem problem;
	struct submit *submit;       /* OP_SUBMIT; owned */
	struct line_request *line;   /* OP_REQUEST; owned */
	char job[JOBREQ_JOB_MAX];    /* OP_CANCEL, OP_ATTACH, OP_RESULT, OP_EXPLAIN */
	uint32_t from[PARAMS_N_MAX]; /* OP_ATTACH */
	uint32_t n_from;             /* number of entries in from; 0: from[0] is for all outputs */
	struct token_ids tokens;     /* OP_TOKENIZE: the result */
	struct buf text;             /* OP_DETOKENIZE: the result */
	json_t *pieces;              /* OP_DETOKENIZE: the text of each token, if requested; owned */
	struct engine_cmd *order;    /* OP_SCALE, OP_DRAIN, OP_RESET_PREFIX_CACHE; owned */
};

/* Parse any bytes into *out; errors are in out->problem. */
void job_request_parse(struct job_request *out, const struct service *svc, uint32_t max_context,
		       const void *bytes, size_t n);
/* Fill only the id, for a request that is refused unparsed. */
void job_request_id(struct job_request *out, const void *bytes, size_t n);
void job_request_fini(struct job_request *r);

#endif
