/* Files and batches over HTTP when the journal's disk fails: clients get an error, and nothing remains at
 * shutdown. */
#include "base/alloc.h"
#include "controller/jobs/journal.h"
#include "tests/disk.h"
#include "tests/journal_tables.h"
#include "tests/wire/http_rig.h"

#include <dirent.h>
#include <limits.h>

static char dir[64], path[128];
static struct journal *journal;

static void begin(void)
{
	struct why why = {""};
	snprintf(dir, sizeof dir, "/tmp/quern-disk-XXXXXX");
	cr_assert_not_null(mkdtemp(dir));
	snprintf(path, sizeof path, "%s/j", dir);
	disk_install();
	cr_assert_eq(journal_with_tables(path, "m", &journal, &why), 0, "%s", why.text);
	struct http_config cfg = {.addr = "127.0.0.1:0"};
	load();
	svc.journal = journal;
	svc.journal_bytes = 1 << 30;
	start_with(&cfg);
}

/* Count this process's open descriptors of the journal's file. */
static int n_open(void)
{
	char link[64], to[PATH_MAX];
	int n = 0;
	DIR *d = opendir("/proc/self/fd");
	cr_assert_not_null(d);
	for (struct dirent *e; (e = readdir(d));) {
		snprintf(link, sizeof link, "/proc/self/fd/%.20s", e->d_name);
		ssize_t k = readlink(link, to, sizeof to - 1);
		to[k > 0 ? k : 0] = 0;
		n += strcmp(to, path) == 0;
	}
	closedir(d);
	return n;
}

static void end(void)
{
	static const char *const names[] = {"j", "j-wal", "j-shm", "j-lock", "j-ballast"};
	char name[160];
	stop();
	journal_close(journal);
	/* SQLite keeps descriptors open while another connection of the process holds locks; the last
	 * connection closes them all. */
	cr_expect_eq(n_open(), 0, "HTTP has left connections to the journal: %d are open", n_open());
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		snprintf(name, sizeof name, "%s/%s", dir, names[i]);
		unlink(name);
	}
	rmdir(dir);
}

TestSuite(http_disk, .init = begin, .timeout = 60);

#define FORM                                                                                                 \
	"--xyz\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n--xyz\r\n"                \
	"Content-Disposition: form-data; name=\"file\"; filename=\"a.jsonl\"\r\n\r\n"

static struct answer upload(void)
{
	static const char constraint[] = FORM "{\"custom_id\": \"1\"}\n\r\n--xyz--\r\n";
	struct buf b = {0};
	buf_printf(&b,
		   "POST /v1/files HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
		   "Content-Type: multipart/form-data; boundary=xyz\r\nContent-Length: %zu\r\n\r\n%s",
		   strlen(constraint), constraint);
	struct answer a = client_raw(at, b.p, b.len);
	buf_fini(&b);
	return a;
}

Test(http_disk, a_file_is_stored_when_its_upload_is_answered)
{
	struct answer a = upload();
	cr_expect_eq(a.status, 200, "%s", a.raw.p);
	answer_fini(&a);
	a = client_ask(at, "GET", "/v1/files", NULL);
	cr_expect_eq(json_array_size(json_object_get(a.json, "data")), 1, "%s", a.raw.p);
	answer_fini(&a);
	end();
}

/* Wait until the journal holds n parts of files; -1: any number. */
static bool parts_become(int want)
{
	struct why why = {""};
	struct journal_db *db;
	int n = -1;
	cr_assert_eq(journal_reader(journal, &db, &why), 0, "%s", why.text);
	for (int i = 0; i < 3000; i++) {
		sqlite3_stmt *s = journal_query(db, "SELECT count(*) FROM chunks", NULL, 0);
		cr_assert_not_null(s);
		if (sqlite3_step(s) == SQLITE_ROW)
			n = sqlite3_column_int(s, 0);
		sqlite3_reset(s);
		if (n == want || (want < 0 && n > 0))
			break;
		usleep(10000);
	}
	journal_reader_close(db);
	return n == want || (want < 0 && n > 0);
}

Test(http_disk, parts_of_a_failed_upload_are_removed_when_the_disk_writes_again)
{
	enum { THIRD = 1 << 20 };
	struct why why;
	char *third = xmalloc(THIRD);
	struct buf b = {0};
	memset(third, 'x', THIRD);
	buf_printf(&b,
		   "POST /v1/files HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
		   "Content-Type: multipart/form-data; boundary=xyz\r\nContent-Length: %zu\r\n\r\n%s",
		   strlen(FORM) + 3 * (size_t)THIRD + strlen("\r\n--xyz--\r\n"), FORM);
	buf_put(&b, third, THIRD);
	int fd = client_connect(at);
	cr_assert(client_send(fd, b.p, b.len));
	cr_assert(parts_become(-1), "no part of the file came to the disk");
	atomic_store(&disk.fail_write, SQLITE_FULL);
	cr_assert(client_send(fd, third, THIRD));
	for (int i = 0; i < 3000 && journal_health(journal, &why); i++)
		usleep(10000);
	cr_assert_not(journal_health(journal, &why));
	cr_assert(client_send(fd, third, THIRD));
	cr_assert(client_send(fd, "\r\n--xyz--\r\n", strlen("\r\n--xyz--\r\n")));
	struct answer a = client_answer(fd);
	cr_expect_eq(a.status, 500, "%s", a.raw.p);
	answer_fini(&a);
	buf_fini(&b);
	free(third);
	atomic_store(&disk.fail_write, 0);
	cr_expect(parts_become(0), "parts of an incomplete file are left");
	end();
}

/* Parts of an incomplete file are deleted; this is retried until the disk works. Shutdown neither waits for
 * the deletion nor leaks it. */
Test(http_disk, a_service_that_ends_while_the_disk_fails_leaks_nothing)
{
	atomic_store(&disk.fail_write, SQLITE_FULL);
	struct answer a = upload();
	cr_expect_eq(a.status, 500, "%s", a.raw.p);
	cr_expect_not_null(strstr(a.raw.p, "the journal's disk is full or fails"), "%s", a.raw.p);
	answer_fini(&a);
	end();
}

/* The result of a batch's line is retried as well. It refers to the batch, so the batch's end must be stored
 * after it. */
Test(http_disk, a_result_that_the_disk_does_not_take_goes_before_its_batch)
{
	static const char line[] = "{\"custom_id\":\"1\",\"method\":\"POST\",\"url\":\"/v1/completions\","
				   "\"body\":{\"prompt\":\"Once\"}}\n\r\n--xyz--\r\n";
	struct why why;
	char text[512];
	struct buf b = {0};
	buf_printf(&b,
		   "POST /v1/files HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
		   "Content-Type: multipart/form-data; boundary=xyz\r\nContent-Length: %zu\r\n\r\n%s%s",
		   strlen(FORM) + strlen(line), FORM, line);
	struct answer a = client_raw(at, b.p, b.len);
	cr_assert_eq(a.status, 200, "%s", a.raw.p);
	snprintf(text, sizeof text,
		 "{\"input_file_id\":\"%s\",\"endpoint\":\"/v1/completions\",\"completion_window\":\"24h\"}",
		 text_of(a.json, "id"));
	answer_fini(&a);
	buf_fini(&b);
	fake_stall(mailbox, true);
	a = post("/v1/batches", text);
	cr_assert_eq(a.status, 200, "%s", a.raw.p);
	answer_fini(&a);
	cr_expect(becomes(&mailbox->n_submitted, 1));
	atomic_store(&disk.fail_write, SQLITE_FULL);
	fake_stall(mailbox, false);
	for (int i = 0; i < 3000 && journal_health(journal, &why); i++)
		usleep(10000);
	cr_expect_not(journal_health(journal, &why));
	end();
}
