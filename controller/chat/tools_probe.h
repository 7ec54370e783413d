/* tools_probe.h - finds a chat template's tool call format, once at load. If the template shows a call of an
 * earlier message, the format must parse it back; otherwise words in the template decide. */
#ifndef QUERN_CONTROLLER_CHAT_TOOLS_PROBE_H
#define QUERN_CONTROLLER_CHAT_TOOLS_PROBE_H

#include "controller/chat/chat.h"

/* Return the template's format; TOOLS_NONE: unknown. */
enum tools_style tools_probe(const struct chat *c);

#endif
