/* pool_config.h - the pooling of an embedding model, from modules.json and the files that it names, as the
 * package sentence-transformers writes them.
 *
 *   modules.json            [{"type": "...Transformer", "path": ""}, {"type": "...Pooling", "path":
 *                           "1_Pooling"}, {"type": "...Normalize", "path": "2_Normalize"}]
 *   1_Pooling/config.json   {"pooling_mode_lasttoken": true, ...} */
#ifndef QUERN_FORMATS_POOL_CONFIG_H
#define QUERN_FORMATS_POOL_CONFIG_H

#include "base/err.h"
#include "formats/config.h"

/* Fill in pool, embeds, pool_plain and pool_why.  Without modules.json they are unchanged.  -EINVAL with
 * the file and the reason. */
int pool_config_read(const char *dir, struct model_config *c, struct why *why);

/* Values of GGUF's key pooling_type; others are unknown. */
enum { GGUF_POOL_NONE, GGUF_POOL_MEAN, GGUF_POOL_CLS, GGUF_POOL_LAST, GGUF_POOL_RANK };
void pool_config_gguf(struct model_config *c, int64_t type);

#endif
