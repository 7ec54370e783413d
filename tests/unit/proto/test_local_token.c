/* The secret by which TCP workers prove that the supervisor started them. */
#include "proto/local_token.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct why why;
static char dir[] = "/tmp/quern-token-XXXXXX", path[64];

static void open_dir(void)
{
	cr_assert(mkdtemp(dir));
	snprintf(path, sizeof path, "%s/token", dir);
}

static void remove_dir(void)
{
	unlink(path);
	rmdir(dir);
}

static int read_text(const char *text)
{
	char token[LOCAL_TOKEN_SIZE] = "x";
	FILE *f = fopen(path, "w");
	fputs(text, f);
	fclose(f);
	chmod(path, 0600);
	int rc = local_token_read(path, token, &why);
	cr_expect(rc == 0 || !token[0], "a token from \"%s\"", text);
	return rc;
}

Test(local_token, created_once_and_read_back, .init = open_dir, .fini = remove_dir)
{
	char a[LOCAL_TOKEN_SIZE], b[LOCAL_TOKEN_SIZE];
	struct stat st;
	cr_assert_eq(local_token_create(path, &why), 0, "%s", why.text);
	cr_assert_eq(local_token_create(path, &why), -EEXIST);
	cr_assert_eq(stat(path, &st), 0);
	cr_assert_eq(st.st_mode & 0777, 0600);
	cr_assert_eq(local_token_read(path, a, &why), 0, "%s", why.text);
	cr_assert_eq(strlen(a), LOCAL_TOKEN_CHARS);
	unlink(path);
	cr_assert_eq(local_token_create(path, &why), 0, "%s", why.text);
	cr_assert_eq(local_token_read(path, b, &why), 0, "%s", why.text);
	cr_assert_not(local_token_equal(a, b));
	cr_assert(local_token_equal(b, b));
}

Test(local_token, must_be_private_and_whole, .init = open_dir, .fini = remove_dir)
{
	char token[LOCAL_TOKEN_SIZE];
	cr_assert_eq(local_token_read(path, token, &why), -ENOENT);
	cr_assert_eq(local_token_create(path, &why), 0, "%s", why.text);
	chmod(path, 0640);
	cr_assert_eq(local_token_read(path, token, &why), -EACCES);
	char text[128];
	snprintf(text, sizeof text, "%064d\n", 7);
	cr_assert_eq(read_text(text), 0, "%s", why.text);
	text[63] = 'x';
	cr_assert_eq(read_text(text), -EINVAL);
	cr_assert_eq(read_text(""), -EINVAL);
	snprintf(text, sizeof text, "%063d\n", 7);
	cr_assert_eq(read_text(text), -EINVAL);
	snprintf(text, sizeof text, "%065d\n", 7);
	cr_assert_eq(read_text(text), -EINVAL);
	snprintf(text, sizeof text, "%064d\n\n", 7);
	cr_assert_eq(read_text(text), -EINVAL);
}

Test(local_token, none_equals_nothing)
{
	char a[LOCAL_TOKEN_SIZE], b[LOCAL_TOKEN_SIZE];
	cr_assert_not(local_token_equal("", ""));
	snprintf(a, sizeof a, "%064d", 1);
	cr_assert_not(local_token_equal(a, ""));
	cr_assert_not(local_token_equal("", a));
	for (int i = 0; i < LOCAL_TOKEN_CHARS; i++) {
		snprintf(b, sizeof b, "%s", a);
		b[i] ^= 1;
		cr_expect_not(local_token_equal(a, b), "differs at %d", i);
	}
}
