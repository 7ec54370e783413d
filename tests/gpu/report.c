/* report.c - writes the results of gpu-run so far as one JSON file and as a page of Markdown.
 *
 *     gpu_report FROM TO
 *
 * FROM has the phases' output: run.tsv, facts.tsv, phases.tsv, tests.tsv, plan, data/NAME.json (one value)
 * and data/NAME.jsonl (one value per line; an incomplete line is skipped).  Writes TO/gpu-results.json,
 * TO/gpu-results.md and TO/measured.json (for tests/sass), each completely or not at all. */
#include "tests/gpu/report.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "tests/gpu/assumed.h"
#include "tests/gpu/goals.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_MAX = 16 << 20, FIELDS_MAX = 8 };

static void die(const char *what)
{
	fprintf(stderr, "gpu_report: %s: %s\n", what, strerror(errno));
	exit(1);
}

/* Make a JSON string.  Logs may hold text that is not UTF-8, which JSON does not allow. */
static json_t *text(const char *s)
{
	json_t *v = json_string(s);
	return v ? v : json_string("(not UTF-8)");
}

/* ---- tab-separated tables ---- */

/* Read the lines of a file as objects with these keys; missing values are "".  A missing file has no
 * lines. */
static json_t *read_table(const char *dir, const char *name, const char *const keys[], int n_keys)
{
	struct why why;
	char *path = file_join(dir, name), *data = NULL, *lines = NULL;
	json_t *all = json_array();
	size_t bytes;
	if (!file_read(path, FILE_MAX, &data, &bytes, &why))
		for (char *line = strtok_r(data, "\n", &lines); line; line = strtok_r(NULL, "\n", &lines)) {
			json_t *o = json_object();
			for (int i = 0; i < n_keys; i++) {
				char *tab = line ? strchr(line, '\t') : NULL;
				if (tab)
					*tab = 0;
				json_object_set_new(o, keys[i], text(line ? line : ""));
				line = tab ? tab + 1 : NULL;
			}
			json_array_append_new(all, o);
		}
	free(data);
	free(path);
	return all;
}

/* Read {first column: second column}. */
static json_t *read_pairs(const char *dir, const char *name)
{
	static const char *const keys[] = {"key", "value"};
	json_t *rows = read_table(dir, name, keys, 2), *all = json_object();
	size_t i;
	const json_t *o;
	json_array_foreach(rows, i, o) json_object_set(all, json_string_value(json_object_get(o, "key")),
						       json_object_get(o, "value"));
	json_decref(rows);
	return all;
}

/* ---- data ---- */

static json_t *read_lines(char *data)
{
	json_t *all = json_array(), *o;
	struct why why;
	char *lines = NULL;
	for (char *line = strtok_r(data, "\n", &lines); line; line = strtok_r(NULL, "\n", &lines))
		if (!json_parse(line, strlen(line), &o, &why))
			json_array_append_new(all, o);
	return all;
}

static json_t *read_data(const char *from)
{
	struct why why;
	char *dir = file_join(from, "data");
	struct dirent **names;
	json_t *all = json_object();
	const int n = scandir(dir, &names, NULL, alphasort);
	for (int i = 0; i < n; i++) {
		char *name = names[i]->d_name, *dot = strrchr(name, '.'), *path = file_join(dir, name),
		     *data = NULL;
		size_t bytes;
		json_t *o = NULL;
		if (dot && dot > name && !file_read(path, FILE_MAX, &data, &bytes, &why)) {
			if (!strcmp(dot, ".jsonl"))
				o = read_lines(data);
			else if (strcmp(dot, ".json") || json_parse(data, bytes, &o, &why))
				o = NULL;
			*dot = 0;
			if (o)
				json_object_set_new(all, name, o);
		}
		free(data);
		free(path);
		free(names[i]);
	}
	if (n >= 0)
		free(names);
	free(dir);
	return all;
}

/* ---- files ---- */

static void replace(const char *to, const char *name, const char *data, size_t n)
{
	char *path = file_join(to, name), part[4096];
	if (snprintf(part, sizeof part, "%s.new", path) >= (int)sizeof part)
		die(path);
	FILE *f = fopen(part, "w");
	if (!f || fwrite(data, 1, n, f) != n || fclose(f) || rename(part, path))
		die(path);
	free(path);
}

int main(int argc, char **argv)
{
	static const char *const phase_keys[] = {"name", "limit_s", "seconds", "status", "reason"};
	static const char *const test_keys[] = {"phase",  "name",    "verdict", "passed",
						"failed", "reports", "seconds", "which"};
	if (argc != 3) {
		fprintf(stderr, "usage: gpu_report FROM TO\n");
		return 2;
	}
	json_t *data = read_data(argv[1]), *goals = goals_all(data);
	json_t *all = json_pack("{s:o, s:o, s:o, s:o, s:o, s:o}", "run", read_pairs(argv[1], "run.tsv"),
				"machine", read_pairs(argv[1], "facts.tsv"), "phases",
				read_table(argv[1], "phases.tsv", phase_keys, 5), "tests",
				read_table(argv[1], "tests.tsv", test_keys, 8), "goals", goals, "data", data);
	json_t *measured = assumed_file(data, json_object_get(all, "run"));
	char *dump = json_dumps(all, JSON_INDENT(1)),
	     *file = json_dumps(measured, JSON_INDENT(1) | JSON_REAL_PRECISION(6)), *page;
	size_t n;
	FILE *f = open_memstream(&page, &n);
	if (!dump || !file || !f)
		die("memory");
	report_page(f, all);
	fclose(f);
	replace(argv[2], "gpu-results.json", dump, strlen(dump));
	replace(argv[2], "gpu-results.md", page, n);
	replace(argv[2], "measured.json", file, strlen(file));
	free(file);
	json_decref(measured);
	free(dump);
	free(page);
	json_decref(all);
	return 0;
}
