#include "tests/testdata.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#ifndef QUERN_ROOT
#define QUERN_ROOT "."
#endif

static char *next_path(void)
{
	static char paths[8][4096];
	static unsigned turn;
	return paths[turn++ % 8];
}

const char *repofile(const char *rel)
{
	char *p = next_path();
	snprintf(p, 4096, "%s/%s", QUERN_ROOT, rel);
	return p;
}

const char *testdata(const char *rel)
{
	const char *root = getenv("QUERN_SHARED_DATA");
	char *p = next_path();
	if (root)
		snprintf(p, 4096, "%s/%s", root, rel);
	else
		snprintf(p, 4096, "%s/../shared/data/%s", QUERN_ROOT, rel);
	return access(p, R_OK) == 0 ? p : NULL;
}
