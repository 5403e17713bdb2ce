#!/usr/bin/env python3
"""Tests check_layers.py on small trees of files, with and without types of one name."""
import pathlib
import tempfile
import unittest
from unittest import mock

from check_layers import FOLDERS, check, order_errors


def errors_of(**files: str) -> list[str]:
    """What is said about files of these contents; `src__core__a_h` is src/core/a.h."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            path, suffix = name.replace("__", "/").rsplit("_", 1)
            file = pathlib.Path(folder, f"{path}.{suffix}")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        return check(pathlib.Path(folder))


FIRST = "namespace thinwire {\n\nstruct Slice {\n  int begin;\n};\n}  // namespace thinwire\n"


class TypesOfOneName(unittest.TestCase):
    def test_are_refused_in_every_form(self):
        for second in (
            "struct Slice {};",
            "class Slice final : public Base<decltype(x)> {};",
            "union Slice { int a; };",
            "enum class Slice : uint8_t { kNone };",
            "template <typename T, size_t N = 3>\nclass Slice {\n};",
            "class [[nodiscard]] Slice {};",
            'const char* brace = "{"; const char quote = \'{\'; struct Slice {};',
            "const char* raw = R\"(a \" { )\"; const int n = 1'000; struct Slice {};",
            "// a brace {\n/* { */\n#define OPEN {\nstruct Slice {};",
            "void f() { if (true) { return; } }\nstruct Slice {};",
            "namespace { struct Own {}; }\nstruct Slice {};",
            "}  namespace thinwire { struct Slice {};",
        ):
            for place in ("src__train__b_h", "cli__b_cc", "python__src__b_cc", "include__thinwire__b_h"):
                errors = errors_of(src__sync__a_h=FIRST,
                                   **{place: f"namespace thinwire {{\n{second}\n}}\n"})
                with self.subTest(second=second, place=place):
                    self.assertEqual(len(errors), 1)
                    self.assertIn("thinwire::Slice is defined in ", errors[0])

    def test_are_told_with_both_places(self):
        self.assertEqual(
            errors_of(src__sync__a_h=FIRST, src__train__b_h="\n" + FIRST),
            ["src/train/b.h:4: thinwire::Slice is defined in src/sync/a.h:3 too"])

    def test_may_lie_in_other_scopes(self):
        for second in (
            "namespace { struct Slice {}; }",
            "namespace {\nnamespace deeper { struct Slice {}; }\n}",
            "namespace kernel { struct Slice {}; }",
            "class Owner { struct Slice {}; };",
            "struct Owner::Slice {};",
            "void f() { struct Slice {}; }",
            "struct Slice; class User { Slice* slice; };",
            "struct Slice make() { return {}; }",
            "// struct Slice {};\n/* struct Slice {}; */",
            'const char* text = "struct Slice {};";',
        ):
            with self.subTest(second=second):
                self.assertEqual(errors_of(src__sync__a_h=FIRST,
                                           src__train__b_h=f"namespace thinwire {{\n{second}\n}}\n"), [])

    def test_may_be_each_files_own(self):
        for scope in "namespace {", "namespace {\nnamespace deeper {", "void f() {":
            text = f"namespace thinwire {{\n{scope}\nstruct Slice {{}};\n"
            with self.subTest(scope=scope):
                self.assertEqual(errors_of(src__sync__a_h=text, src__train__b_h=text), [])

    def test_may_lie_in_examples_as_each_is_a_program(self):
        self.assertEqual(errors_of(examples__a_cc=FIRST, examples__b_cc=FIRST), [])


class Includes(unittest.TestCase):
    def test_upwards_sideways_and_of_confined_libraries_are_refused(self):
        for text in ('#include "exchange/b.h"', '#include "feedback/b.h"', "#include <torch/torch.h>"):
            with self.subTest(text=text):
                self.assertEqual(len(errors_of(src__codec__a_h=text)), 1)
        self.assertEqual(errors_of(src__codec__a_h='#include "core/b.h"\n#include <memory>'), [])

class FoldersOfALayer(unittest.TestCase):
    def test_may_include_what_their_row_says(self):
        self.assertEqual(errors_of(src__exchange__wire__a_h='#include "exchange/step/b.h"\n#include "exchange/wire/c.h"',
                                   src__exchange__engine__d_cc='#include "exchange/levels/e.h"'), [])

    def test_may_not_include_what_is_built_on_them_or_beside_them(self):
        for folder, other in (("step", "wire"), ("wire", "engine"), ("rules", "layout"), ("runner", "members"),
                              ("engine", "testing"), ("step", "elsewhere")):
            with self.subTest(folder=folder, other=other):
                self.assertEqual(errors_of(**{f"src__exchange__{folder}__a_h": f'#include "exchange/{other}/b.h"'}),
                                 [f"src/exchange/{folder}/a.h: exchange/{folder} may not include exchange/{other}/b.h"])

    def test_may_be_included_by_tests_of_later_folders(self):
        for name in "a_test_cc", "a_bench_cc":
            for other, count in (("layout", 0), ("rules", 0), ("testing", 0), ("wire", 1), ("engine", 1)):
                with self.subTest(name=name, other=other):
                    errors = errors_of(**{f"src__exchange__step__{name}": f'#include "exchange/{other}/b.h"'})
                    self.assertEqual(len(errors), count)
        self.assertEqual(errors_of(src__exchange__testing__a_h='#include "exchange/engine/b.h"'), [])

    def test_are_all_in_the_table(self):
        for name in "src__exchange__a_h", "src__exchange__new__a_h":
            with self.subTest(name=name):
                self.assertEqual(len(errors_of(**{name: ""})), 1)


class Tables(unittest.TestCase):
    def test_have_no_circle(self):
        self.assertEqual(order_errors({"low": set(), "high": {"low"}}), [])
        self.assertEqual(order_errors({"low": {"high"}, "high": {"low"}}),
                         ["check_layers.py: low may include high, which does not stand before it"])
        self.assertEqual(len(order_errors({"low": {"low"}, "high": {"lower"}})), 2)

    def test_that_have_one_are_refused(self):
        with mock.patch.dict(FOLDERS["exchange"], layout={"engine"}):
            self.assertEqual(len(errors_of(src__core__a_h="")), 1)


if __name__ == "__main__":
    unittest.main()
