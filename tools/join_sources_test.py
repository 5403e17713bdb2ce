#!/usr/bin/env python3
"""Tests join_sources.py on small sources. SPDX-License-Identifier: Apache-2.0"""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from join_sources import Source, clash, private_names


class Names(unittest.TestCase):
    def test_of_the_files_own_are_found_in_every_form(self):
        for text, names in (
            ("int f(int a, B b = {}) { int inner = 3; return g(inner); }", {"f"}),
            ("template <typename T, size_t N = 3>\nstd::array<T, N> f(T (&x)[N]) {\n}", {"f"}),
            ("constexpr std::array<float, size_t(3)> kThree = {1, 2, 3};", {"kThree"}),
            ("const std::function<void(int)> run = [](int n) { use(n); };", {"run"}),
            ("int table[3];", {"table"}),
            ("int counter;", {"counter"}),
            ("class Encoder final : public Base<int> {\n  void m();\n};\nint after;", {"Encoder", "after"}),
            ("enum class Kind : uint8_t { kOne };", {"Kind"}),
            ("struct Later;", {"Later"}),
            ("namespace deeper { int f() { return 1; } }", {"f"}),
            ('const char* text = "int hidden; {"; // int gone;', {"text"}),
            ("static_assert(sizeof(int) == 4);", set()),
            ("using testing::ElementsAre;", set()),
            ("TEST_F(Suite, Case) { int inner; }", {"Suite_Case_Test"}),
            ("INSTANTIATE_TEST_SUITE_P(Ranks, Suite, Values(1, 2));", {"RanksSuite"}),
        ):
            with self.subTest(text=text):
                self.assertEqual(set(private_names(f"namespace n {{\nnamespace {{\n{text}\n}}\n}}\n")), names)

    def test_of_everybody_are_not_the_files_own(self):
        text = "namespace n {\nint f() { static int inner; return 0; }\nint g;\nclass C {};\nvoid C::m() {}\n}\n"
        self.assertEqual(private_names(text), {})
        self.assertEqual(set(private_names("#define ROOM {\nstatic int f() { return 1; }\n")), {"ROOM", "f"})

    def test_of_types_mean_something(self):
        self.assertEqual(private_names("namespace fs = std::filesystem;\nnamespace { using J = a::b; }"),
                         {"fs": "namespace std::filesystem", "J": "using a::b"})


class Joined(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)

    def file(self, name, text):
        file = self.root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return str(file)

    def source(self, name, text):
        return Source(pathlib.Path(self.file(name, text)), self.root)

    def write(self, sources, *counts, lines="100"):
        tool = pathlib.Path(__file__).with_name("join_sources.py")
        return subprocess.run([sys.executable, "-B", tool, "write", self.root / "joined", self.root, lines, *counts, "--",
                               *sources], capture_output=True, text=True)

    def test_only_where_nobody_could_mean_the_others_name(self):
        mine = self.source("a.cc", "namespace { int mine() { return 1; } using J = x::y; }\nnamespace n = m;\n")
        for text, apart in (("namespace { int mine() { return 2; } }", True),
                            ("int f() { return mine(); }", True),
                            ("int f(int mine) { return 0; }", True),
                            ("#define mine 3", True),
                            ("namespace { using J = x::z; }", True),
                            ("J f();", True),
                            ("int f(A& a, A* b) { return a.mine() + b->mine() + A::mine(); }", False),
                            ("int f(n::T t);", False),
                            ("namespace n = m;\nint f(n::T t);", False),
                            ("namespace n = l;\nint f(n::T t);", True),
                            ("// mine\nint f() { return g(\"mine\"); }", False),
                            ("namespace { using J = x::y; }\nJ f();", False),
                            ("int f() { return a > mine; }", True),
                            ("int f() { return a ? b : mine; }", True)):
            with self.subTest(text=text):
                other = self.source("b.cc", text + "\n")
                self.assertEqual((clash(mine, other), clash(other, mine)), (apart, apart))

    def test_not_where_a_namespace_of_one_hides_that_of_the_other(self):
        self.file("src/t.h", "namespace n::testing {\n}\n")
        inner = self.source("a.cc", '#include "t.h"\nnamespace n { int a = testing::b; }\n')
        outer = self.source("b.cc", "namespace n { int c = testing::d; }\n")
        plain = self.source("c.cc", "namespace n { int c = ::testing::d + x::testing::e; }\n")
        self.assertTrue(clash(inner, outer) and clash(outer, inner))
        self.assertFalse(clash(inner, plain) or clash(plain, inner))

    def test_files_include_headers_first_and_every_source_once(self):
        self.file("src/beside.h", "")
        a = self.file("src/a.cc", '#include "a.h"\n#include "beside.h"\n#include <vector>\nnamespace { int one; }\n')
        b = self.file("src/b.cc", "#include <vector>\nnamespace { int two; }\n")
        c = self.file("src/c.cc", "namespace { int one; }\n")
        self.assertEqual(self.write([a, b, c]).stdout, "0;2")
        self.assertEqual((self.root / "joined/plain_0.cc").read_text().splitlines()[1:],
                         ['#include "a.h"', '#include "src/beside.h"', "#include <vector>", '#include "src/a.cc"', '#include "src/b.cc"'])
        self.assertEqual((self.root / "joined/plain_1.cc").read_text().splitlines()[1:], ['#include "src/c.cc"'])

    def test_sources_that_include_libtorch_by_a_header_are_joined_with_their_like(self):
        self.file("include/pub/t.h", "#include <torch/torch.h>\n")
        self.file("src/l/t.h", '#include "pub/t.h"\n')
        a = self.file("src/l/a.cc", '#include "l/t.h"\n')
        b = self.file("src/l/b.cc", "#include <torchless.h>\n")
        c = self.file("src/l/c.cc", "#include <torch/types.h>\n")
        self.assertEqual(self.write([a, b, c]).stdout, "1;1")
        self.assertIn("src/l/a.cc", (self.root / "joined/torch_0.cc").read_text())
        self.assertIn("src/l/c.cc", (self.root / "joined/torch_0.cc").read_text())

    def test_files_stay_as_they_are_where_nothing_is_new(self):
        a, b = self.file("a.cc", "int a;\n"), self.file("b.cc", "namespace { int b; }\n")
        self.assertEqual(self.write([a, b]).stdout, "0;1")
        joined = self.root / "joined/plain_0.cc"
        os.utime(joined, (1, 1))
        self.file("a.cc", "int a = 3;\n")
        self.assertEqual(self.write([a, b], "0", "1").returncode, 0)
        self.assertEqual(joined.stat().st_mtime, 1)

    def test_files_are_the_same_when_made_again_and_as_many(self):
        sources = [self.file(f"s{i}.cc", f"namespace {{ int n{i % 3}; }}\n" * (1 + i % 4)) for i in range(12)]
        for lines in ("1", "3", "10", "100"):
            made = self.write(sources, lines=lines).stdout.split(";")
            files = {file: file.read_text() for file in (self.root / "joined").iterdir()}
            self.write(sources, *made, lines=lines)
            self.assertEqual({file: file.read_text() for file in files}, files)
        for source in sources:
            pathlib.Path(source).write_text("")
        self.assertEqual(self.write(sources, "0", "3").returncode, 0)
        self.assertNotIn("#include", (self.root / "joined/plain_2.cc").read_text())

    def test_a_source_for_which_there_is_no_file_is_named(self):
        a, b = self.file("a.cc", "namespace { int a; }\n"), self.file("b.cc", "namespace { int a; }\n")
        run = self.write([a, b], "0", "1")
        self.assertNotEqual(run.returncode, 0)
        self.assertIn("b.cc shares a name with a source of every joined file: run cmake again", run.stderr)


if __name__ == "__main__":
    unittest.main()
