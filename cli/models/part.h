/* part.h - one file that is being fetched: its pieces, what of them is there, its checksum.
 *
 *     DIR/.FILE.part      the contents, with holes; the whole size is reserved
 *     DIR/.FILE.state     {"size", "piece", "digest", "done": [bytes of each piece]}: how to go on after a
 *                         kill
 *     DIR/.FILE.state~    the next state; reserved, so that a disk that fills costs nothing that was fetched
 *     DIR/FILE            when all is there and the checksum is right
 *
 *     [ piece 0 #####...][ piece 1 ########][ piece 2 ##......]     # there, from each piece's beginning
 *       ^ hashed up to the first hole
 *
 * The state is written behind the contents; should they disagree (a power cut), the checksum tells. */
#ifndef QUERN_CLI_MODELS_PART_H
#define QUERN_CLI_MODELS_PART_H

#include "cli/models/file_list.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct part_piece {
	int64_t from, to; /* to: exclusive */
	int64_t done;     /* bytes there, from `from` */
	bool busy;
};

struct part {
	const struct file_entry *file; /* borrowed */
	char *path, *part_path, *state_path, *temp_path;
	int fd;
	struct part_piece *pieces;
	size_t n_pieces;
	bool ranges;         /* false: the server sends only whole files */
	bool resumed;        /* some of it is of an earlier run */
	bool dirty;          /* the state on disk is older */
	int64_t hashed;      /* bytes, from the beginning */
	void *hash;          /* NULL: no checksum is known */
	bool corrupt_before; /* fetched again after a wrong checksum */
};

/* Opens or makes .FILE.part and its folders below dir, reserves its size.  -ENOSPC, ... with the reason. */
int part_open(struct part *p, const char *dir, const struct file_entry *f, char *why, size_t why_n);
/* Keeps what is there, for another run.  A zeroed part is fine. */
void part_close(struct part *p);

int64_t part_done(const struct part *p); /* bytes there */
bool part_is_complete(const struct part *p);
/* A piece that nothing fetches yet; NULL: none. */
struct part_piece *part_free_piece(struct part *p);

/* Bytes of a piece, behind those that are there; at most what it lacks. */
int part_write(struct part *p, struct part_piece *piece, const char *data, size_t n, char *why, size_t why_n);
/* From the beginning, as one piece; calls that fetch pieces have been ended. */
int part_restart(struct part *p, bool ranges, char *why, size_t why_n);

/* Hashes at most max bytes of what is there.  true: it has caught up with the first hole, or the end. */
int part_hash(struct part *p, int64_t max, bool *caught_up, char *why, size_t why_n);
/* Of a complete and hashed part: checks, syncs and renames.  -EBADMSG: the checksum is wrong. */
int part_finish(struct part *p, char *why, size_t why_n);

/* Writes the state if it has changed. */
int part_save(struct part *p, char *why, size_t why_n);

/* Bytes on disk of what earlier runs fetched of f below dir: all of it if it is finished (*finished). */
int64_t part_on_disk(const char *dir, const struct file_entry *f, bool *finished);

#endif
