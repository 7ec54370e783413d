/* fuzz_sse.c - arbitrary bytes as a stream of server-sent events: the events do not depend on how the bytes
 * are split.
 *
 *   clang -fsanitize=fuzzer,address,undefined -DFUZZ_LIBRARY -I. ... tests/fuzz/fuzz_sse.c
 *   without FUZZ_LIBRARY: a program that damages streams at random: fuzz_sse [ROUNDS [SEED]] */
#include "base/json.h"
#include "bench/loadgen.h"
#include "bench/sse.h"

#include <assert.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

static int collect(void *ctx, const char *data, size_t n)
{
	struct load_chunk chunk;
	json_t *v;
	assert(data[n] == 0);
	buf_put(ctx, data, n + 1);
	if (json_parse(data, n, &v, NULL) == 0) {
		load_chunk_read(v, &chunk);
		assert(chunk.text && (!chunk.error || *chunk.error));
		json_decref(v);
	}
	return 0;
}

/* The first byte chooses the size of the chunks. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
	struct sse whole = {0}, cut = {0};
	struct buf a = {0}, b = {0};
	size_t piece = n ? bytes[0] % 16 + 1 : 1;
	const char *text = (const char *)bytes;
	assert(sse_feed(&whole, text, n, collect, &a) == 0);
	for (size_t i = 0; i < n; i += piece)
		assert(sse_feed(&cut, text + i, n - i < piece ? n - i : piece, collect, &b) == 0);
	assert(a.len == b.len && (!a.len || memcmp(a.p, b.p, a.len) == 0));
	sse_fini(&whole);
	sse_fini(&cut);
	buf_fini(&a);
	buf_fini(&b);
	return 0;
}

#ifndef FUZZ_LIBRARY
static const char *const seeds[] = {
	"data: {\"choices\":[{\"text\":\"a\",\"finish_reason\":null}]}\n\ndata: [DONE]\n\n",
	"data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\r\n\r\n: "
	"x\r\rdata:y\rdata\n\n",
	"\xef\xbb\xbf"
	"data: {\"error\":{\"message\":\"full\"}}\n\nevent: e\ndata: {\"usage\":{\"prompt_tokens\":3}}\n\n",
};

int main(int argc, char **argv)
{
	long rounds = argc > 1 ? atol(argv[1]) : 1000000;
	srand(argc > 2 ? (unsigned)atoi(argv[2]) : 1);
	for (long i = 0; i < rounds; i++) {
		char text[256];
		size_t n = strlen(seeds[i % 3]);
		memcpy(text, seeds[i % 3], n);
		for (int k = rand() % 6; k > 0; k--)
			text[(size_t)rand() % n] = rand() % 2 ? (char)rand() : "\r\n: "[rand() % 4];
		LLVMFuzzerTestOneInput((const uint8_t *)text, n);
	}
	printf("%ld streams\n", rounds);
	return 0;
}
#endif
