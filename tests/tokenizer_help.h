/* tokenizer_help.h - tokenizers for tests: the small ones of tests/golden/tokenizer, real ones of the test
 * data (unpacked into a temporary folder), and broken ones. */
#ifndef QUERN_TESTS_TOKENIZER_HELP_H
#define QUERN_TESTS_TOKENIZER_HELP_H

#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"
#include "controller/tokenizer/tokenizer.h"

/* Load a tokenizer of tests/golden/tokenizer, or "demo". An error fails the test. */
struct tokenizer *help_golden(const char *name);
/* Load a tokenizer of the test data's tokenizers/; NULL if it is missing. */
struct tokenizer *help_shared(const char *name);
/* Load from the text of a tokenizer.json, and of a tokenizer_config.json or NULL. */
int help_load_text(const char *json, size_t n, const char *config, struct tokenizer **out, struct why *why);
/* Return the tokenizer.json of a golden tokenizer, for a test to modify. */
json_t *help_golden_json(const char *name);
char *help_golden_text(const char *name); /* the same as compact text; the caller frees it */
/* Call help_load_text() with the JSON text of o. */
int help_load_json(const json_t *o, struct tokenizer **out, struct why *why);

/* Read a file of the test data, and unpack it if it ends in .gz. Return false if it is missing. */
bool help_read(const char *rel, struct buf *out);

/* Encode; an error fails the test. The caller frees the ids. */
struct token_ids help_encode(const struct tokenizer *t, const char *text, size_t n, unsigned flags);
bool help_same(const struct token_ids *ids, const json_t *expected);
/* Fail the test and print both, unless they are equal. */
void help_expect(const char *what, const char *text, const struct token_ids *ids, const json_t *expected);

/* Compute SHA-256 over the ids as little-endian uint32, in hex. */
void help_sha256(const struct token_ids *ids, char hex[65]);

/* Append a random text of valid characters, with more of those that are hard to split. */
void help_random_text(uint64_t *seed, struct buf *out);

#endif
