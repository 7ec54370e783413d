/* fingerprint.h - one SHA-256 of all contents of a model, and the checksums of files that it is made of.
 *
 *     fingerprint   SHA-256 of "quern model 1\0", the first file's name (or nothing) and \0, and for each
 * file, by name: the name, \0, its size in 64 bits, little-endian, the SHA-256 of its contents
 *
 * A file is read once: its checksum is kept below a folder of records, with what stat(2) tells of the file
 * (size, times of change, inode), and counts as long as nothing of that differs.
 *
 *     RECORDS/DEVICE-INODE    "SIZE MTIME CTIME SHA256\n"
 *
 * A file that was changed within the last seconds gets no record: another change within the clock's
 * granularity would not show. */
#ifndef QUERN_STORE_FINGERPRINT_H
#define QUERN_STORE_FINGERPRINT_H

#include "proto/manifest.h"
#include "store/files.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void manifest_fingerprint(const struct manifest *m, char out[MANIFEST_FINGERPRINT]);

struct checksums {
	const char *records;         /* folder, made when it is needed; NULL: none are kept */
	atomic_uint_fast64_t *bytes; /* grows as files are read; NULL is fine */
	const atomic_bool *stop;     /* ends a long one with -ECANCELED; NULL is fine */
};

/* Of the file dir/name, from its record or by reading it.  -ENOENT, ...; -EAGAIN: it changed meanwhile. */
int checksum_file(const struct checksums *c, const char *dir, const char *name, uint8_t out[MANIFEST_DIGEST],
		  char *why, size_t why_n);
/* From its record alone; false: there is none that fits. */
bool checksum_known(const struct checksums *c, const char *dir, const char *name,
		    uint8_t out[MANIFEST_DIGEST]);
/* Records what was computed while the file was written, by this process alone.  Failing is fine. */
void checksum_record(const struct checksums *c, const char *path, const uint8_t digest[MANIFEST_DIGEST]);

/* The manifest of these files.  known: from records alone, -ENOENT where one is missing.  -EAGAIN: a file is
 * not what the list was made of any more. */
int manifest_make(struct manifest *out, const struct store_files *l, const char *model,
		  const struct checksums *c, bool known, char *why, size_t why_n);

#endif
