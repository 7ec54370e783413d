/* names.h - the names of a decoder's tensors in Hugging Face layout and in GGUF files. */
#ifndef QUERN_QUANT_CONVERT_NAMES_H
#define QUERN_QUANT_CONVERT_NAMES_H

#include "formats/config.h"

#include <stdbool.h>

enum { NAME_SIZE = 160 };

enum name_part {
	NAME_LINEAR, /* a layer's linear layer, or its bias */
	NAME_Q,      /* Q, K: linear layers with rows of heads, which may be permuted */
	NAME_K,
	NAME_EMBED,
	NAME_HEAD,
	NAME_NORM,
	NAME_ROUTER,      /* router of a mixture; GGUF files store it as F32 */
	NAME_SHARED_GATE, /* gate of the shared expert: a matrix of one row in HF, a vector in GGUF */
	NAME_CHOICE_BIAS,
	NAME_EXPERT, /* one expert's tensor in HF; GGUF stacks all experts of a layer in one tensor */
};

struct name {
	char hf[NAME_SIZE], gguf[NAME_SIZE];
	enum name_part part;
	bool bias;
	int expert; /* expert in hf, for NAME_EXPERT */
};

/* Return whether the tensor belongs to an extra layer after the decoder that predicts further tokens (MTP).
 * quern does not read those layers. */
bool name_is_of_predictor(const struct model_config *c, const char *name);

/* Fill in both names from either one.  False: the other format has no name for the tensor. */
bool name_of_hf(const struct model_config *c, const char *hf, struct name *out);
bool name_of_gguf(const struct model_config *c, const char *gguf, struct name *out);
/* NAME_EXPERT: change hf to another expert's tensor.  name_of_gguf() gives expert 0. */
void name_expert(struct name *n, int expert);

#endif
