/* bus.h - the messages between controller (ROUTER) and workers (DEALER), and their bytes.
 * docs/PROTOCOL.md describes each.  One ZeroMQ frame holds one msgpack array [version, type, body].  The
 * body is a map; for a plan, a result, a vocabulary and a model's files it is an array of columns.
 *
 *   worker      -> hello                  its device, host and process
 *   controller  -> load                   the model to serve, and how
 *   controller  -> vocabulary             the model's tokens, for structured output; before the first plan
 *   worker      -> want                   request for the model's files, if the load has `offers`
 *   controller  -> files, chunk ...       the files' names and contents
 *   worker      -> beat (loading) ...     every 250 ms
 *   worker      -> ready | failed
 *   controller  -> plan, plan, ...        at most two in flight
 *   worker      -> result, result, ...    and beats
 *   controller  -> beat                   every 250 ms
 *   controller  -> stop                   the worker replies with stop
 *
 * All input is checked: sizes, counts, types, versions.  A malformed message is -EBADMSG with a reason; a
 * message of another version is -EPROTO.
 *
 * bus.c holds the envelope and the control messages, bus_plan.c plans and results, bus_vocabulary.c the
 * vocabulary, bus_model.c the files of a model. */
#ifndef QUERN_PROTO_BUS_H
#define QUERN_PROTO_BUS_H

#include "base/buf.h"
#include "base/err.h"
#include "base/numerics.h"
#include "proto/counts.h"
#include "proto/local_token.h"
#include "proto/manifest.h"
#include "proto/plan.h"
#include "proto/vocabulary.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { BUS_BEAT_MS = 250, BUS_MESSAGE_MAX = 256 << 20, BUS_CHUNK_MAX = 256 << 10 };

enum bus_type {
	BUS_HELLO = 1,
	BUS_LOAD,
	BUS_READY,
	BUS_FAILED,
	BUS_PLAN,
	BUS_RESULT,
	BUS_BEAT,
	BUS_STOP,
	BUS_VOCABULARY,
	BUS_WANT, /* this type and those below: only if the load has `offers` */
	BUS_FILES,
	BUS_CHUNK,
	BUS_AWAKE,
};

enum { BUS_RENDEZVOUS_SIZE = 288, BUS_RANKS_MAX = 64, BUS_QUICK_FINGERPRINT_SIZE = 128 };

struct bus_hello {
	char device[32]; /* "cpu:0" */
	char host[128];
	int64_t pid;
	/* Meeting place for the other ranks, if this worker becomes rank 0 of a group.  It is new in every
	 * hello, and opaque to the controller (worker/tp_group.h).  "": the worker cannot join a group. */
	char rendezvous[BUS_RENDEZVOUS_SIZE];
	/* Over TCP: proof that the controller's supervisor started this worker.  Without it the controller
	 * does not trust host and pid.  "": none. */
	char token[LOCAL_TOKEN_SIZE];
	char compute[8]; /* the worker's default mode ("auto"): "int16" */
	/* Default mode of host experts (CPU offload), if the worker may have some and is free to choose
	 * (--experts-compute auto); else "". */
	char experts_compute[8];
	/* True: `compute` is the mode of the model loaded last, for this or an earlier controller, rather
	 * than the worker's default. */
	bool loaded;
	bool experts_loaded; /* like `loaded`, for experts_compute: the last model has host experts */
};

/* The model to serve, and how.  A number that is 0: the worker chooses. */
struct bus_load {
	char model[2048];        /* path on the worker's host */
	char compute[8];         /* "f32"; "" or "auto": the device's best mode */
	char experts_compute[8]; /* mode of host experts (CPU offload), if the hello asks for one */
	char head[8];            /* "stored", "int8"; "" or "auto": as for the compute mode */
	char kv[8];              /* "f32", "bf16", "int16", "int8"; "" or "auto": as for the compute mode */
	uint64_t epoch;
	uint32_t block_size;  /* tokens */
	uint32_t max_context; /* tokens per sequence */
	uint32_t max_rows;    /* tokens per step */
	uint32_t max_slots;   /* sequences held by the worker */
	uint32_t max_runs;    /* runs per step */
	uint64_t kv_bytes;    /* device pool, bytes */
	uint64_t swap_bytes;  /* host pool, bytes */
	uint32_t n_threads;
	uint32_t n_ranks;   /* workers of the group; 1: no group */
	uint32_t rank;      /* this worker's rank, from 0 */
	uint32_t n_sharing; /* ranks that run on the same cores, this rank included; 0: this rank alone */
	char rendezvous[BUS_RENDEZVOUS_SIZE]; /* meeting place of rank 0, from its hello */
	bool ep;   /* --ep: each rank holds some experts whole, rather than a shard of each */
	bool fast; /* --fast: results may depend on the batch */
	/* Fingerprint estimate of the controller's model (store/files.h), opaque here; the worker's model
	 * must have the same.  "": not known, since the controller has no weights.  From another version of
	 * the rule: not compared. */
	char quick_fingerprint[BUS_QUICK_FINGERPRINT_SIZE];
	/* fingerprint of all contents (store/fingerprint.h); "": not known yet */
	char fingerprint[MANIFEST_FINGERPRINT];
	bool offers; /* the controller answers BUS_WANT */
};

struct bus_ready {
	uint64_t epoch;
	char numerics[NUMERICS_MAX];
	char device_name[64];
	char isa[32];
	uint32_t n_blocks; /* device pool */
	uint32_t n_host_blocks;
	uint32_t n_vocab;
	uint64_t weights_bytes; /* on the device */
	uint64_t kv_bytes;      /* KV pool on the device */
	uint64_t stored_bytes;  /* size of those weights in the model's files */
	uint64_t scratch_bytes; /* all other device memory that the worker has allocated, by its own count */
	uint64_t host_bytes;    /* the host pool */
	uint64_t host_weights_bytes; /* host experts; 0 if device and host share memory */
	uint64_t device_used;        /* device memory used by all processes; on a CPU: the machine's memory */
	uint64_t device_bytes;       /* size of the device's memory */
	uint32_t load_ms;
	uint32_t n_threads;
	uint64_t block_bytes; /* size of one block: all layers of a kind */
	struct kinds kinds;   /* of the model's layers; all share the pools */
	uint64_t link_bps;    /* bytes per second between device and host pool, measured; 0: no host pool */
	/* Host experts are streamed to the device for steps of more rows than this; such a step's time
	 * hardly depends on its rows.  0: never. */
	uint32_t stream_above_rows;
};

struct bus_failed { /* the worker cannot continue, and exits after this message */
	uint64_t epoch;
	char why[512];
};

/* A worker's request: the list of files, or bytes of one file. */
#define BUS_WANT_LIST UINT32_MAX
struct bus_want {
	uint64_t epoch;
	uint32_t file; /* index in the list; BUS_WANT_LIST: the list itself */
	uint64_t offset;
	uint32_t bytes; /* at most BUS_CHUNK_MAX */
};

struct bus_chunk {
	uint32_t file;
	uint64_t offset;
	const void *bytes; /* borrowed */
	uint32_t n;
};

enum bus_state {
	BUS_LOADING = 1,
	BUS_SERVING,
	BUS_MISSED,  /* serving, but a plan is missing: resend the state */
	BUS_LEAVING, /* serving, but asked to end: move its jobs, then send it stop */
};

/* Activity of a worker that loads. */
enum bus_doing {
	BUS_DOING_OPEN,  /* configuration, device */
	BUS_DOING_READ,  /* weights from the disk; includes packing if the two cannot be separated */
	BUS_DOING_PACK,  /* weights into the layout and place that the kernels need */
	BUS_DOING_CACHE, /* the pools */
	BUS_DOING_WARM_UP,
	BUS_DOING_WAIT,  /* until another worker of the host, or the controller, has the model */
	BUS_DOING_CHECK, /* checksums of local files */
	BUS_DOING_FETCH, /* files from the controller */
	BUS_DOINGS,
};

/* Rows per expert since the epoch began, for n of the n_all cells of a model, starting with cell `from`.
 * Cell i is layer i / n_experts, expert i % n_experts.  Successive heartbeats carry successive ranges. */
enum { BUS_CELLS = 1024, BUS_CELLS_MAX = 1 << 17 };
struct bus_cells {
	uint32_t n_all, n_experts; /* 0: no cells */
	uint32_t from, n;
	uint64_t rows[BUS_CELLS];
};

struct bus_beat {
	uint64_t epoch; /* from the controller: epoch of the worker's group; 0: none */
	uint32_t state; /* from a worker: enum bus_state */
	/* from a worker: plans answered, or permille while loading; from the controller: plans sent */
	uint64_t progress;
	uint64_t expected; /* from a worker: number of the next plan to answer */
	/* from a worker: grows while a load or a step makes progress, at no particular rate */
	uint64_t moves;
	/* While loading: */
	uint32_t doing; /* enum bus_doing */
	uint64_t done,
		total; /* bytes of the model's files on the device, and in all; total 0: not known yet */
	/* While serving: */
	struct worker_counts counts; /* since the process began */
	uint64_t grammar_bytes;      /* bytes of compiled grammars */
	struct bus_cells cells;
};

/* From a worker: the masks are ready for which these slots' runs sat out.  Sent after the results that list
 * the slots as held. */
enum { BUS_AWAKE_MAX = 256 };
struct bus_awake {
	uint64_t epoch;
	uint32_t n;
	uint32_t slots[BUS_AWAKE_MAX];
};

struct bus_msg {
	enum bus_type type;
	union {
		struct bus_hello hello;
		struct bus_load load;
		struct bus_ready ready;
		struct bus_failed failed;
		struct bus_beat beat;
		struct bus_want want;
		struct bus_awake awake;
	}; /* stop has no body; plan, result, vocabulary, files and chunk have their own decoders */
};

/* Write the bytes of a message to out, which is cleared first. */
void bus_encode(const struct bus_msg *m, struct buf *out);
void bus_encode_plan(const struct plan *p, struct buf *out);
void bus_encode_result(const struct result *r, struct buf *out);
void bus_encode_vocabulary(const struct vocabulary *v, struct buf *out);

/* Return the type of a message, or -EBADMSG, -EPROTO. */
int bus_peek(const void *bytes, size_t n, struct why *why);
/* Decode any message but plan, result, vocabulary, files and chunk. */
int bus_decode(const void *bytes, size_t n, struct bus_msg *out, struct why *why);
/* Decode into a plan, which is reset first.  The arrays that its seqs point to belong to the plan until the
 * next reset.  A message beyond a limit is rejected. */
struct bus_limits {
	uint32_t max_slots;
	uint32_t max_rows;
	uint32_t max_runs;
	uint32_t max_context;
	uint32_t n_blocks;
	uint32_t n_host_blocks;
	uint32_t n_vocab;
	uint32_t n_kinds; /* kinds of layers; 0: one */
};
int bus_decode_plan(const void *bytes, size_t n, const struct bus_limits *lim, struct plan *out,
		    struct why *why);
/* Free a decoded plan: plan_fini(), and the arrays of its seqs. */
void bus_plan_fini(struct plan *p);
int bus_decode_result(const void *bytes, size_t n, const struct bus_limits *lim, struct result *out,
		      struct why *why);

/* Decode into a vocabulary, which is cleared first, and is empty after an error.  -EBADMSG: the checksum is
 * wrong, or there are more than n_vocab tokens. */
int bus_decode_vocabulary(const void *bytes, size_t n, uint32_t n_vocab, struct vocabulary *out,
			  struct why *why);

/* Encode the list or a chunk.  refusal: the reason why the controller cannot provide it, or ""; with a
 * refusal, m is zeroed. */
void bus_encode_files(const struct manifest *m, const char *refusal, struct buf *out);
void bus_encode_chunk(const struct bus_chunk *k, const char *refusal, struct buf *out);
/* Decode the list or a chunk.  -ENODATA: the controller refuses; why has its reason.  The caller owns the
 * list (manifest_fini()), which is empty after an error; a chunk's bytes belong to the message. */
int bus_decode_files(const void *bytes, size_t n, struct manifest *out, struct why *why);
int bus_decode_chunk(const void *bytes, size_t n, struct bus_chunk *out, struct why *why);

#endif
