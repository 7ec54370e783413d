/* pooling.h - what requests for pooled prompts (params.pool), which are not continued, have in common:
 * embeddings.h, rerank.h.  Their fields, their jobs, the arithmetic on what the jobs give.
 *
 *   pooling_begin()     the body, the model, room for n jobs within the API key's limit
 *   pooling_encode()    a text or ids to a prompt
 *   pooling_job()       a prompt to job i
 *   pooling_submit()    all of them; the reply is written as they end (answer.h) */
#ifndef QUERN_CONTROLLER_ENDPOINTS_POOLING_H
#define QUERN_CONTROLLER_ENDPOINTS_POOLING_H

#include "controller/apis/completion.h"
#include "controller/request/api_error.h"
#include "controller/request/field_table.h"
#include "controller/request/request_tokens.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { POOLING_INPUTS_MAX = 2048 /* of a request, as OpenAI bounds them */ };

/* Fields of every request of this kind; texts are borrowed from it. */
struct pooling_fields {
	const char *user, *cache_salt;
	int64_t priority, deadline_ms; /* 0: none */
	int64_t truncate;              /* tokens of a prompt; 0: a longer one than the context is refused */
	bool add_special;
};

/* Rows of these fields: the end of the table of every such request. */
extern const struct field_table pooling_table;

/* table: the request's rows, with pooling_table behind them.  -EINVAL with *p filled. */
int pooling_fields_read(struct exchange *x, const json_t *request, const struct field_table *table,
			struct pooling_fields *f, struct api_problem *p);
/* A string of 1 byte or more; absent: *out stays. */
int pooling_string(const json_t *request, const char *name, const char **out, struct api_problem *p);
int pooling_bool(const json_t *request, const char *name, bool *out, struct api_problem *p);
int pooling_int(const json_t *request, const char *name, int64_t lo, int64_t hi, int64_t *out,
		struct api_problem *p);

/* The exchange's work with n jobs to be made by pooling_job().  NULL: x has its reply. */
struct completion *pooling_begin(struct exchange *x, size_t n, const struct answer_writer *writer,
				 void *data);
/* Appends the prompt of a string or an array of ids to ids, cut to f->truncate tokens. */
int pooling_encode(const struct exchange *x, const struct pooling_fields *f, const json_t *input,
		   const char *field, struct token_ids *ids, struct api_problem *p);
/* Job i of the request.  Takes the ids, whatever it returns, and params. */
int pooling_job(struct completion *c, size_t i, const struct pooling_fields *f, struct token_ids *ids,
		struct params *params, const char *field, struct api_problem *p);
/* rc: of making the jobs.  0: submits them; else the problem is x's reply. */
/* What a writer's done() returns of a job: whether it has values, and they are numbers. */
const char *pooling_verdict(const struct job_event *e, bool numbers);
void pooling_submit(struct completion *c, int rc, const struct api_problem *p, const char *id_prefix);

/* The first n values of a vector, to the length of 1 if so (of zeros: as they are).  False: not numbers. */
bool pooling_vector(const float *values, uint32_t n, bool normalize, float *out);
double pooling_dot(const float *a, const float *b, uint32_t n);
/* Base64 of n floats, little-endian, with its quotes. */
void pooling_put_base64(struct buf *b, const float *values, uint32_t n);

#endif
