// A library that stands where NCCL would: it has a version and a logger, whose address leads to it.
#include <cstdarg>
#include <cstdio>

#include "plugin/nccl_types.h"

namespace {
int code = 0;
void (*receiver)(int level, const char* text) = nullptr;
}  // namespace

#define CGX_VISIBLE extern "C" [[gnu::visibility("default")]]

CGX_VISIBLE void fakeNcclBe(int version, void (*receive)(int, const char*)) {
  code = version;
  receiver = receive;
}
CGX_VISIBLE ncclResult_t ncclGetVersion(int* version) {
  *version = code;
  return ncclSuccess;
}
CGX_VISIBLE void fakeNcclLog(ncclDebugLogLevel level, unsigned long, const char*, int, const char* format, ...) {
  char text[2048];
  std::va_list args;
  va_start(args, format);
  std::vsnprintf(text, sizeof text, format, args);
  va_end(args);
  if (receiver != nullptr) receiver(level, text);
}
