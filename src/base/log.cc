#include "cgx/log.h"

#include <atomic>
#include <cstdarg>
#include <cstdio>

namespace cgx::log {
namespace {

// Two words that change together only at start-up; a line that sees the old sink with the new level is harmless.
std::atomic<Sink> sink{nullptr};
std::atomic<Level> most{Level::None};

}  // namespace

void setSink(Sink newSink, Level newMost) noexcept {
  sink.store(newSink);
  most.store(newSink == nullptr ? Level::None : newMost);
}

bool enabled(Level level) noexcept { return level <= most.load(std::memory_order_relaxed); }

void stderrSink(Level level, Subsys, const char*, int, const char* message) noexcept {
  static constexpr const char* kNames[] = {"", "warn", "info", "trace"};
  std::fprintf(stderr, "cgx: %s: %s\n", kNames[static_cast<int>(level)], message);
}

void write(Level level, Subsys subsys, const char* file, int line, const char* format, ...) noexcept {
  const Sink target = sink.load();
  if (target == nullptr) return;
  char message[2048];  // longer lines are cut: a log call must not allocate
  std::va_list args;
  va_start(args, format);
  std::vsnprintf(message, sizeof message, format, args);
  va_end(args);
  target(level, subsys, file, line, message);
}

}  // namespace cgx::log
