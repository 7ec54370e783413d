/* tls_check.h - checks a certificate and its key before the server starts. */
#ifndef QUERN_CONTROLLER_HTTP_TLS_CHECK_H
#define QUERN_CONTROLLER_HTTP_TLS_CHECK_H

#include <stddef.h>

/* PEM texts.  -EINVAL with the reason: not a certificate, not a key, a mismatch, or expired. */
int tls_check(const char *cert_pem, const char *key_pem, char *why, size_t why_n);

#endif
