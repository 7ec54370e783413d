/* tls.h - the certificate and key of the HTTP server, reloaded on request: new connections use the latest.
 * Owns: every certificate that was in force, because a handshake may still use it (about 10 kB for each that
 * differs from its predecessor).  Any thread.  libmicrohttpd passes no user argument to tls_retrieve(), so a
 * process has one struct tls at a time. */
#ifndef QUERN_CONTROLLER_HTTP_TLS_H
#define QUERN_CONTROLLER_HTTP_TLS_H

#include "base/err.h"

#include <gnutls/abstract.h>
#include <stdbool.h>
#include <stddef.h>

struct tls;

/* Load PEM files: the certificate with its chain, and its key.  -errno or -EINVAL with the reason: not a
 * certificate, not a key, a mismatch, or expired. */
int tls_open(const char *cert_path, const char *key_path, struct tls **out, struct why *why);
/* Load both files again; after an error the previous certificate stays in force.  *changed: the certificate
 * differs from the previous one.  until: when it expires, "2027-01-31". */
int tls_reload(struct tls *t, bool *changed, char until[16], struct why *why);
void tls_close(struct tls *t); /* NULL is fine */

/* The function for MHD_OPTION_HTTPS_CERT_CALLBACK. */
gnutls_certificate_retrieve_function2 tls_retrieve;

#endif
