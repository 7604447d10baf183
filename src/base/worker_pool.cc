#include "base/worker_pool.h"

#include <signal.h>

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <memory>

#include "base/cpus.h"
#include "base/signals.h"
#include "cgx/log.h"

namespace cgx {
namespace {

// Both have no destructor, so they can be used until the process is gone.
constinit std::mutex registryMutex;
constinit WorkerPool* current = nullptr;  // by registryMutex, like the count
constinit int leases = 0;

void relaxCpu() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

int workerThreads(const Settings& settings, int cpus) noexcept {
  if (settings.threads > 0) return settings.threads;
  return std::clamp(cpus / std::max(1, settings.localRanks) / 4, 1, 4);
}

int busyThreads(const Settings& settings, int cpus) noexcept {
  constexpr int kOthers = 2;  // NCCL's proxy thread, the application's thread
  return workerThreads(settings, cpus) + settings.progressThreads + kOthers;
}

std::chrono::microseconds workerSpin(const Settings& settings, int cpus) noexcept {
  const int share = cpus / std::max(1, settings.localRanks);
  return std::chrono::microseconds(share >= busyThreads(settings, cpus) ? 50 : 0);
}

std::vector<int> cpusToKeepTo(const Settings& settings, const std::vector<int>& allowed) {
  std::vector<int> both;
  std::set_intersection(allowed.begin(), allowed.end(), settings.nearCpus.begin(), settings.nearCpus.end(),
                        std::back_inserter(both));
  const std::size_t wanted = static_cast<std::size_t>(std::max(1, settings.localRanks)) *
                             static_cast<std::size_t>(busyThreads(settings, static_cast<int>(allowed.size())));
  return both.size() < wanted || both.size() == allowed.size() ? std::vector<int>() : both;
}

void WorkerPool::Queue::push(Job& job) noexcept {
  job.next = nullptr;
  (first == nullptr ? first : last->next) = &job;
  last = &job;
}

Job* WorkerPool::Queue::pop() noexcept {
  Job* const job = first;
  if (job != nullptr) first = job->next;
  return job;
}

Result<WorkerPool::Lease> WorkerPool::acquire(const Settings& settings) {
  const std::scoped_lock lock(registryMutex);
  if (current == nullptr) {
    const int cpus = allowedCpus();
    const int threads = workerThreads(settings, cpus);
    const std::vector<int> kept = cpusToKeepTo(settings, affinityCpus());
    struct Delete {
      void operator()(WorkerPool* pool) const noexcept { delete pool; }
    };
    std::unique_ptr<WorkerPool, Delete> pool(new WorkerPool(workerSpin(settings, cpus)));
    CGX_TRY(pool->start(threads, kept));
    CGX_LOG(Info, Codec, "%d codec threads (%d CPUs allowed, %d local ranks%s)", threads, cpus, settings.localRanks,
            kept.empty() ? "" : (", kept to the " + std::to_string(kept.size()) + " near the NIC").c_str());
    current = pool.release();
  }
  ++leases;
  return Lease(current);
}

void WorkerPool::Lease::release() noexcept {
  WorkerPool* const pool = std::exchange(pool_, nullptr);
  if (pool == nullptr) return;
  {
    const std::scoped_lock lock(registryMutex);
    if (--leases > 0) return;
    current = nullptr;  // whoever comes now gets a new pool and need not wait for the old one's threads
  }
  delete pool;
}

Status WorkerPool::start(int threads, const std::vector<int>& cpus) {
  threads_.reserve(static_cast<std::size_t>(threads));
  const sigset_t blocked = signalsOfTheHost();
  sigset_t before;
  pthread_sigmask(SIG_SETMASK, &blocked, &before);
  int error = 0;
  for (int i = 0; i < threads; ++i) {
    pthread_t thread{};
    error = pthread_create(&thread, nullptr, &WorkerPool::entry, this);
    if (error != 0) break;
    threads_.push_back(thread);
    (void)keepTo(thread, cpus);  // refused: the process may run elsewhere now, and so does the thread
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return error == 0 ? Status() : Status::system("cannot start a codec thread", error);
}

WorkerPool::~WorkerPool() {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
    wake_.notify_all();
  }
  for (const pthread_t thread : threads_) pthread_join(thread, nullptr);
}

void WorkerPool::post(Job& job, Urgency urgency) noexcept {
  const std::scoped_lock lock(mutex_);
  (urgency == Urgency::Urgent ? urgent_ : normal_).push(job);
  queued_.store(queued_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  // Under the lock: once it is free the job may have run and the pool may be gone.
  if (sleepers_ > 0) wake_.notify_one();
}

void* WorkerPool::entry(void* pool) noexcept {
  auto& self = *static_cast<WorkerPool*>(pool);
  char name[16];  // the kernel's limit
  std::snprintf(name, sizeof name, "cgx-worker-%d", self.started_.fetch_add(1) % 1000);
  pthread_setname_np(pthread_self(), name);
  while (Job* const job = self.next()) job->run(job);
  return nullptr;
}

/// Null: the pool is closing and nothing is queued.
Job* WorkerPool::next() noexcept {
  if (spin_.count() > 0) {
    const auto until = std::chrono::steady_clock::now() + spin_;
    do {
      // A hint only: the lock orders the job's memory.
      if (queued_.load(std::memory_order_relaxed) > 0) {
        const std::scoped_lock lock(mutex_);
        if (Job* const job = pop(); job != nullptr) return job;
      }
      relaxCpu();
    } while (std::chrono::steady_clock::now() < until);
  }
  std::unique_lock lock(mutex_);
  for (;;) {
    Job* const job = pop();
    if (job != nullptr || stopping_) return job;
    ++sleepers_;
    wake_.wait(lock);
    --sleepers_;
  }
}

Job* WorkerPool::pop() noexcept {
  Job* job = urgent_.pop();
  if (job == nullptr) job = normal_.pop();
  if (job != nullptr) queued_.store(queued_.load(std::memory_order_relaxed) - 1, std::memory_order_relaxed);
  return job;
}

}  // namespace cgx
