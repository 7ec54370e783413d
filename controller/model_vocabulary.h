/* model_vocabulary.h - the vocabulary that workers receive: the text of each of a model's tokens
 * (proto/vocabulary.h). */
#ifndef QUERN_CONTROLLER_MODEL_VOCABULARY_H
#define QUERN_CONTROLLER_MODEL_VOCABULARY_H

#include "controller/tokenizer/tokenizer.h"
#include "formats/config.h"
#include "proto/vocabulary.h"

/* Return whether the token ends an output: the model's configuration or the tokenizer lists it as an end
 * token. */
bool model_vocabulary_ends(const struct tokenizer *t, const struct model_config *c, uint32_t id);

/* Build the vocabulary, with one token for each of the model's ids.  End tokens are those of
 * generation_config.json, else of config.json, and the tokenizer's.  Special tokens stand between the marks.
 * No output contains a token without text, a token that is too long, or an id that the tokenizer lacks. */
void model_vocabulary(const struct tokenizer *t, const struct model_config *c, struct vocabulary *out);

#endif
