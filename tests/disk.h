/* disk.h - an SQLite VFS that counts bytes written but not synced, and fails on request. It is registered as
 * the default and forwards to the real VFS. */
#ifndef QUERN_TESTS_DISK_H
#define QUERN_TESTS_DISK_H

#include <sqlite3.h>
#include <stdatomic.h>
#include <string.h>

struct disk_file {
	sqlite3_file base;
	_Bool is_wal;
	sqlite3_file *real; /* stored after this struct */
};

static struct {
	sqlite3_vfs vfs;
	sqlite3_vfs *real;
	sqlite3_io_methods io;
	atomic_size_t unsynced; /* bytes of -wal files written since their last sync */
	atomic_size_t n_syncs;  /* syncs of -wal files */
	atomic_int fail_write;  /* SQLite error code of every write; 0: writes succeed */
	atomic_int fail_sync;
	atomic_int good_reads; /* reads that succeed before all reads fail; negative: all reads succeed */
} disk = {.good_reads = -1};

static inline sqlite3_file *disk_real(sqlite3_file *f)
{
	return ((struct disk_file *)f)->real;
}

static inline int disk_close(sqlite3_file *f)
{
	return disk_real(f)->pMethods->xClose(disk_real(f));
}

static inline int disk_read(sqlite3_file *f, void *p, int n, sqlite3_int64 at)
{
	int left = atomic_load(&disk.good_reads);
	if (left == 0)
		return SQLITE_IOERR_READ;
	if (left > 0)
		atomic_fetch_sub(&disk.good_reads, 1);
	return disk_real(f)->pMethods->xRead(disk_real(f), p, n, at);
}

static inline int disk_write(sqlite3_file *f, const void *p, int n, sqlite3_int64 at)
{
	int fail = atomic_load(&disk.fail_write);
	if (fail)
		return fail;
	if (((struct disk_file *)f)->is_wal)
		atomic_fetch_add(&disk.unsynced, (size_t)n);
	return disk_real(f)->pMethods->xWrite(disk_real(f), p, n, at);
}

static inline int disk_truncate(sqlite3_file *f, sqlite3_int64 n)
{
	return disk_real(f)->pMethods->xTruncate(disk_real(f), n);
}

static inline int disk_sync(sqlite3_file *f, int flags)
{
	int fail = atomic_load(&disk.fail_sync);
	if (fail)
		return fail;
	int rc = disk_real(f)->pMethods->xSync(disk_real(f), flags);
	if (!rc && ((struct disk_file *)f)->is_wal) {
		atomic_store(&disk.unsynced, 0);
		atomic_fetch_add(&disk.n_syncs, 1);
	}
	return rc;
}

static inline int disk_size(sqlite3_file *f, sqlite3_int64 *n)
{
	return disk_real(f)->pMethods->xFileSize(disk_real(f), n);
}

static inline int disk_lock(sqlite3_file *f, int how)
{
	return disk_real(f)->pMethods->xLock(disk_real(f), how);
}

static inline int disk_unlock(sqlite3_file *f, int how)
{
	return disk_real(f)->pMethods->xUnlock(disk_real(f), how);
}

static inline int disk_check(sqlite3_file *f, int *out)
{
	return disk_real(f)->pMethods->xCheckReservedLock(disk_real(f), out);
}

static inline int disk_control(sqlite3_file *f, int op, void *arg)
{
	return disk_real(f)->pMethods->xFileControl(disk_real(f), op, arg);
}

static inline int disk_sector(sqlite3_file *f)
{
	return disk_real(f)->pMethods->xSectorSize(disk_real(f));
}

static inline int disk_device(sqlite3_file *f)
{
	return disk_real(f)->pMethods->xDeviceCharacteristics(disk_real(f));
}

static inline int disk_shm_map(sqlite3_file *f, int page, int size, int extend, void volatile **out)
{
	return disk_real(f)->pMethods->xShmMap(disk_real(f), page, size, extend, out);
}

static inline int disk_shm_lock(sqlite3_file *f, int at, int n, int flags)
{
	return disk_real(f)->pMethods->xShmLock(disk_real(f), at, n, flags);
}

static inline void disk_shm_barrier(sqlite3_file *f)
{
	disk_real(f)->pMethods->xShmBarrier(disk_real(f));
}

static inline int disk_shm_unmap(sqlite3_file *f, int del)
{
	return disk_real(f)->pMethods->xShmUnmap(disk_real(f), del);
}

static inline int disk_open(sqlite3_vfs *v, const char *name, sqlite3_file *f, int flags, int *out)
{
	struct disk_file *d = (struct disk_file *)f;
	(void)v;
	memset(d, 0, sizeof *d);
	d->real = (sqlite3_file *)(d + 1);
	d->is_wal = (flags & SQLITE_OPEN_WAL) != 0;
	int rc = disk.real->xOpen(disk.real, name, d->real, flags, out);
	/* SQLite closes a file that has methods, even if opening it failed. */
	f->pMethods = d->real->pMethods ? &disk.io : NULL;
	return rc;
}

static inline void disk_install(void)
{
	disk.real = sqlite3_vfs_find(NULL);
	disk.vfs = *disk.real;
	disk.vfs.pNext = NULL;
	disk.vfs.zName = "disk";
	disk.vfs.szOsFile = (int)sizeof(struct disk_file) + disk.real->szOsFile;
	disk.vfs.xOpen = disk_open;
	disk.io = (sqlite3_io_methods){
		2,           disk_close,   disk_read,     disk_write,       disk_truncate,  disk_sync,
		disk_size,   disk_lock,    disk_unlock,   disk_check,       disk_control,   disk_sector,
		disk_device, disk_shm_map, disk_shm_lock, disk_shm_barrier, disk_shm_unmap, NULL,
		NULL};
	sqlite3_vfs_register(&disk.vfs, 1);
}

#endif
