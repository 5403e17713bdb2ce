// Transfers over MPI: how a message is sent, and how it ends (done, faulty, lost, abandoned).
//
// Every message begins with an envelope: u64 size, then the message itself when it has up to
// kInline bytes, else u32 number of the body, which follows on its own. So a length that nobody
// expects is noticed before MPI is given the buffer. That is not a nicety: Open MPI 4.1 writes past
// the end of a receive that is shorter than its message where the transport can write or read
// remotely (btl tcp from 192 KiB on, vader with CMA from 4 KiB).
//
// Bodies of up to kMostCut bytes are cut into pieces. Open MPI sends what has at most 64 KiB (btl
// tcp) without asking the receiver, and asks before anything longer. Over a thin link the answer
// waits behind all that goes the other way, so that messages in both directions take turns: four
// payloads of up to 2 MB each way at 100 Mbit/s, 370 ms of bytes, take 780 ms whole and 440 in
// pieces. What is sent unasked is copied, by either end; hence a limit, per body.
// SPDX-License-Identifier: Apache-2.0
#include "comm/mpi/mpi_transfer.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "comm/peer_lost.h"

namespace thinwire {
namespace {

// Envelopes stay under the least eager limit, the 1 KiB of btl self: they arrive whole.
constexpr size_t kInline = 512;

struct Envelope {
  uint64_t size;
  std::array<std::byte, kInline> data;  // the message, or the number of its body

  void set_body(uint32_t number) noexcept { std::memcpy(data.data(), &number, sizeof number); }
  uint32_t body() const noexcept {
    uint32_t number = 0;
    std::memcpy(&number, data.data(), sizeof number);
    return number;
  }
};
constexpr size_t kHeadSize = offsetof(Envelope, data);

constexpr size_t kPiece = size_t{48} << 10;  // as kMaxChunkSize in exchange/owner/chunk_plan.h
constexpr size_t kMostCut = size_t{16} << 20;

// MPI counts in int: what is longer than 1 GiB is one element, made of rows of 1 GiB and a rest.
class Layout {
 public:
  explicit Layout(size_t size) {
    constexpr size_t kRow = size_t{1} << 30;
    if (size <= kRow) {
      count_ = static_cast<int>(size);
      return;
    }
    MPI_Datatype row;
    MPI_Type_contiguous(static_cast<int>(kRow), MPI_BYTE, &row);
    const int lengths[] = {static_cast<int>(size / kRow), static_cast<int>(size % kRow)};
    const MPI_Aint places[] = {0, static_cast<MPI_Aint>(size / kRow * kRow)};
    const MPI_Datatype types[] = {row, MPI_BYTE};
    MPI_Type_create_struct(2, lengths, places, types, &type_);
    MPI_Type_commit(&type_);
    MPI_Type_free(&row);
    count_ = 1;
  }
  ~Layout() {
    if (type_ != MPI_BYTE) MPI_Type_free(&type_);  // MPI keeps it for what is under way
  }
  Layout(const Layout&) = delete;
  Layout& operator=(const Layout&) = delete;

  MPI_Datatype type() const { return type_; }
  int count() const { return count_; }

 private:
  MPI_Datatype type_ = MPI_BYTE;
  int count_ = 0;
};

// One MPI_Request.
class Request {
 public:
  Request(MpiWorld* world, bool is_receive) : world_(world), is_receive_(is_receive) {}

  // MPI cannot take back a send or a sum, nor a receive whose message is arriving: then it must not
  // be called again.
  ~Request() {
    if (state_ != State::kStarted) return;
    int ended = 0;
    world_->gave_up();
    if (const auto inside = world_->enter()) {
      if (is_receive_) MPI_Cancel(&request_);
      MPI_Test(&request_, &ended, MPI_STATUS_IGNORE);
    }
    if (ended == 0) world_->close();
  }
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;

  // `call` hands the request to MPI and returns its error.
  template <typename Call>
  void start(Call call) {
    const auto inside = world_->enter();
    if (!inside) return;
    error_ = call(&request_);
    state_ = error_ == MPI_SUCCESS ? State::kStarted : State::kFailed;
  }

  bool failed() const { return state_ == State::kFailed; }

  // A receive that has not begun is taken back. Returns whether MPI does not know the request any
  // more.
  bool give_up() {
    if (state_ != State::kStarted) return true;
    const auto inside = world_->enter();
    if (!inside) return false;
    int ended = 0;
    if (is_receive_ && !std::exchange(cancelled_, true)) MPI_Cancel(&request_);
    if (MPI_Test(&request_, &ended, MPI_STATUS_IGNORE) != MPI_SUCCESS || ended != 0)
      state_ = State::kEnded;
    return state_ == State::kEnded;
  }

  // Throws what MPI has against it.
  bool ended() {
    if (state_ == State::kStarted) {
      const auto inside = world_->enter();
      if (!inside) return false;
      int flag = 0;
      error_ = MPI_Test(&request_, &flag, MPI_STATUS_IGNORE);
      if (error_ != MPI_SUCCESS)
        state_ = State::kFailed;
      else if (flag != 0)
        state_ = State::kEnded;
    }
    if (state_ == State::kFailed) throw Error(ErrorCode::kPeerLost, text());
    return state_ == State::kEnded;
  }

 private:
  enum class State : uint8_t { kNew, kStarted, kEnded, kFailed };

  std::string text() const {
    char text[MPI_MAX_ERROR_STRING];
    int length = 0;
    MPI_Error_string(error_, text, &length);
    return std::string(text, static_cast<size_t>(length));
  }

  MpiWorld* const world_;
  const bool is_receive_;
  State state_ = State::kNew;
  bool cancelled_ = false;
  int error_ = MPI_SUCCESS;
  MPI_Request request_ = MPI_REQUEST_NULL;
};

// The requests of a body's pieces, one behind the other under one tag.
class Pieces {
 public:
  Pieces(MpiWorld* world, bool is_receive) : world_(world), is_receive_(is_receive) {}

  bool started() const { return started_; }

  // `call` hands a piece, given by its place and layout, to MPI and returns its error; after one
  // there are no more.
  template <typename Call>
  void start(size_t size, Call call) {
    started_ = true;
    const size_t most = size <= kMostCut ? kPiece : size;
    for (size_t begin = 0; begin < size; begin += most) {
      Request& piece = *requests_.emplace_back(std::make_unique<Request>(world_, is_receive_));
      piece.start([&](MPI_Request* request) {
        const Layout layout(std::min(most, size - begin));
        return call(begin, layout, request);
      });
      if (piece.failed()) return;
    }
  }

  bool give_up() {
    bool all = true;
    for (const auto& request : requests_) all = request->give_up() && all;
    return all;
  }

  // Throws what MPI has against one of them.
  bool ended() {
    if (!requests_.empty() && requests_.back()->failed()) return requests_.back()->ended();
    while (first_ < requests_.size() && requests_[first_]->ended()) ++first_;
    return first_ == requests_.size();
  }

 private:
  MpiWorld* const world_;
  const bool is_receive_;
  bool started_ = false;
  std::vector<std::unique_ptr<Request>> requests_;
  size_t first_ = 0;  // that has not ended
};

class MpiTransfer : public Transfer {
 public:
  bool done() final {
    if (done_) return true;
    try {
      done_ = advance();
    } catch (const Error& error) {
      throw Error(error.code(), "mpi: " + describe() + ": " + error.what());
    }
    if (done_) return true;
    members_->world->listen_now_and_then();
    std::string why = loss();
    if (why.empty()) {
      if (members_->world->enter()) return false;
      why = "MPI was given up after an earlier failure";
    }
    if (members_->cause.empty()) members_->cause = why;
    throw PeerLost("mpi: " + why, describe());
  }

 protected:
  explicit MpiTransfer(std::shared_ptr<MpiGroupState> members) : members_(std::move(members)) {}

  // Whether it has ended well. Throws when it has not.
  virtual bool advance() = 0;
  // Why it cannot end; empty when it can.
  virtual std::string loss() const = 0;

  const std::shared_ptr<MpiGroupState> members_;

 private:
  bool done_ = false;
};

// What MPI knows of a message: its envelope, its requests, and in a family a copy of its body.
class MessageMemory final : public MpiKept {
 public:
  MessageMemory(MpiWorld* world, bool is_receive)
      : head(world, is_receive), body(world, is_receive) {}

  bool ended() override {
    const bool without_head = head.give_up();
    return body.give_up() && without_head;
  }

  Envelope envelope;
  std::vector<std::byte> copy;
  Request head;
  Pieces body;
};

class MpiMessage : public MpiTransfer {
 public:
  // In a family it is left to MPI, if MPI still needs it.
  ~MpiMessage() override {
    if (members_->family == nullptr || memory_->ended()) return;
    members_->world->gave_up();
    members_->world->keep(std::move(memory_));
  }

  std::string describe() const final {
    return (is_send_ ? "send of " : "receive of ") + std::to_string(size_) + " bytes " +
           (is_send_ ? "to" : "from") + " rank " + std::to_string(members_->world_rank(peer_)) +
           ", tag " + std::to_string(tag_);
  }

 protected:
  MpiMessage(std::shared_ptr<MpiGroupState> members, bool is_send, size_t size, int peer, int tag)
      : MpiTransfer(std::move(members)),
        is_send_(is_send),
        size_(size),
        peer_(peer),
        tag_(tag),
        // Nothing starts for the sake of a rank that is lost: done says so.
        possible_(loss().empty()),
        memory_(std::make_unique<MessageMemory>(members_->world, !is_send)) {}

  std::string loss() const final { return members_->lost(peer_); }

  MPI_Comm comm() const { return members_->world->comm(); }
  int world_rank() const { return members_->world_rank(peer_); }
  // The receiver's number for the group.
  uint32_t context() const { return members_->context(is_send_ ? peer_ : members_->rank); }

  const bool is_send_;
  const size_t size_;
  const int peer_;
  const int tag_;
  const bool possible_;
  std::unique_ptr<MessageMemory> memory_;
};

class MpiSend final : public MpiMessage {
 public:
  MpiSend(std::shared_ptr<MpiGroupState> group, std::span<const std::byte> buffer, int to, int tag)
      : MpiMessage(std::move(group), true, buffer.size(), to, tag) {
    if (!possible_) return;
    Envelope& envelope = memory_->envelope;
    envelope.size = buffer.size();
    size_t head_size = kHeadSize;
    uint32_t body = 0;
    if (buffer.size() <= kInline) {
      if (!buffer.empty()) std::memcpy(envelope.data.data(), buffer.data(), buffer.size());
      head_size += buffer.size();
    } else {
      body = members_->bodies[static_cast<size_t>(to)]++;
      envelope.set_body(body);
      head_size += sizeof body;
    }
    memory_->head.start([&](MPI_Request* request) {
      return MPI_Isend(&envelope, static_cast<int>(head_size), MPI_BYTE, world_rank(),
                       MpiWorld::head_tag(context(), tag), comm(), request);
    });
    if (buffer.size() <= kInline) return;
    if (members_->family != nullptr) {
      memory_->copy.assign(buffer.begin(), buffer.end());
      buffer = memory_->copy;
    }
    memory_->body.start(
        buffer.size(), [&](size_t begin, const Layout& layout, MPI_Request* request) {
          return MPI_Isend(buffer.data() + begin, layout.count(), layout.type(), world_rank(),
                           MpiWorld::body_tag(context(), body), comm(), request);
        });
  }

 private:
  bool advance() override {
    return memory_->head.ended() && (size_ <= kInline || memory_->body.ended());
  }
};

class MpiReceive final : public MpiMessage {
 public:
  MpiReceive(std::shared_ptr<MpiGroupState> group, std::span<std::byte> buffer, int from, int tag)
      : MpiMessage(std::move(group), false, buffer.size(), from, tag), buffer_(buffer) {
    if (!possible_) return;
    memory_->head.start([&](MPI_Request* request) {
      return MPI_Irecv(&memory_->envelope, sizeof(Envelope), MPI_BYTE, world_rank(),
                       MpiWorld::head_tag(context(), tag), comm(), request);
    });
  }

 private:
  bool advance() override {
    if (!memory_->head.ended()) return false;
    const Envelope& envelope = memory_->envelope;
    if (envelope.size != size_)
      throw Error(ErrorCode::kMismatch, "the message has " + std::to_string(envelope.size));
    if (size_ <= kInline) {
      if (size_ > 0) std::memcpy(buffer_.data(), envelope.data.data(), size_);
      return true;
    }
    const bool copies = members_->family != nullptr;
    if (!memory_->body.started()) {
      if (copies) memory_->copy.resize(size_);
      std::byte* const to = copies ? memory_->copy.data() : buffer_.data();
      memory_->body.start(size_, [&](size_t begin, const Layout& layout, MPI_Request* request) {
        return MPI_Irecv(to + begin, layout.count(), layout.type(), world_rank(),
                         MpiWorld::body_tag(context(), envelope.body()), comm(), request);
      });
    }
    if (!memory_->body.ended()) return false;
    if (copies) std::memcpy(buffer_.data(), memory_->copy.data(), size_);
    return true;
  }

  const std::span<std::byte> buffer_;
};

class MpiSum final : public MpiTransfer {
 public:
  MpiSum(std::shared_ptr<MpiGroupState> members, MPI_Comm comm, std::span<float> values)
      : MpiTransfer(std::move(members)), count_(values.size()), sum_(members_->world, false) {
    sum_.start([&](MPI_Request* request) {
      return MPI_Iallreduce(MPI_IN_PLACE, values.data(), static_cast<int>(values.size()), MPI_FLOAT,
                            MPI_SUM, comm, request);
    });
  }

  std::string describe() const override {
    std::string ranks;
    for (const int world_rank : members_->world_ranks)
      ranks += (ranks.empty() ? "" : ", ") + std::to_string(world_rank);
    return "sum of " + std::to_string(count_) + " floats over ranks " + ranks;
  }

 private:
  bool advance() override { return sum_.ended(); }

  std::string loss() const override {
    std::string why;
    for (int r = 0; why.empty() && r < static_cast<int>(members_->world_ranks.size()); ++r)
      why = members_->lost(r);
    return why;
  }

  const size_t count_;
  Request sum_;
};

}  // namespace

std::unique_ptr<Transfer> mpi_send(std::shared_ptr<MpiGroupState> members,
                                   std::span<const std::byte> buffer, int to, int tag) {
  return std::make_unique<MpiSend>(std::move(members), buffer, to, tag);
}

std::unique_ptr<Transfer> mpi_receive(std::shared_ptr<MpiGroupState> members,
                                      std::span<std::byte> buffer, int from, int tag) {
  return std::make_unique<MpiReceive>(std::move(members), buffer, from, tag);
}

std::unique_ptr<Transfer> mpi_sum(std::shared_ptr<MpiGroupState> members, MPI_Comm comm,
                                  std::span<float> values) {
  return std::make_unique<MpiSum>(std::move(members), comm, values);
}

}  // namespace thinwire
