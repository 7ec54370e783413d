/* tls.h - the certificate and key of the HTTP server, read again on request: new connections get what was
 * read last.
 * Owns: every certificate that was in force, since a handshake may still use it (about 10 kB for each one
 * that differs from the one before).  Any thread. libmicrohttpd hands no argument of ours to tls_retrieve():
 * one of these in a process at a time. */
#ifndef QUERN_CONTROLLER_HTTP_TLS_H
#define QUERN_CONTROLLER_HTTP_TLS_H

#include <gnutls/abstract.h>
#include <stdbool.h>
#include <stddef.h>

struct tls;

/* PEM files: the certificate with its chain, its key.  -errno or -EINVAL with the reason: not a certificate,
 * not a key, a mismatch, or expired. */
int tls_open(const char *cert_path, const char *key_path, struct tls **out, char *why, size_t why_n);
/* Reads both again; an error leaves the previous certificate in force.  *changed: they differ from it; until:
 * when the certificate expires, "2027-01-31". */
int tls_reload(struct tls *t, bool *changed, char until[16], char *why, size_t why_n);
void tls_close(struct tls *t); /* NULL is fine */

/* For MHD_OPTION_HTTPS_CERT_CALLBACK. */
gnutls_certificate_retrieve_function2 tls_retrieve;

#endif
