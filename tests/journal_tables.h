/* journal_tables.h - open a journal with its tables, as the controller makes them. */
#ifndef QUERN_TESTS_JOURNAL_TABLES_H
#define QUERN_TESTS_JOURNAL_TABLES_H

#include "base/err.h"
#include "controller/apis/openai/responses_store.h"
#include "controller/endpoints/openai_batch.h"
#include "controller/jobs/file_store.h"
#include "controller/jobs/jobs.h"
#include "controller/jobs/journal.h"

static const char *const journal_tables[] = {jobs_schema, file_store_schema, batches_schema, responses_schema,
					     NULL};

static inline int journal_with_tables(const char *path, const char *model, struct journal **out,
				      struct why *why)
{
	struct journal_config cfg = {.path = path, .model = model, .schemas = journal_tables};
	return journal_open(&cfg, out, why);
}

#endif
