// A libcuda.so.1 for tests, whose device is the processor: it does at once what is asked, and
// writes down what it was asked. As the driver does, it refuses what needs a current context where
// there is none, and everything once it is shut down. Built as a library of its own.
// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>
#include <string>

#define API extern "C" __attribute__((visibility("default"))) int
#define CONTROL extern "C" __attribute__((visibility("default")))

namespace {

constexpr int kInvalidValue = 1, kOutOfMemory = 2, kDeinitialized = 4, kNoDevice = 100,
              kInvalidDevice = 101, kInvalidImage = 200, kInvalidContext = 201,
              kNoBinaryForGpu = 209, kNotReady = 600;

struct Words {
  int code;
  const char *name, *text;
};
constexpr Words kWords[] = {
    {kInvalidValue, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {kOutOfMemory, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {kDeinitialized, "CUDA_ERROR_DEINITIALIZED", "driver shutting down"},
    {kNoDevice, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {kInvalidDevice, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {kInvalidImage, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {kInvalidContext, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {kNoBinaryForGpu, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available"},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"}};

int words_of(int code, const char** out, const char* Words::*which) {
  *out = nullptr;
  for (const Words& words : kWords)
    if (words.code == code) *out = words.*which;
  return *out != nullptr ? 0 : kInvalidValue;
}

thread_local int depth = 0;  // contexts on the stack of this thread
char context = 0;
std::atomic<int> stream_number = 0;
std::atomic<uintptr_t> event_number = 0;
std::atomic<int> left = 0;            // allocations, streams, events and modules that are there
std::atomic<int> refused = 0;         // calls without a context
std::atomic<bool> shut_down = false;  // the process ends
std::atomic<int> next_code = 0;       // of the next call that needs a context
std::mutex mutex;
std::string heard;
std::set<void*> looked_at;  // events, since they were recorded
std::set<void*> memories;

void hear(const std::string& what) {
  const std::lock_guard lock(mutex);
  heard += what;
}

// Of what needs a context.
int permission() {
  if (shut_down) return kDeinitialized;
  if (depth == 0) {
    ++refused;
    return kInvalidContext;
  }
  return next_code.exchange(0);
}

int in_context(const std::string& what) {
  hear(what + " ");
  return permission();
}

void* allocated(size_t bytes) {
  const std::lock_guard lock(mutex);
  return *memories.insert(std::malloc(bytes)).first;
}
void deallocate(void* memory) {
  const std::lock_guard lock(mutex);
  memories.erase(memory);
  std::free(memory);
}

int made(int code) {
  if (code == 0) ++left;
  return code;
}
int freed(int code) {
  if (code == 0) --left;
  return code;
}

}  // namespace

CONTROL const char* fake_driver_heard() { return heard.c_str(); }
CONTROL int fake_driver_depth() { return depth; }
CONTROL int fake_driver_left() { return left; }
CONTROL int fake_driver_refused() { return refused; }
CONTROL void fake_driver_shut_down() { shut_down = true; }
CONTROL void fake_driver_fail(int code) { next_code = code; }

API cuInit(unsigned) { return std::getenv("THINWIRE_FAKE_NO_GPU") != nullptr ? kNoDevice : 0; }
API cuGetErrorName(int code, const char** text) { return words_of(code, text, &Words::name); }
API cuGetErrorString(int code, const char** text) { return words_of(code, text, &Words::text); }
API cuDeviceGetCount(int* count) {
  *count = 1;
  return 0;
}
API cuDeviceGet(int* device, int) {
  *device = 7;
  return 0;
}
API cuDeviceGetName(char* name, int size, int) {
  std::strncpy(name, "Fake GPU", static_cast<size_t>(size));
  return 0;
}
API cuDeviceGetAttribute(int* value, int attribute, int device) {
  *value = attribute == 75 ? 9 : 0;
  return device == 7 ? 0 : kInvalidDevice;
}
API cuDevicePrimaryCtxRetain(void** retained, int) {
  hear("retain ");
  *retained = &context;
  return 0;
}
API cuCtxPushCurrent_v2(void* given) {
  if (shut_down) return kDeinitialized;
  if (given != &context) return kInvalidContext;
  ++depth;
  return 0;
}
API cuCtxPopCurrent_v2(void** popped) {
  if (depth == 0) return kInvalidContext;
  --depth;
  *popped = &context;
  return 0;
}
API cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return in_context("priorities");
}
API cuMemHostAlloc(void** memory, size_t bytes, unsigned flags) {
  const int code = flags == 1 ? in_context("host_alloc") : kInvalidValue;
  if (code == 0) *memory = allocated(bytes);
  return made(code);
}
API cuMemFreeHost(void* memory) {
  const int code = permission();
  if (code == 0) deallocate(memory);
  return freed(code);
}
API cuMemAlloc_v2(uint64_t* memory, size_t bytes) {
  if (bytes >= uint64_t{1} << 40) return kOutOfMemory;
  const int code = in_context("alloc");
  if (code == 0) *memory = reinterpret_cast<uint64_t>(allocated(bytes));
  return made(code);
}
API cuMemFree_v2(uint64_t memory) {
  const int code = permission();
  if (code == 0) deallocate(reinterpret_cast<void*>(memory));
  return freed(code);
}
API cuStreamCreateWithPriority(void** stream, unsigned flags, int priority) {
  *stream = reinterpret_cast<void*>(static_cast<uintptr_t>(++stream_number));
  return made(flags == 1 && priority == -5 ? in_context("stream") : kInvalidValue);
}
API cuStreamDestroy_v2(void* stream) {
  return freed(in_context("stream_destroy:" + std::to_string(reinterpret_cast<uintptr_t>(stream))));
}
API cuStreamSynchronize(void*) { return permission(); }
API cuStreamWaitEvent(void*, void*, unsigned flags) {
  return flags == 0 ? in_context("wait_event") : kInvalidValue;
}
API cuMemcpyDtoHAsync_v2(void* to, uint64_t from, size_t bytes, void*) {
  const int code = in_context("to_host");
  if (code == 0) std::memcpy(to, reinterpret_cast<void*>(from), bytes);
  return code;
}
API cuMemcpyHtoDAsync_v2(uint64_t to, const void* from, size_t bytes, void*) {
  const int code = in_context("to_device");
  if (code == 0) std::memcpy(reinterpret_cast<void*>(to), from, bytes);
  return code;
}
API cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, void*) {
  const int code = in_context("on_device");
  if (code == 0) std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<void*>(from), bytes);
  return code;
}
API cuEventCreate(void** event, unsigned flags) {
  *event = reinterpret_cast<void*>(++event_number);
  return made(flags == 2 ? in_context("event") : kInvalidValue);
}
API cuEventDestroy_v2(void*) { return freed(permission()); }
API cuEventRecord(void* event, void*) {
  {
    const std::lock_guard lock(mutex);
    looked_at.erase(event);
  }
  return in_context("record");
}
API cuEventQuery(void* event) {
  const int code = in_context("query");
  const std::lock_guard lock(mutex);
  if (code != 0) return code;
  return looked_at.insert(event).second ? kNotReady : 0;  // not ready the first time
}
API cuEventElapsedTime(float* milliseconds, void*, void*) {
  *milliseconds = 1;
  return permission();
}
API cuModuleLoadData(void** module, const void* image) {
  if (std::getenv("THINWIRE_FAKE_NO_KERNELS") != nullptr) return kNoBinaryForGpu;
  *module = &heard;
  const bool is_elf = std::memcmp(image,
                                  "\x7f"
                                  "ELF",
                                  4) == 0;
  return made(is_elf ? in_context("module") : kInvalidImage);
}
API cuModuleUnload(void*) { return freed(permission()); }
API cuModuleGetFunction(void** function, void*, const char* name) {
  *function = &event_number;
  return in_context(std::string("function:") + name);
}
API cuLaunchKernel(void*, unsigned x, unsigned, unsigned, unsigned threads, unsigned, unsigned,
                   unsigned, void* stream, void** arguments, void**) {
  uint64_t count = 0;
  std::memcpy(&count, arguments[1], sizeof count);
  return in_context("launch:" + std::to_string(x) + "x" + std::to_string(threads) + ",stream" +
                    std::to_string(reinterpret_cast<uintptr_t>(stream)) + ",count" +
                    std::to_string(count));
}
