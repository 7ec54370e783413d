#include "controller/http/tls.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/file.h"

#include <assert.h>
#include <gnutls/crypto.h>
#include <gnutls/x509.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { FILE_MAX = 1 << 20, CHAIN_MAX = 16 };

/* A certificate that is or was in force. */
struct pair {
	struct pair *older;
	gnutls_pcert_st chain[CHAIN_MAX];
	unsigned n_chain;
	gnutls_privkey_t key;
	char *cert_pem; /* for comparison at the next reload; the key's text is not kept */
	unsigned char key_hash[32];
	time_t until;
};

struct tls {
	char *cert_path, *key_path;
	pthread_mutex_t lock; /* guards pairs */
	struct pair *pairs;   /* the pair in force first */
};

static pthread_mutex_t current_lock = PTHREAD_MUTEX_INITIALIZER;
static struct tls *current; /* guarded by current_lock */

static gnutls_datum_t datum(const char *text)
{
	return (gnutls_datum_t){.data = (unsigned char *)text, .size = (unsigned)strlen(text)};
}

/* Check that cert and key belong together. */
static int check_match(const char *cert_pem, const char *key_pem, struct why *why)
{
	gnutls_certificate_credentials_t both;
	gnutls_datum_t cert = datum(cert_pem), key = datum(key_pem);
	int rc = gnutls_certificate_allocate_credentials(&both);
	if (rc)
		return err_why(why, -ENOMEM, "TLS: %s", gnutls_strerror(rc));
	rc = gnutls_certificate_set_x509_key_mem(both, &cert, &key, GNUTLS_X509_FMT_PEM);
	gnutls_certificate_free_credentials(both);
	return rc < 0 ? err_why(why, -EINVAL, "--tls-cert, --tls-key: %s", gnutls_strerror(rc)) : 0;
}

static int check_cert(const char *cert_pem, time_t *until, struct why *why)
{
	gnutls_x509_crt_t cert;
	gnutls_datum_t text = datum(cert_pem);
	int rc = gnutls_x509_crt_init(&cert);
	if (rc)
		return err_why(why, -ENOMEM, "TLS: %s", gnutls_strerror(rc));
	rc = gnutls_x509_crt_import(cert, &text, GNUTLS_X509_FMT_PEM);
	*until = rc ? 0 : gnutls_x509_crt_get_expiration_time(cert);
	gnutls_x509_crt_deinit(cert);
	if (rc)
		return err_why(why, -EINVAL, "--tls-cert: %s", gnutls_strerror(rc));
	if (*until < time(NULL))
		return err_why(why, -EINVAL, "--tls-cert: the certificate has expired");
	return 0;
}

static void pair_free(struct pair *p)
{
	for (unsigned i = 0; i < p->n_chain; i++)
		gnutls_pcert_deinit(&p->chain[i]);
	if (p->key)
		gnutls_privkey_deinit(p->key);
	free(p->cert_pem);
	free(p);
}

/* Make a pair.  Takes cert_pem. */
static int pair_new(char *cert_pem, const char *key_pem, struct pair **out, struct why *why)
{
	struct pair *p = xcalloc(1, sizeof *p);
	gnutls_datum_t cert = datum(cert_pem), key = datum(key_pem);
	unsigned n = CHAIN_MAX;
	p->cert_pem = cert_pem;
	int rc = check_cert(cert_pem, &p->until, why);
	if (!rc)
		rc = check_match(cert_pem, key_pem, why);
	if (rc)
		goto fail;
	int e = gnutls_pcert_list_import_x509_raw(p->chain, &n, &cert, GNUTLS_X509_FMT_PEM, 0);
	p->n_chain = e < 0 ? 0 : n;
	if (e >= 0)
		e = gnutls_privkey_init(&p->key);
	if (e >= 0)
		e = gnutls_privkey_import_x509_raw(p->key, &key, GNUTLS_X509_FMT_PEM, NULL, 0);
	if (e >= 0)
		e = gnutls_hash_fast(GNUTLS_DIG_SHA256, key.data, key.size, p->key_hash);
	if (e < 0) {
		rc = err_why(why, -EINVAL, "--tls-cert, --tls-key: %s", gnutls_strerror(e));
		goto fail;
	}
	*out = p;
	return 0;

fail:
	pair_free(p);
	return rc;
}

/* Read the pair from the files.  The key is wiped from memory before it is freed. */
static int read_pair(const struct tls *t, struct pair **out, struct why *why)
{
	char *cert = NULL, *key = NULL;
	size_t n, key_n = 0;
	int rc = file_read(t->cert_path, FILE_MAX, &cert, &n, why);
	if (rc)
		return err_prefix(why, rc, "--tls-cert");
	rc = file_read(t->key_path, FILE_MAX, &key, &key_n, why);
	if (rc) {
		free(cert);
		return err_prefix(why, rc, "--tls-key");
	}
	rc = pair_new(cert, key, out, why);
	explicit_bzero(key, key_n);
	free(key);
	return rc;
}

int tls_open(const char *cert_path, const char *key_path, struct tls **out, struct why *why)
{
	struct tls *t = xcalloc(1, sizeof *t);
	t->cert_path = xstrdup(cert_path);
	t->key_path = xstrdup(key_path);
	pthread_mutex_init(&t->lock, NULL);
	int rc = read_pair(t, &t->pairs, why);
	if (rc) {
		tls_close(t);
		return rc;
	}
	pthread_mutex_lock(&current_lock);
	assert(!current);
	current = t;
	pthread_mutex_unlock(&current_lock);
	*out = t;
	return 0;
}

int tls_reload(struct tls *t, bool *changed, char until[16], struct why *why)
{
	struct pair *p;
	struct tm day;
	int rc = read_pair(t, &p, why);
	if (rc)
		return rc;
	strftime(until, 16, "%Y-%m-%d", gmtime_r(&p->until, &day));
	pthread_mutex_lock(&t->lock);
	*changed = strcmp(p->cert_pem, t->pairs->cert_pem) != 0 ||
		   memcmp(p->key_hash, t->pairs->key_hash, sizeof p->key_hash) != 0;
	if (*changed) {
		p->older = t->pairs;
		t->pairs = p;
	}
	pthread_mutex_unlock(&t->lock);
	if (!*changed)
		pair_free(p);
	return 0;
}

void tls_close(struct tls *t)
{
	if (!t)
		return;
	pthread_mutex_lock(&current_lock);
	if (current == t)
		current = NULL;
	pthread_mutex_unlock(&current_lock);
	for (struct pair *p = t->pairs, *older; p; p = older) {
		older = p->older;
		pair_free(p);
	}
	pthread_mutex_destroy(&t->lock);
	free(t->cert_path);
	free(t->key_path);
	free(t);
}

int tls_retrieve(gnutls_session_t session, const gnutls_datum_t *req_ca_rdn, int nreqs,
		 const gnutls_pk_algorithm_t *pk_algos, int pk_algos_length, gnutls_pcert_st **pcert,
		 unsigned int *pcert_length, gnutls_privkey_t *privkey)
{
	(void)session, (void)req_ca_rdn, (void)nreqs, (void)pk_algos, (void)pk_algos_length;
	pthread_mutex_lock(&current_lock);
	struct tls *t = current;
	if (t) {
		pthread_mutex_lock(&t->lock);
		*pcert = t->pairs->chain;
		*pcert_length = t->pairs->n_chain;
		*privkey = t->pairs->key;
		pthread_mutex_unlock(&t->lock);
	}
	pthread_mutex_unlock(&current_lock);
	return t ? 0 : -1;
}
