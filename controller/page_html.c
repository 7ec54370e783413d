#include "controller/page.h"

/* The file as it is, without a copy of it in C; the Makefile knows of the dependency. */
__asm__(".pushsection .rodata\n"
	".global page_html\n"
	".global page_html_end\n"
	"page_html:\n"
	".incbin \"controller/page/index.html\"\n"
	"page_html_end:\n"
	".byte 0\n"
	".popsection\n");
