// The shared board: plain atomics over one anonymous shared mapping.
#include "support/nccl_host/board.h"

#include <execinfo.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <new>
#include <thread>

namespace cgx::host {
namespace {

Board* g_board = nullptr;  // for the signal handler, which gets no argument
int g_child = 0;

std::int64_t nowNs() noexcept {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch()).count();
}

void onFault(int signal, siginfo_t* info, void*) {
  const auto address = reinterpret_cast<std::uintptr_t>(info->si_addr);
  for (Watch& w : g_board->watches) {
    if (address < w.begin.load() || address >= w.end.load()) continue;
    Fault& f = g_board->faults[static_cast<std::size_t>(g_child)];
    f.violation = w.violation.load();
    f.rank = w.rank.load();
    f.what = w.what.load();
    f.offset = address - w.begin.load();
    f.seen = true;
    _exit(kFaultExit);
  }
  // Not ours: say where, then fault again and die of it.
  std::array<void*, 48> frames{};
  backtrace_symbols_fd(frames.data(), backtrace(frames.data(), static_cast<int>(frames.size())), STDERR_FILENO);
  ::signal(signal, SIG_DFL);
}

}  // namespace

Board* Board::create() noexcept {
  void* memory = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return memory == MAP_FAILED ? nullptr : new (memory) Board();
}

void Board::destroy(Board* board) noexcept {
  if (board) munmap(board, sizeof(Board));
}

int Board::watch(std::span<const std::byte> memory, Violation violation, int rank, const char* what) noexcept {
  for (int i = 0; i < kWatches; ++i) {
    Watch& w = watches[static_cast<std::size_t>(i)];
    std::uintptr_t free = 0;
    const auto begin = reinterpret_cast<std::uintptr_t>(memory.data());
    if (!w.begin.compare_exchange_strong(free, begin)) continue;
    w.violation = static_cast<int>(violation);
    w.rank = rank;
    w.what = what;
    w.end = begin + memory.size();
    return i;
  }
  return -1;
}

void Board::unwatch(int index) noexcept {
  if (index < 0) return;
  watches[static_cast<std::size_t>(index)].end = 0;
  watches[static_cast<std::size_t>(index)].begin = 0;
}

bool Board::allGather(int room, std::span<const int> members, int me, std::uint64_t sequence,
                      std::span<const std::byte> in, std::span<std::byte> out, Clock::time_point deadline) noexcept {
  auto& seats = rooms_[static_cast<std::size_t>(room)];
  // Two buffers suffice: a member writes number k + 2 only after all have published k + 1, that is, have read k.
  Seat& mine = seats[static_cast<std::size_t>(me)];
  if (!in.empty()) std::memcpy(mine.data[sequence % 2].data(), in.data(), in.size());
  mine.sequence.store(sequence + 1, std::memory_order_release);  // pairs with the acquire below
  for (std::size_t i = 0; i < members.size(); ++i) {
    const auto other = static_cast<std::size_t>(members[i]);
    while (seats[other].sequence.load(std::memory_order_acquire) <= sequence) {
      if (Clock::now() > deadline || gone[other].load()) {
        if (seats[other].sequence.load(std::memory_order_acquire) > sequence) break;  // it left after publishing
        return false;
      }
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    if (!in.empty()) std::memcpy(out.data() + i * in.size(), seats[other].data[sequence % 2].data(), in.size());
  }
  return true;
}

void catchFaults(Board* board, int child) noexcept {
  std::array<void*, 1> warm{};
  backtrace(warm.data(), 1);  // loads its library now, not in the handler
  g_board = board;
  g_child = child;
  struct sigaction action {};
  action.sa_sigaction = onFault;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &action, nullptr);
  sigaction(SIGBUS, &action, nullptr);
}

CallMark::CallMark(Board* board, int rank, const char* call, double limitSeconds, Violation ifStuck) noexcept {
  for (CallSlot& slot : board->calls) {
    int free = -1;
    if (slot.rank.load(std::memory_order_relaxed) != -1 || !slot.rank.compare_exchange_strong(free, rank)) continue;
    slot.sinceNs = nowNs();
    slot.limitSeconds = limitSeconds;
    slot.violation = static_cast<int>(ifStuck);
    slot.call.store(call, std::memory_order_release);  // pairs with the runner's acquire: last, so the rest is valid
    slot_ = &slot;
    return;
  }
}

CallMark::~CallMark() {
  if (!slot_) return;
  slot_->call.store(nullptr, std::memory_order_release);
  slot_->rank.store(-1, std::memory_order_release);
}

}  // namespace cgx::host
