/* responses_answer.h - the writer (answer.h) of responses.  It serves three kinds of listeners to a
 * response's job: the client of a request, a client that reads a stream again, and the run of a background
 * response, which stores the result. */
#ifndef QUERN_CONTROLLER_APIS_OPENAI_RESPONSES_ANSWER_H
#define QUERN_CONTROLLER_APIS_OPENAI_RESPONSES_ANSWER_H

#include "controller/apis/answer.h"
#include "controller/apis/openai/responses_events.h"
#include "controller/apis/openai/responses_store.h"

#include <jansson.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum responses_mode {
	RESPONSES_CREATE, /* a new response: the reply, or the events */
	RESPONSES_BEGIN,  /* a new background response: the reply is that it has begun */
	RESPONSES_READ,   /* events of an existing response, after `after` */
	RESPONSES_RUN,    /* the result is stored; no connection */
};

/* Result for the caller of generation_start(), set before the jobs are submitted. */
struct responses_begun {
	bool yes;
	uint32_t key_jobs;       /* slots in the key's limit that the run must release */
	struct response_row row; /* background: a copy that the caller owns */
};

struct responses_answer {
	enum responses_mode mode;
	json_t *repeated;              /* owned */
	struct responses_store *store; /* NULL: the response is not stored */
	struct response_row row;       /* owned: the stored fields */
	/* Receives the response's items when it is done, if row.conversation is set.  NULL: the run of the
	 * response adds them, or there is no conversation. */
	struct responses_store *conversations;
	char *own_items;                   /* owned: the items of its input, "{...},{...}"; NULL: none */
	struct responses_written *written; /* background: result of storing it; NULL: not yet put */
	struct responses_begun *begun;     /* NULL, or valid until begin() has returned */
	uint32_t key_jobs;                 /* RESPONSES_RUN: slots that it releases */
	bool fresh;                        /* RESPONSES_RUN: the response is about to be accepted */
	const atomic_bool *cancelled;      /* RESPONSES_RUN: true ends it as soon as it has begun; outlives
					    * this struct */
	/* RESPONSES_RUN: storing is called before the result is stored, stored when it is on disk or has
	 * failed. */
	void (*storing)(void *run);
	responses_done *stored;
	void *run;
	/* RESPONSES_READ: */
	int64_t after;
	int64_t ended_at; /* 0: the response has not ended */
	struct {
		/* Tokens that arrived at once and would make too many events.  Some become events whenever
		 * the client has read all events so far. */
		uint32_t *tokens; /* [n], owned; those from `at` on are held */
		size_t n, cap, at;
		enum finish finish; /* finish reason after the last token */
		bool ended;         /* the last event is still to be sent */
		char *error;        /* owned: the response fails with this; NULL: it ends normally */
	} held;
	struct responses_events *events; /* owned; NULL until the request is found valid */
};

/* Return the members of an array's text from item n on, "{...},{...}"; the caller owns it.  NULL: none, or
 * damaged. */
char *responses_items_from(const char *text, int64_t n);

extern const struct answer_writer responses_writer; /* its data is a struct responses_answer */

#endif
