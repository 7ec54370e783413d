/* testdata.h - paths of the tests' larger data, where they are installed, and of the repository.
 * $QUERN_SHARED_DATA, or shared/data beside the checkout. */
#ifndef QUERN_TESTS_TESTDATA_H
#define QUERN_TESTS_TESTDATA_H

/* The path of a file or folder of the test data, in a static buffer (8 of them in turn);
 * NULL when it is missing: the test is then skipped, with a message. */
const char *testdata(const char *rel);

/* The path of a file of the repository (tests run from its root or from anywhere), or below $QUERN_TEST_ROOT.
 */
const char *repofile(const char *rel);

#endif
