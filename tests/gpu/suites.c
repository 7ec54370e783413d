#include "tests/gpu/suites.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/err.h"

#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <errno.h>
#include <fnmatch.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TIMEOUT_S = 600, NAME_MAX_BYTES = 256 };

/* Message that a child sends for each test. */
enum verdict { BEGUN, PASSED, SKIPPED, FAILED };
struct message {
	int test; /* index in the list */
	enum verdict verdict;
};

struct entry {
	const struct criterion_test *test;
	const struct criterion_test_extra_data *suite; /* NULL: the suite sets nothing */
	void *param;                                   /* parameterized test: its parameter */
	char name[NAME_MAX_BYTES];
};

struct suites {
	struct entry *all;
	int n, cap;
	bool each;
	double timeout_s;
	int n_passed, n_failed, n_skipped;
};

/* Symbols that the linker sets around the sections where Criterion's headers put tests and suites. */
extern struct criterion_test *__start_cr_tst[], *__stop_cr_tst[];
extern struct criterion_suite *__start_cr_sts[] __attribute__((weak)), *__stop_cr_sts[] __attribute__((weak));

/* ---- functions that Criterion's headers call ---- */

struct criterion_options criterion_options;
static const struct entry *running; /* in a child: the running test */
static bool failed;
static sigjmp_buf skipped;

int cr_asprintf(char **out, const char *fmt, ...)
{
	va_list args;
	va_start(args, fmt);
	const int n = vasprintf(out, fmt, args);
	va_end(args);
	if (n < 0)
		*out = NULL;
	return n;
}

void cr_asprintf_free(char *p)
{
	free(p);
}

/* Return the assertion's message, which the arguments hold. */
char *cr_translate_assert_msg(int index, ...)
{
	va_list args;
	va_start(args, index);
	const char *text = va_arg(args, const char *);
	char *out = xstrdup(text && *text ? text : "failed");
	va_end(args);
	return out;
}

void criterion_send_assert(struct criterion_assert_stats *s)
{
	if (!s->passed)
		printf("[----] %s:%u: %s\n", s->file, s->line, s->message);
}

void cri_asserts_passed_incr(void)
{
}

void criterion_continue_test(void)
{
	failed = true;
}

/* End the process, which releases the device resources that the test holds. */
void criterion_abort_test(void)
{
	fflush(NULL);
	_exit(1);
}

void criterion_test_die(const char *fmt, ...)
{
	va_list args;
	va_start(args, fmt);
	printf("[----] ");
	vprintf(fmt, args);
	printf("\n");
	va_end(args);
	criterion_abort_test();
}

void criterion_skip_test(const char *fmt, ...)
{
	va_list args;
	va_start(args, fmt);
	printf("[SKIP] %s: ", running->name);
	vprintf(fmt, args);
	printf("\n");
	va_end(args);
	siglongjmp(skipped, 1);
}

void criterion_internal_test_setup(void)
{
	if (running->suite && running->suite->init)
		running->suite->init();
	if (running->test->data->init)
		running->test->data->init();
}

void criterion_internal_test_main(void (*fn)(void))
{
	if (running->test->data->kind_ == CR_TEST_PARAMETERIZED) {
		void (*with)(void *);
		memcpy(&with, &fn, sizeof with);
		with(running->param);
	} else {
		fn();
	}
}

void criterion_internal_test_teardown(void)
{
	if (running->test->data->fini)
		running->test->data->fini();
	if (running->suite && running->suite->fini)
		running->suite->fini();
}

/* ---- the list ---- */

static struct entry *add(struct suites *s)
{
	if (s->n == s->cap) {
		s->cap = s->cap ? 2 * s->cap : 64;
		s->all = xrealloc(s->all, (size_t)s->cap, sizeof *s->all);
	}
	return &s->all[s->n++];
}

static void add_test(struct suites *s, const struct criterion_test *t)
{
	const struct criterion_suite *suite = NULL;
	struct criterion_test_params p = {.length = 1};
	for (struct criterion_suite **x = __start_cr_sts; x < __stop_cr_sts; x++)
		if (*x && !strcmp((*x)->name, t->category))
			suite = *x;
	const bool many = t->data->kind_ == CR_TEST_PARAMETERIZED;
	if (many)
		p = t->data->param_();
	for (size_t i = 0; i < p.length; i++) {
		struct entry *e = add(s);
		*e = (struct entry){.test = t, .suite = suite ? suite->data : NULL};
		if (many)
			e->param = (char *)p.params + i * p.size;
		snprintf(e->name, sizeof e->name, many ? "%s/%s %zu" : "%s/%s", t->category, t->name, i + 1);
	}
}

static int by_name(const void *x, const void *y)
{
	const struct criterion_test *a = *(struct criterion_test *const *)x,
				    *b = *(struct criterion_test *const *)y;
	const int order = strcmp(a->category, b->category);
	return order ? order : strcmp(a->name, b->name);
}

/* List the matching tests.  Parameters of tests that do not match are not made. */
static void find_tests(struct suites *s, const char *pattern)
{
	const size_t most = (size_t)(__stop_cr_tst - __start_cr_tst);
	struct criterion_test **tests = xcalloc(most + 1, sizeof(struct criterion_test *));
	size_t n = 0;
	for (size_t i = 0; i < most; i++) {
		char name[NAME_MAX_BYTES];
		struct criterion_test *t = __start_cr_tst[i];
		if (!t)
			continue;
		snprintf(name, sizeof name, "%s/%s", t->category, t->name);
		if (!t->data->disabled && !fnmatch(pattern, name, FNM_EXTMATCH))
			tests[n++] = t;
	}
	qsort(tests, n, sizeof(struct criterion_test *), by_name);
	for (size_t i = 0; i < n; i++)
		add_test(s, tests[i]);
	free(tests);
}

/* ---- the child ---- */

static void send(int fd, int test, enum verdict v)
{
	const struct message m = {test, v};
	fflush(NULL);
	if (write(fd, &m, sizeof m) != sizeof m)
		_exit(1);
}

/* Run tests from `from` on, until one fails. */
static void run_tests(const struct suites *s, int from, int fd)
{
	static volatile int at;
	for (at = from; at < s->n; at++) {
		running = &s->all[at];
		failed = false;
		send(fd, at, BEGUN);
		if (!sigsetjmp(skipped, 0)) {
			running->test->test();
			if (running->test->data->signal || running->test->data->exit_code)
				criterion_test_die("%s: came back", running->name);
			send(fd, at, failed ? FAILED : PASSED);
		} else {
			send(fd, at, failed ? FAILED : SKIPPED);
		}
		if (failed || s->each)
			break;
	}
	fflush(NULL);
	_exit(0);
}

/* ---- the parent ---- */

static double timeout_of(const struct suites *s, const struct entry *e)
{
	const double own = e->test->data->timeout > 0          ? e->test->data->timeout
			   : e->suite && e->suite->timeout > 0 ? e->suite->timeout
							       : 0;
	return own > s->timeout_s ? own : s->timeout_s;
}

/* Receive a message: 1; 0: the child has closed its end; -1: no message in time. */
static int receive(int fd, struct message *m, int64_t until)
{
	size_t have = 0;
	while (have < sizeof *m) {
		const int64_t left = until - clock_us();
		struct pollfd p = {.fd = fd, .events = POLLIN};
		const int n = left > 0 ? poll(&p, 1, (int)(left / 1000) + 1) : 0;
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return -1;
		const ssize_t got = read(fd, (char *)m + have, sizeof *m - have);
		if (got <= 0)
			return 0;
		have += (size_t)got;
	}
	return 1;
}

/* Describe how a child ended during a test; "" if as the test expects. */
static void end_of(const struct entry *e, int status, bool late, struct why *why)
{
	const struct criterion_test_extra_data *d = e->test->data;
	*why->text = 0;
	if (late)
		err_why(why, 0, "not done in time");
	else if (WIFSIGNALED(status) && WTERMSIG(status) != d->signal)
		err_why(why, 0, "crashed: %s", strsignal(WTERMSIG(status)));
	else if (WIFEXITED(status) && (d->signal || !d->exit_code || WEXITSTATUS(status) != d->exit_code))
		err_why(why, 0, "exit status %d", WEXITSTATUS(status));
}

static void count(struct suites *s, int i, enum verdict v, const char *why, double seconds)
{
	s->n_passed += v == PASSED;
	s->n_skipped += v == SKIPPED;
	s->n_failed += v == FAILED;
	if (v != SKIPPED)
		printf("[%s] %s: (%.2fs)%s%s\n", v == PASSED ? "PASS" : "FAIL", s->all[i].name, seconds,
		       *why ? " " : "", why);
	fflush(stdout);
}

/* Run one child; returns the next test. */
static int run_child(struct suites *s, int from)
{
	int fds[2], status = 0, at = from, open = -1;
	struct why why = {""};
	bool late = false;
	struct message m;
	if (pipe(fds)) {
		perror("pipe");
		exit(1);
	}
	fflush(NULL);
	const pid_t child = fork();
	if (child < 0) {
		perror("fork");
		exit(1);
	}
	if (!child) {
		close(fds[0]);
		setpgid(0, 0); /* so that its own children can be ended with it */
		run_tests(s, from, fds[1]);
	}
	close(fds[1]);
	int64_t began = clock_us();
	for (int got;;) {
		const double most = timeout_of(s, &s->all[open < 0 ? from : open]);
		if ((got = receive(fds[0], &m, began + (int64_t)(1e6 * most))) != 1) {
			late = got < 0;
			break;
		}
		if (m.verdict == BEGUN) {
			open = m.test;
			began = clock_us();
			continue;
		}
		count(s, m.test, m.verdict, "", 1e-6 * (double)(clock_us() - began));
		at = m.test + 1;
		open = -1;
	}
	if (late || open >= 0)
		kill(-child, SIGKILL);
	close(fds[0]);
	waitpid(child, &status, 0);
	if (open >= 0) {
		end_of(&s->all[open], status, late, &why);
		count(s, open, *why.text ? FAILED : PASSED, why.text, 1e-6 * (double)(clock_us() - began));
		return open + 1;
	}
	if (at == from) { /* the child did not begin a test */
		count(s, from, FAILED, "its process ended before it", 0);
		return from + 1;
	}
	return at;
}

int suites_main(int argc, char **argv)
{
	struct suites s = {.timeout_s = TIMEOUT_S};
	const char *pattern = "*";
	bool list = false, usage = false;
	for (int i = 1; i < argc && !usage; i++) {
		if (!strcmp(argv[i], "--list"))
			list = true;
		else if (!strcmp(argv[i], "--each"))
			s.each = true;
		else if (!strcmp(argv[i], "--filter") && i + 1 < argc)
			pattern = argv[++i];
		else if (!strcmp(argv[i], "--timeout") && i + 1 < argc)
			usage = !((s.timeout_s = atof(argv[++i])) > 0);
		else
			usage = true;
	}
	if (usage) {
		fprintf(stderr, "usage: %s [--list] [--filter PATTERN] [--each] [--timeout S]\n", argv[0]);
		return 2;
	}
	find_tests(&s, pattern);
	if (!s.n) {
		fprintf(stderr, "%s: no test matches %s\n", argv[0], pattern);
		return 2;
	}
	for (int i = 0; list && i < s.n; i++)
		puts(s.all[i].name);
	for (int at = 0; !list && at < s.n;)
		at = run_child(&s, at);
	if (!list)
		printf("Synthesis: Tested: %d | Passing: %d | Failing: %d | Skipped: %d\n",
		       s.n_passed + s.n_failed + s.n_skipped, s.n_passed, s.n_failed, s.n_skipped);
	free(s.all);
	return s.n_failed != 0;
}
