// The process's codec threads: they exist while somebody holds a lease and run what is posted. Knows nothing of what
// the jobs do.
#pragma once

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>
#include <vector>

#include "cgx/executor.h"
#include "cgx/settings.h"
#include "cgx/status.h"

namespace cgx {

/// One pool a process, shared by all communicators, so that many of them do not mean many threads. On the heap and
/// never destroyed by the library's own destructors: exit() with leases held is clean.
class WorkerPool final : public Executor {
 public:
  /// Keeps the pool alive. The last one to go runs what is still queued and joins the threads, so it must not be
  /// dropped by a job.
  class Lease {
   public:
    Lease() noexcept = default;
    Lease(Lease&& other) noexcept : pool_(std::exchange(other.pool_, nullptr)) {}
    Lease& operator=(Lease&& other) noexcept {
      std::swap(pool_, other.pool_);
      return *this;
    }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    ~Lease() { release(); }

    /// Idempotent. Returns once the threads are gone if this was the last lease.
    void release() noexcept;
    explicit operator bool() const noexcept { return pool_ != nullptr; }
    WorkerPool& operator*() const noexcept { return *pool_; }
    WorkerPool* operator->() const noexcept { return pool_; }

   private:
    friend class WorkerPool;
    explicit Lease(WorkerPool* pool) noexcept : pool_(pool) {}
    WorkerPool* pool_ = nullptr;
  };

  /// The process's pool, started by the first caller, whose settings decide its size. Code::System when a thread cannot
  /// be made.
  static Result<Lease> acquire(const Settings& settings);

  /// Safe on any thread that knows a lease alive. Urgent jobs run before normal ones, each kind in the order of
  /// posting.
  void post(Job& job, Urgency urgency) noexcept override;
  int threads() const noexcept { return static_cast<int>(threads_.size()); }

  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

 private:
  struct Queue {
    Job* first = nullptr;
    Job* last = nullptr;
    void push(Job& job) noexcept;
    Job* pop() noexcept;
  };

  explicit WorkerPool(std::chrono::microseconds spin) : spin_(spin) {}
  ~WorkerPool() override;
  Status start(int threads, const std::vector<int>& cpus);
  static void* entry(void* pool) noexcept;
  Job* next() noexcept;
  Job* pop() noexcept;

  const std::chrono::microseconds spin_;  // how long an idle worker looks before it sleeps
  std::vector<pthread_t> threads_;
  std::atomic<int> started_{0};  // numbers the threads' names
  std::atomic<int> queued_{0};   // written under mutex_; spinning workers read it without
  std::mutex mutex_;
  std::condition_variable wake_;
  Queue urgent_;  // by mutex_, like all below
  Queue normal_;
  int sleepers_ = 0;
  bool stopping_ = false;
};

/// How many workers the settings ask for on `cpus` CPUs: CGX_THREADS, else cpus / local ranks / 4 within 1..4.
int workerThreads(const Settings& settings, int cpus) noexcept;

/// Those of a rank that want a CPU at the same time: ours, NCCL's and the application's.
int busyThreads(const Settings& settings, int cpus) noexcept;

/// Of `allowed` (ascending: the mask that a new thread inherits), the CPUs near the NICs, to keep our threads to.
/// Empty, which means "stay where you are": none is near, all are, or they are fewer than the host's ranks keep busy,
/// as crowding costs more than the way to a far CPU.
std::vector<int> cpusToKeepTo(const Settings& settings, const std::vector<int>& allowed);

/// How long idle workers spin. Waking a sleeper costs more than 50 us of looking is worth, but only where a spinning
/// worker takes no CPU from a rank's other busy threads: those that move bytes, NCCL's proxy and the application's.
/// Else zero.
std::chrono::microseconds workerSpin(const Settings& settings, int cpus) noexcept;

}  // namespace cgx
