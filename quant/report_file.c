/* report_file.c - write reports to disk. */
#include "quant/report.h"

#include "base/err.h"
#include "base/file.h"
#include "base/replace.h"

#include <string.h>

static bool ends_in(const char *path, const char *what)
{
	const size_t n = strlen(path), m = strlen(what);
	return n >= m && strcmp(path + n - m, what) == 0;
}

static int write_one(const struct report *r, const char *path, struct why *why)
{
	struct replace file;
	struct buf text = {0};
	if (ends_in(path, ".html") || ends_in(path, ".htm"))
		report_html(r, &text);
	else
		report_json(r, &text);
	int rc = replace_begin(&file, path, 0666, why);
	if (!rc) {
		fwrite(text.p, 1, text.len, file.f);
		rc = replace_end(&file, why);
	}
	buf_fini(&text);
	return rc;
}

/* Return whether the path is in the directory of the future result. */
static bool is_in(const char *dst, const char *path)
{
	size_t n = strlen(dst);
	while (n > 1 && dst[n - 1] == '/')
		n--;
	return strncmp(path, dst, n) == 0 && path[n] == '/' && !strchr(path + n + 1, '/');
}

int report_check_all(const struct quantize_options *q, struct why *why)
{
	int rc = 0;
	for (size_t i = 0; !rc && i < q->n_reports; i++) {
		struct replace file;
		if (is_in(q->dst, q->reports[i]))
			continue;
		if (file_is_dir(q->reports[i]))
			return err_why(why, -EISDIR, "--report %s is a directory: name a file",
				       q->reports[i]);
		if (!(rc = replace_begin(&file, q->reports[i], 0666, why)))
			replace_drop(&file);
	}
	return rc ? err_prefix(why, rc, "--report") : 0;
}

int report_write_all(const struct report *r, const struct quantize_options *q, struct why *why)
{
	int rc = 0;
	for (size_t i = 0; !rc && i < q->n_reports; i++)
		rc = write_one(r, q->reports[i], why);
	return rc;
}
