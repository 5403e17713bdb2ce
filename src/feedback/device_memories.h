// Memories for gradients in a device's memory, where their vectors live, too. They are saved as the processor's are.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "device/device_work.h"
#include "thinwire/feedback.h"

namespace thinwire {

std::unique_ptr<Feedback> make_device_none(const StreamSpec& stream, SharedWork work);
std::unique_ptr<Feedback> make_device_residual(float beta, const StreamSpec& stream,
                                               SharedWork work);

}  // namespace thinwire
