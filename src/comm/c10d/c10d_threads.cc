// The two threads of each other rank: parcels out, parcels in.
// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>

#include <cstring>
#include <utility>

#include "comm/c10d/c10d_peer.h"
#include "thinwire/status.h"

namespace thinwire {
namespace {

constexpr int kTag = 29783;  // of all that thinwire sends, among the user's own
constexpr size_t kUnderWay = 3;
constexpr size_t kPosted = 6;
constexpr size_t kHeld = size_t{1} << 16;  // bytes of a message that are worth keeping a parcel for
constexpr auto kForever = std::chrono::hours(24 * 365);

std::vector<at::Tensor> as_tensors(std::span<const std::byte> bytes) {
  return {at::from_blob(const_cast<std::byte*>(bytes.data()), {static_cast<int64_t>(bytes.size())},
                        at::kByte)};
}

}  // namespace

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
  std::deque<Outgoing> under_way;
  for (;;) {
    std::unique_lock lock(mutex_);
    const auto waiting = [&] { return !peer.full.empty() || !peer.open.writer.empty(); };
    if (under_way.empty()) changed_.wait(lock, [&] { return closing_ || waiting(); });
    if (under_way.empty() && !waiting()) return;
    if (under_way.size() < kUnderWay && waiting()) {
      if (peer.full.empty()) {
        under_way.push_back(std::exchange(peer.open, {}));
      } else {
        under_way.push_back(std::move(peer.full.front()));
        peer.full.pop_front();
      }
      lock.unlock();
      auto tensors = as_tensors(under_way.back().writer.finish());
      under_way.back().work = group_->send(tensors, peer.rank, kTag);
      continue;
    }
    lock.unlock();
    Outgoing& first = under_way.front();
    first.work->wait(kForever);
    first.work.reset();
    lock.lock();
    peer.sent = std::max(peer.sent, first.ended);
    buffers_.give(first.memory);
    changed_.notify_all();
    under_way.pop_front();
  }
}

void C10dWorld::receive_all(Peer& peer) {
  try {
    receive_until_end(peer);
  } catch (const std::exception& error) {
    lose(kEveryGroup, peer.rank, error.what());
  }
}

// False when the world is closing.
bool C10dWorld::post_receive(Peer& peer) {
  const std::lock_guard lock(mutex_);
  if (closing_) return false;
  auto memory = std::make_shared<Buffer>(buffers_.take(kParcel));
  auto tensors = as_tensors(memory->bytes());
  peer.posted.push_back({std::move(memory), group_->recv(tensors, peer.rank, kTag)});
  return true;
}

void C10dWorld::receive_until_end(Peer& peer) {
  for (size_t i = 0; i < kPosted; ++i)
    if (!post_receive(peer)) return;
  for (;;) {
    c10::intrusive_ptr<c10d::Work> work;
    {
      const std::lock_guard lock(mutex_);
      work = peer.posted.front().work;
    }
    const bool came = work->wait(kForever);
    std::shared_ptr<Buffer> parcel;
    {
      const std::lock_guard lock(mutex_);
      if (!came || closing_) return;
      parcel = std::move(peer.posted.front().memory);
      peer.posted.pop_front();
    }
    if (!post_receive(peer)) return;
    bool more = true;
    if (!peer.reader.read(parcel->bytes(), [&](const ParcelReader::Part& part) {
          return more = take_part(peer, part, parcel);
        }))
      throw Error(ErrorCode::kCorrupt, "something else came under tag " + std::to_string(kTag));
    if (!more) return;
    give({.size = 0, .pieces = {{std::move(parcel), {}}}});
  }
}

// False when it was the last. A short part is copied, so that it does not keep a whole parcel.
bool C10dWorld::take_part(Peer& peer, const ParcelReader::Part& part,
                          const std::shared_ptr<Buffer>& parcel) {
  Piece piece{parcel, part.bytes};
  if (part.bytes.size() < kHeld) {
    piece.memory = std::make_shared<Buffer>();
    {
      const std::lock_guard lock(mutex_);
      *piece.memory = buffers_.take(part.bytes.size());
    }
    std::ranges::copy(part.bytes, piece.memory->bytes().begin());
    piece.bytes = piece.memory->bytes();
  }
  peer.coming.size += part.bytes.size();
  peer.coming.pieces.push_back(std::move(piece));
  return !part.last || end_message(peer, part.fields, std::exchange(peer.coming, {}));
}

// False when it was the last.
bool C10dWorld::end_message(Peer& peer, const MessageFields& fields, Message message) {
  if (fields.kind > kEnd) throw Error(ErrorCode::kCorrupt, "a message of no known kind came");
  std::string why = "left";
  if (fields.kind != kMessage) {
    std::string text;
    for (const Piece& piece : message.pieces)
      text.append(reinterpret_cast<const char*>(piece.bytes.data()), piece.bytes.size());
    uint64_t received = 0;
    if (text.size() < sizeof received)
      throw Error(ErrorCode::kCorrupt, "an end without the number of messages came");
    std::memcpy(&received, text.data(), sizeof received);
    if (fields.kind == kLoss) why = text.substr(sizeof received);
    // What a rank received is sent, even if the thread that sent it has not said so yet.
    const std::lock_guard lock(mutex_);
    peer.sent = std::max(peer.sent, std::min(received, peer.queued));
  }
  if (fields.kind == kEnd) {
    lose(kEveryGroup, peer.rank, why);
    return false;
  }
  {
    const std::lock_guard lock(mutex_);
    ++peer.received;
  }
  if (fields.kind == kLoss)
    lose(fields.context, peer.rank, why);
  else
    deliver({fields.context, peer.rank, fields.tag}, std::move(message));
  return true;
}

}  // namespace thinwire
