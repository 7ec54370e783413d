#include "proto/counts.h"

#include <assert.h>

const struct count_row counts_rows[] = {
#define ROW(c_type, name, ...) {.type = COUNT_##c_type, .offset = offsetof(struct counts, name), __VA_ARGS__},
#define WORKER_ROW(name, ...)                                                                                \
	{.type = COUNT_uint64_t, .offset = offsetof(struct counts, name), .flags = COUNT_TOTAL, __VA_ARGS__},
	COUNTS(ROW, WORKER_ROW)};
const size_t n_counts_rows = sizeof counts_rows / sizeof *counts_rows;

const char *const worker_count_keys[] = {
#define KEY(name, ...) #name,
	COUNTS(COUNT_NONE, KEY)};
const size_t n_worker_counts = sizeof worker_count_keys / sizeof *worker_count_keys;
_Static_assert(sizeof(struct worker_counts) ==
		       sizeof worker_count_keys / sizeof *worker_count_keys * sizeof(uint64_t),
	       "the members are an array");

static const void *at(const struct count_row *r, const struct counts *c)
{
	return (const char *)c + r->offset;
}

uint64_t count_uint(const struct count_row *r, const struct counts *c)
{
	assert(r->type != COUNT_double);
	return r->type == COUNT_uint32_t ? *(const uint32_t *)at(r, c) : *(const uint64_t *)at(r, c);
}

double count_number(const struct count_row *r, const struct counts *c)
{
	return r->type == COUNT_double ? *(const double *)at(r, c) : (double)count_uint(r, c);
}

void counts_add(struct counts *sum, const struct counts *c, bool totals_only)
{
	for (const struct count_row *r = counts_rows; r < counts_rows + n_counts_rows; r++) {
		void *to = (char *)sum + r->offset;
		if (r->flags & COUNT_MEAN || (totals_only && !(r->flags & COUNT_TOTAL)))
			continue;
		switch (r->type) {
		case COUNT_uint32_t:
			*(uint32_t *)to += *(const uint32_t *)at(r, c);
			break;
		case COUNT_uint64_t:
			*(uint64_t *)to += *(const uint64_t *)at(r, c);
			break;
		case COUNT_double:
			*(double *)to += *(const double *)at(r, c);
			break;
		}
	}
}

uint64_t *worker_count(struct worker_counts *c, size_t i)
{
	assert(i < n_worker_counts);
	return (uint64_t *)(void *)c + i;
}

void worker_counts_raise(struct worker_counts *to, const struct worker_counts *from)
{
#define RAISE(name, ...) to->name = from->name > to->name ? from->name : to->name;
	COUNTS(COUNT_NONE, RAISE)
}

void worker_counts_since(const struct worker_counts *now, const struct worker_counts *before,
			 struct counts *out)
{
#define SINCE(name, ...) out->name = now->name - before->name;
	COUNTS(COUNT_NONE, SINCE)
}
