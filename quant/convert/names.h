/* names.h - the names of a decoder's tensors in Hugging Face's layout and in GGUF files. */
#ifndef QUERN_QUANT_CONVERT_NAMES_H
#define QUERN_QUANT_CONVERT_NAMES_H

#include "formats/config.h"

#include <stdbool.h>

enum { NAME_SIZE = 160 };

enum name_part {
	NAME_LINEAR, /* of a layer; its bias too */
	NAME_Q,      /* likewise: rows of heads, which may be permuted */
	NAME_K,
	NAME_EMBED,
	NAME_HEAD,
	NAME_NORM,
	NAME_ROUTER,      /* of a mixture; GGUF files have it in F32 */
	NAME_SHARED_GATE, /* likewise: a matrix of one row here, a vector there */
	NAME_CHOICE_BIAS,
	NAME_EXPERT, /* of one expert here, of all there, one behind the other */
};

struct name {
	char hf[NAME_SIZE], gguf[NAME_SIZE];
	enum name_part part;
	bool bias;
	int expert; /* of hf, with NAME_EXPERT */
};

/* Whether the name is that of a tensor of a layer behind the model's own, which predicts further tokens
 * (MTP).  quern does not read those layers. */
bool name_is_of_predictor(const struct model_config *c, const char *name);

/* By a name of either side.  False: a tensor that the other side has no name for. */
bool name_of_hf(const struct model_config *c, const char *hf, struct name *out);
bool name_of_gguf(const struct model_config *c, const char *gguf, struct name *out);
/* NAME_EXPERT: hf becomes the name of another expert's tensor.  name_of_gguf() gives that of expert 0. */
void name_expert(struct name *n, int expert);

#endif
