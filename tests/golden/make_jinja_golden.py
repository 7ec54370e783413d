#!/usr/bin/env python3
"""Writes tests/golden/jinja.json: templates rendered by jinja2, set up as in transformers.

    make_jinja_golden.py [DATA] > tests/golden/jinja.json

cases: the templates below, {name, template, context, text}; text is null if jinja2 refuses.
python: the cases of DATA/chat/hfjs-jinja-syntax.json, written for another implementation, that Python
renders differently, {name: text or null}; without DATA they are kept."""
import datetime
import functools
import json
import sys
from pathlib import Path

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

NOW = 1752148800  # 2025-07-10 12:00 UTC
HERE = Path(__file__).resolve().parent


class Generation(jinja2.ext.Extension):
    """{% generation %}: marks the assistant's part for training; renders its body."""
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_render"), [], [], body).set_lineno(line)

    @staticmethod
    def _render(caller):
        return caller()


def environment(trim_blocks=True, lstrip_blocks=True):
    env = ImmutableSandboxedEnvironment(trim_blocks=trim_blocks, lstrip_blocks=lstrip_blocks,
                                        extensions=[Generation, jinja2.ext.loopcontrols])

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda form: datetime.datetime.fromtimestamp(NOW).strftime(form)
    return env


@functools.lru_cache(maxsize=None)
def compiled(template, trim_blocks, lstrip_blocks):
    return environment(trim_blocks, lstrip_blocks).from_string(template)


def render(template, context, trim_blocks=True, lstrip_blocks=True):
    """(text, reason); the text is None if jinja2 refuses."""
    try:
        return compiled(template, trim_blocks, lstrip_blocks).render(**context), None
    except Exception as e:  # whatever Python raises is a refusal
        return None, f"{type(e).__name__}: {e}"


CONTEXT = {
    "one": 1, "half": 0.5, "no": False, "null": None, "s": "Hello, World", "wide": "Grüße, 世界 🤗", "empty": "",
    "sp": "  two  spaces \n", "xs": [3, 1, 2], "words": ["b", "A", "c", "B"], "nested": [[1, [2, 3]], {"a": [4]}],
    "d": {"b": 1, "a": [1, 2], "C": {"x": None}}, "quotes": "it's \"so\" \\ \n\t\u0007 \u00ad é",
    "users": [{"name": "Zoe", "age": 30, "tags": ["x"]}, {"name": "adam", "age": 25}, {"name": "Bo", "age": 30}],
    "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi <b>"},
                 {"role": "assistant", "content": "Yes?", "tool_calls": [
                     {"function": {"name": "f", "arguments": {"x": 1, "y": [True, None, 1.5]}}}]}],
}

# One line each: a name, a colon, the template.  All see CONTEXT.
LINES = r"""
print: {{ one }}|{{ half }}|{{ no }}|{{ null }}|{{ s }}|{{ xs }}|{{ d }}|{{ nested }}|{{ missing }}|{{ (1,) }}|{{ () }}
print_quotes: {{ [quotes] }}|{{ [s] }}|{{ ["it's"] }}|{{ ['"'] }}|{{ ['\'"'] }}|{{ [wide] }}|{{ {'k': 'v'} }}
floats: {{ 1.0 }}|{{ 0.1 + 0.2 }}|{{ 1e16 }}|{{ 1e15 }}|{{ 123456789012345680.0 }}|{{ 1e-4 }}|{{ 1e-5 }}|{{ 1.5e300 }}|{{ -0.0 }}|{{ 100.0 }}
arithmetic: {{ 7 + 2 }} {{ 7 - 2 }} {{ 7 * 2 }} {{ 7 / 2 }} {{ 7 // 2 }} {{ 7 % 3 }} {{ 2 ** 10 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ 7.5 // 2 }} {{ -7.5 % 2 }} {{ 2 ** -1 }} {{ 2 ** 0.5 }} {{ true + 1 }}
concat_before_sum: {{ 1 ~ 2 + 3 }}
precedence: {{ 1 + 2 * 3 }} {{ (1 + 2) * 3 }} {{ -2 ** 2 }} {{ 2 ** 3 ** 2 }} {{ 1 ~ 2 * 3 }} {{ not 1 == 2 }} {{ 1 < 2 < 3 }} {{ 3 > 2 > 2 }} {{ 1 + 1 if 0 else 2 }} {{ -xs | first | abs if 0 else 1 }}
numbers: {{ 1_000 }} {{ 0x1F }} {{ 0b11 }} {{ 0o17 }} {{ 1_0.2_5 }} {{ 2E3 }}
division_by_zero: {{ 1 / 0 }}
modulo_by_zero: {{ 1 % 0 }}
string_plus_number: {{ 'a' + 1 }}
number_plus_string: {{ 1 + 'a' }}
list_plus: {{ xs + [4] }} {{ (1, 2) + (3,) }} {{ [0] * 3 }} {{ 'ab' * 2 }} {{ 2 * 'ab' }} {{ 'x' * -1 }}
list_plus_tuple: {{ [1] + (2,) }}
undefined_plus: {{ missing + 1 }}
undefined_attribute: {{ missing.x }}
undefined_item: {{ missing['x'] }}
undefined_call: {{ missing() }}
undefined_compare: {{ missing < 1 }}
undefined_uses: {{ missing is defined }}{{ d.nope is defined }}{{ missing == nothing }}{{ missing == none }}{{ missing | length }}{{ missing | list }}{% for x in missing %}x{% else %}none{% endfor %}{{ 'a' in missing }}{{ not missing }}{{ missing ~ 'x' }}{{ missing | default('d') }}
undefined_in_string: {{ missing in 'abc' }}
unpack_undefined: {% set a, b = missing %}
attributes: {{ d.b }} {{ d['b'] }} {{ d.a[1] }} {{ d.a.1 }} {{ xs[-1] }} {{ xs[9] }} {{ d.C.x }} {{ null.x }} {{ s.x }} {{ s[0] }} {{ s['upper']() }} {{ xs['x'] }}
keys_that_are_methods: {{ {'items': 1, 'get': 2}['items'] }} {{ {'items': 1}.get('items') }} {{ {'x': 1}.items is callable }}
slices: {{ xs[:2] }} {{ xs[1:] }} {{ xs[::-1] }} {{ xs[-2:] }} {{ xs[5:] }} {{ xs[:-9] }} {{ s[7:] }} {{ s[::-1] }} {{ s[-3:-1] }} {{ wide[2:5] }} {{ wide[::-2] }} {{ (1, 2, 3)[1:] }} {{ range(10)[2:8:3] | list }} {{ xs[none:none] }}
slice_step_zero: {{ xs[::0] }}
slice_of_none: {{ null[1:] }}
compare: {{ 1 == 1.0 }} {{ true == 1 }} {{ 'a' == 'a' }} {{ [1, 2] == [1, 2.0] }} {{ {'a': 1} == {'a': true} }} {{ (1,) == [1] }} {{ 'a' < 'b' }} {{ [1, 2] < [1, 3] }} {{ none == false }} {{ 1 != '1' }} {{ 'é' > 'z' }}
compare_mixed: {{ 1 < 'a' }}
membership: {{ 1 in xs }} {{ 'ell' in s }} {{ 'b' in d }} {{ 'z' not in d }} {{ 2 in (1, 2) }} {{ 3 in range(5) }} {{ '' in '' }} {{ 1.0 in [1] }}
number_in_string: {{ 1 in 'abc' }}
in_none: {{ 1 in null }}
logic: {{ 0 or 'x' }} {{ 1 and 'y' }} {{ '' and 1 }} {{ not xs }} {{ none or false }} {{ (xs or 1) | length }} {{ 1 or missing.x }}
ternary: {{ 'a' if one else 'b' }} {{ 'a' if no }} {{ ('a' if no) is defined }} {{ 1 if no else 2 if no else 3 }}
concat: {{ 1 ~ 'a' ~ none ~ 1.0 ~ xs }} {{ 'a' 'b' "c" }}
if: {% if no %}a{% elif one %}b{% else %}c{% endif %}{% if no %}x{% endif %}{% if no %}a{% elif null %}b{% elif 0 %}c{% else %}d{% endif %}
for: {% for x in xs %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.previtem }}-{{ loop.nextitem }},{% endfor %}
for_else: {% for x in [] %}a{% else %}b{% endfor %}{% for x in xs %}{{ x }}{% else %}b{% endfor %}
for_if: {% for x in xs if x > 1 %}{{ x }}{{ loop.index }}{{ loop.last }}{% endfor %}
for_dict: {% for k in d %}{{ k }}{% endfor %}{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}{% for k, v in d | items %}{{ k }}{% endfor %}
for_string: {% for c in wide %}{{ c }}.{% endfor %}
for_unpack: {% for a, (b, c) in [(1, (2, 3)), [4, '56']] %}{{ a }}{{ b }}{{ c }};{% endfor %}
for_unpack_wrong: {% for a, b in [(1, 2, 3)] %}{% endfor %}
for_none: {% for x in null %}{% endfor %}
for_number: {% for x in 5 %}{% endfor %}
for_scope: {% set x = 0 %}{% for i in xs %}{% set x = i %}{{ x }}{% endfor %}{{ x }}{% for i in xs %}{% if loop.first %}{% set y = 1 %}{% endif %}{{ y is defined }}{% endfor %}
for_recursive: {% for x in nested recursive %}{% if x is sequence and x is not mapping %}[{{ loop(x) }}]{% else %}{{ x }}@{{ loop.depth }}{% endif %}{% endfor %}
for_cycle: {% for x in [1, 1, 2, 2, 1] %}{{ loop.cycle('a', 'b') }}{{ loop.changed(x) }}{% endfor %}
for_nested: {% for x in xs %}{% set outer = loop %}{% for y in 'ab' %}{{ outer.index }}{{ loop.index }}{{ y }} {% endfor %}{% endfor %}
for_generator: {% set g = xs | map('string') %}{% for x in g %}{{ x }}{{ loop.last }}{% endfor %}{% for x in g %}again{% endfor %}
break_continue: {% for x in range(9) %}{% if x == 2 %}{% continue %}{% endif %}{% if x > 4 %}{% break %}{% endif %}{{ x }}{% else %}e{% endfor %}
for_tuple: {% for x in 1, 2, 3 %}{{ x }}{% endfor %}
set: {% set a = 1 %}{% set b, c = 2, [3] %}{% set (e, f) = 'xy' %}{{ a }}{{ b }}{{ c }}{{ e }}{{ f }}
set_block: {% set a %}x{{ one }}{% set inner = 5 %}{% endset %}[{{ a }}]{{ inner is defined }}{% set b | upper | trim %} up {% endset %}[{{ b }}]
set_over_context: {{ s }}{% set s = 'new' %}{{ s }}
set_in_if: {% if one %}{% set z = 1 %}{% endif %}{{ z }}
namespace: {% set ns = namespace(a=1, b='x') %}{% for x in xs %}{% set ns.a = ns.a + x %}{% endfor %}{{ ns.a }}{{ ns.b }}{{ ns.c is defined }}{{ ns['a'] }}{% set ns.c = [] %}{{ ns.c }}{{ ns }}
namespace_of_dict: {% set ns = namespace(d) %}{{ ns.b }}{{ ns.a }}
namespace_unknown: {% set x = 1 %}{% set x.y = 2 %}
with: {% with a = 1, b = one + 1 %}{{ a }}{{ b }}{% set a = 5 %}{{ a }}{% endwith %}{{ a is defined }}{% with %}{% endwith %}
macro: {% macro m(a, b=2, c='x' ~ a) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }}|{{ m(1, 3) }}|{{ m(b=5, a=4) }}|{{ m(1, c=9) }}|{{ m() }}|{{ m | string }}
macro_closure: {% macro m() %}{{ one }}{{ later }}{{ s }}{% endmacro %}{% set later = 'L' %}{{ m() }}{% for s in [1] %}{{ m() }}{% endfor %}
macro_recursive: {% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(3) }}
macro_varargs: {% macro m(a) %}{{ a }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, 3, k=4) }}{{ m() }}
macro_too_many: {% macro m(a) %}{% endmacro %}{{ m(1, 2) }}
macro_unknown_keyword: {% macro m(a) %}{% endmacro %}{{ m(b=2) }}
macro_attributes: {% macro m(a, b=1) %}{{ varargs }}{% endmacro %}{{ m.name }}{{ m.arguments }}{{ m.catch_varargs }}{{ m.catch_kwargs }}{{ m.caller }}
macro_scope: {% macro m() %}{% set inner = 1 %}{{ inner }}{% endmacro %}{{ m() }}{{ inner is defined }}
call: {% macro box(t) %}<{{ t }}:{{ caller() }}>{% endmacro %}{% call box('a') %}body {{ one }}{% endcall %}
call_arguments: {% macro each(l) %}{% for x in l %}{{ caller(x, loop.index) }}{% endfor %}{% endmacro %}{% call(x, i) each(xs) %}{{ i }}={{ x }};{% endcall %}
call_without_caller: {% macro m() %}x{% endmacro %}{% call m() %}y{% endcall %}
caller_missing: {% macro m() %}{{ caller is defined }}{% endmacro %}{{ m() }}
call_not_passed_on: {% macro a() %}{{ caller is defined }}{% endmacro %}{% macro b(x) %}{{ x }}{{ caller() }}{% endmacro %}{% call b(a()) %}c{% endcall %}
filter_block: {% filter upper | trim %} x {{ one }} {% endfilter %}
generation: a{% generation %}b{% set x = 1 %}{{ one }}{% endgeneration %}c{{ x is defined }}
print_statement: {% print one, 'x' %}
raw: {% raw %}{{ x }}{% endraw %}{%- raw -%}  {% if %}  {%- endraw -%}
comment: a{# {{ x }} #}b{#- c -#} d
star_arguments: {% macro m(a, b, c=0) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(*[1, 2]) }}{{ m(1, *[2], c=3) }}{{ m(**{'a': 1, 'b': 2}) }}{{ range(*[1, 4]) | list }}
str_case: {{ s.upper() }} {{ s.lower() }} {{ 'hELLO wORLD'.capitalize() }} {{ "it's they're o'neil 3d".title() }} {{ 'aBc'.swapcase() }} {{ 'straße ŉ ﬁ'.upper() }} {{ 'ÀÉ'.lower() }}
str_case_rare: {{ 'ΑΣ Σ ΑΣΑ ΑΣ.'.lower() }} {{ 'ǆ ǅ ǉx'.title() }} {{ 'ᾳ ΐ ﬃ ß'.upper() }} {{ 'ᾳ ﬃx ßx'.title() }} {{ 'İI'.lower() }} {{ 'Straße ΑΣ ﬁ'.casefold() }} {{ 'ÀéÎ'.swapcase() }} {{ 'ßA'.capitalize() }} {{ 'ĸ'.islower() }}{{ 'ª'.islower() }}{{ 'ǅ'.istitle() }}{{ 'ǅ'.isupper() }}
str_strip: [{{ sp.strip() }}][{{ sp.lstrip() }}][{{ sp.rstrip() }}][{{ 'xxaxx'.strip('x') }}][{{ 'abcba'.lstrip('ab') }}][{{ 'abcba'.rstrip('ab') }}][{{ '\u3000a\xa0'.strip() }}]
str_find: {{ s.find('o') }} {{ s.rfind('o') }} {{ s.find('zz') }} {{ s.find('o', 5) }} {{ s.index('W') }} {{ s.count('l') }} {{ s.count('') }} {{ wide.find('世') }} {{ s.find('l', -3) }} {{ s.rfind('l', 0, 4) }} {{ 'aaa'.count('aa') }}
str_index_missing: {{ s.index('zz') }}
str_affix: {{ s.startswith('Hell') }} {{ s.endswith(('x', 'ld')) }} {{ s.startswith('o', 4) }} {{ s.removeprefix('Hello') }} {{ s.removesuffix('ld') }} {{ s.startswith('') }} {{ s.endswith('o', 0, 5) }} {{ s.startswith('', 99) }}
str_split: {{ 'a,b,,c'.split(',') }} {{ 'a,b,c'.split(',', 1) }} {{ ' a  b '.split() }} {{ ' a  b c '.split(none, 1) }} {{ 'a,b,c'.rsplit(',', 1) }} {{ ' a b  c '.rsplit(none, 1) }} {{ ''.split() }} {{ ''.split(',') }} {{ 'aXXbXXc'.split('XX')[-1] }} {{ 'a b c'.rsplit() }}
str_split_empty: {{ 'a'.split('') }}
str_lines: {{ 'a\nb\r\nc\n'.splitlines() }} {{ 'a\nb'.splitlines(true) }} {{ ''.splitlines() }}
str_partition: {{ 'a=b=c'.partition('=') }} {{ 'a=b=c'.rpartition('=') }} {{ 'a'.partition('=') }} {{ 'a'.rpartition('=') }}
str_replace: {{ 'aaa'.replace('a', 'b') }} {{ 'aaa'.replace('a', 'b', 2) }} {{ 'ab'.replace('', '-') }} {{ 'ab'.replace('x', 'y') }} {{ 'aé'.replace('', '.', 2) }}
str_join: {{ ', '.join(['a', 'b']) }} {{ ''.join(words) }} {{ '-'.join('abc') }}
str_join_numbers: {{ ','.join([1]) }}
str_pad: [{{ 'ab'.center(7) }}][{{ 'ab'.center(6, '*') }}][{{ 'abc'.center(6) }}][{{ 'ab'.ljust(4, '.') }}][{{ 'ab'.rjust(4) }}][{{ '-5'.zfill(4) }}][{{ 'a\tb'.expandtabs(4) }}]
str_is: {{ 'abc'.isalpha() }}{{ 'é1'.isalnum() }}{{ '12'.isdigit() }}{{ ''.isdigit() }}{{ ' \n'.isspace() }}{{ 'aB'.islower() }}{{ 'AB1'.isupper() }}{{ 'Ab Cd'.istitle() }}{{ 'a'.isascii() }}{{ '½'.isnumeric() }}{{ '12'.isdecimal() }}
str_format: {{ '{} {1}'.format(1, 2) if no else '' }}{{ '{} {}'.format(1, 'x') }} {{ '{1}{0}'.format(1, 2) }} {{ '{a.b} {c[0]} {d[k]}'.format(a={'b': 1}, c=[2], d={'k': 3}) }} {{ '{:>5}|{:<5}|{:^5}|{:05d}|{:.2f}|{:,}|{:x}|{:e}|{!r}'.format('a', 'b', 'c', 42, 3.14159, 1234567, 255, 12345.678, 'q') }} {{ '{{}}'.format() }} {{ '{:*^9}'.format('é') }} {{ '{:{}}'.format('x', 3) }}| {{ '{:+d} {: d} {:.3} {:g} {:%}'.format(5, 5, 'abcdef', 0.00001, 0.25) }}
str_format_missing: {{ '{}'.format() }}
percent: {{ '%s %d %5.2f|%-5s|%05d|%x|%%|%r' % ('a', 3, 3.14159, 'b', 42, 255, 'q') }} {{ '%s' % 1 }} {{ '%(a)s-%(b)d' % {'a': 1, 'b': 2} }} {{ '%s' % xs }} {{ '%i %+d % d %o %e %g %c' % (1, 2, 3, 8, 1234.5, 0.0001, 'z') }} {{ '%.2s|%5s|%*d' % ('abc', 'é', 4, 7) }}
percent_too_few: {{ '%s %s' % 'a' }}
percent_too_many: {{ '%s' % ('a', 'b') }}
dict_methods: {{ d.get('b') }} {{ d.get('z') }} {{ d.get('z', 0) }} {{ d.keys() }} {{ d.values() | list }} {{ d.items() }} {{ d.keys() | length }} {{ d.copy() == d }}
dict_order: {{ {'z': 1, 'a': 2, 'z': 3} }} {{ dict(b=1, a=2) }} {{ dict([('x', 1)], y=2) }} {{ dict({'p': 1}) }}
dict_keys_of_kinds: {{ {1: 'a', 1.0: 'b', true: 'c', none: 'd', (1, 2): 'e'} }}
dict_unhashable: {{ {[1]: 2} }}
list_methods: {{ xs.index(2) }} {{ xs.count(1) }} {{ (1, 1).count(1) }} {{ xs.copy() }}
list_append: {{ xs.append(1) }}
dict_pop: {{ d.pop('a') }}
dict_update: {% set _ = d.update({'q': 1}) %}
list_index_missing: {{ xs.index(9) }}
dunder: {{ s.__class__ }}
range: {{ range(3) }} {{ range(3) | list }} {{ range(1, 4) | list }} {{ range(5, 0, -2) | list }} {{ range(0) | list }} {{ range(2)[1] }} {{ range(1, 9, 3) }} {{ range(4) | length }}
range_slices: {{ range(10)[2:8:3] }} {{ range(10)[0:5:2] }} {{ range(10)[::-2] }} {{ range(10)[::-2] | list }} {{ range(3)[5:] | list }} {{ range(0, 10, 3)[1:] | list }} {{ range(5)[-2:][0] }}
percent_undefined: [{{ 'x' % missing }}][{{ missing | truncate(5) }}][{{ 'x' % xs }}]
range_too_big: {{ range(1000000) }}
range_no_argument: {{ range() }}
filter_text: {{ s | upper }} {{ s | lower }} {{ 'aB' | capitalize }} {{ 'foo bar-baz (qux) o\'neil' | title }} [{{ sp | trim }}] [{{ 'xax' | trim('x') }}] {{ s | replace('l', 'L') }} {{ s | replace('l', 'L', 1) }} {{ s | center(20) }}| {{ 5 | string }} {{ s | wordcount }} {{ xs | string }}
filter_indent: {{ 'a\nb\n\nc' | indent }}|{{ 'a\nb' | indent(2, true) }}|{{ 'a\n\nb' | indent(2, blank=true) }}|{{ 'a\nb' | indent('> ') }}|{{ 'a\n' | indent }}|
filter_truncate: {{ 'foo bar baz qux' | truncate(9) }} {{ 'foo bar baz qux' | truncate(9, true) }} {{ 'foo bar baz qux' | truncate(11) }} {{ 'foo bar baz qux' | truncate(11, false, '...', 0) }}
filter_numbers: {{ '42' | int }} {{ 'x' | int }} {{ 'x' | int(7) }} {{ 3.9 | int }} {{ '3.9' | int }} {{ 'ff' | int(0, 16) }} {{ '1.5' | float }} {{ 'x' | float }} {{ 2 | float }} {{ -3 | abs }} {{ 2.567 | round(2) }} {{ 2.5 | round }} {{ 3.5 | round }} {{ 2.1 | round(0, 'ceil') }} {{ 2.19 | round(1, 'floor') }} {{ 7 | round }} {{ true | int }} {{ none | int }} {{ ' 12 ' | int }} {{ '1_0' | int }} {{ '0x1f' | int(0, 16) }}
filter_default: {{ missing | default('x') }} {{ null | default('x') }} {{ null | default('x', true) }} {{ '' | d('y', boolean=true) }} {{ missing | d }}
filter_sequences: {{ xs | first }} {{ xs | last }} {{ xs | length }} {{ xs | count }} {{ xs | sum }} {{ xs | min }} {{ xs | max }} {{ xs | reverse | list }} {{ s | reverse }} {{ 'abc' | list }} {{ d | list }} {{ [] | first is defined }} {{ xs | join }} {{ xs | join('-') }} {{ 'abc' | first }}{{ 'abc' | last }}
filter_sort: {{ xs | sort }} {{ words | sort }} {{ words | sort(case_sensitive=true) }} {{ words | sort(reverse=true) }} {{ users | sort(attribute='age') | map(attribute='name') | join(',') }} {{ users | sort(attribute='age,name') | map(attribute='name') | join(',') }} {{ d | dictsort }} {{ {'x': 2, 'y': 1} | dictsort(false, 'value') }} {{ d | dictsort(true) | map('first') | list }}
filter_sort_mixed: {{ [1, 'a'] | sort }}
filter_map: {{ users | map(attribute='name') | list }} {{ users | map(attribute='tags', default='none') | list }} {{ words | map('upper') | join }} {{ xs | map('string') | list }} {{ words | map('replace', 'b', 'X') | list }} {{ users | map(attribute='name.0') | list }} {{ [d] | map(attribute='a.1') | list }}
filter_map_undefined: {{ users | map(attribute='tags.0') | list }}
filter_select: {{ xs | select('odd') | list }} {{ xs | reject('gt', 1) | list }} {{ users | selectattr('age', 'equalto', 30) | map(attribute='name') | list }} {{ users | rejectattr('tags') | list | length }} {{ users | selectattr('tags', 'defined') | list | length }} {{ [0, 1, ''] | select | list }} {{ null | select | list }}
filter_unique: {{ ['a', 'A', 'b', 'a'] | unique | list }} {{ ['a', 'A'] | unique(true) | list }} {{ users | unique(attribute='age') | map(attribute='name') | list }}
filter_groupby: {% for age, group in users | groupby('age') %}{{ age }}:{{ group | map(attribute='name') | join('+') }};{% endfor %}{% for g in words | groupby('0') %}{{ g[0] }}{{ g[1] | length }}{% endfor %}
filter_batch: {{ range(5) | batch(2) | list }} {{ range(5) | batch(2, 'x') | list }} {{ range(5) | slice(2) | list }} {{ range(5) | slice(3, 0) | list }}
filter_items: {{ d | items | list }} {{ missing | items | list }}
filter_items_of_list: {{ xs | items | list }}
filter_unknown: {{ s | nosuchfilter }}
filter_unknown_not_used: {% if no %}{{ s | nosuchfilter }}{% endif %}ok
filter_length_of_number: {{ 5 | length }}
filter_length_of_generator: {{ xs | map('string') | length }}
filter_html: {{ '<a & "b">' | e }} {{ '<' | safe }} {{ '<b>' | safe + '<i>' }} {{ ('<' | e) ~ '<' }} {{ '<' | e | e }}
filter_format: {{ '%s-%s' | format(1, 'b') }} {{ '%(a)s' | format(a=1) }}
filter_attr: {{ users[0] | attr('name') is defined }}
filter_filesizeformat: {{ 1 | filesizeformat }} {{ 100 | filesizeformat }} {{ 12345 | filesizeformat }} {{ 1048576 | filesizeformat(true) }}
tojson: {{ d | tojson }} {{ messages[2] | tojson }} {{ wide | tojson }} {{ quotes | tojson }} {{ (1, 2) | tojson }} {{ 1.0 | tojson }} {{ {} | tojson }} {{ [] | tojson(indent=2) }} {{ {1: 2, none: 3, true: 4, 1.5: 5} | tojson }}
tojson_options: {{ d | tojson(indent=2) }} {{ wide | tojson(ensure_ascii=true) }} {{ d | tojson(separators=(',', ':')) }} {{ {'b': 1, 'a': 2} | tojson(sort_keys=true) }} {{ [1, [2]] | tojson(indent='--') }} {{ [1] | tojson(indent=0) }} {{ nested | tojson(true, 1) }}
tojson_undefined: {{ missing | tojson }}
tojson_generator: {{ (xs | map('string')) | tojson }}
tests: {{ one is number }}{{ one is integer }}{{ half is float }}{{ true is integer }}{{ true is number }}{{ s is string }}{{ xs is sequence }}{{ s is sequence }}{{ d is mapping }}{{ d is sequence }}{{ xs is iterable }}{{ 5 is iterable }}{{ null is none }}{{ no is false }}{{ no is boolean }}{{ 0 is false }}{{ 3 is odd }}{{ 4 is even }}{{ 9 is divisibleby 3 }}{{ 'a' is lower }}{{ 'A' is upper }}{{ range is callable }}{{ xs is sameas xs }}{{ 1 is in xs }}{{ 2 is eq 2 }}{{ 2 is gt(1) }}{{ 'upper' is filter }}{{ 'odd' is test }}{{ missing is undefined }}{{ range(2) is sequence }}{{ d.items() is sequence }}{{ s is escaped }}
tests_negated: {{ one is not string }} {{ not one is string }} {{ missing is not defined }} {{ 3 is not divisibleby(2) }} {{ xs is not none and one is defined }}
test_unknown: {{ one is nosuchtest }}
raise: {{ raise_exception('no: ' ~ one) }}
strftime: {{ strftime_now('%Y-%m-%d') }} {{ strftime_now('%d %b %Y') }} {{ strftime_now('%A %%') }}[{{ strftime_now('') }}]
escapes: {{ 'a\nb\tc\\d\'e\"f\x41\u00e9\U0001F917\101\q' }}{{ "line\
on" }}
keywords: {% set if = 1 %}{{ if }}{% set for = 2 %}{{ for }}
trailing_commas: {{ [1, 2,] }} {{ {'a': 1,} }} {{ (1, 2,) }} {{ range(3,) | list }}
call_twice: {{ s.upper().lower().title() }} {{ {'f': range}.f(2) | list }}
colon_blocks: {% if one: %}a{% endif %}
chat: {% for m in messages %}{{ '<|' + m.role + '|>\n' + m['content'] | trim + '<|end|>\n' }}{% if m.tool_calls %}{% for c in m.tool_calls %}{{ c.function.name }}({{ c.function.arguments | tojson }}){% endfor %}{% endif %}{% endfor %}{% if add_generation_prompt %}x{% endif %}
sign_of_variable: {{-5}}{{- one -}} {{+5}}
include: {% include 'x' %}
unclosed_if: {% if one %}
unclosed_tag: {{ one
unclosed_string: {{ 'a }}
unclosed_comment: {# a
unknown_tag: {% nosuchtag %}
empty_expression: {{ }}
wrong_bracket: {{ (1] }}
assign_to_constant: {% set 1 = 2 %}
break_outside: {% break %}
default_before_required: {% macro m(a=1, b) %}{% endmacro %}
"""

# Templates of several lines, for white space.
BLOCKS = {
    "trim_blocks": "a\n{% if one %}\nb\n{% endif %}\nc\n",
    "lstrip_blocks": "a\n    {% if one %}\n  b\n    {% endif %}\n  {{ one }}\n\t{# c #}\nd",
    "minus": "a  \n  {%- if one -%}  \n b \n {%- endif -%} \n c {{- one -}} \n d",
    "plus": "a\n    {%+ if one +%}\n  b\n    {% endif +%}\n\n  {%+ if no %}{% endif %}x",
    "trailing_newlines": "a\n\n",
    "crlf": "a\r\n{% if one %}\r\nb\r{% endif %}\n",
    "text_before_tag": "x {% if one %} y {% endif %} z\n  {% if one %}w{% endif %}\n",
    "two_tags_on_a_line": "  {% if one %}  {% if one %}\n  a\n  {% endif %}  {% endif %}\n",
    "comment_lines": "a\n  {# one #}\n  {#- two -#}\n b {# three #}\nc",
    "raw_lines": "a\n  {% raw %}\n  {{ b }}\n  {% endraw %}\nc",
    "set_block_lines": "{% set a %}\n  x\n{% endset %}\n[{{ a }}]",
    "macro_lines": "{% macro m(x) %}\n  <{{ x }}>\n{% endmacro %}\n{{ m(1) }}\n{{- m(2) }}",
    "for_lines": "{% for x in xs %}\n  {{ x }}\n  {%- if not loop.last %},{% endif %}\n{% endfor %}\n.",
    "error_line": "a\n{% set x = 1 %}\n\n{{ x.y.z }}\n",
}


def main():
    cases = []
    for line in LINES.strip().replace("\\\non\"", "\\\\\non\"").split("\n"):
        if ": " not in line:  # the second line of a template
            cases[-1]["template"] += "\n" + line
            continue
        name, template = line.split(": ", 1)
        cases.append({"name": name, "template": template.replace("line\\\\", "line\\")})
    cases += [{"name": name, "template": template} for name, template in BLOCKS.items()]
    for case in cases:
        case["text"], case["why"] = render(case["template"], CONTEXT)
    python = {}
    if len(sys.argv) > 1:
        syntax = json.loads((Path(sys.argv[1]) / "chat/hfjs-jinja-syntax.json").read_text(encoding="utf-8"))["syntax"]
        for name, case in syntax.items():
            if "__function__" in json.dumps(case):
                continue
            text, _ = render(case["template"], case["context"], False, False)
            if text != case["expected"]:
                python[name] = text
    else:
        python = json.loads((HERE / "jinja.json").read_text(encoding="utf-8"))["python"]
    json.dump({"now": NOW, "context": CONTEXT, "cases": cases, "python": python}, sys.stdout, ensure_ascii=False,
              indent=1)
    print()


if __name__ == "__main__":
    main()
