/* suites.h - runs Criterion's tests in one process, for a GPU: a process per test would have to make a
 * context each time.
 *
 * It replaces Criterion's library.  Tests are written and registered with Criterion's headers; suites.c
 * defines the functions that they call.
 *
 *     parent: tests 1 to n in order       child 1: 1 ok, 2 ok, 3 fails or crashes or is late, ends
 *                                         child 2: 4 ok, ...
 *
 * The parent opens no device.  A child runs tests one after another until one fails; the next child continues
 * with the following test. */
#ifndef QUERN_TESTS_GPU_SUITES_H
#define QUERN_TESTS_GPU_SUITES_H

/*     PROGRAM [--list] [--filter PATTERN] [--each] [--timeout S]
 *
 * --filter: tests whose "suite/name" matches (fnmatch()'s extended patterns).  --each: a process per test,
 * for tests that fork processes which open the device.  --timeout: seconds for a test that sets none, and the
 * minimum for a test that does (default 600).  Prints a line for each test and, last, "Synthesis: Tested: N |
 * Passing: N | Failing: N | Skipped: N".  Returns 0; 1 if a test failed; 2 for wrong options or if no test
 * matches. */
int suites_main(int argc, char **argv);

#endif
