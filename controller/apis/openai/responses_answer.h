/* responses_answer.h - the writer (answer.h) of responses, for the three that may listen to a response's job:
 * the client of a request, the client of a stream that is read again, and the run of a background response,
 * which keeps what it comes to. */
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
	RESPONSES_CREATE, /* a new one: the reply, or the events */
	RESPONSES_BEGIN,  /* a new one in the background: the reply is that it has begun */
	RESPONSES_READ,   /* events of one that exists, behind `after` */
	RESPONSES_RUN,    /* what it comes to is stored; no connection */
};

/* Told to the caller of generation_start() before the jobs are submitted. */
struct responses_begun {
	bool yes;
	uint32_t key_jobs;       /* places in the key's limit that the run has to give back */
	struct response_row row; /* in the background: a copy, the caller's */
};

struct responses_answer {
	enum responses_mode mode;
	json_t *repeated;              /* owned */
	struct responses_store *store; /* NULL: it is not stored */
	struct response_row row;       /* owned: what is stored of it */
	/* Where its items go when it is done, if row.conversation names one; NULL: the run of the response
	 * sees to it, or there is none. */
	struct responses_store *conversations;
	char *own_items;               /* owned: those of its input, "{...},{...}"; NULL: none */
	struct responses_begun *begun; /* NULL, or valid until begin() has returned */
	uint32_t key_jobs;             /* RESPONSES_RUN: places that it gives back */
	bool fresh;                    /* RESPONSES_RUN: of a response that is about to be accepted */
	const atomic_bool *cancelled;  /* RESPONSES_RUN: ends as soon as it has begun; outlives it */
	/* RESPONSES_READ: */
	int64_t after;
	int64_t ended_at; /* 0: it has not ended */
	struct {
		/* Tokens that came at once and would be too many events: they become some whenever the
		 * client has read what there is. */
		uint32_t *tokens; /* [n], owned, from `at` on */
		size_t n, cap, at;
		enum finish finish; /* behind the last one */
		bool ended;         /* the last event is to follow */
		char *error;        /* owned: it is a failure; NULL: the end */
	} held;
	struct responses_events *events; /* owned; NULL before the request was found good */
};

/* The members of an array's text from item n on, "{...},{...}"; the caller's.  NULL: none, or damaged. */
char *responses_items_from(const char *text, int64_t n);

extern const struct answer_writer responses_writer; /* its data is a struct responses_answer */

#endif
