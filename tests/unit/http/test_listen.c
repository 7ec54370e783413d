/* Listening sockets opened from addresses. */
#include "controller/http/listen.h"

#include "base/alloc.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static char dir[] = "/tmp/quern-test-XXXXXX";
static struct why why;
static struct http_listeners l;

static void begin(void)
{
	cr_assert(mkdtemp(dir));
}

static void end(void)
{
	char *command = xasprintf("rm -rf %s", dir);
	http_listeners_close(&l);
	cr_expect_eq(system(command), 0);
	free(command);
}

TestSuite(listen, .init = begin, .fini = end, .timeout = 60);

static int connect_tcp(const char *host, int port)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
	struct sockaddr_in6 b = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
	bool v6 = strchr(host, ':') != NULL;
	int fd = socket(v6 ? AF_INET6 : AF_INET, SOCK_STREAM, 0);
	inet_pton(AF_INET, host, &a.sin_addr);
	inet_pton(AF_INET6, host, &b.sin6_addr);
	int rc = v6 ? connect(fd, (struct sockaddr *)&b, sizeof b)
		    : connect(fd, (struct sockaddr *)&a, sizeof a);
	rc = rc ? -errno : 0;
	close(fd);
	return rc;
}

static int connect_path(const char *path)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);
	int rc = connect(fd, (struct sockaddr *)&a, sizeof a) ? -errno : 0;
	close(fd);
	return rc;
}

static bool has_v6(void)
{
	struct sockaddr_in6 a = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
	int fd = socket(AF_INET6, SOCK_STREAM, 0);
	bool has = fd >= 0 && !bind(fd, (struct sockaddr *)&a, sizeof a);
	if (fd >= 0)
		close(fd);
	return has;
}

static void open_all(const char *addrs, bool guarded)
{
	int rc = http_listen(addrs, guarded, &l, &why);
	cr_assert_eq(rc, 0, "%s: %s", addrs, why.text);
}

/* Return a path in the test's directory. */
static char *path_of(const char *name)
{
	return xasprintf("%s/%s", dir, name);
}

static char *address_of(const char *name)
{
	return xasprintf("unix:%s/%s", dir, name);
}

Test(listen, localhost_is_both_loopback_addresses_on_one_port)
{
	char shown[64];
	if (!has_v6())
		cr_skip_test("no IPv6 here");
	open_all("localhost:0", false);
	cr_expect_eq(l.n, 2);
	const int port = l.at[0].port;
	snprintf(shown, sizeof shown, "localhost:%d", port);
	cr_expect_str_eq(l.address, shown);
	cr_expect_eq(connect_tcp("127.0.0.1", port), 0);
	cr_expect_eq(connect_tcp("::1", port), 0);
	/* A restart gets these addresses. */
	http_listeners_close(&l);
	open_all(shown, false);
	cr_expect(l.n == 2 && l.at[1].port == port);
	cr_expect_str_eq(l.address, shown);
}

Test(listen, a_star_is_every_address_and_needs_a_guard)
{
	cr_expect_eq(http_listen("*:0", false, &l, &why), -EPERM);
	cr_expect(l.n == 0 && strstr(why.text, "--insecure"), "%s", why.text);
	open_all("*:0", true);
	cr_expect_eq(l.n, has_v6() ? 2 : 1);
	cr_expect_eq(connect_tcp("127.0.0.1", l.at[0].port), 0);
	cr_expect(!has_v6() || connect_tcp("::1", l.at[0].port) == 0);
}

/* A single IPv6 address accepts IPv4 clients too, as in versions without lists, unless IPv4 has its own
 * socket. */
Test(listen, the_address_of_ipv6_alone_takes_both)
{
	if (!has_v6())
		cr_skip_test("no IPv6 here");
	open_all("[::]:0", true);
	cr_expect(l.n == 1 && !strncmp(l.address, "[::]:", 5), "%s", l.address);
	cr_expect_eq(connect_tcp("127.0.0.1", l.at[0].port), 0);
	char *both = xasprintf("0.0.0.0:%d,[::]:%d", l.at[0].port, l.at[0].port);
	http_listeners_close(&l);
	open_all(both, true);
	cr_expect_eq(l.n, 2);
	cr_expect_str_eq(l.address, both);
	free(both);
}

Test(listen, one_address_is_shown_in_numbers)
{
	char shown[64];
	static const char *const same[] = {"127.0.0.1:0", ":0"};
	for (size_t i = 0; i < 2; i++) {
		open_all(same[i], false);
		snprintf(shown, sizeof shown, "127.0.0.1:%d", l.at[0].port);
		cr_expect(l.n == 1 && !strcmp(l.address, shown), "%s", l.address);
		http_listeners_close(&l);
	}
}

Test(listen, a_list_has_addresses_of_both_kinds)
{
	char *path = path_of("http"), *addrs = xasprintf("127.0.0.1:0,unix:%s", path);
	open_all(addrs, false);
	cr_expect(l.n == 2 && l.at[1].family == AF_UNIX);
	char *shown = xasprintf("127.0.0.1:%d,unix:%s", l.at[0].port, path);
	cr_expect_str_eq(l.address, shown);
	cr_expect(connect_tcp("127.0.0.1", l.at[0].port) == 0 && connect_path(path) == 0);
	free(shown);
	free(addrs);
	free(path);
}

/* If a later part of the list fails, no earlier part stays open. */
Test(listen, a_part_that_fails_closes_the_others)
{
	char *path = path_of("http"), *addrs = xasprintf("unix:%s,127.0.0.1:0,nonsense", path);
	cr_expect_eq(http_listen(addrs, false, &l, &why), -EINVAL);
	cr_expect(strstr(why.text, "nonsense"), "%s", why.text);
	cr_expect(l.n == 0 && !*l.address && access(path, F_OK));
	cr_expect_eq(http_listen("127.0.0.1:0,", false, &l, &why), -EINVAL);
	free(addrs);
	free(path);
}

/* The port that localhost got is taken on ::1: this is an error, and not half of the addresses are opened. */
Test(listen, a_port_in_use_on_one_of_two_addresses_is_an_error)
{
	struct http_listeners other;
	if (!has_v6())
		cr_skip_test("no IPv6 here");
	cr_assert_eq(http_listen("[::1]:0", false, &other, &why), 0);
	char *addrs = xasprintf("localhost:%d", other.at[0].port);
	cr_expect_eq(http_listen(addrs, false, &l, &why), -EADDRINUSE);
	cr_expect(strstr(why.text, addrs) && l.n == 0, "%s", why.text);
	cr_expect_eq(connect_tcp("127.0.0.1", other.at[0].port), -ECONNREFUSED);
	http_listeners_close(&other);
	free(addrs);
}

Test(listen, the_file_of_a_socket_is_for_this_user_unless_guarded)
{
	char *path = path_of("http"), *addr = address_of("http");
	struct stat s;
	for (int guarded = 0; guarded < 2; guarded++) {
		open_all(addr, guarded);
		cr_expect(!lstat(path, &s) && S_ISSOCK(s.st_mode));
		cr_expect_eq(s.st_mode & 07777, guarded ? 0666 : 0600, "%o", s.st_mode);
		cr_expect_str_eq(l.address, addr);
		http_listeners_close(&l);
		cr_expect(access(path, F_OK) != 0);
	}
	free(path);
	free(addr);
}

Test(listen, a_stale_file_is_replaced_and_a_live_one_is_not)
{
	char *path = path_of("http"), *addr = address_of("http");
	struct http_listeners second;
	open_all(addr, false);
	cr_expect_eq(http_listen(addr, false, &second, &why), -EADDRINUSE);
	cr_expect(strstr(why.text, path) && strstr(why.text, "another process"), "%s", why.text);
	cr_expect_eq(connect_path(path), 0);
	/* As after kill -9: the file remains, but no process listens on it. */
	cr_assert_eq(shutdown(l.at[0].fd, SHUT_RDWR), 0);
	cr_expect_eq(connect_path(path), -ECONNREFUSED);
	cr_assert_eq(http_listen(addr, false, &second, &why), 0, "%s", why.text);
	cr_expect_eq(connect_path(path), 0);
	/* Closing the first listener does not remove the second listener's file. */
	http_listeners_close(&l);
	cr_expect_eq(connect_path(path), 0);
	http_listeners_close(&second);
	cr_expect(access(path, F_OK) != 0);
	free(path);
	free(addr);
}

Test(listen, a_path_that_cannot_be_a_socket_is_named)
{
	char *path = path_of("file"), *addr = address_of("file"), *deep = address_of("no/such/socket");
	char far[300] = "unix:/tmp/";
	FILE *f = fopen(path, "w");
	cr_assert(f && !fclose(f));
	memset(far + strlen(far), 'x', 200);
	struct {
		const char *addr;
		int rc;
	} const cases[] = {{addr, -EEXIST},
			   {deep, -ENOENT},
			   {far, -ENAMETOOLONG},
			   {"unix:", -EINVAL},
			   {"unix:/tmp/\xff", -EINVAL}};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		cr_expect_eq(http_listen(cases[i].addr, false, &l, &why), cases[i].rc, "%s", why.text);
		cr_expect(strstr(why.text, cases[i].addr) && l.n == 0, "%s", why.text);
	}
	cr_expect_eq(access(path, F_OK), 0);
	free(path);
	free(addr);
	free(deep);
}

Test(listen, more_sockets_than_there_is_room_for_are_refused)
{
	open_all(":0,:0,:0,:0,:0,:0,:0,:0", false);
	cr_expect_eq(l.n, HTTP_LISTENERS_MAX);
	http_listeners_close(&l);
	cr_expect_eq(http_listen(":0,:0,:0,:0,:0,:0,:0,:0,:0", false, &l, &why), -E2BIG);
}
