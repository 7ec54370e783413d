/* service.h - the model, the limits and the shared objects of the service, for all threads of the front end.
 * Filled before any thread starts and immutable from then on; all pointers are borrowed and outlive these
 * threads. */
#ifndef QUERN_CONTROLLER_MESSAGE_SERVICE_H
#define QUERN_CONTROLLER_MESSAGE_SERVICE_H

#include "base/err.h"
#include "controller/chat/tools.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct chat;
struct engine_load;
struct housekeeper;
struct journal;
struct lines;
struct metrics;
struct model_config;
struct reasoning_marks;
struct tokenizer;
struct tracer;
struct work_pool;

struct service {
	const struct tokenizer *tokenizer;
	const struct model_config *config;
	const struct chat *chat; /* the model's chat template; NULL: none, chat_why gives the reason */
	struct why chat_why;
	enum tools_style tools;              /* syntax of the model's tool calls; TOOLS_NONE: unknown */
	bool reasoning;                      /* outputs may begin with reasoning */
	const struct reasoning_marks *marks; /* marks around the reasoning; NULL: the usual <think> */
	bool reasoning_open;    /* outputs begin inside the reasoning, whatever the prompt ends with */
	bool chat_thinks;       /* a chat's prompt usually ends within the reasoning */
	bool marks_special;     /* the marks of tool calls and reasoning are special tokens */
	char model_name[256];   /* in replies; the first of /v1/models */
	char other_names[1024]; /* further names of the model, separated by commas; "": none */
	bool model_is_gguf;     /* the model's files are GGUF; for Ollama's clients */
	int64_t started_unix;
	uint32_t model_context;
	uint32_t max_request_bytes;
	uint32_t max_seqs;              /* sequences that a replica runs at once */
	int64_t keep_finished_us;       /* how long finished jobs are kept in memory ... */
	uint32_t max_finished;          /* ... and at most how many */
	int64_t keep_durable_us;        /* how long finished durable jobs are kept on disk ... */
	int64_t journal_bytes;          /* ... and at most how many bytes; the oldest are deleted first */
	struct journal *journal;        /* journal of durable jobs, to report its health; NULL: none */
	bool strict;                    /* HTTP: refuse unknown fields */
	bool schema_exact;              /* schemas are not bounded unless a request sets bounds */
	const struct engine_load *load; /* length of the queue; NULL: unknown */
	uint32_t max_queued_jobs;
	uint64_t max_queued_tokens;
	struct metrics *metrics; /* NULL: no metrics are kept */
	struct tracer *tracer;   /* NULL: no spans are recorded */
	struct checked
		*checked; /* constraints and DRY breakers already checked (request/checked.h); NULL: none */
	struct housekeeper *house; /* thread for periodic work */
	struct work_pool *pool;    /* threads that prepare large requests, of both protocols */
	struct lines *lines;       /* requests from the job socket for HTTP's routes; NULL: not served */
};

/* Reason given with E_NOT_READY, or HTTP's 503, for new work while the service drains. */
#define SERVICE_ENDING "the service is ending and takes no new work: try another one, or again later"

/* Return whether the queue is full: then the request is refused with E_OVERLOADED and `why`.  Any thread.  An
 * early check of two atomics, so that refusals under overload cost almost nothing; the engine decides
 * finally. */
bool service_full(const struct service *svc, struct why *why);

#endif
