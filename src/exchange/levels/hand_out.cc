// HandOut: writes the own chunk once, and reads those of the others as they come.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/levels/hand_out.h"

#include "exchange/owner/owner_sum.h"

namespace thinwire {

void HandOut::begin() {
  done_ = false;
  const Chunk& own = chunks_[context_.rank()];
  out_ = context_.buffers.take(own.size);
  write_kept_result(context_, own, out_.bytes());
  context_.for_others(peers_, [&](int rank, Peer& peer) {
    const size_t size = chunks_[static_cast<size_t>(rank)].size;
    peer.arrived = size == 0;
    if (!peer.arrived) {
      peer.in = context_.buffers.take(size);
      peer.receives.set(context_.group.receive(peer.in.bytes(), rank, tag_));
    }
    if (own.size > 0) peer.sends.set(context_.group.send(out_.bytes(), rank, tag_));
  });
}

bool HandOut::advance() {
  if (done_) return false;
  bool moved = false, all = true;
  context_.for_others(peers_, [&](int rank, Peer& peer) {
    const auto holder = static_cast<size_t>(rank);
    if (!peer.arrived && peer.receives.done()) {
      take_result(context_, chunks_[holder], peer.in.bytes(), holder);
      context_.buffers.give(peer.in);
      peer.arrived = moved = true;
    }
    all &= peer.sends.done() && peer.arrived;
  });
  if (!all) return moved;
  context_.buffers.give(out_);
  return done_ = true;
}

const Transfer* HandOut::awaited() const noexcept {
  for (const Peer& peer : peers_)
    for (const Pending* one : {&peer.receives, &peer.sends})
      if (one->transfer() != nullptr) return one->transfer();
  return nullptr;
}

}  // namespace thinwire
