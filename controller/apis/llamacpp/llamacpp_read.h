/* llamacpp_read.h - translate requests of llama.cpp's server (/completion, /infill) to the completions
 * dialect (request/api.h).  The protocol:
 * https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md.  Pure. */
#ifndef QUERN_CONTROLLER_APIS_LLAMACPP_LLAMACPP_READ_H
#define QUERN_CONTROLLER_APIS_LLAMACPP_LLAMACPP_READ_H

#include "controller/apis/generation.h"
#include "controller/apis/translate.h"
#include "controller/tokenizer/tokenizer.h"

#include <jansson.h>
#include <stdbool.h>

struct llamacpp_request {
	json_t *request; /* owned: the internal request */
	bool return_tokens;
	char ignored[512]; /* as in struct api_reply */
};

/* Translate client, an object.  infill: a request of /infill; llamacpp_read_infill() sets its prompt.
 * -EINVAL with *p filled, which names the client's field; out->request is NULL then. */
int llamacpp_read(const json_t *client, bool infill, bool strict, struct llamacpp_request *out,
		  struct api_problem *p);

struct llamacpp_gap {
	const struct service *svc;
	uint32_t max_context;
};
/* Set request->prompt to the ids of the /infill prompt, built with the vocabulary's special tokens:
 *
 *   input_extra FIM_PREFIX input_prefix FIM_SUFFIX input_suffix FIM_MIDDLE prompt
 *
 * -EINVAL: the vocabulary has no such tokens, or a text cannot be encoded or does not fit. */
int llamacpp_read_infill(const json_t *client, const struct llamacpp_gap *gap, json_t *request,
			 struct api_problem *p);

extern struct generation_name llamacpp_names[]; /* filled before main() */
extern const struct field_table llamacpp_fields, llamacpp_infill_fields;

#endif
