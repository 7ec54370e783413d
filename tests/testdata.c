#include "tests/testdata.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* The tests also run on machines without the repository (tests/gpu/pack.sh). */
static const char *root(void)
{
	const char *moved = getenv("QUERN_TEST_ROOT");
	return moved && moved[0] ? moved : QUERN_ROOT;
}

static char *next_path(void)
{
	static char paths[8][4096];
	static unsigned turn;
	return paths[turn++ % 8];
}

const char *repofile(const char *rel)
{
	char *p = next_path();
	snprintf(p, 4096, "%s/%s", root(), rel);
	return p;
}

const char *builtfile(const char *rel)
{
	char *p = next_path();
	snprintf(p, 4096, "%s/%s", QUERN_BUILD, rel);
	return p;
}

const char *testdata(const char *rel)
{
	const char *data = getenv("QUERN_SHARED_DATA");
	char *p = next_path();
	if (data)
		snprintf(p, 4096, "%s/%s", data, rel);
	else
		snprintf(p, 4096, "%s/../shared/data/%s", root(), rel);
	return access(p, R_OK) == 0 ? p : NULL;
}
