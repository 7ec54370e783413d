/* fuzz_settings.c - an operator's files and options: CURVE keys, the list of allowed keys, API keys, INI
 * files, sizes and devices.  The reason of a refusal never shows a key.
 *
 * The first byte chooses the kind.
 *
 *   make fuzz, or: build/asan-fuzz/fuzz/fuzz_settings CORPUS tests/fuzz/seeds/fuzz_settings */
#include "base/options.h"
#include "controller/http/api_keys.h"
#include "controller/net/zap.h"
#include "proto/curve.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const struct opt table[] = {
	OPT("model", OPT_TEXT, "DIR", "help"),
	OPT("strict", OPT_FLAG, NULL, "help"),
	OPT("kv-bytes", OPT_SIZE, "SIZE", "help"),
	OPT("max-seqs", OPT_INT, "N", "help", .lo = 1, .hi = 4096),
	OPT("temperature", OPT_NUMBER, "T", "help"),
	OPT("stop", OPT_LIST, "S", "help"),
	OPT_NOT_BUILT("fast"),
};

static void ini(const char *text, size_t n)
{
	struct opts o = {0};
	struct why why = {""};
	opts_add(&o, table, sizeof table / sizeof *table);
	if (opts_ini(&o, text, n, "serve", &why))
		assert(why.text[0]);
	opts_fini(&o);
}

static void key(const char *text, size_t n, bool secret)
{
	struct curve_key k;
	struct why why = {""};
	if (curve_parse(text, n, secret, &k, &why)) {
		assert(why.text[0] && !k.secret[0]);
		return;
	}
	assert(strlen(k.public) == CURVE_CHARS && (!secret || strlen(k.secret) == CURVE_CHARS));
}

static void list(const char *text, size_t n)
{
	struct zap_entry *e;
	size_t count;
	struct why why = {""};
	if (zap_parse(text, n, &e, &count, &why)) {
		assert(why.text[0]);
		return;
	}
	for (size_t i = 0; i < count; i++)
		assert(strlen(e[i].public) == CURVE_CHARS && e[i].roles &&
		       (!i || strcmp(e[i - 1].public, e[i].public) < 0));
	free(e);
}

static void api_keys(const char *text, size_t n)
{
	static char dir[64], path[96];
	struct api_keys *k;
	struct why why = {""};
	if (!dir[0]) {
		strcpy(dir, "/tmp/fuzz_settings_XXXXXX");
		if (!mkdtemp(dir))
			return;
		snprintf(path, sizeof path, "%s/keys", dir);
	}
	FILE *f = fopen(path, "wb");
	if (!f)
		return;
	fwrite(text, 1, n, f);
	fclose(f);
	chmod(path, 0600);
	if (api_keys_open(path, &k, &why)) {
		assert(why.text[0]);
		return;
	}
	api_keys_find(k, "Bearer sk-0123456789abcdef", 0);
	api_keys_close(k);
}

static void words(const char *text, size_t n)
{
	struct device_name devices[DEVICES_MAX];
	int64_t x, ints[8];
	size_t count;
	struct why why;
	char *s = malloc(n + 1);
	memcpy(s, text, n);
	s[n] = '\0';
	if (devices_parse(s, devices, &count, &why) == 0)
		assert(count <= DEVICES_MAX);
	if (size_parse(s, &x, &why) == 0)
		assert(x >= 0);
	if (ints_parse(s, -5, 5, ints, 8, &count, &why) == 0)
		assert(count <= 8);
	free(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	if (n == 0)
		return 0;
	const char *text = (const char *)data + 1;
	n--;
	switch (data[0]) {
	case 'i':
		ini(text, n);
		break;
	case 'k':
		key(text, n, true);
		key(text, n, false);
		break;
	case 'l':
		list(text, n);
		break;
	case 'a':
		api_keys(text, n);
		break;
	default:
		words(text, n);
	}
	return 0;
}
