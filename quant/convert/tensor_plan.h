/* tensor_plan.h - which tensors a new model has, where the values of each come from, and how they change on
 * the way; then the streaming of all of them.  Of a tensor a few megabytes are in memory at a time. */
#ifndef QUERN_QUANT_CONVERT_TENSOR_PLAN_H
#define QUERN_QUANT_CONVERT_TENSOR_PLAN_H

#include "formats/safetensors.h"
#include "quant/convert/names.h"
#include "quant/writer/writer.h"

#include <stddef.h>

/* Rows of floats to a stored type: n_values of them, as many rows as they make. */
typedef void (*tensor_plan_encode)(const float *in, size_t n_values, void *out);

struct tensor_plan_item {
	char name[NAME_SIZE]; /* in the new model */
	const char *type;     /* likewise, a static string */
	int n_dims;
	int64_t shape[WRITER_DIMS_MAX];

	const char *source; /* name in the old model, borrowed */
	const char *source_type;
	const void *data; /* rows one behind the other */
	bool mapped;      /* ... in a file: pages that were read are given back */
	int heads;        /* rows are permuted within so many heads; 0: as they are */
	bool halves;      /* ... to halves, from neighbours; else the other way around */
	float add;        /* to every value (Gemma's norms) */
	tensor_plan_encode
		encode; /* NULL: the type is that of the source, or floats that hold the same values */
	/* Rows of one of `stack` matrices that are a tensor of three dimensions, the place-th: of a stack all
	 * items are side by side, and the first has the tensor's name.  0: a tensor of its own. */
	int stack, place;
	int slot; /* in the writer */
};

struct tensor_plan {
	struct tensor_plan_item *items; /* [n], owned */
	size_t n, cap;
	int n_left_out, left_out_from; /* tensors of layers that predict further tokens, the first of those */
};

/* A new item, zeroed, valid until the next call. */
struct tensor_plan_item *tensor_plan_add(struct tensor_plan *p);
void tensor_plan_fini(struct tensor_plan *p);

/* An item that is the tensor as it is.  -ENOTSUP: its name is too long, or it has too many dimensions. */
int tensor_plan_copy(struct tensor_plan *p, const struct st_tensor *t, char *why, size_t why_n);
/* Rows of q and k of a model that rotates halves, where the GGUF file rotates neighbours: p is permuted, to
 * halves or from them.  Nothing for other parts and models.  -EINVAL: it has another number of rows. */
int tensor_plan_permute(struct tensor_plan_item *p, const struct model_config *c, enum name_part part,
			bool halves, char *why, size_t why_n);

/* Whether the model src is complete: the loader names what is missing, so that what is converted can be
 * loaded. -ENOENT, -EINVAL, ... with the reason. */
int tensor_plan_check(const char *src, const struct model_config *c, char *why, size_t why_n);
/* Counts a tensor of name_is_of_predictor(): a line says so when the tensors are declared. */
void tensor_plan_leave_out(struct tensor_plan *p, const struct model_config *c);
/* Declares all tensors. */
int tensor_plan_declare(struct tensor_plan *p, struct writer *w, char *why, size_t why_n);
/* Writes all of them, with a progress bar; the caller has begun the writer.  -ERANGE: a value that the new
 * type does not hold exactly, named; -EINTR: interrupted (cli/terminal/term.h). */
int tensor_plan_run(const struct tensor_plan *p, struct writer *w, const char *doing, char *why,
		    size_t why_n);

/* Whether values of this type are floats: "F32", "F16", "BF16". */
bool tensor_plan_is_float(const char *type);

#endif
