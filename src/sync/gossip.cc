// gossip: stochastic gradient push [SGP: Assran et al., ICML 2019, arXiv 1811.10792].
//
// Worker i has a numerator x and a weight p, at first 1; z = x / p is what it trains. Local steps
// change x by what they change z by. Every tau steps, with s = 1 / (1 + number of peers it sends
// to):
//
//   x <- s x + sum over senders of s' x',   p <- s p + sum over senders of s' p',   z <- x / p
//
// Sums of x and of p over all workers stay what they are. Where all receive from as many as they
// send to, p stays 1, is not sent, and x = z is not kept.
//
// A message: one frame of the values x, then p where the graph needs it, unscaled: the receiver
// knows s'. No agreement among all ranks follows, a round ends when one's own messages have come; a
// message that is no good therefore ends the run, since its share of the sums would be lost.
//
// REQUIRES a lossless codec: peers change, so there is nothing that a difference could refer to.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>

#include "core/check.h"
#include "stream/coded_stream.h"
#include "stream/frame_check.h"
#include "sync/peer_graph.h"
#include "sync/sync_rules.h"
#include "thinwire/frame.h"

namespace thinwire {
namespace {

constexpr int kTag = 0;

struct GossipRule {
  uint64_t period = 1;
  PeerGraph graph = PeerGraph::kOnePeer;
};

class Gossip final : public SyncRule {
 public:
  Gossip(const SyncSetup& setup, const GossipRule& rule)
      : SyncRule(setup, "gossip",
                 {{"pushed",
                   is_regular(rule.graph) ? AlignedVector<float>() : with_weight(setup.start)}}),
        rule_(rule),
        pushed_(memory().vector("pushed")),
        stream_(spec_of(setup, !pushed_.empty()), codec_of(setup.options), "none"),
        values_(stream_.spec().count()),
        mine_(kFrameHeaderSize + stream_.codec().max_encoded_size(stream_.spec())) {}

 private:
  static StreamCodec codec_of(const SynchroniserOptions& options) {
    NamedCodec named = std::move(make_codec(options.codec).value());
    return {.codec = std::move(named.codec), .text = named.canonical};
  }

  static StreamSpec spec_of(const SyncSetup& setup, bool with_weight) {
    StreamSpec spec{.name = "gossip", .tensors = setup.tensors};
    if (with_weight) spec.tensors.push_back({.name = "push-sum weight", .shape = {1}});
    return spec;
  }

  static AlignedVector<float> with_weight(std::span<const float> start) {
    AlignedVector<float> pushed = copy_of(start);
    pushed.push_back(1);
    return pushed;
  }

  std::optional<RoundReport> step(std::span<float> parameters, double /*loss*/) override {
    if (channel().size() == 1 || !every(rule_.period)) return std::nullopt;
    const auto since = std::chrono::steady_clock::now();
    RoundReport report;
    report.round = memory().rounds;
    report.step = memory().steps;
    report.values = count();
    report.payload_bytes = mine_.size() - kFrameHeaderSize;
    const uint64_t sent = channel().bytes_sent(), received = channel().bytes_received();
    take_in(parameters);
    push(report.round);
    hand_out(parameters);
    report.sent_bytes = channel().bytes_sent() - sent;
    report.received_bytes = channel().bytes_received() - received;
    report.seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - since).count();
    end_round(report);
    return report;
  }

  // values_ = (x, p), with what local steps did to z since the last round.
  void take_in(std::span<const float> z) {
    if (pushed_.empty()) {
      std::copy(z.begin(), z.end(), values_.begin());
      return;
    }
    const float p = pushed_.back();
    for (size_t i = 0; i < z.size(); ++i) values_[i] = pushed_[i] + (z[i] - pushed_[i] / p);
    values_.back() = p;
  }

  void hand_out(std::span<float> z) {
    if (pushed_.empty()) {
      std::copy(values_.begin(), values_.end(), z.begin());
      return;
    }
    std::copy(values_.begin(), values_.end(), pushed_.begin());
    for (size_t i = 0; i < z.size(); ++i) z[i] = pushed_[i] / pushed_.back();
  }

  // Replaces values_ by the shares of this rank and of its senders, added in rank order after its
  // own.
  void push(uint64_t round) {
    const auto peers = [&](int rank) {
      return peers_of(rule_.graph, rank, channel().size(), round, options().seed);
    };
    const std::vector<int> senders =
        senders_to(rule_.graph, channel().rank(), channel().size(), round, options().seed);
    const std::vector<int> receivers = peers(channel().rank());
    write(round);
    if (theirs_.size() < senders.size()) theirs_.resize(senders.size());
    std::vector<std::unique_ptr<Transfer>> transfers;
    for (size_t i = 0; i < senders.size(); ++i) {
      theirs_[i].resize(mine_.size());
      transfers.push_back(channel().receive(theirs_[i], senders[i], kTag));
    }
    for (const int peer : receivers) transfers.push_back(channel().send(mine_, peer, kTag));
    channel().wait(transfers);

    const auto share = [](size_t peer_count) { return 1.0f / static_cast<float>(1 + peer_count); };
    for (float& value : values_) value *= share(receivers.size());
    for (size_t i = 0; i < senders.size(); ++i)
      add(theirs_[i], round, senders[i], share(peers(senders[i]).size()));
  }

  FrameHeader header(uint64_t round, int sender) const {
    FrameHeader made;
    made.codec = stream_.codec().info().id;
    made.sender = static_cast<uint16_t>(sender);
    made.generation = options().generation;
    made.step = round;
    made.count = values_.size();
    return made;
  }

  void write(uint64_t round) {
    FrameHeader made = header(round, channel().rank());
    const Call call{.seed = options().seed, .step = round, .salt = made.sender};
    const Signal& signal = stream_.form(values_, call);
    if (!stream_.finite())
      throw Error(ErrorCode::kNonFinite, "gossip: rank " + std::to_string(channel().rank()) +
                                             " has a NaN or Inf in round " + std::to_string(round));
    made.payload_size =
        stream_
            .encode(stream_.encoder(), signal, 0, call, std::span(mine_).subspan(kFrameHeaderSize))
            .size;
    stream_.commit();
    seal_frame(made, mine_);
  }

  void add(std::span<const std::byte> message, uint64_t round, int sender, float weight) {
    const auto corrupt = [&](const std::string& why) {
      return Error(ErrorCode::kCorrupt, "gossip: the message of rank " + std::to_string(sender) +
                                            " in round " + std::to_string(round) +
                                            " is corrupt: " + why);
    };
    Result<Frame> read = read_frame(message);
    if (!read) throw corrupt(read.status().message());
    const FrameHeader& got = read.value().header;
    if (const char* what = frame_difference(got, header(round, sender)); what != nullptr)
      throw corrupt(std::string("another ") + what + " than expected");
    if (got.flags != 0) throw corrupt("it is flagged as not finite");
    if (const Status status = stream_.decoder().decode_add(read.value().payload, weight, values_);
        !status)
      throw corrupt(status.message());
  }

  const GossipRule rule_;
  AlignedVector<float>& pushed_;  // x and p; empty: p is 1
  CodedStream stream_;
  AlignedVector<float> values_;
  std::vector<std::byte> mine_;
  std::vector<std::vector<std::byte>> theirs_;
};

}  // namespace

const SyncRuleEntry& gossip_entry() {
  static const SyncRuleEntry entry{
      .info = {.name = "gossip",
               .summary = "workers push shares of their parameters to peers that change",
               .paper = "Assran et al., ICML 2019",
               .options = {period_row("1"),
                           {.name = "graph",
                            .type = OptionType::kChoice,
                            .fallback = "one-peer",
                            .choices = graph_names(),
                            .help = "who sends to whom"}}},
      .make =
          [](const Options& options, const SyncSetup& setup) {
            return std::make_unique<Gossip>(
                setup, GossipRule{.period = static_cast<uint64_t>(options.integer("tau")),
                                  .graph = graph_named(options.text("graph"))});
          },
      .scheduled = false,
      .lossless = true};
  return entry;
}

}  // namespace thinwire
