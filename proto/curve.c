#include "proto/curve.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/file.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

/* Largest size of a key file. */
enum { FILE_MAX = 4096 };

/* ---- keys ---- */

int curve_generate(struct curve_key *out, struct why *why)
{
	if (zmq_curve_keypair(out->public, out->secret) == 0)
		return 0;
	return err_why(why, -ENOSYS, "the installed libzmq was built without CURVE (libsodium)");
}

bool curve_valid(const char *s, size_t n)
{
	char text[CURVE_SIZE];
	uint8_t bytes[32];
	if (n != CURVE_CHARS || memchr(s, '\0', n))
		return false;
	memcpy(text, s, n);
	text[n] = '\0';
	bool ok = zmq_z85_decode(bytes, text) != NULL;
	explicit_bzero(text, sizeof text);
	explicit_bzero(bytes, sizeof bytes);
	return ok;
}

void curve_forget(struct curve_key *k)
{
	explicit_bzero(k, sizeof *k);
}

void curve_protect(void)
{
	prctl(PR_SET_DUMPABLE, 0);
}

/* ---- files ---- */

/* Create a file with this mode, regardless of the umask; remove it if writing fails. */
static int write_file(const char *path, mode_t mode, const char *text, struct why *why)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return err_why(why, -errno, "%s: %s", path, strerror(errno));
	size_t n = strlen(text);
	int rc = fchmod(fd, mode) < 0 ? -errno : 0;
	if (!rc) {
		ssize_t put = write(fd, text, n);
		rc = put < 0 ? -errno : put != (ssize_t)n ? -ENOSPC : fsync(fd) < 0 ? -errno : 0;
	}
	if (close(fd) < 0 && !rc)
		rc = -errno;
	if (!rc)
		return 0;
	unlink(path);
	return err_why(why, rc, "%s: %s", path, strerror(-rc));
}

int curve_write(const struct curve_key *k, const char *dir, const char *name, struct why *why)
{
	char text[512];
	char *secret = xasprintf("%s/%s.key", dir, name), *public = xasprintf("%s/%s.pub", dir, name);
	int rc = 0;
	if (mkdir(dir, 0700) < 0 && errno != EEXIST)
		rc = err_why(why, -errno, "%s: %s", dir, strerror(errno));
	if (!rc && access(public, F_OK) == 0)
		rc = err_why(why, -EEXIST, "%s: %s", public, strerror(EEXIST));
	if (!rc) {
		snprintf(text, sizeof text,
			 "# quern: the key of %.100s.  Secret: its holder acts as %.100s.\n"
			 "public = %s\nsecret = %s\n",
			 name, name, k->public, k->secret);
		rc = write_file(secret, 0600, text, why);
		explicit_bzero(text, sizeof text);
	}
	if (!rc) {
		snprintf(text, sizeof text, "# quern: the public key of %.100s\npublic = %s\n", name,
			 k->public);
		rc = write_file(public, 0644, text, why);
		if (rc)
			unlink(secret);
	}
	free(secret);
	free(public);
	return rc;
}

/* Parse "name = KEY", a line without its newline; false: it is another line. */
static bool parse_line(const char *s, size_t n, const char *name, char *key)
{
	size_t k = strlen(name);
	while (n && strchr(" \t\r", s[n - 1]))
		n--;
	while (n && strchr(" \t", *s))
		s++, n--;
	if (n <= k || strncmp(s, name, k) != 0)
		return false;
	s += k, n -= k;
	while (n && strchr(" \t", *s))
		s++, n--;
	if (!n || *s != '=')
		return false;
	s++, n--;
	while (n && strchr(" \t", *s))
		s++, n--;
	if (!curve_valid(s, n))
		return false;
	memcpy(key, s, n);
	key[n] = '\0';
	return true;
}

int curve_parse(const char *text, size_t n, bool secret, struct curve_key *out, struct why *why)
{
	*out = (struct curve_key){0};
	if (memchr(text, '\0', n))
		return err_why(why, -EINVAL, "no text file");
	for (size_t line = 1; n; line++) {
		const char *end = memchr(text, '\n', n);
		size_t k = end ? (size_t)(end - text) : n, blank = 0;
		while (blank < k && strchr(" \t\r", text[blank]))
			blank++;
		if (blank < k && text[blank] != '#' && !parse_line(text, k, "public", out->public) &&
		    !parse_line(text, k, "secret", out->secret)) {
			curve_forget(out);
			return err_why(
				why, -EINVAL,
				"line %zu is neither \"public = KEY\" nor \"secret = KEY\" with a key of "
				"%d characters",
				line, CURVE_CHARS);
		}
		k += end != NULL;
		text += k, n -= k;
	}
	char derived[CURVE_SIZE];
	if (out->secret[0] && zmq_curve_public(derived, out->secret) == 0) {
		if (out->public[0] && strcmp(out->public, derived) != 0) {
			curve_forget(out);
			return err_why(why, -EINVAL, "its public and its secret key do not belong together");
		}
		memcpy(out->public, derived, sizeof derived);
	}
	if (secret && !out->secret[0])
		return err_why(why, -EINVAL, "holds no secret key; give the .key file");
	if (!out->public[0])
		return err_why(why, -EINVAL, "holds no key; make one with: quern keygen");
	return 0;
}

int curve_read(const char *path, bool secret, struct curve_key *out, struct why *why)
{
	char text[FILE_MAX + 1];
	struct stat st;
	*out = (struct curve_key){0};
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	if (fd < 0)
		return err_why(why, -errno, "%s: %s", path, strerror(errno));
	int rc = 0;
	ssize_t n = 0;
	if (fstat(fd, &st) < 0)
		rc = err_why(why, -errno, "%s: %s", path, strerror(errno));
	else if (secret && file_is_shared(&st))
		rc = err_why(why, -EACCES,
			     "%s: others can read it, which a secret key must not be; chmod 600", path);
	else if ((n = read(fd, text, sizeof text)) < 0)
		rc = err_why(why, -errno, "%s: %s", path, strerror(errno));
	else if (n > FILE_MAX)
		rc = err_why(why, -EFBIG, "%s: not a key file, it has more than %d bytes", path, FILE_MAX);
	close(fd);
	if (!rc && (rc = curve_parse(text, (size_t)n, secret, out, why)))
		err_prefix(why, rc, "%s", path);
	explicit_bzero(text, sizeof text);
	return rc;
}

/* Read a key given directly, or as the name of its file. */
static int read_either(const char *what, bool secret, struct curve_key *out, struct why *why)
{
	if (!curve_valid(what, strlen(what)) || access(what, F_OK) == 0)
		return curve_read(what, secret, out, why);
	*out = (struct curve_key){0};
	memcpy(secret ? out->secret : out->public, what, CURVE_SIZE);
	if (secret && zmq_curve_public(out->public, out->secret))
		return err_why(why, -EINVAL, "the key is none");
	return 0;
}

int curve_pair(const struct curve_sources *t, struct curve_key *own, struct curve_key *server, bool *keyed,
	       struct why *why)
{
	const char *key = t->key ? t->key : t->env_key;
	const char *server_key = t->server_key ? t->server_key : t->env_server_key;
	*own = *server = (struct curve_key){0};
	*keyed = false;
	if (!key && !server_key)
		return 0;
	if (!key || !server_key)
		return err_why(
			why, -EINVAL,
			"both are needed: one's own key (--key, QUERN_KEY) and the service's public one "
			"(--server-key, QUERN_SERVER_KEY)");
	curve_protect();
	/* All users of the machine can read arguments, so --key must name a file. */
	int rc = t->key ? curve_read(key, true, own, why) : read_either(key, true, own, why);
	if (rc)
		return err_prefix(why, rc, t->key ? "--key" : "QUERN_KEY");
	rc = read_either(server_key, false, server, why);
	if (rc) {
		curve_forget(own);
		return err_prefix(why, rc, t->server_key ? "--server-key" : "QUERN_SERVER_KEY");
	}
	explicit_bzero(server->secret, sizeof server->secret);
	*keyed = true;
	return 0;
}

/* ---- sockets ---- */

static int set_text(void *socket, int option, const char *text)
{
	return zmq_setsockopt(socket, option, text, strlen(text) + (option != ZMQ_ZAP_DOMAIN)) ? -errno : 0;
}

int curve_client(void *socket, const struct curve_key *own, const char *server)
{
	int rc = set_text(socket, ZMQ_CURVE_SERVERKEY, server);
	if (!rc)
		rc = set_text(socket, ZMQ_CURVE_PUBLICKEY, own->public);
	return rc ? rc : set_text(socket, ZMQ_CURVE_SECRETKEY, own->secret);
}

int curve_server(void *socket, const struct curve_key *own, const char *domain)
{
	int one = 1, rc = zmq_setsockopt(socket, ZMQ_CURVE_SERVER, &one, sizeof one) ? -errno : 0;
	if (!rc)
		rc = set_text(socket, ZMQ_CURVE_SECRETKEY, own->secret);
	return rc ? rc : set_text(socket, ZMQ_ZAP_DOMAIN, domain);
}
