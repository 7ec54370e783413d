#include "worker/tune.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/replace.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { VERSION = 1 };

static const struct {
	const char *name;
	enum kern_dtype type;
} types[] = {{"awq", KERN_AWQ4}, {"f16", KERN_F16}, {"bf16", KERN_BF16}};
enum { N_TYPES = sizeof types / sizeof *types };

/* ---- the file's path ---- */

int tune_path(char *out, size_t n, const char *xdg_cache, const char *home, const char *device)
{
	char name[64];
	size_t at = 0;
	/* "NVIDIA H200" becomes "nvidia-h200"; nothing in the name may lead to another directory */
	for (const char *p = device; *p && at < sizeof name - 1; p++) {
		if (isalnum((unsigned char)*p))
			name[at++] = (char)tolower((unsigned char)*p);
		else if (at && name[at - 1] != '-')
			name[at++] = '-';
	}
	while (at && name[at - 1] == '-')
		at--;
	name[at] = 0;
	int len;
	if (xdg_cache && *xdg_cache == '/')
		len = snprintf(out, n, "%s/quern/tune-%s.json", xdg_cache, name);
	else if (home && *home == '/')
		len = snprintf(out, n, "%s/.cache/quern/tune-%s.json", home, name);
	else
		return -ENOENT;
	return len >= 0 && (size_t)len < n ? 0 : -ENAMETOOLONG;
}

/* ---- reading ---- */

static int get_text(const json_t *o, const char *key, char *out, size_t n, struct why *why)
{
	const char *s = NULL;
	int rc = json_get_str(o, key, &s, why);
	if (rc)
		return rc;
	if (!s || !*s || strlen(s) >= n)
		return err_why(why, -EINVAL, "\"%s\" must be a text of 1 to %zu bytes", key, n - 1);
	snprintf(out, n, "%s", s);
	return 0;
}

static int get_number(const json_t *o, const char *key, int64_t lo, int64_t hi, int *out, struct why *why)
{
	int64_t v = -1;
	int rc = json_get_int(o, key, lo, hi, &v, why);
	if (!rc && v < 0)
		rc = err_why(why, -EINVAL, "\"%s\" is missing", key);
	*out = (int)v;
	return rc;
}

static int get_type(const json_t *o, enum kern_dtype *out, struct why *why)
{
	const char *s = NULL;
	int rc = json_get_str(o, "type", &s, why);
	if (rc)
		return rc;
	for (int i = 0; s && i < N_TYPES; i++)
		if (strcmp(s, types[i].name) == 0) {
			*out = types[i].type;
			return 0;
		}
	return err_why(why, -EINVAL, "\"type\" must be awq, f16 or bf16");
}

static int read_layer(struct tune *t, const json_t *o, struct why *why)
{
	struct kern_crossover c = {.rows = INT_MAX};
	int rc;
	if (!json_is_object(o))
		return err_why(why, -EINVAL, "no object");
	if ((rc = get_type(o, &c.dtype, why)))
		return rc;
	const bool all = !json_get(o, "k") && !json_get(o, "n");
	if (!all && ((rc = get_number(o, "k", 1, INT_MAX, &c.k, why)) ||
		     (rc = get_number(o, "n", 1, INT_MAX, &c.n, why))))
		return rc;
	if (!json_object_get(o, "above"))
		return err_why(why, -EINVAL, "\"above\" is missing");
	if (!json_is_null(json_object_get(o, "above")) &&
	    (rc = get_number(o, "above", 0, TUNE_ABOVE_MAX, &c.rows, why)))
		return rc;
	for (int i = 0; i < t->n; i++)
		if (t->layers[i].dtype == c.dtype && t->layers[i].k == c.k && t->layers[i].n == c.n)
			return err_why(why, -EINVAL, "the same layer as %d", i);
	t->layers[t->n++] = c;
	return 0;
}

static int read_all(struct tune *t, const json_t *o, struct why *why)
{
	int version, rc;
	if (!json_is_object(o))
		return err_why(why, -EINVAL, "it holds no object");
	if ((rc = get_number(o, "quern_tune", VERSION, VERSION, &version, why)) ||
	    (rc = get_text(o, "device", t->device, sizeof t->device, why)) ||
	    (rc = get_text(o, "isa", t->isa, sizeof t->isa, why)) ||
	    (rc = get_text(o, "build", t->build, sizeof t->build, why)))
		return rc;
	const json_t *layers = json_get(o, "layers");
	if (!json_is_array(layers) || json_array_size(layers) > TUNE_LAYERS_MAX)
		return err_why(why, -EINVAL, "\"layers\" must be an array of at most %d", TUNE_LAYERS_MAX);
	for (size_t i = 0; i < json_array_size(layers); i++)
		if ((rc = read_layer(t, json_array_get(layers, i), why)))
			return err_prefix(why, rc, "layer %zu", i);
	return 0;
}

int tune_parse(struct tune *t, const char *text, size_t n, struct why *why)
{
	json_t *o;
	memset(t, 0, sizeof *t);
	int rc = json_parse(text, n, &o, why);
	if (rc)
		return rc;
	rc = read_all(t, o, why);
	json_decref(o);
	if (rc)
		memset(t, 0, sizeof *t);
	return rc;
}

int tune_read(struct tune *t, const char *path, struct why *why)
{
	struct why reason = {""};
	char *text;
	size_t n;
	memset(t, 0, sizeof *t);
	int rc = file_read(path, TUNE_FILE_MAX, &text, &n, why);
	if (rc)
		return rc;
	rc = tune_parse(t, text, n, &reason);
	free(text);
	return rc ? err_why(why, rc, "%s: %s; make it with `quern bench kernels --tune`", path, reason.text)
		  : 0;
}

bool tune_fits(const struct tune *t, const struct kern_info *info, struct why *why)
{
	if (strcmp(t->device, info->name) || strcmp(t->isa, info->isa))
		err_why(why, 0, "it was measured on %s (%s), this is %s (%s)", t->device, t->isa, info->name,
			info->isa);
	else if (strcmp(t->build, info->build))
		err_why(why, 0, "it was measured with kernels %s, these are %s", t->build, info->build);
	else
		return true;
	return false;
}

/* ---- writing ---- */

static const char *type_name(enum kern_dtype type)
{
	for (int i = 0; i < N_TYPES; i++)
		if (types[i].type == type)
			return types[i].name;
	return NULL;
}

static json_t *to_json(const struct tune *t)
{
	json_t *layers = json_array();
	for (int i = 0; i < t->n; i++) {
		const struct kern_crossover *c = &t->layers[i];
		json_t *o = json_pack("{s:s, s:o}", "type", type_name(c->dtype), "above",
				      c->rows == INT_MAX ? json_null() : json_integer(c->rows));
		if (c->k || c->n) {
			json_object_set_new(o, "k", json_integer(c->k));
			json_object_set_new(o, "n", json_integer(c->n));
		}
		json_array_append_new(layers, o);
	}
	return json_pack("{s:i, s:s, s:s, s:s, s:o}", "quern_tune", VERSION, "device", t->device, "isa",
			 t->isa, "build", t->build, "layers", layers);
}

/* Create all folders above the file. */
static int make_folders(const char *path)
{
	char *at = xstrdup(path);
	int rc = 0;
	for (char *p = strchr(at + 1, '/'); p && !rc; p = strchr(p + 1, '/')) {
		*p = 0;
		if (mkdir(at, 0755) && errno != EEXIST)
			rc = -errno;
		*p = '/';
	}
	free(at);
	return rc;
}

int tune_write(const struct tune *t, const char *path, struct why *why)
{
	json_t *o = to_json(t);
	struct replace file;
	int rc = make_folders(path);
	if (rc)
		err_why(why, rc, "%s cannot be written: %s", path, strerror(-rc));
	else
		rc = replace_begin(&file, path, 0644, why);
	if (!rc) {
		json_dumpf(o, file.f, JSON_INDENT(1));
		rc = replace_end(&file, why);
	}
	json_decref(o);
	return rc;
}

/* ---- use ---- */

/* Log once why the built-in crossovers apply: the file is missing or does not fit. */
static void built_in(const char *why)
{
	log_info("tune", "crossovers=built-in reason=\"%s\"", why);
}

int tune_use(const struct kern_ops *ops, struct kern_dev *dev, const struct tune_source *from,
	     struct why *why)
{
	struct why reason = {""};
	char path[PATH_MAX];
	struct kern_info info;
	ops->info(dev, &info);
	if (!info.build[0]) {
		log_info("tune", "fast=no-effect device=\"%s\" reason=\"its kernels have one way only\"",
			 info.name);
		return 0;
	}
	const char *file = from->file;
	if (!file) {
		int rc = tune_path(path, sizeof path, from->xdg_cache, from->home, info.name);
		if (rc || !file_exists(path)) {
			built_in("nothing was measured here: quern bench kernels --tune");
			return 0;
		}
		file = path;
	}
	struct tune *t = xcalloc(1, sizeof *t);
	int rc = tune_read(t, file, &reason);
	if (!rc && !tune_fits(t, &info, &reason)) {
		log_warn("tune", "crossovers=built-in file=%s reason=\"%s\"", file, reason.text);
	} else if (!rc) {
		ops->crossovers(dev, t->layers, t->n);
		log_info("tune", "crossovers=%s layers=%d", file, t->n);
	} else if (from->file) {
		err_why(why, rc, "--tune: %s", reason.text);
	} else {
		log_warn("tune", "crossovers=built-in reason=\"%s\"", reason.text);
		rc = 0;
	}
	free(t);
	return rc;
}
