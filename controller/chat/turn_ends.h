/* turn_ends.h - tokens that end an assistant's turn and that the model's files do not declare: many files
 * declare only the end token of the base model. Pure. */
#ifndef QUERN_CONTROLLER_CHAT_TURN_ENDS_H
#define QUERN_CONTROLLER_CHAT_TURN_ENDS_H

#include "controller/chat/chat.h"
#include "controller/chat/reasoning.h"
#include "controller/tokenizer/tokenizer.h"

/* Add to ids[*n], which has room for max, the special token that the template writes after an assistant's
 * message, and tokens with names that mean the end of a turn or of a text in all known models. For models
 * with channels (gpt-oss), <|end|> is not added: it ends only one message. chat: NULL if there is no
 * template. marks: NULL if the model does not reason. */
void turn_ends_add(const struct chat *chat, const struct reasoning_marks *marks, const struct tokenizer *t,
		   uint32_t *ids, int *n, int max);

#endif
