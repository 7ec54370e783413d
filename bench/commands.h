/* commands.h - what `quern-bench` runs; each takes its name as argv[0] and returns the exit status. */
#ifndef QUERN_BENCH_COMMANDS_H
#define QUERN_BENCH_COMMANDS_H

/* `quern bench autoscale`: simulates an autoscaling service under a trace (fleet_replay.h). */
int cmd_bench_autoscale(int argc, char **argv);

/* `quern bench engine`: prefill and decode speed through the job socket of a private or a running service.
 * Prompts are random tokens, so that no two share a prefix; outputs are greedy and of equal length. */
int cmd_bench_engine(int argc, char **argv);

/* `quern bench grammar`: runs a directory of JSON schemas, each with texts that it accepts or rejects.
 * Prints a table: how many schemas are supported and right, and how long compiling and masks take. */
int cmd_bench_grammar(int argc, char **argv);

/* `quern bench kernels`: times single operations, relative to the machine's peak rates. */
int cmd_bench_kernels(int argc, char **argv);

/* `quern plan`: predicts whether a model fits devices and serves a rate, and the latencies of clients, and
 * suggests the options to serve it with. It runs the real scheduler in simulated time (replay.h), on a
 * device of the cost model. */
int cmd_plan(int argc, char **argv);

/* `quern bench scheduler`: runs the real scheduler in simulated time, under a trace of arrivals, with the
 * cost model of a device. Reports the latencies that clients would see, and the scheduler's own cost. */
int cmd_bench_scheduler(int argc, char **argv);

/* `quern bench serve`: puts an OpenAI-compatible server under load. */
int cmd_bench_serve(int argc, char **argv);

/* `quern bench tokenizer`: encoding and decoding speed, optionally compared with the Python package
 * `tokenizers`. */
int cmd_bench_tokenizer(int argc, char **argv);

#endif
