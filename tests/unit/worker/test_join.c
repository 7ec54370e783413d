/* Settings that `quern worker --join HOST` finds by itself. */
#include "worker/join.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct why why;
static char out[JOIN_ENDPOINT_SIZE];

Test(join, has_the_usual_port_unless_one_is_given)
{
	cr_assert_eq(join_endpoint("head-1.example", out, &why), 0);
	cr_assert_str_eq(out, "tcp://head-1.example:7430");
	cr_assert_eq(join_endpoint("10.0.0.7:65535", out, &why), 0);
	cr_assert_str_eq(out, "tcp://10.0.0.7:65535");
}

Test(join, names_what_is_not_a_host_and_port)
{
	char longest[256];
	memset(longest, 'a', 254);
	longest[254] = '\0';
	const char *const bad[] = {"",          ":7430", "a:",  "a:0",        "a:65536",      "a:7x", "a:+1",
				   "tcp://a:1", "a b",   "::1", "[::1]:7430", "a:4294974726", longest};
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		why.text[0] = '\0';
		cr_assert_eq(join_endpoint(bad[i], out, &why), -EINVAL, "%s", bad[i]);
		cr_assert(strstr(why.text, "--join"), "%s", bad[i]);
	}
}

static char dir[] = "/tmp/quern-join-XXXXXX", key_path[64], pub_path[64];

static void open_dir(void)
{
	cr_assert(mkdtemp(dir));
	snprintf(key_path, sizeof key_path, "%s/worker.key", dir);
	snprintf(pub_path, sizeof pub_path, "%s/service.pub", dir);
}

static void remove_dir(void)
{
	unlink(key_path);
	unlink(pub_path);
	rmdir(dir);
}

static void touch(const char *path)
{
	FILE *f = fopen(path, "w");
	cr_assert(f);
	fclose(f);
}

Test(join, takes_both_keys_or_none, .init = open_dir, .fini = remove_dir)
{
	const char *const dirs[] = {NULL, "/nowhere", dir};
	char *key, *server;
	cr_assert_eq(join_keys(dirs, 3, &key, &server, &why), 0);
	cr_assert(!key && !server);
	touch(key_path);
	cr_assert_eq(join_keys(dirs, 3, &key, &server, &why), -ENOENT);
	cr_assert(!key && !server && strstr(why.text, pub_path), "%s", why.text);
	touch(pub_path);
	cr_assert_eq(join_keys(dirs, 3, &key, &server, &why), 0);
	cr_assert_str_eq(key, key_path);
	cr_assert_str_eq(server, pub_path);
	free(key);
	free(server);
}

Test(join, a_directory_that_cannot_be_searched_is_not_one_without_keys, .init = open_dir, .fini = remove_dir)
{
	/* A link to itself is unreadable even for root, like a directory of another user. */
	char loop[64];
	snprintf(loop, sizeof loop, "%s/loop", dir);
	cr_assert_eq(symlink(loop, loop), 0);
	const char *const dirs[] = {loop, dir};
	char *key, *server;
	const int rc = join_keys(dirs, 2, &key, &server, &why);
	cr_assert_eq(rc, -ELOOP);
	cr_assert(!key && !server);
	cr_assert(strstr(why.text, loop) && strstr(why.text, "--key and --server-key"), "%s", why.text);
	touch(pub_path);
	cr_assert_eq(join_keys(dirs, 2, &key, &server, &why), -ENOENT);
	cr_assert(strstr(why.text, key_path), "%s", why.text);
	/* A home directory that the service may not read does not hide the keys in /etc/quern. */
	touch(key_path);
	cr_assert_eq(join_keys(dirs, 2, &key, &server, &why), 0, "%s", why.text);
	cr_assert_str_eq(key, key_path);
	cr_assert_str_eq(server, pub_path);
	free(key);
	free(server);
	unlink(loop);
}

Test(join, a_file_in_place_of_a_directory_has_no_keys)
{
	const char *const dirs[] = {"/dev/null"};
	char *key, *server;
	cr_assert_eq(join_keys(dirs, 1, &key, &server, &why), 0);
	cr_assert(!key && !server);
}

Test(join, names_why_it_is_not_a_gpu)
{
	why.text[0] = '\0';
	const char *device = join_device(&why);
	cr_assert((strcmp(device, "cuda:0") == 0) == (why.text[0] == '\0'), "%s: %s", device, why.text);
}
