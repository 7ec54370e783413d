/* fuzz_job_request.c - damaged requests of the job socket: msgpack, fields, parameters, messages, tokenizer.
 * A request is accepted as a whole or refused with a reason that is valid UTF-8.
 *
 * The first byte chooses either one of the requests below, damaged by the pairs (place, byte) that follow, or
 * the rest of the input unchanged.
 *
 *   make fuzz, or: build/asan-fuzz/fuzz/fuzz_job_request CORPUS */
#include "base/buf.h"
#include "controller/jobsock/job_request.h"
#include "proto/mp.h"
#include "tests/fuzz/demo.h"

#include <assert.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum { SEEDS = 6 };

static const char *const seeds[SEEDS] = {
	"{\"op\": \"submit\", \"id\": 1, \"prompt\": \"Once upon a time\", \"stream\": true, \"key\": \"k\", "
	"\"params\": "
	"{\"n\": 2, \"stop\": [\"a\", \"b\"], \"temperature\": 0.5, \"logit_bias\": {\"5\": -100}, "
	"\"bad_words\": "
	"[\"dog\"], \"seed\": 7, \"max_tokens\": 5, \"top_k\": -1, \"allowed_token_ids\": [1, 2, 3]}}",
	"{\"op\": \"submit\", \"id\": \"x\", \"messages\": [{\"role\": \"system\", \"content\": \"a\"}, "
	"{\"role\": \"user\", "
	"\"content\": \"<|im_end|>\"}], \"deadline_ms\": 5, \"on_disconnect\": \"keep\"}",
	"{\"op\": \"submit\", \"id\": 1, \"tokens\": [1, 2, 300, 1000], \"params\": {\"response_format\": "
	"{\"type\": "
	"\"text\"}, \"min_tokens\": 2, \"prompt_logprobs\": 3, \"logprobs\": 5}}",
	"{\"op\": \"attach\", \"id\": \"x\", \"job\": \"0123456789abcdef0123456789abcdef\", \"from\": [0, "
	"70000]}",
	"{\"op\": \"detokenize\", \"id\": 4294967296, \"tokens\": [1, 128, 256, 1660, 1663]}",
	"{\"op\": \"tokenize\", \"id\": 5, \"text\": \"caf\\u00e9 \\ud83d\\ude00\", \"add_special\": true}",
};

static void one(const struct service *svc, const struct buf *b)
{
	struct job_request r;
	job_request_parse(&r, svc, FUZZ_CONTEXT, b->p, b->len);
	if (r.op == OP_NONE) {
		json_t *why = json_string(r.problem.why), *param = json_string(r.problem.param);
		assert(why && param && r.problem.why[0] && r.problem.code != CODE_OK);
		json_decref(why);
		json_decref(param);
	}
	if (r.op == OP_SUBMIT) {
		const struct submit *s = r.submit;
		assert(s && s->n_tokens > 0 && s->params.n >= 1 && s->params.n <= PARAMS_N_MAX);
		assert(s->n_tokens + s->params.max_tokens <= FUZZ_CONTEXT && s->params.max_tokens > 0);
	}
	job_request_fini(&r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	struct buf b = {0};
	if (n == 0)
		return 0;
	if (data[0] < SEEDS) {
		json_t *v = json_loads(seeds[data[0]], 0, NULL);
		mp_encode(&b, v);
		json_decref(v);
		for (size_t i = 1; i + 2 < n; i += 3)
			b.p[(data[i] << 8 | data[i + 1]) % b.len] = (char)data[i + 2];
	} else {
		buf_put(&b, data + 1, n - 1);
	}
	one(fuzz_demo(NULL), &b);
	buf_fini(&b);
	return 0;
}
