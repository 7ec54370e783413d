/* test_batch_file.c - files of quern submit --batch when an earlier command has done every line. */
#include "cli/batch_file.h"

#include "base/option_table.h"
#include "base/alloc.h"
#include "base/buf.h"
#include "base/file.h"
#include "cli/client.h"
#include "proto/mp.h"

#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <xxhash.h>
#include <zmq.h>

static char dir[64];
/* The calls that make the output durable, in order: "fsync the new file; rename in.out.jsonl; ..." */
static struct buf calls;

static void note(const char *call, const char *path)
{
	const size_t n = strlen(dir);
	if (!n || strncmp(path, dir, n) != 0)
		return;
	const char *name = path[n] ? path + n + 1 : "its directory";
	/* A unique name: in.out.jsonl. and 16 digits. */
	if (strncmp(name, "in.out.jsonl.", 13) == 0 && strlen(name) == 13 + 16)
		name = "the new file";
	buf_printf(&calls, "%s %s; ", call, name);
}

int fsync(int fd)
{
	char link[64], path[256];
	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	ssize_t n = readlink(link, path, sizeof path - 1);
	path[n > 0 ? n : 0] = '\0';
	note("fsync", path);
	return (int)syscall(SYS_fsync, fd);
}

int rename(const char *from, const char *to)
{
	note("rename", to);
	return renameat(AT_FDCWD, from, AT_FDCWD, to);
}

int unlink(const char *path)
{
	note("unlink", path);
	return unlinkat(AT_FDCWD, path, 0);
}

/* A service that answers every request like a ping, or with `reply`. */
struct service {
	json_t *reply; /* set while no request is in flight */
	void *context, *router;
	char endpoint[256];
	pthread_t thread;
};

static void *answer(void *arg)
{
	struct service *s = arg;
	zmq_msg_t route, request;
	zmq_msg_init(&route);
	zmq_msg_init(&request);
	while (zmq_msg_recv(&route, s->router, 0) >= 0 && zmq_msg_recv(&request, s->router, 0) >= 0) {
		struct buf b = {0};
		json_t *reply = s->reply ? json_incref(s->reply)
					 : json_pack("{s:s, s:i, s:s}", "op", "ok", "id", 1, "model", "m");
		mp_encode(&b, reply);
		json_decref(reply);
		zmq_send(s->router, zmq_msg_data(&route), zmq_msg_size(&route), ZMQ_SNDMORE);
		zmq_send(s->router, b.p, b.len, 0);
		buf_fini(&b);
	}
	zmq_msg_close(&route);
	zmq_msg_close(&request);
	zmq_close(s->router);
	return NULL;
}

static char *input, *part, *output;
static struct service service;
static struct client *client;
static struct opts o;

static void set_up(void)
{
	struct why why;
	size_t n = sizeof service.endpoint;
	cr_redirect_stderr();
	cr_redirect_stdout();
	snprintf(dir, sizeof dir, "/tmp/quern-batch-XXXXXX");
	cr_assert(mkdtemp(dir));
	input = xasprintf("%s/in.jsonl", dir);
	output = xasprintf("%s/in.out.jsonl", dir);
	part = xasprintf("%s.part", output);
	service.context = zmq_ctx_new();
	service.router = zmq_socket(service.context, ZMQ_ROUTER);
	cr_assert_eq(zmq_bind(service.router, "tcp://127.0.0.1:*"), 0);
	cr_assert_eq(zmq_getsockopt(service.router, ZMQ_LAST_ENDPOINT, service.endpoint, &n), 0);
	cr_assert_eq(pthread_create(&service.thread, NULL, answer, &service), 0);
	cr_assert_eq(client_open(service.endpoint, NULL, 60000, &client, &why), 0, "%s", why.text);
	opts_add_program(&o, OPTION_SUBMIT);
	cr_assert_eq(opts_set(&o, "batch", input, &why), 0, "%s", why.text);
}

static void tear_down(void)
{
	char *command = xasprintf("rm -r %s", dir);
	client_close(client);
	zmq_ctx_shutdown(service.context);
	pthread_join(service.thread, NULL);
	zmq_ctx_term(service.context);
	opts_fini(&o);
	cr_expect_eq(system(command), 0);
	free(command);
	free(input);
	free(output);
	free(part);
	buf_fini(&calls);
}

TestSuite(batch_file, .init = set_up, .fini = tear_down, .timeout = 120);

static void put(const char *path, const char *text)
{
	FILE *f = fopen(path, "w");
	cr_assert(f);
	fputs(text, f);
	fclose(f);
}

/* Write the input of two lines and an earlier command's results of both. failed: the first one failed. */
static void put_files(bool failed)
{
	static const char lines[] = "{\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"/v1/"
				    "completions\",\"body\":{\"prompt\":\"x\"}}\n"
				    "{\"custom_id\":\"b\",\"method\":\"POST\",\"url\":\"/v1/"
				    "completions\",\"body\":{\"prompt\":\"y\"}}\n";
	struct buf text = {0};
	put(input, lines);
	buf_printf(&text, "quern batch %032d %zu %016llx\n1 0 5\nline1\n0 %d 5\nline0\n", 0, strlen(lines),
		   (unsigned long long)XXH3_64bits(lines, strlen(lines)), failed);
	put(part, text.p);
	buf_fini(&text);
}

static void expect_output(const char *expected)
{
	struct why why;
	char *text;
	size_t n;
	cr_assert_eq(file_read(output, 4096, &text, &n, &why), 0, "%s", why.text);
	cr_expect_str_eq(text, expected);
	free(text);
}

Test(batch_file, results_are_on_disk_before_the_part_file_goes)
{
	put_files(false);
	cr_expect_eq(batch_file_run(&client, &o), 0);
	expect_output("line0\nline1\n");
	cr_expect_str_eq(calls.p, "fsync the new file; rename in.out.jsonl; fsync its directory; unlink "
				  "in.out.jsonl.part; ");
	cr_expect_not(file_exists(part));
}

Test(batch_file, a_line_that_failed_in_an_earlier_command_counts)
{
	put_files(true);
	cr_expect_eq(batch_file_run(&client, &o), 1);
	expect_output("line0\nline1\n");
}

/* The result has status 413 and names the limit, as over HTTP. */
Test(batch_file, a_line_that_the_service_finds_too_large_is_413)
{
	struct why why;
	char *text;
	size_t n;
	put(input, "{\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"/v1/completions\",\"body\":{}}\n");
	service.reply = json_pack("{s:s, s:i, s:s, s:s}", "op", "error", "id", 1, "code", "E_TOO_LONG",
				  "message", "the request has 30 bytes, at most 20 are accepted");
	cr_expect_eq(batch_file_run(&client, &o), 1);
	json_decref(service.reply);
	service.reply = NULL;
	cr_assert_eq(file_read(output, 4096, &text, &n, &why), 0, "%s", why.text);
	cr_expect(strstr(text, "\"status_code\":413"), "%s", text);
	cr_expect(strstr(text, "\"code\":\"request_too_large\""), "%s", text);
	cr_expect(strstr(text, "at most 20 are accepted"), "%s", text);
	free(text);
}

Test(batch_file, a_part_file_has_one_writer)
{
	put_files(false);
	const int other = open(part, O_RDWR | O_CLOEXEC);
	cr_assert_eq(flock(other, LOCK_EX | LOCK_NB), 0);
	cr_expect_eq(batch_file_run(&client, &o), 1);
	cr_expect_not(file_exists(output));
	cr_expect(file_exists(part));
	close(other);
	cr_expect_eq(batch_file_run(&client, &o), 0);
	expect_output("line0\nline1\n");
}
