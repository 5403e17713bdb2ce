// The two threads that a C10dWorld has for each other rank: one sends parcels, one receives them.
// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>

#include "comm/c10d/c10d_peer.h"
#include "thinwire/status.h"

namespace thinwire {
namespace {

constexpr int kTag = 29783;  // of all that thinwire sends, among the user's own
constexpr size_t kUnderWay = 3;
constexpr size_t kPosted = 6;
constexpr size_t kHeld = size_t{1} << 16;  // bytes of a message that are worth keeping a parcel for
constexpr uint64_t kMostBytes = uint64_t{1} << 40;  // of a message that may be meant
constexpr auto kForever = std::chrono::hours(24 * 365);

std::vector<at::Tensor> as_tensors(std::span<const std::byte> bytes) {
  return {at::from_blob(const_cast<std::byte*>(bytes.data()), {static_cast<int64_t>(bytes.size())},
                        at::kByte)};
}

}  // namespace

// What came before the loss counts: the receiver, which finds the same, has the word if it soon
// ends.
void C10dWorld::send_all(Peer& peer) {
  std::string why;
  try {
    send_until_closed(peer);
  } catch (const std::exception& error) {
    why = error.what();
  }
  {
    std::unique_lock lock(mutex_);
    peer.sender_ended = true;
    notify();
    if (why.empty()) return;
    changed_.wait_for(lock, std::chrono::seconds(1), [&] { return peer.receiver_ended; });
  }
  lose(kEveryGroup, peer.rank, HowLost::kNoticed, why);
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
    notify();
    under_way.pop_front();
  }
}

void C10dWorld::receive_all(Peer& peer) {
  try {
    receive_parcels(peer);
  } catch (const std::exception& error) {
    lose(kEveryGroup, peer.rank, HowLost::kNoticed, error.what());
  }
  const std::lock_guard lock(mutex_);
  peer.receiver_ended = true;
  notify();
}

// False when the world stops receiving. What a recycled buffer had in it is no parcel that came.
bool C10dWorld::post_receive(Peer& peer) {
  auto memory = std::make_shared<Buffer>();
  {
    const std::lock_guard lock(mutex_);
    if (!receiving_) return false;
    *memory = buffers_.take(kParcel);
  }
  std::ranges::fill(memory->bytes().first(sizeof(ParcelFields)), std::byte{0});
  auto tensors = as_tensors(memory->bytes());
  auto work = group_->recv(tensors, peer.rank, kTag);
  const std::lock_guard lock(mutex_);
  peer.posted.push_back({std::move(memory), std::move(work)});
  return receiving_;
}

// Until an end comes or the world stops receiving. A lost connection fails receives that are posted
// later before what came is read: that is thrown when nothing is left to be read.
void C10dWorld::receive_parcels(Peer& peer) {
  std::exception_ptr failure;
  const auto post = [&] {
    try {
      return failure != nullptr || post_receive(peer);
    } catch (const std::exception&) {
      failure = std::current_exception();
      return true;
    }
  };
  for (size_t i = 0; i < kPosted; ++i)
    if (!post()) return;
  for (;;) {
    c10::intrusive_ptr<c10d::Work> work;
    {
      const std::lock_guard lock(mutex_);
      if (!peer.posted.empty()) work = peer.posted.front().work;
    }
    if (work == nullptr) std::rethrow_exception(failure);
    const bool came = work->wait(kForever);
    std::shared_ptr<Buffer> parcel;
    {
      const std::lock_guard lock(mutex_);
      if (!came || !receiving_) return;
      parcel = std::move(peer.posted.front().memory);
      peer.posted.pop_front();
    }
    if (!post()) return;
    bool more = true;
    if (!peer.reader.read(parcel->bytes(), [&](const ParcelReader::Part& part) {
          return more = take_part(peer, part, parcel);
        }))
      throw Error(ErrorCode::kCorrupt, "something else came under tag " + std::to_string(kTag));
    if (!more) return;
    Message
        spent;  // an initialiser list would keep a second owner, and the memory not be used again
    spent.pieces.push_back({.memory = std::move(parcel), .bytes = {}});
    give(std::move(spent));
  }
}

// False when it was the last. A short part is copied, so that it does not keep a whole parcel.
bool C10dWorld::take_part(Peer& peer, const ParcelReader::Part& part,
                          const std::shared_ptr<Buffer>& parcel) {
  const MessageFields& fields = part.fields;
  const uint64_t most = fields.kind == kMessage ? kMostBytes : sizeof(uint64_t) + kNotice;
  if (fields.kind > kEnd || fields.size > most)
    throw Error(ErrorCode::kCorrupt, "a message of no known kind came, or one too long");
  Piece piece{parcel, part.bytes};
  if (part.bytes.size() < kHeld) {
    piece.memory = std::make_shared<Buffer>();
    {
      const std::lock_guard lock(mutex_);
      *piece.memory = buffers_.take(part.bytes.size());
    }
    if (!part.bytes.empty())
      std::memcpy(piece.memory->bytes().data(), part.bytes.data(), part.bytes.size());
    piece.bytes = piece.memory->bytes();
  }
  peer.coming.size += part.bytes.size();
  peer.coming.pieces.push_back(std::move(piece));
  return !part.last || end_message(peer, fields, std::exchange(peer.coming, {}));
}

// False when it was the last.
bool C10dWorld::end_message(Peer& peer, const MessageFields& fields, Message message) {
  std::string why;
  if (fields.kind != kMessage) {
    std::string text;
    for (const Piece& piece : message.pieces)
      text.append(reinterpret_cast<const char*>(piece.bytes.data()), piece.bytes.size());
    uint64_t received = 0;
    if (text.size() < sizeof received)
      throw Error(ErrorCode::kCorrupt, "an end without the number of messages came");
    std::memcpy(&received, text.data(), sizeof received);
    why = text.substr(sizeof received);
    // What a rank received is sent, even if the thread that sent it has not said so yet.
    const std::lock_guard lock(mutex_);
    peer.sent = std::max(peer.sent, std::min(received, peer.queued));
  }
  if (fields.kind == kEnd) {
    lose(kEveryGroup, peer.rank, HowLost::kLeft, why);
    return false;
  }
  {
    const std::lock_guard lock(mutex_);
    ++peer.received;
  }
  if (fields.kind == kLoss)
    lose(fields.context, peer.rank, HowLost::kAnnounced, why);
  else
    deliver({fields.context, peer.rank, fields.tag}, std::move(message));
  return true;
}

}  // namespace thinwire
