// leader: workers are pulled to the best of their group and to the best of all [LSGD: Teng et
// al., NeurIPS 2019, arXiv 1905.10395].
//
//   every tau steps:         x <- (1 - pull) x + pull z,
//                            z: the best of this worker's group
//   every tau_global steps:  x <- (1 - pull_global) x + pull_global z,
//                            z: the best of all workers
//
// in this order where both fall on one step; the paper's lambda and lambda_G are pull and
// pull_global, per communication, not times the learning rate. Best is who has the lowest mean of
// its last `window` losses, the lowest rank of equals. A leader is not pulled to itself, so it
// stays as it is, bit for bit; the best of all is the best of its group too.
//
// With one group, or tau = tau_global, there are global pulls only, as in the authors' code. One
// worker has nobody to be pulled to: it is SGD.
//
// With prox p > 0 each step, before its round if it has one, is followed by a small pull to the
// last leader's weights as they were in its round, from the first round on:
//
//   x <- (1 - p_global / tau_global) x + p_global / tau_global z_last,
//   z_last: the last leader of all
//   x <- (1 - p / tau) x + p / tau z_last,
//   z_last: that of this group
//
// in this order, which is that of the authors' later code and not that of the rounds above. Each
// takes 4 bytes of memory per value.
//
// Asynchronous, all workers count together: a round is called when they took n tau steps more,
// wherever each of them is, and a worker comes to it after its next step. Nobody waits but in
// rounds. Who is late is waited for, or, with a patience, left behind: then a round is held by
// those who came, and one that breaks down because a worker does is skipped by those who notice or
// hear of it.
//
// A round, n ranks in the circle that talks (all, or one group): n - 1 losses to each other, a
// frame to everybody but its leader, ceil(log2 n) words to agree whether it counts. Losses and
// words are 16 bytes, checksum included: a damaged frame has all skip the round, but who reads a
// damaged loss would follow another leader and who reads a damaged word would skip alone, so that
// these end the run.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <chrono>
#include <limits>

#include "comm/sealed_words.h"
#include "kernel/memory_passes.h"
#include "sync/host_name.h"
#include "sync/leader_rule.h"
#include "sync/loss_window.h"
#include "sync/pace.h"
#include "sync/sync_rules.h"
#include "sync/weight_broadcast.h"
#include "sync/worker_groups.h"
#include "thinwire/survived.h"

namespace thinwire {
namespace {

// x <- (1 - strength) x + strength z.
void pull_to(std::span<const float> z, float strength, std::span<float> x) {
  if (strength == 1)  // also where x is not finite
    std::copy(z.begin(), z.end(), x.begin());
  else
    kernel::weighted_sum(1 - strength, x, strength, z, x);
}

constexpr const char* kLast[] = {"last_local_leader", "last_global_leader"};

class Leader final : public SyncRule {
 public:
  Leader(const SyncSetup& setup, const LeaderRule& rule)
      : SyncRule(setup, "leader", last_leaders(setup, rule),
                 {{.name = "known", .values = {0, 0}},
                  {.name = "losses", .values = std::vector<double>(rule.window)},
                  {.name = "losses_seen", .values = {0}}}),
        rule_(rule),
        window_(memory().numbers("losses"), memory().numbers("losses_seen")),
        local_(setup.store, "leader/local", 0, setup.tensors, setup.start, setup.options),
        global_(setup.store, "leader/global", 1, setup.tensors, setup.start, setup.options) {}

 private:
  // Memory for those that a worker is pulled to between rounds.
  static std::vector<SyncMemory::Vector> last_leaders(const SyncSetup& setup,
                                                      const LeaderRule& rule) {
    std::vector<SyncMemory::Vector> vectors;
    if (rule.prox > 0) vectors.push_back({kLast[0], copy_of(setup.start)});
    if (rule.prox_global > 0) vectors.push_back({kLast[1], copy_of(setup.start)});
    return vectors;
  }

  // Asynchronous workers that left before others have older references, until join.
  std::string shared_memory() const override {
    return rule_.asynchronous ? "" : std::to_string(global_.reference_checksum());
  }

  // Workers that count for themselves need not have counted alike.
  bool counts_alike() const override { return !rule_.asynchronous; }

  void join() override {
    const int n = channel().size();
    colours_ = rule_.groups > 0 ? neighbour_colours(n, rule_.groups)
                                : host_colours(channel(), host_name(options().host));
    groups_.emplace(channel(), colours_);
    has_local_ = groups_->count() > 1 && rule_.tau != rule_.tau_global;
    period_ = has_local_ ? rule_.tau : rule_.tau_global;
    align_references();
    if (!rule_.asynchronous) {
      pace_ = make_steady_pace(period_, n);
      return;
    }
    if (rule_.patience >= channel().deadline())
      throw AgreedError(ErrorCode::kBadOption,
                        "synchroniser 'leader': patience must be below the group's deadline");
    rounds_before_ = channel().max(memory().rounds);
    if (options().recorded)
      pace_ = make_recorded_pace(*options().recorded);
    else
      pace_ = make_counted_pace(channel(), period_, rule_.patience);
  }

  // Of a resumed run, in which some workers may have left early, and groups may be others.
  void align_references() {
    if (rule_.asynchronous) global_.align(channel(), memory().rounds);
    const bool has_rounds = has_local_ && groups_->own().size() > 1;
    if (!has_rounds || local_.align(groups_->own(), memory().rounds))
      memory().numbers("known")[0] = 0;  // the last leader was another group's
  }

  std::optional<RoundReport> step(std::span<float> parameters, double loss) override {
    window_.add(loss);
    if (channel().size() == 1) return std::nullopt;
    pull_to_last(1, rule_.prox_global / static_cast<float>(rule_.tau_global), parameters);
    pull_to_last(0, rule_.prox / static_cast<float>(rule_.tau), parameters);
    const auto call = pace_->after_step(memory().steps);
    if (!call) return std::nullopt;
    const bool recorded = options().recorded.has_value();
    const uint64_t number = call->number + (recorded ? 0 : rounds_before_);
    if (!rule_.asynchronous) return meet(parameters, *groups_, number);
    salvage_.sweep(number);
    WorkerGroups present(channel(), colours_, call->ranks, number,
                         rule_.patience.count() > 0 ? &salvage_ : nullptr);
    return meet(parameters, present, number);
  }

  uint64_t asynchronous_period() const noexcept override {
    return rule_.asynchronous ? period_ : 0;
  }

  std::vector<int> leave() override {
    if (!rule_.asynchronous || channel().size() == 1) return {};
    left_ = pace_->leave();
    return left_;
  }
  std::vector<int> remaining() const override {
    return std::ssize(left_) < channel().size() ? left_ : std::vector<int>();
  }
  // Rank 0 takes the desk with it.
  bool is_survived() const override {
    return rule_.patience.count() > 0 && channel().rank() != 0 && !options().recorded;
  }
  bool fail(std::string_view why) noexcept override {
    try {
      return is_survived() && pace_->fail(why);
    } catch (...) {  // there is nobody to tell
      return false;
    }
  }
  std::vector<LostWorker> lost() const override {
    return pace_ ? pace_->lost() : std::vector<LostWorker>();
  }
  std::span<const float> led_by() const override { return global_.weights(); }

  // Round `number` with those of `groups`.
  std::optional<RoundReport> meet(std::span<float> parameters, WorkerGroups& groups,
                                  uint64_t number) {
    memory().rounds = number - 1;  // a round that was held without this worker counts
    const bool global = number * period_ % rule_.tau_global == 0;
    const bool in_group = has_local_ && groups.own().size() > 1;
    const bool alone = !in_group && !global;  // other groups have a round, which all count
    if (alone && !rule_.asynchronous) {
      end_round({});
      return std::nullopt;
    }
    RoundReport report;
    report.round = memory().rounds;
    report.step = memory().steps;
    report.global = global;
    const auto ranks = global ? groups.ranks() : groups.members(groups.index());
    report.ranks.assign(ranks.begin(), ranks.end());
    const auto since = std::chrono::steady_clock::now();
    const uint64_t sent = groups.bytes_sent(), received = groups.bytes_received(),
                   between = groups.bytes_between();
    if (!alone) hold_or_skip(parameters, groups, in_group, report);
    report.sent_bytes = groups.bytes_sent() - sent;
    report.received_bytes = groups.bytes_received() - received;
    report.between_bytes = groups.bytes_between() - between;
    report.seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - since).count();
    end_round(report);
    return report;
  }

  // With a patience the loss of a worker is no error of the others.
  void hold_or_skip(std::span<float> parameters, WorkerGroups& groups, bool local,
                    RoundReport& report) {
    try {
      hold(parameters, groups, local, report);
    } catch (const SurvivedError&) {
      throw;
    } catch (const Error& error) {
      const bool lost = error.code() == ErrorCode::kPeerLost || error.code() == ErrorCode::kTimeout;
      if (rule_.patience.count() == 0 || !lost) throw;
      report.skipped = true;
      report.fault = {.code = error.code(), .rank = -1, .stream = error.what()};
      local_.rollback();
      global_.rollback();
    }
  }

  void hold(std::span<float> parameters, WorkerGroups& groups, bool local, RoundReport& report) {
    Group& circle = report.global ? groups.all() : groups.own();
    choose(parameters, groups, circle, report);
    const int own_leader = report.leaders[report.global ? static_cast<size_t>(groups.index()) : 0];
    const int best = report.leader;

    FaultLog faults;
    local = local && own_leader >= 0;
    if (local)
      local_.send(report.round, own_leader, of(own_leader, parameters),
                  groups.route_in_group(own_leader), faults);
    const bool global = report.global && best >= 0;
    if (global)
      global_.send(report.round, best, of(best, parameters), groups.route_to_all(best), faults);
    const Verdict verdict = unpack_verdict(max_sealed(circle, faults.word(), report.round));

    conclude(verdict, report, local || global);
    if (local) end_pull(0, own_leader, parameters, report);
    if (global) end_pull(1, best, parameters, report);
  }

  void remember(size_t which, std::span<const float> weights) {
    std::copy(weights.begin(), weights.end(), memory().vector(kLast[which]).begin());
    memory().numbers("known")[which] = 1;
  }

  void pull_to_last(size_t which, float strength, std::span<float> parameters) {
    if (strength > 0 && memory().numbers("known")[which] != 0)
      pull_to(memory().vector(kLast[which]), strength, parameters);
  }

  // Of the group's leader, 0, or that of all, 1.
  void end_pull(size_t which, int leader, std::span<float> parameters, RoundReport& report) {
    WeightBroadcast& broadcast = which == 0 ? local_ : global_;
    report.values += count();
    report.payload_bytes += broadcast.payload_bytes();
    if (report.skipped) return broadcast.rollback();
    if (leader != channel().rank())
      pull_to(broadcast.weights(), which == 0 ? rule_.pull : rule_.pull_global, parameters);
    if ((which == 0 ? rule_.prox : rule_.prox_global) > 0) remember(which, broadcast.weights());
    broadcast.commit();
  }

  // Losses from everybody in the circle, and who leads; all there come to the same.
  void choose(std::span<const float> parameters, const WorkerGroups& groups, Group& circle,
              RoundReport& report) {
    const auto mine = std::bit_cast<uint64_t>(judge(parameters));
    for (const uint64_t loss : gather_sealed(circle, mine, report.round))
      report.losses.push_back(std::bit_cast<double>(loss));
    const int first = report.global ? 0 : groups.index();
    const int last = report.global ? groups.count() - 1 : first;
    for (int group = first; group <= last; ++group)
      report.leaders.push_back(best_of(groups.members(group), report));
    if (report.global) report.leader = best_of(report.ranks, report);
  }

  // What this worker is compared by.
  double judge(std::span<const float> parameters) {
    if (!measure(parameters).finite) return std::numeric_limits<double>::infinity();
    return options().judge ? options().judge(parameters) : window_.mean();
  }

  // The fittest of `among`, who are ranks of the report; -1 if none is fit.
  static int best_of(std::span<const int> among, const RoundReport& report) {
    std::vector<double> losses;
    for (const int rank : among) {
      const auto at = std::find(report.ranks.begin(), report.ranks.end(), rank);
      losses.push_back(report.losses[static_cast<size_t>(at - report.ranks.begin())]);
    }
    const int best = find_leader(losses);
    return best < 0 ? -1 : among[static_cast<size_t>(best)];
  }

  void conclude(const Verdict& verdict, RoundReport& report, bool anybody_leads) {
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

  const LeaderRule rule_;
  LossWindow window_;
  WeightBroadcast local_;
  WeightBroadcast global_;
  std::vector<int> colours_;
  std::optional<WorkerGroups> groups_;  // of all
  bool has_local_ = false;
  uint64_t period_ = 1;  // steps from round to round
  std::unique_ptr<Pace> pace_;
  Salvage salvage_{[this](std::span<const int> ranks) { return pace_->heard_lost(ranks); }};
  std::vector<int> left_;       // when this one did
  uint64_t rounds_before_ = 0;  // in the run that an asynchronous one continues
};

}  // namespace

const SyncRuleEntry& leader_entry() {
  static const SyncRuleEntry entry{
      .info = {.name = "leader",
               .summary = "workers are pulled to the best of their group and of all",
               .paper = "Teng et al., NeurIPS 2019",
               .options = leader_options(),
               .by_loss = true},
      .make =
          [](const Options& options, const SyncSetup& setup) {
            return std::make_unique<Leader>(setup, make_leader_rule(options, setup));
          },
      .check =
          [](const Options& options) {
            try {
              read_leader_rule(options);
            } catch (const Error& error) {
              return Status::fail(error.code(), error.what());
            }
            return Status::ok();
          },
      .scheduled = false};
  return entry;
}

}  // namespace thinwire
