/* schema_format.c - the formats of the specification (JSON Schema Validation 2020-12, 7.3) as patterns. A
 * pattern matches the RFC's grammar or a subset. Conditions on the whole text, such as the total length of a
 * host name, are not checked. A name that the specification does not define asserts nothing: it
 * is an annotation. */
#include "grammar/schema/schema_impl.h"

#include <string.h>

/* RFC 3339: days by month, 29 February in leap years only. No leap seconds, since no pattern
 * can list them. */
#define LEAP "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)"
#define DATE                                                                                                 \
	"(?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)" \
	"|02-(?:0[1-9]|1[0-9]|2[0-8]))|" LEAP "-02-29)"
#define CLOCK "(?:[01][0-9]|2[0-3]):[0-5][0-9]"
#define TIME  CLOCK ":[0-5][0-9](?:\\.[0-9]+)?(?:[Zz]|[+-]" CLOCK ")"

/* RFC 3339, appendix A */
#define CLOCK_PARTS "(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S)"
#define DURATION                                                                                             \
	"P(?:(?:[0-9]+D|[0-9]+M(?:[0-9]+D)?|[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?)(?:T" CLOCK_PARTS ")?"           \
	"|T" CLOCK_PARTS "|[0-9]+W)"

#define LABEL "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
#define HOST  LABEL "(?:\\." LABEL ")*"
#define OCTET "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
#define IPV4  OCTET "(?:\\." OCTET "){3}"

/* RFC 4291, 2.2: H is a 16-bit group, L the last 32 bits in either notation. */
#define H "[0-9A-Fa-f]{1,4}"
#define L "(?:" H ":" H "|" IPV4 ")"
#define IPV6                                                                                                 \
	"(?:(?:" H ":){6}" L "|::(?:" H ":){5}" L "|(?:" H ")?::(?:" H ":){4}" L "|(?:(?:" H ":){0,1}" H     \
	")?::(?:" H ":){3}" L "|(?:(?:" H ":){0,2}" H ")?::(?:" H ":){2}" L "|(?:(?:" H ":){0,3}" H ")?::" H \
	":" L "|(?:(?:" H ":){0,4}" H ")?::" L "|(?:(?:" H ":){0,5}" H ")?::" H "|(?:(?:" H ":){0,6}" H      \
	")?::)"

/* RFC 5321, without quoted local parts. */
#define ATEXT "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
#define EMAIL ATEXT "(?:\\." ATEXT ")*@" HOST

/* RFC 3986; RFC 3987 with x for the non-ASCII characters. */
#define IPRIVATE    "\\u00a0-\\ud7ff\\uf900-\\ufdcf\\ufdf0-\\uffef"
#define PCT         "%[0-9A-Fa-f]{2}"
#define PCHAR(x)    "(?:[A-Za-z0-9._~!$&'()*+,;=:@" x "-]|" PCT ")"
#define SEGMENTS(x) "(?:/" PCHAR(x) "*)*"
#define QUERY(x)    "(?:\\?(?:" PCHAR(x) "|[/?])*)?(?:#(?:" PCHAR(x) "|[/?])*)?"
#define AUTHORITY(x)                                                                                         \
	"(?:(?:[A-Za-z0-9._~!$&'()*+,;=:" x "-]|" PCT ")*@)?(?:\\[" IPV6 "\\]|(?:[A-Za-z0-9._~!$&'()*+,;=" x \
	"-]|" PCT ")*)(?::[0-9]*)?"
#define NET(x)       "//" AUTHORITY(x) SEGMENTS(x)
#define ABSOLUTE(x)  "/(?:" PCHAR(x) "+" SEGMENTS(x) ")?"
#define ROOTLESS(x)  PCHAR(x) "+" SEGMENTS(x)
#define NOSCHEME(x)  "(?:[A-Za-z0-9._~!$&'()*+,;=@" x "-]|" PCT ")+" SEGMENTS(x)
#define URI(x)       "[A-Za-z][A-Za-z0-9+.-]*:(?:" NET(x) "|" ABSOLUTE(x) "|" ROOTLESS(x) ")?" QUERY(x)
#define REFERENCE(x) "(?:" URI(x) "|(?:" NET(x) "|" ABSOLUTE(x) "|" NOSCHEME(x) ")?" QUERY(x) ")"

/* RFC 6570, only operators of levels 1 to 3. */
#define VARCHAR  "(?:[A-Za-z0-9_]|" PCT ")"
#define VARSPEC  VARCHAR "+(?:\\." VARCHAR "+)*(?::[1-9][0-9]{0,3}|\\*)?"
#define TEMPLATE "(?:[!#$&(-;=?-\\[\\]_a-z~]|" PCT "|\\{[+#./;?&]?" VARSPEC "(?:," VARSPEC ")*\\})*"

/* A subset of ECMA-262: groups nested at most twice, no look-around, no back-references. */
#define RX_CLASS                                                                                             \
	"\\[\\^?(?:a-z|A-Z|0-9|a-f|A-F|[A-Za-z0-9 "                                                          \
	"_.,:;/@#%&=!<>~'\"+*?|(){}$]|\\\\[dDwWsS\\\\\\]\\[^.-])+\\]"
#define RX_ATOM "[^\\\\()\\[\\]{}*+?|^$]|\\\\[dDwWsSnrtfv.*+?^$|(){}\\[\\]\\\\/]|" RX_CLASS
#define RX_QUANT                                                                                             \
	"(?:(?:[*+?]|\\{[0-9]{1,3}(?:,|,[1-9][0-9]{3})?\\}|\\{[0-9],[1-9][0-9]{1,2}\\})\\?"                  \
	"?)?"
#define RX_0 "(?:(?:" RX_ATOM ")" RX_QUANT ")*"
#define RX_1 "(?:(?:" RX_ATOM "|\\((?:\\?:)?" RX_0 "(?:\\|" RX_0 ")*\\))" RX_QUANT ")*"
#define RX_2 "(?:(?:" RX_ATOM "|\\((?:\\?:)?" RX_1 "(?:\\|" RX_1 ")*\\))" RX_QUANT ")*"
#define RX   "\\^?" RX_2 "\\$?(?:\\|\\^?" RX_2 "\\$?)*"

#define POINTER "(?:/(?:[^~/]|~[01])*)*"

static const struct {
	const char *name, *pattern;
} formats[] = {
	{"date-time", "^" DATE "[Tt]" TIME "$"},
	{"date", "^" DATE "$"},
	{"time", "^" TIME "$"},
	{"duration", "^" DURATION "$"},
	{"email", "^" EMAIL "$"},
	{"idn-email", "^" EMAIL "$"},
	{"hostname", "^" HOST "$"},
	{"idn-hostname", "^" HOST "$"},
	{"ipv4", "^" IPV4 "$"},
	{"ipv6", "^" IPV6 "$"},
	{"uri", "^" URI("") "$"},
	{"uri-reference", "^" REFERENCE("") "$"},
	{"iri", "^" URI(IPRIVATE) "$"},
	{"iri-reference", "^" REFERENCE(IPRIVATE) "$"},
	{"uri-template", "^" TEMPLATE "$"},
	{"uuid", "^[0-9A-Fa-f]{8}-(?:[0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}$"},
	{"json-pointer", "^" POINTER "$"},
	{"relative-json-pointer", "^(?:0|[1-9][0-9]*)(?:#|" POINTER ")$"},
	{"regex", "^" RX "$"},
};

const char *format_pattern(const char *name)
{
	for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
		if (!strcmp(formats[i].name, name))
			return formats[i].pattern;
	return NULL;
}
