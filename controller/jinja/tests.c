/* Tests: the right-hand sides of `is`. */
#include "controller/jinja/jinja_impl.h"

JINJA_FN(is_defined, v)
{
	return jv_bool(v.t != J_UNDEF);
}

JINJA_FN(is_undefined, v)
{
	return jv_bool(v.t == J_UNDEF);
}

JINJA_FN(is_none, v)
{
	return jv_bool(v.t == J_NONE);
}

JINJA_FN(is_true, v)
{
	return jv_bool(v.t == J_BOOL && v.b);
}

JINJA_FN(is_false, v)
{
	return jv_bool(v.t == J_BOOL && !v.b);
}

JINJA_FN(is_boolean, v)
{
	return jv_bool(v.t == J_BOOL);
}

JINJA_FN(is_integer, v)
{
	return jv_bool(v.t == J_INT);
}

JINJA_FN(is_float, v)
{
	return jv_bool(v.t == J_FLOAT);
}

JINJA_FN(is_number, v)
{
	return jv_bool(jv_is_number(v));
}

JINJA_FN(is_string, v)
{
	return jv_bool(v.t == J_STR);
}

JINJA_FN(is_mapping, v)
{
	return jv_bool(v.t == J_DICT);
}

/* Return true if the value supports len() and [ ]. */
JINJA_FN(is_sequence, v)
{
	return jv_bool(v.t == J_STR || v.t == J_LIST || v.t == J_TUPLE || v.t == J_DICT || v.t == J_RANGE ||
		       v.t == J_UNDEF);
}

JINJA_FN(is_iterable, v)
{
	return jv_bool(v.t == J_STR || v.t == J_LIST || v.t == J_TUPLE || v.t == J_DICT || v.t == J_RANGE ||
		       v.t == J_UNDEF || v.t == J_VIEW || v.t == J_GEN || v.t == J_LOOP);
}

JINJA_FN(is_callable, v)
{
	return jv_bool(v.t == J_MACRO || v.t == J_FN || v.t == J_METHOD || v.t == J_LOOP || v.t == J_UNDEF);
}

JINJA_FN(is_sameas, v)
{
	if (v.t != a[0].t || v.t == J_FLOAT)
		return jv_false;
	if (v.t == J_BOOL || v.t == J_INT || v.t == J_NONE)
		return jv_bool(jv_equal(&r->c, v, a[0]));
	return jv_bool(v.l == a[0].l);
}

JINJA_FN(is_in, v)
{
	return jv_bool(jv_contains(&r->c, a[0], v));
}

static int64_t modulo(struct jrender *r, struct jv v, int64_t by)
{
	struct jv m = jinja_binary(r, OP_MOD, v, jv_int(by));
	return m.t == J_FLOAT ? (int64_t)m.d + (m.d != (double)(int64_t)m.d) * 2 : m.i;
}

JINJA_FN(is_odd, v)
{
	return jv_bool(modulo(r, v, 2) == 1);
}

JINJA_FN(is_even, v)
{
	return jv_bool(modulo(r, v, 2) == 0);
}

JINJA_FN(is_divisibleby, v)
{
	return jv_bool(modulo(r, v, jv_need_int(&r->c, a[0], "divisibleby() argument")) == 0);
}

JINJA_FN(is_lower, v)
{
	return jinja_call_str_method(r, v, "islower", NULL, 0);
}

JINJA_FN(is_upper, v)
{
	return jinja_call_str_method(r, v, "isupper", NULL, 0);
}

JINJA_FN(is_escaped, v)
{
	return jv_false;
}

JINJA_FN(is_filter, v)
{
	return jv_bool(v.t == J_STR && jinja_filter(v.s->p, v.s->n));
}

JINJA_FN(is_test, v)
{
	return jv_bool(v.t == J_STR && jinja_test(v.s->p, v.s->n));
}

#define COMPARISON(name_, op_)                                                                               \
	JINJA_FN(name_, v)                                                                                   \
	{                                                                                                    \
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
