// DeskService: the desk on a thread of rank 0: messages from workers in, notes to workers out.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "sync/round_desk.h"
#include "thinwire/group.h"
#include "thinwire/synchroniser.h"

namespace thinwire {

// What a worker tells the desk: two words.
enum class DeskWord : uint64_t { kStepped = 1, kCame = 2, kLeft = 3, kFailed = 4 };
using DeskMessage = std::array<uint64_t, 2>;  // word, round
using DeskReason =
    std::array<char, 512>;  // follows kFailed under a tag of its own; ends with a zero

// What the desk tells a worker, as bytes: u64 kind, u64 round, u8 member[ranks].
inline size_t note_size(int ranks) { return 16 + static_cast<size_t>(ranks); }
void write_note(const DeskNote& note, std::vector<std::byte>& out);
// Empty when the bytes are not a note.
std::optional<DeskNote> read_note(const std::vector<std::byte>& bytes, int rank);

inline constexpr int kDeskTag = 0;  // to the desk
inline constexpr int kNoteTag = 1;  // from it
inline constexpr int kReasonTag = 2;

// Only the service's thread uses `channel` from the constructor on; the worker of this rank calls
// the rest. A worker is lost when its messages end, when it says so, and when it says nothing for
// nine tenths of the channel's deadline. Where losses are survived the others hear of it, a silent
// one itself too; else it ends the service, and a worker may be silent as long as no other waits
// for it to leave.
class DeskService {
 public:
  DeskService(std::unique_ptr<Group> channel, RoundDesk desk, bool survives_losses);
  // Ends at once; workers elsewhere that still come are lost.
  ~DeskService();
  DeskService(const DeskService&) = delete;
  DeskService& operator=(const DeskService&) = delete;

  void tell(DeskWord word, uint64_t round);
  // The next note to this rank, if there is one; waits for it when told to. Throws the error that
  // ended the service, with its code.
  std::optional<DeskNote> take(bool wait);
  // Those that were lost so far, in this order.
  std::vector<LostWorker> lost();

 private:
  struct Line {  // to one other rank
    DeskMessage message{};
    std::unique_ptr<Transfer> in;
    DeskReason reason{};                  // why it failed, once it said that it did
    std::unique_ptr<Transfer> reason_in;  // on its way
    RoundDesk::Clock::time_point heard = RoundDesk::Clock::now();  // the last word
    bool came = false;  // was that word, and the round is not over without it
    bool lost = false;
    bool left = false;
    bool gone = false;  // a note to it could not be delivered
  };
  struct Note {
    std::vector<std::byte> bytes;
    std::unique_ptr<Transfer> out;
    int to = 0;
    bool alive = false;  // DeskNote::Kind::kAlive: whoever does not get it owes nothing
  };

  void run();
  void serve();
  void fail(ErrorCode code, const std::string& why);
  bool look();
  bool listen(int rank);
  bool hear_reason(int rank);
  std::chrono::milliseconds silence_limit() const;
  void look_for_silence(RoundDesk::Clock::time_point now);
  void tell_those_who_left(RoundDesk::Clock::time_point now);
  void look_at_notes();
  void lose(int rank, const std::string& why, bool tell = false);
  void send(const DeskNote& note);
  void end();
  std::vector<DeskNote> answer(int rank, const DeskMessage& message);
  void hand_out(const std::vector<DeskNote>& notes);

  const std::unique_ptr<Group> channel_;
  RoundDesk desk_;  // the thread's
  const bool survives_losses_;
  std::vector<Line> lines_;                  // by rank
  std::deque<Note> notes_;                   // on their way
  std::vector<Note> stuck_;                  // to those who are lost; MPI does not take them back
  RoundDesk::Clock::time_point own_left_{};  // when this rank's worker did; zero before
  RoundDesk::Clock::time_point told_alive_ = RoundDesk::Clock::now();
  bool told_end_ = false;
  bool ended_ = false;  // nobody takes steps any more, and those who left are being told

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<DeskMessage> told_;  // by this rank's worker
  std::deque<DeskNote> mine_;     // to it
  std::vector<LostWorker> losses_;
  std::exception_ptr error_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace thinwire
