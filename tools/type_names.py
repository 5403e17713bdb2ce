"""Finds the classes, structs, unions and enumerations that C++ text defines in its namespaces."""
import re

# What brackets and keywords must not be looked for in. A raw string comes before a plain one.
HIDDEN = re.compile(
    r'//[^\n]*|/\*.*?\*/'
    r'|R"([^()\\\s]*)\(.*?\)\1"'
    r'|"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9A-Fa-f])'(?:\\.|[^'\\\n])*'"
    r'|^[ \t]*#(?:\\\n|[^\n])*', re.S | re.M)
NAMESPACE = re.compile(r'(?:^|\s)(?:inline\s+)?namespace\b\s*([\w:]*)\s*$')
# `enum class [[nodiscard]] Name final : bases`; no `(` and no `=`, which functions and variables have.
TYPE = re.compile(
    r'^(?:template\s*<.*>\s*)?(?:requires\b.*\s)?(?:typedef\s+)?(?:enum\s+)?(?:class|struct|union|enum)\s+'
    r'(?:(?:\[\[.*?\]\]|alignas\s*\([^)]*\)|[A-Z][A-Z0-9_]*)\s+)*'
    r'(\w+)\s*(?:final\s*)?(?::(?!:).*)?$', re.S)


def defined_types(text: str):
    """Yields (namespace, name, line) of every type that is defined at namespace scope. Types of unnamed
    namespaces are not listed, as they belong to one file, nor are types within types and functions."""
    text = HIDDEN.sub(lambda hidden: re.sub(r"[^\n]", " ", hidden.group()), text)
    scopes = []  # per open brace: the name of a namespace, or None for anything else
    start = 0  # of the declaration under way
    for mark in re.finditer(r"[{};]", text):
        head = text[start:mark.start()]
        start = mark.end()
        if mark.group() == "}" and scopes:
            scopes.pop()
        if mark.group() != "{":
            continue
        namespace = NAMESPACE.search(head)
        found = TYPE.match(head.strip())
        if found and None not in scopes:
            begin = mark.start() - len(head.lstrip())
            yield "::".join(scopes), found.group(1), text.count("\n", 0, begin) + 1
        scopes.append((namespace and namespace.group(1)) or None)
