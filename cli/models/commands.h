/* commands.h - the commands of models in the cache. */
#ifndef QUERN_CLI_MODELS_COMMANDS_H
#define QUERN_CLI_MODELS_COMMANDS_H

/* `quern pull`: fetches a model into the cache, where commands find it by its name. */
int cmd_pull(int argc, char **argv);

/* `quern list` and `quern rm`: the models in the cache. */
int cmd_list(int argc, char **argv);
int cmd_rm(int argc, char **argv);

#endif
