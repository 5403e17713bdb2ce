// Renewed: an object that another takes the place of, and that may be lost on the way.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>
#include <memory>

#include "saved_store.h"
#include "thinwire/status.h"

namespace thinwire::python {

// Whoever uses it after it was lost gets the error by which it was.
template <typename T>
class Renewed {
 public:
  void begin(std::unique_ptr<T> object) noexcept { object_ = std::move(object); }

  T* operator->() const {
    if (object_ == nullptr) std::rethrow_exception(lost_);
    return object_.get();
  }

  // Ends the object first, because both write to one group, then makes the next one. Where that
  // fails, `again` makes one like it was, unless a rank is lost. Throws what `make` threw, or
  // `again`.
  template <typename Make, typename Again>
  void renew(const Make& make, const Again& again) {
    object_.reset();
    try {
      object_ = make();
    } catch (const Error& error) {
      lost_ = std::current_exception();
      if (may_go_on(error)) object_ = again();
      throw;
    } catch (...) {
      lost_ = std::current_exception();
      throw;
    }
  }

 private:
  std::unique_ptr<T> object_;
  std::exception_ptr lost_;  // set where there is no object any more
};

}  // namespace thinwire::python
