/* common.h - helpers shared by the routes: bodies, queries, owners, errors. */
#ifndef QUERN_CONTROLLER_APIS_COMMON_H
#define QUERN_CONTROLLER_APIS_COMMON_H

#include "controller/http/exchange.h"
#include "controller/jobs/file_store.h"
#include "controller/request/field_table.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Parse the body into a tree that the caller owns, and free the body's bytes.  -errno: it is malformed, or
 * would need too much memory and was not parsed; x has its reply. */
int common_body(struct exchange *x, json_t **out);
/* Parse a body that must be an object.  NULL: x has its reply. */
json_t *common_body_object(struct exchange *x);

/* Write the name of the request's key; "" without keys. */
void common_owner(const struct exchange *x, char owner[FILE_OWNER_SIZE]);
/* Write the owner of the request's jobs (struct submit); "" without keys. */
enum { COMMON_JOB_OWNER_SIZE = 1 + FILE_OWNER_SIZE };
void common_job_owner(const struct exchange *x, char owner[COMMON_JOB_OWNER_SIZE]);
/* Read a query parameter, cut to fit; false: absent.  From a route's call only. */
bool common_query(const struct exchange *x, const char *name, char *out, size_t n);
/* Read an integer query parameter; *out is unchanged if it is absent.  false: out of range, x has its
 * reply. */
bool common_query_int(struct exchange *x, const char *name, int64_t lo, int64_t hi, int64_t *out);
void common_not_found(struct exchange *x, const char *what, const char *id);

/* Return true if name means the served model: its name, the last component of its name (the model's
 * directory), or an alias. */
bool common_is_model(const struct service *svc, const char *name);
/* Check the fields of a request by their table.  Fields without effect and unknown ones are named in
 * x-quern-ignored; unknown fields are refused if the service is strict.  -EINVAL with *p filled. */
int common_check_fields(struct exchange *x, const json_t *request, const struct field_table *t,
			struct api_problem *p);
void common_no_model(struct exchange *x, const char *name);
/* Check the request's `model`.  false: another model, x has its reply.  A value of another type is left to
 * the request's validation. */
bool common_check_model(struct exchange *x, const json_t *request);

#endif
