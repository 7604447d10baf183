// Log lines for whoever hosts us: NCCL's logger inside NCCL, stderr in our own tools. Never called on the data path.
#pragma once

#include <cstdint>

namespace cgx::log {

enum class Level : std::uint8_t { None, Warn, Info, Trace };  // Warn: the user must act; once per cause
enum class Subsys : std::uint8_t { Init, Net, Coll, Codec, Env };

/// Receives one finished line (no newline). May be called from any thread, also concurrently.
using Sink = void (*)(Level level, Subsys subsys, const char* file, int line, const char* message) noexcept;

/// Replaces the sink (nullptr: lines are dropped) and the most detailed level it gets. Thread safe.
void setSink(Sink sink, Level most) noexcept;
/// For tests and tools: "cgx: warn: message" on stderr.
void stderrSink(Level level, Subsys subsys, const char* file, int line, const char* message) noexcept;
bool enabled(Level level) noexcept;

[[gnu::format(printf, 5, 6)]] void write(Level level, Subsys subsys, const char* file, int line, const char* format,
                                         ...) noexcept;

}  // namespace cgx::log

/// CGX_LOG(Warn, Net, "connect to %s: %s", peer, why). User strings are arguments, never the format.
#define CGX_LOG(level, subsys, ...)                                                                             \
  do {                                                                                                          \
    if (::cgx::log::enabled(::cgx::log::Level::level))                                                          \
      ::cgx::log::write(::cgx::log::Level::level, ::cgx::log::Subsys::subsys, __FILE__, __LINE__, __VA_ARGS__); \
  } while (0)
