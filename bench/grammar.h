/* grammar.h - `quern bench grammar`: a directory of JSON schemas with texts that each accepts or refuses, as
 * a table: how many are supported and right, how long compiling and masks take. */
#ifndef QUERN_BENCH_GRAMMAR_H
#define QUERN_BENCH_GRAMMAR_H

int cmd_bench_grammar(int argc, char **argv);

#endif
