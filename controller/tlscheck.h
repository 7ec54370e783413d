/* tlscheck.h - whether a certificate and a key can serve, said before the server is started. */
#ifndef QUERN_CONTROLLER_TLSCHECK_H
#define QUERN_CONTROLLER_TLSCHECK_H

#include <stddef.h>

/* PEM texts.  -EINVAL with the reason: no certificate, no key, they do not belong together, it has
 * expired. */
int tls_check(const char *cert_pem, const char *key_pem, char *why, size_t why_n);

#endif
