/* fuzz_mp.c - arbitrary bytes as a msgpack message: memory stays within the limits, and an accepted message
 * is read back unchanged.
 *
 *   clang -fsanitize=fuzzer,address,undefined -DFUZZ_LIBRARY -I. ... tests/fuzz/fuzz_mp.c
 *   without FUZZ_LIBRARY: a program that damages a few requests at random: fuzz_mp [ROUNDS [SEED]] */
#include "base/buf.h"
#include "proto/mp.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
	static const struct mp_limits limits = {
		.bytes = 1 << 20, .objects = 100000, .depth = MP_DEPTH_MAX, .tree = SIZE_MAX};
	json_t *v = NULL, *again = NULL;
	struct why why = {""};
	const void *id;
	size_t id_n;
	if (mp_find(bytes, n, "id", &id, &id_n) == 0)
		assert((const uint8_t *)id >= bytes && (const uint8_t *)id + id_n <= bytes + n && id_n > 0);
	int rc = mp_decode(bytes, n, &limits, &v, &why);
	assert((rc == 0) == (v != NULL));
	assert(rc == 0 || why.text[0]);
	if (rc)
		return 0;
	struct buf b = {0};
	mp_encode(&b, v);
	rc = mp_decode(b.p, b.len, &limits, &again, &why);
	assert(rc == 0 && json_equal(v, again));
	buf_fini(&b);
	json_decref(v);
	json_decref(again);
	return 0;
}

#ifndef FUZZ_LIBRARY
static const char *const seeds[] = {
	"{\"op\": \"submit\", \"id\": 1, \"prompt\": \"Once upon a time\", \"params\": {\"n\": 2, \"stop\": "
	"[\"a\", \"b\"], "
	"\"temperature\": 0.5, \"logit_bias\": {\"5\": -100}}, \"stream\": true}",
	"{\"op\": \"attach\", \"id\": \"x\", \"job\": \"0123456789abcdef0123456789abcdef\", \"from\": [0, "
	"70000]}",
	"{\"op\": \"detokenize\", \"id\": 4294967296, \"tokens\": [1, 128, 256, 65536, -1, -129, null]}",
	"[[[[[[[[[]]]]]]]], {\"\": {}}, \"\\u0000\\u00e9\\u20ac\\ud83d\\ude00\"]",
};

int main(int argc, char **argv)
{
	long rounds = argc > 1 ? atol(argv[1]) : 1000000;
	srand(argc > 2 ? (unsigned)atoi(argv[2]) : 1);
	for (long i = 0; i < rounds; i++) {
		json_t *v = json_loads(seeds[i % 4], JSON_ALLOW_NUL, NULL);
		struct buf b = {0};
		mp_encode(&b, v);
		json_decref(v);
		for (int k = rand() % 6; k > 0; k--)
			b.p[(size_t)rand() % b.len] = (char)rand();
		LLVMFuzzerTestOneInput((const uint8_t *)b.p, rand() % 4 ? b.len : (size_t)rand() % b.len);
		buf_fini(&b);
	}
	printf("%ld messages\n", rounds);
	return 0;
}
#endif
