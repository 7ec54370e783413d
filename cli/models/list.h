/* list.h - `quern list` and `quern rm`: the models in the cache. */
#ifndef QUERN_CLI_MODELS_LIST_H
#define QUERN_CLI_MODELS_LIST_H

int cmd_list(int argc, char **argv);
int cmd_rm(int argc, char **argv);

#endif
