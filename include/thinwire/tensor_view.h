// Views of tensors that an exchange reads and writes, on the CPU or in a device's memory.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "thinwire/device_memory.h"

namespace thinwire {

enum class DType : uint8_t { kFloat32, kBFloat16 };
enum class Device : uint8_t { kCpu, kCuda };

// A view of a tensor's memory, which the caller owns: the gradient before the step, the mean after
// it.
struct TensorView {
  void* data = nullptr;
  size_t count = 0;
  DType dtype = DType::kFloat32;
  Device device = Device::kCpu;
  // Memory on a device: values are ready once the work in this queue is done.
  DeviceQueue queue = nullptr;
};

}  // namespace thinwire
