// The functions of CUDA's driver interface that are used, by dlopen of libcuda.so.1: neither its
// header nor a toolkit is needed, and machines without the driver run everything else.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <string>
#include <string_view>

#include "device/cuda/shared_library.h"

namespace thinwire::device {

// CUresult, CUdevice, CUdeviceptr, and what cuda.h has as pointers to structures.
using CudaCode = int;
using CudaHandle = void*;
using CudaAddress = uint64_t;

inline constexpr CudaCode kCudaOutOfMemory = 2;
inline constexpr CudaCode kCudaNotReady = 600;

struct CudaDriver {
  // Throws Error(kUnsupported) if there is no driver, it is too old, or it finds no GPU. The only
  // one of the process, and never destroyed: what frees memory at the end of the process still
  // calls it.
  static const CudaDriver& get();

  // "CUDA_ERROR_INVALID_CONTEXT (201): invalid device context"
  std::string describe(CudaCode code) const;

  // Throws Error(kIo), "device: WHAT: " and what describe says, unless the code is 0.
  void check(CudaCode code, const char* what) const;

  CudaCode (*init)(unsigned flags);
  CudaCode (*get_error_name)(CudaCode code, const char** text);
  CudaCode (*get_error_string)(CudaCode code, const char** text);
  CudaCode (*device_get_count)(int* count);
  CudaCode (*device_get)(int* device, int ordinal);
  CudaCode (*device_get_name)(char* name, int size, int device);
  CudaCode (*device_get_attribute)(int* value, int attribute, int device);
  CudaCode (*primary_context_retain)(CudaHandle* context, int device);
  CudaCode (*context_push)(CudaHandle context);
  CudaCode (*context_pop)(CudaHandle* context);
  CudaCode (*context_priorities)(int* least, int* greatest);
  CudaCode (*host_allocate)(void** memory, size_t bytes, unsigned flags);
  CudaCode (*host_free)(void* memory);
  CudaCode (*allocate)(CudaAddress* memory, size_t bytes);
  CudaCode (*free)(CudaAddress memory);
  CudaCode (*stream_create)(CudaHandle* stream, unsigned flags, int priority);
  CudaCode (*stream_destroy)(CudaHandle stream);
  CudaCode (*stream_synchronise)(CudaHandle stream);
  CudaCode (*stream_wait_event)(CudaHandle stream, CudaHandle event, unsigned flags);
  CudaCode (*copy_to_host)(void* to, CudaAddress from, size_t bytes, CudaHandle stream);
  CudaCode (*copy_to_device)(CudaAddress to, const void* from, size_t bytes, CudaHandle stream);
  CudaCode (*copy_on_device)(CudaAddress to, CudaAddress from, size_t bytes, CudaHandle stream);
  CudaCode (*event_create)(CudaHandle* event, unsigned flags);
  CudaCode (*event_destroy)(CudaHandle event);
  CudaCode (*event_record)(CudaHandle event, CudaHandle stream);
  CudaCode (*event_query)(CudaHandle event);
  CudaCode (*event_elapsed)(float* milliseconds, CudaHandle from, CudaHandle to);
  CudaCode (*module_load)(CudaHandle* module, const void* image);
  CudaCode (*module_unload)(CudaHandle module);
  CudaCode (*module_function)(CudaHandle* function, CudaHandle module, const char* name);
  CudaCode (*launch)(CudaHandle function, unsigned blocks_x, unsigned blocks_y, unsigned blocks_z,
                     unsigned threads_x, unsigned threads_y, unsigned threads_z,
                     unsigned shared_bytes, CudaHandle stream, void** arguments, void** extra);

 private:
  CudaDriver();

  SharedLibrary library_;
};

// A device's primary context, which PyTorch uses too. It is kept until the process ends.
class CudaContext {
 public:
  // Throws Error(kUnsupported), which says how many there are, if there is no device of this
  // number.
  explicit CudaContext(int ordinal);

  // Makes it the calling thread's current context for a scope, where it can: with std::nothrow it
  // is asked whether it did.
  class Current {
   public:
    explicit Current(const CudaContext& context);
    Current(const CudaContext& context, std::nothrow_t) noexcept;
    ~Current();
    Current(const Current&) = delete;
    Current& operator=(const Current&) = delete;

    bool is_entered() const noexcept { return entered_; }

   private:
    const CudaDriver& driver_;
    bool entered_;
  };

  // Calls free(driver()), which throws nothing, in this context. Nothing is called where the
  // context cannot be entered, because the driver shuts down or the device has failed: what is to
  // be freed then goes with the process.
  template <class Free>
  void release(const Free& free) const noexcept {
    const Current current(*this, std::nothrow);
    if (current.is_entered()) free(driver_);
  }

  const CudaDriver& driver() const noexcept { return driver_; }
  int ordinal() const noexcept { return ordinal_; }
  std::string name() const { return "cuda:" + std::to_string(ordinal_); }

  // As CudaDriver::check, "device cuda:0: WHAT: ...".
  void check(CudaCode code, std::string_view what) const;

  std::string device_name() const;   // "NVIDIA H100 80GB HBM3"
  std::string architecture() const;  // "sm_90"

 private:
  const CudaDriver& driver_;
  int ordinal_;
  int device_ = 0;
  CudaHandle context_ = nullptr;
};

}  // namespace thinwire::device
