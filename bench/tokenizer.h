/* tokenizer.h - `quern bench tokenizer`: encoding and decoding speed, optionally compared with the Python
 * package `tokenizers`. */
#ifndef QUERN_BENCH_TOKENIZER_H
#define QUERN_BENCH_TOKENIZER_H

int cmd_bench_tokenizer(int argc, char **argv);

#endif
