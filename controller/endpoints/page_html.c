#include "controller/endpoints/routes.h"

/* Parts of the document in order: one style, one script.  The Makefile has the dependency. */
#define PART(file) ".incbin \"controller/endpoints/page/" file "\"\n"
#define TEXT(text) ".ascii \"" text "\\n\"\n"

/* clang-format off */
__asm__(".pushsection .rodata\n"
	".global page_html\n"
	".global page_html_end\n"
	"page_html:\n"
	PART("head.html")
	TEXT("<style nonce='@NONCE@'>")
	PART("page.css")
	TEXT("</style>")
	PART("body.html")
	TEXT("<script nonce='@NONCE@'>")
	TEXT("'use strict';")
	PART("dom.js")
	PART("api.js")
	PART("live.js")
	PART("service.js")
	PART("charts.js")
	PART("replicas.js")
	PART("tables.js")
	PART("markdown.js")
	PART("alternatives.js")
	PART("chats.js")
	PART("chat.js")
	PART("main.js")
	TEXT("</script>")
	"page_html_end:\n"
	".byte 0\n"
	".popsection\n");
/* clang-format on */
