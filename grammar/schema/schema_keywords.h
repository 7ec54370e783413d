/* schema_keywords.h - the keywords that assert something, grouped by the types to which they apply. */
#ifndef QUERN_GRAMMAR_SCHEMA_SCHEMA_KEYWORDS_H
#define QUERN_GRAMMAR_SCHEMA_SCHEMA_KEYWORDS_H

enum keyword {
	K_MINIMUM,
	K_MAXIMUM,
	K_EXCLUSIVE_MINIMUM,
	K_EXCLUSIVE_MAXIMUM,
	K_MULTIPLE_OF,
	K_LAST_OF_NUMBER = K_MULTIPLE_OF,
	K_PATTERN,
	K_FORMAT,
	K_MIN_LENGTH,
	K_MAX_LENGTH,
	K_LAST_OF_STRING = K_MAX_LENGTH,
	K_ITEMS, /* prefixItems, items and additionalItems together */
	K_CONTAINS,
	K_MIN_ITEMS,
	K_MAX_ITEMS,
	K_UNIQUE_ITEMS,
	K_UNEVALUATED_ITEMS,
	K_LAST_OF_ARRAY = K_UNEVALUATED_ITEMS,
	K_MEMBERS, /* properties, patternProperties and additionalProperties together */
	K_PROPERTY_NAMES,
	K_REQUIRED,
	K_MIN_PROPERTIES,
	K_MAX_PROPERTIES,
	K_UNEVALUATED_PROPERTIES,
	K_LAST_OF_OBJECT = K_UNEVALUATED_PROPERTIES,
	K_REF,
	K_TYPE,
	K_ENUM,
	K_CONST,
	K_ALL_OF,
	K_ANY_OF,
	K_ONE_OF,
	K_NOT,
	K_IF,           /* with then and else */
	K_DEPENDENCIES, /* also dependentRequired and dependentSchemas */
	K_UNSUPPORTED,
	K_NONE /* asserts nothing, alone or at all */
};

enum keyword keyword_of(const char *key);

#endif
