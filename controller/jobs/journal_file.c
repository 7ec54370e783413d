/* journal_file.c - open the journal's file: its lock, identity, tables and pages. */
#include "controller/jobs/journal_impl.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
	APPLICATION_ID = 0x5175726e, /* "Qurn" in the file's header */
	CHECK_BYTES_MAX = 1 << 30,   /* a larger file is not checked page by page when it is opened */
	PAGE_BYTES = 4096,           /* SQLite's default page size; used only for the number of pages at a
				      * checkpoint */
};

/* --- the lock --- */

/* Open and lock the lock file.  A controller that refuses its journal removes the lock file.  So a file that
 * was opened before the removal and locked after it is not the file that others find: try again.  *fd
 * negative: it cannot be opened. */
static int lock_file(const char *name, int *fd)
{
	struct stat mine, there;
	for (;;) {
		*fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
		if (*fd < 0 || flock(*fd, LOCK_EX | LOCK_NB))
			return -errno;
		if (fstat(*fd, &mine) == 0 && stat(name, &there) == 0 && mine.st_ino == there.st_ino &&
		    mine.st_dev == there.st_dev)
			return 0;
		close(*fd);
	}
}

static int take_lock(struct journal_file *f, struct why *why)
{
	struct stat st;
	if (stat(f->path, &st) == 0 && !S_ISREG(st.st_mode))
		return err_why(why, -EINVAL, "journal %s is not a regular file", f->path);
	char *name = xasprintf("%s-lock", f->path), holder[160] = "";
	int rc = lock_file(name, &f->lock_fd);
	if (f->lock_fd < 0) {
		rc = err_why(why, rc, "journal %s: %s", name, strerror(-rc));
	} else if (rc) {
		ssize_t n = pread(f->lock_fd, holder, sizeof holder - 1, 0);
		holder[n > 0 ? n : 0] = 0;
		holder[strcspn(holder, "\n")] = 0;
		rc = err_why(
			why, -EBUSY,
			"journal %s is in use by %s; a journal belongs to one controller: name another file",
			f->path, holder[0] ? holder : "another controller");
	} else {
		char host[64] = "";
		f->locked = true;
		gethostname(host, sizeof host - 1);
		int n = snprintf(holder, sizeof holder, "process %ld of %s\n", (long)getpid(), host);
		/* Only for the error message above; flock() is the lock. */
		if (ftruncate(f->lock_fd, 0) || pwrite(f->lock_fd, holder, (size_t)n, 0) < 0)
			log_debug("journal", "file not written file=%s reason=\"%s\"", name, strerror(errno));
	}
	free(name);
	return rc;
}

/* --- the tables --- */

static int run_all(struct journal_db *db, const char *const *statements)
{
	int rc = SQLITE_OK;
	for (; !rc && statements && *statements; statements++)
		rc = journal_exec(db, *statements);
	return rc;
}

static int mark_format(struct journal_db *db)
{
	char pragmas[128];
	snprintf(pragmas, sizeof pragmas, "PRAGMA application_id = %d; PRAGMA user_version = %d",
		 APPLICATION_ID, JOURNAL_FORMAT);
	return journal_exec(db, pragmas);
}

/* Make all tables in one transaction: a file has all tables or none. */
static int make_tables(struct journal_file *f, const struct journal_config *cfg)
{
	struct journal_db *db = f->db;
	int rc = journal_exec(db, "BEGIN IMMEDIATE");
	if (!rc)
		rc = journal_exec(db, "CREATE TABLE meta(name TEXT PRIMARY KEY, value) WITHOUT ROWID");
	if (!rc)
		rc = run_all(db, cfg->schemas);
	if (!rc)
		rc = mark_format(db);
	if (!rc)
		rc = journal_run(db, "INSERT INTO meta VALUES('model', ?)",
				 JOURNAL_VALUES(journal_text(cfg->model)));
	return rc ? rc : journal_exec(db, "COMMIT");
}

static const struct journal_migration *migration_from(const struct journal_config *cfg, int64_t format)
{
	for (size_t i = 0; i < cfg->n_migrations; i++)
		if (cfg->migrations[i].from == format)
			return &cfg->migrations[i];
	return NULL;
}

/* Return true if migrations lead from this format to this program's. */
static bool can_migrate(const struct journal_config *cfg, int64_t format)
{
	while (format < JOURNAL_FORMAT && migration_from(cfg, format))
		format++;
	return format == JOURNAL_FORMAT;
}

/* Migrate the file, for which can_migrate() holds. */
static int migrate(struct journal_file *f, const struct journal_config *cfg)
{
	int rc;
	const int64_t had = journal_get_int(f->db, "PRAGMA user_version", &rc);
	if (rc || had == JOURNAL_FORMAT)
		return rc;
	rc = journal_exec(f->db, "BEGIN IMMEDIATE");
	for (int64_t format = had; !rc && format < JOURNAL_FORMAT; format++) {
		const struct journal_migration *m = migration_from(cfg, format);
		rc = run_all(f->db, m->sql);
		if (!rc && m->run)
			rc = m->run(f->db);
	}
	if (!rc)
		rc = mark_format(f->db);
	if (!rc)
		rc = journal_exec(f->db, "COMMIT");
	if (!rc)
		log_info("journal", "journal converted file=%s format=%d old_format=%lld", f->path,
			 JOURNAL_FORMAT, (long long)had);
	return rc;
}

/* Check that the file is a journal of quern, of a readable version, for this model. */
static int check_identity(struct journal_file *f, const struct journal_config *cfg, struct why *why)
{
	const char *model = cfg->model;
	int rc, rc2;
	int64_t id = journal_get_int(f->db, "PRAGMA application_id", &rc);
	int64_t version = journal_get_int(f->db, "PRAGMA user_version", &rc2);
	if (rc || rc2)
		return journal_why(f->path, f->db, rc ? rc : rc2, why);
	if (id != APPLICATION_ID)
		return err_why(
			why, -EBADMSG,
			"%s is a database of another program, not a journal of quern; name another file",
			f->path);
	if (!can_migrate(cfg, version))
		return err_why(
			why, -EBADMSG,
			"journal %s has format %lld, this quern knows %d: use the quern that wrote it, or "
			"another file",
			f->path, (long long)version, JOURNAL_FORMAT);
	sqlite3_stmt *s = journal_query(f->db, "SELECT value FROM meta WHERE name = 'model'", NULL, 0);
	rc = s ? sqlite3_step(s) : journal_error(f->db);
	const char *had = rc == SQLITE_ROW ? (const char *)sqlite3_column_text(s, 0) : NULL;
	if (rc != SQLITE_ROW && rc != SQLITE_DONE)
		rc = journal_why(f->path, f->db, rc, why);
	else if (!had || strcmp(had, model) != 0)
		rc = err_why(why, -EBADMSG,
			     "journal %s belongs to another model (%.100s, this is %.100s): its jobs cannot "
			     "continue here; name another file",
			     f->path, had ? had : "unknown", model);
	else
		rc = 0;
	sqlite3_reset(s);
	return rc;
}

/* Find damage that SQLite can detect now, not in the middle of a job. */
static int check_pages(struct journal_file *f, struct why *why)
{
	struct stat st;
	if (stat(f->path, &st) == 0 && st.st_size > CHECK_BYTES_MAX)
		return 0;
	sqlite3_stmt *s = journal_query(f->db, "PRAGMA quick_check(1)", NULL, 0);
	int rc = s ? sqlite3_step(s) : journal_error(f->db);
	bool ok = rc == SQLITE_ROW && strcmp((const char *)sqlite3_column_text(s, 0), "ok") == 0;
	sqlite3_reset(s);
	if (ok)
		return 0;
	return journal_why(f->path, f->db, rc == SQLITE_ROW || rc == SQLITE_DONE ? SQLITE_CORRUPT : rc, why);
}

/* --- the file --- */

static int open_db(struct journal_file *f, const struct journal_config *cfg, struct why *why)
{
	int rc = journal_db_open(f->path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, &f->db, why);
	if (rc)
		return rc;
	char pragmas[384];
	/* A transaction's rollback data stays in memory, because /tmp may be full too.  Some builds of
	 * SQLite, such as Debian's, overwrite deleted data by default; then a delete would need as much room
	 * as it frees. */
	snprintf(pragmas, sizeof pragmas,
		 "PRAGMA secure_delete = FAST;"
		 "PRAGMA temp_store = MEMORY; PRAGMA auto_vacuum = INCREMENTAL; PRAGMA journal_mode = WAL;"
		 "PRAGMA synchronous = FULL; PRAGMA journal_size_limit = %lld; PRAGMA wal_autocheckpoint = "
		 "%lld",
		 (long long)f->disk.wal_bytes, (long long)f->disk.wal_bytes / PAGE_BYTES);
	/* Do not write to another program's file.  A new file has no tables. */
	errno = 0;
	int64_t n = journal_get_int(f->db, "SELECT count(*) FROM sqlite_schema", &rc);
	if (rc)
		return journal_why(f->path, f->db, rc, why);
	if (n && (rc = check_identity(f, cfg, why)))
		return rc;
	if ((rc = journal_exec(f->db, pragmas)) || (rc = n ? migrate(f, cfg) : make_tables(f, cfg)))
		return journal_why(f->path, f->db, rc, why);
	return check_pages(f, why);
}

int journal_file_open(struct journal_file *f, const struct journal_config *cfg, struct why *why)
{
	*f = (struct journal_file){.path = xstrdup(cfg->path), .lock_fd = -1, .disk.fd = -1};
	int rc = take_lock(f, why);
	if (rc)
		return rc;
	journal_disk_init(&f->disk, cfg, f->lock_fd);
	/* SQLite's own files take the mode of this one: readable only by its owner. */
	int fd = open(f->path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0)
		return err_why(why, -errno, "journal %s: %s", f->path, strerror(errno));
	close(fd);
	rc = open_db(f, cfg, why);
	if (rc == -ENOSPC && journal_disk_drop_ballast(&f->disk)) {
		journal_db_close(f->db);
		f->db = NULL;
		rc = open_db(f, cfg, why);
	}
	if (!rc)
		journal_disk_make_ballast(&f->disk);
	return rc;
}

bool journal_file_may_open_later(int rc)
{
	return rc == -ENOSPC || rc == -EDQUOT || rc == -EROFS;
}

void journal_file_close(struct journal_file *f, bool refused)
{
	if (refused && f->locked) {
		char *name = xasprintf("%s-lock", f->path);
		unlink(name);
		free(name);
	}
	journal_db_close(f->db);
	journal_disk_fini(&f->disk);
	if (f->lock_fd >= 0)
		close(f->lock_fd);
	free(f->path);
	*f = (struct journal_file){.lock_fd = -1, .disk.fd = -1};
}
