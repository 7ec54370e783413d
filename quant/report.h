/* report.h - the error of a quantization per linear part, per layer and for the network: as JSON, or as one
 * HTML page with charts. */
#ifndef QUERN_QUANT_REPORT_H
#define QUERN_QUANT_REPORT_H

#include "base/buf.h"
#include "base/err.h"
#include "quant/layer.h"
#include "quant/measure.h"
#include "quant/quantize.h"

#include <stdbool.h>

enum { REPORT_NAME = 112 };

struct report_linear {
	char name[96];
	const char *part; /* name of the part if several share the tensor: "q"; static, "" for none */
	int layer;
	bool kept;          /* kept in floats; the errors are those of the quantized form */
	const char *reason; /* static; "" for none */
	int n_rows;         /* rows of the calibration text; 0: not known */
	struct layer_error weights, alone, accumulated; /* signal 0: not known */
	struct layer_error nearest; /* `alone` for rounding to nearest; signal 0: not known */
};

struct report {
	const char *source, *result, *type; /* paths; "awq4" */
	int group;                          /* 0: the type has no groups */
	int n_calibration;                  /* tokens; 0: no calibration */
	struct report_linear *linears;      /* borrowed */
	int n_linears;
	const struct measure *network; /* or NULL: not measured */
};

/* Sort the indexes of the linear parts by the signal-to-noise ratio of their outputs (alone), lowest first;
 * parts without outputs last: out [n_linears]. */
void report_order(const struct report *r, int *out);

/* Format the name: "model.layers.3.mlp.up_proj", "model.layers.3.self_attn.qkv_proj: q".  Return out. */
const char *report_name(const struct report_linear *l, char out[REPORT_NAME]);

/* Print a few lines to stdout: how many parts are quantized, the format (`as`: "INT4, groups of 128"), the
 * loss on the text, the worst parts. */
void report_summary(const struct report *r, const char *as);
void report_json(const struct report *r, struct buf *out);
void report_html(const struct report *r, struct buf *out);

/* Check before hours of work that the report files can be written.  They are not changed. */
int report_check_all(const struct quantize_options *q, struct why *why);
/* Write the report files: HTML if the name ends in .html or .htm, else JSON.  Each is written whole or not at
 * all. */
int report_write_all(const struct report *r, const struct quantize_options *q, struct why *why);

#endif
