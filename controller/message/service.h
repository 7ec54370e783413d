/* service.h - the model, the limits and the shared objects of the service, for all threads of the front end.
 * Filled before any thread starts and immutable from then on; all that it points to is borrowed and lives
 * longer than these threads. */
#ifndef QUERN_CONTROLLER_MESSAGE_SERVICE_H
#define QUERN_CONTROLLER_MESSAGE_SERVICE_H

#include "controller/chat/tools.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct chat;
struct engine_load;
struct housekeeper;
struct journal;
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
	char chat_why[256];
	enum tools_style tools;              /* syntax of the model's tool calls; TOOLS_NONE: not known */
	bool reasoning;                      /* outputs may begin with reasoning */
	const struct reasoning_marks *marks; /* of it; NULL: the usual ones, <think> */
	bool reasoning_open;    /* outputs begin inside the reasoning, whatever the prompt ends with */
	bool chat_thinks;       /* a chat's prompt usually ends within the reasoning */
	bool marks_special;     /* the marks of tool calls and reasoning are special tokens */
	char model_name[256];   /* in replies; the first of /v1/models */
	char other_names[1024]; /* that the model answers to, separated by commas; "": none */
	int64_t started_unix;
	uint32_t model_context;
	uint32_t max_request_bytes;
	uint32_t max_seqs;              /* sequences that a replica runs at once */
	int64_t keep_finished_us;       /* retention of finished jobs in memory: time */
	uint32_t max_finished;          /* and number */
	int64_t keep_durable_us;        /* retention of finished durable jobs on disk: time */
	int64_t journal_bytes;          /* and size: beyond it the oldest finished ones are deleted */
	struct journal *journal;        /* of durable jobs, for its health; NULL: none */
	bool strict;                    /* HTTP: refuse unknown fields */
	const struct engine_load *load; /* length of the queue; NULL: not known */
	uint32_t max_queued_jobs;
	uint64_t max_queued_tokens;
	struct metrics *metrics; /* NULL: none are kept */
	struct tracer *tracer;   /* NULL: no spans are recorded */
	struct checked
		*checked; /* what requests asked for before (request/checked.h); NULL: nothing is kept */
	struct housekeeper *house; /* the thread for what is done now and then */
	struct work_pool *pool;    /* the threads that prepare large requests, of both protocols */
};

/* The reason of E_NOT_READY, or of HTTP's 503, for new work while running requests finish. */
#define SERVICE_ENDING "the service is ending and takes no new work: try another one, or again later"

/* Whether the queue is full: the request is to be refused with E_OVERLOADED and `why`.  Any thread.  An early
 * check of two atomics, so that refusals under overload cost almost nothing; the engine has the last word. */
bool service_full(const struct service *svc, char *why, size_t why_n);

#endif
