/* work.h - limits on the work of a grammar. Work is counted, not timed, so a grammar is refused on every
 * machine or on none.
 * A unit is about one visited node of a tree or an expression, or eight visited nodes of a token trie. */
#ifndef QUERN_GRAMMAR_WORK_H
#define QUERN_GRAMMAR_WORK_H

#include <stdbool.h>
#include <stdint.h>

/* Units for one mask and the token before it; beyond them the sequence fails. */
enum { GRAMMAR_MASK_WORK_MAX = 1 << 27 };

/* Units shared by all grammars of one request. */
struct grammar_account {
	uint64_t units, used;
};

/* A limit of `units`; 0: unlimited. When the units are used up, `units` more are granted each time more(arg)
 * returns true; more NULL: never. account: charged with the work, which also stops when the account is used
 * up; NULL: none. */
struct grammar_work {
	uint64_t units;
	bool (*more)(void *arg);
	void *arg;
	struct grammar_account *account;
};

/* Charge units.  Return false if the account is used up. */
static inline bool grammar_charge(struct grammar_account *a, uint64_t units)
{
	if (!a)
		return true;
	a->used += units;
	return a->used <= a->units;
}

static inline bool grammar_is_spent(const struct grammar_account *a)
{
	return a && a->used > a->units;
}

#endif
