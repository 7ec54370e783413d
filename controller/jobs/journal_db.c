/* journal_db.c - a connection to the journal's file: prepared statements, and translation of errors. */
#include "controller/jobs/journal_impl.h"

#include "base/alloc.h"
#include "base/err.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
	STATEMENTS_MAX = 128,
	BUSY_MS = 10000, /* other connections only read and do not block the file for long */
};

struct journal_db {
	sqlite3 *db;
	struct {
		const char *sql; /* static text, compared as a pointer */
		sqlite3_stmt *stmt;
	} cache[STATEMENTS_MAX];
	unsigned n;
};

/* --- statements --- */

/* Return a statement from the cache, reset and without bindings; NULL: see journal_error(). */
static sqlite3_stmt *prepare(struct journal_db *db, const char *sql)
{
	for (unsigned i = 0; i < db->n; i++)
		if (db->cache[i].sql == sql) {
			sqlite3_reset(db->cache[i].stmt);
			sqlite3_clear_bindings(db->cache[i].stmt);
			return db->cache[i].stmt;
		}
	assert(db->n < STATEMENTS_MAX);
	sqlite3_stmt *s = NULL;
	if (sqlite3_prepare_v3(db->db, sql, -1, SQLITE_PREPARE_PERSISTENT, &s, NULL))
		return NULL;
	db->cache[db->n].sql = sql;
	db->cache[db->n++].stmt = s;
	return s;
}

static int bind(sqlite3_stmt *s, int at, const struct journal_value *v)
{
	switch (v->type) {
	case JOURNAL_INT:
		return sqlite3_bind_int64(s, at, v->i);
	case JOURNAL_TEXT:
		return sqlite3_bind_text(s, at, v->p, -1, SQLITE_STATIC);
	case JOURNAL_BLOB:
		return sqlite3_bind_blob64(s, at, v->p, v->n, SQLITE_STATIC);
	case JOURNAL_NULL:
		break;
	}
	return SQLITE_OK; /* an unbound parameter is NULL */
}

sqlite3_stmt *journal_query(struct journal_db *db, const char *sql, const struct journal_value *values,
			    size_t n)
{
	sqlite3_stmt *s = prepare(db, sql);
	for (size_t i = 0; s && i < n; i++)
		if (bind(s, (int)i + 1, &values[i]))
			return NULL;
	return s;
}

int journal_run(struct journal_db *db, const char *sql, const struct journal_value *values, size_t n)
{
	sqlite3_stmt *s = journal_query(db, sql, values, n);
	if (!s)
		return journal_error(db);
	int rc = sqlite3_step(s);
	sqlite3_reset(s);
	sqlite3_clear_bindings(s);
	return rc == SQLITE_DONE || rc == SQLITE_ROW ? SQLITE_OK : rc;
}

int journal_exec(struct journal_db *db, const char *sql)
{
	return sqlite3_exec(db->db, sql, NULL, NULL, NULL);
}

int64_t journal_get_int(struct journal_db *db, const char *sql, int *rc)
{
	sqlite3_stmt *s = NULL;
	int64_t v = 0;
	*rc = sqlite3_prepare_v2(db->db, sql, -1, &s, NULL);
	if (!*rc) {
		*rc = sqlite3_step(s);
		if (*rc == SQLITE_ROW) {
			v = sqlite3_column_int64(s, 0);
			*rc = SQLITE_OK;
		} else if (*rc == SQLITE_DONE) {
			*rc = SQLITE_OK;
		}
	}
	sqlite3_finalize(s);
	return v;
}

/* --- errors --- */

int journal_error(const struct journal_db *db)
{
	return sqlite3_errcode(db->db);
}

const char *journal_errmsg(const struct journal_db *db)
{
	return sqlite3_errmsg(db->db);
}

bool journal_in_transaction(const struct journal_db *db)
{
	return !sqlite3_get_autocommit(db->db);
}

void journal_db_patience(struct journal_db *db, bool waits)
{
	sqlite3_busy_timeout(db->db, waits ? BUSY_MS : 0);
}

bool journal_is_disk_error(int rc)
{
	switch (rc & 0xff) {
	case SQLITE_FULL:
	case SQLITE_IOERR:
	case SQLITE_CORRUPT:
	case SQLITE_NOTADB:
	case SQLITE_NOMEM:
	case SQLITE_READONLY:
	case SQLITE_CANTOPEN:
	case SQLITE_BUSY:
	case SQLITE_LOCKED:
	case SQLITE_PERM:
	case SQLITE_PROTOCOL:
		return true;
	default:
		return false;
	}
}

int journal_why(const char *path, const struct journal_db *db, int rc, struct why *why)
{
	switch (rc & 0xff) {
	case SQLITE_NOTADB:
		return err_why(why, -EBADMSG, "%s is not a journal of quern; name another file", path);
	case SQLITE_CORRUPT:
		return err_why(why, -EBADMSG,
			       "%s is damaged; move it (and %s-wal) away, or recover what is left of it with "
			       "sqlite3's .recover",
			       path, path);
	case SQLITE_FULL:
		return err_why(why, -ENOSPC, "%s cannot be written: the disk is full", path);
	case SQLITE_BUSY:
	case SQLITE_LOCKED:
		return err_why(why, -EBUSY, "%s is being written by another program", path);
	case SQLITE_READONLY:
	case SQLITE_PERM:
		return err_why(why, -EACCES, "%s cannot be written: permission is missing", path);
	default:
		break;
	}
	/* Not every version of SQLite keeps the errno of opening. */
	int last = errno, e = sqlite3_system_errno(db->db);
	if (!e && (rc & 0xff) == SQLITE_IOERR)
		e = last;
	bool full = e == ENOSPC || e == EFBIG || e == EDQUOT;
	return err_why(why, full ? -ENOSPC : -EIO, "%s cannot be written: %s%s%s", path,
		       sqlite3_errmsg(db->db), e ? ": " : "", e ? strerror(e) : "");
}

/* --- lifecycle --- */

void journal_db_close(struct journal_db *db)
{
	if (!db)
		return;
	for (unsigned i = 0; i < db->n; i++)
		sqlite3_finalize(db->cache[i].stmt);
	sqlite3_close(db->db);
	free(db);
}

int journal_db_open(const char *path, int flags, struct journal_db **out, struct why *why)
{
	struct journal_db *d = xcalloc(1, sizeof *d);
	int on;
	int rc = sqlite3_open_v2(path, &d->db, flags | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE, NULL);
	if (!rc)
		rc = sqlite3_busy_timeout(d->db, BUSY_MS);
	/* The file may come from elsewhere, so its schema is not trusted. */
	if (!rc)
		rc = sqlite3_db_config(d->db, SQLITE_DBCONFIG_DEFENSIVE, 1, &on);
	if (!rc)
		rc = sqlite3_db_config(d->db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, &on);
	if (!rc)
		rc = sqlite3_exec(d->db, "PRAGMA cell_size_check = on", NULL, NULL, NULL);
	if (rc) {
		rc = journal_why(path, d, rc, why);
		journal_db_close(d);
		return rc;
	}
	*out = d;
	return 0;
}
