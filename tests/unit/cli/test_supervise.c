/* test_supervise.c - processes are started, restarted and ended; shell scripts replace the programs. */
#include "base/clock.h"
#include "cli/terminal/notify.h"
#include "cli/process.h"
#include "cli/supervise.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* $2 is the number of the ready descriptor; sh itself redirects to one digit only. */
#define SAY(line) "echo '" line "' >/proc/self/fd/$2; "
#define READY     SAY("{\"ready\": true, \"jobs\": \"here\"}")
#define ALIVE     SAY("{\"alive\": true}")
#define WAIT      "exec sleep 60"
/* When told to end, the program waits for these jobs. */
#define DRAINS    "trap '" DRAINING "exit 0' TERM; "
#define DRAINING                                                                                             \
	"echo {\\\"draining\\\": {\\\"jobs\\\": 2, \\\"requests\\\": 1, \\\"seconds\\\": 30}} "              \
	">/proc/self/fd/$2; "

static struct why why;
static char dir[64];
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
	unlink("args");
	unlink("go");
	unlink("sh");
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

static const char *worker_script;
static size_t group;
static const char *controller_program = "/bin/sh";
/* The worker's program is missing at starts missing_first to missing_last - 1. */
static int n_starts, missing_first, missing_last;

/* Arguments of the worker: $1 device, $2 number of workers on the device, $3 the worker's fraction of
 * memory. */
static char **worker_argv(void *launch, const char *device, size_t n, double memory_fraction)
{
	char number[16], part[16];
	char **argv = calloc(8, sizeof *argv);
	(void)launch;
	snprintf(number, sizeof number, "%zu", n);
	snprintf(part, sizeof part, "%g", memory_fraction);
	n_starts++;
	argv[0] =
		strdup(n_starts >= missing_first && n_starts < missing_last ? "/nowhere/worker" : "/bin/sh");
	argv[1] = strdup("-c");
	argv[2] = strdup(worker_script);
	argv[3] = strdup("worker");
	argv[4] = strdup(device);
	argv[5] = strdup(number);
	argv[6] = strdup(part);
	return argv;
}

static struct notify *notify; /* NULL: no service manager */
static int64_t alive_us;

static int run_n(const char *controller, const char *worker, size_t n_workers, int64_t grace_us,
		 void (*on_ready)(void *, const json_t *))
{
	char *c[] = {(char *)controller_program, "-c", (char *)controller, "controller", NULL};
	static const struct device_name devices[] = {{"cpu:0"}, {"cpu:1"}};
	worker_script = worker;
	struct supervise_config cfg = {
		.controller = c,
		.worker_argv = worker_argv,
		.devices = devices,
		.n_devices = 2,
		.n_workers = n_workers,
		.group = group,
		.log_dir = dir,
		.end_fd = end_pipe[0],
		.grace_us = grace_us,
		.on_ready = on_ready,
		.notify = notify,
		.alive_us = alive_us,
	};
	why.text[0] = '\0';
	return supervise(&cfg, &why);
}

static int run_with(const char *controller, const char *worker, int64_t grace_us,
		    void (*on_ready)(void *, const json_t *))
{
	return run_n(controller, worker, 1, grace_us, on_ready);
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

Test(supervise, end_fd_ends_it_in_order)
{
	cr_expect_eq(run_with(READY WAIT, WAIT, 5000000, end_when_ready), 0, "%s", why.text);
	cr_expect_eq(n_ready, 1);
}

Test(supervise, a_signal_ends_it_in_order)
{
	cr_expect_eq(run_with("kill -TERM $PPID; " WAIT, WAIT, 5000000, NULL), 0, "%s", why.text);
}

Test(supervise, processes_that_linger_are_killed_after_the_grace)
{
	int64_t begin = clock_us();
	cr_expect_eq(
		run_with("trap '' TERM; " READY "while :; do sleep 0.05; done", WAIT, 300000, end_when_ready),
		0, "%s", why.text);
	int64_t took = clock_us() - begin;
	cr_expect_geq(took, 300000, "took %lld us", (long long)took);
}

Test(supervise, an_error_of_the_controller_is_the_reason)
{
	cr_expect_lt(run_with(SAY("{\"error\": \"no such model\"}") "exit 1", WAIT, 5000000, NULL), 0);
	cr_expect_str_eq(why.text, "no such model");
}

Test(supervise, the_last_log_line_is_the_reason_of_a_dead_controller)
{
	cr_expect_lt(run_with("echo first >&2; echo last words >&2; exit 3", WAIT, 5000000, NULL), 0);
	cr_expect_str_eq(why.text, "the controller ended (exit status 3): last words");
}

Test(supervise, lines_that_are_not_json_are_ignored)
{
	cr_expect_eq(run_with(SAY("garbage {") SAY("[]") READY WAIT, WAIT, 5000000, end_when_ready), 0, "%s",
		     why.text);
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
		0, "%s", why.text);
	cr_expect_eq(lines_of("note"), 3);
}

Test(supervise, a_worker_that_never_serves_is_given_up)
{
	cr_expect_lt(run_with(WAIT, "echo x >> note; echo out of luck >&2; exit 4", 5000000, NULL), 0);
	cr_expect_eq(lines_of("note"), 5);
	cr_expect(strstr(why.text, "5 times") && strstr(why.text, "exit status 4") &&
			  strstr(why.text, "out of luck"),
		  "%s", why.text);
}

Test(supervise, a_stopped_worker_is_killed_and_replaced)
{
	cr_expect_eq(
		run_with("while [ $(wc -l < note 2>/dev/null || echo 0) -lt 2 ]; do sleep 0.02; done; " READY
				 WAIT,
			 "echo x >> note; [ $(wc -l < note) -lt 2 ] && kill -STOP $$; " WAIT, 5000000,
			 end_when_ready),
		0, "%s", why.text);
	cr_expect_eq(lines_of("note"), 2);
}

Test(supervise, a_worker_reported_lost_is_killed)
{
	cr_expect_eq(run_with("until [ -s note ]; do sleep 0.02; done; p=$(head -1 note); "
			      "echo \"{\\\"lost\\\": $p}\" >/proc/self/fd/$2; "
			      "while [ $(wc -l < note) -lt 2 ]; do sleep 0.02; done; " READY WAIT,
			      "echo $$ >> note; " WAIT, 5000000, end_when_ready),
		     0, "%s", why.text);
	cr_expect_eq(lines_of("note"), 2);
}

Test(supervise, children_inherit_only_their_descriptors)
{
	/* 0, 1, 2, and 3 for the listing itself; the controller's ready descriptor is not inherited. */
	cr_expect_eq(run_with("until [ -s note ]; do sleep 0.02; done; " READY WAIT,
			      "ls /proc/self/fd | tail -n +4 | tr '\\n' ' ' > note; " WAIT, 5000000,
			      end_when_ready),
		     0, "%s", why.text);
	FILE *f = fopen("note", "r");
	char text[64] = "";
	cr_assert(f && fgets(text, sizeof text, f));
	fclose(f);
	cr_expect_str_eq(text, "3 ");
}

/* A controller that records its arguments and reports ready, first on ports that it chose. */
#define NOTE_ARGS "echo \"$*\" >> args; "
#define CHOSEN                                                                                               \
	SAY("{\"ready\": true, \"jobs\": \"here\", \"http\": \"\", \"metrics_http\": \"m:1\", \"bus\": "     \
	    "\"ipc:///there\"}")
#define AFTER(n, file) "while [ $(wc -l < " file " 2>/dev/null || echo 0) -lt " #n " ]; do sleep 0.02; done; "

static void end_at_the_second(void *user, const json_t *line)
{
	(void)user, (void)line;
	if (++n_ready == 2)
		close(end_pipe[1]);
}

Test(supervise, a_controller_that_dies_is_restarted_on_its_endpoints)
{
	char first[256], second[256];
	cr_expect_eq(run_with(NOTE_ARGS AFTER(1, "note") CHOSEN
			      "[ $(wc -l < args) -lt 2 ] && kill -9 $$; " WAIT,
			      "echo x >> note; " WAIT, 5000000, end_at_the_second),
		     0, "%s", why.text);
	FILE *f = fopen("args", "r");
	cr_assert(f && fgets(first, sizeof first, f) && fgets(second, sizeof second, f));
	fclose(f);
	cr_expect_null(strstr(first, "--jobs"), "%s", first);
	cr_expect(strstr(second, "--jobs here --http none --metrics-http m:1 --bus ipc:///there"), "%s",
		  second);
	cr_expect_eq(lines_of("note"), 1, "the worker was kept");
}

Test(supervise, a_controller_that_no_longer_serves_is_given_up)
{
	cr_expect_lt(run_with(NOTE_ARGS "[ $(wc -l < args) -gt 1 ] && { echo no more >&2; exit 3; }; " AFTER(
				      1, "note") CHOSEN "kill -9 $$",
			      "echo x >> note; " WAIT, 5000000, NULL),
		     0);
	cr_expect_eq(lines_of("args"), 6);
	cr_expect(strstr(why.text, "controller ended 5 times") && strstr(why.text, "no more"), "%s",
		  why.text);
}

Test(supervise, an_error_of_a_later_controller_is_followed_by_a_restart)
{
	cr_expect_eq(run_with(NOTE_ARGS AFTER(1, "note") "case $(wc -l < args) in 1) " CHOSEN
							 "kill -9 $$;; 2) " SAY("{\"error\": \"in use\"}")
								 WAIT ";; *) " CHOSEN WAIT ";; esac",
			      "echo x >> note; " WAIT, 5000000, end_at_the_second),
		     0, "%s", why.text);
	cr_expect_eq(lines_of("args"), 3);
}

Test(supervise, a_stopped_controller_is_killed_and_replaced)
{
	cr_expect_eq(run_with(NOTE_ARGS AFTER(1, "note") CHOSEN
			      "[ $(wc -l < args) -lt 2 ] && kill -STOP $$; " WAIT,
			      "echo x >> note; " WAIT, 5000000, end_at_the_second),
		     0, "%s", why.text);
	cr_expect_eq(lines_of("args"), 2);
}

static int lines_with(const char *file, const char *text)
{
	char line[64];
	int n = 0;
	FILE *f = fopen(file, "r");
	while (f && fgets(line, sizeof line, f))
		n += strstr(line, text) != NULL;
	if (f)
		fclose(f);
	return n;
}

Test(supervise, workers_are_assigned_to_the_devices_in_turn)
{
	cr_expect_eq(run_n(AFTER(3, "note") READY WAIT, "echo $1 of $2 >> note; " WAIT, 3, 5000000,
			   end_when_ready),
		     0, "%s", why.text);
	cr_expect_eq(lines_with("note", "cpu:0 of 2"), 2);
	cr_expect_eq(lines_with("note", "cpu:1 of 1"), 1);
}

Test(supervise, scaling_starts_missing_workers)
{
	cr_expect_eq(run_with(AFTER(1, "note") SAY("{\"scale\": {\"workers\": 3, \"devices\": [\"cpu:0\"]}}")
				      SAY("{\"scale\": {\"workers\": 3, \"devices\": [\"cpu:0\"]}}") AFTER(
					      3, "note")
					      SAY("{\"scale\": {\"workers\": 1}}") "sleep 0.3; " READY WAIT,
			      "echo $1 >> note; " WAIT, 5000000, end_when_ready),
		     0, "%s", why.text);
	cr_expect_eq(lines_of("note"), 3);
}

Test(supervise, a_new_worker_may_have_its_own_part_of_a_device)
{
	cr_expect_eq(run_with(AFTER(1, "note") SAY("{\"scale\": {\"workers\": 3, \"devices\": [\"cpu:0\"], "
						   "\"memory_fraction\": 0.25}}") AFTER(3, "note") READY WAIT,
			      "echo $1 $3 >> note; " WAIT, 5000000, end_when_ready),
		     0, "%s", why.text);
	cr_expect_eq(lines_with("note", "cpu:0 0.25"), 2);
	cr_expect_eq(lines_with("note", "cpu:0 0"), 3); /* one line serves all workers of the device */
}

Test(supervise, an_invalid_scale_is_ignored)
{
	cr_expect_eq(run_with(AFTER(1, "note") SAY("{\"scale\": {\"workers\": -3}}") SAY(
				      "{\"scale\": {\"workers\": 99999999}}") SAY("{\"scale\": []}")
				      SAY("{\"retire\": -1}") SAY("{\"retire\": 1}") "sleep 0.3; " READY WAIT,
			      "echo $1 >> note; " WAIT, 5000000, end_when_ready),
		     0, "%s", why.text);
	cr_expect_eq(lines_of("note"), 1);
}

Test(supervise, a_retired_worker_is_not_started_again)
{
	cr_expect_eq(
		run_with(AFTER(1,
			       "note") "p=$(head -1 note); echo \"{\\\"retire\\\": $p}\" >/proc/self/fd/$2; "
				       "sleep 0.3; kill $p; sleep 1; " READY WAIT,
			 "echo $$ >> note; " WAIT, 5000000, end_when_ready),
		0, "%s", why.text);
	cr_expect_eq(lines_of("note"), 1);
}

Test(supervise, a_worker_that_never_serves_is_given_up_while_others_serve)
{
	cr_expect_eq(
		run_n(AFTER(1, "note") READY
		      "sleep 0.2; " SAY("{\"scale\": {\"workers\": 2, \"devices\": [\"cpu:0\", \"cuda:0\"]}}")
			      AFTER(6, "note") "sleep 1; " READY WAIT,
		      "echo $1 >> note; [ $1 = cpu:0 ] && " WAIT "; exit 4", 1, 5000000, end_at_the_second),
		0, "%s", why.text);
	cr_expect_eq(lines_with("note", "cuda:0"), 5);
	cr_expect_eq(lines_with("note", "cpu:0"), 1);
}

/* Scripts wait for the file `go`, which appears when the supervisor knows that the service was ready. */
static void go(void *user, const json_t *line)
{
	(void)user, (void)line;
	FILE *f = fopen("go", "w");
	cr_assert(f);
	fclose(f);
}
static void go_then_end(void *user, const json_t *line)
{
	if (++n_ready == 1)
		go(user, line);
	else
		close(end_pipe[1]);
}

#define WAIT_GO "until [ -e go ]; do sleep 0.02; done; "

Test(supervise, an_incomplete_group_does_not_serve)
{
	group = 2;
	cr_expect_lt(run_n(AFTER(2, "note") READY WAIT,
			   "echo $1 >> note; [ $1 = cpu:1 ] && " WAIT "; " WAIT_GO "exit 4", 2, 5000000, go),
		     0);
	cr_expect(strstr(why.text, "cpu:0 died 5 times") && strstr(why.text, "exit status 4"), "%s",
		  why.text);
	cr_expect_eq(lines_with("note", "cpu:1"), 1);
}

Test(supervise, a_group_serves_without_a_worker_that_is_given_up)
{
	group = 2;
	cr_expect_eq(run_n(AFTER(3, "note") READY AFTER(8, "note") "sleep 1; " READY WAIT,
			   "echo $1 >> note; [ $1 = cpu:0 ] && " WAIT "; " WAIT_GO "exit 4", 3, 5000000,
			   go_then_end),
		     0, "%s", why.text);
	cr_expect_eq(lines_with("note", "cpu:1"), 6);
	cr_expect_eq(lines_with("note", "cpu:0"), 2);
}

/* The first worker dies after the service was ready; the next ones stay. */
#define DIES_ONCE "echo x >> note; [ $(wc -l < note) = 1 ] && { " WAIT_GO "exit 4; }; " WAIT

Test(supervise, a_worker_that_cannot_be_started_is_retried)
{
	missing_first = 2;
	missing_last = 3;
	cr_expect_eq(
		run_with(AFTER(1, "note") READY AFTER(2, "note") READY WAIT, DIES_ONCE, 5000000, go_then_end),
		0, "%s", why.text);
	cr_expect_eq(lines_of("note"), 2);
	cr_expect_eq(n_starts, 3);
}

Test(supervise, a_worker_that_can_no_longer_be_started_is_given_up_with_the_reason)
{
	missing_first = 2;
	missing_last = 1000;
	cr_expect_lt(run_with(AFTER(1, "note") READY WAIT, DIES_ONCE, 5000000, go), 0);
	cr_expect(strstr(why.text, "5 times") && strstr(why.text, "cannot run /nowhere/worker"), "%s",
		  why.text);
	cr_expect_eq(n_starts, 6);
}

Test(supervise, a_first_worker_that_cannot_be_started_ends_the_service)
{
	missing_first = 1;
	missing_last = 1000;
	cr_expect_lt(run_with(WAIT, WAIT, 5000000, NULL), 0);
	cr_expect_eq(strncmp(why.text, "cannot run /nowhere/worker", 26), 0, "%s", why.text);
	cr_expect_eq(n_starts, 1);
}

Test(supervise, a_controller_that_cannot_be_started_is_retried)
{
	cr_assert_eq(symlink("/bin/sh", "sh"), 0);
	controller_program = "./sh";
	cr_expect_eq(run_with(NOTE_ARGS AFTER(1, "note") CHOSEN
			      "[ $(wc -l < args) = 1 ] && { rm sh; kill -9 $$; }; " WAIT,
			      "echo x >> note; while [ -e sh ]; do sleep 0.02; done; sleep 0.5; ln -s "
			      "/bin/sh sh; " WAIT,
			      5000000, end_at_the_second),
		     0, "%s", why.text);
	cr_expect_eq(lines_of("args"), 2);
	cr_expect_eq(lines_of("note"), 1, "the worker was kept");
}

/* The service is ready after 2 s, so a worker must then run for 4.5 s to count as having served. */
#define SLOW_READY "sleep 2; " READY

Test(supervise, a_worker_is_given_up_while_another_still_loads)
{
	cr_expect_eq(run_n(AFTER(2, "note") SLOW_READY AFTER(8, "note") "sleep 1; " READY WAIT,
			   "echo $1 >> note; [ $1 = cpu:0 -a -e go ] && " WAIT "; " WAIT_GO "exit 4", 2,
			   5000000, go_then_end),
		     0, "%s", why.text);
	cr_expect_eq(lines_with("note", "cpu:0"), 2);
	cr_expect_eq(lines_with("note", "cpu:1"), 6);
}

Test(supervise, the_service_ends_when_all_workers_are_given_up)
{
	cr_expect_lt(run_n(AFTER(2, "note") SLOW_READY WAIT,
			   "echo $1 >> note; " WAIT_GO "[ $1 = cpu:0 ] && sleep 0.2; exit 4", 2, 5000000, go),
		     0);
	cr_expect(strstr(why.text, "cpu:0 died 5 times"), "%s", why.text);
	cr_expect_eq(lines_with("note", "cpu:0"), 6);
}

Test(supervise, a_worker_given_up_before_service_ends_the_service)
{
	cr_expect_lt(run_n(WAIT, "[ $1 = cpu:0 ] && " WAIT "; exit 4", 2, 5000000, NULL), 0);
	cr_expect(strstr(why.text, "cpu:1 died 5 times"), "%s", why.text);
}

Test(supervise, a_first_worker_that_cannot_serve_is_the_reason)
{
	cr_expect_lt(run_with(SAY("{\"failed\": \"no such weights\"}") WAIT, WAIT, 5000000, NULL), 0);
	cr_expect_str_eq(why.text, "no such weights");
}

Test(supervise, a_later_worker_that_cannot_serve_costs_no_controller)
{
	cr_expect_eq(
		run_with(NOTE_ARGS AFTER(
				 1, "note") "[ $(wc -l < args) = 1 ] && { " CHOSEN
					    "kill -9 $$; }; " SAY(
						    "{\"failed\": \"broken\"}") "sleep 0.5; " CHOSEN WAIT,
			 "echo x >> note; " WAIT, 5000000, end_at_the_second),
		0, "%s", why.text);
	cr_expect_eq(lines_of("args"), 2);
}

/* Retires the first worker of the list, which then ends. */
#define RETIRE_P "p=$(head -1 note); echo \"{\\\"retire\\\": $p}\" >/proc/self/fd/$2; "
#define SCALE(n) SAY("{\"scale\": {\"workers\": " #n "}}")

/* The retired worker still runs, but is about to end. The second worker never serves, so no worker is
 * left. */
Test(supervise, a_retired_worker_does_not_keep_the_service_up)
{
	cr_expect_lt(run_n(AFTER(1, "note") READY RETIRE_P SCALE(1) WAIT,
			   "echo $$ >> note; [ $(wc -l < note) = 1 ] && exec sleep 60; exit 4", 1, 5000000,
			   NULL),
		     0);
	cr_expect(strstr(why.text, "died 5 times"), "%s", why.text);
	cr_expect_eq(lines_of("note"), 6);
}

Test(supervise, a_worker_beyond_the_table_is_started_when_another_ends)
{
	cr_expect_eq(run_n(AFTER(64, "note") RETIRE_P SCALE(64) "sleep 0.5; kill $p; " AFTER(65, "note")
				   READY WAIT,
			   "echo $$ >> note; " WAIT, SUPERVISE_WORKERS_MAX, 5000000, end_when_ready),
		     0, "%s", why.text);
	cr_expect_eq(lines_of("note"), 65);
}

Test(supervise, a_scale_may_count_a_worker_about_to_end)
{
	cr_expect_eq(run_n(AFTER(64, "note") SCALE(65) RETIRE_P
			   "sleep 0.5; kill $p; " AFTER(65, "note") "sleep 0.5; " READY WAIT,
			   "echo $$ >> note; " WAIT, SUPERVISE_WORKERS_MAX, 5000000, end_when_ready),
		     0, "%s", why.text);
	cr_expect_eq(lines_of("note"), 65);
}

Test(supervise, a_later_scale_replaces_an_earlier_one)
{
	cr_expect_eq(run_n(AFTER(64, "note") SCALE(66) SCALE(64) RETIRE_P
			   "sleep 0.5; kill $p; sleep 1; " READY WAIT,
			   "echo $$ >> note; " WAIT, SUPERVISE_WORKERS_MAX, 5000000, end_when_ready),
		     0, "%s", why.text);
	cr_expect_eq(lines_of("note"), 64);
}

/* Keeps only the process on cpu:0. Its PID is in the lines that workers write: DEVICE PID. */
#define KEEP_CPU0 "echo \"{\\\"keep\\\": [$(grep cpu:0 note | cut -d' ' -f2)]}\" >/proc/self/fd/$2; "

Test(supervise, a_worker_that_is_not_kept_is_not_started_again)
{
	cr_expect_eq(run_n(AFTER(2, "note") "kill -9 $(grep cpu:1 note | cut -d' ' -f2); " KEEP_CPU0
					    "sleep 1; while kill -0 $(grep cpu:1 note | cut -d' ' -f2 | tail "
					    "-n 1); do "
					    "sleep 0.02; done; " READY WAIT,
			   "echo $1 $$ >> note; " WAIT, 2, 5000000, end_when_ready),
		     0, "%s", why.text);
	cr_expect_eq(lines_with("note", "cpu:0"), 1);
}

Test(supervise, a_worker_that_runs_and_is_not_kept_is_ended)
{
	cr_expect_eq(run_n(AFTER(2, "note") KEEP_CPU0 AFTER(3, "note") "sleep 1; " READY WAIT,
			   "echo $1 $$ >> note; trap 'echo ended >> note; exit 0' TERM; while :; do sleep "
			   "0.05; done",
			   2, 5000000, end_when_ready),
		     0, "%s", why.text);
	cr_expect_eq(lines_with("note", "cpu:1"), 1);
	cr_expect_eq(lines_with("note", "cpu:0"), 1);
}

/* The controller has not detected the death yet, or does not know the new process. */
Test(supervise, a_kept_worker_may_have_been_restarted)
{
	cr_expect_eq(
		run_n(AFTER(2, "note") "kill -9 $(grep cpu:0 note | cut -d' ' -f2); " AFTER(
			      3, "note") "p=$(grep -m 1 cpu:0 note | cut -d' ' -f2); q=$(grep cpu:1 note | "
					 "cut -d' ' -f2); "
					 "echo \"{\\\"keep\\\": [$p, $q]}\" >/proc/self/fd/$2; sleep 0.5; "
					 "kill -9 $(tail -n 1 note | cut -d' ' -f2); " AFTER(4, "note")
						 READY WAIT,
		      "echo $1 $$ >> note; " WAIT, 2, 5000000, end_when_ready),
		0, "%s", why.text);
	cr_expect_eq(lines_with("note", "cpu:0"), 3);
}

Test(supervise, a_program_that_cannot_be_run_is_named)
{
	struct process p;
	char *argv[] = {"/nowhere/quern-worker", NULL};
	cr_expect_eq(process_start(&p, argv, -1, -1, &why), -ENOENT);
	cr_expect(strstr(why.text, "/nowhere/quern-worker"), "%s", why.text);
}

/* ---- the service manager ---- */

static struct {
	int fd;
	pthread_t thread;
	struct notify notify;
	char states[4096];  /* the datagrams other than signs of life, each with a newline */
	atomic_int n_alive; /* signs of life */
	atomic_bool over;
} manager;

/* Receives datagrams. After half a second without any, creates the file `go`. */
static void *manage(void *unused)
{
	(void)unused;
	char one[1024];
	while (!manager.over) {
		ssize_t n = recv(manager.fd, one, sizeof one - 1, 0);
		if (n < 0) {
			close(open("go", O_CREAT | O_WRONLY, 0600));
			continue;
		}
		one[n] = '\0';
		if (strcmp(one, "WATCHDOG=1") == 0)
			manager.n_alive++;
		else
			strcat(strcat(manager.states, one), "\n");
	}
	return NULL;
}

static void open_manager(const char *watchdog_usec)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX, .sun_path = "notify"};
	struct timeval half = {.tv_usec = 500000};
	char path[128];
	manager.fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	cr_assert_eq(setsockopt(manager.fd, SOL_SOCKET, SO_RCVTIMEO, &half, sizeof half), 0);
	cr_assert_eq(bind(manager.fd, (struct sockaddr *)&at, sizeof at), 0);
	snprintf(path, sizeof path, "%s/notify", dir);
	struct environment env = {.notify_socket = path, .watchdog_usec = watchdog_usec};
	cr_assert_eq(notify_open(&manager.notify, &env, &why), 0, "%s", why.text);
	notify = &manager.notify;
	cr_assert_eq(pthread_create(&manager.thread, NULL, manage, NULL), 0);
}

static void close_manager(void)
{
	manager.over = true;
	pthread_join(manager.thread, NULL);
	close(manager.fd);
	notify_close(&manager.notify);
	unlink("notify");
}

Test(supervise, the_service_manager_learns_of_a_drain_and_the_end)
{
	long long us = 0;
	open_manager(NULL);
	int rc = run_with(DRAINS READY "while :; do sleep 0.01; done", WAIT, 1000000, end_when_ready);
	cr_expect_eq(rc, 0, "%s", why.text);
	close_manager();
	const char *extend = strstr(manager.states, "EXTEND_TIMEOUT_USEC=");
	cr_expect_not_null(strstr(manager.states, "STOPPING=1\nSTATUS=ends\n"), "%s", manager.states);
	cr_assert_not_null(extend, "%s", manager.states);
	cr_expect_eq(sscanf(extend, "EXTEND_TIMEOUT_USEC=%lld", &us), 1);
	cr_expect_eq(us, 32 * 1000000, "the drain, the grace before a kill and as long after it: %lld", us);
	cr_expect_not_null(strstr(extend, "STATUS=ends when 2 jobs and 1 HTTP requests have, or in 30 s\n"));
}

/* The first controller gives one sign of life, then hangs until the service manager misses the next one. The
 * second serves. */
Test(supervise, no_sign_of_life_for_a_controller_that_hangs)
{
	open_manager("20000");
	alive_us = 100 * 1000;
	int rc = run_with("echo >>note; " READY ALIVE "if [ $(wc -l <note) = 1 ]; then "
			  "while [ ! -e go ]; do sleep 0.05; done; kill -9 $$; fi; " WAIT,
			  WAIT, 1000000, end_at_the_second);
	cr_expect_eq(rc, 0, "%s", why.text);
	close_manager();
	cr_expect_gt(manager.n_alive, 0);
	cr_expect_not_null(strstr(manager.states,
				  "STATUS=the controller ended (killed by SIGKILL), and is started again\n"),
			   "%s", manager.states);
}

/* The supervisor repeats the controller's signs of life; the file `go` would show a gap. */
Test(supervise, signs_of_life_while_the_controller_gives_them)
{
	open_manager("20000");
	alive_us = 60 * 1000000LL;
	int rc = run_with(READY "for i in 1 2 3 4; do " ALIVE "sleep 0.2; done; " READY WAIT, WAIT, 1000000,
			  end_at_the_second);
	cr_expect_eq(rc, 0, "%s", why.text);
	close_manager();
	cr_expect_gt(manager.n_alive, 3);
}

Test(supervise, without_a_service_manager_nothing_is_sent)
{
	struct notify n;
	struct environment env = {.watchdog_usec = "1000"};
	cr_assert_eq(notify_open(&n, &env, &why), 0);
	cr_expect_eq(n.fd, -1);
	notify_send(&n, "READY=1");
	notify_alive(&n, 1);
	notify_close(&n);
}

Test(supervise, the_watchdog_of_another_process_is_not_answered)
{
	struct notify n;
	struct environment env = {
		.notify_socket = "@quern-test", .watchdog_usec = "1000", .watchdog_pid = "1"};
	cr_assert_eq(notify_open(&n, &env, &why), 0);
	cr_expect_eq(n.watchdog_us, 0);
	cr_expect_eq(n.to.sun_path[0], '\0', "the abstract namespace");
	notify_close(&n);
	env.watchdog_usec = "soon";
	env.watchdog_pid = NULL;
	cr_assert_eq(notify_open(&n, &env, &why), 0);
	cr_expect_eq(n.watchdog_us, 0);
	notify_close(&n);
}

Test(supervise, a_socket_that_is_none_is_refused_by_its_name)
{
	char longest[200] = "/";
	memset(longest + 1, 'x', sizeof longest - 2);
	const char *const names[] = {"run/notify", "/", longest};
	for (size_t i = 0; i < 3; i++) {
		struct notify n;
		struct environment env = {.notify_socket = names[i]};
		cr_expect_eq(notify_open(&n, &env, &why), -EINVAL);
		cr_expect_not_null(strstr(why.text, names[i]), "%s", why.text);
	}
}
