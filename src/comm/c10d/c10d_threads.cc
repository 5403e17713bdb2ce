// The two threads of each other rank: parcels out, parcels in.
// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "comm/c10d/c10d_peer.h"
#include "thinwire/status.h"

namespace thinwire {
namespace {

constexpr int kTag = 29783;  // of all that thinwire sends, among the user's own
constexpr size_t kPiece = size_t{16} << 20;
constexpr size_t kUnderWay = 3;
constexpr uint64_t kMostBytes = uint64_t{1} << 40;  // of a message that may be meant
constexpr auto kForever = std::chrono::hours(24 * 365);

at::Tensor as_tensor(std::span<const std::byte> bytes) {
  return at::from_blob(const_cast<std::byte*>(bytes.data()), {static_cast<int64_t>(bytes.size())},
                       at::kByte);
}

}  // namespace

// The first of the queue that is not under way, and those behind it as far as a parcel takes them.
C10dWorld::Messages C10dWorld::next_parcel(const Peer& peer) {
  Messages parcel;
  size_t size = 0;
  for (size_t i = peer.under_way; i < peer.outbox.size(); ++i) {
    const auto& message = peer.outbox[i];
    size += sizeof(MessageFields) + message->bytes.bytes().size();
    if (!parcel.empty() && size > kParcel) break;
    parcel.push_back(message);
  }
  return parcel;
}

C10dWorld::Transmission C10dWorld::transmit(Messages messages, int to) {
  std::vector<MessageView> views;
  for (const auto& message : messages)
    views.push_back({.fields = {.context = message->context,
                                .size = message->bytes.bytes().size(),
                                .tag = message->tag,
                                .kind = message->kind},
                     .bytes = message->bytes.bytes()});
  Transmission transmission{
      .messages = std::move(messages), .parcel = pack_parcel(views), .works = {}};
  const auto send = [&](std::span<const std::byte> part) {
    std::vector<at::Tensor> tensors = {as_tensor(part)};
    transmission.works.push_back(group_->send(tensors, to, kTag));
  };
  send(transmission.parcel.head);
  const std::span<const std::byte> rest = transmission.parcel.rest;
  for (size_t begin = 0; begin < rest.size(); begin += kPiece)
    send(rest.subspan(begin, std::min(kPiece, rest.size() - begin)));
  return transmission;
}

void C10dWorld::end_transmission(Peer& peer, const Transmission& transmission) {
  for (const auto& work : transmission.works) work->wait(kForever);
  const std::lock_guard lock(mutex_);
  for (const auto& message : transmission.messages) {
    message->sent = true;
    buffers_.give(message->bytes);
    peer.outbox.pop_front();
  }
  peer.under_way -= transmission.messages.size();
  changed_.notify_all();
}

void C10dWorld::send_all(Peer& peer) {
  try {
    send_until_closed(peer);
  } catch (const std::exception& error) {
    lose(kEveryGroup, peer.rank, error.what());
  }
  const std::lock_guard lock(mutex_);
  peer.sender_ended = true;
  changed_.notify_all();
}

void C10dWorld::send_until_closed(Peer& peer) {
  std::deque<Transmission> under_way;
  for (;;) {
    Messages next;
    {
      std::unique_lock lock(mutex_);
      const auto waiting = [&] { return peer.under_way < peer.outbox.size(); };
      if (under_way.empty()) changed_.wait(lock, [&] { return closing_ || waiting(); });
      if (under_way.empty() && !waiting()) return;
      if (under_way.size() < kUnderWay) next = next_parcel(peer);
      peer.under_way += next.size();
    }
    if (next.empty()) {
      end_transmission(peer, under_way.front());
      under_way.pop_front();
    } else {
      under_way.push_back(transmit(std::move(next), peer.rank));
    }
  }
}

// Null when the world is closing.
c10::intrusive_ptr<c10d::Work> C10dWorld::begin_fetch(Peer& peer, std::span<std::byte> into) {
  std::vector<at::Tensor> tensors = {as_tensor(into)};
  const std::lock_guard lock(mutex_);
  if (closing_) return {};
  return peer.receiving.emplace_back(group_->recv(tensors, peer.rank, kTag));
}

// False when the world is closing.
bool C10dWorld::end_fetch(Peer& peer, const c10::intrusive_ptr<c10d::Work>& work) {
  if (!work) return false;
  const bool came = work->wait(kForever);
  const std::lock_guard lock(mutex_);
  std::erase(peer.receiving, work);
  return came && !closing_;
}

void C10dWorld::receive_all(Peer& peer) {
  try {
    receive_until_end(peer);
  } catch (const std::exception& error) {
    lose(kEveryGroup, peer.rank, error.what());
  }
}

void C10dWorld::receive_until_end(Peer& peer) {
  const auto lane_of = [&](const MessageFields& fields) {
    return Lane{fields.context, peer.rank, fields.tag};
  };
  const auto require = [](bool right) {
    if (!right)
      throw Error(ErrorCode::kCorrupt, "something else came under tag " + std::to_string(kTag));
  };
  auto coming = begin_fetch(peer, peer.heads[0]);
  for (size_t turn = 0;; ++turn) {
    if (!end_fetch(peer, coming)) return;
    const auto head = std::span<const std::byte>(peer.heads[turn % 2]);
    ParcelFields parcel;
    MessageFields first;
    require(read_head(head, parcel, first));
    // Pages of a buffer that nothing arrives for are never touched.
    const uint64_t size = parcel.size - sizeof first;
    require(size <= kMostBytes);
    Buffer body;
    {
      const std::lock_guard lock(mutex_);
      body = buffers_.take(size);
    }
    const std::span<std::byte> bytes = body.bytes();
    const auto behind = head.subspan(sizeof parcel + sizeof first);
    const auto in_head = behind.first(std::min<uint64_t>(size, behind.size()));
    std::ranges::copy(in_head, bytes.begin());
    c10::intrusive_ptr<c10d::Work> rest;
    for (size_t begin = in_head.size(); begin < size; begin += kPiece) {
      if (rest && !end_fetch(peer, rest)) return;
      rest = begin_fetch(peer, bytes.subspan(begin, std::min<uint64_t>(kPiece, size - begin)));
    }
    coming = begin_fetch(peer, peer.heads[(turn + 1) % 2]);
    if (in_head.size() < size && !end_fetch(peer, rest)) return;
    bool more = true;
    if (parcel.messages == 1) {  // is not copied again
      more = hand_on(peer, first.kind, lane_of(first), std::move(body));
    } else {
      require(unpack_parcel(parcel, first, bytes, [&](const MessageFields& fields, auto one) {
        return more = hand_on(peer, fields.kind, lane_of(fields), copy(one));
      }));
      give(body);
    }
    if (!more) return;
  }
}

// False when it was the last.
bool C10dWorld::hand_on(Peer& peer, uint32_t kind, const Lane& lane, Buffer bytes) {
  if (kind > kEnd) throw Error(ErrorCode::kCorrupt, "a message of no known kind came");
  std::string why = "left";
  if (kind != kMessage) {
    const std::span<const std::byte> text = bytes.bytes();
    uint64_t received = 0;
    if (text.size() < sizeof received)
      throw Error(ErrorCode::kCorrupt, "an end without the number of messages came");
    std::memcpy(&received, text.data(), sizeof received);
    if (kind == kLoss)
      why.assign(reinterpret_cast<const char*>(text.data()) + sizeof received,
                 text.size() - sizeof received);
    has_received(peer, received);
  }
  if (kind == kEnd) {
    lose(kEveryGroup, peer.rank, why);
    return false;
  }
  {
    const std::lock_guard lock(mutex_);
    ++peer.received;
  }
  if (kind == kLoss)
    lose(lane.context, lane.from, why);
  else
    deliver(lane, std::move(bytes));
  return true;
}

// What a rank received is sent, even if the thread that sent it has not said so yet.
void C10dWorld::has_received(Peer& peer, uint64_t received) {
  const std::lock_guard lock(mutex_);
  for (const auto& message : peer.outbox)
    if (message->number < received) message->sent = true;
}

}  // namespace thinwire
