/* part.h - one file that is being fetched: its chunks (struct part_piece), the bytes present, its checksum.
 *
 *     DIR/.FILE.part      the contents, with holes; the whole size is reserved
 *     DIR/.FILE.state     {"size", "piece", "digest", "done": [bytes of each chunk]}: where to resume after a
 *                         kill
 *     DIR/.FILE.state~    the next state; reserved, so that a full disk loses nothing that was fetched
 *     DIR/FILE            when the file is complete and the checksum is right
 *
 *     [ chunk 0 #####...][ chunk 1 ########][ chunk 2 ##......]     # present, from each chunk's beginning
 *       ^ hashed up to the first hole
 *
 * The state is written after the contents.  If they disagree (a power cut), the checksum detects it. */
#ifndef QUERN_CLI_MODELS_PART_H
#define QUERN_CLI_MODELS_PART_H

#include "base/err.h"
#include "cli/models/file_list.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct part_piece {
	int64_t from, to; /* to: exclusive */
	int64_t done;     /* bytes present, counted from `from` */
	bool busy;
};

struct part {
	const struct file_entry *file; /* borrowed */
	char *path, *part_path, *state_path, *temp_path;
	int fd;
	struct part_piece *pieces;
	size_t n_pieces;
	bool ranges;         /* false: the server sends only whole files */
	bool resumed;        /* some of the contents are from an earlier run */
	bool dirty;          /* the state on disk is outdated */
	int64_t hashed;      /* bytes hashed, from the beginning */
	void *hash;          /* hash state; NULL: no checksum is known */
	bool corrupt_before; /* the file is fetched again after a wrong checksum */
};

/* Open or make .FILE.part and its folders below dir, and reserve its size.  -ENOSPC, ... with the reason. */
int part_open(struct part *p, const char *dir, const struct file_entry *f, struct why *why);
/* Close the part and keep its contents for another run.  A zeroed part is fine. */
void part_close(struct part *p);

int64_t part_done(const struct part *p); /* bytes present */
bool part_is_complete(const struct part *p);
/* Return a chunk that nothing fetches yet; NULL: none. */
struct part_piece *part_free_piece(struct part *p);

/* Append data to a chunk, at most the bytes that it lacks. */
int part_write(struct part *p, struct part_piece *piece, const char *data, size_t n, struct why *why);
/* Start over as one chunk.  Calls that fetch chunks must have ended. */
int part_restart(struct part *p, bool ranges, struct why *why);

/* Hash at most max bytes of the contents.  *caught_up: the hash has reached the first hole or the end. */
int part_hash(struct part *p, int64_t max, bool *caught_up, struct why *why);
/* Check, sync and rename a complete and hashed part.  -EBADMSG: the checksum is wrong. */
int part_finish(struct part *p, struct why *why);

/* Write the state if it has changed. */
int part_save(struct part *p, struct why *why);

/* Return the bytes of f that earlier runs have stored below dir: all of f if it is finished (*finished). */
int64_t part_on_disk(const char *dir, const struct file_entry *f, bool *finished);

#endif
