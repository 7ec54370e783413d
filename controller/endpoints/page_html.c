#include "controller/endpoints/page.h"

/* Linked in as bytes; the Makefile has the dependency. */
__asm__(".pushsection .rodata\n"
	".global page_html\n"
	".global page_html_end\n"
	"page_html:\n"
	".incbin \"controller/endpoints/page/index.html\"\n"
	"page_html_end:\n"
	".byte 0\n"
	".popsection\n");
