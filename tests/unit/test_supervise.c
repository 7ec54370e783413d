/* test_supervise.c - processes started, restarted and ended; shell scripts play their parts. */
#include "base/clock.h"
#include "cli/process.h"
#include "cli/supervise.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* $2 is the number of the ready descriptor; sh itself redirects to one digit only. */
#define SAY(line) "echo '" line "' >/proc/self/fd/$2; "
#define READY     SAY("{\"ready\": true, \"jobs\": \"here\"}")
#define WAIT      "exec sleep 60"

static char dir[64], why[512];
static int end_pipe[2];
static int n_ready;

static void set_up(void)
{
	strcpy(dir, "/tmp/test_supervise_XXXXXX");
	cr_assert(mkdtemp(dir));
	cr_assert_eq(chdir(dir), 0);
	cr_assert_eq(pipe(end_pipe), 0);
}

static void tear_down(void)
{
	unlink("controller.log");
	unlink("worker.log");
	unlink("note");
	rmdir(dir);
}

TestSuite(supervise, .init = set_up, .fini = tear_down, .timeout = 30);

static void end_when_ready(void *user, const json_t *line)
{
	(void)user;
	cr_expect_str_eq(json_string_value(json_object_get(line, "jobs")), "here");
	n_ready++;
	close(end_pipe[1]);
}

static int run_with(const char *controller, const char *worker, int64_t grace_us,
		    void (*on_ready)(void *, const json_t *))
{
	char *c[] = {"/bin/sh", "-c", (char *)controller, "controller", NULL};
	char *w[] = {"/bin/sh", "-c", (char *)worker, "worker", NULL};
	char **workers[] = {w};
	struct supervise_config cfg = {
		.controller = c,
		.workers = workers,
		.n_workers = 1,
		.log_dir = dir,
		.end_fd = end_pipe[0],
		.grace_us = grace_us,
		.on_ready = on_ready,
	};
	why[0] = '\0';
	return supervise(&cfg, why, sizeof why);
}

static int lines_of(const char *name)
{
	FILE *f = fopen(name, "r");
	int n = 0;
	for (int c; f && (c = getc(f)) != EOF;)
		n += c == '\n';
	if (f)
		fclose(f);
	return n;
}

Test(supervise, ends_in_order_when_told)
{
	cr_expect_eq(run_with(READY WAIT, WAIT, 5000000, end_when_ready), 0, "%s", why);
	cr_expect_eq(n_ready, 1);
}

Test(supervise, a_signal_ends_it_in_order)
{
	cr_expect_eq(run_with("kill -TERM $PPID; " WAIT, WAIT, 5000000, NULL), 0, "%s", why);
}

Test(supervise, what_does_not_end_is_killed_after_the_grace)
{
	int64_t begin = clock_us();
	cr_expect_eq(
		run_with("trap '' TERM; " READY "while :; do sleep 0.05; done", WAIT, 300000, end_when_ready),
		0, "%s", why);
	int64_t took = clock_us() - begin;
	cr_expect(took >= 300000 && took < 5000000, "took %lld us", (long long)took);
}

Test(supervise, an_error_of_the_controller_is_the_reason)
{
	cr_expect_lt(run_with(SAY("{\"error\": \"no such model\"}") "exit 1", WAIT, 5000000, NULL), 0);
	cr_expect_str_eq(why, "no such model");
}

Test(supervise, the_last_log_line_tells_why_the_controller_died)
{
	cr_expect_lt(run_with("echo first >&2; echo last words >&2; exit 3", WAIT, 5000000, NULL), 0);
	cr_expect_str_eq(why, "the controller ended (exit status 3): last words");
}

Test(supervise, what_is_no_json_is_passed_over)
{
	cr_expect_eq(run_with(SAY("garbage {") SAY("[]") READY WAIT, WAIT, 5000000, end_when_ready), 0, "%s",
		     why);
	cr_expect_eq(n_ready, 1);
}

Test(supervise, a_worker_that_dies_is_started_again)
{
	/* Ready once the third worker runs. */
	cr_expect_eq(
		run_with("while [ $(wc -l < note 2>/dev/null || echo 0) -lt 3 ]; do sleep 0.02; done; " READY
				 WAIT,
			 "echo x >> note; [ $(wc -l < note) -lt 3 ] && kill -9 $$; " WAIT, 5000000,
			 end_when_ready),
		0, "%s", why);
	cr_expect_eq(lines_of("note"), 3);
}

Test(supervise, a_worker_that_never_serves_is_given_up)
{
	cr_expect_lt(run_with(WAIT, "echo x >> note; echo out of luck >&2; exit 4", 5000000, NULL), 0);
	cr_expect_eq(lines_of("note"), 5);
	cr_expect(strstr(why, "5 times") && strstr(why, "exit status 4") && strstr(why, "out of luck"), "%s",
		  why);
}

Test(supervise, a_stopped_worker_is_killed_and_replaced)
{
	cr_expect_eq(
		run_with("while [ $(wc -l < note 2>/dev/null || echo 0) -lt 2 ]; do sleep 0.02; done; " READY
				 WAIT,
			 "echo x >> note; [ $(wc -l < note) -lt 2 ] && kill -STOP $$; " WAIT, 5000000,
			 end_when_ready),
		0, "%s", why);
	cr_expect_eq(lines_of("note"), 2);
}

Test(supervise, a_worker_that_the_controller_calls_lost_is_killed)
{
	cr_expect_eq(run_with("until [ -s note ]; do sleep 0.02; done; p=$(head -1 note); "
			      "echo \"{\\\"lost\\\": $p}\" >/proc/self/fd/$2; "
			      "while [ $(wc -l < note) -lt 2 ]; do sleep 0.02; done; " READY WAIT,
			      "echo $$ >> note; " WAIT, 5000000, end_when_ready),
		     0, "%s", why);
	cr_expect_eq(lines_of("note"), 2);
}

Test(supervise, children_inherit_nothing_but_what_is_meant_for_them)
{
	/* 0, 1, 2, and 3 for the listing itself; the controller's ready descriptor is extra. */
	cr_expect_eq(run_with("until [ -s note ]; do sleep 0.02; done; " READY WAIT,
			      "ls /proc/self/fd | tail -n +4 | tr '\\n' ' ' > note; " WAIT, 5000000,
			      end_when_ready),
		     0, "%s", why);
	FILE *f = fopen("note", "r");
	char text[64] = "";
	cr_assert(f && fgets(text, sizeof text, f));
	fclose(f);
	cr_expect_str_eq(text, "3 ");
}

Test(supervise, a_program_that_cannot_be_run_is_named)
{
	struct process p;
	char *argv[] = {"/nowhere/quern-worker", NULL};
	cr_expect_eq(process_start(&p, argv, -1, -1, why, sizeof why), -ENOENT);
	cr_expect(strstr(why, "/nowhere/quern-worker"), "%s", why);
}
