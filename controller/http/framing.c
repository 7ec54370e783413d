#include "controller/http/framing.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { VERSION_BYTES = 8 /* HTTP/1.1 */ };

/* What is read of a head, header by header. */
struct head {
	uintptr_t next; /* where the next header must begin */
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

/* Tabs, and bytes of UTF-8, are allowed. */
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

/* A host and a port, or nothing, as for a target that names none. */
static bool is_host(const char *p, size_t n)
{
	static const char plain[] = "-._~%!$&'()*+;=:[]0123456789abcdefghijklmnopqrstuvwxyz"
				    "ABCDEFGHIJKLMNOPQRSTUVWXYZ";
	for (size_t i = 0; i < n; i++)
		if (!p[i] || !strchr(plain, p[i]))
			return false;
	return true;
}

/* name: as it came. */
static bool is_named(const char *name, size_t n, const char *want)
{
	return n == strlen(want) && !strncasecmp(name, want, n);
}

/* The fault of one header, read alone. */
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
	h->fault = fault_of(h, name, name_n, value, value_n);
	/* Between its name and its value are only the colon and blanks: libmicrohttpd sees to that. */
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
	return n ? n : SIZE_MAX;
}

/* The first line. */
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
		return "Content-Length beside Transfer-Encoding";
	if (h.n_codings && strcmp(version, MHD_HTTP_VERSION_1_0) == 0)
		return "Transfer-Encoding is not part of HTTP/1.0";
	return NULL;
}
