/* The requests that need a key, and the key's effect on their jobs: charged account, priority, shared
 * prefixes. Tested for requests and for lines of batches. */
#include "controller/jobs/journal.h"
#include "tests/journal_tables.h"
#include "tests/wire/http_rig.h"

#include <sys/stat.h>

#define ALICE "sk-alice-0123456789"
#define BOB   "sk-bob-0123456789ab"
#define CAROL "sk-carol-0123456789"

static char dir[64], path[128];
static struct journal *journal;

static void begin(void)
{
	struct http_config cfg = {.addr = "127.0.0.1:0"};
	struct why why = {""};
	snprintf(dir, sizeof dir, "/tmp/quern-http-keys-XXXXXX");
	cr_assert_not_null(mkdtemp(dir));
	snprintf(path, sizeof path, "%s/j", dir);
	snprintf(cfg.api_keys, sizeof cfg.api_keys, "%s/keys", dir);
	FILE *f = fopen(cfg.api_keys, "w");
	fchmod(fileno(f), 0600);
	fputs(ALICE " name=alice share=3\n" BOB " name=bob priority=-5..20\n" CAROL
		    " name=carol priority=7\n",
	      f);
	fclose(f);
	cr_assert_eq(journal_with_tables(path, "m", &journal, &why), 0, "%s", why.text);
	svc.journal = journal;
	svc.max_request_bytes = 16 << 20;
	load();
	svc.journal_bytes = 1 << 30;
	start_with(&cfg);
}

static void end(void)
{
	static const char *const names[] = {"j", "j-wal", "j-shm", "j-lock", "j-ballast", "keys"};
	char name[160];
	stop();
	journal_close(journal);
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		snprintf(name, sizeof name, "%s/%s", dir, names[i]);
		unlink(name);
	}
	rmdir(dir);
}

TestSuite(http_keys, .init = begin, .fini = end, .timeout = 60);

static struct answer send_by(const char *key, const char *route, const char *type, const char *body)
{
	struct buf b = {0};
	buf_printf(&b,
		   "POST %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer %s\r\n"
		   "Content-Type: %s\r\nContent-Length: %zu\r\n\r\n%s",
		   route, key, type, strlen(body), body);
	struct answer a = client_raw(at, b.p, b.len);
	cr_assert_eq(a.status, 200, "%s", a.raw.p);
	buf_fini(&b);
	return a;
}

/* Send a request with these fields; return its job. */
static const struct fake_seen *seen_of(const char *key, const char *fields)
{
	char body[256];
	uint32_t n = atomic_load(&mailbox->n_submitted);
	snprintf(body, sizeof body, "{\"prompt\":\"Once\",\"max_tokens\":2%s}", fields);
	struct answer a = send_by(key, "/v1/completions", "application/json", body);
	answer_fini(&a);
	return &mailbox->seen[n];
}

/* Send a batch of one line with these fields; return its job. */
static const struct fake_seen *seen_of_line(const char *key, const char *fields)
{
	char text[1024];
	uint32_t n = atomic_load(&mailbox->n_submitted);
	snprintf(text, sizeof text,
		 "--xyz\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n--xyz\r\n"
		 "Content-Disposition: form-data; name=\"file\"; filename=\"a.jsonl\"\r\n\r\n"
		 "{\"custom_id\":\"1\",\"method\":\"POST\",\"url\":\"/v1/completions\","
		 "\"body\":{\"prompt\":\"Once\",\"max_tokens\":2%s}}\n\r\n--xyz--\r\n",
		 fields);
	struct answer a = send_by(key, "/v1/files", "multipart/form-data; boundary=xyz", text);
	snprintf(text, sizeof text,
		 "{\"input_file_id\":\"%s\",\"endpoint\":\"/v1/completions\",\"completion_window\":\"24h\"}",
		 text_of(a.json, "id"));
	answer_fini(&a);
	a = send_by(key, "/v1/batches", "application/json", text);
	answer_fini(&a);
	cr_assert(becomes(&mailbox->n_submitted, n + 1));
	return &mailbox->seen[n];
}

static void expect(const struct fake_seen *s, const char *owner, const char *user, int32_t priority,
		   const char *salt)
{
	cr_expect_str_eq(s->owner, owner);
	cr_expect_str_eq(s->user, user);
	cr_expect_eq(s->priority, priority, "%d, not %d", s->priority, priority);
	cr_expect_str_eq(s->salt, salt);
}

Test(http_keys, a_request_is_charged_to_its_key)
{
	const struct fake_seen *s = seen_of(ALICE, ",\"user\":\"u1\",\"cache_salt\":\"c\"");
	expect(s, "~alice", "u1", 0, "alice/c");
	cr_expect_eq(s->share, 3);
	s = seen_of(BOB, ",\"user\":\"u1\"");
	expect(s, "~bob", "u1", 0, "bob/");
	cr_expect_eq(s->share, 1);
	expect(seen_of(CAROL, ""), "~carol", "", 7, "carol/");
}

Test(http_keys, a_priority_is_clamped_to_the_range_of_the_key)
{
	cr_expect_eq(seen_of(ALICE, ",\"priority\":-1")->priority, 0);
	cr_expect_eq(seen_of(ALICE, ",\"priority\":-2147483648")->priority, 0);
	cr_expect_eq(seen_of(ALICE, ",\"priority\":50")->priority, 50);
	cr_expect_eq(seen_of(BOB, ",\"priority\":-100")->priority, -5);
	cr_expect_eq(seen_of(BOB, ",\"priority\":-3")->priority, -3);
	cr_expect_eq(seen_of(BOB, ",\"priority\":100")->priority, 20);
	cr_expect_eq(seen_of(CAROL, ",\"priority\":0")->priority, 7);
}

Test(http_keys, a_line_of_a_batch_is_charged_to_the_batchs_key)
{
	const struct fake_seen *s = seen_of_line(ALICE, ",\"user\":\"u1\",\"cache_salt\":\"c\"");
	expect(s, "~alice", "u1", 100, "alice/c");
	cr_expect_eq(s->share, 3);
	cr_expect(s->durable);
}

Test(http_keys, a_line_of_a_batch_runs_behind_the_requests_of_its_key)
{
	cr_expect_eq(seen_of_line(ALICE, ",\"priority\":-1")->priority, 100);
	cr_expect_eq(seen_of_line(BOB, ",\"priority\":-100")->priority, 95);
	cr_expect_eq(seen_of_line(BOB, ",\"priority\":2000000000")->priority, 120);
	cr_expect_eq(seen_of_line(ALICE, ",\"priority\":2147483647")->priority, INT32_MAX);
}

/* Return whether a path needs no key. */
static bool is_open(const char *route)
{
	static const char *const open[] = {"/",      "/health",  "/ready",     "/readyz",
					   "/livez", "/version", "/v1/health", "/api/version"};
	for (size_t i = 0; i < sizeof open / sizeof *open; i++)
		if (!strcmp(open[i], route))
			return true;
	return false;
}

/* Send a request without a body and return its status; key: NULL for none. */
static int status_at(const char *address, const char *method, const char *route, const char *key)
{
	struct buf b = {0};
	buf_printf(&b, "%s %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n", method, route);
	if (key)
		buf_printf(&b, "Authorization: Bearer %s\r\n", key);
	buf_puts(&b, "Content-Length: 0\r\n\r\n");
	struct answer a = client_raw(address, b.p, b.len);
	const int status = a.status;
	answer_fini(&a);
	buf_fini(&b);
	return status;
}

static int status_of(const char *method, const char *route, const char *key)
{
	return status_at(at, method, route, key);
}

Test(http_keys, every_method_of_every_route_that_is_not_open_asks_for_a_key)
{
	size_t n;
	const struct http_route *r = endpoints_routes(&n);
	for (size_t i = 0; i < n; i++) {
		char methods[64], *rest = methods;
		snprintf(methods, sizeof methods, "%s", r[i].allow);
		for (char *m; (m = strsep(&rest, ", "));) {
			if (!*m)
				continue;
			const int status = status_of(m, r[i].path, NULL);
			if (is_open(r[i].path)) {
				cr_expect_neq(status, 401, "%s %s", m, r[i].path);
			} else {
				cr_expect_eq(status, 401, "%s %s without a key: %d", m, r[i].path, status);
				cr_expect_eq(status_of(m, r[i].path, BOB "x"), 401, "%s %s", m, r[i].path);
			}
		}
	}
	cr_expect_eq(status_of("GET", "/no/such/path", NULL), 401);
	cr_expect_eq(status_of("GET", "/slots", BOB), 200);
}

/* Return whether a monitoring address serves the path without a key. */
static bool is_monitored(const char *route)
{
	static const char *const paths[] = {"/metrics", "/health", "/ready",
					    "/readyz",  "/livez",  "/v1/health"};
	for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
		if (!strcmp(paths[i], route))
			return true;
	return false;
}

Test(http_keys, a_server_for_monitoring_has_its_routes_without_a_key_and_no_others)
{
	static struct endpoints objects;
	struct http_config cfg = {.addr = "127.0.0.1:0", .insecure = true};
	struct http *monitor;
	struct why why = {""};
	size_t n;
	endpoints_app(&objects, mailbox, &svc, 0);
	struct http_app app = endpoints_monitor_app(&objects);
	cr_assert_eq(http_start(&svc, &app, &cfg, &monitor, &why), 0, "%s", why.text);
	const char *where = http_address(monitor);
	const struct http_route *r = endpoints_routes(&n);
	for (size_t i = 0; i < n; i++) {
		char method[16];
		snprintf(method, sizeof method, "%.*s", (int)strcspn(r[i].allow, ","), r[i].allow);
		const int status = status_at(where, method, r[i].path, NULL);
		cr_expect_eq(status, is_monitored(r[i].path) ? 200 : 404, "%s %s: %d", method, r[i].path,
			     status);
	}
	cr_expect_eq(status_at(where, "GET", "/metrics", ALICE), 200, "a key that is sent does no harm");
	cr_expect_eq(status_at(where, "POST", "/metrics", NULL), 405);
	cr_expect_eq(status_at(where, "GET", "/no/such/path", NULL), 404);
	http_stop(monitor);
}
