// dlopen, the logger, and /proc.
#include "support/nccl_host/library.h"

#include <dirent.h>
#include <dlfcn.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <climits>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string_view>
#include <thread>

#include "support/tasks.h"

namespace cgx::host {
namespace {

std::mutex g_logMutex;
LogSink g_log;

void log(ncclDebugLogLevel level, unsigned long, const char*, int, const char* format, ...) {
  std::array<char, 1024> text{};
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text.data(), text.size(), format, arguments);
  va_end(arguments);
  const std::lock_guard lock(g_logMutex);
  if (g_log) g_log(level, text.data());
}

template <class F>
void forEachEntry(const char* directory, F&& use) {
  DIR* d = opendir(directory);
  if (!d) return;
  const std::string own = std::to_string(dirfd(d));
  while (const dirent* entry = readdir(d))
    if (entry->d_name[0] != '.' && own != entry->d_name) use(std::string(entry->d_name));
  closedir(d);
}

template <class T>
std::string difference(const std::set<T>& before, const std::set<T>& now) {
  std::string out;
  for (const T& x : now) {
    if (before.contains(x)) continue;
    if (!out.empty()) out += ", ";
    if constexpr (std::is_same_v<T, int>) {
      out += std::to_string(x);
    } else {
      out += x;
    }
  }
  return out;
}

}  // namespace

Census Census::take() {
  Census census;
  census.threads = test::liveThreads();
  forEachEntry("/proc/self/fd", [&](const std::string& fd) {
    std::array<char, PATH_MAX> target{};
    if (readlink(("/proc/self/fd/" + fd).c_str(), target.data(), target.size() - 1) < 0) return;
    std::string file(target.data());
    if (constexpr std::string_view kDeleted = " (deleted)"; file.ends_with(kDeleted))  // meanwhile, by somebody else
      file.resize(file.size() - kDeleted.size());
    census.descriptors.insert(fd + " -> " + file);
  });
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    const auto slash = line.find('/');
    if (slash != std::string::npos) census.files.insert(line.substr(slash));
  }
  return census;
}

std::vector<Finding> leaks(const Census& before, const Census& now) {
  std::vector<Finding> out;
  if (const auto d = difference(before.threads, now.threads); !d.empty())
    out.push_back({Violation::LeaksThreads, -1, "threads left after dlclose: " + d});
  if (const auto d = difference(before.descriptors, now.descriptors); !d.empty())
    out.push_back({Violation::LeaksFds, -1, "descriptors left after dlclose: " + d});
  if (const auto d = difference(before.files, now.files); !d.empty())
    out.push_back({Violation::LeaksMappings, -1, "files still mapped after dlclose: " + d});
  return out;
}

Library::Library(std::string path, int abi, LogSink sink) : path_(std::move(path)), abi_(abi) {
  const std::lock_guard lock(g_logMutex);
  g_log = std::move(sink);
}

Library::~Library() {
  while (users_ > 0) release();
  const std::lock_guard lock(g_logMutex);
  g_log = nullptr;
}

ncclDebugLogger_t Library::logger() noexcept { return log; }

bool Library::acquire(std::vector<Finding>* findings) {
  const std::lock_guard lock(mutex_);
  if (users_ > 0) {
    ++users_;
    return true;
  }
  handle_ = dlopen(path_.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle_) {
    const char* why = dlerror();
    findings->push_back({Violation::CannotLoad, -1, why ? why : path_});
    return false;
  }
  net_ = findNet(handle_, abi_);
  collNet_ = findCollNet(handle_, abi_);
  const std::size_t before = findings->size();
  if (!net_) {
    findings->push_back({Violation::MissingSymbol, -1, "ncclNetPlugin_v" + std::to_string(abi_)});
  } else if (const std::string missing = net_->missing(); !missing.empty()) {
    findings->push_back({Violation::MissingFunction, -1, "net v" + std::to_string(abi_) + ": " + missing});
  }
  if (collNet_) {
    if (const std::string missing = collNet_->missing(); !missing.empty())
      findings->push_back({Violation::MissingFunction, -1, "collnet v" + std::to_string(abi_) + ": " + missing});
  }
  if (findings->size() != before) {
    net_.reset();
    collNet_.reset();
    dlclose(handle_);
    handle_ = nullptr;
    return false;
  }
  users_ = 1;
  return true;
}

void Library::release() {
  const std::lock_guard lock(mutex_);
  if (users_ == 0 || --users_ > 0) return;
  net_.reset();
  collNet_.reset();
  dlclose(handle_);
  handle_ = nullptr;
}

}  // namespace cgx::host
