/* Parses expressions: operands, then operators from the highest precedence to the lowest. */
#include "controller/jinja/jinja_impl.h"
#include "controller/jinja/parse_impl.h"

static struct jnode *parse_or(struct jparser *p);
static struct jnode *unary(struct jparser *p, bool filters);

static struct jnode *join(struct jparser *p, enum jkind kind, uint32_t line, struct jnode *a, struct jnode *b)
{
	struct jnode *n = jparse_node(p, kind, line);
	n->op.a = a;
	n->op.b = b;
	jparse_over(p, n, a);
	jparse_over(p, n, b);
	return n;
}

static struct jnode *constant(struct jparser *p, uint32_t line, struct jv v)
{
	struct jnode *n = jparse_node(p, N_CONST, line);
	n->value = v;
	return n;
}

/* ---- operands ---- */

static struct jnode *name(struct jparser *p, bool namespaces)
{
	const struct jtoken *t = p->at++;
	static const struct {
		const char *word;
		int what;
	} words[] = {{"true", 1}, {"True", 1}, {"false", 0}, {"False", 0}, {"none", 2}, {"None", 2}};
	for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
		if (t->n == strlen(words[i].word) && memcmp(t->p, words[i].word, t->n) == 0)
			return constant(p, t->line, words[i].what == 2 ? jv_none : jv_bool(words[i].what));
	static const char *const special[] = {"caller", "kwargs", "varargs"};
	for (unsigned i = 0; i < 3; i++)
		if (t->n == strlen(special[i]) && memcmp(t->p, special[i], t->n) == 0)
			p->uses |= 1u << i;
	struct jnode *n = jparse_node(p, N_NAME, t->line);
	n->name = jparse_name(p, t->p, t->n);
	if (namespaces && jparse_skip_op(p, '.')) {
		uint32_t of = n->name;
		n->kind = N_NSREF;
		n->attr.of = NULL;
		n->attr.name = of;
		const struct jtoken *a = p->at;
		jparse_need_name(p, "expected an attribute's name");
		n->attr.key = jparse_str(p, a);
	}
	return n;
}

/* Parse adjacent literals as one string. */
static struct jnode *string(struct jparser *p)
{
	uint32_t line = p->at->line;
	struct jv v = jparse_str(p, p->at);
	for (p->at++; p->at->t == T_STRING; p->at++) {
		v = jstr_concat(&p->c, v.s, jparse_str(p, p->at).s);
		v.s->grow = NULL; /* threads share the tree: a rendering must not append in place */
		jstr_chars(v.s);
	}
	return constant(p, line, v);
}

static struct jnode *list(struct jparser *p)
{
	struct jnode *n = jparse_node(p, N_LIST, p->at->line);
	p->at++;
	while (!jparse_at_op(p, ']')) {
		if (n->list.n) {
			jparse_need_op(p, ',', "expected ',' or ']'");
			if (jparse_at_op(p, ']'))
				break;
		}
		struct jnode *e = jparse_expr(p);
		jnodes_push(p, &n->list, e);
		jparse_over(p, n, e);
	}
	p->at++;
	return n;
}

static struct jnode *dict(struct jparser *p)
{
	struct jnode *n = jparse_node(p, N_DICT, p->at->line);
	p->at++;
	while (!jparse_at_op(p, '}')) {
		if (n->list.n) {
			jparse_need_op(p, ',', "expected ',' or '}'");
			if (jparse_at_op(p, '}'))
				break;
		}
		for (int i = 0; i < 2; i++) {
			struct jnode *e = jparse_expr(p);
			jnodes_push(p, &n->list, e);
			jparse_over(p, n, e);
			if (i == 0)
				jparse_need_op(p, ':', "expected ':'");
		}
	}
	p->at++;
	return n;
}

/* Parse an expression in parentheses. */
static struct jnode *group(struct jparser *p)
{
	uint32_t line = p->at->line;
	p->at++;
	struct jnode *n = jparse_at_op(p, ')') ? jparse_node(p, N_TUPLE, line) : jparse_tuple(p, true, NULL);
	jparse_need_op(p, ')', "expected ')'");
	return n;
}

static struct jnode *primary(struct jparser *p, bool namespaces)
{
	const struct jtoken *t = p->at;
	jparse_deeper(p);
	struct jnode *n = NULL;
	if (t->t == T_NAME)
		n = name(p, namespaces);
	else if (t->t == T_STRING)
		n = string(p);
	else if (t->t == T_INT || t->t == T_FLOAT) {
		p->at++;
		n = constant(p, t->line, t->t == T_INT ? jv_int(t->i) : jv_float(t->d));
	} else if (jparse_at_op(p, '('))
		n = group(p);
	else if (jparse_at_op(p, '['))
		n = list(p);
	else if (jparse_at_op(p, '{'))
		n = dict(p);
	else
		jparse_fail(p, "expected an expression");
	jinja_leave(&p->c);
	return n;
}

/* ---- what follows an operand ---- */

static struct jcall *arguments(struct jparser *p, struct jnode *over)
{
	struct jcall *a = jinja_alloc(&p->c, sizeof *a);
	struct jnodes names = {0};
	bool first = true;
	p->at++; /* ( */
	for (; !jparse_at_op(p, ')'); first = false) {
		if (!first) {
			jparse_need_op(p, ',', "expected ',' or ')'");
			if (jparse_at_op(p, ')'))
				break;
		}
		bool star = jparse_at_op(p, '*'), star_star = jparse_at_op(p, JOP2('*', '*'));
		bool keyword = p->at->t == T_NAME && p->at[1].t == T_OP && p->at[1].op == '=';
		if (a->star_star || (a->star && !star_star && !keyword) ||
		    (a->kw.n && !star && !star_star && !keyword))
			jparse_fail(p, "arguments in a wrong order");
		struct jnode *key = NULL, *e;
		if (star || star_star) {
			p->at++;
		} else if (keyword) {
			key = jparse_node(p, N_NAME, p->at->line);
			key->name = jparse_name(p, p->at->p, p->at->n);
			p->at += 2;
		}
		e = jparse_expr(p);
		jparse_over(p, over, e);
		if (star)
			a->star = e;
		else if (star_star)
			a->star_star = e;
		else
			jnodes_push(p, keyword ? &a->kw : &a->pos, e);
		if (keyword)
			jnodes_push(p, &names, key);
	}
	p->at++;
	a->kw_names = jinja_alloc_n(&p->c, names.n, sizeof *a->kw_names);
	for (uint32_t i = 0; i < names.n; i++)
		a->kw_names[i] = names.v[i]->name;
	return a;
}

static struct jnode *call(struct jparser *p, struct jnode *of)
{
	struct jnode *n = jparse_node(p, N_CALL, p->at->line);
	n->call.of = of;
	jparse_over(p, n, of);
	n->call.args = arguments(p, n);
	return n;
}

/* Parse an index or slice between [ and ]. */
static struct jnode *index_or_slice(struct jparser *p)
{
	uint32_t line = p->at->line;
	struct jnode *part[3] = {NULL};
	int n = 0;
	bool slice = false;
	for (; n < 3; n++) {
		if (!jparse_at_op(p, ':') && !jparse_at_op(p, ']') && !jparse_at_op(p, ','))
			part[n] = jparse_expr(p);
		if (!jparse_at_op(p, ':') || n == 2)
			break;
		slice = true;
		p->at++;
	}
	if (!slice && !part[0])
		jparse_fail(p, "expected an index");
	if (!slice)
		return part[0];
	struct jnode *s = join(p, N_SLICE, line, part[0], part[1]);
	s->op.c = part[2];
	jparse_over(p, s, part[2]);
	return s;
}

static struct jnode *subscript(struct jparser *p, struct jnode *of)
{
	uint32_t line = p->at->line;
	if (jparse_skip_op(p, '.')) {
		const struct jtoken *t = p->at;
		if (t->t == T_INT) {
			p->at++;
			return join(p, N_ITEM, line, of, constant(p, line, jv_int(t->i)));
		}
		struct jnode *n = jparse_node(p, N_ATTR, line);
		n->attr.of = of;
		n->attr.name = jparse_need_name(p, "expected an attribute's name");
		n->attr.key = jparse_str(p, t);
		jparse_over(p, n, of);
		return n;
	}
	p->at++; /* [ */
	struct jnode *key = index_or_slice(p);
	if (jparse_at_op(p, ',')) {
		struct jnode *tuple = jparse_node(p, N_TUPLE, line);
		jnodes_push(p, &tuple->list, key);
		jparse_over(p, tuple, key);
		while (jparse_skip_op(p, ',')) {
			jnodes_push(p, &tuple->list, index_or_slice(p));
			jparse_over(p, tuple, tuple->list.v[tuple->list.n - 1]);
		}
		key = tuple;
	}
	jparse_need_op(p, ']', "expected ']'");
	return join(p, N_ITEM, line, of, key);
}

static struct jnode *postfix(struct jparser *p, struct jnode *n)
{
	for (;;) {
		if (jparse_at_op(p, '.') || jparse_at_op(p, '['))
			n = subscript(p, n);
		else if (jparse_at_op(p, '('))
			n = call(p, n);
		else
			return n;
	}
}

/* Return a placeholder for an unknown filter or test, which fails when used: real templates have some in
 * branches that are not taken. */
static const struct jfn *unknown(struct jparser *p, const struct jtoken *t)
{
	struct jfn *none = jinja_alloc(&p->c, sizeof *none);
	char *text = jinja_alloc(&p->c, (size_t)t->n + 1);
	none->name = memcpy(text, t->p, t->n);
	return none;
}

/* Parse `a` or `a(...)` after a pipe. */
static struct jnode *filter(struct jparser *p, struct jnode *of)
{
	const struct jtoken *t = p->at;
	struct jnode *n = jparse_node(p, N_FILTER, t->line);
	jparse_need_name(p, "expected a filter's name");
	p->c.line = t->line;
	n->call.fn = jinja_filter(t->p, t->n);
	if (!n->call.fn)
		n->call.fn = unknown(p, t);
	n->call.of = of;
	jparse_over(p, n, of);
	n->call.args = jparse_at_op(p, '(') ? arguments(p, n) : jinja_alloc(&p->c, sizeof *n->call.args);
	return n;
}

struct jnode *jparse_filters(struct jparser *p, struct jnode *of)
{
	while (jparse_skip_op(p, '|'))
		of = filter(p, of);
	return of;
}

struct jnode *jparse_filter_chain(struct jparser *p)
{
	return jparse_filters(p, filter(p, NULL));
}

static struct jnode *test(struct jparser *p, struct jnode *of)
{
	uint32_t line = p->at++->line;
	bool negated = jparse_skip_word(p, "not");
	const struct jtoken *t = p->at;
	struct jnode *n = jparse_node(p, N_TEST, line);
	jparse_need_name(p, "expected a test's name");
	p->c.line = line;
	n->call.fn = jinja_test(t->p, t->n);
	if (!n->call.fn)
		n->call.fn = unknown(p, t);
	n->call.of = of;
	n->variant = negated;
	jparse_over(p, n, of);
	n->call.args = jinja_alloc(&p->c, sizeof *n->call.args);
	bool operand = (p->at->t == T_NAME && !jparse_at_word(p, "else") && !jparse_at_word(p, "or") &&
			!jparse_at_word(p, "and") && !jparse_at_word(p, "is")) ||
		       p->at->t == T_STRING || p->at->t == T_INT || p->at->t == T_FLOAT ||
		       jparse_at_op(p, '[') || jparse_at_op(p, '{');
	if (jparse_at_op(p, '(')) {
		n->call.args = arguments(p, n);
	} else if (operand) {
		struct jnode *arg = postfix(p, primary(p, false));
		jnodes_push(p, &n->call.args->pos, arg);
		jparse_over(p, n, arg);
	}
	return n;
}

/* ---- operators ---- */

static struct jnode *unary(struct jparser *p, bool filters)
{
	uint32_t line = p->at->line;
	struct jnode *n;
	jparse_deeper(p);
	if (jparse_skip_op(p, '-'))
		n = join(p, N_NEG, line, unary(p, false), NULL);
	else if (jparse_skip_op(p, '+'))
		n = join(p, N_POS, line, unary(p, false), NULL);
	else
		n = primary(p, false);
	n = postfix(p, n);
	while (filters) {
		if (jparse_at_op(p, '|'))
			n = jparse_filters(p, n);
		else if (jparse_at_word(p, "is"))
			n = test(p, n);
		else if (jparse_at_op(p, '('))
			n = call(p, n);
		else
			break;
	}
	jinja_leave(&p->c);
	return n;
}

static struct jnode *binary(struct jparser *p, enum jop op, uint32_t line, struct jnode *a, struct jnode *b)
{
	struct jnode *n = join(p, N_BINARY, line, a, b);
	n->variant = (uint8_t)op;
	return n;
}

static struct jnode *power(struct jparser *p)
{
	uint32_t line = p->at->line;
	struct jnode *n = unary(p, true);
	while (jparse_skip_op(p, JOP2('*', '*')))
		n = binary(p, OP_POW, line, n, unary(p, true));
	return n;
}

static struct jnode *product(struct jparser *p)
{
	uint32_t line = p->at->line;
	struct jnode *n = power(p);
	for (;;) {
		if (jparse_skip_op(p, '*'))
			n = binary(p, OP_MUL, line, n, power(p));
		else if (jparse_skip_op(p, '/'))
			n = binary(p, OP_DIV, line, n, power(p));
		else if (jparse_skip_op(p, JOP2('/', '/')))
			n = binary(p, OP_FLOORDIV, line, n, power(p));
		else if (jparse_skip_op(p, '%'))
			n = binary(p, OP_MOD, line, n, power(p));
		else
			return n;
	}
}

static struct jnode *concat(struct jparser *p)
{
	struct jnode *first = product(p);
	if (!jparse_at_op(p, '~'))
		return first;
	struct jnode *n = jparse_node(p, N_CONCAT, first->line);
	jnodes_push(p, &n->list, first);
	jparse_over(p, n, first);
	while (jparse_skip_op(p, '~')) {
		struct jnode *e = product(p);
		jnodes_push(p, &n->list, e);
		jparse_over(p, n, e);
	}
	return n;
}

static struct jnode *sum(struct jparser *p)
{
	uint32_t line = p->at->line;
	struct jnode *n = concat(p);
	for (;;) {
		if (jparse_skip_op(p, '+'))
			n = binary(p, OP_ADD, line, n, concat(p));
		else if (jparse_skip_op(p, '-'))
			n = binary(p, OP_SUB, line, n, concat(p));
		else
			return n;
	}
}

/* Take a comparison operator; -1: there is none. */
static int comparison(struct jparser *p)
{
	static const struct {
		int op;
		enum jcmp cmp;
	} ops[] = {{JOP2('=', '='), CMP_EQ},
		   {JOP2('!', '='), CMP_NE},
		   {'<', CMP_LT},
		   {JOP2('<', '='), CMP_LE},
		   {'>', CMP_GT},
		   {JOP2('>', '='), CMP_GE}};
	for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++)
		if (jparse_skip_op(p, ops[i].op))
			return ops[i].cmp;
	if (jparse_skip_word(p, "in"))
		return CMP_IN;
	if (jparse_at_word(p, "not") && p->at[1].t == T_NAME && p->at[1].n == 2 &&
	    memcmp(p->at[1].p, "in", 2) == 0) {
		p->at += 2;
		return CMP_NOT_IN;
	}
	return -1;
}

/* Parse a < b < c: the list is the first operand, then alternating CONST nodes of operators and operands. */
static struct jnode *compare(struct jparser *p)
{
	uint32_t line = p->at->line;
	struct jnode *first = sum(p), *n = NULL;
	for (int cmp; (cmp = comparison(p)) >= 0;) {
		if (!n) {
			n = jparse_node(p, N_COMPARE, line);
			jnodes_push(p, &n->list, first);
			jparse_over(p, n, first);
		}
		jnodes_push(p, &n->list, constant(p, line, jv_int(cmp)));
		struct jnode *e = sum(p);
		jnodes_push(p, &n->list, e);
		jparse_over(p, n, e);
	}
	return n ? n : first;
}

static struct jnode *parse_not(struct jparser *p)
{
	uint32_t line = p->at->line;
	if (!jparse_skip_word(p, "not"))
		return compare(p);
	jparse_deeper(p);
	struct jnode *n = join(p, N_NOT, line, parse_not(p), NULL);
	jinja_leave(&p->c);
	return n;
}

static struct jnode *parse_and(struct jparser *p)
{
	uint32_t line = p->at->line;
	struct jnode *n = parse_not(p);
	while (jparse_skip_word(p, "and"))
		n = join(p, N_AND, line, n, parse_not(p));
	return n;
}

static struct jnode *parse_or(struct jparser *p)
{
	uint32_t line = p->at->line;
	struct jnode *n = parse_and(p);
	while (jparse_skip_word(p, "or"))
		n = join(p, N_OR, line, n, parse_and(p));
	return n;
}

struct jnode *jparse_expr(struct jparser *p)
{
	uint32_t line = p->at->line;
	jparse_deeper(p);
	struct jnode *n = parse_or(p);
	while (jparse_skip_word(p, "if")) {
		struct jnode *c = join(p, N_COND, line, parse_or(p), n);
		c->op.c = jparse_skip_word(p, "else") ? jparse_expr(p) : NULL;
		jparse_over(p, c, c->op.c);
		n = c;
	}
	jinja_leave(&p->c);
	return n;
}

static bool tuple_ends(const struct jparser *p, const char *end)
{
	return p->at->t == T_VAR_END || p->at->t == T_BLOCK_END || jparse_at_op(p, ')') ||
	       jparse_at_op(p, '=') || (end && jparse_at_word(p, end));
}

/* Parse elements separated by commas: targets or expressions. */
static struct jnode *elements(struct jparser *p, bool target, bool flag, const char *end)
{
	struct jnodes l = {0};
	uint32_t line = p->at->line;
	bool tuple = false;
	for (;;) {
		if (l.n && tuple_ends(p, end))
			break;
		jnodes_push(p, &l, target ? primary(p, flag) : flag ? jparse_expr(p) : parse_or(p));
		if (!jparse_skip_op(p, ','))
			break;
		tuple = true;
	}
	if (!tuple)
		return l.v[0];
	struct jnode *n = jparse_node(p, N_TUPLE, line);
	n->list = l;
	for (uint32_t i = 0; i < l.n; i++)
		jparse_over(p, n, l.v[i]);
	return n;
}

struct jnode *jparse_tuple(struct jparser *p, bool conditional, const char *end)
{
	return elements(p, false, conditional, end);
}

static void check_target(struct jparser *p, const struct jnode *n)
{
	if (n->kind == N_TUPLE || n->kind == N_LIST) {
		for (uint32_t i = 0; i < n->list.n; i++)
			check_target(p, n->list.v[i]);
	} else if (n->kind != N_NAME && n->kind != N_NSREF) {
		p->c.line = n->line;
		jinja_fail(&p->c, -EINVAL, "only names can be assigned to");
	}
}

struct jnode *jparse_target(struct jparser *p, bool namespaces, const char *end)
{
	struct jnode *n = elements(p, true, namespaces, end);
	check_target(p, n);
	return n;
}
