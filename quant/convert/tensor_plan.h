/* tensor_plan.h - plan the tensors of a new model, the source of each tensor's values and how they change;
 * then stream them.  Only a few megabytes of a tensor are in memory at a time. */
#ifndef QUERN_QUANT_CONVERT_TENSOR_PLAN_H
#define QUERN_QUANT_CONVERT_TENSOR_PLAN_H

#include "base/err.h"
#include "formats/safetensors.h"
#include "quant/convert/names.h"
#include "quant/writer/writer.h"

#include <stddef.h>

/* Encode whole rows of floats, in [rows][columns], to a stored type.  importance: [columns] weights of the
 * errors of the row's values, or NULL. */
typedef void (*tensor_plan_encode)(const float *in, size_t rows, size_t columns, const float *importance,
				   void *out);

struct tensor_plan_item {
	char name[NAME_SIZE]; /* name in the new model */
	const char *type;     /* type in the new model, a static string */
	int n_dims;
	int64_t shape[WRITER_DIMS_MAX];

	const char *source; /* name in the old model, borrowed */
	const char *source_type;
	const void *data; /* contiguous rows; a source that is encoded may be blocks of a GGUF type */
	bool mapped;      /* data is in a mapped file: pages are released once they are read */
	int heads;        /* heads within which rows are permuted; 0: rows keep their order */
	bool halves;      /* permute from neighbours to halves; else from halves to neighbours */
	float add;        /* added to every value (Gemma's norms) */
	tensor_plan_encode encode; /* NULL: same type as the source, or floats that hold the same values */
	const float *importance;   /* [columns] for encode(), borrowed; or NULL */
	/* Position `place` of `stack` matrices that form one tensor of three dimensions.  The items of a
	 * stack follow one another, and the first has the tensor's name.  stack 0: a tensor of its own. */
	int stack, place;
	int slot; /* index in the writer */
};

struct tensor_plan {
	struct tensor_plan_item *items; /* [n], owned */
	size_t n, cap;
	int n_left_out, left_out_from; /* skipped tensors of layers that predict further tokens; the first
				        * such layer */
};

/* Add a zeroed item; the pointer is valid until the next call. */
struct tensor_plan_item *tensor_plan_add(struct tensor_plan *p);
void tensor_plan_fini(struct tensor_plan *p);

/* Add an item that copies the tensor.  -ENOTSUP: its name is too long, or it has too many dimensions. */
int tensor_plan_copy(struct tensor_plan *p, const struct st_tensor *t, struct why *why);
/* Permute the rows of q or k if the model rotates halves and the GGUF file neighbours.  halves: to halves,
 * else from them.  Other parts and models are left alone.  -EINVAL: wrong number of rows. */
int tensor_plan_permute(struct tensor_plan_item *p, const struct model_config *c, enum name_part part,
			bool halves, struct why *why);

/* Check that the model src is complete, so that the converted model can be loaded.  -ENOENT, -EINVAL, ...
 * with the reason: the loader names what is missing. */
int tensor_plan_check(const char *src, const struct model_config *c, struct why *why);
/* Count a skipped tensor (name_is_of_predictor()); a log line reports the count when the tensors are
 * declared. */
void tensor_plan_leave_out(struct tensor_plan *p, const struct model_config *c);
/* Declare all tensors to the writer. */
int tensor_plan_declare(struct tensor_plan *p, struct writer *w, struct why *why);
/* Write all tensors, with a progress bar, after writer_begin().  -ERANGE names a value that the new type does
 * not hold exactly; -EINTR: interrupted (cli/terminal/term.h). */
int tensor_plan_run(const struct tensor_plan *p, struct writer *w, const char *doing, struct why *why);

/* Return whether the type is a float: "F32", "F16", "BF16". */
bool tensor_plan_is_float(const char *type);

#endif
