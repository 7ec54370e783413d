/* testdata.h - where the tests' larger data lie, when they are there.
 * $QUERN_SHARED_DATA, or shared/data beside the checkout. */
#ifndef QUERN_TESTS_TESTDATA_H
#define QUERN_TESTS_TESTDATA_H

/* The path of a file or folder of the test data, in a static buffer (8 of them in turn);
 * NULL when it is not there: the test is then skipped, and says so. */
const char *testdata(const char *rel);

/* The path of a file of the repository (tests run from its root or from anywhere). */
const char *repofile(const char *rel);

#endif
