/* commands.h - the commands of `quern`; each takes its name as argv[0] and returns the exit status. */
#ifndef QUERN_CLI_COMMANDS_H
#define QUERN_CLI_COMMANDS_H

/* `quern grammar`: shows what a grammar compiles to and which texts it accepts, without a model. */
int cmd_grammar(int argc, char **argv);

/* `quern jobs`, `attach`, `cancel`, `result`, `explain`: jobs of a running service. */
int cmd_jobs(int argc, char **argv);
int cmd_attach(int argc, char **argv);
int cmd_cancel(int argc, char **argv);
int cmd_result(int argc, char **argv);
int cmd_explain(int argc, char **argv);

/* `quern keygen`: a key pair for a service, a client or a worker. */
int cmd_keygen(int argc, char **argv);

/* `quern run`: starts a service for one prompt, or for a chat on the terminal. */
int cmd_run(int argc, char **argv);

/* `quern scale N` and `quern drain WORKER`: add or remove replicas while the service runs. */
int cmd_scale(int argc, char **argv);
int cmd_drain(int argc, char **argv);

/* `quern serve`: runs the controller and workers until Ctrl-C. */
int cmd_serve(int argc, char **argv);

/* `quern status`, `quern workers`, `quern health`: show the state of a running service. */
int cmd_status(int argc, char **argv);
int cmd_workers(int argc, char **argv);
int cmd_health(int argc, char **argv);

/* `quern submit`: sends one job to a running service. */
int cmd_submit(int argc, char **argv);

/* `quern tokenize`: converts text to tokens and back, without a service. */
int cmd_tokenize(int argc, char **argv);

#endif
