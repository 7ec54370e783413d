/* tokenize.h - `quern tokenize`: converts text to tokens and back, without a service. */
#ifndef QUERN_CLI_TOKENIZE_H
#define QUERN_CLI_TOKENIZE_H

int cmd_tokenize(int argc, char **argv);

#endif
