/* Files that are replaced atomically. */
#include "base/replace.h"

#include "base/file.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <signal.h>
#include <unistd.h>

static char dir[64], path[128];

static void open_dir(void)
{
	strcpy(dir, "/tmp/quern-replace-XXXXXX");
	cr_assert(mkdtemp(dir));
	snprintf(path, sizeof path, "%s/file", dir);
}

static void put(const char *text)
{
	FILE *f = fopen(path, "w");
	fputs(text, f);
	fclose(f);
}

static void expect(const char *text, int files)
{
	struct why why;
	char *got;
	size_t n;
	int found = -2; /* . and .. */
	cr_assert_eq(file_read(path, 1 << 20, &got, &n, &why), 0, "%s", why.text);
	cr_expect_str_eq(got, text);
	free(got);
	DIR *d = opendir(dir);
	while (readdir(d))
		found++;
	closedir(d);
	cr_expect_eq(found, files);
}

static void close_dir(void)
{
	unlink(path);
	rmdir(dir);
}

TestSuite(replace, .init = open_dir, .fini = close_dir);

Test(replace, a_folder_that_cannot_be_synced_is_no_error)
{
	struct replace r;
	struct rlimit before, none_left;
	struct why why;
	put("old");
	cr_assert_eq(replace_begin(&r, path, 0666, &why), 0, "%s", why.text);
	fputs("new", r.f);
	getrlimit(RLIMIT_NOFILE, &before);
	none_left = before;
	none_left.rlim_cur = 0; /* the folder cannot be opened */
	cr_assert_eq(setrlimit(RLIMIT_NOFILE, &none_left), 0);
	const int rc = replace_end(&r, &why);
	setrlimit(RLIMIT_NOFILE, &before);
	cr_expect_eq(rc, 0, "%s", why.text);
	expect("new", 1);
}

Test(replace, the_new_file_appears_as_a_whole)
{
	struct replace r;
	struct stat s;
	struct why why;
	put("old");
	umask(027);
	cr_assert_eq(replace_begin(&r, path, 0666, &why), 0, "%s", why.text);
	fputs("new", r.f);
	fflush(r.f);
	expect("old", 2);
	cr_assert_eq(replace_end(&r, &why), 0, "%s", why.text);
	expect("new", 1);
	cr_expect(stat(path, &s) == 0 && (s.st_mode & 0777) == 0640);
	replace_drop(&r);
}

Test(replace, what_is_dropped_leaves_the_old_file)
{
	struct replace r;
	struct why why;
	put("old");
	cr_assert_eq(replace_begin(&r, path, 0600, &why), 0, "%s", why.text);
	fputs("new", r.f);
	replace_drop(&r);
	expect("old", 1);
}

/* FILE.new may be a file of the user. */
Test(replace, other_files_of_the_folder_stay_as_they_are)
{
	struct replace r;
	struct why why;
	char other[160];
	struct stat s;
	put("old");
	snprintf(other, sizeof other, "%s.new", path);
	cr_assert_eq(link(path, other), 0);
	cr_assert_eq(replace_begin(&r, path, 0600, &why), 0, "%s", why.text);
	cr_assert_eq(replace_end(&r, &why), 0, "%s", why.text);
	cr_expect(stat(other, &s) == 0 && s.st_size == 3);
	unlink(other);
	expect("", 1);
}

Test(replace, a_failed_write_leaves_the_old_file)
{
	struct replace r;
	struct why why = {""};
	put("old");
	signal(SIGXFSZ, SIG_IGN);
	setrlimit(RLIMIT_FSIZE, &(struct rlimit){10, RLIM_INFINITY});
	cr_assert_eq(replace_begin(&r, path, 0600, &why), 0, "%s", why.text);
	for (int i = 0; i < 20; i++) {
		putc('x', r.f);
		fflush(r.f);
	}
	/* The last write succeeds, but the earlier failure counts. */
	setrlimit(RLIMIT_FSIZE, &(struct rlimit){RLIM_INFINITY, RLIM_INFINITY});
	cr_expect_lt(replace_end(&r, &why), 0);
	cr_expect(strstr(why.text, "cannot be written"), "%s", why.text);
	expect("old", 1);
}

Test(replace, a_folder_that_is_missing_is_named)
{
	struct replace r;
	struct why why = {""};
	cr_expect_eq(replace_begin(&r, "/nowhere/file", 0600, &why), -ENOENT);
	cr_expect_str_eq(why.text, "/nowhere/file cannot be written: No such file or directory");
	replace_drop(&r);
}
