// Finds the driver's functions; the suffix _v2 is part of the names of their present forms.
// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/driver.h"

#include <cstdlib>
#include <string>
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
  const char* why = nullptr;
  get_error_string(code, &why);
  throw Error(ErrorCode::kUnsupported, std::string("device: the NVIDIA driver finds no GPU: ") +
                                           (why != nullptr ? why : "unknown error"));
}

const CudaDriver& CudaDriver::get() {
  static const CudaDriver driver;
  return driver;
}

void CudaDriver::check(CudaCode code, const char* what) const {
  if (code == 0) return;
  const char* why = nullptr;
  get_error_string(code, &why);
  throw Error(ErrorCode::kIo, std::string("device: ") + what + ": " +
                                  (why != nullptr ? why : "error " + std::to_string(code)));
}

CudaContext::CudaContext(int ordinal) : driver_(CudaDriver::get()), ordinal_(ordinal) {
  int count = 0;
  driver_.check(driver_.device_get_count(&count), "counting devices");
  if (ordinal < 0 || ordinal >= count)
    throw Error(ErrorCode::kUnsupported, "device: there is no cuda:" + std::to_string(ordinal) +
                                             "; the driver has " + std::to_string(count) +
                                             " devices");
  driver_.check(driver_.device_get(&device_, ordinal), "opening a device");
  driver_.check(driver_.primary_context_retain(&context_, device_), "opening a device's context");
}

std::string CudaContext::device_name() const {
  char name[256] = {};
  driver_.check(driver_.device_get_name(name, sizeof name - 1, device_), "naming a device");
  return name;
}

std::string CudaContext::architecture() const {
  int major = 0, minor = 0;
  driver_.check(driver_.device_get_attribute(&major, kCapabilityMajor, device_), "asking a device");
  driver_.check(driver_.device_get_attribute(&minor, kCapabilityMinor, device_), "asking a device");
  return "sm_" + std::to_string(major) + std::to_string(minor);
}

CudaContext::Current::Current(const CudaContext& context) {
  context.driver_.check(context.driver_.context_push(context.context_), "entering a context");
}

CudaContext::Current::~Current() {
  CudaHandle was = nullptr;
  CudaDriver::get().context_pop(&was);
}

}  // namespace thinwire::device
