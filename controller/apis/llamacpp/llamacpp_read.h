/* llamacpp_read.h - requests of llama.cpp's server (/completion, /infill) to the completions dialect
 * (request/api.h).  The protocol: https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md.
 * Pure. */
#ifndef QUERN_CONTROLLER_APIS_LLAMACPP_LLAMACPP_READ_H
#define QUERN_CONTROLLER_APIS_LLAMACPP_LLAMACPP_READ_H

#include "controller/apis/generation.h"
#include "controller/apis/translate.h"
#include "controller/tokenizer/token_ids.h"
#include "controller/tokenizer/tokenizer.h"

#include <jansson.h>
#include <stdbool.h>

struct llamacpp_request {
	json_t *request; /* owned: the internal one */
	bool return_tokens;
	char ignored[512]; /* as in struct api_reply */
};

/* client: an object; infill: of /infill (the prompt is set by llamacpp_read_infill()).  -EINVAL with
 * *p filled, which names the client's field; out->request is NULL then. */
int llamacpp_read(const json_t *client, bool infill, bool strict, struct llamacpp_request *out,
		  struct api_problem *p);

/* The prompt of /infill by the vocabulary's tokens for it:
 *
 *   input_extra FIM_PREFIX input_prefix FIM_SUFFIX input_suffix FIM_MIDDLE prompt
 *
 * request->prompt becomes these ids.  -EINVAL: the vocabulary has none, or a text cannot be encoded or does
 * not fit. */
struct llamacpp_gap {
	const struct service *svc;
	uint32_t max_context;
};
int llamacpp_read_infill(const json_t *client, const struct llamacpp_gap *gap, json_t *request,
			 struct api_problem *p);

extern const struct generation_name llamacpp_names[];
extern const struct field_table llamacpp_fields, llamacpp_infill_fields;

#endif
