/* Working directories next to results have one owner at a time; the next run takes over a killed run's
 * directory. */
#include "quant/writer/own_dir.h"

#include "base/file.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RUNS = 4, TURNS = 20000 };

static const char mark[] = ".mark";
static struct why why;
static char folder[64], dir[96];

static void setup(void)
{
	snprintf(folder, sizeof folder, "/tmp/quern-own-dir-XXXXXX");
	cr_assert(mkdtemp(folder));
	snprintf(dir, sizeof dir, "%s/dst.trial", folder);
}

static void teardown(void)
{
	cr_expect_eq(rmdir(folder), 0, "something is left behind");
}

static void put(const char *name)
{
	char path[128];
	snprintf(path, sizeof path, "%s/%s", dir, name);
	const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0666);
	cr_assert(fd >= 0, "%s: %s", path, strerror(errno));
	close(fd);
}

static int take(int *fd)
{
	return own_dir_take(dir, "dst", mark, fd, &why);
}

Test(own_dir, another_run_waits_and_leaves_it_alone, .init = setup, .fini = teardown)
{
	int mine, other;
	cr_assert_eq(take(&mine), 0, "%s", why.text);
	put("model");
	cr_expect_eq(take(&other), -EBUSY);
	cr_expect_eq(other, -1);
	cr_expect_str_eq(why.text, "dst is being written by another run: wait for its end");
	own_dir_remove(dir, mark, &other);
	cr_expect(!own_dir_is_empty(mine, mark));
	own_dir_remove(dir, mark, &mine);
	cr_expect_eq(mine, -1);
	cr_expect(!file_is_dir(dir));
}

Test(own_dir, what_a_killed_run_left_is_emptied, .init = setup, .fini = teardown)
{
	int fd;
	char model[128];
	cr_assert_eq(take(&fd), 0, "%s", why.text);
	snprintf(model, sizeof model, "%s/model", dir);
	cr_assert_eq(mkdir(model, 0777), 0);
	put("model/config.json");
	put("half");
	close(fd); /* as at the end of the process */
	cr_assert_eq(take(&fd), 0, "%s", why.text);
	cr_expect(own_dir_is_empty(fd, mark));
	cr_expect(!own_dir_is_empty(fd, NULL));
	own_dir_remove(dir, mark, &fd);
}

Test(own_dir, a_directory_of_somebody_else_is_refused, .init = setup, .fini = teardown)
{
	int fd;
	char path[128];
	cr_assert_eq(mkdir(dir, 0777), 0);
	put("mine");
	cr_expect_eq(take(&fd), -EEXIST);
	cr_expect_eq(fd, -1);
	cr_expect(strstr(why.text, "is not what a run left behind"));
	snprintf(path, sizeof path, "%s/mine", dir);
	cr_expect_eq(unlink(path), 0, "it is gone");
	cr_assert_eq(take(&fd), 0, "an empty one is taken: %s", why.text);
	own_dir_remove(dir, mark, &fd);
}

/* Each process takes the directory repeatedly and must be its only owner: only one can create the file in
 * it. */
static int one_run(void)
{
	for (int i = 0; i < TURNS; i++) {
		char path[128];
		int fd;
		const int rc = take(&fd);
		if (rc == -EBUSY)
			continue;
		if (rc)
			return 1;
		snprintf(path, sizeof path, "%s/only", dir);
		const int only = open(path, O_WRONLY | O_CREAT | O_EXCL, 0666);
		if (only < 0)
			return 2;
		close(only);
		if (unlink(path))
			return 3;
		own_dir_remove(dir, mark, &fd);
	}
	return 0;
}

Test(own_dir, of_runs_that_come_and_go_one_has_it, .init = setup, .fini = teardown)
{
	pid_t runs[RUNS];
	for (int i = 0; i < RUNS; i++)
		if ((runs[i] = fork()) == 0)
			_exit(one_run());
	for (int i = 0; i < RUNS; i++) {
		int status;
		cr_assert_eq(waitpid(runs[i], &status, 0), runs[i]);
		cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, "run %d ended with %x", i,
			  (unsigned)status);
	}
}
