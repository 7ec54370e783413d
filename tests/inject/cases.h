/* cases.h - the code paths in which every call is made to fail in turn. */
#ifndef QUERN_TESTS_INJECT_CASES_H
#define QUERN_TESTS_INJECT_CASES_H

#include "base/err.h"

#include <stddef.h>

struct inject_case {
	const char *name;
	/* Set-up that is not part of the path; called once per process.  May be NULL. */
	void (*prepare)(void);
	/* Run the path; free everything, also after an error.  0, or an error with its reason in why. */
	int (*run)(struct why *why);
	/* Return the problem with the files left in its folder, however the path ended; NULL: none.  May be
	 * NULL. */
	const char *(*left)(const char *dir);
};

extern const struct inject_case inject_cases[];
extern const size_t n_inject_cases;

/* ---- serving (serving.c): front end, HTTP, journal ---- */
void serving_prepare(void);
void serving_cleanup(void);
int serving_http(struct why *why);
int serving_upload(struct why *why);
int serving_jobs(struct why *why);
int serving_journal(struct why *why);

/* ---- keys in files, the list of allowed clients (keys.c) ---- */
void keys_prepare(void);
int keys_files(struct why *why);
int keys_api(struct why *why);
int keys_allow(struct why *why);

/* ---- workers and their engine (workers.c): one worker; scaling up and draining; a tp_group of two ---- */
void workers_prepare(void);
int workers_serve(struct why *why);
int workers_scale(struct why *why);
int workers_group(struct why *why);

/* ---- conversion and quantization of models (quantize.c) ---- */
void quantize_prepare(void);
void quantize_cleanup(void);
int quantize_conversions(struct why *why);
int quantize_models(struct why *why);
const char *quantize_conversions_left(const char *dir);
const char *quantize_left(const char *dir);

#endif
