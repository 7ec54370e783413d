/* http_files.h - /v1/files: uploads (multipart/form-data) into the journal as they come, lists,
 * contents.  OpenAI's shapes. */
#ifndef QUERN_CONTROLLER_HTTP_FILES_H
#define QUERN_CONTROLLER_HTTP_FILES_H

#include "controller/exchange.h"

enum { UPLOAD_FORM_BYTES = 64 << 10 }; /* of a form beside the file in it */

/* The body of an upload, from the headers on.  NULL: it is no form. */
struct upload *upload_new(struct exchange *x, struct MHD_Connection *c);
/* What is wrong is said when all has come.  libmicrohttpd's thread. */
void upload_put(struct upload *u, const char *p, size_t n);
void upload_free(struct upload *u); /* NULL is fine; what was not committed is forgotten */

void call_files(struct exchange *x, const char *rest);
void call_file(struct exchange *x, const char *rest);
void call_batches(struct exchange *x, const char *rest);
void call_batch(struct exchange *x, const char *rest);

#endif
