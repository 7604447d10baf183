// Memory that the parent and all ranks share: where each thread is, which addresses nobody may touch, and rooms in
// which ranks exchange handles out of band. Knows no plugin. Everything in it is lock-free, so a killed rank leaves it
// usable.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "support/nccl_host/violations.h"

namespace cgx::host {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

inline constexpr int kMaxRanks = 64;
inline constexpr int kRooms = 24;
inline constexpr std::size_t kRoomBytes = 256;
inline constexpr int kFaultExit = 86;  // exit status of a rank that touched a watched address

/// The call a thread is in. Names are literals: the parent forked the ranks, so it can read the same addresses.
struct CallSlot {
  std::atomic<int> rank{-1};               // -1: free
  std::atomic<const char*> call{nullptr};  // nullptr: in no call
  std::atomic<std::int64_t> sinceNs{0};
  std::atomic<double> limitSeconds{0};  // how long this call may take before the rank counts as stuck
  std::atomic<int> violation{0};        // what a stuck call is
};

/// Addresses whose use is a violation: guard pages, retired staging, read-only send buffers.
struct Watch {
  std::atomic<std::uintptr_t> begin{0};
  std::atomic<std::uintptr_t> end{0};
  std::atomic<int> violation{0};
  std::atomic<int> rank{-1};
  std::atomic<const char*> what{nullptr};
};

struct Fault {
  std::atomic<bool> seen{false};
  std::atomic<int> violation{0};
  std::atomic<int> rank{-1};
  std::atomic<const char*> what{nullptr};
  std::atomic<const char*> call{nullptr};
  std::atomic<std::uintptr_t> offset{0};
};

class Board {
 public:
  static constexpr int kCalls = 512;
  static constexpr int kWatches = 1024;

  /// Shared memory; nullptr when there is none.
  static Board* create() noexcept;
  static void destroy(Board* board) noexcept;

  std::array<CallSlot, kCalls> calls;
  std::array<Watch, kWatches> watches;
  std::array<Fault, kMaxRanks> faults;            // by child index
  std::array<std::atomic<bool>, kMaxRanks> gone;  // the rank's body has returned or its process died

  /// Index of the watch, or -1 when all are taken.
  int watch(std::span<const std::byte> memory, Violation violation, int rank, const char* what) noexcept;
  void unwatch(int index) noexcept;

  /// All members of `room` give `in` and get everybody's, in member order. `sequence` counts the calls of this member
  /// in this room. False when a member is gone or the deadline has passed.
  bool allGather(int room, std::span<const int> members, int me, std::uint64_t sequence, std::span<const std::byte> in,
                 std::span<std::byte> out, Clock::time_point deadline) noexcept;

 private:
  struct Seat {
    std::atomic<std::uint64_t> sequence{0};
    std::array<std::array<std::byte, kRoomBytes>, 2> data{};
  };
  std::array<std::array<Seat, kMaxRanks>, kRooms> rooms_;
};

/// Makes SIGSEGV and SIGBUS on a watched address end the process with kFaultExit and a note in board->faults[child].
void catchFaults(Board* board, int child) noexcept;

/// Marks the calling thread as being in `call` for the guard's life.
class CallMark {
 public:
  CallMark(Board* board, int rank, const char* call, double limitSeconds, Violation ifStuck) noexcept;
  ~CallMark();
  CallMark(const CallMark&) = delete;
  CallMark& operator=(const CallMark&) = delete;

 private:
  CallSlot* slot_ = nullptr;
};

}  // namespace cgx::host
