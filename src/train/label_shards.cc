// Draws Dirichlet shares of classes, and a worker's endless order of its shard.
// SPDX-License-Identifier: Apache-2.0
#include "train/label_shards.h"

#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "core/random.h"
#include "train/run_device.h"

namespace thinwire {
namespace {

// Of the shuffle's sequences: the whole data set's order has stream 0, that of rank r has 1 + r.
constexpr uint32_t kDrawStream = 0xffff;

const std::vector<OptionInfo>& shard_options() {
  static const std::vector<OptionInfo> rows = {
      {.name = "alpha",
       .type = OptionType::kNumber,
       .fallback = "0.5",
       .min = 1e-3,
       .max = 1e6,
       .help = "small: a class is with few workers; large: all have about as much"}};
  return rows;
}

// The logarithm of a Gamma(alpha) variate [Marsaglia and Tsang, 2000]; small alphas give values
// that only their logarithms can be told apart by. Draw k uses words 4k .. 4k + 3.
double log_gamma_draw(double alpha, const RandomKey& key) {
  const bool boosted = alpha < 1;
  const double d = (boosted ? alpha + 1 : alpha) - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  for (uint64_t k = 0;; ++k) {
    const auto unit = [&](uint64_t word) {
      return (static_cast<double>(random_word(key, 4 * k + word)) + 0.5) * 0x1p-32;
    };
    const auto x = static_cast<double>(random_normal(key, 2 * k));
    const double v = std::pow(1 + c * x, 3);
    if (v <= 0 || std::log(unit(2)) >= x * x / 2 + d - d * v + d * std::log(v)) continue;
    return std::log(d * v) + (boosted ? std::log(unit(3)) / alpha : 0);
  }
}

// Shares of one class, whose sum is 1.
std::vector<double> draw_shares(int workers, double alpha, uint64_t seed, uint64_t number) {
  std::vector<double> shares;
  for (int worker = 0; worker < workers; ++worker) {
    const uint64_t step = number * static_cast<uint64_t>(workers) + static_cast<uint64_t>(worker);
    shares.push_back(log_gamma_draw(
        alpha, {.seed = seed, .use = RandomUse::kShuffle, .step = step, .stream = kDrawStream}));
  }
  const double largest = *std::max_element(shares.begin(), shares.end());
  double sum = 0;
  for (double& share : shares) sum += share = std::exp(share - largest);
  for (double& share : shares) share /= sum;
  return shares;
}

std::vector<int64_t> read_labels(const Dataset& data) {
  constexpr uint64_t kAtOnce = 1000;
  std::vector<int64_t> labels;
  for (uint64_t first = 0; first < data.size(); first += kAtOnce) {
    std::vector<uint64_t> ids(std::min(kAtOnce, data.size() - first));
    std::iota(ids.begin(), ids.end(), first);
    const torch::Tensor targets = moved(data.fetch(ids, {}).targets, torch::kCPU);
    if (targets.dim() != 1 || targets.scalar_type() != torch::kInt64)
      throw Error(ErrorCode::kBadOption, "data.shards: samples have not one label each");
    labels.insert(labels.end(), targets.const_data_ptr<int64_t>(),
                  targets.const_data_ptr<int64_t>() + targets.numel());
  }
  return labels;
}

}  // namespace

double shard_alpha(const std::string& text) {
  const SpecText spec = parse_spec("shards", text).value();
  if (spec.name != "dirichlet")
    throw Error(ErrorCode::kUnknownName, "unknown shards '" + spec.name + "'; known: dirichlet");
  return parse_options("shards 'dirichlet'", shard_options(), spec.settings)
      .value()
      .number("alpha");
}

std::vector<std::vector<uint64_t>> dirichlet_shards(std::span<const int64_t> labels, int workers,
                                                    double alpha, uint64_t seed) {
  std::map<int64_t, std::vector<uint64_t>> classes;
  for (uint64_t id = 0; id < labels.size(); ++id) classes[labels[id]].push_back(id);
  std::vector<std::vector<uint64_t>> shards(static_cast<size_t>(workers));
  uint64_t number = 0;
  for (const auto& [label, ids] : classes) {
    const auto shares = draw_shares(workers, alpha, seed, number++);
    double cumulated = 0;
    size_t begin = 0;
    for (size_t worker = 0; worker < shards.size(); ++worker) {
      cumulated += shares[worker];
      const bool last = worker + 1 == shards.size();
      const auto end =
          last ? ids.size()
               : std::min(ids.size(), static_cast<size_t>(std::llround(
                                          cumulated * static_cast<double>(ids.size()))));
      shards[worker].insert(shards[worker].end(), ids.begin() + static_cast<std::ptrdiff_t>(begin),
                            ids.begin() + static_cast<std::ptrdiff_t>(std::max(begin, end)));
      begin = std::max(begin, end);
    }
  }
  return shards;
}

std::vector<uint64_t> own_shard(Group& group, const Dataset& data, double alpha, uint64_t seed) {
  std::vector<int64_t> labels(data.size());
  together(group, [&] {
    if (group.rank() == 0) labels = read_labels(data);
  });
  group.broadcast(std::as_writable_bytes(std::span(labels)), 0);
  auto shards = dirichlet_shards(labels, group.size(), alpha, seed);
  for (size_t worker = 0; worker < shards.size(); ++worker)
    if (shards[worker].empty())
      throw AgreedError(ErrorCode::kBadOption, "data.shards: worker " + std::to_string(worker) +
                                                   " is left without samples; choose a larger "
                                                   "alpha or another seed");
  return std::move(shards[static_cast<size_t>(group.rank())]);
}

ShardSampler::ShardSampler(const Timetable& timetable, std::vector<uint64_t> shard, uint64_t rank,
                           uint64_t ranks, uint64_t seed)
    : timetable_(timetable), shard_(std::move(shard)), rank_(rank), ranks_(ranks), seed_(seed) {}

// All batches of an epoch are alike but the last.
uint64_t ShardSampler::taken_before(uint64_t step) const {
  const auto part = [&](uint64_t of) { return timetable_.batch_of(of).part(rank_, ranks_).size; };
  const uint64_t in_epoch = timetable_.steps_per_epoch;
  const uint64_t each = part(0);
  const uint64_t whole = (in_epoch - 1) * each + part(in_epoch - 1);
  return step / in_epoch * whole + step % in_epoch * each;
}

std::span<const uint64_t> ShardSampler::ids(uint64_t step) {
  const uint64_t first = taken_before(step);
  ids_.resize(timetable_.batch_of(step).part(rank_, ranks_).size);
  for (uint64_t i = 0; i < ids_.size(); ++i) {
    const uint64_t round = (first + i) / shard_.size();
    if (round != round_) {
      order_ = random_permutation({.seed = seed_,
                                   .use = RandomUse::kShuffle,
                                   .step = round,
                                   .stream = static_cast<uint32_t>(1 + rank_)},
                                  shard_.size());
      round_ = round;
    }
    ids_[i] = shard_[order_[(first + i) % shard_.size()]];
  }
  return ids_;
}

}  // namespace thinwire
