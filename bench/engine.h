/* engine.h - `quern bench engine`: prefill and decode speed through the job socket of a private or a running
 * service.
 * Prompts are random tokens, so that no two share a prefix; outputs are greedy and of equal length. */
#ifndef QUERN_BENCH_ENGINE_H
#define QUERN_BENCH_ENGINE_H

int cmd_bench_engine(int argc, char **argv);

#endif
