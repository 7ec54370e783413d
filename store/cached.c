#include "store/cached.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/file.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LEVELS = 3 }; /* ORG, NAME, COMMIT */

char *cached_root(const char *models, const char *cache, const char *home)
{
	char *root = models && *models        ? xstrdup(models)
		     : cache && *cache == '/' ? xasprintf("%s/quern/models", cache)
		     : home && *home          ? xasprintf("%s/.cache/quern/models", home)
					      : NULL;
	if (root && *root != '/') {
		char cwd[PATH_MAX], *full = getcwd(cwd, sizeof cwd) ? file_join(cwd, root) : xstrdup(root);
		free(root);
		root = full;
	}
	return root;
}

char *cached_records(const char *root)
{
	return file_join(root, ".checksums");
}

int cached_path(const char *dir, const struct manifest *m, char path[PATH_MAX], struct why *why)
{
	const int n = snprintf(path, PATH_MAX, "%s%s%s", dir, m->first ? "/" : "", m->first ? m->first : "");
	return n < PATH_MAX ? 0 : err_why(why, -ENAMETOOLONG, "%s: the path is too long", dir);
}

static bool has_size(const char *dir, const struct manifest_file *f)
{
	struct stat st;
	char *path = file_join(dir, f->name);
	const bool yes = stat(path, &st) == 0 && S_ISREG(st.st_mode) && st.st_size == f->size;
	free(path);
	return yes;
}

/* Check that opening dir reads exactly these files: generation_config.json, for example, is optional. */
static int same_names(const char *dir, const struct manifest *m, struct why *why)
{
	struct store_files l;
	char path[PATH_MAX];
	int rc = cached_path(dir, m, path, why);
	if (rc || (rc = store_files_list(path, &l, why)))
		return rc;
	for (uint32_t i = 0; !rc && i < m->n; i++)
		if (l.n != m->n || strcmp(l.files[i].name, m->files[i].name) != 0)
			rc = err_why(why, -ENOENT, "%s has other files", dir);
	store_files_fini(&l);
	return rc;
}

int cached_check(const char *dir, const struct manifest *m, const struct checksums *c, struct why *why)
{
	uint8_t digest[MANIFEST_DIGEST];
	for (uint32_t i = 0; i < m->n; i++)
		if (!has_size(dir, &m->files[i]))
			return err_why(why, -ENOENT, "%s/%s is missing, or of another size", dir,
				       m->files[i].name);
	int rc = 0;
	for (uint32_t i = 0; !rc && i < m->n; i++) {
		rc = checksum_file(c, dir, m->files[i].name, digest, why);
		if (!rc && memcmp(digest, m->files[i].digest, MANIFEST_DIGEST) != 0)
			rc = err_why(why, -EBADMSG, "%s/%s has another checksum than the controller's", dir,
				     m->files[i].name);
	}
	return rc ? rc : same_names(dir, m, why);
}

struct finding {
	const struct manifest *m;
	const struct checksums *c;
	char *found; /* owned */
	struct why *why;
};

/* Names that begin with a dot are skipped: entries in progress or replaced. */
static int walk(struct finding *f, const char *dir, int level)
{
	int rc = 0;
	DIR *d;
	if (level == LEVELS) {
		struct why why = {""};
		rc = cached_check(dir, f->m, f->c, &why);
		if (!rc)
			f->found = xstrdup(dir);
		else if (rc == -EBADMSG)
			err_why(f->why, rc, "%s", why.text);
		return rc == -ECANCELED ? rc : 0;
	}
	if (!(d = opendir(dir)))
		return 0;
	for (const struct dirent *e; !rc && !f->found && (e = readdir(d));) {
		if (e->d_name[0] == '.')
			continue;
		char *sub = file_join(dir, e->d_name);
		rc = walk(f, sub, level + 1);
		free(sub);
	}
	closedir(d);
	return rc;
}

int cached_find(const char *root, const struct manifest *m, const struct checksums *c, char path[PATH_MAX],
		struct why *why)
{
	struct finding f = {m, c, NULL, why};
	if (why)
		why->text[0] = '\0';
	int rc = walk(&f, root, 0);
	if (!rc)
		rc = f.found ? cached_path(f.found, m, path, why) : -ENOENT;
	free(f.found);
	return rc;
}
