/* test_process.c - programs that `quern` starts: their output, exit status, and absence. */
#include "cli/process.h"

#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <errno.h>
#include <string.h>
#include <sys/wait.h>

/* Runs a shell command. Returns its exit status; out gets its output. */
static int shell(const char *command, struct buf *out)
{
	struct why why;
	char sh[] = "/bin/sh", c[] = "-c", *argv[] = {sh, c, (char *)command, NULL};
	int status = -1;
	cr_assert_eq(process_output(argv, out, &status, &why), 0, "%s", why.text);
	return status;
}

Test(process, output_is_collected_with_the_exit_status, .init = cr_redirect_stderr)
{
	struct buf out = {0};
	int status = shell("printf one; printf two >&2; printf three; exit 3", &out);
	cr_assert(WIFEXITED(status));
	cr_assert_eq(WEXITSTATUS(status), 3);
	cr_assert_eq(out.len, strlen("onethree"));
	cr_assert_eq(memcmp(out.p, "onethree", out.len), 0);
	buf_fini(&out);
}

Test(process, output_larger_than_a_pipe_arrives_whole)
{
	struct buf out = {0};
	cr_assert_eq(shell("head -c 300000 /dev/zero", &out), 0);
	cr_assert_eq(out.len, 300000);
	buf_fini(&out);
}

Test(process, output_stdin_is_empty)
{
	struct buf out = {0};
	cr_assert_eq(shell("cat; echo end", &out), 0);
	cr_assert_eq(out.len, strlen("end\n"));
	buf_fini(&out);
}

Test(process, output_of_a_killed_program_ends_with_its_signal)
{
	struct buf out = {0};
	char text[64];
	int status = shell("kill -KILL $$", &out);
	cr_assert_str_eq(process_status_text(status, text, sizeof text), "killed by SIGKILL");
	buf_fini(&out);
}

Test(process, output_of_a_missing_program_names_it)
{
	struct why why;
	char program[] = "/nonexistent/quern-worker", *argv[] = {program, NULL};
	struct buf out = {0};
	int status;
	cr_assert_eq(process_output(argv, &out, &status, &why), -ENOENT);
	cr_assert(strstr(why.text, program));
	cr_assert_eq(out.len, 0);
}
