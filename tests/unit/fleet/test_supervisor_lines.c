/* Lines to `quern serve`: their order, and when they can be read. */
#include "controller/supervisor.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

struct lines {
	int in, out;
	struct supervisor *s;
};

static struct lines open_lines(void)
{
	int ends[2];
	cr_assert_eq(pipe(ends), 0);
	fcntl(ends[0], F_SETFL, O_NONBLOCK);
	struct lines l = {ends[0], ends[1], supervisor_new(ends[1])};
	cr_assert_eq(supervisor_open(l.s), 0);
	return l;
}

static void close_lines(struct lines *l)
{
	supervisor_free(l->s);
	close(l->in);
	close(l->out);
}

/* Appends one read to the n bytes of text and returns their new number. */
static size_t read_once(const struct lines *l, char *text, size_t n, size_t size)
{
	ssize_t got = read(l->in, text + n, size - n - 1);
	n += got > 0 ? (size_t)got : 0;
	text[n] = '\0';
	return n;
}

/* Writes the remaining lines, as the main thread does. */
static void *flush(void *supervisor)
{
	struct supervisor_ready ready;
	supervisor_flush(supervisor, &ready);
	return NULL;
}

/* The worker is stopped after the notice, so `quern serve` must read the notice before it sees the exit. */
Test(supervisor_lines, a_notice_can_be_read_when_the_call_returns)
{
	struct lines l = open_lines();
	char text[256];
	supervisor_notice(l.s, &(struct engine_notice){.kind = ENGINE_NOTICE_RETIRE, .pid = 4711});
	read_once(&l, text, 0, sizeof text);
	cr_expect_str_eq(text, "{\"retire\":4711}\n");
	close_lines(&l);
}

/* A path in a reason may have any bytes. */
Test(supervisor_lines, a_reason_that_is_not_utf8_is_kept)
{
	static const char why[] = "/m/\xff\xfe/config.json: no such file \xe2\x82";
	struct lines l = open_lines();
	char text[256];
	supervisor_notice(l.s, &(struct engine_notice){.kind = ENGINE_NOTICE_FAILED, .why = why});
	read_once(&l, text, 0, sizeof text);
	cr_expect_str_eq(text, "{\"failed\":\"/m/\uFFFD\uFFFD/config.json: no such file \uFFFD\"}\n");
	supervisor_error(l.s, why);
	read_once(&l, text, 0, sizeof text);
	cr_expect_str_eq(text, "{\"error\":\"/m/\uFFFD\uFFFD/config.json: no such file \uFFFD\"}\n");
	close_lines(&l);
}

Test(supervisor_lines, a_full_pipe_delays_lines_and_keeps_their_order, .timeout = 60)
{
	enum { N = 20000 };
	static char text[N * 32], expected[N * 32];
	size_t n = 0, whole = 0;
	struct lines l = open_lines();
	for (int i = 0; i < N; i++) { /* none of these calls may wait */
		supervisor_notice(l.s,
				  &(struct engine_notice){.kind = ENGINE_NOTICE_RETIRE, .pid = 1000 + i});
		whole += (size_t)sprintf(expected + whole, "{\"retire\":%d}\n", 1000 + i);
	}
	cr_assert_gt(whole, (size_t)fcntl(l.out, F_GETPIPE_SZ), "the pipe was not full");
	pthread_t main_thread;
	cr_assert_eq(pthread_create(&main_thread, NULL, flush, l.s), 0);
	fcntl(l.in, F_SETFL, 0);
	while (n < whole)
		n = read_once(&l, text, n, sizeof text);
	pthread_join(main_thread, NULL);
	cr_expect_str_eq(text, expected);
	close_lines(&l);
}
