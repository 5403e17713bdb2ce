// Plans: predict how long a training step takes with a codec over a link, and what limits it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "thinwire/exchange.h"
#include "thinwire/status.h"
#include "thinwire/stream.h"

namespace thinwire {

// The way from one machine to another, or from one rank of a machine to another. Each has one link
// of its own, over which it sends and receives at the same time.
struct LinkSpec {
  double bits_per_second = 0;  // of the network card, headers included; 0: no limit
  double latency_seconds = 0;  // one way

  // Bytes of messages: TCP, IP and Ethernet headers are 4.8 % at an MTU of 1500.
  double seconds_for(double bytes) const noexcept;
};

// "1gbit", "100mbit,20ms", "none". Fails with what a link may be.
Result<LinkSpec> parse_link(std::string_view text);

// "1 Gbit/s, 20 ms"; "no limit".
std::string to_string(const LinkSpec& link);

// A link that was measured.
struct ProbedLink : LinkSpec {
  bool at_least = false;  // the rate: time was over before messages told it
};

// Measures the links between the ranks of a group: each rank sends to another one while it receives
// from one, messages that grow until their bytes take longer than the latency. Ranks of one machine
// share its link to others then, and the rate is a rank's part of it. The latency and the rate are
// those of the slowest rank, the same on all ranks. A rate of 100 Gbit/s and more counts as no
// limit.
//
// It takes about `seconds`, half a second for messages of 10 Mbit/s. Over a link with latency the
// rate needs more: the probe ends after 16 times `seconds` then, or, if the link is `known` from
// before, after `seconds`. What is found by then is the least that the rate may be. The first
// messages, one of a byte and one of 16 KiB or more, are sent whatever the time. Called by all
// ranks with the same arguments; a single rank has no limit.
ProbedLink probe_link(Group& group, double seconds = 0.5,
                      const std::optional<LinkSpec>& known = std::nullopt);

// A rank's own arithmetic in one step, without any exchange. Seconds count from the step's start.
struct StepTimeline {
  std::vector<TensorSpec> tensors;
  std::vector<double> ready_seconds;  // when the gradient of each tensor is complete
  double backward_seconds = 0;        // when the backward pass ends
  double compute_seconds = 0;         // when the step ends, optimiser included

  size_t values() const noexcept;
};

// A timeline for a step of which only the length is known: a third is the forward pass, and the
// backward pass needs time in proportion to the values of each tensor, last tensor first.
StepTimeline assumed_timeline(std::vector<TensorSpec> tensors, double step_seconds);

// What a codec and its memory cost a rank, measured on one core of this machine. Encoding includes
// the memory and the frame, decoding adds one rank's payload to the mean.
struct CodecCost {
  double encode_seconds_per_value = 0;
  double decode_seconds_per_value = 0;
  double seconds_per_frame = 0;  // encoding and decoding a small frame, beyond its values
  double bytes_per_value = 0;    // of payload; a codec of fixed size is not predicted from it
  double bytes_per_frame = 0;
  double memory_bytes_per_value = 0;  // kept from step to step (Stateful::held_bytes)
};

// Costs by setting, what a byte of a message costs, and the processor on which they were measured.
// Fill it once and keep it in a file: a codec takes about a quarter of a second to measure.
class CostTable {
 public:
  // An empty table for this machine.
  CostTable();

  // The costs of the codec and memory of `options`, measured unless known. Throws the errors of
  // check_exchange, and those of schedules: a codec that changes over time has no one cost.
  const CodecCost& of(const ExchangeOptions& options);

  // measure_copies(), unless known; 0 where it measured nothing.
  double copies();

  void set(const ExchangeOptions& options, const CodecCost& cost);
  size_t size() const noexcept { return costs_.size() + copies_.has_value(); }  // of what is known
  const std::string& processor() const noexcept { return processor_; }

  // The table as text, a line per codec; from_text fails with the line that it cannot read.
  std::string to_text() const;
  static Result<CostTable> from_text(std::string_view text);

 private:
  std::string processor_;
  // By "codec with every option / memory", or that and " / without norms".
  std::map<std::string, CodecCost> costs_;
  std::optional<double> copies_;
};

// The file that keeps costs from run to run, ~/.cache/thinwire/costs.txt; empty if there is no such
// folder.
std::string usual_cost_file();

// The table in a file; an empty one if there is none, and if the usual file is of another
// processor.
Result<CostTable> read_costs(const std::string& path);
Status write_costs(const std::string& path, const CostTable& costs);

// Runs the exchange of one rank with these options on heavy-tailed values, and measures it.
CodecCost measure_codec(const ExchangeOptions& options);

// Seconds of one core for each byte that goes through a TCP connection of this machine to itself,
// sending and receiving together. What a network card costs is not in it. Nothing if the connection
// cannot be made, or fails.
std::optional<double> measure_copies();

// Consecutive ranks share a machine, and its link in proportion to what they send.
struct PlanRequest {
  int ranks = 2;
  LinkSpec link;         // between machines
  bool own_core = true;  // the exchange's thread has a core that the arithmetic does not use
  int per_machine = 1;   // ranks; 1: as many as ExchangeOptions::inside
  LinkSpec inside = {};  // of each rank, to the others of its machine
  // The exchange's thread needs so many times the seconds that costs say: by it a step that was
  // measured without a link counts what costs leave out, such as copies into and out of the system.
  // For predict_step alone.
  double thread_factor = 1;
  // Of the exchange's thread, for a byte that it sends between machines and one that it receives
  // (measure_copies); 0: not counted. For predict_step alone: rounds of leaders and messages at the
  // cuts of pipelines do not count it.
  double copy_seconds_per_byte = 0;
};

// kCoding: the exchange's thread, with what it does for messages. kInside: the link inside
// machines. The other links are those between machines.
enum class StepLimit : uint8_t { kComputation, kBandwidth, kLatency, kCoding, kInside };
std::string_view to_string(StepLimit limit) noexcept;

// A step as it was played. Phases overlap, so that they may add up to more than the step.
struct StepPrediction {
  std::string method;  // those of several rules, separated by commas
  double seconds = 0;
  double longest_seconds = 0;  // of a step; local methods (local_plan.h): of one with a round
  double compute_seconds = 0;
  double encode_seconds = 0;  // of the exchange's thread
  double decode_seconds = 0;
  double wire_seconds = 0;  // in which this rank's links carry something, added up
  StepLimit limit = StepLimit::kComputation;
  std::vector<double> sent_bytes;  // of each rank: mean over the steps 0 to 2 n - 1
  // Part of these, to other ranks of the machine. Empty where that is not known: if ranks of one
  // machine exchange as with all others, without a hierarchy, also in rounds that are means; and
  // for pipelines with several ranks on a machine.
  std::vector<double> inside_bytes;
  bool bytes_exact = false;  // those that the exchange counts; otherwise an estimate
  double memory_bytes = 0;   // of a rank: memories, encoder states, and what it keeps as an owner

  double busiest_bytes() const noexcept;  // of the rank that sends most
  // Of the rank that sends most to other machines; none without inside_bytes.
  std::optional<double> busiest_between() const noexcept;
};

// Plays a step of the exchange's own schedule: streams, buckets, chunks and rounds are those of
// make_exchange with these options, in a hierarchy those of both levels. Ranks of a group differ by
// what they hold, and the slowest counts. Fails as make_exchange does, and for what is not played:
// the method library, columns, rules that combine otherwise than by the mean, results that are
// shards, groups (ExchangeOptions::inside) that are not machines, and codecs that change over time.
// `costs` is filled with what it lacks.
Result<StepPrediction> predict_step(const StepTimeline& timeline, const ExchangeOptions& options,
                                    const PlanRequest& request, CostTable& costs);

// What an all-reduce of another library costs the thread of a rank in which it runs.
struct AllReduceCost {
  double seconds_per_byte = 0;     // that it sends on, receives and adds or keeps
  double seconds_per_message = 0;  // beyond its bytes
};

// Plays a step in which another library adds up the gradients uncompressed, as gloo does for
// torch's DistributedDataParallel: buckets of the tensors in the order in which they are complete,
// 1 MiB in the first and 25 MiB in the others, each summed over a ring of all ranks, which sends an
// n-th of it in 2 (n - 1) messages [Patarasuk and Yuan, J. Parallel Distrib. Comput. 2009]. Bytes
// are without headers, and not exact. Fails for a timeline without tensors, and for ranks that do
// not fill machines.
Result<StepPrediction> predict_all_reduce(const StepTimeline& timeline, const PlanRequest& request,
                                          const AllReduceCost& cost);

// The rate, in bits per second, below which `pays` says yes: found by halving between 1 kbit/s and
// 1 Tbit/s. 0 if it does not even say so at the lowest of these rates, infinite if it does at the
// highest.
double break_even_rate(const std::function<bool(double bits_per_second)>& pays);

// The rate, in bits per second, below which `compressed` is at least `speed_up` times as fast as
// `dense` over a link of this latency, as above.
Result<double> break_even_rate(const StepTimeline& timeline, const ExchangeOptions& compressed,
                               const ExchangeOptions& dense, const PlanRequest& request,
                               CostTable& costs, double speed_up = 1);

}  // namespace thinwire
