/* sweep.c - fail the Nth allocation, read, write or send, for every N.  Each path of cases.c runs in its own
 * process for each failure.  It must end in success, or in an error with a reason, or abort with the message
 * of alloc.h when small metadata cannot be allocated.  It must not crash, hang or leak, nor leave half of a
 * result.
 *
 *     build/inject/inject/sweep [--most N] [-j N] [CASE...]    all cases, every call; --list: their names
 *
 * -j: processes at once (default: twice the processors, since most of them wait).  --most: at most N calls of
 * a kind and case: the first N/2 one by one, the others spread over the rest.  To reproduce a finding:
 *
 *     build/inject/inject/sweep --only alloc 17 CASE    that one call, in this process */
#include "tests/inject/cases.h"
#include "tests/inject/inject.h"

#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>
#endif

enum {
	ENDED = 0,
	LEAKED = 40,
	NOT_REACHED = 41,
	UNEXPLAINED = 42,
	UNDISTURBED_FAILED = 43,
	FINDING = 44,
	PATIENCE_S = 120,
	PROCESSES_MAX = 256,
	/* With threads, runs differ by a few calls: a kind is finished when this many calls in a row were not
	 * reached. */
	BEYOND = 8,
};

static const char *const kind_names[INJECT_KINDS] = {"alloc", "read", "write", "send"};
static unsigned long *calls; /* [INJECT_KINDS] counts of the undisturbed run; shared with the children */

/* Return whether memory leaked.  Without the sanitizer, leaks and uses after free are not detected. */
static bool leaks(void)
{
#ifdef __SANITIZE_ADDRESS__
	return __lsan_do_recoverable_leak_check();
#else
	return false;
#endif
}

/* Run a case with the nth call failing.  nth 0: undisturbed, which counts the calls. */
static int attempt(const struct inject_case *c, enum inject_kind kind, unsigned long nth)
{
	struct why why = {""};
	inject_arm(kind, nth);
	int rc = c->run(&why);
	bool failed = inject_disarm();
	for (int k = 0; nth == 0 && k < INJECT_KINDS; k++)
		calls[k] = inject_count((enum inject_kind)k);
	fprintf(stderr, "rc %d: %s\n", rc, why.text);
	if (nth == 0 && rc)
		return UNDISTURBED_FAILED;
	if (rc && !why.text[0])
		return UNEXPLAINED;
	if (leaks())
		return LEAKED;
	return nth && !failed ? NOT_REACHED : ENDED;
}

/* Read the end of the child's output. */
static void read_output(int fd, char *out, size_t n)
{
	off_t end = lseek(fd, 0, SEEK_END);
	ssize_t got = pread(fd, out, n - 1, end > (off_t)(n - 1) ? end - (off_t)(n - 1) : 0);
	out[got > 0 ? got : 0] = '\0';
}

/* A child process. */
struct child {
	pid_t pid;  /* 0: free */
	int output; /* memfd of its stderr */
	char dir[INJECT_DIR_SIZE];
	const struct inject_case *c;
	enum inject_kind kind;
	unsigned long nth;
};

static struct child children[PROCESSES_MAX];
static int n_children, at_once;

static void launch(const struct inject_case *c, enum inject_kind kind, unsigned long nth)
{
	struct child *k = children;
	while (k->pid)
		k++;
	*k = (struct child){.c = c, .kind = kind, .nth = nth, .output = memfd_create("output", MFD_CLOEXEC)};
	/* Append, because two threads that write at the same moment would overwrite each other's lines. */
	fcntl(k->output, F_SETFL, O_APPEND);
	/* The parent makes and removes the folder: a process that a signal ends removes nothing. */
	inject_dir_new(k->dir);
	fflush(NULL);
	k->pid = fork();
	if (k->pid == 0) {
		dup2(k->output, STDOUT_FILENO);
		dup2(k->output, STDERR_FILENO);
		alarm(PATIENCE_S);
		_exit(attempt(c, kind, nth));
	}
	if (k->pid < 0) {
		perror("sweep: fork");
		exit(2);
	}
	n_children++;
}

/* Return ENDED, NOT_REACHED, or FINDING; a finding is printed. */
static int judge(const struct child *k, int status)
{
	char text[8192];
	read_output(k->output, text, sizeof text);
	if (WIFEXITED(status) && (WEXITSTATUS(status) == ENDED || WEXITSTATUS(status) == NOT_REACHED))
		return WEXITSTATUS(status);
	/* Small metadata could not be allocated: xmalloc() logged the size and aborted. */
	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT && k->kind == INJECT_ALLOC && k->nth &&
	    strstr(text, "alloc: out of memory, "))
		return ENDED;
	printf("%s: %s %lu: %s %d%s\n%s\n", k->c->name, kind_names[k->kind], k->nth,
	       WIFSIGNALED(status) ? "ended by signal" : "exit status",
	       WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status),
	       WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM ? ", it hangs"
	       : WIFSIGNALED(status)                              ? ""
	       : WEXITSTATUS(status) == LEAKED                    ? ", it leaks"
	       : WEXITSTATUS(status) == UNEXPLAINED               ? ", an error without a reason"
								  : "",
	       text);
	return FINDING;
}

/* Wait for a child; return its result, and its call in *nth. */
static int reap(unsigned long *nth)
{
	int status;
	pid_t pid = waitpid(-1, &status, 0);
	struct child *k = children;
	while (pid > 0 && k < children + PROCESSES_MAX && k->pid != pid)
		k++;
	if (pid <= 0 || k == children + PROCESSES_MAX) {
		perror("sweep: wait");
		exit(2);
	}
	int end = judge(k, status);
	const char *wrong = k->c->left && end != FINDING ? k->c->left(k->dir) : NULL;
	if (wrong) {
		printf("%s: %s %lu: %s\n", k->c->name, kind_names[k->kind], k->nth, wrong);
		end = FINDING;
	}
	*nth = k->nth;
	close(k->output);
	inject_dir_free(k->dir);
	k->pid = 0;
	n_children--;
	return end;
}

/* Results of one kind of call of a case. */
struct tally {
	unsigned long tried, findings;
	unsigned long last; /* last call that was reached */
};

static void count_one(struct tally *t)
{
	unsigned long nth;
	int end = reap(&nth);
	t->tried += end != NOT_REACHED;
	t->findings += end == FINDING;
	if (end != NOT_REACHED && nth > t->last)
		t->last = nth;
}

static unsigned long next(unsigned long nth, unsigned long n, unsigned long most)
{
	if (!most || n <= most || nth < most / 2)
		return nth + 1;
	unsigned long stride = (n - most / 2) / (most - most / 2);
	return nth + (stride ? stride : 1);
}

static void sweep_kind(const struct inject_case *c, enum inject_kind kind, unsigned long most,
		       struct tally *t)
{
	unsigned long n = calls[kind], nth = 1;
	*t = (struct tally){.last = n};
	for (;;) {
		/* Wait until earlier calls have ended: only then is it known whether there are more. */
		if (nth > t->last + (n ? BEYOND : 0)) {
			if (!n_children)
				return;
			count_one(t);
		} else if (n_children == at_once) {
			count_one(t);
		} else {
			launch(c, kind, nth);
			nth = next(nth, n, most);
		}
	}
}

static unsigned long sweep(const struct inject_case *c, unsigned long most)
{
	unsigned long findings = 0, nth;
	launch(c, INJECT_ALLOC, 0);
	if (reap(&nth) != ENDED)
		return 1;
	char line[256];
	size_t len = (size_t)snprintf(line, sizeof line, "%-12s", c->name);
	for (int k = 0; k < INJECT_KINDS; k++) {
		struct tally t;
		sweep_kind(c, (enum inject_kind)k, most, &t);
		findings += t.findings;
		len += (size_t)snprintf(line + len, sizeof line - len, "  %s %lu of %lu", kind_names[k],
					t.tried, t.last);
	}
	printf("%s  findings %lu\n", line, findings);
	fflush(stdout);
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
	char dir[INJECT_DIR_SIZE];
	inject_dir_new(dir);
	for (size_t i = 0; i < n_inject_cases; i++)
		for (int k = 0; k < INJECT_KINDS; k++)
			if (!strcmp(inject_cases[i].name, name) && !strcmp(kind_names[k], kind_name)) {
				if (inject_cases[i].prepare)
					inject_cases[i].prepare();
				int rc = attempt(&inject_cases[i], (enum inject_kind)k,
						 strtoul(nth, NULL, 10));
				inject_dir_free(dir);
				return rc;
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
	at_once = 2 * (int)sysconf(_SC_NPROCESSORS_ONLN);
	for (; at + 1 < argc && argv[at][0] == '-'; at += 2) {
		if (!strcmp(argv[at], "--most"))
			most = strtoul(argv[at + 1], NULL, 10);
		else if (!strcmp(argv[at], "-j"))
			at_once = atoi(argv[at + 1]);
	}
	if (at_once < 1 || at_once > PROCESSES_MAX)
		at_once = PROCESSES_MAX;
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
	quantize_cleanup();
	return findings || !ran;
}
