/* batch_lines.h - the lines of an OpenAI batch: find and check them in the input file, write them to the
 * output file.  Pure. */
#ifndef QUERN_FORMATS_BATCH_LINES_H
#define QUERN_FORMATS_BATCH_LINES_H

#include "base/buf.h"
#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { BATCH_LINE_TREE_MAX = 64 << 20 /* memory limit of a line's JSON tree, in bytes (base/json.h) */ };

struct batch_line {
	int64_t at;    /* offset in the file */
	uint32_t n;    /* length in bytes, without the newline */
	uint8_t state; /* for the caller's use */
};

/* Scanner that finds and checks the lines of a file that arrives in chunks. */
struct batch_scan {
	const char *endpoint; /* URL that every line must have; NULL: any */
	uint32_t max_lines, max_line_bytes;
	struct batch_line *lines; /* [n_lines], owned; the caller may take the array */
	uint32_t n_lines, cap_lines;
	json_t *errors; /* array of {code, message, param, line}, at most 100 items; the caller's */
	/* Private. */
	struct buf part; /* an incomplete line */
	int64_t at;      /* offset of its first byte */
	uint64_t *seen;  /* hashes of custom ids, open addressing */
	size_t seen_cap;
	uint32_t line; /* line number from 1; empty lines count */
	bool too_long;
};

void batch_scan_init(struct batch_scan *s, const char *endpoint, uint32_t max_lines, uint32_t max_line_bytes);
void batch_scan_put(struct batch_scan *s, const char *p, size_t n);
void batch_scan_end(struct batch_scan *s);  /* the last line needs no newline */
void batch_scan_fini(struct batch_scan *s); /* also frees lines and errors */

/* One line of an input file: {custom_id, method, url, body}. */
struct batch_line_request {
	json_t *tree;          /* owned, freed with json_decref() even if the line is invalid; NULL: not
			        * JSON */
	const char *custom_id; /* borrowed from tree; "" if the line is invalid */
	const json_t *body;    /* borrowed from tree */
	const char *body_text; /* the body as text, borrowed from the line */
	size_t body_text_n;
};
struct batch_line_problem {
	const char *code, *param; /* OpenAI's error code; the JSON key, or NULL */
	struct why why;
};

/* Parse and check a line.  endpoint: the URL that it must have; NULL: any.  Return -EINVAL with *problem
 * filled if the line is invalid. */
int batch_line_parse(const char *p, size_t n, const char *endpoint, struct batch_line_request *out,
		     struct batch_line_problem *problem);

/* Append a line of the output or error file, without newline.  body: JSON text of the reply. */
void batch_line_result(struct buf *out, const char *custom_id, unsigned status, const char *request_id,
		       const char *body, size_t body_n);
/* Append a line for a request that was not run. */
void batch_line_error(struct buf *out, const char *custom_id, const char *code, const char *message);

#endif
