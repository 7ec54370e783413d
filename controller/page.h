/* page.h - the page at `/` and the paths that only it uses; calls of http_routes.c. */
#ifndef QUERN_CONTROLLER_PAGE_H
#define QUERN_CONTROLLER_PAGE_H

#include "controller/exchange.h"

/* controller/page/index.html, as it was when this was built. */
extern const char page_html[];
extern const char page_html_end[];

void page_call_root(struct exchange *x, const char *rest);
/* The live stream: live.h. */
void page_call_live(struct exchange *x, const char *rest);
/* {"job": id}: ends it. */
void page_call_cancel(struct exchange *x, const char *rest);

#endif
