/* grammar.h - `quern bench grammar`: runs a directory of JSON schemas, each with texts that it accepts or
 * rejects.
 * Prints a table: how many schemas are supported and right, and how long compiling and masks take. */
#ifndef QUERN_BENCH_GRAMMAR_H
#define QUERN_BENCH_GRAMMAR_H

int cmd_bench_grammar(int argc, char **argv);

#endif
