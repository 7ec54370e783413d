/* tokenizer_help.h - tokenizers for tests: the small ones of tests/golden/tokenizer, the real
 * ones of the test data (unpacked into a temporary folder), and broken ones. */
#ifndef QUERN_TESTS_TOKENIZER_HELP_H
#define QUERN_TESTS_TOKENIZER_HELP_H

#include "base/buf.h"
#include "base/json.h"
#include "controller/tokenizer/tokenizer.h"

/* Of tests/golden/tokenizer (or "demo"); a failure fails the test. */
struct tokenizer *help_golden(const char *name);
/* Of the test data's tokenizers/; NULL if it is missing. */
struct tokenizer *help_shared(const char *name);
/* From the text of a tokenizer.json, and of a tokenizer_config.json or NULL. */
int help_load_text(const char *json, size_t n, const char *config, struct tokenizer **out, char *why,
		   size_t why_n);
/* The tokenizer.json of a golden tokenizer, for a test to change. */
json_t *help_golden_json(const char *name);
char *help_golden_text(const char *name); /* the same in one line, to be freed */
/* help_load_text() of the JSON text of o. */
int help_load_json(const json_t *o, struct tokenizer **out, char *why, size_t why_n);

/* The contents of a file of the test data, unpacked if it ends in .gz; false if it is missing. */
bool help_read(const char *rel, struct buf *out);

/* Encode, failing the test on an error; the ids are the caller's. */
struct token_ids help_encode(const struct tokenizer *t, const char *text, size_t n, unsigned flags);
bool help_same(const struct token_ids *ids, const json_t *expected);
/* Fails the test with both, unless they are equal. */
void help_expect(const char *what, const char *text, const struct token_ids *ids, const json_t *expected);

/* SHA-256 over the ids as little-endian uint32, in hex. */
void help_sha256(const struct token_ids *ids, char hex[65]);

/* A random text of valid characters, more often those that are hard to split. */
void help_random_text(uint64_t *seed, struct buf *out);

#endif
