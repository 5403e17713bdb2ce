// Devices of runs: names, what is said where there is no GPU, and the functions that move tensors.
// SPDX-License-Identifier: Apache-2.0
#include "train/run_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/cuda.h>
#include <torch/torch.h>

#include <cstdlib>
#include <optional>
#include <string>

#include "thinwire/group.h"
#include "train/named_tensors.h"
#include "train/toy_task.h"

namespace thinwire {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

bool has_gpu() { return torch::cuda::is_available(); }

TEST(RunDevice, NamesAreChecked) {
  for (const char* good : {"cpu", "cuda", "cuda:0", "cuda:15"})
    EXPECT_TRUE(check_run_device(good)) << good;
  for (const char* bad :
       {"", "cud", "cuda:", "cuda:x", "cuda:-1", "cuda:1234", "cuda0", "gpu", "mps"})
    EXPECT_THAT(std::string(check_run_device(bad).message()), HasSubstr("there are cpu, cuda"))
        << bad;
}

TEST(RunDevice, RecipesAreChecked) {
  const auto fault = [](const std::vector<std::pair<std::string, std::string>>& settings) {
    for (const RecipeFault& one : find_faults(toy_recipe(settings).options))
      if (one.key == "run.device") return std::string(one.status.message());
    return std::string();
  };
  EXPECT_EQ(fault({}), "");
  EXPECT_EQ(fault({{"run.device", "cuda"}}), "");
  EXPECT_THAT(fault({{"run.device", "tpu"}}), HasSubstr("'tpu' is no device"));
  EXPECT_THAT(fault({{"run.device", "cuda"}, {"pipeline.stages", "2"}}),
              HasSubstr("pipelines run on the processor"));
}

TEST(RunDevice, TheProcessorNeedsNothing) {
  const RunDevice device("cpu", 3, {});
  EXPECT_TRUE(device.is_processor());
  EXPECT_EQ(device.memory(), nullptr);
  EXPECT_TRUE(device.torch_device().is_cpu());
}

// Sets a variable of the environment, and has it as it was at the end of a scope.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    if (const char* const before = std::getenv(name)) before_ = before;
    setenv(name, value, 1);
  }
  ~Variable() { before_ ? setenv(name_, before_->c_str(), 1) : unsetenv(name_); }

 private:
  const char* name_;
  std::optional<std::string> before_;
};

TEST(RunDevice, ProcessesHaveThePlaceThatTheirLauncherGaveThem) {
  const Variable none_1("OMPI_COMM_WORLD_LOCAL_RANK", ""), none_2("MPI_LOCALRANKID", ""),
      none_3("SLURM_LOCALID", "");
  {
    const Variable none("LOCAL_RANK", "");
    EXPECT_EQ(place_on_machine(6, {}), 6);
  }
  {
    const Variable set("LOCAL_RANK", "2");
    EXPECT_EQ(place_on_machine(6, {}), 2);
    const Variable before("SLURM_LOCALID", "3");
    EXPECT_EQ(place_on_machine(6, {}), 3);
  }
  for (const char* wrong : {"2x", "x", "-1", " 1", "1 ", "+1", "0x1", "1.5", "99999999999"}) {
    const Variable set("LOCAL_RANK", wrong);
    EXPECT_THAT(
        [] { place_on_machine(6, {}); },
        ::testing::ThrowsMessage<Error>(AllOf(
            HasSubstr("LOCAL_RANK is '" + std::string(wrong) + "'"), HasSubstr("counted from 0"))))
        << wrong;
  }
}

TEST(RunDevice, ThreadsHaveNotTheirProcesssPlace) {
  const Variable set("LOCAL_RANK", "2");
  run_local(3, [](Group& group) {
    const ProcessRanks ranks = ranks_of_process(group);
    EXPECT_EQ(ranks.count, 3);
    EXPECT_EQ(ranks.before, group.rank());
    EXPECT_EQ(place_on_machine(group.rank(), ranks), group.rank());
  });
  run_local(1, [](Group& group) {
    EXPECT_EQ(place_on_machine(group.rank(), ranks_of_process(group)), 2);
  });
}

TEST(RunDevice, SaysWhatIsMissing) {
  if (has_gpu()) GTEST_SKIP() << "there is a GPU";
  try {
    const RunDevice device("cuda:1", 0, {});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    EXPECT_THAT(error.what(), HasSubstr("run.device = cuda:1: "));
    EXPECT_THAT(error.what(), ::testing::AnyOf(HasSubstr("libtorch was built without CUDA"),
                                               HasSubstr("NVIDIA driver")));
  }
}

TEST(RunDevice, ARunOnAMissingGpuEndsOnAllRanksAndSaysWhy) {
  if (has_gpu()) GTEST_SKIP() << "there is a GPU";
  std::string why;
  try {
    run_toy(2, {.settings = {{"run.device", "cuda"}}});
  } catch (const Error& error) {
    why = error.what();
  }
  EXPECT_THAT(why, AllOf(HasSubstr("run.device = cuda"), HasSubstr("CUDA")));
}

TEST(RunDevice, MovingKeepsWhatIsThereAlready) {
  const torch::Tensor tensor = torch::arange(6, torch::kFloat32).view({2, 3});
  EXPECT_TRUE(moved(tensor, torch::kCPU).is_alias_of(tensor));
  const torch::Tensor turned = tensor.t();
  EXPECT_TRUE(moved(turned, torch::kCPU).is_contiguous());
  EXPECT_TRUE(torch::equal(moved(turned, torch::kCPU), turned));
  const TensorView view = view_of(tensor, DType::kFloat32);
  EXPECT_EQ(view.data, tensor.data_ptr());
  EXPECT_EQ(view.count, 6u);
  EXPECT_EQ(view.device, Device::kCpu);
  EXPECT_EQ(view.queue, nullptr);
}

// Tensors whose memory cannot be read where it is go through a copy, in saved states and back.
TEST(RunDevice, SavedTensorsNeedNoContiguousMemory) {
  const torch::NoGradGuard no_grad;
  const torch::Tensor tensor = torch::arange(6, torch::kFloat32).view({2, 3});
  const StateArray saved = to_state({"w", tensor.t()}, OnResize::kCopy);
  EXPECT_EQ(saved.shape, (std::vector<uint64_t>{3, 2}));
  const torch::Tensor into = torch::zeros({2, 3});
  from_state({saved}, {"w", into.t()}).or_throw();
  EXPECT_TRUE(torch::equal(into, tensor));
  EXPECT_EQ(checksum_of({{"w", tensor.t()}}), checksum_of({{"w", tensor.t().contiguous()}}));
}

TEST(RunDevice, BatchesComeFromTheWrappedData) {
  struct One final : Dataset {
    uint64_t size() const override { return 1; }
    Batch fetch(std::span<const uint64_t>, const FetchContext& context) const override {
      return {torch::full({1, 2}, static_cast<float>(context.epoch)),
              torch::ones({1}, torch::kInt64)};
    }
  } data;
  EXPECT_EQ(moved_data(nullptr, {}), nullptr);
  const auto there = moved_data(&data, {});
  EXPECT_EQ(there->size(), 1u);
  const uint64_t ids[] = {0};
  EXPECT_EQ(there->fetch(ids, {.epoch = 7}).inputs.sum().item<float>(), 14.0f);
}

}  // namespace
}  // namespace thinwire
