/* bus.h - the messages between controller (ROUTER) and workers (DEALER), and their bytes.
 * docs/PROTOCOL.md describes each.  One ZeroMQ frame holds one msgpack array
 * [version, type, body]; body is a map, of a plan and a result an array of columns.
 *
 *   worker      -> hello                  device, host, process
 *   controller  -> load                   the model to serve, and how
 *   controller  -> vocabulary             its tokens, for outputs with a form; before the first plan
 *   worker      -> want, controller -> files, chunk ...   where the worker lacks the model, and the load
 * offers worker      -> beat (loading) ...     every 250 ms worker      -> ready | failed controller  ->
 * plan, plan, ...        at most two under way worker      -> result, result, ...    and beats controller  ->
 * beat, every 250 ms; stop, which the worker answers with stop
 *
 * All input is checked: sizes, counts, types, versions.  A malformed message is -EBADMSG with a reason; one
 * of another version -EPROTO.
 *
 * bus.c has the envelope and the control messages, bus_plan.c plans and results, bus_vocabulary.c the
 * vocabulary, bus_model.c the files of a model. */
#ifndef QUERN_PROTO_BUS_H
#define QUERN_PROTO_BUS_H

#include "base/buf.h"
#include "proto/local_token.h"
#include "proto/manifest.h"
#include "proto/plan.h"
#include "proto/vocabulary.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { BUS_VERSION = 4, BUS_BEAT_MS = 250, BUS_MESSAGE_MAX = 256 << 20, BUS_CHUNK_MAX = 256 << 10 };

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
	BUS_WANT, /* from here on: only where a load has `offers` */
	BUS_FILES,
	BUS_CHUNK,
};

enum { BUS_MEET_SIZE = 288, BUS_RANKS_MAX = 64, BUS_SKETCH_SIZE = 128 };

struct bus_hello {
	char device[32]; /* "cpu:0" */
	char host[128];
	int64_t pid;
	/* Meeting place for the other ranks, if this worker becomes rank 0 of a group: new in every hello,
	 * opaque to the controller (worker/tp_group.h).  "": the worker can be in no group. */
	char meet[BUS_MEET_SIZE];
	/* Over TCP, from a worker that the controller's supervisor started: only with it the controller
	 * takes host and pid for true.  "": none. */
	char token[LOCAL_TOKEN_SIZE];
	char compute[8]; /* the mode that it takes by itself ("auto"): "int16" */
	/* The same for experts on the CPU beside its device, where it may have some and is free to choose
	 * (--experts-compute auto); else "". */
	char experts_compute[8];
	/* The mode is that of the model that it loaded last, for this or an earlier controller, instead of
	 * the one that it takes by itself. */
	bool loaded;
	bool experts_loaded; /* of experts_compute: the model has experts on the CPU there */
};

/* What the worker is to serve.  0: the worker chooses. */
struct bus_load {
	char model[2048];        /* path as the worker sees it */
	char compute[8];         /* "f32"; "" or "auto": what the device is best at */
	char experts_compute[8]; /* of experts on the CPU beside the device, where its hello asks for one */
	char head[8];            /* "stored", "int8"; "" or "auto": as the compute mode has it */
	char kv[8];              /* "f32", "bf16", "int16", "int8"; likewise */
	uint64_t epoch;
	uint32_t block_size;  /* tokens */
	uint32_t max_context; /* tokens of a sequence */
	uint32_t max_rows;    /* tokens of a step */
	uint32_t max_slots;   /* sequences the worker holds */
	uint32_t max_runs;    /* runs of a step */
	uint64_t kv_bytes;    /* device pool */
	uint64_t swap_bytes;  /* host pool */
	uint32_t n_threads;
	uint32_t n_ranks;   /* workers of the group; 1: no group */
	uint32_t rank;      /* this worker's, from 0 */
	uint32_t n_sharing; /* ranks, this one among them, that run on the same cores; 0: this one alone */
	char meet[BUS_MEET_SIZE]; /* of rank 0's hello */
	bool ep;   /* --ep: each rank has some experts of a mixture whole, and not a part of each */
	bool fast; /* --fast: results may depend on the batch */
	/* What the controller's model is, opaque here (store/files.h): the worker's must be the same.  "": it
	 * does not know, having no weights; of another version's rule: it tells nothing. */
	char sketch[BUS_SKETCH_SIZE];
	char fingerprint[MANIFEST_FINGERPRINT]; /* of all contents (store/fingerprint.h); "": not known yet */
	bool offers;                            /* the controller answers BUS_WANT */
};

struct bus_ready {
	uint64_t epoch;
	char numerics[256]; /* fingerprint of the numerics class */
	char device_name[64];
	char isa[32];
	uint32_t n_blocks; /* device pool */
	uint32_t n_host_blocks;
	uint32_t n_vocab;
	uint64_t weights_bytes; /* on the device */
	uint64_t kv_bytes;      /* its pool */
	uint64_t stored_bytes;  /* of those weights, in the model's files */
	uint64_t scratch_bytes; /* everything else that the worker has allocated there, by its own count */
	uint64_t host_bytes;    /* the host pool */
	uint64_t host_weights_bytes; /* experts in host memory, beside a device with memory of its own */
	uint64_t device_used;  /* of the device's memory, by all processes; on a CPU: of the machine's */
	uint64_t device_bytes; /* its memory */
	uint32_t load_ms;
	uint32_t n_threads;
	uint64_t block_bytes; /* of one block, all layers */
	uint64_t link_bps;    /* bytes per second between device and host pool, measured; 0: no host pool */
	/* Weights come to the device for steps of more rows than this, which then take about as long whatever
	 * their rows; 0: for none. */
	uint32_t send_above;
};

struct bus_failed { /* the worker cannot continue; it exits after this */
	uint64_t epoch;
	char why[512];
};

/* A worker's request: the list of files, or bytes of one. */
#define BUS_WANT_LIST UINT32_MAX
struct bus_want {
	uint64_t epoch;
	uint32_t file; /* by its place in the list; BUS_WANT_LIST */
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
	BUS_MISSED,  /* serving, but a plan is missing: send the state again */
	BUS_LEAVING, /* serving, but asked to end: move its jobs, then send it stop */
};

/* What a worker that loads is doing. */
enum bus_doing {
	BUS_DOING_OPEN,  /* configuration, device */
	BUS_DOING_READ,  /* weights from the disk; where it cannot be told apart, packing includes it */
	BUS_DOING_PACK,  /* weights into the form and the place that the kernels need */
	BUS_DOING_CACHE, /* the pools */
	BUS_DOING_WARM_UP,
	BUS_DOING_WAIT,  /* for another worker of the host, or for the controller, to have the model */
	BUS_DOING_CHECK, /* checksums of files that are here */
	BUS_DOING_FETCH, /* files from the controller */
	BUS_DOINGS,
};

/* Rows of experts since the epoch began, n of the n_all cells of a model, from one on; a cell is that of
 * layer i / n_experts and expert i % n_experts.  Heartbeats have them in turns. */
enum { BUS_CELLS = 1024, BUS_CELLS_MAX = 1 << 17 };
struct bus_cells {
	uint32_t n_all, n_experts; /* 0: there are none */
	uint32_t from, n;
	uint64_t rows[BUS_CELLS];
};

struct bus_beat {
	uint64_t epoch;    /* from the controller: of the worker's group; 0: none */
	uint32_t state;    /* enum bus_state (from a worker) */
	uint64_t progress; /* plans answered; while loading: permille; from the controller: plans sent */
	uint64_t expected; /* worker: the number of the next plan to answer */
	uint64_t moves;    /* worker: grows while a load or a step makes progress, at no particular rate */
	/* While loading: */
	uint32_t doing; /* enum bus_doing */
	uint64_t done,
		total; /* bytes of the model's files on the device, and in all; total 0: not known yet */
	/* While serving a mixture of experts, since the process began (worker/experts/expert_load.h); 0: the
	 * model has none. */
	uint64_t expert_rows, expert_reads, expert_busiest;
	struct bus_cells cells;
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
	}; /* stop has no body; plan, result, vocabulary, files and chunk have decoders of their own */
};

/* Append the bytes of a message to out (which is cleared first). */
void bus_encode(const struct bus_msg *m, struct buf *out);
void bus_encode_plan(const struct plan *p, struct buf *out);
void bus_encode_result(const struct result *r, struct buf *out);
void bus_encode_vocabulary(const struct vocabulary *v, struct buf *out);

/* Parameters alone, with the whole form, which plans do not repeat; to be stored together with BUS_VERSION.
 * put appends to out.  get fails the cursor if they are invalid, and takes those of earlier versions, which
 * lack the last ones; the caller owns p in either case (params_fini). */
struct cursor;
void bus_put_params(struct buf *out, const struct params *p);
void bus_get_params(struct cursor *c, struct params *p, uint32_t n_vocab);

/* The type of a message, or -EBADMSG, -EPROTO. */
int bus_peek(const void *bytes, size_t n, char *why, size_t why_n);
/* All but plan, result, vocabulary, files and chunk. */
int bus_decode(const void *bytes, size_t n, struct bus_msg *out, char *why, size_t why_n);
/* Decodes into a plan, which is reset first.  The arrays that its seqs point to belong to the plan until the
 * next reset.  A message beyond a limit is refused. */
struct bus_limits {
	uint32_t max_slots;
	uint32_t max_rows;
	uint32_t max_runs;
	uint32_t max_context;
	uint32_t n_blocks;
	uint32_t n_host_blocks;
	uint32_t n_vocab;
};
int bus_decode_plan(const void *bytes, size_t n, const struct bus_limits *lim, struct plan *out, char *why,
		    size_t why_n);
/* For decoded plans: plan_fini(), and the arrays of its seqs. */
void bus_plan_fini(struct plan *p);
int bus_decode_result(const void *bytes, size_t n, const struct bus_limits *lim, struct result *out,
		      char *why, size_t why_n);

/* Into a vocabulary, which is cleared first, and empty after an error.  One that is not what the controller
 * sent, by its checksum, is -EBADMSG; so is one of more than n_vocab tokens. */
int bus_decode_vocabulary(const void *bytes, size_t n, uint32_t n_vocab, struct vocabulary *out, char *why,
			  size_t why_n);

/* refusal: why there is none, or ""; m is zeroed then. */
void bus_encode_files(const struct manifest *m, const char *refusal, struct buf *out);
void bus_encode_chunk(const struct bus_chunk *k, const char *refusal, struct buf *out);
/* -ENODATA: the controller refuses, for the reason in why.  A list is the caller's (manifest_fini()), and
 * empty after an error; the bytes of a chunk are the message's. */
int bus_decode_files(const void *bytes, size_t n, struct manifest *out, char *why, size_t why_n);
int bus_decode_chunk(const void *bytes, size_t n, struct bus_chunk *out, char *why, size_t why_n);

#endif
