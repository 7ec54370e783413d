/* grammar.h - `quern grammar`: shows what a grammar compiles to and which texts it accepts, without a
 * model. */
#ifndef QUERN_CLI_GRAMMAR_H
#define QUERN_CLI_GRAMMAR_H

int cmd_grammar(int argc, char **argv);

#endif
