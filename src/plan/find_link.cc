// find_link: messages grow until their bytes take longer than the latency.
// SPDX-License-Identifier: Apache-2.0
#include "plan/find_link.h"

#include <algorithm>
#include <bit>
#include <limits>

namespace thinwire {
namespace {

constexpr int kSmallRounds = 16;
constexpr size_t kFirstBytes = size_t{1} << 14;  // beyond it, buffers of the sender's kernel
constexpr size_t kLargestBytes = size_t{1} << 24;
constexpr double kUnlimited = 1e11;  // bits per second: memory of the same machine
constexpr double kLeastSeconds = 0.02;
// Times the given seconds, for a link that is not known, while its rate is in doubt. 1 Gbit/s and
// 100 ms among four ranks need six times half a second, and 14 times while windows of TCP open.
constexpr double kPatience = 16;
// Bits per second: the first message to an unknown link takes one latency if it is as slow as this.
constexpr double kSlow = 1e7;

// Seconds that the bytes of a message take, in latencies. Fewer than kVisible may be chance, kLong
// are aimed at. TCP's window is 14 KiB at first and doubles in each round trip, so that it is as
// large as the largest message after ten of them: what takes longer is the link's own rate.
constexpr double kVisible = 1.0 / 8, kLong = 2, kBeyondDoubt = 20;
constexpr double kAlike = 1.5;        // times: rates of one link
constexpr double kFarBelow = 2;       // times: a bound that one late message does not explain
constexpr double kMostPatience = 20;  // times what a probe of the known link needs
constexpr double kMore = 1.25;  // times what a probe needs: latencies differ from time to time

// Rounds, with what is told by the shortest of them.
class Rounds {
 public:
  Rounds(int ranks, const std::function<MessageRound(size_t bytes)>& round)
      : round_(round), ways_(ways_among(ranks)), turns_(turns_among(ranks)) {}

  // Seconds by the slower way.
  double take(size_t bytes) {
    const MessageRound one = round_(bytes);
    latency_ = std::min(latency_, one.slower);
    spent_ += one.by_all + ways_ * turns_ * latency_;
    return one.slower;
  }

  double latency() const { return latency_; }
  double spent() const { return spent_; }  // seconds, with the agreements
  double without_bytes() const { return ways_ * (1 + turns_) * latency_; }

 private:
  const std::function<MessageRound(size_t bytes)>& round_;
  const int ways_, turns_;
  double latency_ = std::numeric_limits<double>::infinity();
  double spent_ = 0;
};

double bits_per_second(size_t bytes, double seconds) {
  const LinkSpec at_one_bit{.bits_per_second = 1, .latency_seconds = 0};
  return at_one_bit.seconds_for(static_cast<double>(bytes)) / seconds;
}

// What a round tells. Its rate is that of the difference to the shortest round.
struct Sight {
  size_t bytes = 0;
  double latency = 0;
  double wire = 0;  // seconds of the bytes alone
  double rate = 0;
  bool rises = false;    // the rate is higher than that of the round before
  bool settles = false;  // the rate is that of the link

  bool is_visible() const { return wire >= kVisible * latency; }

  // A message that is not long becomes long, if the rate is right. A long one grows twofold, and
  // faster while a window of TCP seems to open.
  size_t next_bytes() const {
    const double growth =
        wire < latency ? kLong * latency / std::max(wire, kVisible * latency) : (rises ? 4 : 2);
    return static_cast<size_t>(
        std::min(growth * static_cast<double>(bytes), double{kLargestBytes}));
  }
};

// A rate is believed if two rounds have it, or if it is no lower than the known one: that of a
// single round may be that of TCP's window.
Sight look(size_t bytes, double seconds, double latency, const Sight& before,
           const std::optional<LinkSpec>& known) {
  Sight now{.bytes = bytes, .latency = latency, .wire = seconds - latency};
  now.rate = bits_per_second(bytes, std::max(now.wire, kVisible * latency));
  const bool compares = before.bytes > 0 && before.is_visible();
  now.rises = compares && now.rate > kAlike * before.rate;
  const bool is_as_known =
      known && known->bits_per_second > 0 && kAlike * now.rate >= known->bits_per_second;
  now.settles =
      now.wire >= latency && (is_as_known || (compares && !now.rises) || bytes == kLargestBytes ||
                              now.wire >= kBeyondDoubt * latency);
  return now;
}

// To a known link so few that they are just visible: it may have become slower by far.
size_t first_bytes(double latency, const std::optional<LinkSpec>& known) {
  double bits = kSlow * latency;
  if (known)
    bits = kVisible * latency * (known->bits_per_second > 0 ? known->bits_per_second : kUnlimited);
  return static_cast<size_t>(
      std::clamp(bits / 8, double{kFirstBytes}, kVisible / kLong * double{kLargestBytes}));
}

}  // namespace

int ways_among(int ranks) { return ranks > 3 ? 2 : 1; }

int turns_among(int ranks) {
  return static_cast<int>(std::bit_width(static_cast<unsigned>(ranks - 1)));
}

double least_probe_seconds(int ranks, const LinkSpec& known) {
  const double of_one_way = 3 * (1 + turns_among(ranks)) + kVisible + kLong;
  return std::max(kLeastSeconds, kMore * ways_among(ranks) * of_one_way * known.latency_seconds);
}

double next_probe_seconds(int ranks, const LinkSpec& known, const ProbedLink& found) {
  const double least = least_probe_seconds(ranks, known);
  const double slower = known.bits_per_second / found.bits_per_second;
  return found.at_least && slower >= kFarBelow ? std::min(slower, kMostPatience) * least : least;
}

ProbedLink find_link(int ranks, double seconds, const std::optional<LinkSpec>& known,
                     const std::function<MessageRound(size_t bytes)>& round) {
  Rounds rounds(ranks, round);
  for (int i = 0;
       i == 0 || (i < kSmallRounds && rounds.spent() + rounds.without_bytes() <= seconds / 4); ++i)
    rounds.take(1);
  const double patience = known ? seconds : kPatience * seconds;
  Sight now;
  for (size_t bytes = first_bytes(rounds.latency(), known);;) {
    const double begin = rounds.spent();
    const double last = rounds.take(bytes);
    now = look(bytes, last, rounds.latency(), now, known);
    const size_t next = now.next_bytes();
    if (next == bytes) break;
    const double took = rounds.spent() - begin;
    const double growth = static_cast<double>(next) / static_cast<double>(bytes);
    const double then = took + (growth - 1) * std::max(0.0, took - rounds.without_bytes());
    if (rounds.spent() + then > (now.settles ? seconds : patience)) break;
    bytes = next;
  }
  ProbedLink found;
  found.latency_seconds = rounds.latency();
  found.bits_per_second =
      now.settles ? now.rate : bits_per_second(now.bytes, now.wire + kVisible * now.latency);
  found.at_least = !now.settles;
  if (found.bits_per_second >= kUnlimited) {
    found.bits_per_second = 0;
    found.at_least = false;
  }
  return found;
}

}  // namespace thinwire
