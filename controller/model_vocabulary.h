/* model_vocabulary.h - what a model's tokens are in its outputs, for workers (proto/vocabulary.h). */
#ifndef QUERN_CONTROLLER_MODEL_VOCABULARY_H
#define QUERN_CONTROLLER_MODEL_VOCABULARY_H

#include "controller/tokenizer/tokenizer.h"
#include "formats/config.h"
#include "proto/vocabulary.h"

/* A token for each of the model's ids.  The tokens that end a text are those of generation_config.json, else
 * of config.json, and the tokenizer's.  Special ones stand between the marks; one without text, one that is
 * too long, and ids that the tokenizer lacks are in no output. */
void model_vocabulary(const struct tokenizer *t, const struct model_config *c, struct vocabulary *out);

#endif
