// Loads a plugin library the way NCCL does and finds its tables. Captures what it logs.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdarg>
#include <cstdio>
#include <mutex>
#include <string>
#include <vector>

#include "plugin/collnet_api.h"
#include "plugin/net_api.h"

namespace cgx::test {

/// One for the whole test program, as the logger has no argument to carry it.
class Captured {
 public:
  struct Line {
    ncclDebugLogLevel level;
    std::string text;
  };
  static void log(ncclDebugLogLevel level, unsigned long, const char*, int, const char* format, ...)
      __attribute__((format(printf, 5, 6))) {
    char text[4096];
    std::va_list args;
    va_start(args, format);
    std::vsnprintf(text, sizeof text, format, args);
    va_end(args);
    const std::lock_guard lock(mutex());
    lines().push_back({level, text});
  }
  static std::vector<std::string> take(ncclDebugLogLevel level) {
    const std::lock_guard lock(mutex());
    std::vector<std::string> found;
    for (const Line& line : lines())
      if (line.level == level) found.push_back(line.text);
    lines().clear();
    return found;
  }
  static void clear() { take(NCCL_LOG_NONE); }

 private:
  static std::mutex& mutex() {
    static std::mutex m;
    return m;
  }
  static std::vector<Line>& lines() {
    static std::vector<Line> all;
    return all;
  }
};

class Library {
 public:
  explicit Library(const std::string& path) : handle_(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (handle_ == nullptr) ADD_FAILURE() << dlerror();
  }
  ~Library() { close(); }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  void close() {
    if (handle_ != nullptr) dlclose(handle_);
    handle_ = nullptr;
  }
  template <class T>
  T* symbol(const std::string& name) const {
    return handle_ == nullptr ? nullptr : reinterpret_cast<T*>(dlsym(handle_, name.c_str()));
  }

 private:
  void* handle_;
};

/// The version of a table, and its symbol.
template <class Table>
struct Version;
#define CGX_VERSION_OF(v)                                            \
  template <>                                                        \
  struct Version<ncclNet_v##v##_t> {                                 \
    static constexpr int kNumber = v;                                \
    using Props = ncclNetProperties_v##v##_t;                        \
    static constexpr const char* kSymbol = "ncclNetPlugin_v" #v;     \
  };                                                                 \
  template <>                                                        \
  struct Version<ncclCollNet_v##v##_t> {                             \
    static constexpr int kNumber = v;                                \
    using Props = ncclNetProperties_v##v##_t;                        \
    static constexpr const char* kSymbol = "ncclCollNetPlugin_v" #v; \
  }
CGX_VERSION_OF(6);
CGX_VERSION_OF(7);
CGX_VERSION_OF(8);
CGX_VERSION_OF(9);
CGX_VERSION_OF(10);
CGX_VERSION_OF(11);
CGX_VERSION_OF(12);
#undef CGX_VERSION_OF

using NetVersions = ::testing::Types<ncclNet_v6_t, ncclNet_v7_t, ncclNet_v8_t, ncclNet_v9_t, ncclNet_v10_t,
                                     ncclNet_v11_t, ncclNet_v12_t>;
using CollNetVersions = ::testing::Types<ncclCollNet_v6_t, ncclCollNet_v7_t, ncclCollNet_v8_t, ncclCollNet_v9_t,
                                         ncclCollNet_v10_t, ncclCollNet_v11_t, ncclCollNet_v12_t>;

}  // namespace cgx::test
