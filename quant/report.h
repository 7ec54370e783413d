/* report.h - what a quantization cost: for each linear part, each layer and the network.  As JSON for
 * programs, as one HTML page with its charts for people. */
#ifndef QUERN_QUANT_REPORT_H
#define QUERN_QUANT_REPORT_H

#include "base/buf.h"
#include "quant/layer.h"
#include "quant/measure.h"

#include <stdbool.h>

struct report_linear {
	char name[96];
	int layer;
	bool kept;          /* in floats: the errors are those that its quantized form has */
	const char *reason; /* static; "" for none */
	int n_rows;         /* of the calibration text; 0: not known */
	struct layer_error weights, alone, accumulated; /* signal 0: not known */
	struct layer_error nearest; /* alone, by rounding to nearest; signal 0: not known */
};

struct report {
	const char *source, *result, *type; /* paths; "awq4" */
	int group;                          /* 0: has none */
	int n_calibration;                  /* tokens; 0: no calibration */
	struct report_linear *linears;      /* borrowed */
	int n_linears;
	const struct measure *network; /* or NULL: not measured */
};

/* Indexes of the linear parts, the one with the lowest signal to noise of outputs (alone) first; parts
 * without outputs last: out [n_linears]. */
void report_order(const struct report *r, int *out);

/* A few lines to stdout: how many parts are quantized, to what ("INT4, groups of 128"), what the text lost,
 * the worst parts. */
void report_summary(const struct report *r, const char *as);
void report_json(const struct report *r, struct buf *out);
void report_html(const struct report *r, struct buf *out);

/* Writes path: HTML where it ends in .html or .htm, else JSON; as a whole or not at all. */
int report_write(const struct report *r, const char *path, char *why, size_t why_n);

#endif
