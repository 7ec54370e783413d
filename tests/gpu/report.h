/* report.h - the page that report.c writes. */
#ifndef QUERN_TESTS_GPU_REPORT_H
#define QUERN_TESTS_GPU_REPORT_H

#include <jansson.h>
#include <stdio.h>

/* Write the page.  all: {"run", "machine", "phases", "tests", "goals", "data"} */
void report_page(FILE *f, const json_t *all);

#endif
