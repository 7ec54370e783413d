/* Files and batches over HTTP with a fake front end: unneeded bodies, and batch lines that outlive their
 * server. */
#include "controller/jobs/journal.h"
#include "tests/journal_tables.h"
#include "tests/wire/http_rig.h"

#include <microhttpd.h>
#include <stdarg.h>

#define ASK_LARGE "Host: x\r\nConnection: close\r\nContent-Length: 20000\r\n\r\n%20000s"

static char dir[64], path[128];
static struct journal *journal;

/* libmicrohttpd fails to start after lines of batches have started. */
static bool start_fails;
static pthread_t later;

static void *go_on_later(void *arg)
{
	usleep(300000);
	fake_stall(arg, false);
	return NULL;
}

struct MHD_Daemon *MHD_start_daemon(unsigned flags, uint16_t port, MHD_AcceptPolicyCallback apc,
				    void *apc_cls, MHD_AccessHandlerCallback dh, void *dh_cls, ...)
{
	va_list ap;
	if (start_fails) {
		cr_expect(becomes(&mailbox->n_submitted, 1), "the batch was not resumed");
		/* The front end releases the lines late. */
		fake_stall(mailbox, true);
		pthread_create(&later, NULL, go_on_later, mailbox);
		return NULL;
	}
	va_start(ap, dh_cls);
	struct MHD_Daemon *d = MHD_start_daemon_va(flags, port, apc, apc_cls, dh, dh_cls, ap);
	va_end(ap);
	return d;
}

static void open_journal(void)
{
	struct why why = {""};
	cr_assert_eq(journal_with_tables(path, "m", &journal, &why), 0, "%s", why.text);
	svc.journal = journal;
}

static void begin(void)
{
	snprintf(dir, sizeof dir, "/tmp/quern-files-XXXXXX");
	cr_assert_not_null(mkdtemp(dir));
	snprintf(path, sizeof path, "%s/j", dir);
	open_journal();
	struct http_config cfg = {.addr = "127.0.0.1:0"};
	svc.max_request_bytes = 16 << 20;
	load();
	svc.journal_bytes = 1 << 30;
	start_with(&cfg);
}

static void end(void)
{
	static const char *const names[] = {"j", "j-wal", "j-shm", "j-lock", "j-ballast"};
	char name[160];
	stop();
	journal_close(journal);
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		snprintf(name, sizeof name, "%s/%s", dir, names[i]);
		unlink(name);
	}
	rmdir(dir);
}

TestSuite(http_files, .init = begin, .fini = end, .timeout = 60);

/* Create a batch of the file, and wait until its line runs. */
static void create(const char *file, char id[64])
{
	char text[512];
	snprintf(text, sizeof text,
		 "{\"input_file_id\":\"%s\",\"endpoint\":\"/v1/completions\",\"completion_window\":\"24h\"}",
		 file);
	struct answer a = post("/v1/batches", text);
	cr_assert_eq(a.status, 200, "%s", a.raw.p);
	snprintf(id, 64, "%s", text_of(a.json, "id"));
	answer_fini(&a);
	cr_expect(becomes(&mailbox->n_submitted, 1));
}

/* Upload a batch file with one line, which runs until it is cancelled; return the file's id. */
static char *upload(void)
{
	static const char constraint[] =
		"--xyz\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n--xyz\r\n"
		"Content-Disposition: form-data; name=\"file\"; filename=\"a.jsonl\"\r\n\r\n"
		"{\"custom_id\":\"1\",\"method\":\"POST\",\"url\":\"/v1/completions\","
		"\"body\":{\"prompt\":\"Once\",\"user\":\"hang\"}}\n\r\n--xyz--\r\n";
	struct buf b = {0};
	buf_printf(&b,
		   "POST /v1/files HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
		   "Content-Type: multipart/form-data; boundary=xyz\r\nContent-Length: %zu\r\n\r\n%s",
		   strlen(constraint), constraint);
	struct answer a = client_raw(at, b.p, b.len);
	cr_assert_eq(a.status, 200, "%s", a.raw.p);
	char *id = xstrdup(text_of(a.json, "id"));
	answer_fini(&a);
	buf_fini(&b);
	return id;
}

/* Send a request with a large body, which the path does not need. */
static struct answer ask_large(const char *method, const char *where)
{
	struct buf b = {0};
	buf_printf(&b, "%s %s HTTP/1.1\r\n" ASK_LARGE, method, where, "");
	struct answer a = client_raw(at, b.p, b.len);
	buf_fini(&b);
	return a;
}

/* The id is in the path, whatever the body is. */
Test(http_files, a_large_body_does_not_hide_the_paths_id)
{
	char where[256], *file = upload();
	snprintf(where, sizeof where, "/v1/files/%s", file);
	struct answer a = ask_large("GET", where);
	cr_expect(a.status == 200 && !strcmp(text_of(a.json, "id"), file), "%s", a.raw.p);
	answer_fini(&a);
	a = ask_large("GET", "/v1/files?purpose=batch&limit=1");
	cr_expect(a.status == 200 && json_array_size(json_object_get(a.json, "data")) == 1, "%s", a.raw.p);
	answer_fini(&a);
	a = ask_large("GET", "/v1/models/stories");
	cr_expect_eq(a.status, 200, "%s", a.raw.p);
	answer_fini(&a);
	a = ask_large("DELETE", where);
	cr_expect(a.status == 200 && json_is_true(json_object_get(a.json, "deleted")), "%s", a.raw.p);
	answer_fini(&a);
	expect_error(client_ask(at, "GET", where, NULL), 404, "not_found", NULL);
	free(file);
}

Test(http_files, a_batch_is_cancelled_by_a_request_with_a_large_body)
{
	char id[64], where[256], *file = upload();
	create(file, id);
	snprintf(where, sizeof where, "/v1/batches/%s/cancel", id);
	struct answer a = ask_large("POST", where);
	cr_expect(a.status == 200 && !strncmp(text_of(a.json, "status"), "cancel", 6), "%s", a.raw.p);
	answer_fini(&a);
	*strrchr(where, '/') = 0;
	a = ask_large("GET", where);
	cr_expect(a.status == 200 && !strncmp(text_of(a.json, "status"), "cancel", 6), "%s", a.raw.p);
	answer_fini(&a);
	free(file);
}

/* A list's query string is freed with its connection. The request must not wait for the threads that prepare
 * large requests, which are busy here. */
Test(http_files, lists_with_large_bodies_of_disconnected_clients_do_no_harm)
{
	struct buf busy = {0}, b = {0};
	int fds[2];
	buf_printf(&busy, "POST /api/cancel HTTP/1.1\r\nContent-Type: application/json\r\n" ASK_LARGE,
		   "{\"job\":\"a\"}");
	buf_printf(&b, "GET /v1/batches?limit=5&after=batch_none HTTP/1.1\r\n" ASK_LARGE, "");
	fake_block(mailbox, true);
	for (int i = 0; i < 2; i++) {
		fds[i] = client_connect(at);
		cr_assert(client_send(fds[i], busy.p, busy.len));
	}
	cr_expect(becomes(&mailbox->n_blocked, 2));
	for (int i = 0; i < 20; i++) {
		int fd = client_connect(at);
		client_send(fd, b.p, b.len);
		usleep(5000);
		close(fd);
	}
	expect_error(client_raw(at, b.p, b.len), 404, "not_found", NULL);
	fake_block(mailbox, false);
	for (int i = 0; i < 2; i++)
		expect_error(client_answer(fds[i]), 404, "not_found", "job");
	buf_fini(&busy);
	buf_fini(&b);
}

/* Lines are resumed before HTTP listens. If it cannot listen, the front end still has them. */
Test(http_files, a_server_that_does_not_start_drops_the_lines_that_it_resumed)
{
	struct why why = {""};
	char id[64], where[256], *file = upload();
	create(file, id);
	http_stop(http);
	fake_stop(mailbox);
	journal_close(journal);

	open_journal();
	mailbox = fake_start(tokenizer);
	struct http_config cfg = {.addr = "127.0.0.1:0"};
	start_fails = true;
	cr_expect_eq(start_http(mailbox, &cfg, &http, &why), -EIO);
	cr_expect_not_null(strstr(why.text, "libmicrohttpd"), "%s", why.text);
	cr_expect_eq(atomic_load(&mailbox->n_live), 0, "the front end has listeners that are gone");
	pthread_join(later, NULL);
	fake_stop(mailbox);
	journal_close(journal);

	open_journal();
	start_fails = false;
	start_with(&cfg);
	cr_expect(becomes(&mailbox->n_submitted, 1));
	snprintf(where, sizeof where, "/v1/batches/%s", id);
	struct answer a = client_ask(at, "GET", where, NULL);
	cr_expect_str_eq(text_of(a.json, "status"), "in_progress");
	answer_fini(&a);
	free(file);
}

Test(http_files, a_batch_with_too_many_values_is_refused)
{
	struct buf b = {0};
	buf_puts(&b, "{\"metadata\":[");
	for (int i = 0; i < 5000000; i++)
		buf_puts(&b, "1,");
	buf_puts(&b, "1]}");
	expect_error(post("/v1/batches", b.p), 400, "too_many_values", NULL);
	buf_fini(&b);
}
