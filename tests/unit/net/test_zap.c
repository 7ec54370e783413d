/* CURVE key files, and the list of allowed keys. */
#include "controller/net/zap.h"
#include "proto/curve.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

static struct why why;
static char dir[64], path[128];

static void set_up(void)
{
	strcpy(dir, "/tmp/test_curve_XXXXXX");
	cr_assert(mkdtemp(dir));
}

static void tear_down(void)
{
	char command[128];
	snprintf(command, sizeof command, "rm -rf %s", dir);
	cr_assert_eq(system(command), 0);
}

TestSuite(curve, .init = set_up, .fini = tear_down, .timeout = 60);
TestSuite(zap, .init = set_up, .fini = tear_down, .timeout = 60);

static const char *in_dir(const char *name)
{
	snprintf(path, sizeof path, "%s/%s", dir, name);
	return path;
}

static struct curve_key pair(void)
{
	struct curve_key k;
	cr_assert_eq(curve_generate(&k, &why), 0, "%s", why.text);
	return k;
}

/* Replace the file atomically, since the list is read while the test runs. */
static void put_file(const char *name, const char *text, mode_t mode)
{
	char new_path[sizeof path + 4];
	snprintf(new_path, sizeof new_path, "%s.new", in_dir(name));
	FILE *f = fopen(new_path, "w");
	cr_assert(f && fputs(text, f) >= 0 && fclose(f) == 0);
	cr_assert_eq(chmod(new_path, mode), 0);
	cr_assert_eq(rename(new_path, path), 0);
}

Test(curve, written_keys_are_read_back)
{
	struct curve_key k = pair(), r;
	struct stat st;
	cr_assert_eq(curve_write(&k, dir, "alice", &why), 0, "%s", why.text);
	cr_assert_eq(curve_read(in_dir("alice.key"), true, &r, &why), 0, "%s", why.text);
	cr_expect_str_eq(r.public, k.public);
	cr_expect_str_eq(r.secret, k.secret);
	cr_expect_eq(stat(path, &st), 0);
	cr_expect_eq(st.st_mode & 0777, 0600);
	cr_assert_eq(curve_read(in_dir("alice.pub"), false, &r, &why), 0, "%s", why.text);
	cr_expect_str_eq(r.public, k.public);
	cr_expect_str_eq(r.secret, "");
}

Test(curve, existing_files_are_not_overwritten)
{
	struct curve_key k = pair(), other = pair(), r;
	cr_assert_eq(curve_write(&k, dir, "a", &why), 0);
	cr_expect_eq(curve_write(&other, dir, "a", &why), -EEXIST);
	unlink(in_dir("a.key"));
	cr_expect_eq(curve_write(&other, dir, "a", &why), -EEXIST);
	cr_expect_eq(access(in_dir("a.key"), F_OK), -1);
	cr_assert_eq(curve_read(in_dir("a.pub"), false, &r, &why), 0);
	cr_expect_str_eq(r.public, k.public);
}

Test(curve, secret_key_readable_by_others_is_refused)
{
	struct curve_key k = pair(), r;
	cr_assert_eq(curve_write(&k, dir, "a", &why), 0);
	cr_assert_eq(chmod(in_dir("a.key"), 0640), 0);
	cr_expect_eq(curve_read(path, true, &r, &why), -EACCES);
	cr_expect(strstr(why.text, "chmod"), "%s", why.text);
	cr_expect_str_eq(r.secret, "");
}

/* As in a pod, where root's secrets are readable by the group of the pod's processes. */
Test(curve, secret_key_of_root_may_be_readable_by_the_group)
{
	const uid_t other = 65534;
	struct curve_key k = pair(), r;
	if (getuid() != 0)
		cr_skip_test("needs root, to change the owner of a file");
	cr_assert_eq(curve_write(&k, dir, "a", &why), 0);
	cr_assert_eq(chmod(dir, 0711), 0);
	cr_assert_eq(chown(in_dir("a.key"), 0, other), 0);
	cr_assert_eq(setegid(other), 0);
	const mode_t modes[] = {0440, 0444, 0460};
	for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
		cr_assert_eq(seteuid(0), 0);
		cr_assert_eq(chmod(path, modes[i]), 0);
		cr_assert_eq(seteuid(other), 0);
		cr_expect_eq(curve_read(path, true, &r, &why), modes[i] == 0440 ? 0 : -EACCES, "mode %o: %s",
			     modes[i], why.text);
	}
	cr_assert_eq(seteuid(0), 0);
}

Test(curve, public_key_file_is_refused_as_a_secret_key)
{
	struct curve_key k = pair(), r;
	cr_assert_eq(curve_write(&k, dir, "a", &why), 0);
	cr_assert_eq(chmod(in_dir("a.pub"), 0600), 0);
	cr_expect_eq(curve_read(path, true, &r, &why), -EINVAL);
	cr_expect(strstr(why.text, ".key"), "%s", why.text);
}

Test(curve, public_key_is_derived_from_the_secret_key)
{
	struct curve_key k = pair(), r;
	char text[128];
	snprintf(text, sizeof text, "  secret=%s\r\n", k.secret);
	cr_assert_eq(curve_parse(text, strlen(text), true, &r, &why), 0, "%s", why.text);
	cr_expect_str_eq(r.public, k.public);
}

Test(curve, mismatched_public_and_secret_keys_are_refused)
{
	struct curve_key k = pair(), other = pair(), r;
	char text[256];
	snprintf(text, sizeof text, "public = %s\nsecret = %s\n", other.public, k.secret);
	cr_expect_eq(curve_parse(text, strlen(text), true, &r, &why), -EINVAL);
	cr_expect_str_eq(r.secret, "");
}

Test(curve, errors_name_the_line_without_showing_the_secret)
{
	struct curve_key k = pair(), r;
	char text[256];
	snprintf(text, sizeof text, "# a comment\npublic = %s\nsceret = %s\n", k.public, k.secret);
	cr_expect_eq(curve_parse(text, strlen(text), true, &r, &why), -EINVAL);
	cr_expect(strstr(why.text, "line 3"), "%s", why.text);
	cr_expect_null(strstr(why.text, k.secret));
	snprintf(text, sizeof text, "secret = %.39s\n", k.secret);
	cr_expect_eq(curve_parse(text, strlen(text), true, &r, &why), -EINVAL);
	k.secret[20] = '\0';
	cr_expect_null(strstr(why.text, k.secret), "%s", why.text);
	cr_expect_eq(curve_parse("", 0, false, &r, &why), -EINVAL);
	cr_expect_eq(curve_parse("\0", 1, false, &r, &why), -EINVAL);
}

Test(curve, errors_name_the_file)
{
	struct curve_key r;
	char *big = malloc(9001);
	memset(big, 'x', 9000);
	big[9000] = '\0';
	put_file("big", big, 0600);
	free(big);
	cr_expect_eq(curve_read(path, false, &r, &why), -EFBIG);
	cr_expect(strstr(why.text, path), "%s", why.text);
	cr_expect_eq(curve_read(in_dir("none"), false, &r, &why), -ENOENT);
	cr_expect(strstr(why.text, path), "%s", why.text);
	cr_expect_lt(curve_read(dir, false, &r, &why), 0);
}

Test(curve, secret_key_is_not_accepted_as_an_argument)
{
	struct curve_key k = pair(), server = pair(), own, of;
	bool keyed;
	struct curve_sources from = {.key = k.secret, .server_key = server.public};
	cr_expect_eq(curve_pair(&from, &own, &of, &keyed, &why), -ENOENT);
	cr_expect_not(keyed);
	from = (struct curve_sources){.env_key = k.secret, .server_key = server.public};
	cr_assert_eq(curve_pair(&from, &own, &of, &keyed, &why), 0, "%s", why.text);
	cr_expect(keyed);
	cr_expect_str_eq(own.public, k.public);
	cr_expect_str_eq(of.public, server.public);
}

Test(curve, own_key_and_server_key_are_needed_together)
{
	struct curve_key k = pair(), own, of;
	bool keyed;
	struct curve_sources from = {.env_key = k.secret};
	cr_expect_eq(curve_pair(&from, &own, &of, &keyed, &why), -EINVAL);
	from = (struct curve_sources){.server_key = k.public};
	cr_expect_eq(curve_pair(&from, &own, &of, &keyed, &why), -EINVAL);
	from = (struct curve_sources){0};
	cr_expect_eq(curve_pair(&from, &own, &of, &keyed, &why), 0);
	cr_expect_not(keyed);
}

/* ---- the list of allowed keys ---- */

static int parse(const char *text, struct zap_entry **list, size_t *n)
{
	return zap_parse(text, strlen(text), list, n, &why);
}

Test(zap, list_assigns_roles_to_keys)
{
	struct curve_key a = pair(), b = pair();
	char text[512];
	struct zap_entry *list;
	size_t n;
	snprintf(text, sizeof text,
		 "# allowed keys\n\n  client\t%s\talice of accounting\r\nworker %s\nadmin %s b, too\n",
		 a.public, b.public, b.public);
	cr_assert_eq(parse(text, &list, &n), 0, "%s", why.text);
	cr_assert_eq(n, 2);
	const struct zap_entry *of_a = strcmp(list[0].public, a.public) == 0 ? &list[0] : &list[1];
	const struct zap_entry *of_b = of_a == &list[0] ? &list[1] : &list[0];
	cr_expect_str_eq(of_b->public, b.public);
	cr_expect_eq(of_a->roles, ZAP_CLIENT);
	cr_expect_eq(of_b->roles, ZAP_CLIENT | ZAP_ADMIN | ZAP_WORKER);
	free(list);
}

Test(zap, errors_name_the_line)
{
	struct curve_key a = pair();
	char text[512];
	struct zap_entry *list;
	size_t n;
	snprintf(text, sizeof text, "client %s\nclent %s\n", a.public, a.public);
	cr_expect_eq(parse(text, &list, &n), -EINVAL);
	cr_expect(strstr(why.text, "line 2"), "%s", why.text);
	cr_expect_eq(parse("client\n", &list, &n), -EINVAL);
	cr_expect_eq(parse("client short name\n", &list, &n), -EINVAL);
	cr_expect_eq(zap_parse("a\0b", 3, &list, &n, &why), -EINVAL);
	cr_assert_eq(parse("", &list, &n), 0);
	cr_expect_eq(n, 0);
	free(list);
}

struct rig {
	void *zmq;
	struct zap *zap;
	struct curve_key server, a;
};

static struct rig start(const char *format)
{
	struct rig r = {.zmq = zmq_ctx_new(), .server = pair(), .a = pair()};
	char text[256];
	snprintf(text, sizeof text, format, r.a.public);
	put_file("allow", text, 0600);
	cr_assert_eq(zap_start(r.zmq, &r.server, path, &r.zap, &why), 0, "%s", why.text);
	return r;
}

static void stop(struct rig *r)
{
	zap_stop(r->zap);
	zmq_ctx_term(r->zmq);
}

Test(zap, keys_have_the_roles_of_the_list_and_the_own_key_all)
{
	struct rig r = start("client %s\n");
	struct curve_key unlisted = pair();
	cr_expect_eq(zap_roles(r.zap, r.a.public), ZAP_CLIENT);
	cr_expect_eq(zap_roles(r.zap, unlisted.public), 0);
	cr_expect_eq(zap_roles(r.zap, r.server.public), ZAP_CLIENT | ZAP_WORKER | ZAP_ADMIN);
	cr_expect_eq(zap_roles(r.zap, ""), 0);
	cr_expect_eq(zap_roles(r.zap, NULL), 0);
	stop(&r);
}

static void wait_for_generation(const struct rig *r, uint64_t g)
{
	while (zap_generation(r->zap) < g)
		usleep(5000);
}

Test(zap, changed_list_is_read_again)
{
	struct rig r = start("client %s\n");
	char text[128];
	uint64_t g = zap_generation(r.zap);
	put_file("allow", "", 0600);
	wait_for_generation(&r, g + 1);
	cr_expect_eq(zap_roles(r.zap, r.a.public), 0);
	snprintf(text, sizeof text, "worker %s\n", r.a.public);
	put_file("allow", text, 0600);
	wait_for_generation(&r, g + 2);
	cr_expect_eq(zap_roles(r.zap, r.a.public), ZAP_WORKER);
	zap_reload(r.zap);
	wait_for_generation(&r, g + 3);
	stop(&r);
}

Test(zap, unreadable_list_leaves_the_previous_one_in_force)
{
	struct rig r = start("client %s\n");
	char text[128];
	uint64_t g = zap_generation(r.zap);
	put_file("allow", "nonsense\n", 0600);
	usleep(600000);
	cr_expect_eq(zap_roles(r.zap, r.a.public), ZAP_CLIENT);
	unlink(path);
	usleep(600000);
	cr_expect_eq(zap_roles(r.zap, r.a.public), ZAP_CLIENT);
	snprintf(text, sizeof text, "worker %s\n", r.a.public);
	put_file("allow", text, 0600);
	wait_for_generation(&r, g + 1);
	cr_expect_eq(zap_roles(r.zap, r.a.public), ZAP_WORKER);
	stop(&r);
}

Test(zap, list_writable_by_others_is_refused)
{
	struct curve_key k = pair();
	struct zap *z;
	void *zmq = zmq_ctx_new();
	put_file("allow", "", 0666);
	cr_expect_eq(zap_start(zmq, &k, path, &z, &why), -EACCES);
	cr_expect(strstr(why.text, path), "%s", why.text);
	zmq_ctx_term(zmq);
}
