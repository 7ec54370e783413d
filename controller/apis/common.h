/* common.h - what the routes share: bodies, queries, owners, errors. */
#ifndef QUERN_CONTROLLER_APIS_COMMON_H
#define QUERN_CONTROLLER_APIS_COMMON_H

#include "controller/http/exchange.h"
#include "controller/jobs/file_store.h"
#include "controller/request/field_table.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The body as a tree, the caller's; its bytes are given back.  -errno: it is malformed, or would take too
 * much memory and was not built; x has its reply. */
int common_body(struct exchange *x, json_t **out);
/* The same, for a body that must be an object.  NULL: x has its reply. */
json_t *common_body_object(struct exchange *x);

/* The name of the request's key, "" without keys. */
void common_owner(const struct exchange *x, char owner[FILE_OWNER_SIZE]);
/* The owner of its jobs (struct submit), "" without keys. */
enum { COMMON_JOB_OWNER_SIZE = 1 + FILE_OWNER_SIZE };
void common_job_owner(const struct exchange *x, char owner[COMMON_JOB_OWNER_SIZE]);
/* A parameter of the query, cut to fit; false: absent.  From a route's call only. */
bool common_query(const struct exchange *x, const char *name, char *out, size_t n);
/* Absent: *out stays.  false: out of range, x has its reply. */
bool common_query_int(struct exchange *x, const char *name, int64_t lo, int64_t hi, int64_t *out);
void common_not_found(struct exchange *x, const char *what, const char *id);

/* Whether name is the served model's: its name, the last part of it (the model's directory), or another one
 * that it answers to. */
bool common_is_model(const struct service *svc, const char *name);
/* The fields of a request by their table; those without effect and unknown ones are named in x-quern-ignored,
 * the latter refused where the service is strict.  -EINVAL with *p filled. */
int common_check_fields(struct exchange *x, const json_t *request, const struct field_table *t,
			struct api_problem *p);
void common_no_model(struct exchange *x, const char *name);
/* The request's `model`.  false: another one, x has its reply.  A value of another type is left for
 * the request's validation to refuse. */
bool common_check_model(struct exchange *x, const json_t *request);

#endif
