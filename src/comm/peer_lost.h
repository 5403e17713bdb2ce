// PeerLost: the error of a transfer whose other rank is gone.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "thinwire/status.h"

namespace thinwire {

class PeerLost : public Error {
 public:
  // `cause` says who is lost and why; `transfer` is what was waited for, such as "receive of 4
  // bytes from rank 1".
  PeerLost(const std::string& cause, const std::string& transfer)
      : Error(ErrorCode::kPeerLost, cause + "; no end to the " + transfer), cause_(cause) {}

  const std::string& cause() const noexcept { return cause_; }

 private:
  std::string cause_;
};

}  // namespace thinwire
