/* pooling.h - shared code of requests that pool their prompts (params.pool) and generate nothing:
 * embeddings.c, rerank.c.  Reads their fields, makes their jobs, and computes with the jobs' vectors.
 *
 *   pooling_begin()     reads the body, checks the model, reserves n jobs of the API key's limit
 *   pooling_encode()    turns a text or ids into a prompt
 *   pooling_job()       turns a prompt into job i
 *   pooling_submit()    submits all jobs; the reply is written as they end (answer.h) */
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

enum { POOLING_INPUTS_MAX = 2048 /* per request, OpenAI's limit */ };

/* Fields of every such request; texts are borrowed from it. */
struct pooling_fields {
	const char *user, *cache_salt;
	int64_t priority, deadline_ms; /* 0: none */
	int64_t truncate;              /* tokens to which a prompt is cut; 0: a prompt longer than the context
				        * is refused */
	bool add_special;
};

/* Rows of these fields, the last part of every such request's table. */
extern const struct field_table pooling_table;

/* Read the fields.  table: the request's rows, linked to pooling_table.  -EINVAL with *p filled. */
int pooling_fields_read(struct exchange *x, const json_t *request, const struct field_table *table,
			struct pooling_fields *f, struct api_problem *p);
/* Read a field; *out is unchanged if it is absent.  A string must have at least 1 byte. */
int pooling_string(const json_t *request, const char *name, const char **out, struct api_problem *p);
int pooling_bool(const json_t *request, const char *name, bool *out, struct api_problem *p);
int pooling_int(const json_t *request, const char *name, int64_t lo, int64_t hi, int64_t *out,
		struct api_problem *p);

/* Make the exchange's work, with n jobs to be made by pooling_job().  NULL: x has its reply. */
struct completion *pooling_begin(struct exchange *x, size_t n, const struct answer_writer *writer,
				 void *data);
/* Append the prompt, a string or an array of ids, to ids, cut to f->truncate tokens. */
int pooling_encode(const struct exchange *x, const struct pooling_fields *f, const json_t *input,
		   const char *field, struct token_ids *ids, struct api_problem *p);
/* Make job i of the request.  Takes params and the ids, also after an error. */
int pooling_job(struct completion *c, size_t i, const struct pooling_fields *f, struct token_ids *ids,
		struct params *params, const char *field, struct api_problem *p);
/* Return the result for a writer's done(): NULL, or why the job's values are missing or not numbers. */
const char *pooling_verdict(const struct job_event *e, bool numbers);
/* Submit the jobs if rc, the result of making them, is 0; otherwise reply with the problem. */
void pooling_submit(struct completion *c, int rc, const struct api_problem *p, const char *id_prefix);

/* Copy the first n values of a vector, scaled to length 1 if normalize (a zero vector stays).  false: not
 * numbers. */
bool pooling_vector(const float *values, uint32_t n, bool normalize, float *out);
double pooling_dot(const float *a, const float *b, uint32_t n);
/* Append n floats as base64, little-endian, with quotes. */
void pooling_put_base64(struct buf *b, const float *values, uint32_t n);

#endif
