/* embeddings.h - the route (http.h) of /v1/embeddings: each input becomes a pooled job. */
#ifndef QUERN_CONTROLLER_ENDPOINTS_EMBEDDINGS_H
#define QUERN_CONTROLLER_ENDPOINTS_EMBEDDINGS_H

#include "controller/http/exchange.h"
#include "controller/request/field_table.h"

#include <jansson.h>

/* Fields of the request. */
extern const struct field_table embeddings_fields;

void embeddings_call(struct exchange *x, const char *rest);

/* Shape of the reply. */
enum embeddings_shape {
	EMBEDDINGS_OPENAI,
	EMBEDDINGS_OLLAMA,     /* {"model", "embeddings": [[...]], "total_duration", ...} */
	EMBEDDINGS_OLLAMA_ONE, /* {"embedding": [...]} */
	EMBEDDINGS_LLAMACPP,   /* [{"index", "embedding": [[...]]}] */
};

/* Run a request in the format of /v1/embeddings for a route of another API; x gets the reply.  names: as in
 * struct generation. */
struct generation_name;
void embeddings_start(struct exchange *x, const json_t *request, enum embeddings_shape shape,
		      const struct generation_name *names);

#endif
