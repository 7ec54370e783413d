#include "controller/http/tls_check.h"

#include "base/err.h"

#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <string.h>
#include <time.h>

static gnutls_datum_t datum(const char *text)
{
	return (gnutls_datum_t){.data = (unsigned char *)text, .size = (unsigned)strlen(text)};
}

static int check_pair(const char *cert_pem, const char *key_pem, char *why, size_t why_n)
{
	gnutls_certificate_credentials_t both;
	gnutls_datum_t cert = datum(cert_pem), key = datum(key_pem);
	int rc = gnutls_certificate_allocate_credentials(&both);
	if (rc)
		return err_why(why, why_n, -ENOMEM, "TLS: %s", gnutls_strerror(rc));
	rc = gnutls_certificate_set_x509_key_mem(both, &cert, &key, GNUTLS_X509_FMT_PEM);
	gnutls_certificate_free_credentials(both);
	return rc < 0 ? err_why(why, why_n, -EINVAL, "--tls-cert, --tls-key: %s", gnutls_strerror(rc)) : 0;
}

int tls_check(const char *cert_pem, const char *key_pem, char *why, size_t why_n)
{
	gnutls_x509_crt_t cert;
	gnutls_datum_t text = datum(cert_pem);
	int rc = gnutls_x509_crt_init(&cert);
	if (rc)
		return err_why(why, why_n, -ENOMEM, "TLS: %s", gnutls_strerror(rc));
	rc = gnutls_x509_crt_import(cert, &text, GNUTLS_X509_FMT_PEM);
	time_t end = rc ? 0 : gnutls_x509_crt_get_expiration_time(cert);
	gnutls_x509_crt_deinit(cert);
	if (rc)
		return err_why(why, why_n, -EINVAL, "--tls-cert: %s", gnutls_strerror(rc));
	if (end < time(NULL))
		return err_why(why, why_n, -EINVAL, "--tls-cert: the certificate has expired");
	return check_pair(cert_pem, key_pem, why, why_n);
}
