/* files.h - /v1/files: uploads (multipart/form-data), which are written to the journal as they arrive, lists
 * and contents.  OpenAI's shapes.  Routes (http.h). */
#ifndef QUERN_CONTROLLER_ENDPOINTS_FILES_H
#define QUERN_CONTROLLER_ENDPOINTS_FILES_H

#include "controller/http/exchange.h"

#include <stdbool.h>

/* The route's upload().  -EINVAL: not a form.  Other errors are reported when the whole upload has
 * arrived. */
int files_upload(struct exchange *x);
/* Check for the journal, which stores files and batches.  false: there is none, and x has its reply. */
bool files_have_journal(struct exchange *x);
void files_call(struct exchange *x, const char *rest);
void files_call_one(struct exchange *x, const char *rest);

#endif
