/* batch_lines.h - the lines of a batch's input file: where they are, what they ask for. Pure. */
#ifndef QUERN_CONTROLLER_BATCH_LINES_H
#define QUERN_CONTROLLER_BATCH_LINES_H

#include "base/buf.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct batch_line {
	int64_t at;    /* in the file */
	uint32_t n;    /* bytes, without the newline */
	uint8_t state; /* the batch's */
};

/* Finds the lines of a file that comes in parts, and checks each. */
struct batch_scan {
	const char *endpoint; /* the url of all lines; NULL: any */
	uint32_t max_lines, max_line_bytes;
	struct batch_line *lines; /* owned by whoever takes it */
	uint32_t n_lines, cap_lines;
	json_t *errors; /* array of {code, message, param, line}; at most 100; the caller's */
	/* Private. */
	struct buf part; /* a line that is not complete */
	int64_t at;      /* of its first byte */
	uint64_t *seen;  /* hashes of custom ids, open addressing */
	size_t seen_cap;
	uint32_t line; /* number, from 1, empty ones too */
	bool too_long;
};

void batch_scan_init(struct batch_scan *s, const char *endpoint, uint32_t max_lines, uint32_t max_line_bytes);
void batch_scan_put(struct batch_scan *s, const char *p, size_t n);
void batch_scan_end(struct batch_scan *s);  /* the last line needs no newline */
void batch_scan_fini(struct batch_scan *s); /* also lines and errors */

/* One line: {custom_id, method, url, body}.  *custom_id and *body borrow from *tree, the caller's.
 * -EINVAL with OpenAI's code for it, the key and why. */
int batch_line_parse(const char *p, size_t n, const char *endpoint, json_t **tree, const char **custom_id,
		     const json_t **body, const char **code, const char **param, char *why, size_t why_n);

/* A line of the output or error file, without newline.  body: JSON text of the reply. */
void batch_line_result(struct buf *out, const char *custom_id, unsigned status, const char *request_id,
		       const char *body, size_t body_n);
/* One that was never carried out. */
void batch_line_error(struct buf *out, const char *custom_id, const char *code, const char *message);

#endif
