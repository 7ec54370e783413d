/* page.h - the page at `/` and the paths that only it uses.  Routes (http.h). */
#ifndef QUERN_CONTROLLER_ENDPOINTS_PAGE_H
#define QUERN_CONTROLLER_ENDPOINTS_PAGE_H

#include "controller/http/exchange.h"

/* The document, its style and its script (controller/endpoints/page/), linked in. */
extern const char page_html[];
extern const char page_html_end[];

void page_call_root(struct exchange *x, const char *rest);
/* The live stream: live.h. */
void page_call_live(struct exchange *x, const char *rest);
/* {"job": id}: cancels the job. */
void page_call_cancel(struct exchange *x, const char *rest);

#endif
