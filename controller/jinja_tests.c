/* What `is` asks. */
#include "controller/jinja_impl.h"

#include <errno.h>

#define TEST(name_)                                                                                          \
	static struct jv name_(struct jrender *r, struct jv v, const struct jv *a, const struct jargs *args)
#define UNUSED ((void)r, (void)v, (void)a, (void)args)

TEST(is_defined)
{
	UNUSED;
	return jv_bool(v.t != J_UNDEF);
}

TEST(is_undefined)
{
	UNUSED;
	return jv_bool(v.t == J_UNDEF);
}

TEST(is_none)
{
	UNUSED;
	return jv_bool(v.t == J_NONE);
}

TEST(is_true)
{
	UNUSED;
	return jv_bool(v.t == J_BOOL && v.b);
}

TEST(is_false)
{
	UNUSED;
	return jv_bool(v.t == J_BOOL && !v.b);
}

TEST(is_boolean)
{
	UNUSED;
	return jv_bool(v.t == J_BOOL);
}

TEST(is_integer)
{
	UNUSED;
	return jv_bool(v.t == J_INT);
}

TEST(is_float)
{
	UNUSED;
	return jv_bool(v.t == J_FLOAT);
}

TEST(is_number)
{
	UNUSED;
	return jv_bool(jv_is_number(v));
}

TEST(is_string)
{
	UNUSED;
	return jv_bool(v.t == J_STR);
}

TEST(is_mapping)
{
	UNUSED;
	return jv_bool(v.t == J_DICT);
}

/* Has len() and [ ]. */
TEST(is_sequence)
{
	UNUSED;
	return jv_bool(v.t == J_STR || v.t == J_LIST || v.t == J_TUPLE || v.t == J_DICT || v.t == J_RANGE ||
		       v.t == J_UNDEF);
}

TEST(is_iterable)
{
	UNUSED;
	return jv_bool(v.t == J_STR || v.t == J_LIST || v.t == J_TUPLE || v.t == J_DICT || v.t == J_RANGE ||
		       v.t == J_UNDEF || v.t == J_VIEW || v.t == J_GEN || v.t == J_LOOP);
}

TEST(is_callable)
{
	UNUSED;
	return jv_bool(v.t == J_MACRO || v.t == J_FN || v.t == J_METHOD || v.t == J_LOOP || v.t == J_UNDEF);
}

TEST(is_sameas)
{
	UNUSED;
	if (v.t != a[0].t || v.t == J_FLOAT)
		return jv_false;
	if (v.t == J_BOOL || v.t == J_INT || v.t == J_NONE)
		return jv_bool(jv_equal(&r->c, v, a[0]));
	return jv_bool(v.l == a[0].l);
}

TEST(is_in)
{
	UNUSED;
	return jv_bool(jv_contains(&r->c, a[0], v));
}

static int64_t modulo(struct jrender *r, struct jv v, int64_t by)
{
	struct jv m = jinja_binary(r, OP_MOD, v, jv_int(by));
	return m.t == J_FLOAT ? (int64_t)m.d + (m.d != (double)(int64_t)m.d) * 2 : m.i;
}

TEST(is_odd)
{
	UNUSED;
	return jv_bool(modulo(r, v, 2) == 1);
}

TEST(is_even)
{
	UNUSED;
	return jv_bool(modulo(r, v, 2) == 0);
}

TEST(is_divisibleby)
{
	UNUSED;
	return jv_bool(modulo(r, v, jv_need_int(&r->c, a[0], "divisibleby() argument")) == 0);
}

static struct jv by_method(struct jrender *r, struct jv v, const char *name)
{
	struct jstr key = {.p = name, .n = (uint32_t)strlen(name)};
	static const struct jargs none;
	struct jv s = jv_to_str(&r->c, v);
	return jinja_call_fn(r, jinja_str_method(&key), s, &none);
}

TEST(is_lower)
{
	UNUSED;
	return by_method(r, v, "islower");
}

TEST(is_upper)
{
	UNUSED;
	return by_method(r, v, "isupper");
}

TEST(is_escaped)
{
	UNUSED;
	return jv_false;
}

TEST(is_filter)
{
	UNUSED;
	return jv_bool(v.t == J_STR && (jinja_filter(v.s->p, v.s->n) || jinja_filter_seq(v.s->p, v.s->n)));
}

TEST(is_test)
{
	UNUSED;
	return jv_bool(v.t == J_STR && jinja_test(v.s->p, v.s->n));
}

#define COMPARISON(name_, op_)                                                                               \
	TEST(name_)                                                                                          \
	{                                                                                                    \
		UNUSED;                                                                                      \
		return jv_bool(jinja_compare(r, op_, v, a[0]));                                              \
	}
COMPARISON(is_eq, CMP_EQ)
COMPARISON(is_ne, CMP_NE)
COMPARISON(is_lt, CMP_LT)
COMPARISON(is_le, CMP_LE)
COMPARISON(is_gt, CMP_GT)
COMPARISON(is_ge, CMP_GE)

static const struct jfn tests[] = {
	{"defined", "", is_defined},
	{"undefined", "", is_undefined},
	{"none", "", is_none},
	{"true", "", is_true},
	{"false", "", is_false},
	{"boolean", "", is_boolean},
	{"integer", "", is_integer},
	{"float", "", is_float},
	{"number", "", is_number},
	{"string", "", is_string},
	{"mapping", "", is_mapping},
	{"sequence", "", is_sequence},
	{"iterable", "", is_iterable},
	{"callable", "", is_callable},
	{"sameas", "other", is_sameas},
	{"in", "seq", is_in},
	{"odd", "", is_odd},
	{"even", "", is_even},
	{"divisibleby", "num", is_divisibleby},
	{"lower", "", is_lower},
	{"upper", "", is_upper},
	{"escaped", "", is_escaped},
	{"filter", "", is_filter},
	{"test", "", is_test},
	{"eq", "other", is_eq},
	{"equalto", "other", is_eq},
	{"==", "other", is_eq},
	{"ne", "other", is_ne},
	{"!=", "other", is_ne},
	{"lt", "other", is_lt},
	{"lessthan", "other", is_lt},
	{"<", "other", is_lt},
	{"le", "other", is_le},
	{"<=", "other", is_le},
	{"gt", "other", is_gt},
	{"greaterthan", "other", is_gt},
	{">", "other", is_gt},
	{"ge", "other", is_ge},
	{">=", "other", is_ge},
};

const struct jfn *jinja_test(const char *name, size_t n)
{
	return jfn_find(tests, sizeof tests / sizeof tests[0], name, n);
}
