/* pull.h - `quern pull`: fetches a model into the cache, where commands find it by its name. */
#ifndef QUERN_CLI_MODELS_PULL_H
#define QUERN_CLI_MODELS_PULL_H

int cmd_pull(int argc, char **argv);

#endif
