// StageLinks: sends each message behind its length in eight bytes, without waiting in between.
// SPDX-License-Identifier: Apache-2.0
#include "train/pipeline/stage_links.h"

#include <torch/torch.h>

#include <array>
#include <limits>
#include <string>
#include <utility>

#include "train/elapsed_time.h"
#include "train/tensor_floats.h"

namespace thinwire {
namespace {

constexpr int kLengthTag = 1, kMessageTag = 2;

// What a message says of the samples of a visit, `shape` each. Throws with `origin` before the
// reason.
Arrived decode(BoundaryReceiver& end, std::span<const std::byte> message, const Visit& visit,
               std::vector<int64_t> shape, const auto& origin) {
  const ElapsedTime watch;
  shape.insert(shape.begin(), static_cast<int64_t>(visit.ids.size()));
  Arrived arrived{.values = torch::empty(shape)};
  const Status status = end.decode(message, visit, floats_of(arrived.values));
  if (status.code() == ErrorCode::kNonFinite) {
    arrived.finite = false;
    arrived.values.fill_(std::numeric_limits<float>::quiet_NaN());
  } else if (!status) {
    throw Error(status.code(), origin() + status.message());
  }
  arrived.decompress_seconds = watch.seconds();
  return arrived;
}

}  // namespace

StageLinks::StageLinks(Group& group, const StagePlan& plan) : plan_(plan) {
  // Cut by cut and direction by direction, so that all ranks split in the same order. Two wires
  // over one cut would share a channel, and threads must not.
  for (size_t cut = 0; cut + 1 < plan.stages; ++cut) {
    for (const bool backward : {false, true}) {
      const bool in_front = plan.stage == cut, behind = plan.stage == cut + 1;
      const int aside = static_cast<int>(plan.replicas);
      auto channel = group.split(in_front || behind ? static_cast<int>(plan.replica) : aside);
      if (!in_front && !behind) continue;
      Wire& wire = backward ? (in_front ? gradients_in_ : gradients_out_)
                            : (in_front ? activations_out_ : activations_in_);
      wire.group = std::move(channel);
      wire.other_stage = in_front ? cut + 1 : cut;
      wire.other_rank = plan.rank_of(wire.other_stage);
      for (const uint64_t extent : plan.crossing[cut])
        wire.shape.push_back(static_cast<int64_t>(extent));
    }
  }
}

std::future<Arrived> StageLinks::receive_activations(const WayIn& way, const Visit& visit) {
  return receive(activations_in_, way, visit);
}
std::future<Arrived> StageLinks::receive_gradients(const WayIn& way, const Visit& visit) {
  return receive(gradients_in_, way, visit);
}
std::future<Departed> StageLinks::send_activations(const WayOut& way, torch::Tensor values,
                                                   const Visit& visit) {
  return send(activations_out_, way, std::move(values), visit);
}
std::future<Departed> StageLinks::send_gradients(const WayOut& way, torch::Tensor values,
                                                 const Visit& visit) {
  return send(gradients_out_, way, std::move(values), visit);
}

std::future<Arrived> StageLinks::receive(Wire& wire, const WayIn& way, const Visit& visit) {
  return receiving_.post([&wire, way, visit] {
    const int other = 1 - wire.group->rank();
    const auto origin = [&] {
      return "from stage " + std::to_string(wire.other_stage) + " (rank " +
             std::to_string(wire.other_rank) + "): ";
    };
    try {
      uint64_t size = 0;
      wire.group->wait(
          wire.group->receive(std::as_writable_bytes(std::span(&size, 1)), other, kLengthTag));
      if (size > way.limit)
        throw Error(ErrorCode::kCorrupt, origin() + "announces " + std::to_string(size) +
                                             " bytes where at most " + std::to_string(way.limit) +
                                             " are possible");
      wire.buffer.resize(size);
      wire.group->wait(wire.group->receive(wire.buffer, other, kMessageTag));
      return decode(*way.end, wire.buffer, visit, wire.shape, origin);
    } catch (const std::exception& error) {
      wire.group->abort(error.what());
      throw;
    }
  });
}

std::future<Departed> StageLinks::send(Wire& wire, const WayOut& way, torch::Tensor tensor,
                                       const Visit& visit) {
  return sending_.post([&wire, way, visit, given = std::move(tensor)]() mutable {
    const torch::Tensor values = std::move(given);  // or the future would keep it
    const int other = 1 - wire.group->rank();
    try {
      const ElapsedTime watch;
      wire.buffer.resize(way.limit);
      Departed departed;
      departed.values = static_cast<uint64_t>(values.numel());
      departed.sent = way.end->encode(floats_of(values), visit, wire.buffer);
      departed.compress_seconds = watch.seconds();
      const uint64_t size = departed.sent.size;
      const auto message = std::span(std::as_const(wire.buffer)).first(size);
      std::array<std::unique_ptr<Transfer>, 2> transfers;
      transfers[0] = wire.group->send(std::as_bytes(std::span(&size, 1)), other, kLengthTag);
      transfers[1] = wire.group->send(message, other, kMessageTag);
      if (way.mirror != nullptr) {  // while the message is under way
        const auto origin = [] { return std::string("of this stage's own message: "); };
        Arrived delivered = decode(*way.mirror, message, visit, wire.shape, origin);
        departed.delivered = std::move(delivered.values);
        departed.decompress_seconds = delivered.decompress_seconds;
      }
      wire.group->wait(transfers);
      return departed;
    } catch (const std::exception& error) {
      wire.group->abort(error.what());
      throw;
    }
  });
}

void StageLinks::abort(const char* why) noexcept {
  for (Wire* wire : {&activations_in_, &gradients_in_, &activations_out_, &gradients_out_})
    if (wire->group) return wire->group->abort(why);
}

}  // namespace thinwire
