/* What happens when the Nth allocation, read, write or send fails, for every N: each path of cases.c
 * is run in a process of its own for each of them.  It must come to an end: succeed all the same, or
 * refuse with a reason, or, for want of a little memory, say so and stop (alloc.h); never crash, hang
 * or leave memory behind.
 *
 *   build/inject/inject/sweep [--most N] [CASE...]    all cases, every call; --list: their names
 *
 * --most: at most so many calls of a kind and case: the first half of them one by one, the others
 * spread over the rest.  To look into a finding:
 *
 *   build/inject/inject/sweep --only alloc 17 CASE    that one call, in this process */
#include "tests/inject/cases.h"
#include "tests/inject/inject.h"

#include <sanitizer/lsan_interface.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
	ENDED = 0,
	LEAKED = 40,
	NOT_REACHED = 41,
	UNEXPLAINED = 42,
	UNDISTURBED_FAILED = 43,
	PATIENCE_S = 120
};

static const char *const kind_names[INJECT_KINDS] = {"alloc", "read", "write", "send"};
static unsigned long *calls; /* [INJECT_KINDS] of the undisturbed run; shared with the children */

/* nth 0: undisturbed, which counts the calls. */
static int attempt(const struct inject_case *c, enum inject_kind kind, unsigned long nth)
{
	char why[1024] = "";
	inject_arm(kind, nth);
	int rc = c->run(why, sizeof why);
	bool failed = inject_disarm();
	for (int k = 0; nth == 0 && k < INJECT_KINDS; k++)
		calls[k] = inject_count((enum inject_kind)k);
	fprintf(stderr, "rc %d: %s\n", rc, why);
	if (nth == 0 && rc)
		return UNDISTURBED_FAILED;
	if (rc && !why[0])
		return UNEXPLAINED;
	if (__lsan_do_recoverable_leak_check())
		return LEAKED;
	return nth && !failed ? NOT_REACHED : ENDED;
}

/* What the child wrote, the end of it. */
static void read_said(int fd, char *out, size_t n)
{
	off_t end = lseek(fd, 0, SEEK_END);
	ssize_t got = pread(fd, out, n - 1, end > (off_t)(n - 1) ? end - (off_t)(n - 1) : 0);
	out[got > 0 ? got : 0] = '\0';
}

/* The child's end: ENDED, NOT_REACHED, or a finding, which is told. */
static int in_a_child(const struct inject_case *c, enum inject_kind kind, unsigned long nth)
{
	char text[8192];
	int status, said = memfd_create("said", MFD_CLOEXEC);
	fflush(NULL);
	pid_t pid = fork();
	if (pid == 0) {
		dup2(said, STDERR_FILENO);
		alarm(PATIENCE_S);
		_exit(attempt(c, kind, nth));
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid) {
		perror("fork");
		exit(2);
	}
	read_said(said, text, sizeof text);
	close(said);
	if (WIFEXITED(status) && (WEXITSTATUS(status) == ENDED || WEXITSTATUS(status) == NOT_REACHED))
		return WEXITSTATUS(status);
	/* Small metadata is not done without: it says how much it wanted, and stops. */
	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT && kind == INJECT_ALLOC && nth &&
	    strstr(text, "alloc: out of memory, "))
		return ENDED;
	printf("%s: %s %lu: %s %d%s\n%s\n", c->name, kind_names[kind], nth,
	       WIFSIGNALED(status) ? "ended by signal" : "exit status",
	       WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status),
	       WIFSIGNALED(status)                  ? ""
	       : WEXITSTATUS(status) == LEAKED      ? ", it leaks"
	       : WEXITSTATUS(status) == UNEXPLAINED ? ", an error without a reason"
						    : "",
	       text);
	return LEAKED;
}

static unsigned long next(unsigned long nth, unsigned long n, unsigned long most)
{
	if (!most || n <= most || nth < most / 2)
		return nth + 1;
	unsigned long stride = (n - most / 2) / (most - most / 2);
	return nth + (stride ? stride : 1);
}

static unsigned long sweep(const struct inject_case *c, unsigned long most)
{
	unsigned long findings = 0;
	if (in_a_child(c, INJECT_ALLOC, 0) != ENDED)
		return 1;
	printf("%-12s", c->name);
	for (int k = 0; k < INJECT_KINDS; k++) {
		unsigned long tried = 0, n = calls[k];
		for (unsigned long nth = 1; nth <= n; nth = next(nth, n, most)) {
			int end = in_a_child(c, (enum inject_kind)k, nth);
			tried += end != NOT_REACHED;
			findings += end == LEAKED;
		}
		printf("  %s %lu of %lu", kind_names[k], tried, n);
		fflush(stdout);
	}
	printf("  findings %lu\n", findings);
	return findings;
}

static bool wanted(const char *name, char **names, int n)
{
	bool any = n == 0;
	for (int i = 0; i < n; i++)
		any |= strcmp(names[i], name) == 0;
	return any;
}

static int only(const char *kind_name, const char *nth, const char *name)
{
	for (size_t i = 0; i < n_inject_cases; i++)
		for (int k = 0; k < INJECT_KINDS; k++)
			if (!strcmp(inject_cases[i].name, name) && !strcmp(kind_names[k], kind_name)) {
				if (inject_cases[i].prepare)
					inject_cases[i].prepare();
				return attempt(&inject_cases[i], (enum inject_kind)k, strtoul(nth, NULL, 10));
			}
	fprintf(stderr, "sweep: no case %s, or no kind %s\n", name, kind_name);
	return 2;
}

int main(int argc, char **argv)
{
	unsigned long most = 0, findings = 0;
	int at = 1, ran = 0;
	calls = mmap(NULL, sizeof *calls * INJECT_KINDS, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		     -1, 0);
	if (calls == MAP_FAILED)
		return 2;
	inject_init();
	if (argc == 5 && !strcmp(argv[1], "--only"))
		return only(argv[2], argv[3], argv[4]);
	if (argc > 2 && !strcmp(argv[1], "--most")) {
		most = strtoul(argv[2], NULL, 10);
		at = 3;
	}
	for (size_t i = 0; i < n_inject_cases; i++) {
		const struct inject_case *c = &inject_cases[i];
		if (argc == 2 && !strcmp(argv[1], "--list")) {
			puts(c->name);
			ran++;
		} else if (wanted(c->name, argv + at, argc - at)) {
			if (c->prepare)
				c->prepare();
			findings += sweep(c, most);
			ran++;
		}
	}
	serving_cleanup();
	return findings || !ran;
}
