#!/usr/bin/env python3
"""Writes tests/chat/templates.jsonl: small templates in Jinja, and what `transformers` renders with them.

Each line is {"template", "variables", "text", "generation": [begin, end, ... in bytes]}, or has "refused": true where
it refuses to render. Needs the Python package `transformers` (5.24), which brings jinja2 (3.1.6).
"""
import json
import os

from transformers.utils import chat_template_utils

HERE = os.path.dirname(os.path.abspath(__file__))
CHAT = [{"role": "system", "content": " be  kind\n"}, {"role": "user", "content": "né 日本 🙂"},
        {"role": "assistant", "content": "\n\tyes 'it' \"is\"", "tool_calls": [
            {"function": {"name": "f", "arguments": {"b": 1, "A": [1.5, True, None, "é\n"], "items": {}}}}]},
        {"role": "tool", "content": ""}]
VALUES = {"n": 7, "x": -2.5, "big": 1e16, "small": 1e-5, "half": 0.1, "yes": True, "no": False, "nothing": None,
          "word": "aXb aXb", "wide": "日本é", "list": [3, 1, 2], "dict": {"b": 1, "a": {"c": [1]}}, "empty": []}

CHATS = [  # rendered with CHAT
    "{% for m in messages %}{{ loop.index }}{{ m.role }}: {{ m['content'] | trim }}\n{% endfor %}done\n\n",
    "  {%- for m in messages -%}\n  {{ m.content }}\n  {%- endfor %}\n  {% if true %}\n    kept\n  {% endif %}\n",
    "a\n   {# a comment #}\n  b {#- another -#}   c\n {%+ if true %}x{% endif +%}\n y",
    "{% for m in messages if m.role != 'tool' %}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.revindex0 }}"
    "{{ loop.previtem.role if loop.previtem is defined }}|{{ loop.nextitem.role if loop.nextitem }}\n{% endfor %}",
    "{% for m in messages[::-1] %}{% if m.role == 'tool' %}{% continue %}{% endif %}{{ m.role }}"
    "{% if m.role == 'user' %}{% break %}{% endif %}{% else %}none{% endfor %}",
    "{% for m in messages %}{{ m.role }}:\n{% if m.role == 'assistant' %}{% generation %}{{ m.content }}<end>"
    "{% endgeneration %}{% else %}{{ m.content }}{% endif %}{% endfor %}",
    "{% set ns = namespace(last='none', n=0) %}{% set shadow = 1 %}{% for m in messages %}{% set shadow = loop.index %}"
    "{% set ns.n = ns.n + 1 %}{% if m.role == 'user' %}{% set ns.last = m.content %}{% endif %}{% endfor %}"
    "{{ ns.last }} {{ ns.n }} {{ shadow }}",
    "{% macro show(value, indent=2) %}{% if value is mapping %}{% for k, v in value | dictsort %}{{ ' ' * 0 }}{{ k }}="
    "{{ show(v, indent + 1) }};{% endfor %}{% else %}{{ value }}/{{ indent }}{% endif %}{% endmacro %}"
    "{% for c in messages[2].tool_calls %}{{ show(c.function) }}{{ show(value=1) }}{% endfor %}",
    "{% for c in messages[2].tool_calls %}{{ c.function.arguments | tojson }}|{{ c | tojson(indent=2) }}|"
    "{{ c.function.arguments.items() | list }}|{{ c.function.arguments['items'] }}|{{ c.function | tojson(ensure_ascii"
    "=true, sort_keys=true, separators=(',', ':')) }}{% endfor %}",
    "{{ messages[0].content.split() }}{{ messages[2].content.lstrip('\\n\\t') }}{{ messages[1].content[3:5] }}"
    "{{ messages[1].content | length }}{{ messages[-1].missing }}{{ messages[9] is defined }}",
    "{{ messages[0].missing.deeper }}",
    "{{ raise_exception('no ' ~ messages[0].role) }}",
    "{{ messages[0].role + 1 }}",
    "{% set block %}[{{ messages[0].role }}]{% endset %}{{ block * 1 }}",
    "{% set block %}[{{ messages[0].role }}]{% endset %}{{ block ~ block | upper }}",
    "{{ bos_token }}{% if not tools %}no tools{% endif %}{{ documents }}{{ unknown }}{{ unknown is undefined }}",
]
EXPRESSIONS = [  # rendered with VALUES
    "n // 2, n % 4, -n // 2, -n % 4, n / 2, n * x, n - 1 + 2, 2 * 3 ~ 4, -n | abs",
    "x, big, small, half, 3.0, 123456789.125, 1e3 if false else 100000.0, [yes, nothing, x]",
    "yes and n, no or word, not n, nothing or 'z', yes and not no, n in list, 'X' in word, 'q' not in dict",
    "1 < n <= 7, n == 7.0, 'a' < 'b', list == [3, 1, 2], dict == {'a': {'c': [1]}, 'b': 1}, (1, 2) == [1, 2]",
    "word | replace('X', '-'), word.replace('a', '', 1), word.split('X'), word.split('X', 1), word.find('X'),"
    " wide.find('é')",
    "word | upper, word | lower, word | capitalize, 'ÀÉ' | lower, word.startswith('aX'), word.endswith(('z', 'b'))",
    "list | length, list | first, list | last, list | join('-'), list | join, list[1:], list[::-1], list[-1],"
    " list + [4], list | reverse | list",
    "dict.keys() | list, dict.values() | list, dict.get('a'), dict.get('z'), dict.get('z', 5), dict | items | list,"
    " dict | dictsort",
    "[{'k': 1}, {'k': 2}] | selectattr('k', 'equalto', 2) | list, [{'k': 1}, {}] | map(attribute='k') | list,"
    " ['a', 'b'] | map('upper') | list, [0, 1, 2] | select | list, [1, 2] | reject('in', [2]) | list",
    "nothing is none, n is number, x is float, yes is boolean, yes is integer, word is string, dict is mapping,"
    " list is iterable, word is sequence, n is odd, n is even, yes is true, no is false",
    "missing | default('d'), '' | default('d'), '' | default('d', true), missing | default, nothing | default(1, true)",
    "wide[0], wide[-1:], wide | length, wide[::-1], word[2:0], word[5:], word[:-1], word[-3::2]",
    "'a' 'b', \"it's\", 'tab\\t\\x41\\u00e9\\\\', 1_000, {'a': 1}['a'], (1,), (), {}, [[]]",
    "range(3) | list, range(5, 1, -2) | list, 'x' if n > 9, 'y' if n > 9 else 'z' if n > 8 else 'w'",
    "\"'\" | string | tojson, '<&>' | tojson, [1.0, 1e300, -0.5] | tojson, 'a\\x01\\x7f' | tojson,"
    " empty | tojson(indent=4)",
    "'a\\nb\\n\\nc' | indent, 'a\\nb' | indent(2, true), '3' | int, 2.9 | int, yes | int,"
    " '\\u00a0x\\u2003' | trim | length",
    "['q', \"it's\", '\"', '\\n\\x02\\\\']",
    "n.missing is defined, word.missing is defined, list.missing is defined, empty is defined and not empty",
    "1 // 0", "n + word", "missing + 1", "list.missing.more", "word * 1 if no else missing.x", "nothing | length",
]


def one(template, variables):
    line = {"template": template, "variables": variables}
    try:
        text, spans = chat_template_utils._render_with_assistant_indices(
            chat_template_utils._compile_jinja_template(template), **variables)
    except Exception:
        return {**line, "refused": True}
    places = [len(text[:place].encode()) for span in spans for place in span]
    return {**line, "text": text, "generation": places}


def main():
    chat = {"messages": CHAT, "tools": None, "documents": None, "add_generation_prompt": False, "bos_token": "<s>"}
    values = {"messages": None, "tools": None, "documents": None, "add_generation_prompt": False, **VALUES}
    lines = [one(template, chat) for template in CHATS]
    for expressions in EXPRESSIONS:
        lines.append(one("{{ [" + expressions + "] }}", values))
    with open(os.path.join(HERE, "../../tests/chat/templates.jsonl"), "w", encoding="ascii") as file:
        for line in lines:
            file.write(json.dumps(line) + "\n")
    print(len(lines), "templates,", sum("refused" in line for line in lines), "refused")


if __name__ == "__main__":
    main()
