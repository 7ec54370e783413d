/* live.h - snapshots of the service as JSON, whole or as changes since the previous snapshot.
 * Pure: no socket, no clock.
 *
 * A frame is one object (docs/PROTOCOL.md, "The live stream"), made of sections.  A viewer's first frame has
 * all sections and the history; later frames have `now`, `steps` and the sections that changed since the
 * previous frame. */
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
	LIVE_HISTORY = 300, /* points of history, one per second: five minutes */
	LIVE_WINDOW = 10,   /* points over which a latency is computed */
	LIVE_CELLS = 16384, /* limit for the maps of all replicas together */
	LIVE_CELLS_ONE = 1024,
	LIVE_CELLS_LEAST = 64,
	LIVE_JOBS_ALL = 1000, /* rows requested in order to find one owner's rows */
	LIVE_JOBS = 100,      /* limit of rows shown */
};

enum live_value {
	LIVE_PROMPT_TPS,
	LIVE_DECODE_TPS,
	LIVE_RUNNING,
	LIVE_WAITING,
	LIVE_SWAPPED,
	LIVE_HELD, /* share of the device blocks, 0 to 1 */
	LIVE_CACHED,
	LIVE_TTFT_P50, /* milliseconds; negative: not measured */
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

/* Latencies, from counters that only grow. */
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
	struct buf steps;                  /* steps of the workers: changes with every frame */
	struct live_map maps[ENGINE_REPLICAS_MAX];
	size_t n_maps;
};

struct live {
	char instance[17]; /* id of this controller process: changes with a restart */
	struct live_point history[LIVE_HISTORY];
	size_t n_history, next_history;
	struct live_latency ttft, itl;
	size_t n_readings;                        /* latency readings so far */
	uint64_t prompt_tokens, generated_tokens; /* counters of the last status */
	int64_t status_us;                        /* time of the last status; 0: none */
	uint32_t n_queued, n_running, n_finished; /* jobs */
	json_t *rows;                             /* rows of jobs; owned, or NULL */
	struct live_frame frames[2];              /* last and previous frame, alternating */
	unsigned last;
};

void live_init(struct live *l, uint64_t instance);
void live_fini(struct live *l);

/* Return the number of cells that each of n replicas' maps may have. */
uint32_t live_cells(size_t n_replicas);

/* Record a snapshot.  s->status NULL (the engine did not answer): the engine's sections stay unchanged.
 * Takes s->jobs.  ttft, itl: NULL for none. */
void live_take(struct live *l, const struct service *svc, struct mailbox_snapshot *s, int64_t now_us,
	       int64_t unix_ms, const struct loghist *ttft, const struct loghist *itl);

/* Append the last frame as an event of a stream, "data: {...}\n\n": whole, with the history, or only its
 * changes.  owner: show only jobs of this API key; NULL: only jobs without a key. */
void live_put_whole(const struct live *l, const char *owner, struct buf *out);
void live_put_change(const struct live *l, const char *owner, struct buf *out);

/* Return the character of a cell: '.' plus the index of its pair (held, cached), both in eighths with held +
 * cached at most 8, ordered by held, then cached: 45 pairs.  A count above 0 is at least one eighth. */
char live_cell(uint32_t n, uint32_t held, uint32_t cached);

#endif
