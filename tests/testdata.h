/* testdata.h - paths of the tests' larger data, if it is there, and of files of the repository.  The data is
 * in $QUERN_SHARED_DATA (default ../shared/data); tests/data/fetch.py fetches it. */
#ifndef QUERN_TESTS_TESTDATA_H
#define QUERN_TESTS_TESTDATA_H

/* Return the path of a file or folder of the test data, in one of 8 static buffers used in turn. If it is
 * missing, print a message and return NULL: the test must then be skipped. */
const char *testdata(const char *rel);

/* Return the path of a file of the repository, or below $QUERN_TEST_ROOT if set. Tests may run from any
 * folder. */
const char *repofile(const char *rel);

/* Return the path of a file below the build folder. */
const char *builtfile(const char *rel);

#endif
