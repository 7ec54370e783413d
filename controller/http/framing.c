#include "controller/http/framing.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { VERSION_BYTES = 8 /* HTTP/1.1 */ };

/* State while the headers of a head are read one by one. */
struct head {
	uintptr_t next; /* address at which the next header must begin */
	bool measured;  /* addresses are checked */
	unsigned n_hosts, n_lengths, n_codings;
	const char *fault;
};

static bool is_token(const char *p, size_t n)
{
	static const char plain[] =
		"!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
	for (size_t i = 0; i < n; i++)
		if (!p[i] || !strchr(plain, p[i]))
			return false;
	return n > 0;
}

/* Check for printable bytes; tabs and UTF-8 are allowed. */
static bool is_printable(const char *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (((unsigned char)p[i] < ' ' && p[i] != '\t') || p[i] == 0x7f)
			return false;
	return true;
}

static bool is_digits(const char *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (p[i] < '0' || p[i] > '9')
			return false;
	return n > 0;
}

/* Check for a host and a port.  Empty is allowed, for a target without a host. */
static bool is_host(const char *p, size_t n)
{
	static const char plain[] = "-._~%!$&'()*+;=:[]0123456789abcdefghijklmnopqrstuvwxyz"
				    "ABCDEFGHIJKLMNOPQRSTUVWXYZ";
	for (size_t i = 0; i < n; i++)
		if (!p[i] || !strchr(plain, p[i]))
			return false;
	return true;
}

/* Return the length of the scheme, with its slashes, of a target in absolute form; 0: another form. */
static size_t scheme_bytes(const char *target)
{
	static const char *const schemes[] = {"http://", "https://"};
	for (size_t i = 0; i < 2; i++)
		if (!strncasecmp(target, schemes[i], strlen(schemes[i])))
			return strlen(schemes[i]);
	return 0;
}

/* Compare a name as received with a header's name. */
static bool is_named(const char *name, size_t n, const char *want)
{
	return n == strlen(want) && !strncasecmp(name, want, n);
}

/* Return the fault of a single header, or NULL. */
static const char *fault_of(struct head *h, const char *name, size_t name_n, const char *value,
			    size_t value_n)
{
	if (!is_token(name, name_n))
		return "a header's name has a byte that no name may have";
	if (!is_printable(value, value_n))
		return "a header's value has control characters";
	if (is_named(name, name_n, MHD_HTTP_HEADER_HOST)) {
		if (h->n_hosts++)
			return "more than one Host";
		return is_host(value, value_n) ? NULL : "Host is not a host and a port";
	}
	if (is_named(name, name_n, MHD_HTTP_HEADER_CONTENT_LENGTH)) {
		if (h->n_lengths++)
			return "more than one Content-Length";
		return is_digits(value, value_n) ? NULL : "Content-Length is not a number";
	}
	if (is_named(name, name_n, MHD_HTTP_HEADER_TRANSFER_ENCODING)) {
		if (h->n_codings++)
			return "more than one Transfer-Encoding";
		return is_named(value, value_n, "chunked") ? NULL : "Transfer-Encoding is not \"chunked\"";
	}
	return NULL;
}

static enum MHD_Result take_header(void *cls, enum MHD_ValueKind kind, const char *name, size_t name_n,
				   const char *value, size_t value_n)
{
	struct head *h = cls;
	(void)kind;
	value = value ? value : "";
	size_t n = value_n;
	while (n && (value[n - 1] == ' ' || value[n - 1] == '\t'))
		n--;
	h->fault = fault_of(h, name, name_n, value, n);
	/* The value is in the connection's buffer, to which libmicrohttpd itself writes. */
	if (n < value_n)
		((char *)(uintptr_t)value)[n] = '\0';
	/* libmicrohttpd ensures that only the colon and blanks are between a name and its value. */
	if (!h->fault && h->measured && (uintptr_t)name != h->next)
		h->fault = "a header's line is folded, has a NUL, or does not end with CR LF";
	h->next = (uintptr_t)value + value_n + 2;
	return h->fault ? MHD_NO : MHD_YES;
}

size_t framing_target(const char *target)
{
	size_t n = 0;
	for (; target && target[n]; n++)
		if (target[n] <= ' ' || target[n] > '~')
			return SIZE_MAX;
	const size_t scheme = n ? scheme_bytes(target) : 0;
	if (scheme) {
		const char *host = target + scheme;
		const size_t k = strcspn(host, "/?#");
		/* Another parser could read an escape as a slash. */
		if (!k || *host == ':' || !is_host(host, k) || memchr(host, '%', k))
			return SIZE_MAX;
	}
	return n ? n : SIZE_MAX;
}

const char *framing_path(const char *url, const char **host, size_t *host_n)
{
	const size_t scheme = scheme_bytes(url);
	*host = NULL;
	*host_n = 0;
	if (!scheme)
		return url;
	*host = url + scheme;
	*host_n = strcspn(*host, "/");
	return url[scheme + *host_n] ? url + scheme + *host_n : "/";
}

/* Return the fault of the request line, or NULL. */
static const char *line_fault(const struct head *h, const char *method, const char *version, size_t n_target)
{
	size_t n = strlen(method);
	if (!is_token(method, n))
		return "the method has a byte that no method may have";
	if (strcmp(version, MHD_HTTP_VERSION_1_1) != 0 && strcmp(version, MHD_HTTP_VERSION_1_0) != 0)
		return "the version is neither HTTP/1.1 nor HTTP/1.0";
	if (n_target == SIZE_MAX ||
	    (h->measured && (uintptr_t)version != (uintptr_t)method + n + 1 + n_target + 1))
		return "the request's target has blanks or other bytes that no target may have";
	return NULL;
}

const char *framing_fault(struct MHD_Connection *c, const char *method, const char *version, size_t n_target,
			  bool *chunked)
{
	const union MHD_ConnectionInfo *i =
		MHD_get_connection_info(c, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
	struct head h = {.measured = atoi(MHD_get_version()) < 1};
	h.fault = line_fault(&h, method, version, n_target);
	h.next = (uintptr_t)version + VERSION_BYTES + 2;
	if (!h.fault)
		MHD_get_connection_values_n(c, MHD_HEADER_KIND, take_header, &h);
	*chunked = h.n_codings > 0;
	if (h.fault)
		return h.fault;
	if (h.measured && (!i || h.next + 2 != (uintptr_t)method + i->header_size))
		return "a line of the request's head does not end with CR LF";
	if (h.n_codings && h.n_lengths)
		return "Content-Length with Transfer-Encoding";
	if (h.n_codings && strcmp(version, MHD_HTTP_VERSION_1_0) == 0)
		return "Transfer-Encoding is not part of HTTP/1.0";
	return NULL;
}
