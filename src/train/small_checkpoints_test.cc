// Tests of small checkpoints in runs: the tolerance, what is exact, resuming, chains, damage.
// SPDX-License-Identifier: Apache-2.0
#include "train/small_checkpoints.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "shrink/small_chain.h"
#include "train/checkpoint.h"
#include "train/evaluate.h"
#include "train/saved_model.h"
#include "train/temporary_folder.h"
#include "train/toy_task.h"

namespace thinwire {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr uint64_t kHeldOut = 60;

// A wide network, so that its tensors have enough values, and a checkpoint after every second step.
ToyOptions wide(const TemporaryFolder& folder, const std::string& name,
                const std::string& compress) {
  ToyOptions toy{.settings = {{"optimizer.momentum", "0.9"},
                              {"train.checkpoint_every", "0.4"},
                              {"checkpoint.keep", "50"}},
                 .norm = true,
                 .hidden = 160,
                 .held_out = kHeldOut};
  if (!compress.empty()) toy.settings.emplace_back("checkpoint.compress", compress);
  toy.places.out = (folder / name).string();
  return toy;
}

nlohmann::json small_of(const fs::path& checkpoint) {
  std::ifstream file(checkpoint / "progress.json");
  return nlohmann::json::parse(file).at("small");
}

// Of weights from a file, by a pass over the held-out samples that the run knows nothing of.
double loss_of(const StateArrays& arrays) {
  const auto net = std::make_shared<ToyNet>(0, true, 160);
  {
    const torch::NoGradGuard no_grad;
    for (const NamedTensor& weight : named_weights(*net)) from_state(arrays, weight).or_throw();
  }
  return own_loss(with_defaults(task_of_net(net)), ToyData(kHeldOut, 2), kHeldOut, 16);
}

TEST(SmallCheckpoints, WeightsInTheFilesKeepTheToleranceAndTrainingIsNotDisturbed) {
  const TemporaryFolder folder;
  const auto exact = run_toy(2, wide(folder, "exact", ""));
  const auto small = run_toy(2, wide(folder, "small", "quantised:tolerance=0.05,samples=0"));
  EXPECT_TRUE(same_bits(exact[0].weights, small[0].weights));
  EXPECT_TRUE(same_bits(exact[0].weights, small[1].weights));

  const auto exact_ones = list_checkpoints(folder / "exact"),
             all = list_checkpoints(folder / "small");
  ASSERT_EQ(all.size(), 5u);
  uint64_t follows = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    const auto report = small_of(all[i]);
    const double loss = loss_of(read_saved_model(all[i]).arrays);
    EXPECT_NEAR(loss, report["loss"].get<double>(), 1e-5 * loss);
    EXPECT_NEAR(loss_of(read_saved_model(exact_ones[i]).arrays), report["exact_loss"].get<double>(),
                1e-5);
    EXPECT_LE(report["loss"].get<double>(), 1.05 * report["exact_loss"].get<double>());
    EXPECT_LT(4 * report["bytes"].get<uint64_t>(), report["exact_bytes"].get<uint64_t>());
    follows += report["follows"].get<uint64_t>();
  }
  EXPECT_GT(follows, 0u);
  EXPECT_THAT(small[0].notes, Contains(HasSubstr("held-out loss")));
}

TEST(SmallCheckpoints, NoToleranceLeavesTheWeightsNearOrExact) {
  const TemporaryFolder folder;
  ToyOptions toy = wide(folder, "run", "quantised:tolerance=0,samples=0,trials=3");
  toy.settings.emplace_back("train.max_steps", "2");
  run_toy(1, toy);
  const auto report = small_of(list_checkpoints(toy.places.out).back());
  EXPECT_LE(report["loss"].get<double>(), report["exact_loss"].get<double>());
  EXPECT_LE(report["trials"].get<int>(), 3);
}

TEST(SmallCheckpoints, ARunGoesOnFromTheWeightsOfTheFile) {
  const TemporaryFolder folder;
  ToyOptions toy = wide(folder, "run", "quantised:tolerance=0.05,samples=0");
  toy.stop_after = 5;
  run_toy(2, toy);
  const SavedModel saved = read_saved_model(folder / "run");

  ToyOptions still = toy;  // no step is left: the weights are those that were loaded
  still.settings.emplace_back("train.max_steps", "5");
  still.places = {};
  still.places.resume = toy.places.out;
  still.stop_after = UINT64_MAX;
  const auto loaded = run_toy(2, still);
  EXPECT_THAT(loaded[0].notes, Contains(AllOf(HasSubstr("small checkpoint"), HasSubstr(".small"))));
  const ToyNet net(0, true, 160);
  const auto names = named_weights(net);
  for (size_t i = 0; i < names.size(); ++i) {
    NamedTensor want{names[i].name, torch::empty_like(names[i].tensor)};
    from_state(saved.arrays, want).or_throw();
    EXPECT_TRUE(want.tensor.equal(loaded[1].weights[i])) << want.name;
  }

  ToyOptions rest = toy;
  rest.places.resume = toy.places.out;
  rest.stop_after = UINT64_MAX;
  const auto ended = run_toy(2, rest);
  EXPECT_EQ(ended[0].summary.steps, 10u);
  EXPECT_TRUE(same_bits(ended[0].weights, ended[1].weights));
  EXPECT_EQ(small_of(list_checkpoints(toy.places.out)[3])["follows"], 0);  // its first stands alone
}

TEST(SmallCheckpoints, MemoriesAndOptimiserAreExactUnlessTheRecipeSaysOtherwise) {
  const TemporaryFolder folder;
  const auto saved = [&](const std::string& name, const std::string& compress) {
    ToyOptions toy = wide(folder, name, compress);
    toy.settings.emplace_back("exchange.codec", "topk:density=0.1");
    toy.settings.emplace_back("exchange.momentum", "optimizer");
    toy.stop_after = 4;
    run_toy(2, toy);
    Checkpoint loaded;
    run_local(2, [&](Group& group) {
      Checkpoint mine = load_checkpoint(group, toy.places.out);
      if (group.rank() == 1) loaded = std::move(mine);
    });
    return loaded;
  };
  const Checkpoint exact = saved("exact", "");
  const std::string common = "quantised:tolerance=0.05";
  for (const std::string optimizer : {"exact", "half", "none"}) {
    const Checkpoint small = saved(optimizer + "_run", common + ",optimizer=" + optimizer);
    ASSERT_EQ(small.ranks[0].size(), exact.ranks[0].size());
    for (size_t i = 0; i < exact.ranks[0].size(); ++i)
      EXPECT_EQ(small.ranks[0][i].data, exact.ranks[0][i].data) << exact.ranks[0][i].name;
    if (optimizer == "none") {
      EXPECT_TRUE(small.optimizer.empty());
      continue;
    }
    ASSERT_EQ(small.optimizer.size(), exact.optimizer.size());
    for (size_t i = 0; i < exact.optimizer.size(); ++i) {
      const StateArray& want = exact.optimizer[i];
      const auto found = std::find_if(small.optimizer.begin(), small.optimizer.end(),
                                      [&](const StateArray& a) { return a.name == want.name; });
      ASSERT_NE(found, small.optimizer.end());
      EXPECT_EQ(found->data, optimizer == "half" ? make_half(want).exact.data : want.data);
    }
  }
}

TEST(SmallCheckpoints, EveryFolderHasItsWholeChainAndFilesAreSharedOnTheDisk) {
  const TemporaryFolder folder;
  ToyOptions toy =
      wide(folder, "run", "quantised:tolerance=0.2,samples=0,deltas=2,search_every=100");
  toy.settings.emplace_back("train.epochs", "4");
  toy.settings.emplace_back("checkpoint.keep", "2");
  run_toy(1, toy);
  const auto kept = list_checkpoints(toy.places.out);
  ASSERT_EQ(kept.size(), 2u);
  for (const fs::path& checkpoint : kept) {
    const auto follows = small_of(checkpoint)["follows"].get<size_t>();
    EXPECT_LE(follows, 2u);
    for (size_t place = 0; place <= follows; ++place)
      EXPECT_TRUE(fs::exists(checkpoint / small_file_name(place)));
    EXPECT_FALSE(fs::exists(checkpoint / small_file_name(follows + 1)));
    EXPECT_FALSE(fs::exists(checkpoint / "model.safetensors"));
    const fs::path alone = folder / ("alone" + checkpoint.filename().string());
    fs::copy(checkpoint, alone);
    EXPECT_EQ(load_checkpoint(*make_local_groups(1)[0], alone).model[0].data,
              read_saved_model(checkpoint).arrays[0].data);
  }
}

// As a kill between two writes leaves it: a folder that has no name yet, with a file that is cut.
TEST(SmallCheckpoints, AChainSurvivesACrashBetweenWrites) {
  const TemporaryFolder folder;
  ToyOptions toy = wide(folder, "run", "quantised:tolerance=0.2,samples=0");
  toy.stop_after = 5;
  run_toy(1, toy);
  const fs::path newest = list_checkpoints(toy.places.out).back();
  const fs::path growing = folder / "run/checkpoint-0000000006.tmp";
  fs::create_directory(growing);
  fs::create_hard_link(newest / small_file_name(0), growing / small_file_name(0));
  std::ofstream(growing / small_file_name(1)) << "TW";
  toy.places.resume = toy.places.out;
  toy.stop_after = UINT64_MAX;
  EXPECT_EQ(run_toy(1, toy)[0].summary.steps, 10u);
  EXPECT_FALSE(fs::exists(growing));
}

TEST(SmallCheckpoints, ADamagedFileOfTheChainIsNamed) {
  const TemporaryFolder folder;
  ToyOptions toy = wide(folder, "run", "quantised:tolerance=0.2,samples=0");
  toy.stop_after = 5;
  run_toy(1, toy);
  const fs::path newest = list_checkpoints(toy.places.out).back();
  ASSERT_GT(small_of(newest)["follows"], 0);
  for (const size_t place : {1u, 0u}) {
    const fs::path file = newest / small_file_name(place);
    std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
    bytes.seekp(60);
    bytes.put('\x55');
    bytes.close();
    for (const bool run : {true, false}) {
      try {
        ToyOptions again = toy;
        again.places.resume = newest.string();
        if (run)
          run_toy(1, again);
        else
          read_saved_model(newest);
        FAIL() << file;
      } catch (const Error& error) {
        EXPECT_THAT(error.what(), AllOf(HasSubstr(file.string()), HasSubstr("damaged")));
        if (run) {
          EXPECT_THAT(error.what(), HasSubstr("checkpoint before it"));
        }
      }
    }
  }
}

std::pair<ErrorCode, std::string> why_refused(const fs::path& from) {
  try {
    read_saved_model(from);
  } catch (const Error& error) {
    return {error.code(), error.what()};
  }
  return {ErrorCode::kOk, "not refused"};
}

// Without it, the last file that is there would be taken.
TEST(SmallCheckpoints, AFileThatTheFolderListsIsMissed) {
  const TemporaryFolder folder;
  ToyOptions toy = wide(folder, "run", "quantised:tolerance=0.2,samples=0");
  toy.stop_after = 5;
  run_toy(1, toy);
  const fs::path newest = list_checkpoints(toy.places.out).back();
  const auto follows = small_of(newest)["follows"].get<size_t>();
  ASSERT_GT(follows, 0u);
  const fs::path last = newest / small_file_name(follows);
  const SavedModel whole = read_saved_model(newest);
  EXPECT_EQ(whole.from, last);
  EXPECT_EQ(whole.bytes, read_saved_model(last).bytes);
  fs::remove(last);
  for (const fs::path& from : {newest, folder / "run"}) {
    EXPECT_EQ(why_refused(from).first, ErrorCode::kIo);
    EXPECT_THAT(why_refused(from).second, HasSubstr(last.string()));
  }
  fs::remove(newest / "progress.json");
  EXPECT_EQ(read_saved_model(newest).from, newest / small_file_name(follows - 1));
}

TEST(SmallCheckpoints, AnExactModelIsComparedWithItsChecksum) {
  const TemporaryFolder folder;
  ToyOptions toy = wide(folder, "run", "");
  toy.stop_after = 2;
  run_toy(1, toy);
  const fs::path newest = list_checkpoints(toy.places.out).back();
  const fs::path file = newest / "model.safetensors";
  EXPECT_EQ(read_saved_model(newest).from, file);
  EXPECT_EQ(read_saved_model(newest).bytes, fs::file_size(file));
  std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
  bytes.seekg(-3, std::ios::end);
  const auto was = static_cast<char>(bytes.get());
  bytes.seekp(-3, std::ios::end);
  bytes.put(static_cast<char>(was ^ 1));
  bytes.close();
  for (const fs::path& from : {file, newest, folder / "run"}) {
    EXPECT_EQ(why_refused(from).first, ErrorCode::kCorrupt) << from;
    EXPECT_THAT(why_refused(from).second, AllOf(HasSubstr(file.string()), HasSubstr("damaged")));
  }
  fs::remove(newest / "progress.json");
  EXPECT_EQ(read_saved_model(newest).from, file);
}

TEST(SmallCheckpoints, ARunWithoutHeldOutSamplesIsRefused) {
  const TemporaryFolder folder;
  ToyOptions toy = wide(folder, "run", "quantised");
  toy.held_out = 0;
  try {
    run_toy(2, toy);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("checkpoint.compress"), HasSubstr("data.hold_out")));
  }
  toy.places = {};  // writes nothing, so that nothing is measured
  EXPECT_NO_THROW(run_toy(1, toy));
}

// Every setting would fit.
TEST(SmallCheckpoints, ARunWithAnEmptyHeldOutSetIsRefused) {
  const TemporaryFolder folder;
  const ToyOptions toy = wide(folder, "run", "quantised");
  const ToyData train(toy.samples), test(53, 1), empty(0, 2);
  const auto group = std::move(make_local_groups(1)[0]);
  const Task task = task_of_net(std::make_shared<ToyNet>(0, true, 160));
  try {
    train_task(toy_recipe(toy.settings), toy.places, *group, task,
               {.train = train, .test = test, .hold_out = &empty}, {});
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("checkpoint.compress"), HasSubstr("set is empty")));
  }
  EXPECT_TRUE(list_checkpoints(toy.places.out).empty());
}

std::vector<torch::Tensor> copies(const ToyNet& net) {
  std::vector<torch::Tensor> all;
  for (const torch::Tensor& tensor : net.parameters()) all.push_back(tensor.detach().clone());
  return all;
}

// A network whose loss is known: one for the trained weights, and another for all others.
struct KnownLoss {
  explicit KnownLoss(const SmallOptions& options)
      : task(with_defaults(task_of_net(net))), small(options, task, held_out, kHeldOut, 3) {
    task.loss = [this, trained = copies(*net)](const torch::Tensor&, const torch::Tensor&) {
      measured.push_back(copies(*net));
      return torch::tensor(same_bits(measured.back(), trained) ? exact : others, torch::kFloat64);
    };
  }

  SmallReport shrink() {
    measured.clear();
    Checkpoint checkpoint;
    small.shrink(*make_local_groups(1)[0], checkpoint);
    return checkpoint.small->report;
  }

  double exact = 1, others = 1;
  std::vector<std::vector<torch::Tensor>> measured;  // the weights
  const ToyData held_out{kHeldOut, 2};
  const std::shared_ptr<ToyNet> net = std::make_shared<ToyNet>(0, true, 160);
  Task task;
  SmallCheckpoints small;
};

// The number that all tensors have.
uint64_t common_treatment(const SmallReport& report) {
  for (const auto& [name, treatment] : report.treatments)
    EXPECT_EQ(treatment, report.treatments.at(0).second) << name;
  return report.treatments.at(0).second;
}

TEST(SmallCheckpoints, ASettingThatFailsIsNotMeasuredAgain) {
  KnownLoss known({.tolerance = 0.1, .samples = 0, .trials = 4});
  EXPECT_EQ(common_treatment(known.shrink()), treatments().size() - 1);
  known.others = 2;
  const SmallReport report = known.shrink();
  EXPECT_EQ(common_treatment(report), 0u);
  EXPECT_EQ(report.trials, 4);
  ASSERT_EQ(known.measured.size(), 5u);  // the trained weights before
  for (size_t i = 1; i < known.measured.size(); ++i)
    EXPECT_FALSE(same_bits(known.measured[i - 1], known.measured[i])) << i;
}

TEST(SmallCheckpoints, FromExactWeightsTheSearchBeginsAnew) {
  KnownLoss known({.tolerance = 0.1, .samples = 0, .search_every = 1, .trials = 8});
  known.others = 2;
  EXPECT_EQ(common_treatment(known.shrink()), 0u);
  known.others = 1;
  EXPECT_EQ(common_treatment(known.shrink()), treatments().size() - 1);
}

TEST(SmallCheckpoints, ALossThatIsNotFiniteDoesNotFit) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const double bad : {kInfinity, -kInfinity, std::nan("")}) {
    KnownLoss known({.tolerance = 0.1, .samples = 0});
    known.others = bad;
    EXPECT_EQ(common_treatment(known.shrink()), 0u) << bad;
    for (const double others : {bad, 1.0}) {
      known.exact = bad;
      known.others = others;
      const SmallReport report = known.shrink();
      EXPECT_EQ(common_treatment(report), 0u) << bad;
      EXPECT_EQ(report.trials, 0);
    }
    known.exact = 1;
    EXPECT_EQ(common_treatment(known.shrink()), treatments().size() - 1) << bad;
  }
}

// In a pass over a network whose weights are in clusters.
TEST(SmallCheckpoints, WeightsComeBackWhereMeasuringFails) {
  const auto net = std::make_shared<ToyNet>(0, true, 160);
  const ToyData held_out(kHeldOut, 2);
  constexpr int kPasses = (kHeldOut + 15) / 16;
  int passes = 0;
  Task task = with_defaults(task_of_net(net));
  const auto before = copies(*net);
  task.forward = [&, net](const torch::Tensor& inputs) {
    if (++passes == kPasses + 2) {
      EXPECT_FALSE(same_bits(copies(*net), before));
      throw Error(ErrorCode::kIo, "a sample cannot be read");
    }
    return net->forward(inputs);
  };
  const SmallOptions options{.tolerance = 1, .samples = 0};
  SmallCheckpoints small(options, task, held_out, 16, 3);
  const auto group = std::move(make_local_groups(1)[0]);
  Checkpoint checkpoint;
  EXPECT_THROW(small.shrink(*group, checkpoint), Error);
  EXPECT_EQ(passes, kPasses + 2);
  EXPECT_TRUE(same_bits(copies(*net), before));
  small.shrink(*group, checkpoint);
  EXPECT_TRUE(checkpoint.small.has_value());
  EXPECT_TRUE(same_bits(copies(*net), before));
}

// Rank 0 alone has a buffer that no file can hold.
TEST(SmallCheckpoints, AllRanksAreToldThatTheFileCannotBeMade) {
  const ToyData held_out(kHeldOut, 2);
  std::vector<std::string> told(3);
  run_local(3, [&](Group& group) {
    const auto net = std::make_shared<ToyNet>(0, true, 160);
    if (group.rank() == 0) net->register_buffer("odd", torch::zeros({2}, torch::kHalf));
    const Task task = with_defaults(task_of_net(net));
    SmallCheckpoints small({.tolerance = 0.05, .samples = 0}, task, held_out, 16, 3);
    Checkpoint checkpoint;
    try {
      small.shrink(group, checkpoint);
    } catch (const AgreedError& error) {
      told[static_cast<size_t>(group.rank())] = error.what();
    }
  });
  for (const std::string& one : told) EXPECT_THAT(one, HasSubstr("'odd' has a type"));
}

TEST(SmallCheckpoints, AResumedRunSaysWhatTheCheckpointLacks) {
  const TemporaryFolder folder;
  const auto resumed = [&](const std::string& optimizer) {
    ToyOptions toy = wide(folder, optimizer + "_run", "quantised:optimizer=" + optimizer);
    toy.stop_after = 4;
    run_toy(2, toy);
    toy.stop_after = UINT64_MAX;
    toy.places.resume = toy.places.out;
    return run_toy(2, toy)[0].notes;
  };
  EXPECT_THAT(resumed("half"),
              Contains(AllOf(HasSubstr("optimiser's state was saved in 16 bits"))));
  EXPECT_THAT(resumed("none"), Contains(AllOf(HasSubstr("optimiser's state is not in"),
                                              HasSubstr("begin at zero"))));
  EXPECT_THAT(resumed("exact"), Not(Contains(HasSubstr("optimiser's state"))));
}

TEST(SmallCheckpoints, AFileUnderAnotherNameIsReadOrRefused) {
  const TemporaryFolder folder;
  ToyOptions toy = wide(folder, "run", "quantised:tolerance=0.2,samples=0");
  toy.stop_after = 5;
  run_toy(1, toy);
  const fs::path newest = list_checkpoints(toy.places.out).back();
  ASSERT_GT(small_of(newest)["follows"], 0);
  const SavedModel alone = read_saved_model(newest / small_file_name(0));
  for (const char* name : {"weights.small", "weights", "weights.safetensors", "model-007.small"}) {
    fs::copy(newest / small_file_name(0), folder / name);
    const SavedModel other = read_saved_model(folder / name);
    EXPECT_EQ(other.from, folder / name);
    EXPECT_EQ(other.bytes, alone.bytes);
    ASSERT_EQ(other.arrays.size(), alone.arrays.size());
    for (size_t i = 0; i < alone.arrays.size(); ++i)
      EXPECT_EQ(other.arrays[i].data, alone.arrays[i].data) << name;
  }
  const auto refused = [&](const std::string& name) { return why_refused(folder / name); };
  fs::copy(newest / small_file_name(1), folder / "later.small");
  EXPECT_EQ(refused("later.small").first, ErrorCode::kMismatch);
  EXPECT_THAT(refused("later.small").second,
              AllOf(HasSubstr("later.small: follows another file"), HasSubstr("model-000.small")));
  std::ofstream(folder / "bad.small") << "weights of another program, in its own format";
  EXPECT_THAT(refused("bad.small").second,
              AllOf(HasSubstr("bad.small"), HasSubstr("not a small model")));
}

}  // namespace
}  // namespace thinwire
