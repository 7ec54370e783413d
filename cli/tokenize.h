/* tokenize.h - `quern tokenize`: text to tokens and back, without a service; and
 * `quern bench tokenizer`: how fast, alone or beside the Python package `tokenizers`. */
#ifndef QUERN_CLI_TOKENIZE_H
#define QUERN_CLI_TOKENIZE_H

int cmd_tokenize(int argc, char **argv);
int cmd_bench_tokenizer(int argc, char **argv);

#endif
