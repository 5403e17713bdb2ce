// measure_copies: sends a few megabytes over a TCP connection of this process to itself.
// SPDX-License-Identifier: Apache-2.0
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <optional>
#include <vector>

#include "core/processor_time.h"
#include "thinwire/step_plan.h"

namespace thinwire {
namespace {

// Of a turn: about a millisecond, and more than the caches near a core hold.
constexpr size_t kBytes = size_t{4} << 20;
constexpr size_t kPiece = size_t{64} << 10;
constexpr size_t kTurns = 9;  // the first ones enlarge the connection's windows

class Socket {
 public:
  explicit Socket(int number) : number_(number) {
    // Nothing that goes wrong makes anybody wait for longer.
    const timeval longest{.tv_sec = 1, .tv_usec = 0};
    for (const int option : {SO_RCVTIMEO, SO_SNDTIMEO})
      setsockopt(number_, SOL_SOCKET, option, &longest, sizeof longest);
  }
  ~Socket() {
    if (number_ >= 0) close(number_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  int number() const noexcept { return number_; }

 private:
  const int number_;
};

sockaddr* generic(sockaddr_in& address) { return reinterpret_cast<sockaddr*>(&address); }

// Of this end (getsockname) or of the other (getpeername); the port is 0 if there is none.
template <typename Asked>
sockaddr_in address_of(const Socket& socket, const Asked& asked) {
  sockaddr_in address{};
  socklen_t length = sizeof address;
  return asked(socket.number(), generic(address), &length) == 0 ? address : sockaddr_in{};
}

// Adds what a call of send or recv moved. False if it failed, and not because it would have waited.
bool add(ssize_t moved, size_t& sum) {
  if (moved > 0) sum += static_cast<size_t>(moved);
  return moved > 0 || (moved < 0 && (errno == EAGAIN || errno == EINTR));
}

// Sends `out` and receives as much, in turns. False if the connection fails, or nothing comes for a
// second.
bool pass(const Socket& sender, const Socket& receiver, const std::vector<std::byte>& out,
          std::vector<std::byte>& in) {
  size_t sent = 0, received = 0;
  while (received < in.size()) {
    const size_t left = std::min(kPiece, out.size() - sent);
    if (left > 0 &&
        !add(send(sender.number(), out.data() + sent, left, MSG_DONTWAIT | MSG_NOSIGNAL), sent))
      return false;
    // Waits for what was sent and has not come: a loop of attempts would count as work.
    const bool waits = sent > received;
    const size_t before = received;
    if (!add(recv(receiver.number(), in.data() + received, in.size() - received,
                  waits ? 0 : MSG_DONTWAIT),
             received))
      return false;
    if (waits && received == before && errno != EINTR) return false;
  }
  return true;
}

}  // namespace

std::optional<double> measure_copies() {
  const Socket listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const Socket sender(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in loopback{};
  loopback.sin_family = AF_INET;
  loopback.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (bind(listener.number(), generic(loopback), sizeof loopback) != 0 ||
      listen(listener.number(), 1) != 0)
    return std::nullopt;
  sockaddr_in address = address_of(listener, getsockname);
  if (connect(sender.number(), generic(address), sizeof address) != 0) return std::nullopt;
  const Socket receiver(accept4(listener.number(), nullptr, nullptr, SOCK_CLOEXEC));
  // Somebody else may have connected first.
  const in_port_t port = address_of(sender, getsockname).sin_port;
  if (port == 0 || address_of(receiver, getpeername).sin_port != port) return std::nullopt;
  const int on = 1;
  setsockopt(sender.number(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);

  const std::vector<std::byte> out(kBytes);
  std::vector<std::byte> in(kBytes);
  std::array<double, kTurns> seconds{};
  for (double& turn : seconds) {
    const ProcessorTime working;  // others may have the core meanwhile
    if (!pass(sender, receiver, out, in)) return std::nullopt;
    turn = working.seconds();
  }
  std::nth_element(seconds.begin(), seconds.begin() + kTurns / 2, seconds.end());
  return seconds[kTurns / 2] / kBytes;
}

}  // namespace thinwire
