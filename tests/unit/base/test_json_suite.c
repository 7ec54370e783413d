/* test_json_suite.c - JSON by RFC 8259, tested with the files of JSONTestSuite (Nicolas Seriot). Files y_
 * must be accepted, files n_ must be refused with a reason, files i_ may be either. */
#include "base/json.h"
#include "tests/testdata.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Unpack the suite's files into a folder, which the caller removes. */
static const char *unpack(void)
{
	static char dir[64], command[4096];
	const char *archive = testdata("conformance/JSONTestSuite.tar.gz");
	if (!archive)
		cr_skip_test("conformance/JSONTestSuite.tar.gz is not here");
	snprintf(dir, sizeof dir, "/tmp/quern-json-XXXXXX");
	cr_assert_not_null(mkdtemp(dir));
	snprintf(command, sizeof command, "tar -xzf '%s' -C '%s'", archive, dir);
	cr_assert_eq(system(command), 0);
	return dir;
}

static void clear_away(const char *dir)
{
	char command[256];
	snprintf(command, sizeof command, "rm -r '%s'", dir);
	cr_expect_eq(system(command), 0);
}

static bool taken(const char *path, struct why *why)
{
	static char text[1 << 20];
	json_t *v = NULL;
	FILE *f = fopen(path, "rb");
	cr_assert_not_null(f, "%s", path);
	size_t n = fread(text, 1, sizeof text, f);
	fclose(f);
	/* An exact copy lets a sanitizer see a read past its end. */
	char *exact = malloc(n ? n : 1);
	memcpy(exact, text, n);
	why->text[0] = '\0';
	int rc = json_parse(exact, n, &v, why);
	free(exact);
	json_decref(v);
	cr_expect((rc == 0) == (v != NULL), "%s", path);
	return rc == 0;
}

Test(json, agrees_with_the_json_test_suite)
{
	const char *dir = unpack();
	struct why why;
	char path[512];
	int n[3] = {0};
	snprintf(path, sizeof path, "%s/test_parsing", dir);
	DIR *d = opendir(path);
	cr_assert_not_null(d);
	for (struct dirent *e; (e = readdir(d));) {
		if (strlen(e->d_name) < 2 || e->d_name[1] != '_')
			continue;
		snprintf(path, sizeof path, "%s/test_parsing/%.255s", dir, e->d_name);
		bool yes = taken(path, &why);
		/* Known difference: jansson's objects allow no NUL in a key. */
		if (strcmp(e->d_name, "y_object_escaped_null_in_key.json") == 0) {
			cr_expect(!yes && strstr(why.text, "NUL"), "%s", why.text);
			continue;
		}
		if (e->d_name[0] == 'y')
			cr_expect(yes, "%s is refused: %s", e->d_name, why.text);
		else if (e->d_name[0] == 'n')
			cr_expect(!yes, "%s is taken", e->d_name);
		cr_expect(yes || why.text[0], "%s is refused without a reason", e->d_name);
		n[e->d_name[0] == 'y' ? 0 : e->d_name[0] == 'n' ? 1 : 2]++;
	}
	closedir(d);
	clear_away(dir);
	cr_expect(n[0] > 90 && n[1] > 180 && n[2] > 30, "%d, %d, %d files", n[0], n[1], n[2]);
}
