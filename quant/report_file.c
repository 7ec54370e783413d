/* report_file.c - reports on disk. */
#include "quant/report.h"

#include "base/replace.h"

#include <string.h>

static bool ends_in(const char *path, const char *what)
{
	const size_t n = strlen(path), m = strlen(what);
	return n >= m && strcmp(path + n - m, what) == 0;
}

int report_write(const struct report *r, const char *path, char *why, size_t why_n)
{
	struct replace file;
	struct buf text = {0};
	if (ends_in(path, ".html") || ends_in(path, ".htm"))
		report_html(r, &text);
	else
		report_json(r, &text);
	int rc = replace_begin(&file, path, 0666, why, why_n);
	if (!rc) {
		fwrite(text.p, 1, text.len, file.f);
		rc = replace_end(&file, why, why_n);
	}
	buf_fini(&text);
	return rc;
}
