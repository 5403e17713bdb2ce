// The texts as GPUs get them: compiled for three architectures, without fused or inexact
// arithmetic.
// SPDX-License-Identifier: Apache-2.0
#include "device/kernel_texts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "device/cuda/nvrtc.h"
#include "device/testing/find_nvrtc.h"
#include "device/testing/host_kernels.h"
#include "thinwire/status.h"

namespace thinwire::device {
namespace {

// The kernels that a text defines: "half_float/encode_half".
std::set<std::string> kernels_of(const KernelText& text) {
  const std::regex kernel("KERNEL void (\\w+)\\(");
  const std::string source(text.source);
  std::set<std::string> names;
  for (std::sregex_iterator i(source.begin(), source.end(), kernel), end; i != end; ++i)
    names.insert(std::string(text.name) + "/" + (*i)[1].str());
  return names;
}

TEST(KernelTexts, RunOnTheProcessorToo) {
  std::set<std::string> in_texts;
  for (const KernelText& text : kernel_texts()) in_texts.merge(kernels_of(text));
  const auto on_host = host_kernel_names();
  EXPECT_EQ(in_texts, std::set<std::string>(on_host.begin(), on_host.end()));
  EXPECT_FALSE(in_texts.empty());
}

TEST(KernelTexts, UnknownNameNamesTheChoices) {
  try {
    source_for_gpu("half");
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("no kernel text 'half'; there are bins, "));
  }
}

// Instructions of PTX that round otherwise than the processor, or take what is small for zero. One
// exact use of fma is left: div.rn calls no function and is one instruction.
std::vector<std::string> forbidden_in(const std::string& ptx) {
  const std::regex instruction(
      "\\b(fma|mad\\.(?:rn|rz)\\.?f|[a-z0-9.]+\\.approx|[a-z0-9.]+\\.ftz)[.\\w]*");
  std::vector<std::string> found;
  for (std::sregex_iterator i(ptx.begin(), ptx.end(), instruction), end; i != end; ++i)
    found.push_back(i->str());
  return found;
}

constexpr const char* kArchitectures[] = {"80", "90", "120"};

void expect_good(const KernelText& text, const std::string& cubin, const std::string& ptx) {
  EXPECT_TRUE(
      cubin.starts_with("\x7f"
                        "ELF"));
  for (const std::string& kernel : kernels_of(text)) {
    const std::string name = kernel.substr(kernel.find('/') + 1);
    EXPECT_THAT(ptx, testing::HasSubstr(".entry " + name + "("));
  }
  EXPECT_THAT(forbidden_in(ptx), testing::IsEmpty());
}

class CompiledTexts : public testing::Test {
 protected:
  void SetUp() override {
    try {
      nvrtc_ = std::make_unique<Nvrtc>(nvrtc_folders());
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
  }

  std::unique_ptr<Nvrtc> nvrtc_;
};

TEST_F(CompiledTexts, HaveAllKernelsAndNoFusedArithmetic) {
  for (const KernelText& text : kernel_texts())
    for (const std::string number : kArchitectures) {
      const std::string architecture = "sm_" + number;
      SCOPED_TRACE(std::string(text.name) + " " + architecture);
      Compiled compiled;
      try {
        compiled = nvrtc_->compile(text.name, source_for_gpu(text.name), architecture);
      } catch (const Error& error) {
        if (error.code() != ErrorCode::kUnsupported) throw;
        GTEST_SKIP() << error.what();  // an NVRTC that is older than the architecture
      }
      expect_good(text, compiled.cubin, compiled.ptx);
    }
}

struct Ended {
  int status;
  std::string output;
};
Ended run(const std::string& command) {
  FILE* const pipe = popen((command + " 2>&1").c_str(), "r");
  std::string output;
  for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) output += static_cast<char>(c);
  return {pclose(pipe), output};
}

std::string content_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The compiler of a toolkit, where the machine has one, with NVRTC's options.
TEST(TextsByNvcc, HaveAllKernelsAndNoFusedArithmetic) {
  const Ended asked = run("nvcc --list-gpu-arch");
  if (asked.status != 0) GTEST_SKIP() << "there is no nvcc: " << asked.output;
  namespace fs = std::filesystem;
  const fs::path folder = fs::path(testing::TempDir()) / "thinwire_nvcc";
  for (const KernelText& text : kernel_texts()) {
    fs::remove_all(folder);
    fs::create_directories(folder);
    const std::string name(text.name);
    std::ofstream(folder / (name + ".cu")) << source_for_gpu(text.name);
    std::string command = "cd '" + folder.string() + "' && nvcc --fatbin -w --keep --keep-dir .";
    for (const std::string& option : Nvrtc::options()) command += " " + option;
    for (const std::string number : kArchitectures) {
      if (asked.output.find("compute_" + number + "\n") == std::string::npos)
        GTEST_SKIP() << "this nvcc is older than sm_" << number;
      command += " -gencode arch=compute_" + number + ",code=sm_" + number;
    }
    const Ended compiled = run(command + " -o " + name + ".fatbin " + name + ".cu");
    ASSERT_EQ(compiled.status, 0) << name << ": " << compiled.output;
    for (const std::string number : kArchitectures) {
      SCOPED_TRACE(name + " sm_" + number);
      const std::string file = name + ".compute_" + number;
      expect_good(text, content_of(folder / (file + ".cubin")),
                  content_of(folder / (file + ".ptx")));
    }
  }
  fs::remove_all(folder);
}

// The test above can fail: this text has what it looks for.
TEST_F(CompiledTexts, FusedArithmeticIsSeen) {
  const std::string source =
      "extern \"C\" __global__ void k(float* x) {\n"
      "  x[0] = __fmaf_rn(x[0], x[1], x[2]);\n  x[1] = __fdividef(x[1], x[2]);\n}";
  const Compiled compiled = nvrtc_->compile("k", source, "sm_90");
  EXPECT_THAT(forbidden_in(compiled.ptx), testing::SizeIs(2));
}

TEST_F(CompiledTexts, TheCompilerFusesNothingByItself) {
  const std::string source =
      "extern \"C\" __global__ void k(float* x) { x[0] = x[0] * x[1] + x[2]; }";
  EXPECT_THAT(forbidden_in(nvrtc_->compile("k", source, "sm_90").ptx), testing::IsEmpty());
}

TEST_F(CompiledTexts, MistakesAreShown) {
  try {
    nvrtc_->compile("broken", "extern \"C\" __global__ void k() { nothing(); }", "sm_90");
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::AllOf(testing::HasSubstr("broken.cu for sm_90"),
                                             testing::HasSubstr("nothing")));
  }
  try {
    nvrtc_->compile("k", "", "sm_10");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    EXPECT_THAT(error.what(), testing::HasSubstr("does not compile for sm_10"));
  }
}

TEST(SharedLibraries, SayWhatWasTried) {
  try {
    SharedLibrary("NVRTC (pip install it)", {"/nowhere/libnvrtc.so.13", "libnothing.so"});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    EXPECT_THAT(error.what(), testing::AllOf(testing::HasSubstr("no NVRTC (pip install it)"),
                                             testing::HasSubstr("/nowhere/libnvrtc.so.13"),
                                             testing::HasSubstr("libnothing.so")));
  }
}

}  // namespace
}  // namespace thinwire::device
