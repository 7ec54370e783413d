/* Damaged requests through the whole of the job socket's parsing: msgpack, keys, parameters,
 * messages, tokenizer.  Never a crash; a request is taken whole or refused with a reason that
 * is valid UTF-8.
 *
 *   fuzz_jobreq MODEL [ROUNDS [SEED]]     MODEL: a directory with config and tokenizer */
#include "base/buf.h"
#include "controller/jobreq.h"
#include "proto/mp.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const seeds[] = {
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

/* What is written in a request stands for its meaning: keys and numbers are swapped whole. */
static void damage(struct buf *b)
{
	static const char *const pieces[] = {"\xc0",
					     "\xc3",
					     "\xff",
					     "\x00",
					     "\xcb\x7f\xf8\0\0\0\0\0\0",
					     "\x90",
					     "\x80",
					     "\xa0",
					     "\xcf\xff\xff\xff\xff\xff\xff\xff\xff"};
	for (int k = rand() % 4; k > 0; k--) {
		size_t at = (size_t)rand() % b->len;
		if (rand() % 2)
			b->p[at] = (char)rand();
		else
			b->p[at] = pieces[rand() % 9][0];
	}
}

static void one(const struct service *svc, const struct buf *b)
{
	struct jobreq r;
	jobreq_parse(&r, svc, 512, b->p, b->len);
	if (r.op == OP_NONE) {
		json_t *why = json_string(r.problem.why), *param = json_string(r.problem.param);
		assert(why && param && r.problem.why[0] && r.problem.code != CODE_OK);
		json_decref(why);
		json_decref(param);
	}
	if (r.op == OP_SUBMIT) {
		const struct submit *s = r.submit;
		assert(s && s->n_tokens > 0 && s->params.n >= 1 && s->params.n <= PARAMS_N_MAX);
		assert(s->n_tokens + s->params.max_tokens <= 512 && s->params.max_tokens > 0);
	}
	jobreq_fini(&r);
}

int main(int argc, char **argv)
{
	struct tokenizer *t;
	struct chat *chat = NULL;
	struct model_config config;
	char why[512] = "";
	if (argc < 2 || tokenizer_load(argv[1], &t, why, sizeof why) ||
	    model_config_load(argv[1], &config, why, sizeof why)) {
		fprintf(stderr, "fuzz_jobreq MODEL [ROUNDS [SEED]]: %s\n", why);
		return 2;
	}
	chat_load(argv[1], &chat, why, sizeof why);
	struct service svc = {.tokenizer = t,
			      .config = &config,
			      .chat = chat,
			      .model_context = 512,
			      .max_request_bytes = 1 << 20};
	long rounds = argc > 2 ? atol(argv[2]) : 1000000;
	srand(argc > 3 ? (unsigned)atoi(argv[3]) : 1);
	for (long i = 0; i < rounds; i++) {
		json_t *v = json_loads(seeds[i % 6], 0, NULL);
		struct buf b = {0};
		mp_encode(&b, v);
		json_decref(v);
		damage(&b);
		one(&svc, &b);
		buf_fini(&b);
	}
	printf("%ld requests\n", rounds);
	chat_free(chat);
	tokenizer_free(t);
	model_config_fini(&config);
	return 0;
}
