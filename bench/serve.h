/* serve.h - `quern bench serve`: puts an OpenAI-compatible server under load. */
#ifndef QUERN_BENCH_SERVE_H
#define QUERN_BENCH_SERVE_H

int cmd_bench_serve(int argc, char **argv);

#endif
