/* files.h - /v1/files: uploads (multipart/form-data) that are written into the journal as they come,
 * lists, contents.  OpenAI's shapes.  Routes (http.h). */
#ifndef QUERN_CONTROLLER_ENDPOINTS_FILES_H
#define QUERN_CONTROLLER_ENDPOINTS_FILES_H

#include "controller/http/exchange.h"

#include <stdbool.h>

/* The route's upload(): -EINVAL: not a form.  What else is wrong is reported when all of it has come. */
int files_upload(struct exchange *x);
/* Files and batches live in the journal.  false: there is none, x has its reply. */
bool files_have_journal(struct exchange *x);
void files_call(struct exchange *x, const char *rest);
void files_call_one(struct exchange *x, const char *rest);

#endif
