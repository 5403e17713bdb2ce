// Tests of the files of small checkpoints: shared ones that are damaged, the optimiser's state,
// names that hide them.
// SPDX-License-Identifier: Apache-2.0
#include "train/small_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "core/checksum.h"
#include "shrink/small_chain.h"
#include "thinwire/group.h"
#include "thinwire/trainer.h"
#include "train/checkpoint.h"
#include "train/temporary_folder.h"

namespace thinwire {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

// Every file stands alone, so that the model of each is its own; they are listed as a chain is.
void save(const TemporaryFolder& out, uint64_t step, std::vector<SmallChainFile>& chain,
          SavedOptimizer optimizer = SavedOptimizer::kExact) {
  const float weight[] = {1.5f, static_cast<float>(step)};
  const auto array = make_state("w", std::span<const float>(weight), OnResize::kCopy);
  Checkpoint mine;
  mine.step = step;
  mine.keep = 10;
  mine.optimizer = {
      make_state("w/momentum_buffer", std::span<const float>(weight), OnResize::kCopy)};
  mine.ranks = {{}};
  SmallSave small{.bytes = write_small_model({{.exact = array}}).bytes,
                  .chain = chain,
                  .chain_folder = chain.empty() ? fs::path() : list_checkpoints(out.path()).back(),
                  .optimizer = optimizer,
                  .report = {}};
  chain.push_back({.name = small_file_name(chain.size()),
                   .mark = {.bytes = small.bytes.size(), .xxh3 = checksum(small.bytes)},
                   .sum = 0});
  mine.small = std::move(small);
  run_local(1, [&](Group& group) { save_checkpoint(group, out.path(), mine); });
}

Checkpoint load(const fs::path& from) {
  Checkpoint loaded;
  run_local(1, [&](Group& group) { loaded = load_checkpoint(group, from); });
  return loaded;
}

std::string failure_of(const fs::path& from) {
  try {
    load(from);
  } catch (const Error& error) {
    return error.what();
  }
  return "no failure";
}

void damage(const fs::path& path) {
  std::fstream bytes(path, std::ios::in | std::ios::out | std::ios::binary);
  bytes.seekp(24);
  bytes.put('\x55');
}

TEST(SmallFiles, ACheckpointThatSharesTheDamageIsNotRecommended) {
  const TemporaryFolder out;
  std::vector<SmallChainFile> chain;
  for (const uint64_t step : {1, 2, 3}) save(out, step, chain);
  const fs::path first = out / "checkpoint-0000000001", last = out / "checkpoint-0000000003";
  EXPECT_EQ(load(last).step, 3u);
  EXPECT_EQ(fs::hard_link_count(last / small_file_name(0)), 3u);
  EXPECT_TRUE(has_chain(last, chain));

  damage(last / small_file_name(1));
  EXPECT_FALSE(has_chain(last, chain));
  EXPECT_THAT(failure_of(last),
              AllOf(HasSubstr((last / small_file_name(1)).string()), HasSubstr("damaged"),
                    HasSubstr("without that damage is " + first.string())));
  damage(last / small_file_name(0));
  EXPECT_THAT(failure_of(last),
              AllOf(HasSubstr("no checkpoint before it is without"), HasSubstr("deltas=0")));

  chain.clear();
  save(out, 4, chain);
  damage(out / "checkpoint-0000000004" / small_file_name(0));
  EXPECT_FALSE(has_chain(last, {{.name = "absent", .mark = {}, .sum = 0}}));
}

TEST(SmallFiles, LoadingSaysWhatBecameOfTheOptimisersState) {
  for (const auto optimizer :
       {SavedOptimizer::kExact, SavedOptimizer::kHalf, SavedOptimizer::kNone}) {
    const TemporaryFolder out;
    std::vector<SmallChainFile> chain;
    save(out, 1, chain, optimizer);
    const Checkpoint loaded = load(out.path());
    EXPECT_EQ(loaded.saved_optimizer, optimizer);
    EXPECT_EQ(loaded.optimizer.empty(), optimizer == SavedOptimizer::kNone);
  }
}

TEST(SmallFiles, ExpandedWeightsDoNotHideCheckpoints) {
  const TemporaryFolder out;
  std::vector<SmallChainFile> chain;
  save(out, 1, chain);
  const fs::path checkpoint = out / "checkpoint-0000000001";
  for (const fs::path& place : {out.path(), checkpoint}) {
    const std::string to = (place / "model.safetensors").string();
    try {
      expand_checkpoint(out.path().string(), to);
      ADD_FAILURE() << to;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kBadOption);
      EXPECT_THAT(error.what(), AllOf(HasSubstr(to), HasSubstr("weights.safetensors")));
    }
    EXPECT_FALSE(fs::exists(to));
    expand_checkpoint(out.path().string(), (place / "weights.safetensors").string());
  }
  const TemporaryFolder elsewhere;
  EXPECT_EQ(
      expand_checkpoint(out.path().string(), (elsewhere / "model.safetensors").string()).arrays,
      1u);
}

// A name that no file has is refused where readers would take the new file for one of theirs.
TEST(SmallFiles, OutputsTakeThePlaceOfNoSavedFile) {
  const TemporaryFolder out;
  std::vector<SmallChainFile> chain;
  save(out, 1, chain);
  const fs::path checkpoint = out / "checkpoint-0000000001";
  const auto refused = [](const fs::path& path, const std::string& words) {
    try {
      check_output(path.string(), Writing::kReplaces);
      ADD_FAILURE() << path;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kBadOption);
      EXPECT_THAT(error.what(), AllOf(HasSubstr(path.string() + ": "), HasSubstr(words)));
    }
  };
  for (const auto& file : fs::directory_iterator(checkpoint))
    refused(file.path(), "would take its place; choose another name or another folder");
  for (const char* name : {"optimizer.safetensors", "state-rank-0007-of-0008.safetensors"})
    refused(checkpoint / name, "of a file of the checkpoint in that folder");
  refused(checkpoint / "model-004.small", "would be read in the place of the checkpoint");
  for (const char* name : {"recipe.toml", "metrics.jsonl", "summary.json", "decisions.txt",
                           "log.txt", "events.out.tfevents.1.host", "checkpoint-0000000009"})
    refused(out / name, "of a file of the run in that folder");
  fs::create_directory(out / "signals");
  refused(out / "signals/step-00000001.safetensors", "of a file of the run in that folder");
  refused(checkpoint / ".." / "recipe.toml", "of a file of the run in that folder");
  fs::create_symlink(checkpoint / "progress.json", out / "page.html");
  refused(out / "page.html", "of a file of the checkpoint in that folder");

  for (const char* name : {"report.html", "influence.html", "weights.safetensors"}) {
    EXPECT_NO_THROW(check_output((out / name).string(), Writing::kReplaces));
    EXPECT_NO_THROW(check_output((checkpoint / name).string(), Writing::kReplaces));
  }
  const TemporaryFolder elsewhere;
  EXPECT_NO_THROW(check_output((elsewhere / "model.safetensors").string(), Writing::kReplaces));
  const std::string own = (elsewhere / "weights.safetensors").string();
  expand_checkpoint(out.path().string(), own);
  EXPECT_NO_THROW(check_output(own, Writing::kReplaces));  // of an earlier call
  try {
    expand_checkpoint(own, own);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("is the file that is read"));
  }
}

}  // namespace
}  // namespace thinwire
