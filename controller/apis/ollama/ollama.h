/* ollama.h - Ollama's API: the routes (http.h), the writer of its replies, the shape of its errors.
 * docs/apis/ollama.md lists the supported fields. */
#ifndef QUERN_CONTROLLER_APIS_OLLAMA_OLLAMA_H
#define QUERN_CONTROLLER_APIS_OLLAMA_OLLAMA_H

#include "base/buf.h"
#include "controller/http/exchange.h"
#include "controller/request/field_table.h"

struct http_failure;

void ollama_call_chat(struct exchange *x, const char *rest);
void ollama_call_generate(struct exchange *x, const char *rest);
void ollama_call_tags(struct exchange *x, const char *rest);
void ollama_call_ps(struct exchange *x, const char *rest);
void ollama_call_show(struct exchange *x, const char *rest);
void ollama_call_version(struct exchange *x, const char *rest);
/* Refuse pulling, creating, copying, deleting and pushing models, by name. */
void ollama_call_refused(struct exchange *x, const char *rest);

/* Append {"error": "..."}; the error shape of the routes (http.h). */
void ollama_error(struct buf *b, const struct http_failure *f);

extern const struct field_table ollama_show_fields;

#endif
