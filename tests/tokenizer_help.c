#include "tests/tokenizer_help.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/utf8.h"
#include "tests/testdata.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct tokenizer *help_golden(const char *name)
{
	struct tokenizer *t = NULL;
	struct why why = {""};
	char rel[128];
	if (strcmp(name, "demo") == 0)
		snprintf(rel, sizeof rel, "models/demo");
	else
		snprintf(rel, sizeof rel, "tests/golden/tokenizer/%s", name);
	int rc = tokenizer_load(repofile(rel), &t, &why);
	cr_assert(rc == 0, "%s: %s", name, why.text);
	return t;
}

bool help_read(const char *rel, struct buf *out)
{
	char command[4200], block[65536];
	size_t n, len = strlen(rel);
	const char *path = testdata(rel);
	if (!path)
		return false;
	bool packed = len > 3 && strcmp(rel + len - 3, ".gz") == 0;
	snprintf(command, sizeof command, "%s '%s'", packed ? "gzip -dc" : "cat", path);
	FILE *f = popen(command, "r");
	cr_assert(f);
	while ((n = fread(block, 1, sizeof block, f)) > 0)
		buf_put(out, block, n);
	cr_assert_eq(pclose(f), 0, "%s", command);
	buf_reserve(out, 1);
	return true;
}

static void write_file(const char *dir, const char *name, const char *p, size_t n)
{
	char *path = file_join(dir, name);
	FILE *f = fopen(path, "w");
	cr_assert(f, "%s", path);
	cr_assert_eq(fwrite(p, 1, n, f), n);
	cr_assert_eq(fclose(f), 0);
	free(path);
}

int help_load_text(const char *json, size_t n, const char *config, struct tokenizer **out, struct why *why)
{
	char dir[] = "/tmp/quern-tokenizer-XXXXXX";
	cr_assert(mkdtemp(dir));
	write_file(dir, "tokenizer.json", json, n);
	if (config)
		write_file(dir, "tokenizer_config.json", config, strlen(config));
	int rc = tokenizer_load(dir, out, why);
	char *a = file_join(dir, "tokenizer.json"), *b = file_join(dir, "tokenizer_config.json");
	unlink(a);
	unlink(b);
	rmdir(dir);
	free(a);
	free(b);
	return rc;
}

struct tokenizer *help_shared(const char *name)
{
	struct buf json = {0}, config = {0};
	struct tokenizer *t = NULL;
	struct why why = {""};
	char rel[128];
	snprintf(rel, sizeof rel, "tokenizers/%s/tokenizer.json.gz", name);
	bool there = help_read(rel, &json);
	if (!there) {
		snprintf(rel, sizeof rel, "tokenizers/%s/tokenizer.json", name);
		there = help_read(rel, &json);
	}
	if (!there)
		return NULL;
	snprintf(rel, sizeof rel, "tokenizers/%s/tokenizer_config.json", name);
	there = help_read(rel, &config);
	int rc = help_load_text(json.p, json.len, there ? config.p : NULL, &t, &why);
	cr_assert(rc == 0, "%s: %s", name, why.text);
	buf_fini(&json);
	buf_fini(&config);
	return t;
}

json_t *help_golden_json(const char *name)
{
	struct why why;
	char rel[128];
	json_t *o;
	snprintf(rel, sizeof rel, "tests/golden/tokenizer/%s/tokenizer.json", name);
	cr_assert_eq(json_read(repofile(rel), 1 << 24, &o, &why), 0, "%s", why.text);
	return o;
}

char *help_golden_text(const char *name)
{
	json_t *o = help_golden_json(name);
	char *text = json_dumps(o, JSON_COMPACT);
	json_decref(o);
	return text;
}

int help_load_json(const json_t *o, struct tokenizer **out, struct why *why)
{
	char *text = json_dumps(o, JSON_COMPACT);
	int rc = help_load_text(text, strlen(text), NULL, out, why);
	free(text);
	return rc;
}

struct token_ids help_encode(const struct tokenizer *t, const char *text, size_t n, unsigned flags)
{
	struct token_ids ids = {0};
	struct why why = {""};
	cr_assert_eq(tokenizer_encode(t, text, n, flags, NULL, 0, &ids, &why), 0, "%s", why.text);
	return ids;
}

bool help_same(const struct token_ids *ids, const json_t *expected)
{
	if (json_array_size(expected) != ids->n)
		return false;
	for (size_t i = 0; i < ids->n; i++)
		if (json_integer_value(json_array_get(expected, i)) != ids->ids[i])
			return false;
	return true;
}

void help_expect(const char *what, const char *text, const struct token_ids *ids, const json_t *expected)
{
	struct buf got = {0};
	if (help_same(ids, expected))
		return;
	for (size_t i = 0; i < ids->n && i < 200; i++)
		buf_printf(&got, "%s%u", i ? "," : "", ids->ids[i]);
	char *want = json_dumps(expected, JSON_COMPACT);
	cr_assert(false, "%s: \"%s\": [%s] instead of %s", what, text, got.p, want);
}

void help_sha256(const struct token_ids *ids, char hex[65])
{
	char path[] = "/tmp/quern-ids-XXXXXX", command[64];
	int fd = mkstemp(path);
	FILE *f = fdopen(fd, "w");
	cr_assert(f);
	cr_assert_eq(fwrite(ids->ids, 4, ids->n, f), ids->n);
	fclose(f);
	snprintf(command, sizeof command, "sha256sum %s", path);
	f = popen(command, "r");
	cr_assert(f && fread(hex, 1, 64, f) == 64);
	hex[64] = 0;
	pclose(f);
	unlink(path);
}

static uint64_t next(uint64_t *seed)
{
	*seed ^= *seed << 13;
	*seed ^= *seed >> 7;
	*seed ^= *seed << 17;
	return *seed;
}

static uint32_t random_char(uint64_t *seed)
{
	static const uint32_t hard[] = {
		' ',    ' ',    ' ',    '\n',   '\r',   '\t',   '\'',   '\'',    's',     'S',     't',
		'l',    'L',    'v',    'e',    'r',    'd',    'M',    '1',     '2',     '.',     '(',
		0xa0,   0x3000, 0x2003, 0x180e, 0x85,   0x17f,  0x212a, 0x301,   0x323,   0x345,   0x200d,
		0x2581, 0xb2,   0x663,  0x1100, 0x1161, 0x11a8, 0xac00, 0x1f999, 0x323af, 0x1e4f0, 0x0};
	static const uint32_t ranges[][2] = {{0x20, 0x7f},     {0x20, 0x7f},       {0x80, 0x600},
					     {0x900, 0x1200},  {0x1e00, 0x2c00},   {0x3000, 0xd7ff},
					     {0xe000, 0xffff}, {0x10000, 0x20000}, {0x20000, 0x10ffff}};
	if (next(seed) % 2)
		return hard[next(seed) % (sizeof hard / sizeof *hard)];
	const uint32_t *r = ranges[next(seed) % (sizeof ranges / sizeof *ranges)];
	return r[0] + (uint32_t)(next(seed) % (r[1] - r[0]));
}

void help_random_text(uint64_t *seed, struct buf *out)
{
	size_t n = next(seed) % 40;
	buf_clear(out);
	buf_reserve(out, 1);
	for (size_t i = 0; i < n; i++) {
		char s[4];
		uint32_t cp = random_char(seed);
		size_t times = next(seed) % 8 ? 1 : next(seed) % 4;
		for (size_t k = 0; k < times; k++)
			buf_put(out, s, (size_t)utf8_encode(cp, s));
	}
}
