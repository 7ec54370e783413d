/* http_common.h - what several paths have in common, those of files and batches above all. */
#ifndef QUERN_CONTROLLER_HTTP_COMMON_H
#define QUERN_CONTROLLER_HTTP_COMMON_H

#include "controller/exchange.h"
#include "controller/filestore.h"

/* To be asked before a body is parsed: its tree takes many times its bytes.  false: it holds too many
 * values, x has its reply. */
bool http_body_fits(struct exchange *x);
/* Files and batches live in the journal.  false: there is none, x has its reply. */
bool http_has_journal(struct exchange *x);
/* Whose they are: the name of the request's key, "" without keys. */
void http_owner(const struct exchange *x, char owner[FILE_OWNER_SIZE]);
/* A parameter of the query, cut to fit; false: it is not there.  From a route's call only. */
bool http_query(const struct exchange *x, const char *name, char *out, size_t n);
/* Absent: *out stays.  false: wrong, x has its reply. */
bool http_query_int(struct exchange *x, const char *name, int64_t lo, int64_t hi, int64_t *out);
void http_not_found(struct exchange *x, const char *what, const char *id);
/* The reply that is a file's content: x->file_id. */
struct MHD_Response *http_file_response(struct exchange *x);

#endif
