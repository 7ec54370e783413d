#include "grammar/schema/schema_keywords.h"

#include <stdlib.h>
#include <string.h>

struct entry {
	const char *key;
	enum keyword k;
};

/* Sorted by keyword. */
static const struct entry entries[] = {
	{"$dynamicRef", K_UNSUPPORTED},
	{"$recursiveRef", K_UNSUPPORTED},
	{"additionalItems", K_ITEMS},
	{"additionalProperties", K_MEMBERS},
	{"allOf", K_ALL_OF},
	{"anyOf", K_ANY_OF},
	{"const", K_CONST},
	{"contains", K_CONTAINS},
	{"dependencies", K_DEPENDENCIES},
	{"dependentRequired", K_DEPENDENCIES},
	{"dependentSchemas", K_DEPENDENCIES},
	{"enum", K_ENUM},
	{"exclusiveMaximum", K_EXCLUSIVE_MAXIMUM},
	{"exclusiveMinimum", K_EXCLUSIVE_MINIMUM},
	{"format", K_FORMAT},
	{"if", K_IF},
	{"items", K_ITEMS},
	{"maxItems", K_MAX_ITEMS},
	{"maxLength", K_MAX_LENGTH},
	{"maxProperties", K_MAX_PROPERTIES},
	{"maximum", K_MAXIMUM},
	{"minItems", K_MIN_ITEMS},
	{"minLength", K_MIN_LENGTH},
	{"minProperties", K_MIN_PROPERTIES},
	{"minimum", K_MINIMUM},
	{"multipleOf", K_MULTIPLE_OF},
	{"not", K_NOT},
	{"oneOf", K_ONE_OF},
	{"pattern", K_PATTERN},
	{"patternProperties", K_MEMBERS},
	{"prefixItems", K_ITEMS},
	{"properties", K_MEMBERS},
	{"propertyNames", K_PROPERTY_NAMES},
	{"required", K_REQUIRED},
	{"type", K_TYPE},
	{"unevaluatedItems", K_UNEVALUATED_ITEMS},
	{"unevaluatedProperties", K_UNEVALUATED_PROPERTIES},
	{"uniqueItems", K_UNIQUE_ITEMS},
};

static int by_key(const void *key, const void *e)
{
	return strcmp(key, ((const struct entry *)e)->key);
}

enum keyword keyword_of(const char *key)
{
	const struct entry *e =
		bsearch(key, entries, sizeof entries / sizeof *entries, sizeof *entries, by_key);
	return e ? e->k : K_NONE;
}
