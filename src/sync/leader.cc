// leader: workers are pulled to the best of their group, and to the best of all [LSGD: Teng et al.,
// NeurIPS 2019, arXiv 1905.10395].
//
//   every tau steps:         x <- (1 - pull) x + pull z,          z: the best of this worker's group
//   every tau_global steps:  x <- (1 - pull_global) x + pull_global z,     z: the best of all workers
//
// in this order where both fall on one step; the paper's lambda and lambda_G are pull and pull_global,
// per communication, not times the learning rate. Best is who has the lowest mean of its last `window`
// losses, the lowest rank of equals. A leader is not pulled to itself, so it stays as it is, bit for
// bit; the best of all is the best of its group too.
//
// With one group, or tau = tau_global, there are global pulls only, as in the authors' code. One
// worker has nobody to be pulled to: it is SGD.
//
// A round, n ranks in the circle that talks (all, or one group): n - 1 losses of 8 bytes to each other,
// a frame to everybody but its leader, ceil(log2 n) words of 8 bytes to agree whether it counts.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <limits>

#include "kernel/memory_passes.h"
#include "sync/loss_window.h"
#include "sync/sync_rules.h"
#include "sync/weight_broadcast.h"
#include "sync/worker_groups.h"

namespace thinwire {
namespace {

struct LeaderRule {
  uint64_t tau = 1;
  uint64_t tau_global = 1;
  float pull = 0;
  float pull_global = 0;
  int groups = 1;
  size_t window = 1;
};

// x <- (1 - strength) x + strength z.
void pull_to(std::span<const float> z, float strength, std::span<float> x) {
  if (strength == 1)  // also where x is not finite
    std::copy(z.begin(), z.end(), x.begin());
  else
    kernel::weighted_sum(1 - strength, x, strength, z, x);
}

class Leader final : public SyncRule {
 public:
  Leader(const SyncSetup& setup, const LeaderRule& rule)
      : SyncRule(setup, "leader", {},
                 {{.name = "losses", .values = std::vector<double>(rule.window)},
                  {.name = "losses_seen", .values = {0}}}),
        rule_(rule),
        window_(memory().numbers("losses"), memory().numbers("losses_seen")),
        local_(setup.store, "leader/local", 0, setup.tensors, setup.start, setup.options),
        global_(setup.store, "leader/global", 1, setup.tensors, setup.start, setup.options) {}

 private:
  std::string shared_memory() const override {
    return std::to_string(global_.reference_checksum());
  }

  void join() override {
    groups_.emplace(channel(), WorkerGroups::neighbours(channel().rank(), channel().size(),
                                                        rule_.groups));
  }

  std::optional<RoundReport> step(std::span<float> parameters, double loss) override {
    window_.add(loss);
    const bool global = every(rule_.tau_global);
    const bool local = groups_->count() > 1 && rule_.tau != rule_.tau_global && every(rule_.tau);
    if (channel().size() == 1 || !(local || global)) return std::nullopt;
    const bool in_group = local && groups_->own().size() > 1;
    if (!in_group && !global) {  // other groups have a round, which all count
      end_round({});
      return std::nullopt;
    }
    RoundReport report = hold(parameters, in_group, global);
    end_round(report);
    return report;
  }

  RoundReport hold(std::span<float> parameters, bool local, bool global) {
    const auto since = std::chrono::steady_clock::now();
    Group& circle = global ? channel() : groups_->own();
    RoundReport report;
    report.round = memory().rounds;
    report.step = memory().steps;
    report.global = global;
    const uint64_t sent = bytes_sent(), received = bytes_received();
    choose(parameters, circle, report);
    const int own_leader = report.leaders[global ? static_cast<size_t>(groups_->index()) : 0];
    const int best = report.leader;

    FaultLog faults;
    local = local && own_leader >= 0;
    if (local)
      local_.send(report.round, own_leader, of(own_leader, parameters),
                  groups_->route_in_group(own_leader), faults);
    global = global && best >= 0;
    if (global)
      global_.send(report.round, best, of(best, parameters), groups_->route_to_all(best), faults);
    const Verdict verdict = unpack_verdict(circle.max(faults.word()));

    settle(verdict, report, local || global);
    for (const auto& [broadcast, leader, strength, took_part] :
         {Pull{&local_, own_leader, rule_.pull, local},
          Pull{&global_, best, rule_.pull_global, global}}) {
      if (!took_part) continue;
      report.values += count();
      report.payload_bytes += broadcast->payload_bytes();
      if (report.skipped) {
        broadcast->rollback();
        continue;
      }
      if (leader != channel().rank()) pull_to(broadcast->weights(), strength, parameters);
      broadcast->commit();
    }
    report.sent_bytes = bytes_sent() - sent;
    report.received_bytes = bytes_received() - received;
    report.seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - since).count();
    return report;
  }

  struct Pull {
    WeightBroadcast* broadcast;
    int leader;
    float strength;
    bool took_part;
  };

  // Losses from everybody in the circle, and who leads; all there come to the same.
  void choose(std::span<const float> parameters, Group& circle, RoundReport& report) {
    const double mine = measure(parameters).finite ? window_.mean()
                                                   : std::numeric_limits<double>::infinity();
    report.losses.resize(static_cast<size_t>(circle.size()));
    circle.all_gather(std::as_bytes(std::span(&mine, 1)),
                      std::as_writable_bytes(std::span(report.losses)));
    const std::span<const double> losses = report.losses;
    if (!report.global) {
      const int best = find_leader(losses);
      const auto members = groups_->members(groups_->index());
      report.leaders = {best < 0 ? -1 : members[static_cast<size_t>(best)]};
      return;
    }
    report.leader = find_leader(losses);
    for (int group = 0; group < groups_->count(); ++group) {
      std::vector<double> theirs;
      for (const int rank : groups_->members(group))
        theirs.push_back(losses[static_cast<size_t>(rank)]);
      const int best = find_leader(theirs);
      report.leaders.push_back(
          best < 0 ? -1 : groups_->members(group)[static_cast<size_t>(best)]);
    }
  }

  void settle(const Verdict& verdict, RoundReport& report, bool anybody_leads) {
    report.skipped = verdict.code != ErrorCode::kOk || !anybody_leads;
    if (verdict.code != ErrorCode::kOk)
      report.fault = {.code = verdict.code,
                      .rank = verdict.rank,
                      .stream = (verdict.stream == 0 ? local_ : global_).name()};
    else if (!anybody_leads)
      report.fault = {.code = ErrorCode::kNonFinite, .rank = -1, .stream = "losses"};
  }

  std::span<const float> of(int leader, std::span<const float> parameters) {
    return leader == channel().rank() ? parameters : std::span<const float>();
  }

  uint64_t bytes_sent() { return channel().bytes_sent() + groups_->bytes_sent(); }
  uint64_t bytes_received() { return channel().bytes_received() + groups_->bytes_received(); }

  const LeaderRule rule_;
  LossWindow window_;
  WeightBroadcast local_;
  WeightBroadcast global_;
  std::optional<WorkerGroups> groups_;
};

OptionInfo strength_row(std::string_view name, std::string_view help) {
  return {.name = name,
          .type = OptionType::kNumber,
          .fallback = "0.1",
          .min = 0,
          .max = 1,
          .unit = "fraction",
          .help = help};
}

std::unique_ptr<SyncRule> make_leader(const Options& options, const SyncSetup& setup) {
  const LeaderRule rule{.tau = static_cast<uint64_t>(options.integer("tau")),
                        .tau_global = static_cast<uint64_t>(options.integer("tau_global")),
                        .pull = static_cast<float>(options.number("pull")),
                        .pull_global = static_cast<float>(options.number("pull_global")),
                        .groups = static_cast<int>(options.integer("groups")),
                        .window = static_cast<size_t>(options.integer("window"))};
  if (rule.tau_global % rule.tau != 0)
    throw Error(ErrorCode::kBadOption,
                "synchroniser 'leader': tau_global must be a multiple of tau, but is " +
                    std::to_string(rule.tau_global) + " at a tau of " + std::to_string(rule.tau));
  if (rule.groups > setup.group.size())
    throw Error(ErrorCode::kBadOption, "synchroniser 'leader': " + std::to_string(rule.groups) +
                                           " groups among " + std::to_string(setup.group.size()) +
                                           " ranks");
  return std::make_unique<Leader>(setup, rule);
}

}  // namespace

const SyncRuleEntry& leader_entry() {
  static const SyncRuleEntry entry{
      .info = {.name = "leader",
               .summary = "workers are pulled to the best of their group and of all",
               .paper = "Teng et al., NeurIPS 2019",
               .options = {period_row("64"),
                           {.name = "tau_global",
                            .type = OptionType::kInteger,
                            .fallback = "128",
                            .min = 1,
                            .max = 0x1p53,
                            .unit = "steps",
                            .help = "between two pulls to the best of all; a multiple of tau"},
                           strength_row("pull", "to the best of the group (lambda)"),
                           strength_row("pull_global", "to the best of all (lambda_G)"),
                           {.name = "groups",
                            .type = OptionType::kInteger,
                            .fallback = "1",
                            .min = 1,
                            .max = 65534,
                            .help = "of neighbouring ranks"},
                           {.name = "window",
                            .type = OptionType::kInteger,
                            .fallback = "10",
                            .min = 1,
                            .max = 1e6,
                            .unit = "losses",
                            .help = "whose mean judges a worker"}}},
      .make = make_leader};
  return entry;
}

}  // namespace thinwire
