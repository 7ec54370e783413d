/* fingerprint.h - one SHA-256 of all contents of a model, and the checksums of its files.
 *
 *     fingerprint   SHA-256 of "quern model 1\0", the first file's name (or nothing) and \0, and for each
 *                   file, by name: the name, \0, its size in 64 bits, little-endian, the SHA-256 of its
 *                   contents
 *
 * A file is read once.  Its checksum is stored in a folder of records, with the file's stat(2) data (size,
 * times of change, inode), and is valid as long as all of these are unchanged.
 *
 *     RECORDS/DEVICE-INODE    "SIZE MTIME CTIME SHA256\n"
 *
 * A file changed within the last seconds gets no record: another change within the clock's granularity
 * would go unnoticed. */
#ifndef QUERN_STORE_FINGERPRINT_H
#define QUERN_STORE_FINGERPRINT_H

#include "base/err.h"
#include "proto/manifest.h"
#include "store/files.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void manifest_fingerprint(const struct manifest *m, char out[MANIFEST_FINGERPRINT]);

struct checksums {
	const char *records;         /* folder, created when needed; NULL: no records are kept */
	atomic_uint_fast64_t *bytes; /* bytes read so far; NULL is fine */
	const atomic_bool *stop;     /* set to end a long read with -ECANCELED; NULL is fine */
};

/* Get the checksum of dir/name, from its record or by reading the file.  -ENOENT, ...; -EAGAIN: the file
 * changed while it was read. */
int checksum_file(const struct checksums *c, const char *dir, const char *name, uint8_t out[MANIFEST_DIGEST],
		  struct why *why);
/* Get the checksum from the record alone; false: there is no valid record. */
bool checksum_known(const struct checksums *c, const char *dir, const char *name,
		    uint8_t out[MANIFEST_DIGEST]);
/* Record a checksum that this process computed while it wrote the file, as its only writer.  Failing is
 * fine. */
void checksum_record(const struct checksums *c, const char *path, const uint8_t digest[MANIFEST_DIGEST]);

/* Make the manifest of these files.  known: from records alone, -ENOENT if a record is missing.  -EAGAIN: a
 * file has changed since it was listed. */
int manifest_make(struct manifest *out, const struct store_files *l, const char *model,
		  const struct checksums *c, bool known, struct why *why);

#endif
