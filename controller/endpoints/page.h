/* page.h - the page at `/` and the paths that only the page uses.  Routes (http.h). */
#ifndef QUERN_CONTROLLER_ENDPOINTS_PAGE_H
#define QUERN_CONTROLLER_ENDPOINTS_PAGE_H

#include "controller/http/exchange.h"

/* The document with its style and its script (controller/endpoints/page/), linked into the binary. */
extern const char page_html[];
extern const char page_html_end[];

void page_call_root(struct exchange *x, const char *rest);
/* The live stream (live.h). */
void page_call_live(struct exchange *x, const char *rest);
/* Cancel the job of {"job": id}. */
void page_call_cancel(struct exchange *x, const char *rest);

#endif
