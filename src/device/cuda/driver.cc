// Finds the driver's functions; the suffix _v2 is part of the names of their present forms.
// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/driver.h"

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "thinwire/status.h"

namespace thinwire::device {
namespace {

constexpr int kCapabilityMajor = 75, kCapabilityMinor = 76;  // CUdevice_attribute

std::vector<std::string> driver_names() {
  if (const char* path = std::getenv("THINWIRE_CUDA_DRIVER")) return {path};
  return {"libcuda.so.1"};
}

}  // namespace

CudaDriver::CudaDriver() : library_("NVIDIA driver (libcuda.so.1)", driver_names()) {
  library_.find("cuInit", init);
  library_.find("cuGetErrorName", get_error_name);
  library_.find("cuGetErrorString", get_error_string);
  library_.find("cuDeviceGetCount", device_get_count);
  library_.find("cuDeviceGet", device_get);
  library_.find("cuDeviceGetName", device_get_name);
  library_.find("cuDeviceGetAttribute", device_get_attribute);
  library_.find("cuDevicePrimaryCtxRetain", primary_context_retain);
  library_.find("cuCtxPushCurrent_v2", context_push);
  library_.find("cuCtxPopCurrent_v2", context_pop);
  library_.find("cuCtxGetStreamPriorityRange", context_priorities);
  library_.find("cuMemHostAlloc", host_allocate);
  library_.find("cuMemFreeHost", host_free);
  library_.find("cuMemAlloc_v2", allocate);
  library_.find("cuMemFree_v2", free);
  library_.find("cuStreamCreateWithPriority", stream_create);
  library_.find("cuStreamDestroy_v2", stream_destroy);
  library_.find("cuStreamSynchronize", stream_synchronise);
  library_.find("cuStreamWaitEvent", stream_wait_event);
  library_.find("cuMemcpyDtoHAsync_v2", copy_to_host);
  library_.find("cuMemcpyHtoDAsync_v2", copy_to_device);
  library_.find("cuMemcpyDtoDAsync_v2", copy_on_device);
  library_.find("cuEventCreate", event_create);
  library_.find("cuEventDestroy_v2", event_destroy);
  library_.find("cuEventRecord", event_record);
  library_.find("cuEventQuery", event_query);
  library_.find("cuEventElapsedTime", event_elapsed);
  library_.find("cuModuleLoadData", module_load);
  library_.find("cuModuleUnload", module_unload);
  library_.find("cuModuleGetFunction", module_function);
  library_.find("cuLaunchKernel", launch);
  const CudaCode code = init(0);
  if (code == 0) return;
  throw Error(ErrorCode::kUnsupported, "device: the NVIDIA driver finds no GPU: " + describe(code));
}

const CudaDriver& CudaDriver::get() {
  static const CudaDriver* const driver = new CudaDriver;
  return *driver;
}

// A driver has no words for codes of later ones.
std::string CudaDriver::describe(CudaCode code) const {
  const char *name = nullptr, *words = nullptr;
  if (get_error_name(code, &name) != 0 || name == nullptr) name = "an error of the driver";
  std::string text = name + (" (" + std::to_string(code) + ")");
  if (get_error_string(code, &words) == 0 && words != nullptr) text += std::string(": ") + words;
  return text;
}

void CudaDriver::check(CudaCode code, const char* what) const {
  if (code != 0)
    throw Error(ErrorCode::kIo, std::string("device: ") + what + ": " + describe(code));
}

CudaContext::CudaContext(int ordinal) : driver_(CudaDriver::get()), ordinal_(ordinal) {
  int count = 0;
  driver_.check(driver_.device_get_count(&count), "counting devices");
  if (ordinal < 0 || ordinal >= count)
    throw Error(ErrorCode::kUnsupported, "device: there is no cuda:" + std::to_string(ordinal) +
                                             "; the driver has " + std::to_string(count) +
                                             " devices");
  check(driver_.device_get(&device_, ordinal), "opening the device");
  check(driver_.primary_context_retain(&context_, device_), "opening the device's context");
}

void CudaContext::check(CudaCode code, std::string_view what) const {
  if (code != 0)
    throw Error(ErrorCode::kIo,
                "device " + name() + ": " + std::string(what) + ": " + driver_.describe(code));
}

std::string CudaContext::device_name() const {
  char name[256] = {};
  check(driver_.device_get_name(name, sizeof name - 1, device_), "asking for its name");
  return name;
}

std::string CudaContext::architecture() const {
  int major = 0, minor = 0;
  for (const auto& [attribute, value] :
       {std::pair(kCapabilityMajor, &major), std::pair(kCapabilityMinor, &minor)})
    check(driver_.device_get_attribute(value, attribute, device_), "asking for its architecture");
  return "sm_" + std::to_string(major) + std::to_string(minor);
}

CudaContext::Current::Current(const CudaContext& context)
    : driver_(context.driver_), entered_(true) {
  context.check(driver_.context_push(context.context_), "entering its context");
}

CudaContext::Current::Current(const CudaContext& context, std::nothrow_t) noexcept
    : driver_(context.driver_), entered_(driver_.context_push(context.context_) == 0) {}

CudaContext::Current::~Current() {
  CudaHandle was = nullptr;
  if (entered_) driver_.context_pop(&was);
}

}  // namespace thinwire::device
