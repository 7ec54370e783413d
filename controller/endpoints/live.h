/* live.h - snapshots of the service as JSON, whole or as changes since the one before.
 * Pure: no socket, no clock.
 *
 * A frame is one object (docs/PROTOCOL.md, "The live stream"), made of sections.  A viewer's first
 * frame holds all of them and the history; later ones hold `now`, `steps` and the sections that
 * differ from the frame before. */
#ifndef QUERN_CONTROLLER_ENDPOINTS_LIVE_H
#define QUERN_CONTROLLER_ENDPOINTS_LIVE_H

#include "base/buf.h"
#include "controller/jobs/mailbox.h"
#include "controller/message/service.h"
#include "controller/metrics/loghist.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	LIVE_HISTORY = 300, /* points that are kept: five minutes of seconds */
	LIVE_WINDOW = 10,   /* points that a latency is taken over */
	LIVE_CELLS = 16384, /* of all replicas' maps together */
	LIVE_CELLS_ONE = 1024,
	LIVE_CELLS_LEAST = 64,
	LIVE_JOBS_ALL = 1000, /* rows requested to find those of one owner */
	LIVE_JOBS = 100,      /* rows */
};

enum live_value {
	LIVE_PROMPT_TPS,
	LIVE_DECODE_TPS,
	LIVE_RUNNING,
	LIVE_WAITING,
	LIVE_SWAPPED,
	LIVE_HELD, /* share of the device blocks, 0 to 1 */
	LIVE_CACHED,
	LIVE_TTFT_P50, /* milliseconds; negative: nothing was measured */
	LIVE_TTFT_P99,
	LIVE_ITL_P50,
	LIVE_ITL_P99,
	LIVE_VALUES
};

/* One second of the history. */
struct live_point {
	int64_t unix_ms;
	double value[LIVE_VALUES];
};

/* Latencies, read from counters that only grow. */
struct live_latency {
	uint64_t seen[LIVE_WINDOW + 1][LOGHIST_BUCKETS]; /* ring of readings */
};

enum live_section { LIVE_SERVICE, LIVE_REPLICAS, LIVE_WORKERS, LIVE_JOBS_TABLE, LIVE_SECTIONS };

struct live_map {
	uint64_t replica;
	struct buf device, host; /* a character per cell */
};

struct live_frame {
	struct buf section[LIVE_SECTIONS]; /* JSON */
	struct buf steps;                  /* of the workers: changes with every frame */
	struct live_map maps[ENGINE_REPLICAS_MAX];
	size_t n_maps;
};

struct live {
	char instance[17]; /* of this controller process: changes with a restart */
	struct live_point history[LIVE_HISTORY];
	size_t n_history, next_history;
	struct live_latency ttft, itl;
	size_t n_readings;                        /* of the latencies, so far */
	uint64_t prompt_tokens, generated_tokens; /* of the last status */
	int64_t status_us;                        /* its time; 0: none */
	uint32_t n_queued, n_running, n_finished; /* jobs */
	json_t *rows;                             /* of jobs; owned, or NULL */
	struct live_frame frames[2];              /* the last one and the one before, alternating */
	unsigned last;
};

void live_init(struct live *l, uint64_t instance);
void live_fini(struct live *l);

/* Cells that the map of each of n replicas may have. */
uint32_t live_cells(size_t n_replicas);

/* Records a snapshot.  s->status NULL (the engine did not answer): the engine's sections stay as they
 * were.  Takes s->jobs.  ttft, itl: NULL for none. */
void live_take(struct live *l, const struct service *svc, struct mailbox_snapshot *s, int64_t now_us,
	       int64_t unix_ms, const struct loghist *ttft, const struct loghist *itl);

/* The last frame as a whole, with the history; or its changes.  Appends an event of a stream,
 * "data: {...}\n\n".  owner: only jobs of this API key are shown; NULL: those of none. */
void live_put_whole(const struct live *l, const char *owner, struct buf *out);
void live_put_change(const struct live *l, const char *owner, struct buf *out);

/* A cell as a character: '.' + its place among the pairs (held, cached) in eighths, held + cached
 * at most 8, by held, then cached: 45 of them.  A count above 0 is at least an eighth. */
char live_cell(uint32_t n, uint32_t held, uint32_t cached);

#endif
