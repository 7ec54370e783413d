/* report.h - what a quantization cost: for each linear part, each layer and the network.  As JSON for
 * programs, as one HTML page with its charts for people. */
#ifndef QUERN_QUANT_REPORT_H
#define QUERN_QUANT_REPORT_H

#include "base/buf.h"
#include "quant/layer.h"
#include "quant/measure.h"
#include "quant/quantize.h"

#include <stdbool.h>

enum { REPORT_NAME = 112 };

struct report_linear {
	char name[96];
	const char *part; /* of the tensor of that name, where it has several: "q"; static, "" for none */
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

/* "model.layers.3.mlp.up_proj", "model.layers.3.self_attn.qkv_proj: q".  Returns out. */
const char *report_name(const struct report_linear *l, char out[REPORT_NAME]);

/* A few lines to stdout: how many parts are quantized, to what ("INT4, groups of 128"), what the text lost,
 * the worst parts. */
void report_summary(const struct report *r, const char *as);
void report_json(const struct report *r, struct buf *out);
void report_html(const struct report *r, struct buf *out);

/* Whether the files of the options can be written: before the work of hours.  They stay as they are. */
int report_check_all(const struct quantize_options *q, char *why, size_t why_n);
/* Writes them: HTML where the name ends in .html or .htm, else JSON; each as a whole or not at all. */
int report_write_all(const struct report *r, const struct quantize_options *q, char *why, size_t why_n);

#endif
