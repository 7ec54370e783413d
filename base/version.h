/* version.h - the version that --version, ping and /v1/models show. */
#ifndef QUERN_BASE_VERSION_H
#define QUERN_BASE_VERSION_H

#define QUERN_VERSION "0.2.0"

#endif
