// A libcuda.so.1 for tests, whose device is the processor: it does at once what is asked, and writes down what it was
// asked. Built as a library of its own.
// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#define API extern "C" __attribute__((visibility("default"))) int

namespace {

int depth = 0;  // contexts on the stack of this thread
int stream_number = 0;
uintptr_t event_number = 0;
std::string heard;

// What needs a context says so.
int in_context(const char* what) {
  heard += std::string(what) + " ";
  return depth > 0 ? 0 : 201;  // CUDA_ERROR_INVALID_CONTEXT
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const char* fake_driver_heard() {
  return heard.c_str();
}
extern "C" __attribute__((visibility("default"))) int fake_driver_depth() { return depth; }

API cuInit(unsigned) { return std::getenv("THINWIRE_FAKE_NO_GPU") != nullptr ? 100 : 0; }
API cuGetErrorString(int code, const char** text) {
  *text = code == 100 ? "no CUDA-capable device is detected" : "invalid device context";
  return 0;
}
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
  return device == 7 ? 0 : 101;
}
API cuDevicePrimaryCtxRetain(void** context, int) {
  *context = &depth;
  return 0;
}
API cuCtxPushCurrent_v2(void* context) {
  ++depth;
  return context == &depth ? 0 : 201;
}
API cuCtxPopCurrent_v2(void** context) {
  --depth;
  *context = &depth;
  return 0;
}
API cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return in_context("priorities");
}
API cuMemHostAlloc(void** memory, size_t bytes, unsigned flags) {
  *memory = std::malloc(bytes);
  return flags == 1 ? in_context("host_alloc") : 1;
}
API cuMemFreeHost(void* memory) {
  std::free(memory);
  return 0;
}
API cuMemAlloc_v2(uint64_t* memory, size_t bytes) {
  *memory = reinterpret_cast<uint64_t>(std::malloc(bytes));
  return in_context("alloc");
}
API cuMemFree_v2(uint64_t memory) {
  std::free(reinterpret_cast<void*>(memory));
  return 0;
}
API cuStreamCreateWithPriority(void** stream, unsigned flags, int priority) {
  *stream = reinterpret_cast<void*>(static_cast<uintptr_t>(++stream_number));
  return flags == 1 && priority == -5 ? in_context("stream") : 1;
}
API cuStreamDestroy_v2(void*) { return 0; }
API cuStreamSynchronize(void*) { return 0; }
API cuStreamWaitEvent(void*, void*, unsigned flags) {
  return flags == 0 ? in_context("wait_event") : 1;
}
API cuMemcpyDtoHAsync_v2(void* to, uint64_t from, size_t bytes, void*) {
  std::memcpy(to, reinterpret_cast<void*>(from), bytes);
  return in_context("to_host");
}
API cuMemcpyHtoDAsync_v2(uint64_t to, const void* from, size_t bytes, void*) {
  std::memcpy(reinterpret_cast<void*>(to), from, bytes);
  return in_context("to_device");
}
API cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, void*) {
  std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<void*>(from), bytes);
  return in_context("on_device");
}
API cuEventCreate(void** event, unsigned flags) {
  *event = reinterpret_cast<void*>(++event_number);
  return flags == 2 ? in_context("event") : 1;
}
API cuEventDestroy_v2(void*) { return 0; }
API cuEventRecord(void*, void*) { return in_context("record"); }
API cuEventQuery(void*) {
  static int asked = 0;
  const int code = in_context("query");
  return code != 0 ? code : asked++ % 2 == 0 ? 600 : 0;  // not ready every other time
}
API cuEventElapsedTime(float* milliseconds, void*, void*) {
  *milliseconds = 1;
  return 0;
}
API cuModuleLoadData(void** module, const void* image) {
  *module = &heard;
  return std::memcmp(image,
                     "\x7f"
                     "ELF",
                     4) == 0
             ? in_context("module")
             : 200;
}
API cuModuleUnload(void*) { return 0; }
API cuModuleGetFunction(void** function, void*, const char* name) {
  *function = &event_number;
  return in_context((std::string("function:") + name).c_str());
}
API cuLaunchKernel(void*, unsigned x, unsigned, unsigned, unsigned threads, unsigned, unsigned,
                   unsigned, void* stream, void** arguments, void**) {
  uint64_t count = 0;
  std::memcpy(&count, arguments[1], sizeof count);
  heard += "launch:" + std::to_string(x) + "x" + std::to_string(threads) + ",stream" +
           std::to_string(reinterpret_cast<uintptr_t>(stream)) + ",count" + std::to_string(count);
  return in_context("");
}
