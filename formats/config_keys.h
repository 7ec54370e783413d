/* config_keys.h - find the family of a config.json, and give its values the names that the other readers use:
 * values of text_config, synonyms, other names of the family, defaults.  What the family does not support is
 * refused. */
#ifndef QUERN_FORMATS_CONFIG_KEYS_H
#define QUERN_FORMATS_CONFIG_KEYS_H

#include "base/json.h"

#include <stdbool.h>

struct model_config;
struct family;
struct why;

/* Complete *root, which may be replaced, and set c->family, arch_name, text_only, embeds and unread.
 * -EINVAL, -ENOTSUP with the reason. */
int config_keys_read(json_t **root, struct model_config *c, struct why *why);

/* Return whether a key of config.json is known to change no results. */
bool config_key_is_harmless(const char *key);

/* If the reason begins with a key that the family's files have under another name, put that name before
 * it. */
void config_keys_name(const struct family *f, struct why *why);

#endif
