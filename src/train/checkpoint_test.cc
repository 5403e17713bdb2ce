// Tests of checkpoints: complete or absent, checked, the last good one kept, means on resizing.
// SPDX-License-Identifier: Apache-2.0
#include "train/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <future>
#include <memory>
#include <thread>

#include "thinwire/store.h"
#include "train/durable_file.h"
#include "train/temporary_folder.h"

namespace thinwire {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

float residual_of(int rank, size_t i) {
  return 0.25f * static_cast<float>((rank + 1) * (static_cast<int>(i) - 2));
}

Checkpoint checkpoint_of(const Group& group, uint64_t step) {
  const float weight[] = {1.5f, static_cast<float>(step)};
  const float momentum[] = {-3, 4};
  std::vector<float> residual;
  for (size_t i = 0; i < 5; ++i) residual.push_back(residual_of(group.rank(), i));
  Checkpoint mine;
  mine.step = step;
  mine.recipe = "train.batch=64\n";
  mine.totals.steps = step;
  mine.totals.best_error = 0.125;
  mine.model = {make_state("layer.weight", std::span<const float>(weight), OnResize::kCopy)};
  mine.optimizer = {make_state("layer.weight/momentum_buffer", std::span<const float>(momentum),
                               OnResize::kCopy)};
  mine.ranks = {{make_state("layer.weight/feedback/residual", std::span<const float>(residual),
                            OnResize::kOwedToMean)}};
  return mine;
}

void save(const TemporaryFolder& out, int ranks, uint64_t step) {
  run_local(ranks,
            [&](Group& group) { save_checkpoint(group, out.path(), checkpoint_of(group, step)); });
}

Checkpoint load(const fs::path& from, int ranks = 1) {
  Checkpoint loaded;
  run_local(ranks, [&](Group& group) {
    Checkpoint mine = load_checkpoint(group, from);
    if (group.rank() == 0) loaded = std::move(mine);
  });
  return loaded;
}

std::string failure_of(const fs::path& from, int ranks = 1) {
  try {
    load(from, ranks);
  } catch (const Error& error) {
    return error.what();
  }
  return "no failure";
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder))
    names.push_back(entry.path().filename().string());
  return names;
}

TEST(Checkpoint, ComesBackAsItWas) {
  const TemporaryFolder out;
  save(out, 2, 120);
  EXPECT_THAT(names_in(out.path()), ElementsAre("checkpoint-0000000120"));
  EXPECT_THAT(names_in(out / "checkpoint-0000000120"),
              UnorderedElementsAre("progress.json", "model.safetensors", "optimizer.safetensors",
                                   "state-rank-0000-of-0002.safetensors",
                                   "state-rank-0001-of-0002.safetensors"));
  run_local(2, [&](Group& group) {
    const Checkpoint before = checkpoint_of(group, 120);
    const Checkpoint after = load_checkpoint(group, out.path());
    EXPECT_EQ(after.step, 120u);
    EXPECT_EQ(after.world_size, 2);
    EXPECT_EQ(after.recipe, before.recipe);
    EXPECT_EQ(after.totals.steps, 120u);
    EXPECT_EQ(after.totals.best_error, 0.125);
    EXPECT_EQ(after.model[0].data, before.model[0].data);
    EXPECT_EQ(after.optimizer[0].name, before.optimizer[0].name);
    ASSERT_EQ(after.ranks.size(), 1u);
    EXPECT_EQ(after.ranks[0][0].data, before.ranks[0][0].data);  // this rank's own
    EXPECT_EQ(after.ranks[0][0].on_resize, OnResize::kOwedToMean);
  });
}

TEST(Checkpoint, TheNewestTwoAreKept) {
  const TemporaryFolder out;
  for (const uint64_t step : {10, 20, 30}) save(out, 1, step);
  EXPECT_THAT(names_in(out.path()),
              UnorderedElementsAre("checkpoint-0000000020", "checkpoint-0000000030"));
  EXPECT_EQ(load(out.path()).step, 30u);
  EXPECT_EQ(load(out / "checkpoint-0000000020").step, 20u);
}

TEST(Checkpoint, SavingAfterGoingBackRemovesTheAbandonedFuture) {
  const TemporaryFolder out;
  for (const uint64_t step : {10, 20}) save(out, 1, step);
  save(out, 1, 15);
  EXPECT_THAT(names_in(out.path()),
              UnorderedElementsAre("checkpoint-0000000010", "checkpoint-0000000015"));
  save(out, 1, 15);  // the same step again
  EXPECT_EQ(load(out.path()).step, 15u);
}

// A run killed while saving leaves a temporary folder with some of the files.
// As when the newest is damaged and the run goes on from the one before it.
TEST(Checkpoint, TheFirstSaveAfterGoingBackRemovesWhatWasLater) {
  const TemporaryFolder out;
  for (const uint64_t step : {10, 20, 30}) save(out, 1, step);
  const auto save_again = [&](uint64_t step, std::optional<uint64_t> others_after) {
    run_local(1, [&](Group& group) {
      Checkpoint mine = checkpoint_of(group, step);
      mine.others_after = others_after;
      save_checkpoint(group, out.path(), mine);
    });
  };
  save_again(40, 20);
  EXPECT_THAT(names_in(out.path()),
              UnorderedElementsAre("checkpoint-0000000020", "checkpoint-0000000040"));
  save_again(50, std::nullopt);
  EXPECT_THAT(names_in(out.path()),
              UnorderedElementsAre("checkpoint-0000000040", "checkpoint-0000000050"));
}

TEST(Checkpoint, LeftoversOfAKilledRunAreNotMistakenForACheckpoint) {
  const TemporaryFolder out;
  save(out, 2, 10);
  const fs::path growing = out / "checkpoint-0000000020.tmp";
  fs::copy(out / "checkpoint-0000000010", growing);
  EXPECT_EQ(load(out.path(), 2).step, 10u);
  fs::remove(growing / "progress.json");
  EXPECT_EQ(load(out.path(), 2).step, 10u);
  save(out, 2, 20);
  EXPECT_FALSE(fs::exists(growing));
  EXPECT_EQ(load(out.path(), 2).step, 20u);
}

// A rank's group; its transfer number `at` ends only when the rank may go on.
class StallingGroup final : public Group {
 public:
  StallingGroup(std::unique_ptr<Group> inner, int at) : inner_(std::move(inner)), left_(at) {}
  int rank() const noexcept override { return inner_->rank(); }
  int size() const noexcept override { return inner_->size(); }
  std::unique_ptr<Transfer> send(std::span<const std::byte> buffer, int to, int tag) override {
    return stalled(inner_->send(buffer, to, tag));
  }
  std::unique_ptr<Transfer> receive(std::span<std::byte> buffer, int from, int tag) override {
    return stalled(inner_->receive(buffer, from, tag));
  }
  std::unique_ptr<Group> split(int colour) override { return inner_->split(colour); }
  void abort(std::string_view reason) noexcept override { inner_->abort(reason); }
  void library_all_reduce(std::span<float> values) override { inner_->library_all_reduce(values); }

  void go_on() { may_go_on_.set_value(); }
  bool stalls() const { return stalls_; }

 private:
  class Stalled final : public Transfer {
   public:
    Stalled(std::unique_ptr<Transfer> inner, StallingGroup& group)
        : inner_(std::move(inner)), group_(group) {}
    bool done() override {
      if (!inner_->done()) return false;
      group_.stalls_ = true;
      group_.gate_.wait();
      return true;
    }
    std::string describe() const override { return inner_->describe(); }

   private:
    const std::unique_ptr<Transfer> inner_;
    StallingGroup& group_;
  };

  std::unique_ptr<Transfer> stalled(std::unique_ptr<Transfer> transfer) {
    if (left_-- != 0) return transfer;
    return std::make_unique<Stalled>(std::move(transfer), *this);
  }

  const std::unique_ptr<Group> inner_;
  int left_;
  std::atomic<bool> stalls_ = false;
  std::promise<void> may_go_on_;
  const std::shared_future<void> gate_ = may_go_on_.get_future().share();
};

// Rank 0 of the first group stalls while it saves. The other rank gives it up and saves again
// without it, in a group of its own; the stalled one goes on in the middle of that, or after it.
TEST(Checkpoint, AWorkerThatWritesLateReachesNothingOfTheOthers) {
  int stalls = 0, late = 0;
  for (int at = 0; at < 10; ++at) {
    for (const int until : {0, 2, 4, 6, -1}) {
      SCOPED_TRACE(std::to_string(at) + ", " + std::to_string(until));
      const TemporaryFolder out;
      save(out, 2, 10);
      const auto save_in = [&](Group& group, uint32_t generation) {
        Checkpoint mine = checkpoint_of(group, 20);
        mine.recipe = "generation=" + std::to_string(generation) + "\n";
        mine.generation = generation;
        save_checkpoint(group, out.path(), mine);
      };
      auto groups = make_local_groups(2);
      groups[1]->set_deadline(std::chrono::milliseconds(30));
      StallingGroup stalling(std::move(groups[0]), at);
      stalling.set_deadline(std::chrono::seconds(20));
      std::jthread slow([&] {
        try {
          save_in(stalling, 1);
        } catch (const Error&) {
          ++late;
        }
      });
      bool gave_up = false;
      try {
        save_in(*groups[1], 1);
      } catch (const Error&) {
        gave_up = true;
      }
      groups[1]->abort("rank 0 is silent");
      if (!gave_up || !stalling.stalls()) {
        stalling.go_on();
        continue;
      }
      ++stalls;
      // The second worker of the new group holds the first one up in the middle.
      auto others = make_local_groups(2);
      StallingGroup first(std::move(others[0]), until);
      const auto save_well = [&](Group& group) {
        try {
          save_in(group, 2);
        } catch (const Error& error) {
          ADD_FAILURE() << error.what();
          group.abort(error.what());
        }
      };
      std::jthread helper([&] { save_well(*others[1]); });
      std::jthread next([&] { save_well(first); });
      if (until >= 0) {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        stalling.go_on();
        slow.join();
        first.go_on();
        next.join();
      } else {
        first.go_on();
        next.join();
        stalling.go_on();
        slow.join();
      }
      helper.join();
      const Checkpoint loaded = load(out.path(), 2);
      EXPECT_EQ(loaded.recipe, "generation=2\n");
      EXPECT_EQ(loaded.step, 20u);
      EXPECT_EQ(load(out / "checkpoint-0000000010", 2).step, 10u);
    }
  }
  EXPECT_GT(stalls, 10);
  EXPECT_GT(late, 10);
}

TEST(Checkpoint, AWorkerThatIsLateRemovesNothingOfLaterGroups) {
  const TemporaryFolder out;
  const auto save_in = [&](uint32_t generation, uint64_t step) {
    run_local(1, [&](Group& group) {
      Checkpoint mine = checkpoint_of(group, step);
      mine.generation = generation;
      save_checkpoint(group, out.path(), mine);
    });
  };
  save_in(1, 10);
  save_in(2, 30);
  for (const char* folder : {"checkpoint-0000000040.tmp", "checkpoint-0000000040.1.tmp",
                             "checkpoint-0000000020.old.1.tmp", "checkpoint-0000000040.3.tmp"})
    fs::create_directory(out / folder);
  save_in(1, 20);
  EXPECT_THAT(names_in(out.path()),
              UnorderedElementsAre("checkpoint-0000000010", "checkpoint-0000000020",
                                   "checkpoint-0000000030", "checkpoint-0000000040.3.tmp"));
  remove_unfinished_checkpoints(out.path());
  EXPECT_THAT(names_in(out.path()),
              UnorderedElementsAre("checkpoint-0000000010", "checkpoint-0000000020",
                                   "checkpoint-0000000030"));
}

TEST(Checkpoint, EveryTruncatedOrDamagedFileIsRefusedByName) {
  const TemporaryFolder out;
  save(out, 2, 10);
  save(out, 2, 20);
  const fs::path newest = out / "checkpoint-0000000020";
  for (const std::string& name : names_in(newest)) {
    const fs::path file = newest / name;
    const auto good = read_file(file);
    for (const size_t size : {size_t{0}, good.size() / 2, good.size() - 1}) {
      if (name == "progress.json" && size == good.size() - 1) continue;  // only the last newline
      fs::resize_file(file, size);
      EXPECT_THAT(failure_of(out.path(), 2),
                  AllOf(HasSubstr(file.string() + ": truncated"),
                        HasSubstr((out / "checkpoint-0000000010").string())))
          << size;
    }
    auto bad = good;
    bad[bad.size() / 2] ^= std::byte{1};
    write_durably(file, bad);
    EXPECT_THAT(failure_of(out.path(), 2), HasSubstr(newest.string())) << name;
    fs::remove(file);
    EXPECT_THAT(failure_of(newest, 2), HasSubstr(newest.string())) << name;
    EXPECT_EQ(load(out / "checkpoint-0000000010", 2).step, 10u);
    write_durably(file, good);
    EXPECT_EQ(load(out.path(), 2).step, 20u);
  }
}

// Any byte of it: a number would read as well as another.
TEST(Checkpoint, DamageAnywhereInTheProgressIsFound) {
  const TemporaryFolder out;
  save(out, 1, 10);
  const fs::path file = out / "checkpoint-0000000010/progress.json";
  const auto good = read_file(file);
  for (size_t i = 0; i + 1 < good.size(); i += 3) {
    auto bad = good;
    bad[i] ^= std::byte{1};
    write_durably(file, bad);
    EXPECT_THAT(failure_of(out.path()), HasSubstr(file.string())) << i;
  }
}

TEST(Checkpoint, ForeignFoldersAreRefusedByName) {
  const TemporaryFolder out;
  EXPECT_THAT(failure_of(out.path()), HasSubstr("holds no checkpoint"));
  EXPECT_THAT(failure_of(out / "nowhere"), HasSubstr("nowhere: holds no checkpoint"));
  for (const char* text :
       {"", "{}", "[1]", R"({"format":"other"})", R"({"format":"thinwire checkpoint"})",
        R"({"format":"thinwire checkpoint","version":2})",
        R"({"format":"thinwire checkpoint","version":1,"step":-1})",
        R"({"format":"thinwire checkpoint","version":1,"step":1,)"
        R"("world_size":0,"recipe":"","totals":{},"files":{}})"}) {
    std::ofstream(out / "progress.json") << text;
    EXPECT_THAT(failure_of(out.path()), HasSubstr((out / "progress.json").string())) << text;
  }
  // Deeper than a function that calls itself for each level can go.
  const std::string deep(200'000, '[');
  std::ofstream(out / "progress.json")
      << R"({"format":"thinwire checkpoint","version":2,"xxh3":"0","z":)" << deep
      << std::string(deep.size(), ']') << '}';
  EXPECT_THAT(failure_of(out.path()), HasSubstr("its checksum is wrong"));
}

// A rank that cannot write: no rank goes on, and what was there is still there.
TEST(Checkpoint, FailsOnAllRanksWhenOneCannotWrite) {
  const TemporaryFolder out;
  save(out, 2, 10);
  const auto saving = [&](int rank_in_the_way) {
    run_local(2, [&](Group& group) {
      const TemporaryFolder elsewhere;
      const fs::path where = group.rank() == rank_in_the_way ? elsewhere.path() : out.path();
      EXPECT_THROW(save_checkpoint(group, where, checkpoint_of(group, 20)), Error);
    });
  };
  saving(1);
  EXPECT_EQ(load(out.path(), 2).step, 10u);
}

TEST(Checkpoint, ResidualsKeepTheirMeanAtAnotherNumberOfRanks) {
  for (const auto& [before, after] : {std::pair(2, 3), std::pair(3, 1), std::pair(1, 4)}) {
    const TemporaryFolder out;
    save(out, before, 10);
    std::vector<std::vector<float>> residuals(static_cast<size_t>(after), std::vector<float>(5));
    run_local(after, [&, n = after](Group& group) {
      Store store;
      const Checkpoint loaded = load_checkpoint(group, out.path());
      ASSERT_TRUE(store.load(loaded.ranks, group.rank(), n));
      ASSERT_TRUE(copy_state(store.save(), "layer.weight/feedback/residual",
                             std::span(residuals[static_cast<size_t>(group.rank())])));
    });
    for (size_t i = 0; i < 5; ++i) {
      double was = 0, is = 0;
      for (int rank = 0; rank < before; ++rank) was += residual_of(rank, i);
      for (const auto& residual : residuals) is += residual[i];
      EXPECT_NEAR(is / after, was / before, 1e-7);
    }
  }
}

}  // namespace
}  // namespace thinwire
