/* pyjson.h - writes JSON as Python's json.dumps(ensure_ascii=False) does: the format of texts in schema
 * benchmarks. */
#ifndef QUERN_BENCH_PYJSON_H
#define QUERN_BENCH_PYJSON_H

#include "base/buf.h"

#include <jansson.h>

void pyjson_put(struct buf *out, const json_t *value);

#endif
