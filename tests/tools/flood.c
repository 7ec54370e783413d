/* flood - a light load on the job socket: one thread, one connection, AT_ONCE jobs in flight. A refused job
 * is submitted again after a delay, as the reply requests.
 *
 *     flood ENDPOINT AT_ONCE TOKENS WARM_S SECONDS
 *
 * Prints "begin" after WARM_S seconds. SECONDS later it prints a line of JSON: completed jobs, refusals and
 * their latency (which includes delays of this thread), and its own CPU time. */
#include "base/alloc.h"
#include "base/buf.h"
#include "base/clock.h"
#include "proto/mp.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <zmq.h>

/* Retry delay, multiplied by 0.5 to 1.5, so that clients refused together do not return together. */
enum { AGAIN_US = 100 * 1000, TAKEN_MAX = 1 << 22 };

struct flood {
	void *socket;
	unsigned at_once, tokens;
	int64_t *sent_us;  /* [at_once] send time by request id */
	int64_t *again_us; /* [at_once] when to submit a refused job again; 0: its reply is pending */
	bool measuring;
	uint64_t n_done, n_refused;
	float *taken_ms; /* [n_taken] latency of each refusal in ms */
	size_t n_taken;
};

static void fail(const char *what)
{
	fprintf(stderr, "flood: %s\n", what);
	exit(1);
}

static void ask(struct flood *f, unsigned id)
{
	static struct buf b;
	buf_clear(&b);
	mp_put_map(&b, 5);
	mp_put_cstr(&b, "id"), mp_put_uint(&b, id);
	mp_put_cstr(&b, "op"), mp_put_cstr(&b, "submit");
	mp_put_cstr(&b, "prompt"), mp_put_cstr(&b, "Once upon a time");
	mp_put_cstr(&b, "stream"), mp_put_bool(&b, false);
	mp_put_cstr(&b, "params"), mp_put_map(&b, 3);
	mp_put_cstr(&b, "max_tokens"), mp_put_uint(&b, f->tokens);
	mp_put_cstr(&b, "ignore_eos"), mp_put_bool(&b, true);
	mp_put_cstr(&b, "temperature"), mp_put_double(&b, 0);
	f->sent_us[id] = clock_us();
	if (zmq_send(f->socket, b.p, b.len, 0) < 0)
		fail(zmq_strerror(zmq_errno()));
}

/* Count a finished job, which must have all of its tokens. */
static void take_done(struct flood *f, const json_t *m, unsigned id)
{
	json_t *first = json_array_get(json_object_get(m, "outputs"), 0);
	if (json_array_size(json_object_get(first, "tokens")) != f->tokens)
		fail("an output of another length");
	f->n_done += f->measuring;
	ask(f, id);
}

static void take_error(struct flood *f, const json_t *m, unsigned id)
{
	const char *code = json_string_value(json_object_get(m, "code"));
	int64_t now = clock_us();
	if (!code || strcmp(code, "E_OVERLOADED") != 0)
		fail(code ? code : "an error without a code");
	f->again_us[id] = now + AGAIN_US / 2 + rand() % AGAIN_US;
	if (f->measuring && f->n_taken < TAKEN_MAX)
		f->taken_ms[f->n_taken++] = (float)(now - f->sent_us[id]) / 1000;
	f->n_refused += f->measuring;
}

static void take(struct flood *f, zmq_msg_t *msg)
{
	struct mp_limits limits = mp_limits_reply();
	struct why why;
	json_t *m;
	if (mp_decode(zmq_msg_data(msg), zmq_msg_size(msg), &limits, &m, &why))
		fail(why.text);
	const char *op = json_string_value(json_object_get(m, "op"));
	json_int_t id = json_integer_value(json_object_get(m, "id"));
	if (!op || id < 0 || id >= (json_int_t)f->at_once)
		fail("a reply to an unknown request");
	if (strcmp(op, "done") == 0)
		take_done(f, m, (unsigned)id);
	else if (strcmp(op, "error") == 0)
		take_error(f, m, (unsigned)id);
	json_decref(m);
}

/* Handle replies until the given time. */
static void run(struct flood *f, int64_t until_us)
{
	zmq_pollitem_t item = {.socket = f->socket, .events = ZMQ_POLLIN};
	zmq_msg_t m;
	zmq_msg_init(&m);
	for (int64_t now; (now = clock_us()) < until_us;) {
		for (unsigned id = 0; id < f->at_once; id++)
			if (f->again_us[id] && f->again_us[id] <= now) {
				f->again_us[id] = 0;
				ask(f, id);
			}
		zmq_poll(&item, 1, 1);
		while (zmq_msg_recv(&m, f->socket, ZMQ_DONTWAIT) >= 0)
			take(f, &m);
	}
	zmq_msg_close(&m);
}

static int compare(const void *a, const void *b)
{
	float x = *(const float *)a, y = *(const float *)b;
	return (x > y) - (x < y);
}

static double percentile(const struct flood *f, double p)
{
	size_t i = (size_t)(p / 100 * (double)f->n_taken);
	return f->n_taken ? (double)f->taken_ms[i < f->n_taken ? i : f->n_taken - 1] : 0;
}

static double cpu_s(void)
{
	struct timespec t;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
	struct flood f = {0};
	int zero = 0;
	if (argc != 6)
		fail("usage: flood ENDPOINT AT_ONCE TOKENS WARM_S SECONDS");
	f.at_once = (unsigned)atoi(argv[2]);
	f.tokens = (unsigned)atoi(argv[3]);
	f.sent_us = xcalloc(f.at_once, sizeof *f.sent_us);
	f.again_us = xcalloc(f.at_once, sizeof *f.again_us);
	f.taken_ms = xcalloc(TAKEN_MAX, sizeof *f.taken_ms);
	void *zmq = zmq_ctx_new();
	f.socket = zmq_socket(zmq, ZMQ_DEALER);
	zmq_setsockopt(f.socket, ZMQ_LINGER, &zero, sizeof zero);
	zmq_setsockopt(f.socket, ZMQ_RCVHWM, &zero, sizeof zero);
	zmq_setsockopt(f.socket, ZMQ_SNDHWM, &zero, sizeof zero);
	if (zmq_connect(f.socket, argv[1]))
		fail(zmq_strerror(zmq_errno()));
	for (unsigned i = 0; i < f.at_once; i++)
		ask(&f, i);
	run(&f, clock_us() + (int64_t)(atof(argv[4]) * 1e6));
	f.measuring = true;
	int64_t begin = clock_us();
	double cpu = cpu_s();
	printf("begin\n");
	fflush(stdout);
	run(&f, begin + (int64_t)(atof(argv[5]) * 1e6));
	double seconds = (double)(clock_us() - begin) / 1e6;
	cpu = cpu_s() - cpu;
	qsort(f.taken_ms, f.n_taken, sizeof *f.taken_ms, compare);
	printf("{\"seconds\": %.4f, \"done\": %llu, \"tokens\": %llu, \"refused\": %llu, \"p50_ms\": %.3f, "
	       "\"p99_ms\": %.3f, \"max_ms\": %.3f, \"cpu_s\": %.4f}\n",
	       seconds, (unsigned long long)f.n_done, (unsigned long long)(f.n_done * f.tokens),
	       (unsigned long long)f.n_refused, percentile(&f, 50), percentile(&f, 99), percentile(&f, 100),
	       cpu);
	zmq_close(f.socket);
	zmq_ctx_term(zmq);
	free(f.sent_us);
	free(f.again_us);
	free(f.taken_ms);
	return 0;
}
